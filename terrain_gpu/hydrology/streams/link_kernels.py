"""Kernels that join pieces to links and order these, over tables that need not fit memory.

A link is known by the row of its first piece. Each kernel notes in `state` where it stopped, and
returns whether it is done: it stops when it has touched as many pages as there is room for, see
`store.paged`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...compiled import jit
from ...store.paged import PagedTable, Pages, touch

DONE = 255
"""In `waiting`: of links that are ordered, and of pieces within a link."""


class PieceColumns(NamedTuple):
    """Columns of `links.PIECE`, and the pages of their table."""

    first: Any
    last: Any
    next: Any
    lengths: Any
    sums: Any
    cells: Any
    begins: Any
    pages: Pages


class LinkColumns(NamedTuple):
    """Columns of `links.LINK`, and the pages of their table."""

    down: Any
    tail: Any
    main: Any
    stem: Any
    outlet: Any
    number: Any
    shreve: Any
    topological: Any
    cells: Any
    lengths: Any
    last: Any
    sums: Any
    hack: Any
    strahler: Any
    horton: Any
    waiting: Any
    several: Any
    pages: Pages


def columns_of(kind: type, table: PagedTable) -> Any:
    """The columns of a table as a named tuple, for kernels."""
    names = kind._fields[:-1]  # type: ignore[attr-defined]
    return kind(*(table.rows[name] for name in names), table.pages)


@jit
def find_piece(pieces, spans, place, cell):
    """The row of the piece that begins at a cell of another block; -1 if there is none.

    Parameters
    ----------
    spans
        int64, shape (n, 2): the first row of each block, and the one after its last.
    place
        int64: columns of the raster, side of a block, blocks in a row.
    """
    row, col = cell // place[0], cell % place[0]
    block = row // place[1] * place[2] + col // place[1]
    low, high = spans[block]
    end = high
    while low < high:
        middle = (low + high) // 2
        touch(pieces.pages, middle)
        if pieces.first[middle] < cell:
            low = middle + 1
        else:
            high = middle
    return low if low < end and pieces.first[low] == cell else -1


@jit
def join_pieces(pieces, links, spans, place, state):
    """Follow the pieces of each link.

    `state`: the row of a link, that of a piece of it or -1, how many pieces were joined, whether
    one leads to no piece, and how many links there are.
    """
    at, here = state[0], state[1]
    while at < len(pieces.first):
        if pieces.pages.left[0] <= 0:
            state[0], state[1] = at, here
            return False
        if here < 0:
            touch(pieces.pages, at)
            if not pieces.begins[at]:
                at += 1
                continue
            touch(links.pages, at)
            links.main[at], links.stem[at] = -1, -1
            state[4] += 1
            here = at
        touch(pieces.pages, here)
        touch(links.pages, at)
        state[2] += 1
        links.cells[at] += pieces.cells[here]
        links.lengths[at] += pieces.lengths[here]
        to = pieces.next[here]
        if to < -1:
            to = find_piece(pieces, spans, place, -2 - to)
            if to < 0:
                state[3] = 1
                return True
            pieces.next[here] = to
        if to >= 0:
            touch(pieces.pages, to)
            touch(links.pages, to)
            if not pieces.begins[to]:
                if links.waiting[to] == DONE:
                    state[3] = 1
                    return True
                links.waiting[to] = DONE
                here = to
                continue
            links.waiting[to] += 1
        links.down[at], links.tail[at] = to, here
        links.last[at], links.sums[at] = pieces.last[here], pieces.sums[here]
        at, here = at + 1, -1
    return True


@jit
def comes_before(links, one, other):
    """Whether a link, of two that flow into the same, is the main one; any comes before -1."""
    if other < 0:
        return True
    touch(links.pages, one)
    touch(links.pages, other)
    if links.sums[one] != links.sums[other]:
        return links.sums[one] > links.sums[other]
    return links.last[one] < links.last[other]


LINKS, CELLS, LENGTH, HEADS, OUTLETS, HIGHEST = range(2, 8)
"""Totals in the `state` of `order_up`; the last one is the greatest Strahler order."""


@jit
def order_up(links, out, state):
    """Orders that follow from the links upstream; hands out links after all that flow into them.

    Strahler (1957): 1 at heads; one more than the greatest order that flows in, if several links
    have it, else that. Shreve (1966): the number of heads upstream. `stem` is the main link among
    those of the greatest Strahler order.

    `state`: the row that comes next, a link whose turn it is or -1, totals, and how many were
    handed out. Links on a circle, or below one, are not.
    """
    start, at, count = state[0], state[1], state[-1]
    while at >= 0 or start < len(links.down):
        if links.pages.left[0] <= 0 or count == len(out):
            state[0], state[1], state[-1] = start, at, count
            return False
        if at < 0:
            at, start = start, start + 1
            touch(links.pages, at)
        if links.waiting[at] != 0:
            at = -1
            continue
        if links.main[at] < 0:
            links.strahler[at] = 1
            links.shreve[at] = 1
            state[HEADS] += 1
        elif links.several[at]:
            links.strahler[at] += 1
        links.waiting[at] = DONE
        out[count] = at
        count += 1
        state[LINKS] += 1
        state[CELLS] += links.cells[at]
        state[LENGTH] += links.lengths[at]
        state[HIGHEST] = max(state[HIGHEST], links.strahler[at])
        to = links.down[at]
        if to < 0:
            state[OUTLETS] += 1
            at = -1
            continue
        touch(links.pages, to)
        links.shreve[to] += links.shreve[at]
        if comes_before(links, at, links.main[to]):
            links.main[to] = at
        if links.strahler[at] > links.strahler[to]:
            links.strahler[to] = links.strahler[at]
            links.several[to] = 0
            links.stem[to] = at
        elif links.strahler[at] == links.strahler[to]:
            links.several[to] = 1
            if comes_before(links, at, links.stem[to]):
                links.stem[to] = at
        links.waiting[to] -= 1
        at = to
    state[0], state[1], state[-1] = start, at, count
    return True


@jit
def order_down(links, order, state):
    """Orders that follow from the links downstream, of a chunk of links, the last one first.

    Hack (1957), also Gravelius: 1 along main links from the outlet up to a head, and one more than
    the link that it flows into on others. Horton (1945): the Strahler order of a link, kept along
    `stem` up to a head. Topological: the number of links down to the outlet, itself included.
    `waiting` counts the links that flow in again.

    `state`: how many of the chunk are left.
    """
    while state[0] > 0:
        if links.pages.left[0] <= 0:
            return False
        state[0] -= 1
        at = order[state[0]]
        touch(links.pages, at)
        links.waiting[at] = 0
        to = links.down[at]
        if to < 0:
            links.hack[at], links.horton[at] = 1, links.strahler[at]
            links.topological[at], links.outlet[at] = 1, at
            continue
        touch(links.pages, to)
        links.waiting[to] += 1
        links.hack[at] = links.hack[to] + (links.main[to] != at)
        links.horton[at] = links.horton[to] if links.stem[to] == at else links.strahler[at]
        links.topological[at], links.outlet[at] = links.topological[to] + 1, links.outlet[to]
    return True


@jit
def number_links(pieces, links, spans, rows, out, state):
    """Number the links of a row of blocks by their first cells, and hand them out in this order.

    Parameters
    ----------
    spans
        int64, shape (n, 2): the rows of each block, of which the first grows.
    rows
        int64: the first row of the blocks, the one after their last, and columns of the raster.
    state
        The row and block that come next, the last number, and how many were handed out.
    """
    row, block, count = max(state[0], rows[0]), state[1], state[-1]
    while row < rows[1]:
        end = (row + 1) * rows[2]
        while block < len(spans):
            while spans[block, 0] < spans[block, 1]:
                if pieces.pages.left[0] <= 0 or count == len(out):
                    state[0], state[1], state[-1] = row, block, count
                    return False
                at = spans[block, 0]
                touch(pieces.pages, at)
                if pieces.first[at] >= end:
                    break
                spans[block, 0] += 1
                if pieces.begins[at]:
                    touch(links.pages, at)
                    state[2] += 1
                    links.number[at] = state[2]
                    out[count] = at
                    count += 1
            block += 1
        row, block = row + 1, 0
    state[0], state[1], state[-1] = row, block, count
    return True


@jit
def spread(pieces, links, values, state):
    """Give all pieces of a link its value; `values` is a column of `links`.

    `state`: the row of a link, that of a piece of it or -1, and the greatest value.
    """
    at, here = state[0], state[1]
    while at < len(values):
        if pieces.pages.left[0] <= 0:
            state[0], state[1] = at, here
            return False
        if here < 0:
            touch(pieces.pages, at)
            if not pieces.begins[at]:
                at += 1
                continue
            here = at
        touch(pieces.pages, here)
        touch(links.pages, at)
        touch(links.pages, here)
        values[here] = values[at]
        state[2] = max(state[2], values[at])
        here = pieces.next[here]
        if here >= 0:
            touch(pieces.pages, here)
            if pieces.begins[here]:
                here = -1
        if here < 0:
            at, here = at + 1, -1
    return True


@jit
def first_lost(pieces, links, waiting, state):
    """Find the first cell of a piece that is on a circle of pieces, or of a link that waits.

    `state`: the row that comes next, and the id of the cell or -1.
    """
    while state[0] < len(pieces.first):
        if pieces.pages.left[0] <= 0:
            return False
        at = state[0]
        touch(pieces.pages, at)
        touch(links.pages, at)
        lost = links.waiting[at] != DONE if waiting else links.waiting[at] == 0
        lost &= waiting or not pieces.begins[at]
        if lost and (state[1] < 0 or pieces.first[at] < state[1]):
            state[1] = pieces.first[at]
        state[0] += 1
    return True


class Drawn(NamedTuple):
    """Columns of `links.DRAWN`."""

    id: Any
    downstream: Any
    outlet: Any
    start: Any
    end: Any
    cells: Any
    lengths: Any
    sums: Any
    edge: Any
    strahler: Any
    shreve: Any
    horton: Any
    hack: Any
    topological: Any
    inflows: Any
    top: Any
    low: Any


@jit
def gather(pieces, links, ends, which, found, state):
    """Gather what is written of links.

    Parameters
    ----------
    ends
        float64, elevations of the first and last cells of pieces; int64, how many cells on the edge
        drain through the last ones.
    which
        int64, the links.
    found
        `Drawn`.
    state
        Which one comes next.
    """
    top, bottom, edge = ends
    while state[0] < len(which):
        if pieces.pages.left[0] <= 0:
            return False
        k = state[0]
        at = which[k]
        touch(pieces.pages, at)
        touch(links.pages, at)
        to, outlet, tail = links.down[at], links.outlet[at], links.tail[at]
        touch(links.pages, outlet)
        touch(pieces.pages, tail)
        found.id[k], found.outlet[k] = links.number[at], links.number[outlet]
        found.start[k], found.top[k] = pieces.first[at], top[at]
        if to < 0:
            found.downstream[k], found.end[k], found.low[k] = 0, links.last[at], bottom[tail]
        else:
            touch(pieces.pages, to)
            touch(links.pages, to)
            found.downstream[k], found.end[k] = links.number[to], pieces.first[to]
            # The next link begins at the junction where this one ends.
            found.low[k] = top[to]
        found.cells[k], found.lengths[k] = links.cells[at], links.lengths[at]
        found.sums[k], found.inflows[k] = links.sums[at], links.waiting[at]
        found.edge[k] = edge[tail]
        found.strahler[k], found.shreve[k] = links.strahler[at], links.shreve[at]
        found.horton[k], found.hack[k] = links.horton[at], links.hack[at]
        found.topological[k] = links.topological[at]
        state[0] += 1
    return True


@jit
def list_pieces(pieces, place, which, places, counts, state):
    """List where the steps of links lie in a file, piece by piece.

    Parameters
    ----------
    place
        int64, where those of a piece lie.
    which
        int64, the links.
    places, counts
        int64, receive where those of each piece lie, and how many there are.
    state
        Which link comes next, a piece of it or -1, and how many pieces are listed.
    """
    while state[0] < len(which):
        if pieces.pages.left[0] <= 0:
            return False
        if state[1] < 0:
            state[1] = which[state[0]]
        at, k = state[1], state[2]
        touch(pieces.pages, at)
        places[k], counts[k] = place[at], pieces.cells[at]
        state[2] += 1
        to = pieces.next[at]
        if to >= 0:
            touch(pieces.pages, to)
            if pieces.begins[to]:
                to = -1
        state[1] = max(to, -1)
        state[0] += to < 0
    return True
