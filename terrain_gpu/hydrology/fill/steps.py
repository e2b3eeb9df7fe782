"""Heights as ordinals, and how raised cells step up from those that are not.

The ordinal of a height says which one of its type it is: the next representable height has the
next ordinal, and nodata has none. So the least heights that fall strictly are those of shortest
ways: ordinals of at least the cell's own and one more than the least one beside it.

Arrays have one ring of cells around a block and are indexed flat.
"""

from __future__ import annotations

import math

import numpy as np

from ...compiled import jit
from ...grid.neighbours import COL_STEP, ROW_STEP

UNKNOWN = np.iinfo(np.int64).max
"""In place of the ordinal of a cell that does not drain, or whose level is not known yet."""

LOWEST = np.iinfo(np.int64).min
"""Less than any ordinal and the steps of a way."""

_RAISED, _LISTED = 1, 2


def ordinals(heights: np.ndarray, nodata: float | int | None) -> np.ndarray:
    """Return the ordinals of heights of a float type, int64; 0.0 and -0.0 have the same one."""
    kind = f"i{heights.itemsize}"
    bits = heights.view(kind).astype(np.int64)
    found = np.where(bits < 0, np.iinfo(kind).min - bits, bits)
    if nodata is not None and math.isfinite(nodata):
        found -= found > ordinals(np.array(nodata, heights.dtype), None)
    return found


def heights_of(found: np.ndarray, dtype: np.dtype, nodata: float | int | None) -> np.ndarray:
    """Return the heights of ordinals."""
    kind = f"i{dtype.itemsize}"
    if nodata is not None and math.isfinite(nodata):
        found = found + (found >= ordinals(np.array(nodata, dtype), None))
    return np.where(found < 0, np.iinfo(kind).min - found, found).astype(kind).view(dtype)


@jit
def shores(shape, own, levels, by, marks, listed):
    """List the raised cells of a block, and the cells beside them that are not.

    Parameters
    ----------
    shape
        Rows and columns, with the ring.
    own, levels
        Ordinals of heights and of levels that are high enough; alike in the ring. Levels of raised
        cells become `UNKNOWN`.
    by
        1 for eight neighbours, 2 for four.
    marks
        uint8: receives which cells are raised.
    listed
        int32: receives the cells.

    Returns
    -------
    int
        How many there are.
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
    """Compute the levels of raised cells, from the lowest ones upwards.

    Those at their own height are taken from `order`, the others from a queue: each is one step
    above the cell before it, so that levels in the queue never fall.

    Parameters
    ----------
    order
        From `shores`, sorted by `own`.
    queue
        int32 work space.
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
