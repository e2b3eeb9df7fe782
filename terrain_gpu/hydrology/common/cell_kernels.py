"""Kernels of cells of a block, as flat indices: their ids in the raster, and those beside others.

In numpy, each step over the thousands of cells at a rim gives up the interpreter's lock, and waits
for it again.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit


@jit
def ids_of(cells, row0, col0, width, cols):
    """Return the ids of cells, int64; -1 for negative indices.

    Parameters
    ----------
    cells
        Flat indices in a window.
    row0, col0, width
        The window's first row and column in the raster, and its number of columns.
    cols
        The number of columns of the raster.
    """
    ids = np.empty(len(cells), np.int64)
    for k in range(len(cells)):
        cell = np.int64(cells[k])
        ids[k] = (row0 + cell // width) * cols + col0 + cell % width if cell >= 0 else -1
    return ids


@jit
def cells_of(ids, row0, col0, width, cols):
    """Return the flat indices, int32, of ids in a window; see `ids_of`."""
    cells = np.empty(len(ids), np.int32)
    for k in range(len(ids)):
        cells[k] = (ids[k] // cols - row0) * width + ids[k] % cols - col0
    return cells


@jit
def cells_beside(valid, beyond):
    """Return the valid cells of a block with a cell of `beyond` among their eight neighbours.

    Both are masks of the block with a margin of one cell. The cells are flat indices in the block,
    int32.
    """
    rows, cols = valid.shape
    counts, here = np.empty(rows - 2, np.int64), np.empty(cols - 2, np.bool_)
    for row in range(1, rows - 1):
        counts[row - 1] = _mark_beside(valid, beyond, row, here)
    found, count = np.empty(counts.sum(), np.int32), 0
    for row in range(1, rows - 1):
        if counts[row - 1]:
            _mark_beside(valid, beyond, row, here)
            for x in range(cols - 2):
                if here[x]:
                    found[count] = (row - 1) * (cols - 2) + x
                    count += 1
    return found


@register_jitable
def _mark_beside(valid, beyond, row, here):
    """Mark such cells in a row; return their number."""
    above, own, below = beyond[row - 1], beyond[row], beyond[row + 1]
    count = 0
    for x in range(len(here)):
        west, middle = above[x] | own[x] | below[x], above[x + 1] | own[x + 1] | below[x + 1]
        near = west | middle | above[x + 2] | own[x + 2] | below[x + 2]
        here[x] = near & valid[row, x + 1]
        count += here[x]
    return count
