"""Horton orders of reaches, computed for proofs; see `proof_reaches`.

A kernel counts the pages that it touches, and returns False if no more fit in memory (see
`store.paged`); it then stores its position in the first elements of `state`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...compiled import jit
from ...store.paged import Pages, touch

DONE = np.uint8(255)
"""The value of `waiting` for reaches that have been processed."""


class ReachColumns(NamedTuple):
    """Columns of `reaches.REACH`, and the pages of their table."""

    first: Any
    last: Any
    to: Any
    sums: Any
    stem: Any
    order: Any
    strahler: Any
    several: Any
    waiting: Any
    horton: Any
    begins: Any
    pages: Pages


@jit
def join_reaches(reaches, spans, place, state):
    """Replace the cell after each reach by the row of the reach that begins there.

    Parameters
    ----------
    spans
        int64, shape (n, 2): the first row of each block, and the row after its last. Rows of a
        block are sorted by their first cells.
    place
        int64: number of columns of the raster, block size, number of blocks in a row.
    state
        The next row, and whether a reach continues at a cell where none begins, which means that
        the directions have changed.
    """
    while state[0] < len(reaches.to):
        if reaches.pages.left[0] <= 0:
            return False
        at = state[0]
        state[0] += 1
        touch(reaches.pages, at)
        reaches.stem[at] = -1
        cell = reaches.to[at]
        if cell < 0:
            continue
        row, col = cell // place[0], cell % place[0]
        low, high = spans[row // place[1] * place[2] + col // place[1]]
        end = high
        while low < high:
            middle = (low + high) // 2
            touch(reaches.pages, middle)
            if reaches.first[middle] < cell:
                low = middle + 1
            else:
                high = middle
        if low == end or reaches.first[low] != cell:
            state[1] = 1
            return True
        touch(reaches.pages, low)
        reaches.to[at] = low
        reaches.waiting[low] += 1
    return True


@jit
def _exceeds(reaches, one, other):
    """Whether the first of two reaches that flow into the same reach is of the same Horton stream.

    `other` may be -1, for no reach.
    """
    if other < 0 or reaches.strahler[one] != reaches.strahler[other]:
        return other < 0 or reaches.strahler[one] > reaches.strahler[other]
    if reaches.sums[one] != reaches.sums[other]:
        return reaches.sums[one] > reaches.sums[other]
    return reaches.last[one] < reaches.last[other]


@jit
def climb_reaches(reaches, out, state):
    """Find Strahler orders and streams; list reaches after all that flow into them.

    `state`: the next row; a reach that may be ready, or -1; and the number of reaches listed.
    Reaches on a loop, or downstream of one, are never listed.
    """
    start, at, count = state
    while at >= 0 or start < len(reaches.to):
        if reaches.pages.left[0] <= 0 or count == len(out):
            state[0], state[1], state[2] = start, at, count
            return False
        if at < 0:
            at, start = start, start + 1
            touch(reaches.pages, at)
        if reaches.waiting[at] != 0:
            at = -1
            continue
        # `strahler` and `several` hold the greatest order that flows in, and how many have it.
        reaches.strahler[at] += reaches.several[at] != 1
        reaches.waiting[at] = DONE
        out[count] = at
        count += 1
        to = reaches.to[at]
        if to >= 0:
            touch(reaches.pages, to)
            other = reaches.stem[to]
            if other >= 0:
                touch(reaches.pages, other)
            if _exceeds(reaches, at, other):
                reaches.stem[to] = at
            if reaches.strahler[at] > reaches.strahler[to]:
                reaches.strahler[to], reaches.several[to] = reaches.strahler[at], 0
            reaches.several[to] += reaches.strahler[at] == reaches.strahler[to]
            reaches.waiting[to] -= 1
        at = to
    state[0], state[1], state[2] = start, at, count
    return True


@jit
def compare_reaches(reaches, order, state):
    """Find the Horton orders of a chunk of reaches, in reverse order, and compare them.

    `state`: the number of reaches of the chunk still to process; the first cell of the first link
    whose order is wrong, or a number greater than any cell id; its order; and the right order.
    """
    while state[0] > 0:
        if reaches.pages.left[0] <= 0:
            return False
        state[0] -= 1
        at = order[state[0]]
        touch(reaches.pages, at)
        to, found = reaches.to[at], reaches.strahler[at]
        if to >= 0:
            touch(reaches.pages, to)
            if reaches.stem[to] == at:
                found = reaches.horton[to]
        reaches.horton[at] = found
        if reaches.begins[at] and reaches.order[at] != found and reaches.first[at] < state[1]:
            state[1], state[2], state[3] = reaches.first[at], reaches.order[at], found
    return True


@jit
def first_waiting(reaches, state):
    """Find the lowest first cell of the reaches that were never processed.

    `state`: the next row, and that cell.
    """
    while state[0] < len(reaches.to):
        if reaches.pages.left[0] <= 0:
            return False
        touch(reaches.pages, state[0])
        if reaches.waiting[state[0]] != DONE:
            state[1] = min(state[1], reaches.first[state[0]])
        state[0] += 1
    return True
