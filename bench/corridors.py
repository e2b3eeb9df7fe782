"""Frictions that make relaxation visit blocks as often as we know how: docs/design/bounds.md."""

from __future__ import annotations

import numpy as np


def spiral(side: int) -> np.ndarray:
    """A corridor one cell wide from the corner to the middle; side is a multiple of four."""
    rows, cols = np.ogrid[:side, :side]
    ring = np.minimum(np.minimum(rows, cols), side - 1 - np.maximum(rows, cols))
    cells = np.where(ring % 2, np.nan, 1).astype(np.float32)
    first = np.arange(0, side // 2 - 2, 2)
    cells[first + 1, first], cells[first + 2, first + 1] = np.nan, 1  # to the next ring inwards
    return cells


def cascade(side: int, block: int) -> np.ndarray:
    """Groups of three blocks, in which every turn of a corridor improves all of the third.

    The corridor winds through two blocks. Wherever it turns at the third, it enters through a cell
    whose friction is so much less than at the turn before that all cells become nearer.
    """
    group = np.full((block, 3 * block), np.nan, np.float32)
    group[::2, : 2 * block] = group[1::4, 2 * block - 1] = group[3:-1:4, 0] = 1
    group[::4, 2 * block] = 1
    group[::4, 2 * block + 1] = 8 * block * np.arange(block // 4, 0, -1)
    group[:-1, 2 * block + 2 : -1] = 0.001
    count = -(-side // block)
    return np.tile(group, (count, -(-count // 3)))[:side, :side]


def sources_of(kind: str, side: int, block: int) -> list[tuple[int, int]]:
    """Where corridors begin; of other rasters the middle cell."""
    if kind == "cascade":
        return [(r, c) for r in range(0, side, block) for c in range(0, side, 3 * block)]
    return [(0, 0)] if kind == "spiral" else [(side // 2, side // 2)]
