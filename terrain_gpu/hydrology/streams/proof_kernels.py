"""The local rule of orders of channels, and their reaches in a block, as proofs look at them.

A reach is what a block has of a link; one begins where a link does, and where a link comes in.
"""

from __future__ import annotations

import numpy as np

from ...compiled import jit
from ...grid.neighbours import COL_STEP, ROW_STEP
from ..common.code_values import NOWHERE

FAULTS = (
    "",
    "is that of a cell that is no channel",
    "is not that of the channels that flow in",
    "is not that of a head",
    "is not that of an outlet",
    "is not that of a channel that flows in",
    "leads to no cell through which more drains",
    "is not a D8 code",
)
OF_SUMS = 6
"""Faults from here on are of directions and sums."""
STRAHLER, SHREVE, HACK, TOPOLOGICAL, LINK, HORTON = range(6)

_ROW_MAJOR = np.array([5, 6, 7, 4, 0, 3, 2, 1])
"""Neighbours in row-major order."""


@jit
def check_orders(codes, sums, found, least, strict, rule, begins, counts):
    """Compare the order of each channel of a block with those of the channels that flow in.

    Parameters
    ----------
    codes, sums, found
        Directions, sums and orders, with one ring.
    strict
        Whether sums must grow along every step; otherwise they may also be equal.
    rule
        Which order.
    begins
        bool, shape (rows, cols): receives where links begin.
    counts
        int64, (4,): receives the numbers of channel cells, links, heads and outlets.

    Returns
    -------
    fault, row, col
        Which of `FAULTS`, and the cell in the block.
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
"""States of cells: on no channel; within a reach; a link comes into the block; a link begins."""


@jit
def next_cell(codes, row, col):
    """The cell that a cell drains to, in a block with one ring; itself at outlets."""
    for k in range(8):
        if codes[row, col] == 1 << k:
            r, c = row + ROW_STEP[k], col + COL_STEP[k]
            if codes[r, c] != NOWHERE:
                return r, c
    return row, col


@jit
def find_reaches(codes, sums, least, state):
    """Tell where links begin and come into a block.

    Parameters
    ----------
    codes, sums
        With one ring.
    state
        uint8, shape (rows, cols), receives the state of each cell.
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
        With one ring.
    state
        See `find_reaches`; the inner cells of reaches become `NO_CHANNEL`; any that are left are
        on circles.
    corner
        First row and column of the block, columns of the raster.
    first, last, after
        int64, receive the ids of the first and last cell, and of the one after it; -1 at outlets.
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
"""Marks of a step: of the first cell of a line; of the last one, and the one before, of several."""
LINE_FAULTS = (
    "",
    "takes a cell that is on no channel",
    "does not follow the directions",
    "ends where no link does",
    "begins where no link does",
    "a link begins between its ends",
    "takes a cell of another line",
)


@jit
def check_steps(codes, state, cells, steps, own, taken):
    """Compare some cells of lines in a block with its channels.

    Parameters
    ----------
    codes
        With one ring.
    state
        See `find_reaches`.
    cells, steps
        Of the cells of lines: where they are in the block, and the neighbour to which the line goes
        on, 8 if none, with its marks.
    own
        bool, receives whether a cell belongs to the link of the line.
    taken
        bool, shape (rows, cols), whether a cell belongs to a line; receives those of these.

    Returns
    -------
    int, int
        Which of `LINE_FAULTS`, and which of `cells`.
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
