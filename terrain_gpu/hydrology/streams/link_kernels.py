"""Kernels that join pieces into links and order these, over tables that need not fit in memory.

A link is identified by the row of its first piece. A kernel stops once it has touched as many pages
as fit in memory (see `store.paged`); it then stores its position in `state` and returns False. It
returns True once it is done.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...compiled import jit
from ...store.paged import PagedTable, Pages, touch

DONE = 255
"""The value of `waiting` for links that are ordered, and for pieces within a link."""


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
    """Return the columns of a table as a named tuple, for kernels."""
    names = kind._fields[:-1]  # type: ignore[attr-defined]
    return kind(*(table.rows[name] for name in names), table.pages)


@jit
def find_piece(pieces, spans, place, cell):
    """Return the row of the piece that begins at a cell of another block; -1 if there is none.

    Parameters
    ----------
    spans
        int64, shape (n, 2): the first row of each block, and the row after its last.
    place
        int64: number of columns of the raster, block size, number of blocks in a row.
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

    `state`: the row of a link; the row of a piece of it, or -1; the number of pieces joined;
    whether one continues at a cell where no piece begins; and the number of links.
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
    """Whether the first of two links that flow into the same link is the main one of both.

    `other` may be -1, for no link.
    """
    if other < 0:
        return True
    touch(links.pages, one)
    touch(links.pages, other)
    if links.sums[one] != links.sums[other]:
        return links.sums[one] > links.sums[other]
    return links.last[one] < links.last[other]


LINKS, CELLS, LENGTH, HEADS, OUTLETS, HIGHEST = range(2, 8)
"""Indices of totals in the `state` of `order_up`; the last is the greatest Strahler order."""


@jit
def order_up(links, out, state):
    """Find the orders that follow from upstream, and list each link after all that flow into it.

    Strahler (1957): 1 at heads; elsewhere the greatest order that flows in, plus 1 if several links
    have it. Shreve (1966): the number of heads upstream. `stem` is the main link among those of the
    greatest Strahler order.

    `state`: the next row; the link to process, or -1; totals; and the number of links listed in
    `out`. Links on a loop, or downstream of one, are never listed.
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
    """Find the orders that follow from downstream for a chunk of links, in reverse order.

    Hack (1957), also called Gravelius: 1 along main links from the outlet up to a head; on other
    links, one more than on the link that they flow into. Horton (1945): the Strahler order of a
    link, kept along `stem` up to a head. Topological: the number of links down to the outlet,
    itself included. `waiting` again receives the number of links that flow in.

    `state`: the number of links of the chunk still to process.
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
    """Number the links of a row of blocks by their first cells, and list them in this order.

    Parameters
    ----------
    spans
        int64, shape (n, 2): the table rows of each block. The first one moves up.
    rows
        int64: the first raster row of the blocks, the one after their last, and the number of
        columns of the raster.
    out
        int64. Receives the links.
    state
        The next raster row and block, the last number given, and the number of links listed.
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
    """Copy the value of each link to all its pieces; `values` is a column of `links`.

    `state`: the row of a link; the row of a piece of it, or -1; and the greatest value.
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
    """Find the lowest cell id of a piece on a loop of pieces or, if `waiting`, of unordered links.

    `state`: the next row, and the id of the cell, or -1.
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
    """Collect the values of links that are written.

    Parameters
    ----------
    ends
        float64, elevations of the first and last cells of pieces; int64, the number of edge cells
        that drain through the last cells.
    which
        int64, the links.
    found
        `Drawn`. Receives the values.
    state
        The index in `which` of the next link.
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
    """List the positions of the steps of links in a file, piece by piece.

    Parameters
    ----------
    place
        int64, the position of the steps of each piece.
    which
        int64, the links.
    places, counts
        int64. Receive the position and the number of the steps of each piece.
    state
        The index in `which` of the next link; a piece of it, or -1; and the number of pieces
        listed.
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
