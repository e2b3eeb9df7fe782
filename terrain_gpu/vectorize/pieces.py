"""Layers as features of a file: blocks trace pieces of lines, which are joined and written."""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..engine.operation import Operation, OutputFile, Phase, State
from ..engine.plan import NO_LIMIT, StreamPlan, require
from ..engine.run import Run
from ..errors import StoreError
from ..grid import Block
from ..io.features import Feature, Fields, GeometryType, write_features
from ..io.lines import reprojection_errors, tell_without_crs

PIECE_BYTES = 200
"""Bytes per piece while pieces are joined."""

_BATCH = 1 << 16
"""Lines are written in batches of about this many elements."""


TRACE = Phase("trace")


@dataclass(frozen=True)
class Drawing(Operation):
    """Draws a layer as features of a file.

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

    def settings(self) -> dict[str, Any]:
        return {"layer": self.layer}

    @abstractmethod
    def compile(self) -> None:
        """Load or compile the kernels, in the main thread, which Ctrl-C stops."""

    @abstractmethod
    def pieces(self, plan: StreamPlan, writer: Any) -> LinePieces:
        """Return the state that collects the pieces of all blocks."""

    def execute(self, run: Run) -> dict[str, Any]:
        self.compile()
        (writer,) = run.writers.values()
        with closing(self.pieces(run.plan, writer)) as state:
            run.map(TRACE, state)
            with run.report.phase("write"), reprojection_errors(self.path), writer.errors():
                tell_without_crs(self.path, self.grid)
                how = self.grid, self.name, self.fields, self.shape
                write_features(writer.part, state.features(), *how)
            return state.found()


class LinePieces(State, ABC):
    """The pieces of all blocks, with some columns about each of them.

    What lies along a piece is in an unnamed file in the folder of the output, so a killed process
    leaves nothing.

    Parameters
    ----------
    item
        Type of an element along a piece.
    each
        Bytes per element of a line while it is assembled and written.
    what
        What pieces are part of, for messages.
    """

    def __init__(
        self,
        operation: Operation,
        plan: StreamPlan,
        writer: Any,
        item: np.dtype,
        each: int,
        what: str,
    ) -> None:
        self._plan, self._writer, self._item, self._each, self._what = (
            plan, writer, item, each, what
        )  # fmt: skip
        # A larger limit has a larger plan, so the limit that suffices is above that.
        self._streaming = max(operation.plan(NO_LIMIT, plan.workers or None).memory, plan.memory)
        self._file = tempfile.TemporaryFile(dir=writer.path.parent)  # noqa: SIM115
        self._written = self._count = 0
        self._parts: dict[Block, tuple[np.ndarray, ...]] = {}

    def close(self) -> None:
        self._file.close()

    def add_pieces(self, at: Block, items: np.ndarray, counts: np.ndarray, *columns: Any) -> None:
        """Add the pieces of a block: their elements, how many each has, and columns about them."""
        if earlier := self._parts.pop(at, None):  # of a worker that was lost
            self._count -= len(earlier[0])
        self._count += len(counts)
        plan = self._plan
        # A guess at how many there will be.
        share = plan.blocks / (len(self._parts) + 1)
        if plan.memory + self._count * PIECE_BYTES > plan.memory_limit:
            needed = self._streaming + int(share * self._count * PIECE_BYTES)
            require(needed, plan.memory_limit, f"for {self._count:,} or more {self._what}")
        counts = counts.astype(np.int64)
        places = self._written + np.cumsum(counts) - counts
        with self._writer.errors():
            self.keep(items)
        self._written += len(items)
        self._parts[at] = places, counts, *columns

    @abstractmethod
    def features(self) -> Iterator[list[Feature]]:
        """Join the pieces and yield batches of features."""

    def keep(self, items: np.ndarray) -> None:
        """Store the elements of a block."""
        self._file.write(items.data)

    def columns(self) -> list[np.ndarray]:
        """Return where the elements of each piece begin, their number, and its other columns."""
        self._file.flush()
        found = list(map(np.concatenate, zip(*self._parts.values(), strict=True)))
        self._parts = {}
        return found

    def refuse(self, sizes: np.ndarray, name: Any) -> None:
        """Refuse a line or group of so many elements that it does not fit memory.

        Parameters
        ----------
        name
            Called with the number of the largest; returns what it is.
        """
        most = int(sizes.argmax())
        more = self._count * PIECE_BYTES + max(int(sizes[most]) - _BATCH, 0) * self._each
        if self._plan.memory + more > self._plan.memory_limit:
            require(self._streaming + more, self._plan.memory_limit, f"for {name(most)}")

    def read(self, places: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return the elements of some pieces, one behind the other."""
        # What lies one behind the other in the file is read at once.
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
        The number of elements before each line, and of all.
    """
    begin = 0
    while begin < len(before) - 1:
        fits = np.searchsorted(before[ends], before[begin] + _BATCH, side="right")
        least = np.searchsorted(ends, begin, side="right")
        end = int(ends[max(int(fits) - 1, int(least))])
        yield begin, end
        begin = end


def successors(first: np.ndarray, after: np.ndarray, *, path: Any = None) -> np.ndarray:
    """Return the piece that begins with what comes after each piece; -1 if there is none.

    Parameters
    ----------
    after
        -1 if nothing comes after a piece.
    path
        The layer, if all that come after must exist.

    Raises
    ------
    StoreError
        when one that must exist does not.
    """
    order, found = np.argsort(first), np.full(len(first), -1)
    open_ = np.flatnonzero(after >= 0)
    at = order[np.minimum(np.searchsorted(first, after[open_], sorter=order), len(first) - 1)]
    there = first[at] == after[open_]
    if path is not None and not there.all():
        raise StoreError(f"{path}: changed while it was read; run this again")
    found[open_[there]] = at[there]
    return found
