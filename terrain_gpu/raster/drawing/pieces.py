"""Draw layers as features of a file: blocks trace pieces of lines, which are joined and written."""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...engine.machine import MB, Machine
from ...engine.operation import Operation, OutputFile, Phase, State
from ...engine.plan import StreamPlan, require
from ...engine.run import Run
from ...errors import StoreError
from ...facts import Findings, Settings
from ...grid import Block, ceil_div
from ...io.features import Feature, Fields, GeometryType, library_bytes, write_features
from ...io.lines import tell_without_crs

PIECE_BYTES = 200
"""Bytes per piece while pieces are joined."""

JOINING = 32 * MB
"""Bytes for the pieces joined at a time: those of one or a few levels or labels."""

WRITING = 32 * MB
"""Bytes for a batch of lines while it is assembled and written."""

_BATCH = 1 << 16
"""Lines are written in batches of about this number of elements."""

_BINS = 1 << 12
"""Number of parts into which a range of levels or labels is divided if it is too large to join."""

TRACE = Phase("trace")


@dataclass(frozen=True)
class Drawing(Operation):
    """The base of operations that draw a layer as features of a file.

    Attributes
    ----------
    path
        The file.
    name
        Name of the layer in a GeoPackage.
    fields, shape
        Attributes and type of the features.
    """

    store: str
    layer: str
    path: str

    mark = ""
    halo = 1
    phases = (TRACE,)
    name: ClassVar[str]
    fields: ClassVar[Fields]
    shape: ClassVar[GeometryType]

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.layer,)

    @property
    def outputs(self) -> tuple[OutputFile, ...]:
        return (OutputFile(self.path),)

    def settings(self) -> Settings:
        return {"layer": self.layer}

    @property
    def held(self) -> int:
        """Bytes held while features are written, in addition to pieces."""
        return WRITING + library_bytes(self.path)

    @abstractmethod
    def compile(self) -> None:
        """Load or compile the kernels in the main thread, which Ctrl-C can stop."""

    @abstractmethod
    def pieces(self, plan: StreamPlan, writer: object) -> LinePieces:
        """Return the state that collects the pieces of all blocks."""

    def execute(self, run: Run) -> Findings:
        self.compile()
        (writer,) = run.writers.values()
        with closing(self.pieces(run.plan, writer)) as state:
            run.map(TRACE, state)
            with run.report.phase("write"), writer.errors():
                tell_without_crs(self.path, self.grid)
                how = self.grid, self.name, self.fields, self.shape
                write_features(writer.part, state.features(), *how)
            return state.found()


class LinePieces(State, ABC):
    """The pieces of all blocks, with some columns for each.

    Pieces and their elements are in unnamed files in the folder of the output, so a killed process
    leaves nothing behind. They are joined a few levels or labels at a time, so that memory does not
    depend on their number.

    Parameters
    ----------
    item
        Data type of an element along a piece.
    each
        The most bytes per element of a line while it is assembled and written.
    what
        Plural name of the pieces, for messages.
    width
        Number of columns of a piece: where its elements begin, their number, and others. Only
        pieces with the same value in the last column, a level or label, are joined.
    """

    def __init__(
        self,
        operation: Drawing,
        plan: StreamPlan,
        writer: Any,
        item: np.dtype,
        each: int,
        what: str,
        width: int,
    ) -> None:
        self._limit, self._writer, self._item, self._each, self._what, self._width = (
            plan.memory_limit, writer, item, each, what, width
        )  # fmt: skip
        machine = Machine.of(plan.memory_limit)
        self._always = machine.baseline(plan.block_size) + operation.held
        self._file, self._table, self._grouped = (
            tempfile.TemporaryFile(dir=writer.path.parent)  # noqa: SIM115
            for _ in range(3)
        )
        self._written = self._rows = 0
        self._parts: dict[Block, tuple[int, int]] = {}

    def close(self) -> None:
        for file in (self._file, self._table, self._grouped):
            file.close()

    @property
    def _count(self) -> int:
        return sum(count for _, count in self._parts.values())

    def add_pieces(
        self, at: Block, items: np.ndarray, counts: np.ndarray, *columns: np.ndarray
    ) -> None:
        """Add the pieces of a block: their elements, how many each has, and columns about them."""
        counts = counts.astype(np.int64)
        places = self._written + np.cumsum(counts) - counts
        rows = np.stack((places, counts, *columns), axis=1, dtype=np.int64)
        with self._writer.errors():
            self.keep(items)
            self._table.write(rows.data)
        # One that a lost worker has sent before is left out.
        self._parts[at] = self._rows, len(rows)
        self._written += len(items)
        self._rows += len(rows)

    def features(self) -> Iterator[list[Feature]]:
        """Join the pieces and yield batches of features, by level or label, then by position.

        Raises
        ------
        PlanError
            If the memory limit is too small; raised before the first batch, with a limit that
            suffices for all.
        """
        with self._writer.errors():
            ranges = self._grouped_ranges()
        if not ranges:
            return
        count, last = max((count, last) for last, count in ranges)
        self._require(count * PIECE_BYTES, f"the {count:,} {self._what} of {self.name_of(last)}")
        needed, name = 0, ""
        for count, columns in self._groups(ranges):
            room = self._limit - self._always - count * PIECE_BYTES
            size, what = self.largest(_BATCH * self._each + room, *columns)
            more = count * PIECE_BYTES + max(size - _BATCH * self._each, 0)
            if more > needed:
                needed, name = more, what
        self._require(needed, name)
        for _, columns in self._groups(ranges):
            yield from self.draw(*columns)

    def _require(self, needed: int, what: str) -> None:
        require(self._always + needed, self._limit, f"for {what}")

    @abstractmethod
    def largest(self, enough: int, *columns: np.ndarray) -> tuple[int, str]:
        """Return the bytes that the largest line, or label, of a group takes, and its name.

        The bytes may be an upper bound if that is at most `enough`.
        """

    @abstractmethod
    def draw(self, *columns: np.ndarray) -> Iterator[list[Feature]]:
        """Join the pieces of a group and yield batches of features."""

    def keep(self, items: np.ndarray) -> None:
        """Store the elements of a block."""
        self._file.write(items.data)

    def _grouped_ranges(self) -> list[tuple[int, int]]:
        """Group the pieces; return the last key and the number of pieces of each group."""
        self._file.flush()
        self._table.flush()
        ranges = list(self._ranges()) if self._count else []
        self._group(np.array([last for last, _ in ranges]), [n for _, n in ranges])
        return ranges

    def _groups(
        self, ranges: list[tuple[int, int]]
    ) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
        """Yield the number of pieces and their columns for each group, in ascending order."""
        start = 0
        for _, count in ranges:
            rows = self._read_rows(self._grouped, start, count)
            yield count, tuple(np.ascontiguousarray(rows.T))
            start += count

    @abstractmethod
    def name_of(self, key: int) -> str:
        """Return words for the level or label of this key."""

    def _table_rows(self) -> Iterator[np.ndarray]:
        """Yield the rows of all pieces in parts."""
        for start, count in self._parts.values():
            for k in range(0, count, _BATCH):
                yield self._read_rows(self._table, start + k, min(count - k, _BATCH))

    def _read_rows(self, file: Any, start: int, count: int) -> np.ndarray:
        file.seek(8 * self._width * start)
        return np.fromfile(file, np.int64, self._width * count).reshape(-1, self._width)

    def _ranges(self) -> Iterator[tuple[int, int]]:
        """Yield the last key and the number of pieces of each group."""
        ends = [(int(k.min()), int(k.max())) for k in (rows[:, -1] for rows in self._table_rows())]
        yield from self._divided(min(a for a, _ in ends), max(b for _, b in ends), self._count)

    def _divided(self, first: int, last: int, count: int) -> Iterator[tuple[int, int]]:
        """Divide the keys first to last, of `count` pieces, into groups that are joined at once."""
        if count * PIECE_BYTES <= JOINING or first == last:
            yield last, count
            return
        step, sizes = ceil_div(last - first + 1, _BINS), np.zeros(_BINS, np.int64)
        for rows in self._table_rows():
            keys = rows[:, -1]
            keys = keys[(keys >= first) & (keys <= last)]
            offsets = (keys - first).view(np.uint64) // np.uint64(step)  # beyond the range of int64
            sizes += np.bincount(offsets.astype(np.int64), minlength=_BINS)
        begun = 0
        for k, size in enumerate(sizes.tolist()):
            if begun and (begun + size) * PIECE_BYTES > JOINING:
                yield first + k * step - 1, begun
                begun = 0
            if size * PIECE_BYTES > JOINING:
                yield from self._divided(
                    first + k * step, min(last, first + (k + 1) * step - 1), size
                )
            else:
                begun += size
        if begun:
            yield last, begun

    def _group(self, lasts: np.ndarray, counts: list[int]) -> None:
        """Write the pieces again, group by group."""
        fill = np.cumsum([0, *counts])
        for some in self._table_rows():
            group = np.searchsorted(lasts, some[:, -1])
            order = np.argsort(group, kind="stable")
            rows, group = some[order], group[order]
            for part in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(group)) + 1):
                self._grouped.seek(8 * self._width * int(fill[group[part[0]]]))
                self._grouped.write(rows[part].data)
                fill[group[part[0]]] += len(part)
        self._grouped.flush()

    def read(self, places: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return the elements of some pieces, concatenated."""
        # Read adjacent parts of the file at once.
        new = np.flatnonzero(np.append(True, places[1:] != (places + counts)[:-1]))
        size = self._item.itemsize
        return np.concatenate(
            [
                np.frombuffer(os.pread(self._file.fileno(), n * size, at * size), self._item)
                for at, n in zip(
                    places[new].tolist(), np.add.reduceat(counts, new).tolist(), strict=True
                )
            ]
        )


def batches(ends: np.ndarray, before: np.ndarray) -> Iterator[tuple[int, int]]:
    """Divide lines into batches, each of at least one group.

    Parameters
    ----------
    ends
        Where each group ends.
    before
        The number of elements before each line, and the total.
    """
    begin = 0
    while begin < len(before) - 1:
        fits = np.searchsorted(before[ends], before[begin] + _BATCH, side="right")
        least = np.searchsorted(ends, begin, side="right")
        end = int(ends[max(int(fits) - 1, int(least))])
        yield begin, end
        begin = end


def successors(first: np.ndarray, after: np.ndarray, *, path: Path | None = None) -> np.ndarray:
    """Return the piece that continues each piece; -1 if there is none.

    Parameters
    ----------
    first, after
        The first element of each piece, and the element that follows its last one, -1 for none.
    path
        Path of the layer, if all following elements must begin a piece.

    Raises
    ------
    StoreError
        If one that must exist does not.
    """
    order, found = np.argsort(first), np.full(len(first), -1)
    open_ = np.flatnonzero(after >= 0)
    at = order[np.minimum(np.searchsorted(first, after[open_], sorter=order), len(first) - 1)]
    there = first[at] == after[open_]
    if path is not None and not there.all():
        raise StoreError(f"{path}: changed while it was read; run this again")
    found[open_[there]] = at[there]
    return found
