"""Polygons of equal labels: `polygons`."""
