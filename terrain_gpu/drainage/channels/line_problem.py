"""The links of channels as lines: `StreamLines`.

1. *Pieces* and links, see `operation`; the steps of their cells are kept on disk.
2. *Writing*: the pieces are joined and written, link by link.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...cells import is_nodata
from ...engine.operation import OutputFile, Phase, SolvedBlock
from ...engine.plan import MB, StreamPlan, require
from ...engine.proof import Limits
from ...engine.run import Run
from ...errors import InputError
from ...grid import Block, GridSpec, cell_centres
from ...grid.lengths import Measured, step_lengths
from ...grid.neighbours import COL_STEP, ROW_STEP
from ...io.features import POINTS, Feature, Fields, library_bytes, write_features
from ...io.lines import is_geopackage, reprojection_errors, tell_without_crs
from ..features import write_lines
from ..lines import CELL_BYTES
from ..verify.stream_lines import Channels, plan_lines_proof, verify_lines
from .links import LinkPieces, Links
from .operation import TRACE, ChannelState, OnChannels
from .pfafstetter import Codes

LINES, JUNCTIONS = "streams", "junctions"
"""Names of the layers in a GeoPackage."""

JUNCTION_FIELDS: Fields = {
    "id": np.int64,
    "kind": object,
    "upstream": np.int64,
    "downstream": np.int64,
    "elevation": np.float64,
}

ORDERS = ("strahler", "shreve", "horton", "hack", "topological")
_BATCH = 1 << 16
"""Links are written in batches of about this many cells."""
_JUNCTIONS = 1 << 14
"""Junctions written at a time."""
_WRITING = 32 * MB


@dataclass(frozen=True)
class StreamLines(OnChannels):
    """The operation; `least` is the least sum of a channel, else as for `streams`."""

    store: str
    directions: str
    accumulation: str
    least: int | float
    path: str
    layer: str = "elevation"

    command = "streams"
    mark = ""
    phases = (TRACE,)
    steps = True

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.directions, self.accumulation, self.layer

    @property
    def measures(self) -> tuple[Measured, ...]:
        return ("lengths", "slopes")

    @property
    def outputs(self) -> tuple[OutputFile, ...]:
        return (OutputFile(self.path),)

    @property
    def beside_bytes(self) -> int:  # type: ignore[override]
        return _WRITING + library_bytes(self.path)

    def heights(
        self, at: Block, cells: list[np.ndarray], row: np.ndarray, col: np.ndarray
    ) -> np.ndarray:
        layer = self.layers[2]
        found = cells[2][row, col]
        if len(lost := np.flatnonzero(is_nodata(found, layer.nodata))):
            r0, _, c0, _ = self.blocks.window(*at)
            raise InputError(
                f"{layer.path}: row {r0 + row[lost[0]] - 1}, column {c0 + col[lost[0]] - 1} is on "
                "a channel and has no value; name the layer that the directions were computed from "
                "(--layer)"
            )
        return found.astype(np.float64) + 0.0  # SQLite has no -0.0

    def finish(
        self, at: Block, cells: list[np.ndarray], out: list[np.ndarray], given: Any
    ) -> SolvedBlock:
        raise AssertionError("there is one phase")

    @property
    def _channels(self) -> Channels:
        codes, sums, heights = self.layers
        return Channels(codes, sums, heights, self.least)

    proven_by_workers = False

    def plan_verify(self, memory_limit: int, threads: int | None) -> None:
        plan_lines_proof(self._channels, self.path, Limits(memory_limit, threads))

    def verify(self, run: Run, found: dict[str, Any]) -> dict[str, Any]:
        (writer,) = run.writers.values()
        with writer.errors():
            verify_lines(self._channels, (writer.part, writer.path), found, run.proof_limits)
        return {"verified_lines": found["links"]}

    def execute(self, run: Run) -> dict[str, Any]:
        (writer,) = run.writers.values()
        with closing(LineState(self, run.plan, writer)) as state:
            run.map(TRACE, state)
            with run.report.phase("write"), reprojection_errors(self.path), writer.errors():
                tell_without_crs(self.path, self.grid)
                write_lines(writer.part, state.features(), self.grid, LINES, self.fields)
                if is_geopackage(writer.part):
                    ends = state.junctions()
                    what = JUNCTIONS, JUNCTION_FIELDS, POINTS
                    write_features(writer.part, ends, self.grid, *what)
            return state.found()

    @property
    def fields(self) -> Fields:
        """The attributes of lines, and their data types."""
        numbers = ("id", "downstream", "outlet", "start", "end", "cells")
        return {
            **dict.fromkeys(numbers, np.int64),
            **dict.fromkeys(("length", "drop", "slope", "sinuosity"), np.float64),
            "accumulation": self.layers[1].dtype.type,
            **dict.fromkeys(ORDERS, np.int64),
            "pfafstetter": object,
        }


class LineState(ChannelState):
    """All pieces with their steps on disk, then all links.

    Steps are in an unnamed file in the folder of the output, so a killed process leaves nothing.
    """

    _operation: StreamLines

    def __init__(self, operation: StreamLines, plan: StreamPlan, writer: Any) -> None:
        super().__init__(operation, plan)
        self._writer = writer
        self._file = tempfile.TemporaryFile(dir=writer.path.parent)  # noqa: SIM115
        self._written = 0

    def close(self) -> None:
        self._file.close()

    def add(self, phase: Phase, at: Block, known: Any) -> None:
        with self._writer.errors():
            super().add(phase, at, known)

    def kept(self, pieces: LinkPieces, steps: np.ndarray) -> LinkPieces:
        pieces.place = self._written + np.cumsum(pieces.cells) - pieces.cells
        self._file.write(steps.data)
        self._written += len(steps)
        return pieces

    def linked(self, pieces: LinkPieces, links: Links) -> None:
        self._file.flush()
        self._pieces, self._links = pieces, links

    def join(self, phase: Phase) -> None:
        super().join(phase)
        self._codes = Codes(self._links, self._pieces.last[self._links.tail])

    def features(self) -> Iterator[list[Feature]]:
        """Yield batches of links, each with positions and attributes."""
        cells = self._links.cells
        first, plan = 0, self._plan
        ends = np.cumsum(cells)
        while first < len(cells):
            before = ends[first] - cells[first]
            last = max(int(np.searchsorted(ends, before + _BATCH, side="right")), first + 1)
            size = int(ends[last - 1] - before)
            needed = plan.memory + self.bytes_beyond + max(size - _BATCH, 0) * CELL_BYTES
            require(needed, plan.memory_limit, f"for a link of {size:,} cells")
            yield self._batch(first, last)
            first = last

    def junctions(self) -> Iterator[list[Feature]]:
        """Yield batches of the cells where links begin, by their numbers, and of the outlets."""
        links, pieces, grid = self._links, self._pieces, self._operation.grid
        count = len(links)
        above = np.bincount(links.down[links.down >= 0], minlength=count)
        outlets = np.flatnonzero(links.down < 0)
        for start in range(0, count + len(outlets), _JUNCTIONS):
            which = np.arange(start, min(start + _JUNCTIONS, count + len(outlets)))
            begins = which < count
            link = np.where(begins, which, outlets[np.maximum(which - count, 0)])
            cells = np.where(begins, pieces.first[links.head[link]], links.end[link])
            xy = cell_centres(grid, np.stack(np.divmod(cells, grid.cols), axis=1))
            heights = np.where(
                begins, pieces.top[links.head[link]], pieces.bottom[links.tail[link]]
            )
            upstream = np.where(begins, above[link], 1)
            kinds = np.where(begins, np.where(upstream > 0, "junction", "head"), "outlet")
            columns = which + 1, kinds, upstream, np.where(begins, link + 1, 0), heights
            rows = zip(*(column.tolist() for column in columns), strict=True)
            yield [
                (at, dict(zip(JUNCTION_FIELDS, row, strict=True)))
                for at, row in zip(xy, rows, strict=True)
            ]

    def _batch(self, first: int, last: int) -> list[Feature]:
        links, operation = slice(first, last), self._operation
        row, col, starts = self._cells(first, last)
        xy = cell_centres(operation.grid, np.stack((row, col), axis=1))
        tip = starts[1:] - 1
        columns = self._columns(links)
        straight = _straight(operation.grid, row[starts[:-1]], row[tip], col[starts[:-1]], col[tip])
        length = columns["length"]
        with np.errstate(invalid="ignore", divide="ignore"):
            columns["slope"] = np.where(length > 0, columns["drop"] / length, 0.0)
            columns["sinuosity"] = np.where(length > 0, np.maximum(length / straight, 1.0), 1.0)
        codes = [self._codes.of(link) for link in range(first, last)]
        rows = zip(*(columns[name].tolist() for name in columns), codes, strict=True)
        names = [*columns, "pfafstetter"]
        return [
            (xy[a:b], dict(zip(names, values, strict=True)))
            for a, b, values in zip(starts[:-1].tolist(), starts[1:].tolist(), rows, strict=True)
        ]

    def _columns(self, links: slice) -> dict[str, np.ndarray]:
        """Attributes of links that do not depend on their lines."""
        own, pieces, operation = self._links, self._pieces, self._operation
        head, tail, down = own.head[links], own.tail[links], own.down[links]
        # The next link begins at the junction where this one ends.
        low = np.where(down < 0, pieces.bottom[tail], pieces.top[own.head[down]])
        columns = {
            "id": own.number[links],
            "downstream": down + 1,
            "outlet": own.outlet[links] + 1,
            "start": pieces.first[head],
            "end": own.end[links],
            "cells": own.cells[links],
            "length": own.lengths[links] * operation.units[1],
            "drop": pieces.top[head] - low,
            "slope": np.empty(0),
            "sinuosity": np.empty(0),
            "accumulation": own.sums[links],
        }
        return columns | {name: getattr(own, name)[links] for name in ORDERS}

    def _cells(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows and columns of the cells of some links' lines, and where each starts in them."""
        links, pieces = self._links, self._pieces
        parts = []
        for piece in links.head[first:last].tolist():
            at = piece
            while True:
                parts.append(self._read(int(pieces.place[at]), int(pieces.cells[at])))
                at = int(links.following[at])
                if at < 0 or pieces.begins[at]:
                    break
        steps = np.concatenate(parts)
        count = links.cells[first:last]
        # A line has a cell more than steps, but at an outlet, whose step is 8.
        line = np.repeat(np.arange(last - first), count + 1)
        along = np.arange(len(steps) + len(count)) - line
        start = np.cumsum(count) - count
        found = []
        corners = np.divmod(pieces.first[links.head[first:last]], self._operation.grid.cols)
        for corner, step in zip(corners, (ROW_STEP, COL_STEP), strict=True):
            way = np.concatenate(([0], np.cumsum(np.append(step, 0)[steps])))
            found.append(way[along] + (corner - way[start])[line])
        outlet = links.down[first:last] < 0
        kept = np.ones(len(line), bool)
        kept[np.cumsum(count + 1)[outlet] - 1] = False
        starts = np.concatenate(([0], np.cumsum(count + ~outlet)))
        return found[0][kept], found[1][kept], starts

    def _read(self, at: int, count: int) -> np.ndarray:
        return np.frombuffer(os.pread(self._file.fileno(), count, at), np.uint8)


def _straight(
    grid: GridSpec, row: np.ndarray, to_row: np.ndarray, col: np.ndarray, to_col: np.ndarray
) -> np.ndarray:
    """Straight distances between cells, measured as long steps, see `step_lengths`."""
    east, _, south, _ = step_lengths(grid)
    down = np.concatenate(([0.0], np.cumsum(south)))
    # The parallel at the middle latitude.
    middle = (east[(row + to_row) // 2] + east[(row + to_row + 1) // 2]) / 2
    return np.hypot(down[to_row] - down[row], (to_col - col) * middle)
