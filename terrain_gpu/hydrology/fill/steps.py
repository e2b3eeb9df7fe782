"""Elevations as ordinals, and the levels of raised cells above those that are not raised.

Ordinals number the values of a float type: the next larger elevation has the next ordinal, and
nodata has none. The lowest levels that descend strictly then follow from shortest paths: the
ordinal of a cell is at least its own, and one more than the lowest among its neighbours.

Arrays have a margin of one cell around a block and are indexed flat.
"""

from __future__ import annotations

import math

import numpy as np

from ...compiled import jit
from ...grid.neighbours import COL_STEP, ROW_STEP

UNKNOWN = np.iinfo(np.int64).max
"""Stands for the ordinal of a cell that does not drain, or whose level is not known yet."""

LOWEST = np.iinfo(np.int64).min
"""Less than any ordinal, even with all the steps of a path added."""

_RAISED, _LISTED = 1, 2


def ordinals(heights: np.ndarray, nodata: float | int | None) -> np.ndarray:
    """Return the ordinals of elevations of a float type, int64. 0.0 and -0.0 have the same one."""
    kind = f"i{heights.itemsize}"
    bits = heights.view(kind).astype(np.int64)
    numbers = np.where(bits < 0, np.iinfo(kind).min - bits, bits)
    if nodata is not None and math.isfinite(nodata):
        numbers -= numbers > ordinals(np.array(nodata, heights.dtype), None)
    return numbers


def heights_of(found: np.ndarray, dtype: np.dtype, nodata: float | int | None) -> np.ndarray:
    """Return the elevations of ordinals, of type `dtype`."""
    kind = f"i{dtype.itemsize}"
    if nodata is not None and math.isfinite(nodata):
        found = found + (found >= ordinals(np.array(nodata, dtype), None))
    return np.where(found < 0, np.iinfo(kind).min - found, found).astype(kind).view(dtype)


@jit
def shores(shape, own, levels, by, marks, listed):
    """List the raised cells of a block, and the cells next to them that are not raised.

    Parameters
    ----------
    shape
        Number of rows and columns, including the margin.
    own, levels
        Ordinals of elevations, and of upper bounds of levels; equal in the margin. Levels of raised
        cells become `UNKNOWN`.
    by
        1 for eight neighbours, 2 for four.
    marks
        uint8. Receives the marks of raised and of listed cells.
    listed
        int32. Receives the cells.

    Returns
    -------
    int
        The number of cells listed.
    """
    rows, cols = shape
    step = ROW_STEP * cols + COL_STEP
    marks[: rows * cols] = 0
    for row in range(1, rows - 1):
        for at in range(row * cols + 1, row * cols + cols - 1):
            marks[at] = _RAISED if levels[at] > own[at] else 0
    count = 0
    for row in range(1, rows - 1):
        for at in range(row * cols + 1, row * cols + cols - 1):
            if marks[at] != _RAISED:
                continue
            levels[at] = UNKNOWN
            listed[count] = at
            count += 1
            for k in range(0, 8, by):
                to = at + step[k]
                if marks[to] == 0 and own[to] < UNKNOWN:
                    marks[to] = _LISTED
                    listed[count] = to
                    count += 1
    return count


@jit
def rise(cols, order, own, levels, by, marks, queue):
    """Compute the levels of raised cells, from the lowest upwards.

    Cells at their own elevation are taken from `order`, the others from a queue. Each of these is
    one step above the cell that added it, so levels in the queue never decrease.

    Parameters
    ----------
    order
        Cells listed by `shores`, sorted by `own`.
    queue
        int32, work space.
    """
    step = ROW_STEP * cols + COL_STEP
    following, head, tail = 0, 0, 0
    while following < len(order) or head < tail:
        ground = following < len(order)
        if ground and (head == tail or own[order[following]] <= levels[queue[head]]):
            at = order[following]
            following += 1
            if levels[at] != own[at]:
                continue
        else:
            at = queue[head]
            head += 1
        above = levels[at] + 1
        for k in range(0, 8, by):
            to = at + step[k]
            if 0 <= to < len(levels) and marks[to] == _RAISED and levels[to] == UNKNOWN:
                levels[to] = max(own[to], above)
                if above > own[to]:
                    queue[tail] = to
                    tail += 1
