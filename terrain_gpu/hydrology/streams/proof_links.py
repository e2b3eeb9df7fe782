"""Orders and codes of links, found from their graph alone, as proofs of channels compute them.

A graph is given by the ends of links, the sums at their last cells and these. A link's orders
follow from those of the links that flow into it, or from that of the one that it flows into.

Pfafstetter codes: the tributaries of each stem are put into a tree of parts of the stem, the
largest first. A part takes four; the next ones go to a part between, below or above these. A code
is read off from its end: from a link out of the parts of its stem, then those of the stem that this
flows into.

Links are rows of a table, in memory or in a file if they do not fit.
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
"""The cells and the length of its line; ids of the first cell, of that where the line ends, and of
its last one; the sum there, and how many cells on the edge drain through it; the link that it flows
into, -1 at outlets; the main one of those that flow in, and that of the same stream; its outlet,
and orders; the lowest link of its stem, its place on it, and of the lowest one, where its
tributaries are, how many, and the part that it is as a whole; the part that a tributary divides;
elevations of the first cell and of the line's end; orders; how many that flow in have the greatest,
how many flow in, and how many still wait; whether it is an outlet."""

_TRIBUTARY = np.dtype([(name, _I8) for name in ProvenTributaries._fields[:-1]])
_PART = np.dtype([("chosen", _I8, (4,)), ("inner", _I8, (5,)), ("up", _I8)])

EACH = LINK.itemsize + _TRIBUTARY.itemsize + _PART.itemsize + 8
"""Bytes of a link in memory: its rows, and its place in the order of the flow."""
HELD = 16 * MB
"""Memory planned for links."""


def _columns(kind: Any, table: PagedTable) -> Any:
    return kind(*(table.rows[name] for name in kind._fields[:-1]), table.pages)


class LinkGraph:
    """The links of a file, by their numbers less one.

    Parameters
    ----------
    folder
        Where tables are spilled that do not fit.
    room
        Bytes of memory for them.
    """

    def __init__(self, folder: Path, room: int) -> None:
        self._paged = Paged(folder, room)
        self._rows = Gathered(self._paged, LINK, room, EACH)

    @property
    def count(self) -> int:
        return self._rows.count

    def add(self, rows: np.ndarray) -> None:
        """Add links, of which "cells", "span", "first", "end" and "last" are known; else zeros.

        "last" is the last but one cell of the line: the last of a link that flows into another.
        """
        self._rows.append(rows)

    def complete(self) -> None:
        """Take the links that were added as all there are."""
        self._table = self._rows.table()
        self._links = _columns(ProvenLinks, self._table)

    def mark(self, *ends: np.ndarray) -> None:
        """Keep what is found at ends of lines, see `mark_ends`; from any thread."""
        self._paged.run(mark_ends, self._links, *ends, np.zeros(1, np.int64))

    def solve(self) -> tuple[int, str] | None:
        """Find orders and codes; or a link that is wrong, and what it does."""
        paged, links = self._paged, self._links
        state = np.array([0, -1])
        paged.run(join_links, links, state)
        if state[1] >= 0:
            return int(state[1]), "ends where no link does"
        order, known = paged.numbers(), 0
        for chunk in paged.filled(climb_links, links, state=np.array([0, -1, 0])):
            order.append(chunk)
            known += len(chunk)
        if known < self.count:
            state = np.zeros(1, np.int64)
            paged.run(first_waiting, links, state)
            return int(state[0]), "leads round in a circle"
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
        """Copies of the rows of some links, as `LINK`."""
        return self._paged.copy(self._table.rows[first : first + count])

    def chunks(self, most: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the number of a first link, less one, and the rows from it on, for all links."""
        for first in range(0, self.count, most):
            yield first, self.rows(first, most)

    def codes(self, first: int, count: int) -> list[str]:
        """The codes of some links."""
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
