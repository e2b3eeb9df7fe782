"""The links of a channel network: the joined pieces of all blocks, and the orders of links.

Links are numbered 1, 2, ... in row-major order of their first cells. Of several links that flow
into one, the *main* one has the largest sum at its lower end; on a tie, it is the one whose last
cell comes first in row-major order.

Pieces are rows of a table. The pieces of a block are contiguous and sorted by their first cells;
blocks come in any order. The values of a link are in a second table, in the row of its first piece.
Both tables are in memory, or in files if they do not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...errors import StoreError
from ...grid import Block, BlockGrid
from ...store import Layer
from ...store.paged import NumberList, Paged, PagedTable
from ..common.flow_loops import loop_error
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
"""A piece of a link: the ids of its first and last cell; the next piece downstream, as a row among
those of its block while it is traced, -1 at outlets, -2 - the id of its first cell if that is in
another block; its length up to the next piece, in whole units; the sum at its last cell, see
`as_whole`; its number of cells; and whether a link begins there."""

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
"""`PIECE` with the elevations of the first and last cell; the number of edge cells that drain
through the last one; and the position of the steps of its cells in a file."""

LINK = np.dtype(
    [
        *((name, _I8) for name in LinkColumns._fields[:12]),
        ("hack", np.int32),
        *((name, np.uint8) for name in LinkColumns._fields[13:17]),
    ],
    align=True,
)
"""A link, in the row of its first piece: the rows of the link that it flows into (-1 at outlets),
of its last piece, of its main link upstream and of the one of the same Horton stream (-1 at heads),
and of the last link downstream; its number, orders, cells, length, last cell and the sum there; the
number of links that flow in; and whether several of these have the greatest Strahler order."""

_ORDER_BYTES = 8
EACH = PIECE.itemsize + LINK.itemsize + _ORDER_BYTES
"""Bytes per piece in memory while links are ordered."""


def as_whole(sums: np.ndarray) -> np.ndarray:
    """Map positive sums to int64 in the same order, so that kernels are compiled only once."""
    return sums.view(np.int64) if sums.dtype == np.float64 else sums.astype(np.int64)


class Links:
    """Collects the pieces of blocks, then orders the links.

    Parameters
    ----------
    blocks
        The blocks of the layers.
    paged
        Creates the tables.
    dtype
        `PIECE` or `DRAWN_PIECE`.
    room, each
        Bytes of memory for tables, and bytes per piece while links are ordered. Tables that do not
        fit are spilled to disk.

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
        # For each block, its first row and the row after its last.
        self._spans = np.zeros((blocks.count, 2), np.int64)
        self.count = 0
        self.totals: dict[str, int] = {}

    def add(self, at: Block, pieces: np.ndarray) -> None:
        """Add the pieces of a block."""
        span = self._spans[at[0] * self._blocks.shape[1] + at[1]]
        if span[1]:  # already added, by a worker that was lost
            return
        pieces["next"][pieces["next"] >= 0] += self.count
        span[:] = self.count, self.count + len(pieces)
        self.count += len(pieces)
        self._parts.append(pieces)
        if self.count * self._each > self._room:
            self._write()

    def _write(self) -> None:
        """Write the pieces that are in memory to the spill file."""
        if self._file is None:
            self.paged.spill()
            self._file = self.paged.file()
        for part in self._parts:
            self.paged.write(self._file, part)
        self._parts = []

    def span(self, at: Block) -> slice:
        """Return the rows of a block."""
        return slice(*self._spans[at[0] * self._blocks.shape[1] + at[1]].tolist())

    def join(self, codes: Layer) -> None:
        """Join the pieces into links, and order these.

        Parameters
        ----------
        codes
            The layer of directions, for messages.

        Raises
        ------
        StoreError
            If the directions form a loop, or the layer changes while it is read.
        OutputError
            If the disk is full.
        """
        self.piece_table = self._gathered()
        self.link_table = self.paged.table(self.count, LINK)
        self.pieces = columns_of(PieceColumns, self.piece_table)
        self.links = columns_of(LinkColumns, self.link_table)
        tables, blocks = (self.pieces, self.links), self._blocks
        layout = np.array([blocks.cols, blocks.block, blocks.shape[1]])
        state = np.array([0, -1, 0, 0, 0])
        self.paged.run(join_pieces, *tables, self._spans, layout, state)
        if state[3]:
            raise StoreError(f"{codes.path}: changed while it was read; run this again")
        self._check_loop(codes, self.count - int(state[2]), waiting=False)
        links = int(state[4])
        order, state = self.paged.numbers(), np.zeros(9, np.int64)
        state[1] = -1
        for part in self.paged.filled(order_up, self.links, state=state):
            order.append(part)
        kinds = "links", "cells", "heads", "outlets", "length", "strahler"
        of = state[[LINKS, CELLS, HEADS, OUTLETS, LENGTH, HIGHEST]]
        self.totals = dict(zip(kinds, of.tolist(), strict=True))
        self._check_loop(codes, links - self.totals["links"], waiting=True)
        for chunk in order.chunks(backwards=True):
            self.paged.run(order_down, self.links, chunk, np.array([len(chunk)]))

    def _gathered(self) -> PagedTable:
        """Return the table of all pieces."""
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

    def _check_loop(self, codes: Layer, lost: int, *, waiting: bool) -> None:
        if lost:
            state = np.array([0, -1])
            self.paged.run(first_lost, self.pieces, self.links, waiting, state)
            raise loop_error(codes, *divmod(int(state[1]), self._blocks.cols))

    def number(self) -> Iterator[np.ndarray]:
        """Number the links; yield them in this order in chunks, each valid until the next."""
        state, across = np.zeros(4, np.int64), self._blocks.shape[1]
        for i in range(self._blocks.shape[0]):
            r0, r1, _, _ = self._blocks.window(i, 0)
            rows = np.array([r0, r1, self._blocks.cols])
            spans = self._spans[i * across : (i + 1) * across].copy()
            tables = self.pieces, self.links, spans, rows
            yield from self.paged.filled(number_links, *tables, state=state)

    def listed(self) -> NumberList:
        """Number the links; return them in this order."""
        rows = self.paged.numbers()
        for chunk in self.number():
            rows.append(chunk)
        return rows

    def spread(self, name: str) -> int:
        """Copy the value of each link in a column to all its pieces; return the greatest value."""
        state = np.array([0, -1, 0])
        self.paged.run(spread, self.pieces, self.links, self.link_table.rows[name], state)
        return int(state[2])
