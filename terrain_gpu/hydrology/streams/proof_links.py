"""Orders and codes of links, computed for proofs from the graph of links alone.

The graph consists of the ends of links, their last cells, and the sums there. The orders of a link
follow from those of the links that flow into it, or from those of the link that it flows into.

Pfafstetter codes: the tributaries of each stem are put into a tree of parts of the stem, the
largest first. A part takes four; the next ones go to a part between, below or above these. A code
is spelt from its end: from a link up through the parts of its stem, then through those of the stem
that this flows into.

Links are rows of a table, in memory, or in a file if they do not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...engine.machine import MB
from ...store.paged import Gathered, Paged, PagedTable
from .proof_link_kernels import (
    ProvenLinks,
    ProvenParts,
    ProvenTributaries,
    climb_links,
    descend_links,
    divide_stems,
    first_waiting,
    join_links,
    list_tributaries,
    mark_ends,
    place_tributaries,
    sort_tributaries,
    spell_codes,
)

_I8, _F8, _U1 = (np.dtype(kind) for kind in (np.int64, np.float64, np.uint8))

LINK = np.dtype(
    [
        ("cells", _I8),
        ("span", _I8),
        *((name, _I8) for name in ProvenLinks._fields[:18]),
        *((name, _F8) for name in ProvenLinks._fields[18:20]),
        *((name, _U1) for name in ProvenLinks._fields[20:25]),
        ("ends", np.bool_),
    ],
    align=True,
)
"""A link: the number of cells and the length of its line; the ids of its first cell, of the cell
where the line ends, and of the link's last cell; the sum there, and the number of edge cells that
drain through it; the link that it flows into, -1 at outlets; the main link of those that flow in,
and the one of the same Horton stream; its outlet and orders; the lowest link of its stem, and its
position on the stem; for a lowest link, where its tributaries are listed, their number, and the
part that is the whole stem; the part that a tributary divides; the elevations of the first cell and
of the line's end; more orders; how many inflowing links have the greatest order, how many flow in,
and how many of these are still to come; and whether it is an outlet."""

_TRIBUTARY = np.dtype([(name, _I8) for name in ProvenTributaries._fields[:-1]])
_PART = np.dtype([("chosen", _I8, (4,)), ("inner", _I8, (5,)), ("up", _I8)])

EACH = LINK.itemsize + _TRIBUTARY.itemsize + _PART.itemsize + 8
"""Bytes per link in memory: its rows, and its entry in the order of the flow."""
HELD = 16 * MB
"""Bytes planned for links."""


def _columns(kind: Any, table: PagedTable) -> Any:
    return kind(*(table.rows[name] for name in kind._fields[:-1]), table.pages)


class LinkGraph:
    """The links of a file. Their indices are their numbers minus one.

    Parameters
    ----------
    folder
        Folder for tables that do not fit in memory.
    room
        Bytes of memory for tables.
    """

    def __init__(self, folder: Path, room: int) -> None:
        self._paged = Paged(folder, room)
        self._rows = Gathered(self._paged, LINK, room, EACH)

    @property
    def count(self) -> int:
        return self._rows.count

    def add(self, rows: np.ndarray) -> None:
        """Add links. Only "cells", "span", "first", "end" and "last" are set; the rest is 0.

        "last" is the last cell of a link that flows into another: the last but one of its line.
        """
        self._rows.append(rows)

    def complete(self) -> None:
        """Create the table once all links have been added."""
        self._table = self._rows.table()
        self._links = _columns(ProvenLinks, self._table)

    def mark(self, *ends: np.ndarray) -> None:
        """Store the values at ends of lines; see `mark_ends`. Called from any thread."""
        self._paged.run(mark_ends, self._links, *ends, np.zeros(1, np.int64))

    def solve(self) -> tuple[int, str] | None:
        """Compute orders and codes; return None, or a wrong link and what is wrong with it."""
        paged, links = self._paged, self._links
        state = np.array([0, -1])
        paged.run(join_links, links, state)
        if state[1] >= 0:
            return int(state[1]), "ends where no link begins"
        order, ordered = paged.numbers(), 0
        for chunk in paged.filled(climb_links, links, state=np.array([0, -1, 0])):
            order.append(chunk)
            ordered += len(chunk)
        if ordered < self.count:
            state = np.zeros(1, np.int64)
            paged.run(first_waiting, links, state)
            return int(state[0]), "leads into a loop"
        for chunk in order.chunks(backwards=True):
            paged.run(descend_links, links, chunk, np.array([len(chunk)]))
        state = np.zeros(2, np.int64)
        paged.run(place_tributaries, links, state)
        size = max(int(state[1]), 1)
        of = _columns(ProvenTributaries, paged.table(size, _TRIBUTARY))
        parts = _columns(ProvenParts, paged.table(size, _PART))
        paged.run(list_tributaries, links, of, np.zeros(1, np.int64))
        paged.run(sort_tributaries, links, of, np.zeros(2, np.int64))
        paged.run(divide_stems, links, of, parts, np.array([0, 0, -1, 0]))
        self._tree = links, of, parts
        return None

    def rows(self, first: int, count: int) -> np.ndarray:
        """Return copies of the rows of some links, of type `LINK`."""
        return self._paged.copy(self._table.rows[first : first + count])

    def chunks(self, most: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield all links in chunks: the index of the first one, and their rows."""
        for first in range(0, self.count, most):
            yield first, self.rows(first, most)

    def codes(self, first: int, count: int) -> list[str]:
        """Return the Pfafstetter codes of some links."""
        size = 16 * count
        while True:
            digits, ends = np.empty(size, np.uint8), np.empty(count, np.int64)
            state = np.array([0, 0, -1, -1, 0, first])
            self._paged.run(spell_codes, *self._tree, digits, ends, state)
            if state[4] <= size:
                break
            size = int(state[4])
        text = digits[: state[4]].tobytes().decode()
        starts = [0, *ends[:-1].tolist()]
        return [text[a:b][::-1] for a, b in zip(starts, ends.tolist(), strict=True)]

    def close(self) -> None:
        """Remove the files."""
        self._paged.close()
