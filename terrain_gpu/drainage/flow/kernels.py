"""A block of flow directions: what drains through its cells, and where their ways lead.

Arrays have one ring of cells around the block and are indexed flat.
"""

from __future__ import annotations

import numpy as np

from ...compiled import jit
from ...grid.neighbours import COL_STEP, EDGE_OF, ROW_STEP
from ..codes import NOWHERE, OUTLET

_STEP = np.full(256, 9)
_STEP[OUTLET] = _STEP[NOWHERE] = 8
for _k in range(8):
    _STEP[1 << _k] = _k
"""Number of the neighbour of each code, 8 for none, 9 for what is not a code."""

MAX, TAKE, ADD, STEP = range(4)
"""How a cell's own value and the value of the next cell combine: see `follow`."""

UNKNOWN, ENDED, ACTIVE = -1, -2, -3
"""Where ways leave the block: not followed yet; they end inside; being followed."""

NO_STOPS = np.empty(0, np.bool_)
"""Where ways end at outlets alone."""

_RING = 100
"""More than the number of neighbours: cells of the ring always wait."""


@jit
def next_cells(codes, after):
    """Compute the flat index of the cell that each cell of a block drains to.

    Parameters
    ----------
    codes
        uint8, shape (rows + 2, cols + 2).
    after
        int32, flat: receives the index, -1 at outlets, -2 at cells that do not drain.

    Returns
    -------
    int
        Index of a cell whose code is none; -1 if all are good.
    """
    rows, cols = codes.shape
    flat = codes.ravel()
    step = ROW_STEP * cols + COL_STEP
    for row in range(1, rows - 1):
        for at in range(row * cols + 1, row * cols + cols - 1):
            code = flat[at]
            k = _STEP[code]
            if k == 9:
                return at
            if k == 8:
                after[at] = -1 if code == OUTLET else -2
            else:
                to = at + step[k]
                after[at] = to if flat[to] != NOWHERE else -1
    return -1


@jit
def pass_on(codes, after, waiting, sums, adds):
    """Pass the sum of each cell on to the next one, after all that drains into it.

    Parameters
    ----------
    after
        From `next_cells`.
    waiting
        uint8 work space.
    sums
        int64: value of each cell and of what drains into it from other blocks, 0 in the ring.
        Receives what drains through each cell; in the ring, what drains there out of the block.
    adds
        Whether values are added; otherwise the larger one is kept.

    Returns
    -------
    int
        Index of a cell on a circle; -1 if there is none.
    """
    rows, cols = codes.shape
    waiting[:] = _RING
    for row in range(1, rows - 1):
        waiting[row * cols + 1 : row * cols + cols - 1] = 0
    for row in range(1, rows - 1):
        for at in range(row * cols + 1, row * cols + cols - 1):
            if after[at] >= 0:
                waiting[after[at]] += 1
    for row in range(1, rows - 1):
        for start in range(row * cols + 1, row * cols + cols - 1):
            at = start
            while waiting[at] == 0:
                waiting[at] = 255
                to = after[at]
                if to < 0:
                    break
                if adds:
                    sums[to] += sums[at]
                elif sums[to] < sums[at]:
                    sums[to] = sums[at]
                waiting[to] -= 1
                at = to
    for row in range(1, rows - 1):
        for at in range(row * cols + 1, row * cols + cols - 1):
            if waiting[at] != 255:
                return at
    return -1


@jit
def follow(after, cells, own, stops, how, exits, values, stack):
    """Follow the flow from some cells until it stops, ends or leaves the block.

    Parameters
    ----------
    after
        From `next_cells`.
    cells
        int32, where to start.
    own
        The value of each cell.
    stops
        bool: cells at which ways end, besides outlets; or empty.
    how
        The value of a way from a cell. At its end, the cell's own value. Elsewhere, of the own
        value and that of the way from the next cell: the larger one (`MAX`), the latter (`TAKE`),
        the sum (`ADD`), or the larger one, with one more than the latter (`STEP`).
    exits
        int32, `UNKNOWN` inside the block. Receives the cell of the ring to which each way leaves
        the block, or `ENDED`. Its cells of the ring hold this already.
    values
        The values of ways from cells of the ring; receives those of ways from the cells.
    stack
        int32 work space.

    Returns
    -------
    int
        Index of a cell on a circle; -1 if there is none.
    """
    for start in cells:
        depth, at = 0, start
        while exits[at] == UNKNOWN:
            to = after[at]
            if to < 0 or (len(stops) and stops[at]):
                exits[at], values[at] = ENDED, own[at]
                break
            exits[at] = ACTIVE
            stack[depth] = at
            depth += 1
            at = to
        if exits[at] == ACTIVE:
            return at
        to = at
        for i in range(depth - 1, -1, -1):
            at = stack[i]
            exits[at] = exits[to]
            if how == TAKE:
                values[at] = values[to]
            elif how == ADD:
                values[at] = own[at] + values[to]
            elif how == STEP:
                values[at] = max(own[at], values[to] + 1)
            else:  # of equal ones the first, so that blocks do not decide between 0.0 and -0.0
                values[at] = values[to] if values[to] > own[at] else own[at]
            to = at
    return -1


@jit
def entries(codes, after, into):
    """List the cells of a block into which cells of the ring drain; with repetitions.

    Parameters
    ----------
    into
        int32: receives their indices.

    Returns
    -------
    int
        How many there are.
    """
    rows, cols = codes.shape
    flat = codes.ravel()
    count = 0
    for row in range(rows):
        # All of the first and the last row, of others the first and the last cell.
        for col in range(0, cols, 1 if row in (0, rows - 1) else cols - 1):
            k = _STEP[flat[row * cols + col]]
            if k >= 8:
                continue
            r, c = row + ROW_STEP[k], col + COL_STEP[k]
            if 0 < r < rows - 1 and 0 < c < cols - 1 and after[r * cols + c] != -2:
                into[count] = r * cols + c
                count += 1
    return count


@jit
def join_upstream(following, waiting, amounts, adds):
    """Pass amounts on between entries; returns an entry on a circle, -1 if there is none.

    Parameters
    ----------
    following
        int64: the entry of another block that the flow from each reaches next, -1 for none.
    waiting
        int64 work space.
    amounts
        int64: receives, in addition, what comes from other entries.
    adds
        See `pass_on`.
    """
    waiting[:] = 0
    for to in following:
        if to >= 0:
            waiting[to] += 1
    for start in range(len(following)):
        at = start
        while at >= 0 and waiting[at] == 0:
            waiting[at] = -1
            to = following[at]
            if to >= 0:
                amounts[to] = amounts[to] + amounts[at] if adds else max(amounts[to], amounts[at])
                waiting[to] -= 1
            at = to
    for at in range(len(following)):
        if waiting[at] >= 0:
            return at
    return -1


@jit
def step_lengths_to(codes, after, stops, row0, units, never, own):
    """Length of the step from each cell to the next one, 0 at stops, `never` at other ends.

    Parameters
    ----------
    stops
        bool, flat.
    row0
        The row of the raster that is the first of the block.
    units
        int64, see `grid.lengths.step_lengths`.
    own
        int64, flat: receives the lengths.
    """
    rows, cols = codes.shape
    flat = codes.ravel()
    for row in range(1, rows - 1):
        for at in range(row * cols + 1, row * cols + cols - 1):
            if stops[at]:
                own[at] = 0
            elif after[at] < 0:
                own[at] = never
            else:
                k = _STEP[flat[at]]
                own[at] = units[EDGE_OF[k], row0 + row - 1 + min(ROW_STEP[k], 0)]
