"""The links of a channel network: pieces of all blocks joined, and orders of links.

Links are numbered 1, 2, ... in row-major order of their first cells. Of several links that flow
into one, the *main* one has the largest sum at its lower end; of equal ones, the one whose last
cell comes first in row-major order.

Pieces are rows of a table, those of a block one behind the other in the order of their first cells;
blocks come in any order. What is known of a link is in the row of its first piece in another table.
Both are in memory, or in files if they do not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...errors import StoreError
from ...grid import Block, BlockGrid
from ...store import Layer
from ...store.paged import NumberList, Paged, PagedTable
from ..common.flow_loops import circle
from .link_kernels import (
    CELLS,
    HEADS,
    HIGHEST,
    LENGTH,
    LINKS,
    OUTLETS,
    LinkColumns,
    PieceColumns,
    columns_of,
    first_lost,
    join_pieces,
    number_links,
    order_down,
    order_up,
    spread,
)

_I8 = np.dtype(np.int64)

PIECE = np.dtype(
    [
        *((name, _I8) for name in ("first", "last", "next", "lengths", "sums")),
        ("cells", np.int32),
        ("begins", np.bool_),
    ],
    align=True,
)
"""A piece of a link: ids of its first and last cell; the piece that goes on where it ends, as a row
of its block while it is traced, -1 at outlets, -2 less the id of its first cell if that is in
another block; its length with the step there, in whole units; what drains through the last cell,
see `as_whole`; its number of cells; whether a link begins there."""

DRAWN_PIECE = np.dtype(
    [
        *((name, PIECE.fields[name][0]) for name in PIECE.names),  # type: ignore[index, union-attr]
        ("top", np.float64),
        ("bottom", np.float64),
        ("edge", _I8),
        ("place", _I8),
    ],
    align=True,
)
"""Also elevations of the first and last cell; how many edge cells drain through the last one; and
where the steps of its cells lie in a file."""

LINK = np.dtype(
    [
        *((name, _I8) for name in LinkColumns._fields[:12]),
        ("hack", np.int32),
        *((name, np.uint8) for name in LinkColumns._fields[13:17]),
    ],
    align=True,
)
"""A link, in the row of its first piece: rows of the link that it flows into (-1 at outlets), of
its last piece, of its main link upstream and of the one of the same stream (-1 at heads), and of
the last link on the way down; its number, orders, cells, length, last cell and the sum there; how
many links flow in; and whether several of these have the greatest Strahler order."""

_ORDER_BYTES = 8
EACH = PIECE.itemsize + LINK.itemsize + _ORDER_BYTES
"""Bytes of a piece in memory, while links are ordered."""


def as_whole(sums: np.ndarray) -> np.ndarray:
    """Positive sums as int64 of the same order, so that kernels are compiled once."""
    return sums.view(np.int64) if sums.dtype == np.float64 else sums.astype(np.int64)


class Links:
    """Collects the pieces of blocks, then orders the links.

    Parameters
    ----------
    blocks
        Of the layers.
    paged
        Where tables are made.
    dtype
        `PIECE` or `DRAWN_PIECE`.
    room, each
        Bytes of memory for tables, and those of a piece while links are ordered; if they do not
        fit, tables are spilled.

    Attributes
    ----------
    totals
        Number of "links", "cells", "heads", "outlets", total "length" in whole units, and the
        greatest order "strahler".
    """

    def __init__(
        self, blocks: BlockGrid, paged: Paged, dtype: np.dtype, room: int, each: int
    ) -> None:
        self._blocks, self.paged, self._dtype = blocks, paged, dtype
        self._room, self._each = room, each
        self._parts: list[np.ndarray] = []
        self._file: Any = None
        # Of each block, its first row and the one after its last.
        self._spans = np.zeros((blocks.count, 2), np.int64)
        self.count = 0
        self.totals: dict[str, int] = {}

    def add(self, at: Block, pieces: np.ndarray) -> None:
        """Add the pieces of a block."""
        span = self._spans[at[0] * self._blocks.shape[1] + at[1]]
        if span[1]:  # of a worker that was lost
            return
        pieces["next"][pieces["next"] >= 0] += self.count
        span[:] = self.count, self.count + len(pieces)
        self.count += len(pieces)
        self._parts.append(pieces)
        if self.count * self._each > self._room:
            self._write()

    def _write(self) -> None:
        """Spill the pieces that are in memory."""
        if self._file is None:
            self.paged.spill()
            self._file = self.paged.file()
        for part in self._parts:
            self.paged.write(self._file, part)
        self._parts = []

    def span(self, at: Block) -> slice:
        """The rows of a block."""
        return slice(*self._spans[at[0] * self._blocks.shape[1] + at[1]].tolist())

    def join(self, codes: Layer) -> None:
        """Join the pieces to links, and order these.

        Parameters
        ----------
        codes
            The directions, for messages.

        Raises
        ------
        StoreError
            when directions lead round in a circle, or the layer changes while it is read.
        OutputError
            when the disk is full.
        """
        self.piece_table = self._gathered()
        self.link_table = self.paged.table(self.count, LINK)
        self.pieces = columns_of(PieceColumns, self.piece_table)
        self.links = columns_of(LinkColumns, self.link_table)
        tables, blocks = (self.pieces, self.links), self._blocks
        place = np.array([blocks.cols, blocks.block, blocks.shape[1]])
        state = np.array([0, -1, 0, 0, 0])
        self.paged.run(join_pieces, *tables, self._spans, place, state)
        if state[3]:
            raise StoreError(f"{codes.path}: changed while it was read; run this again")
        self._refuse_circle(codes, self.count - int(state[2]), waiting=False)
        links = int(state[4])
        order, state = self.paged.numbers(), np.zeros(9, np.int64)
        state[1] = -1
        for found in self.paged.filled(order_up, self.links, state=state):
            order.append(found)
        kinds = "links", "cells", "heads", "outlets", "length", "strahler"
        of = state[[LINKS, CELLS, HEADS, OUTLETS, LENGTH, HIGHEST]]
        self.totals = dict(zip(kinds, of.tolist(), strict=True))
        self._refuse_circle(codes, links - self.totals["links"], waiting=True)
        for chunk in order.chunks(backwards=True):
            self.paged.run(order_down, self.links, chunk, np.array([len(chunk)]))

    def _gathered(self) -> PagedTable:
        """The table of all pieces."""
        if self._file is not None:
            self._write()
            return self.paged.mapped(self._file, self._dtype)
        rows, done = np.empty(self.count, self._dtype), 0
        for k, part in enumerate(self._parts):
            rows[done : done + len(part)] = part
            done += len(part)
            self._parts[k] = part[:0].copy()  # frees the part
        self._parts = []
        return self.paged.held(rows)

    def _refuse_circle(self, codes: Layer, lost: int, *, waiting: bool) -> None:
        if lost:
            state = np.array([0, -1])
            self.paged.run(first_lost, self.pieces, self.links, waiting, state)
            raise circle(codes, *divmod(int(state[1]), self._blocks.cols))

    def number(self) -> Iterator[np.ndarray]:
        """Number the links; yield them in this order, chunk by chunk, each until the next."""
        state, across = np.zeros(4, np.int64), self._blocks.shape[1]
        for i in range(self._blocks.shape[0]):
            r0, r1, _, _ = self._blocks.window(i, 0)
            rows = np.array([r0, r1, self._blocks.cols])
            spans = self._spans[i * across : (i + 1) * across].copy()
            tables = self.pieces, self.links, spans, rows
            yield from self.paged.filled(number_links, *tables, state=state)

    def listed(self) -> NumberList:
        """Number the links, and list them in this order."""
        found = self.paged.numbers()
        for chunk in self.number():
            found.append(chunk)
        return found

    def spread(self, name: str) -> int:
        """Give all pieces of a link its value of a column; return the greatest value."""
        state = np.array([0, -1, 0])
        self.paged.run(spread, self.pieces, self.links, self.link_table.rows[name], state)
        return int(state[2])
