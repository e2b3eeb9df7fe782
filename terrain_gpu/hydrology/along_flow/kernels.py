"""A block of flow directions: what drains through its cells, and where their flow paths end.

Arrays include a ring of one cell around the block. Cells have flat indices, ring included.

Cells are sorted so that each comes before the one it drains to: first the cells without inflow, row
by row, then those that only these drain to, and so on. Everything else is a sweep up or down this
order. Consecutive cells are mostly independent, so the processor can overlap them, and no branch is
hard to predict. The sort takes a few rows at a time, so that the cells stay in the processor's
cache. Its indices are unsigned, because numba must check whether signed ones count from the end.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ...grid.neighbours import COL_STEP, EDGE_OF, ROW_STEP
from ..common.code_values import NOWHERE, OUTLET
from .rim_kernels import entries, ring_cells

_STEP = np.full(256, 9)
_STEP[OUTLET] = _STEP[NOWHERE] = 8
for _k in range(8):
    _STEP[1 << _k] = _k
"""Number of the neighbour for each code; 8 for none, 9 if it is not a code."""

_CODE = (1 << np.arange(8)).astype(np.uint8)
"""Code of the direction to each neighbour."""

_BACK = np.roll(_CODE, 4)
"""Code of the direction from each neighbour to this cell."""

MAX, TAKE, ADD, STEP = range(4)
"""How the value of a cell combines with that of the next one; see `follow`."""

UNKNOWN, ENDED, ACTIVE = -1, -2, -3
"""States of a cell's flow path: not followed yet; ends inside the block; being followed."""

_BAND = 32
"""Number of rows whose cells without inflow are put in the order at a time."""

_NONE = np.uint8(0)
_ALL = np.uint8(255)


@register_jitable
def _steps(cols):
    """Return the step to the next cell for each code, 0 where the flow path ends."""
    steps = np.zeros(256, np.int64)
    for k in range(8):
        steps[_CODE[k]] = ROW_STEP[k] * cols + COL_STEP[k]
    return steps


@jit
def prepare(codes):
    """Let flow paths end in the ring; return the index of a cell without a code, and the entries.

    The index is that of the first cell of the block that holds no D8 code, -1 if there is none. For
    the entries see `rim_kernels.entries`.
    """
    wrong = _first_wrong(codes)
    into = entries(codes)
    if wrong < 0:
        _end_inside(codes)
    return wrong, into


@register_jitable
def _first_wrong(codes):
    """Return the index of the first cell that holds no D8 code; -1 if there is none."""
    rows, cols = codes.shape
    for row in range(1, rows - 1):
        own = codes[row, 1 : cols - 1]
        wrong = _NONE
        for x in range(len(own)):
            wrong |= own[x] & (own[x] - np.uint8(1)) & (_NONE if own[x] == NOWHERE else _ALL)
        if wrong:
            for x in range(len(own)):
                if _STEP[own[x]] == 9:
                    return row * cols + 1 + x
    return -1


@register_jitable
def _end_inside(codes):
    """Let flow paths end in the ring, and at cells that drain to a cell without direction."""
    rows, cols = codes.shape
    lost = np.empty(cols - 2, np.bool_)
    for row in range(1, rows - 1):
        own = codes[row, 1 : cols - 1]
        lost[:] = False
        for k in range(8):
            code, c = _CODE[k], 1 + COL_STEP[k]
            there = codes[row + ROW_STEP[k], c : c + cols - 2]
            for x in range(cols - 2):
                lost[x] |= (own[x] == code) & (there[x] == NOWHERE)
        for x in range(cols - 2):
            own[x] = _NONE if lost[x] else own[x]
    for row in range(rows):
        for col in range(0, cols, 1 if row in (0, rows - 1) else cols - 1):
            if codes[row, col] != NOWHERE:
                codes[row, col] = OUTLET


@jit
def sort_cells(codes, inflow, order):
    """Order the cells of a block so that each comes before the one it drains to.

    Parameters
    ----------
    codes
        uint8, shape (rows + 2, cols + 2), in which flow paths end; see `prepare`.
    inflow
        uint8, work space of the same shape: the directions from which a cell still awaits inflow.
    order
        int32, of the same size. Receives the cells that drain to another one, in order.

    Returns
    -------
    count, cycle
        The number of these cells, and the index of a cell on a cycle, -1 if there is none.
    """
    rows, cols = codes.shape
    inflow[:] = _ALL  # keeps the ring, and all cells where paths end, out of the order
    expected = 0
    for row in range(1, rows - 1):
        bits, own = inflow[row, 1 : cols - 1], codes[row, 1 : cols - 1]
        bits[:] = _NONE
        for k in range(8):
            code, c = _BACK[k], 1 + COL_STEP[k]
            there = codes[row + ROW_STEP[k], c : c + cols - 2]
            for x in range(cols - 2):
                bits[x] |= code if there[x] == code else _NONE
        for x in range(cols - 2):
            ends = (own[x] == OUTLET) | (own[x] == NOWHERE)
            bits[x] = _ALL if ends else bits[x]
            expected += not ends
    flat, bits = codes.ravel(), inflow.ravel()
    steps = _steps(cols).view(np.uint64)
    size, band = np.uint64(len(bits)), np.uint64(_BAND * cols)
    first = count = done = np.uint64(0)
    while first < size:
        last = min(first + band, size)
        for at in range(first, last):
            order[count] = at
            count += np.uint64(bits[at] == 0)
        while done < count:
            at = np.uint64(order[done])
            to = at + steps[flat[at]]
            left = bits[to] & ~flat[at]
            order[count] = to
            # All eight neighbours may drain to an outlet.
            count += np.uint64((left == 0) & (flat[to] != OUTLET))
            # So that a later band does not treat it as a cell without inflow.
            bits[to] = left | np.uint8(-(left == 0))
            done += np.uint64(1)
        first = last
    if count < expected:
        ordered = np.zeros(len(bits), np.bool_)
        ordered[order[:count]] = True
        for at in range(len(bits)):
            if steps[flat[at]] != 0 and not ordered[at]:
                return count, at
    return count, -1


@jit
def pass_on(codes, order, sums, adds):
    """Pass the sum of each cell to the next one, once everything that drains into it has arrived.

    Parameters
    ----------
    order
        From `sort_cells`.
    sums
        Array of the shape of the codes: the value of each cell plus what drains into it from other
        blocks. Receives what drains through each cell. What leaves the block is added in the ring.
    adds
        Whether values are added; otherwise the maximum is kept.
    """
    flat, each = codes.ravel(), sums.ravel()
    steps = _steps(codes.shape[1]).view(np.uint64)
    if adds:
        for i in range(len(order)):
            at = np.uint64(order[i])
            each[at + steps[flat[at]]] += each[at]
    else:
        for i in range(len(order)):
            at = np.uint64(order[i])
            to = at + steps[flat[at]]
            each[to] = max(each[to], each[at])


@jit
def take_in(sums, cells, amounts, adds):
    """Combine the sums of some cells with what enters there; see `pass_on`."""
    each = sums.ravel()
    for k in range(len(cells)):
        at = cells[k]
        each[at] = each[at] + amounts[k] if adds else max(each[at], amounts[k])


@jit
def number_outlets(codes, firsts, numbers):
    """Number the outlets of a block from left to right, and set all other cells to 0.

    Parameters
    ----------
    firsts
        int64, the number of the first outlet of each row of the block.
    numbers
        Array of the shape of the codes.
    """
    numbers[:] = 0
    for row in range(1, codes.shape[0] - 1):
        number = firsts[row - 1]
        for col in range(1, codes.shape[1] - 1):
            if codes[row, col] == OUTLET:
                numbers[row, col] = number
                number += 1


@register_jitable
def _joined(own, beyond, one, how):
    """Combine the value of a cell with that of the path from the next one; `one` has their type."""
    if how == TAKE:
        return beyond
    if how == ADD:
        return own + beyond
    if how == STEP:
        return max(own, beyond + one)
    # The cell's own value on a tie, so that the choice of 0.0 or -0.0 does not depend on blocks.
    return beyond if beyond > own else own


@jit
def follow_all(codes, order, how, values):
    """Follow the flow from all cells of a block.

    Parameters
    ----------
    order
        From `sort_cells`.
    how
        See `follow`.
    values
        Array of the shape of the codes: the value of each cell; in the ring, that of the flow path
        from there. Receives the value of the flow path from each cell.
    """
    flat, each = codes.ravel(), values.ravel()
    steps = _steps(codes.shape[1]).view(np.uint64)
    one = values.dtype.type(1)
    for i in range(len(order) - 1, -1, -1):
        at = np.uint64(order[i])
        each[at] = _joined(each[at], each[at + steps[flat[at]]], one, how)


@jit
def follow(codes, cells, how, exits, values, stack):
    """Follow the flow from some cells until it ends or leaves the block.

    Parameters
    ----------
    codes
        See `sort_cells`.
    cells
        int32, the cells to start from.
    how
        How the value of the flow path from a cell follows from the cell's own value and that of the
        path from the next cell: the larger of both (`MAX`), the latter (`TAKE`), their sum (`ADD`),
        or the larger of the own value and the latter plus 1 (`STEP`). At the end of a path it is
        the cell's own value.
    exits
        int32. Receives the cell of the ring where each path leaves the block, or `ENDED`.
    values
        The value of each cell; in the ring, that of the flow path from there. Receives the values
        of the flow paths from `cells`.
    stack
        int32, work space.

    Returns
    -------
    at, found
        Index of a cell on a cycle, -1 if there is none; and the exits of `cells`.
    """
    steps, flat, each = _steps(codes.shape[1]), codes.ravel(), values.ravel()
    one = values.dtype.type(1)
    exits[:] = UNKNOWN
    for at in ring_cells(*codes.shape):
        exits[at] = at
    found = np.empty(len(cells), np.int32)
    for k in range(len(cells)):
        start = cells[k]
        depth, at = 0, np.int64(start)
        while exits[at] == UNKNOWN:
            step = steps[flat[at]]
            if step == 0:
                exits[at] = ENDED
                break
            exits[at] = ACTIVE
            stack[depth] = at
            depth += 1
            at += step
        if exits[at] == ACTIVE:
            return at, found
        for i in range(depth - 1, -1, -1):
            to, at = at, np.int64(stack[i])
            exits[at] = exits[to]
            each[at] = _joined(each[at], each[to], one, how)
        found[k] = exits[start]
    return -1, found


@jit
def join_upstream(following, waiting, amounts, adds):
    """Pass amounts downstream between entries; return an entry on a cycle, -1 if there is none.

    Parameters
    ----------
    following
        int64, the entry of another block that the flow from each entry reaches next, -1 for none.
    waiting
        int64, work space.
    amounts
        int64, the amounts that enter at each entry. What comes from other entries is added.
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
def join_downstream(following, order, waiting, values, how):
    """Find the values of flow paths from entries; return an entry on a cycle, -1 if there is none.

    Parameters
    ----------
    following
        See `join_upstream`.
    order, waiting
        int64, work space.
    values
        The value of the first part of each entry's path, up to the next entry. Receives that of the
        whole path.
    how
        See `follow`.
    """
    waiting[:] = 0
    for to in following:
        if to >= 0:
            waiting[to] += 1
    count = 0
    for start in range(len(following)):
        at = start
        while at >= 0 and waiting[at] == 0:
            waiting[at] = -1
            order[count] = at
            count += 1
            at = following[at]
            if at >= 0:
                waiting[at] -= 1
    for at in range(len(following)):
        if waiting[at] >= 0:
            return at
    one = values.dtype.type(1)
    for i in range(count - 1, -1, -1):
        at = order[i]
        to = following[at]
        if to >= 0:
            values[at] = _joined(values[at], values[to], one, how)
    return -1


@jit
def step_lengths_to(codes, row0, units, own):
    """Find the length of the step from each cell of a block to the next one.

    Parameters
    ----------
    row0
        The first row of the block in the raster.
    units
        int64; see `grid.lengths.step_lengths`.
    own
        int64, of the shape of the codes. Receives the lengths; unchanged where no flow goes on.
    """
    rows, cols = codes.shape
    for row in range(1, rows - 1):
        for col in range(1, cols - 1):
            k = _STEP[codes[row, col]]
            if k < 8:
                own[row, col] = units[EDGE_OF[k], row0 + row - 1 + min(ROW_STEP[k], 0)]
