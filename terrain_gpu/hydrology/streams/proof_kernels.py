"""The local rule for orders of channels, and their reaches in a block, for proofs.

A reach is the part of a link in one block. It begins where a link begins or enters the block.
"""

from __future__ import annotations

import numpy as np

from ...compiled import jit
from ...grid.neighbours import COL_STEP, ROW_STEP
from ..common.code_values import NOWHERE

FAULTS = (
    "",
    "is on a cell that is not a channel",
    "does not follow from the channels that flow in",
    "is wrong for a head",
    "is wrong for an outlet",
    "does not follow from the channel downstream",
    "leads to a cell through which no more drains",
    "is not a D8 code",
)
OF_SUMS = 6
"""Faults from this number on concern directions and sums."""
STRAHLER, SHREVE, HACK, TOPOLOGICAL, LINK, HORTON = range(6)

_ROW_MAJOR = np.array([5, 6, 7, 4, 0, 3, 2, 1])
"""Neighbours in row-major order."""


@jit
def check_orders(codes, sums, found, least, strict, rule, begins, counts):
    """Compare the order of each channel of a block with those of the channels that flow in.

    Parameters
    ----------
    codes, sums, found
        Directions, sums and orders, with a margin of one cell.
    strict
        Whether sums must grow along every step; otherwise they may also be equal.
    rule
        The number of the order's rule.
    begins
        bool, shape (rows, cols). Receives the mask of cells where links begin.
    counts
        int64, shape (4,). Receives the numbers of channel cells, links, heads and outlets.

    Returns
    -------
    fault, row, col
        Index in `FAULTS`, and the cell in the block.
    """
    rows, cols = begins.shape
    counts[:] = 0
    for row in range(1, rows + 1):
        for col in range(1, cols + 1):
            begins[row - 1, col - 1] = False
            own = np.int64(found[row, col])
            if codes[row, col] == NOWHERE or not sums[row, col] >= least:
                if own != 0:
                    return 1, row - 1, col - 1
                continue
            outlet = codes[row, col] == 0
            if not outlet:
                step = -1
                for k in range(8):
                    if codes[row, col] == 1 << k:
                        step = k
                if step < 0:
                    return 7, row - 1, col - 1
                r, c = row + ROW_STEP[step], col + COL_STEP[step]
                outlet = codes[r, c] == NOWHERE
                grows = sums[r, c] > sums[row, col] or (not strict and sums[r, c] == sums[row, col])
                if not outlet and not grows:
                    return 6, row - 1, col - 1
            inflows, top, several, total, main = 0, np.int64(0), 0, np.int64(0), -1
            for k in _ROW_MAJOR:
                r, c = row + ROW_STEP[k], col + COL_STEP[k]
                if codes[r, c] != 1 << (k + 4 & 7) or not sums[r, c] >= least:
                    continue
                order = np.int64(found[r, c])
                inflows += 1
                total += order
                if order > top:
                    top, several = order, 1
                elif order == top:
                    several += 1
                if main < 0 or sums[r, c] > sums[row + ROW_STEP[main], col + COL_STEP[main]]:
                    main = k
            begins[row - 1, col - 1] = inflows != 1
            counts[0] += 1
            counts[1] += inflows != 1
            counts[2] += inflows == 0
            counts[3] += outlet
            if rule in (STRAHLER, SHREVE):
                right = top + (several > 1) if rule == STRAHLER else total
                if own != (right if inflows else 1):
                    return (2 if inflows else 3), row - 1, col - 1
                continue
            if rule in (LINK, HORTON):
                if (inflows == 1 and own != top) or own < 1:
                    return 2, row - 1, col - 1
                continue
            if outlet and own != 1:
                return 4, row - 1, col - 1
            for k in range(8):
                r, c = row + ROW_STEP[k], col + COL_STEP[k]
                if codes[r, c] != 1 << (k + 4 & 7) or not sums[r, c] >= least:
                    continue
                more = k != main if rule == HACK else inflows > 1
                if found[r, c] != own + more:
                    return 5, row - 1, col - 1
    return 0, 0, 0


NO_CHANNEL, INNER, ENTERED, BEGINS = range(4)
"""States of cells: not a channel; within a reach; a link enters the block; a link begins."""


@jit
def next_cell(codes, row, col):
    """Return the cell that a cell drains to; an outlet itself."""
    for k in range(8):
        if codes[row, col] == 1 << k:
            r, c = row + ROW_STEP[k], col + COL_STEP[k]
            if codes[r, c] != NOWHERE:
                return r, c
    return row, col


@jit
def find_reaches(codes, sums, least, state):
    """Find the cells where links begin or enter a block.

    Parameters
    ----------
    codes, sums
        Directions and sums, with a margin of one cell.
    state
        uint8, shape (rows, cols). Receives the state of each cell.
    """
    rows, cols = state.shape
    for row in range(1, rows + 1):
        for col in range(1, cols + 1):
            state[row - 1, col - 1] = NO_CHANNEL
            if codes[row, col] == NOWHERE or not sums[row, col] >= least:
                continue
            inflows, entered = 0, False
            for k in range(8):
                r, c = row + ROW_STEP[k], col + COL_STEP[k]
                if codes[r, c] == 1 << (k + 4 & 7) and sums[r, c] >= least:
                    inflows += 1
                    entered |= not (0 < r <= rows and 0 < c <= cols)
            within = ENTERED if entered else INNER
            state[row - 1, col - 1] = within if inflows == 1 else BEGINS


@jit
def follow_reaches(codes, state, corner, first, last, after):
    """Follow each reach of a block from its first cell to its last one.

    Parameters
    ----------
    codes
        Directions, with a margin of one cell.
    state
        See `find_reaches`. The inner cells of reaches become `NO_CHANNEL`; inner cells that remain
        are on loops.
    corner
        First row and column of the block, and number of columns of the raster.
    first, last, after
        int64. Receive the ids of the first cell, the last cell, and the one after it, -1 at
        outlets.
    """
    rows, cols = state.shape
    count = 0
    for row in range(rows):
        for col in range(cols):
            if state[row, col] < ENTERED:
                continue
            first[count] = (corner[0] + row) * corner[2] + corner[1] + col
            after[count] = -1
            at = row, col
            while True:
                r, c = next_cell(codes, at[0] + 1, at[1] + 1)
                to = r - 1, c - 1
                if to == at:
                    break
                inside = 0 <= to[0] < rows and 0 <= to[1] < cols
                if not inside or state[to] != INNER:
                    after[count] = (corner[0] + to[0]) * corner[2] + corner[1] + to[1]
                    break
                at = to
                state[at] = NO_CHANNEL
            last[count] = (corner[0] + at[0]) * corner[2] + corner[1] + at[1]
            count += 1


FIRST, END, BEFORE = 16, 32, 64
"""Marks of a step: the first cell of a line; its last cell, and the one before that, unless it has
only one."""
LINE_FAULTS = (
    "",
    "has a cell that is not on a channel",
    "does not follow the directions",
    "ends where no link ends",
    "begins where no link begins",
    "passes a cell where a link begins",
    "has a cell of another line",
)


@jit
def check_steps(codes, state, cells, steps, own, taken):
    """Compare some cells of lines in a block with its channels.

    Parameters
    ----------
    codes
        Directions, with a margin of one cell.
    state
        See `find_reaches`.
    cells, steps
        For each cell of the lines, its index in the block, and the number of the neighbour where
        the line continues (8 if it does not), with its marks.
    own
        bool. Receives whether each cell belongs to the link of its line.
    taken
        bool, shape (rows, cols), whether each cell belongs to a line. The given cells are added.

    Returns
    -------
    int, int
        Index in `LINE_FAULTS`, and index in `cells`.
    """
    cols = state.shape[1]
    for k in range(len(cells)):
        at = cells[k] // cols, cells[k] % cols
        step = steps[k] & 15
        if state[at] == NO_CHANNEL:
            return 1, k
        begins = state[at] == BEGINS
        own[k] = not (steps[k] & END and begins)
        if not own[k]:
            continue
        r, c = next_cell(codes, at[0] + 1, at[1] + 1)
        to = r - 1, c - 1
        if step == 8 and to != at:
            return 3, k
        if step < 8 and to != (at[0] + ROW_STEP[step], at[1] + COL_STEP[step]):
            return 2, k
        if begins != (steps[k] & FIRST != 0):
            return (5 if begins else 4), k
        if taken[at]:
            return 6, k
        taken[at] = True
    return 0, 0
