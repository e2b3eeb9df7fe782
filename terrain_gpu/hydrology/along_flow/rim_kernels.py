"""Kernels of the cells at the rim of a block, and of the ring around it.

Arrays include the ring, as in `kernels`. Cells are visited row by row, so lists are sorted.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ...grid.neighbours import COL_STEP, ROW_STEP
from ..common.code_values import NOWHERE

_BACK = (1 << (np.arange(8) + 4 & 7)).astype(np.uint8)
"""Code of the direction from each neighbour to this cell."""


@register_jitable
def _sides(row, rows, cols):
    """Return the step between the cells of a window's rim in a row: all, or the first and last."""
    return 1 if row in (0, rows - 1) else max(cols - 1, 1)


@jit
def ring_cells(rows, cols):
    """Return the flat indices, int32, of the cells of the ring; `rows` and `cols` include it."""
    found, count = np.empty(2 * (rows + cols), np.int32), 0
    for row in range(rows):
        for col in range(0, cols, _sides(row, rows, cols)):
            found[count] = row * cols + col
            count += 1
    return found[:count]


@jit
def fill_ring(values, value):
    """Set the cells of the ring."""
    rows, cols = values.shape
    for row in range(rows):
        for col in range(0, cols, _sides(row, rows, cols)):
            values[row, col] = value


@jit
def filled_at(amounts, empty):
    """Return the positions of cells, int64, at which an amount of any column is not empty.

    `amounts` has the shape (columns, cells).
    """
    found, count = np.empty(amounts.shape[1], np.int64), 0
    for k in range(amounts.shape[1]):
        filled = False
        for column in range(len(amounts)):
            filled |= amounts[column, k] != empty
        found[count] = k
        count += filled
    return found[:count]


@jit
def entries(codes):
    """Return the flat indices, int32, of the cells that cells of the ring drain to."""
    rows, cols = codes.shape
    found, count = np.empty(2 * (rows + cols), np.int32), 0
    for row in range(1, rows - 1):
        for col in range(1, cols - 1, _sides(row - 1, rows - 2, cols - 2)):
            enters = False
            for k in range(8):
                r, c = row + ROW_STEP[k], col + COL_STEP[k]
                beyond = r == 0 or r == rows - 1 or c == 0 or c == cols - 1
                enters |= beyond and codes[r, c] == _BACK[k]
            if enters and codes[row, col] != NOWHERE:
                found[count] = row * cols + col
                count += 1
    return found[:count]


@jit
def known_at(ids, window, rows, cols):
    """Return the positions in sorted ids of those of cells at the rim of a window.

    Parameters
    ----------
    ids
        int64, ids of cells of the raster, sorted.
    window
        The window, which may reach beyond the raster.
    rows, cols
        Shape of the raster.
    """
    r0, r1, c0, c1 = window
    found, count = np.empty(2 * (r1 - r0 + c1 - c0), np.int64), 0
    for row in range(max(r0, 0), min(r1, rows)):
        at = np.searchsorted(ids, row * cols + max(c0, 0))
        for col in range(c0, c1, _sides(row - r0, r1 - r0, c1 - c0)):
            if not 0 <= col < cols:
                continue
            while at < len(ids) and ids[at] < row * cols + col:
                at += 1
            if at < len(ids) and ids[at] == row * cols + col:
                found[count] = at
                count += 1
    return found[:count]
