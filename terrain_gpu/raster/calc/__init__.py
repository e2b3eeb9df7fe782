"""Arithmetic over layers: `calc`."""
