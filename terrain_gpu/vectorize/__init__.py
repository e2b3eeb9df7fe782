"""Layers as vectors: polygons of equal labels, contours.

- `polygon_problem`: `polygons` of equal labels of any layer
- `outlines`: of polygons, traced in a block, and assembled
- `pieces`: of lines, from all blocks, joined and read again
"""

from .polygon_problem import Polygons, polygons

__all__ = [
    "Polygons",
    "polygons",
]
