"""Orders and codes of links, computed for proofs; see `proof_links`.

A kernel counts the pages that it touches, and returns False if no more fit in memory (see
`store.paged`); it then stores its position in the first elements of `state`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...compiled import jit
from ...store.paged import Pages, touch
from .proof_kernels import BEFORE, FIRST

DONE = np.uint8(255)
"""The value of `waiting` for links that have been processed."""
LAST = 128
"""Marks the last cell of a line that does not continue in another link."""


class ProvenLinks(NamedTuple):
    """Columns of `link_graph.LINK`, and the pages of their table."""

    first: Any
    end: Any
    last: Any
    sums: Any
    edge: Any
    down: Any
    main: Any
    stem: Any
    outlet: Any
    shreve: Any
    hack: Any
    topological: Any
    lowest: Any
    place: Any
    start: Any
    count: Any
    root: Any
    home: Any
    top: Any
    low: Any
    strahler: Any
    horton: Any
    several: Any
    inflows: Any
    waiting: Any
    ends: Any
    pages: Pages


class ProvenTributaries(NamedTuple):
    """The tributaries of stems; those of one stem are contiguous, once sorted the largest first.

    Attributes
    ----------
    link
        The lowest link of the tributary.
    place
        The position on the stem of the link that it flows into.
    sums, last
        The values of `link`.
    """

    link: Any
    place: Any
    sums: Any
    last: Any
    pages: Pages


class ProvenParts(NamedTuple):
    """Parts of stems.

    Attributes
    ----------
    chosen, inner
        Shapes (n, 4) and (n, 5): the tributaries at which a part is divided, from the outlet up,
        and the parts below, between and above these; -1 for none.
    up
        8 times the part that contains it, plus its index among the inner parts; -1 for a whole
        stem.
    """

    chosen: Any
    inner: Any
    up: Any
    pages: Pages


@jit
def mark_ends(links, lines, marks, sums, edge, heights, state):
    """Store the values at the ends of lines.

    Parameters
    ----------
    lines, marks, sums, edge, heights
        For each cell at an end: its line; the marks `FIRST`, `BEFORE` and `LAST`; what drains
        through it, as int64; the number of edge cells that do; and its elevation.
    state
        The next of these cells.
    """
    while state[0] < len(lines):
        if links.pages.left[0] <= 0:
            return False
        k = state[0]
        state[0] += 1
        at = lines[k]
        touch(links.pages, at)
        if marks[k] & FIRST:
            links.top[at] = heights[k]
        if marks[k] & LAST:
            links.ends[at], links.last[at] = True, links.end[at]
            links.sums[at], links.edge[at], links.low[at] = sums[k], edge[k], heights[k]
        elif marks[k] & BEFORE and not links.ends[at]:
            links.sums[at], links.edge[at] = sums[k], edge[k]
    return True


@jit
def join_links(links, state):
    """Find, for each link, the link that begins where it ends.

    `state`: the next link, and a link that ends where none begins, or -1.
    """
    while state[0] < len(links.end):
        if links.pages.left[0] <= 0:
            return False
        at = state[0]
        state[0] += 1
        touch(links.pages, at)
        links.main[at] = links.stem[at] = links.root[at] = links.home[at] = links.down[at] = -1
        if links.ends[at]:
            continue
        low, high = 0, len(links.end)
        while low < high:
            middle = (low + high) // 2
            touch(links.pages, middle)
            if links.first[middle] < links.end[at]:
                low = middle + 1
            else:
                high = middle
        if low == len(links.end) or links.first[low] != links.end[at]:
            state[1] = at
            return True
        touch(links.pages, low)
        links.down[at], links.low[at] = low, links.top[low]
        links.waiting[low] += 1
        links.inflows[low] += 1
    return True


@jit
def larger(one, other):
    """Whether the first of two pairs of sum and cell is larger; on a tie, the smaller cell wins."""
    return one[0] > other[0] or (one[0] == other[0] and one[1] < other[1])


@jit
def _exceeds(links, one, other):
    """Whether a link is larger than another; `other` may be -1, for no link."""
    if other < 0:
        return True
    touch(links.pages, other)
    return larger((links.sums[one], links.last[one]), (links.sums[other], links.last[other]))


@jit
def climb_links(links, out, state):
    """Find Strahler and Shreve orders, and the main links; list links after all that flow in.

    `state`: the next link; a link that may be ready, or -1; and the number of links listed. Links
    on a loop, or downstream of one, are never listed.
    """
    start, at, count = state
    while at >= 0 or start < len(links.down):
        if links.pages.left[0] <= 0 or count == len(out):
            state[0], state[1], state[2] = start, at, count
            return False
        if at < 0:
            at, start = start, start + 1
            touch(links.pages, at)
        if links.waiting[at] != 0:
            at = -1
            continue
        # `strahler` and `several` hold the greatest order that flows in, and how many have it.
        links.strahler[at] += links.several[at] != 1
        links.shreve[at] += links.inflows[at] == 0
        links.waiting[at] = DONE
        out[count] = at
        count += 1
        to = links.down[at]
        if to >= 0:
            touch(links.pages, to)
            links.shreve[to] += links.shreve[at]
            if _exceeds(links, at, links.main[to]):
                links.main[to] = at
            more = np.int64(links.strahler[at]) - np.int64(links.strahler[to])
            if more > 0 or (more == 0 and _exceeds(links, at, links.stem[to])):
                links.stem[to] = at
            if more > 0:
                links.strahler[to], links.several[to] = links.strahler[at], 0
            links.several[to] += more >= 0
            links.waiting[to] -= 1
        at = to
    state[0], state[1], state[2] = start, at, count
    return True


@jit
def first_waiting(links, state):
    """Find the first link that was never processed; `state`: the next link."""
    while state[0] < len(links.down):
        if links.pages.left[0] <= 0:
            return False
        touch(links.pages, state[0])
        if links.waiting[state[0]] != DONE:
            return True
        state[0] += 1
    return True


@jit
def descend_links(links, order, state):
    """Find the values that follow from downstream for a chunk of links, in reverse order.

    Also counts the tributaries of stems. A stem is identified by its lowest link, and positions on
    it count up from there. `state`: the number of links of the chunk still to process.
    """
    while state[0] > 0:
        if links.pages.left[0] <= 0:
            return False
        state[0] -= 1
        at = order[state[0]]
        touch(links.pages, at)
        to = links.down[at]
        links.lowest[at], links.place[at], links.horton[at] = at, 0, links.strahler[at]
        if to < 0:
            links.outlet[at], links.hack[at], links.topological[at] = at, 1, 1
            continue
        touch(links.pages, to)
        links.outlet[at], links.topological[at] = links.outlet[to], links.topological[to] + 1
        links.hack[at] = links.hack[to]
        if links.stem[to] == at:
            links.horton[at] = links.horton[to]
        if links.main[to] == at:
            links.lowest[at], links.place[at] = links.lowest[to], links.place[to] + 1
        else:
            links.hack[at] += 1
            touch(links.pages, links.lowest[to])
            links.count[links.lowest[to]] += 1
    return True


@jit
def place_tributaries(links, state):
    """Find where the list of tributaries of each stem ends.

    `state`: the next link, and the number of tributaries so far.
    """
    while state[0] < len(links.down):
        if links.pages.left[0] <= 0:
            return False
        touch(links.pages, state[0])
        state[1] += links.count[state[0]]
        links.start[state[0]] = state[1]
        state[0] += 1
    return True


@jit
def list_tributaries(links, tributaries, state):
    """List the tributaries of stems, each list from its end, so that `start` becomes its start.

    `state`: the next link.
    """
    while state[0] < len(links.down):
        if links.pages.left[0] <= 0:
            return False
        at = state[0]
        state[0] += 1
        touch(links.pages, at)
        to = links.down[at]
        if links.lowest[at] != at or to < 0:
            continue
        touch(links.pages, to)
        stem = links.lowest[to]
        touch(links.pages, stem)
        links.start[stem] -= 1
        k = links.start[stem]
        touch(tributaries.pages, k)
        tributaries.link[k], tributaries.place[k] = at, links.place[to]
        tributaries.sums[k], tributaries.last[k] = links.sums[at], links.last[at]
    return True


@jit
def _swap(tributaries, a, b):
    link, place, sums, last = (
        tributaries.link,
        tributaries.place,
        tributaries.sums,
        tributaries.last,
    )
    link[a], link[b] = link[b], link[a]
    place[a], place[b] = place[b], place[a]
    sums[a], sums[b] = sums[b], sums[a]
    last[a], last[b] = last[b], last[a]


@jit
def _sift(tributaries, start, at, count):
    """Move a tributary down a heap whose first element is the smallest."""
    while 2 * at + 1 < count:
        least, own = start + 2 * at + 1, start + at
        touch(tributaries.pages, own)
        touch(tributaries.pages, least)
        sums, last = tributaries.sums, tributaries.last
        if 2 * at + 2 < count:
            touch(tributaries.pages, least + 1)
            one, other = (sums[least], last[least]), (sums[least + 1], last[least + 1])
            least += larger(one, other)
        if not larger((sums[own], last[own]), (sums[least], last[least])):
            return
        _swap(tributaries, own, least)
        at = least - start


@jit
def sort_tributaries(links, tributaries, state):
    """Heap-sort the tributaries of each stem, the largest first.

    `state`: the next stem, and the number of steps of its sort that are done.
    """
    while state[0] < len(links.down):
        if links.pages.left[0] <= 0:
            return False
        at, step = state
        touch(links.pages, at)
        start, count = links.start[at], links.count[at]
        inner = count // 2
        if count < 2 or step == inner + count - 1:
            state[0], state[1] = at + 1, 0
            continue
        state[1] += 1
        if step < inner:
            _sift(tributaries, start, inner - 1 - step, count)
            continue
        rest = count - 1 - (step - inner)
        touch(tributaries.pages, start)
        touch(tributaries.pages, start + rest)
        _swap(tributaries, start, start + rest)
        _sift(tributaries, start, 0, rest)
    return True


@jit
def _below(tributaries, one, other):
    """Whether a tributary comes before another: from the outlet up, at a junction the smaller."""
    touch(tributaries.pages, one)
    touch(tributaries.pages, other)
    if tributaries.place[one] != tributaries.place[other]:
        return tributaries.place[one] < tributaries.place[other]
    sums, last = tributaries.sums, tributaries.last
    return larger((sums[other], last[other]), (sums[one], last[one]))


@jit
def _add_part(parts, at, up):
    touch(parts.pages, at)
    parts.up[at] = up
    parts.chosen[at, :], parts.inner[at, :] = -1, -1


@jit
def divide_stems(links, tributaries, parts, state):
    """Put the tributaries of each stem, the largest first, into the tree of its parts.

    `state`: the next stem; the index of its next tributary; the part that this has reached, or -1;
    and the number of parts.
    """
    while state[0] < len(links.down):
        if links.pages.left[0] <= 0:
            return False
        at = state[0]
        touch(links.pages, at)
        if state[1] == links.count[at]:
            state[0], state[1] = at + 1, 0
            continue
        one, here = links.start[at] + state[1], state[2]
        if here < 0:
            if links.root[at] < 0:
                links.root[at] = state[3]
                _add_part(parts, state[3], -1)
                state[3] += 1
            state[2] = links.root[at]
            continue
        touch(parts.pages, here)
        k = 0
        while (
            k < 4 and parts.chosen[here, k] >= 0 and _below(tributaries, parts.chosen[here, k], one)
        ):
            k += 1
        if parts.chosen[here, 3] >= 0:
            if parts.inner[here, k] < 0:
                parts.inner[here, k] = state[3]
                _add_part(parts, state[3], 8 * here + k)
                state[3] += 1
            state[2] = parts.inner[here, k]
            continue
        for j in range(3, k, -1):
            parts.chosen[here, j] = parts.chosen[here, j - 1]
        parts.chosen[here, k] = one
        touch(links.pages, tributaries.link[one])
        links.home[tributaries.link[one]] = here
        state[1], state[2] = state[1] + 1, -1
    return True


@jit
def _put(digits, state, value):
    if state[4] < len(digits):
        digits[state[4]] = 48 + value
    state[4] += 1


_DOWN, _UP, _LEAVE = 1, 2, 3


@jit
def spell_codes(links, tributaries, parts, digits, ends, state):
    """Write the codes of links as text, each code from its last digit on, concatenated.

    Parameters
    ----------
    ends
        int64. Receives where the code of each link ends.
    state
        The index of the next link, counted from the first one; the next action: 0 to start with it,
        `_DOWN` into a part, `_UP` out of it, or `_LEAVE` for leaving the stem; the part; the lowest
        link of the stem; the number of digits, which counts on beyond the size of `digits`; and the
        first link.
    """
    while state[0] < len(ends):
        if links.pages.left[0] <= 0:
            return False
        own, doing, part, stem = state[5] + state[0], state[1], state[2], state[3]
        touch(links.pages, own)
        if doing == 0:
            state[3] = links.lowest[own]
            touch(links.pages, state[3])
            state[2] = links.root[state[3]]
            state[1] = _DOWN if state[2] >= 0 else _LEAVE
        elif doing == _DOWN:
            touch(parts.pages, part)
            k = 0
            while k < 4 and parts.chosen[part, k] >= 0:
                touch(tributaries.pages, parts.chosen[part, k])
                if tributaries.place[parts.chosen[part, k]] >= links.place[own]:
                    break
                k += 1
            state[2] = parts.inner[part, k]
            if state[2] < 0:
                _put(digits, state, 1 + 2 * k)
                state[1], state[2] = _UP, part
        elif doing == _UP:
            touch(parts.pages, part)
            if parts.up[part] < 0:
                state[1] = _LEAVE
            else:
                _put(digits, state, 1 + 2 * (parts.up[part] & 7))
                state[2] = parts.up[part] >> 3
        else:
            touch(links.pages, stem)
            if links.down[stem] >= 0:
                state[1], state[2] = _UP, links.home[stem]
                touch(parts.pages, state[2])
                k = 0
                touch(tributaries.pages, parts.chosen[state[2], 0])
                while tributaries.link[parts.chosen[state[2], k]] != stem:
                    k += 1
                    touch(tributaries.pages, parts.chosen[state[2], k])
                _put(digits, state, 2 + 2 * k)
                touch(links.pages, links.down[stem])
                state[3] = links.lowest[links.down[stem]]
                continue
            begin = ends[state[0] - 1] if state[0] else 0
            if state[4] == begin:
                _put(digits, state, 1)
            ends[state[0]] = state[4]
            state[0], state[1] = state[0] + 1, 0
    return True
