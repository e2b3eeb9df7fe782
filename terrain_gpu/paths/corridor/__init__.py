"""Least-cost corridors: `corridor`."""
