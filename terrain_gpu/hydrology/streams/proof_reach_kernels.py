"""Horton orders of reaches as their proof finds them, see `proof_reaches`.

Kernels count the pages that they touch, and return False when there is no room for more, see
`store.paged`; the first elements of `state` tell where they stopped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...compiled import jit
from ...store.paged import Pages, touch

DONE = np.uint8(255)
"""`waiting` of reaches whose turn has come."""


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
        int64, shape (n, 2): the first row of each block, and the one after its last. Rows of a
        block are sorted by their first cells.
    place
        int64: columns of the raster, side of a block, blocks in a row.
    state
        The next row, and whether a reach goes on where none begins: then codes have changed.
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
    """Whether a reach, of two that flow into the same, is on its stream; any is rather than -1."""
    if other < 0 or reaches.strahler[one] != reaches.strahler[other]:
        return other < 0 or reaches.strahler[one] > reaches.strahler[other]
    if reaches.sums[one] != reaches.sums[other]:
        return reaches.sums[one] > reaches.sums[other]
    return reaches.last[one] < reaches.last[other]


@jit
def climb_reaches(reaches, out, state):
    """Find Strahler orders and streams; hands out reaches after all that flow into them.

    `state`: the next row, a reach whose turn it may be or -1, and how many were handed out.
    Reaches on a circle are not.
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
        # So far, the greatest order that flows in, and how many have it.
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
    """Find Horton orders of a chunk of reaches, the last one first, and compare them.

    `state`: how many of the chunk are left; the first cell of the first link whose order is wrong,
    or a greater number than any cell; its order, and the right one.
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
    """Find the first of the cells of reaches whose turn never came.

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
