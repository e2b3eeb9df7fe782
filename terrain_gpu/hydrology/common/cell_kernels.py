"""Kernels between cells of a block, as flat indices, and their ids in the raster.

In numpy, each step over the thousands of cells at a rim gives up the interpreter's lock, and waits
for it again.
"""

from __future__ import annotations

import numpy as np

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
