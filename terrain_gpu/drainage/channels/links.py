"""The links of a channel network: pieces of all blocks joined, and orders of links.

Links are numbered 0, 1, ... in row-major order of their first cells. Of several links that flow
into one, the *main* one has the largest sum at its lower end; of equal ones, the one whose last
cell comes first in row-major order.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from ...compiled import jit
from ...errors import StoreError
from ...store import Layer
from ..loops import circle

PIECE_BYTES = 300
"""Of a piece, while pieces are joined and links are ordered."""


@dataclass
class LinkPieces:
    """Pieces of links, one or several blocks'.

    Attributes
    ----------
    first, last, after
        int64, ids of the first and last cell, and of the cell that the latter flows into; -1 at
        outlets.
    begins
        bool, whether a link begins there.
    cells, lengths
        int64, numbers of cells, and lengths with the step to `after`, in whole units.
    sums
        What drains through the last cell.
    top, bottom
        float64, elevations of the first and last cell; empty if there are none.
    place
        int64, where the steps of the cells lie in a file; empty if nowhere.
    """

    first: np.ndarray
    last: np.ndarray
    after: np.ndarray
    begins: np.ndarray
    cells: np.ndarray
    lengths: np.ndarray
    sums: np.ndarray
    top: np.ndarray
    bottom: np.ndarray
    place: np.ndarray

    @classmethod
    def joined(cls, parts: list[LinkPieces]) -> LinkPieces:
        """The pieces of several blocks, in row-major order of their first cells."""
        columns = {f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)}
        order = np.argsort(columns["first"], kind="stable")
        for name, column in columns.items():
            if len(column):
                columns[name] = column[order]
        return cls(**columns)


@dataclass
class Links:
    """Links; every attribute has an element for each, but those of pieces.

    Attributes
    ----------
    link, following
        Of pieces: their link, and the piece that goes on where each ends, -1 at outlets.
    head, tail, end
        int64: first and last piece, and the id of the cell at which the line ends: the next
        junction, or the last cell.
    down
        int64, the link that it flows into, -1 at outlets.
    cells, lengths, sums
        As of pieces.
    outlet
        int64, the last link on the way down.
    strahler, shreve, horton, hack, topological
        int64, its orders, see `order_up` and `order_down`.
    main
        int64, the main link that flows into it, -1 at heads.
    """

    link: np.ndarray
    following: np.ndarray
    head: np.ndarray
    tail: np.ndarray
    end: np.ndarray
    down: np.ndarray
    cells: np.ndarray
    lengths: np.ndarray
    sums: np.ndarray
    outlet: np.ndarray
    strahler: np.ndarray
    shreve: np.ndarray
    horton: np.ndarray
    hack: np.ndarray
    topological: np.ndarray
    main: np.ndarray

    def __len__(self) -> int:
        return len(self.down)

    @property
    def number(self) -> np.ndarray:
        """1, 2, ..."""
        return np.arange(1, len(self) + 1)


def link_up(pieces: LinkPieces, layer: Layer, cols: int) -> Links:
    """Join pieces to links, and order these.

    Parameters
    ----------
    pieces
        Of all blocks, in order.
    layer
        The directions, for messages.
    cols
        Columns of the raster.

    Raises
    ------
    StoreError
        when directions lead round in a circle, or the layer changes while it is read.
    """
    first, after, begins = pieces.first, pieces.after, pieces.begins
    inner = after >= 0
    following = np.full(len(first), -1)
    following[inner] = np.searchsorted(first, after[inner])
    known = np.minimum(following[inner], len(first) - 1)
    if (first[known] != after[inner]).any():
        raise StoreError(f"{layer.path}: changed while it was read; run this again")
    number = np.cumsum(begins) - 1
    count = int(begins.sum())
    link = np.full(len(first), -1)
    head = np.flatnonzero(begins)
    tail, down, cells, lengths = np.empty((4, count), np.int64)
    spans = pieces.cells, pieces.lengths
    join_pieces(head, following, begins, number, *spans, link, tail, down, cells, lengths)
    order = np.empty(count, np.int64)
    waiting = np.bincount(down[down >= 0], minlength=count)
    done = order_links(down, waiting, order)
    lost = first[link < 0] if (link < 0).any() else first[head[waiting > 0]]
    if len(lost):
        raise circle(layer, *divmod(int(lost[0]), cols))
    assert done == count
    sums, last = pieces.sums[tail], pieces.last[tail]
    strahler, shreve, main, stem = np.empty((4, count), np.int64)
    order_up(order, down, sums, last, strahler, shreve, main, stem)
    hack, horton, topological, outlet = np.empty((4, count), np.int64)
    order_down(order, down, main, stem, strahler, hack, horton, topological, outlet)
    end = np.where(after[tail] < 0, last, after[tail])
    return Links(
        link,
        following,
        head,
        tail,
        end,
        down,
        cells,
        lengths,
        sums,
        outlet,
        strahler,
        shreve,
        horton,
        hack,
        topological,
        main,
    )


@jit
def join_pieces(
    head, following, begins, number, piece_cells, piece_lengths, link, tail, down, cells, lengths
):
    """Join pieces to links, see `Links`."""
    for at in range(len(head)):
        piece = head[at]
        cells[at], lengths[at] = 0, 0
        while True:
            link[piece] = at
            cells[at] += piece_cells[piece]
            lengths[at] += piece_lengths[piece]
            tail[at] = piece
            piece = following[piece]
            if piece < 0 or begins[piece]:
                break
        down[at] = -1 if piece < 0 else number[piece]


@jit
def order_links(down, waiting, order):
    """Order links, each after those that flow into it; return how many are on no circle.

    `waiting` holds the number of links that flow into each; then that of those on a circle or
    below one.
    """
    count = 0
    for start in range(len(down)):
        at = start
        while at >= 0 and waiting[at] == 0:
            waiting[at] = -1
            order[count] = at
            count += 1
            at = down[at]
            if at >= 0:
                waiting[at] -= 1
    for at in range(len(down)):
        waiting[at] = max(waiting[at], 0)
    return count


@jit
def comes_before(sums, last, one, other):
    """Whether a link, of two that flow into the same, is the main one; any comes before -1."""
    if other < 0 or sums[one] != sums[other]:
        return other < 0 or sums[one] > sums[other]
    return last[one] < last[other]


@jit
def order_up(order, down, sums, last, strahler, shreve, main, stem):
    """Orders that follow from the links upstream.

    Strahler (1957): 1 at heads; one more than the greatest order that flows in, if several links
    have it, else that. Shreve (1966): the number of heads upstream. `stem` is the main link among
    those of the greatest Strahler order.
    """
    for at in range(len(order)):
        strahler[at], shreve[at], main[at], stem[at] = 0, 0, -1, -1
    several = np.zeros(len(order), np.bool_)
    for at in order:
        if main[at] < 0:
            strahler[at] = shreve[at] = 1
        elif several[at]:
            strahler[at] += 1
        to = down[at]
        if to < 0:
            continue
        shreve[to] += shreve[at]
        if comes_before(sums, last, at, main[to]):
            main[to] = at
        if strahler[at] > strahler[to]:
            strahler[to], several[to], stem[to] = strahler[at], False, at
        elif strahler[at] == strahler[to]:
            several[to] = True
            if comes_before(sums, last, at, stem[to]):
                stem[to] = at


@jit
def order_down(order, down, main, stem, strahler, hack, horton, topological, outlet):
    """Orders that follow from the links downstream.

    Hack (1957), also Gravelius: 1 along main links from the outlet up to a head, and one more than
    the link that it flows into on others. Horton (1945): the Strahler order of a link, kept along
    `stem` up to a head. Topological: the number of links down to the outlet, itself included.
    """
    for k in range(len(order) - 1, -1, -1):
        at = order[k]
        to = down[at]
        if to < 0:
            hack[at], horton[at], topological[at], outlet[at] = 1, strahler[at], 1, at
            continue
        hack[at] = hack[to] + (main[to] != at)
        horton[at] = horton[to] if stem[to] == at else strahler[at]
        topological[at], outlet[at] = topological[to] + 1, outlet[to]
