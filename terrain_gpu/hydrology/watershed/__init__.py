"""Watersheds of pour points: `watershed`."""
