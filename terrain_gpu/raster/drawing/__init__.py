"""Layers as features of a file: what `contours` and `polygons` share."""
