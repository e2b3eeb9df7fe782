"""Contour lines, and areas between levels: `contours`."""
