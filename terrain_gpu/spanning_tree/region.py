"""Solved rectangles of the raster, reduced to what the levels above need."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..grid import Window

Edges = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Keys, ids, and the vertices at both ends."""


@dataclass
class Border:
    """Cells along the border of a region: their operands, and whether they are vertices.

    `cells` and `valid` are each (top, bottom, left, right); corners are in both of their sides.
    """

    cells: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
    valid: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]

    @classmethod
    def of_block(cls, cells: np.ndarray, valid: np.ndarray) -> Border:
        """Copy the border of a block."""

        def sides(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
            return a[0].copy(), a[-1].copy(), a[:, 0].copy(), a[:, -1].copy()

        return cls(sides(cells), sides(valid))


@dataclass
class Region:
    """A solved rectangle.

    Attributes
    ----------
    window
        (row0, row1, col0, col1) in the raster.
    border
        Its border cells.
    candidates
        (keys, ids, us, vs): edges that may still be in the forest. ids are global, ``4 * cell +
        direction``; us and vs are global border cells that represent the components joined.
    """

    window: Window
    border: Border
    candidates: Edges
