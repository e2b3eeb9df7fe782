"""Shortest paths on a GPU."""
