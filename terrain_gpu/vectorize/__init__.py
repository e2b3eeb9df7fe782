"""Layers as vectors: polygons of equal labels, and contours.

- `polygon_problem`: `polygons` of equal labels of any layer
- `outlines`: of polygons, traced in a block, and assembled
- `contouring`: `contours`, as lines or as areas
- `contour_levels`: where they are drawn
- `contour_lines`, `contour_kernels`: lines, interpolated
- `contour_bands`: areas between breaks, which are polygons of labels
- `pieces`: what all of these are, and pieces of lines, from all blocks, joined
"""

from .contouring import Contours, contours
from .polygon_problem import Polygons, polygons

__all__ = [
    "Contours",
    "Polygons",
    "contours",
    "polygons",
]
