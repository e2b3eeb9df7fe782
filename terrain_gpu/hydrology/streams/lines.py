"""Write the links of channels as lines, as an operation: `StreamLines`.

1. *Pieces* and links: see `base`. The steps of their cells are kept on disk.
2. *Writing*: join the pieces, and write them link by link.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...cells import is_nodata
from ...engine.machine import MB, Machine
from ...engine.operation import OutputFile, Phase, SolvedBlock
from ...engine.plan import Excess, StreamPlan
from ...engine.proof import Limits
from ...engine.run import Run
from ...errors import InputError
from ...facts import Findings
from ...grid import Block, GridSpec, cell_centres, units
from ...grid.lengths import Measured, step_lengths
from ...grid.neighbours import COL_STEP, ROW_STEP
from ...io.features import POINTS, Feature, Fields, library_bytes, write_features
from ...io.lines import is_geopackage, tell_without_crs
from ...plurals import counted
from ...store.file_writer import FileWriter
from ..common.relative import as_floats, base_of
from ..common.sums import EDGE_LAYER
from ..forest.features import write_lines
from ..forest.lines import CELL_BYTES
from .base import TRACE, ChannelState, OnChannels
from .link_kernels import Drawn, gather, list_pieces
from .links import DRAWN_PIECE, EACH, PIECE
from .pfafstetter import BYTES, Codes
from .proof_lines import EDGE_CELLS, Channels, plan_lines_proof, verify_lines

LINES, JUNCTIONS = "streams", "junctions"
"""Names of the layers in a GeoPackage."""

JUNCTION_FIELDS: Fields = {
    "id": np.int64,
    "kind": object,
    "upstream": np.int64,
    "downstream": np.int64,
    "elevation": np.float64,
}

DRAWN = np.dtype(
    [
        *((name, np.int64) for name in Drawn._fields[:-2]),
        *((name, np.float64) for name in Drawn._fields[-2:]),
    ]
)
"""The values of a link that are written."""

ORDERS = ("strahler", "shreve", "horton", "hack", "topological")
_BATCH = 1 << 16
"""Links are written in batches of about this number of cells."""
_LINKS = 1 << 14
"""Number of links looked up at a time."""
_JUNCTIONS = 1 << 14
"""Number of junctions written at a time."""
_WRITING = 32 * MB


@dataclass(frozen=True)
class StreamLines(OnChannels):
    """The operation. `least` is the smallest sum of a channel; see `streams` for the others."""

    store: str
    directions: str
    accumulation: str
    least: int | float
    path: str
    layer: str = "elevation"
    edge_cells: bool = False

    command = "streams"
    mark = ""
    phases = (TRACE,)
    steps = True
    each = EACH + DRAWN_PIECE.itemsize - PIECE.itemsize + BYTES

    @property
    def inputs(self) -> tuple[str, ...]:
        counts = (EDGE_LAYER,) if self.edge_cells else ()
        return self.directions, self.accumulation, self.layer, *counts

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
        elevations = cells[2][row, col]
        if len(lost := np.flatnonzero(is_nodata(elevations, layer.nodata))):
            r0, _, c0, _ = self.blocks.window(*at)
            raise InputError(
                f"{layer.path}: row {r0 + row[lost[0]] - 1}, column {c0 + col[lost[0]] - 1} is on "
                "a channel but is nodata; name the layer that the directions were computed from "
                "(--layer)"
            )
        return as_floats(elevations, base_of(layer)) + 0.0  # SQLite has no -0.0

    def finish(
        self, at: Block, cells: list[np.ndarray], out: list[np.ndarray], context: object
    ) -> SolvedBlock:
        raise AssertionError("there is one phase")

    @property
    def _channels(self) -> Channels:
        codes, sums, heights, *counts = self.layers
        return Channels(codes, sums, heights, self.least, *counts)

    proven_by_workers = False

    def plan_verify(self, machine: Machine) -> None:
        plan_lines_proof(self._channels, self.path, Limits(machine))

    def verify(self, run: Run, totals: Findings) -> Findings:
        (writer,) = run.writers.values()
        with writer.errors():
            verify_lines(self._channels, (writer.part, writer.path), totals, run.proof_limits)
        return {"verified_lines": totals["links"]}

    def execute(self, run: Run) -> Findings:
        (writer,) = run.writers.values()
        with closing(LineState(self, run.plan, writer)) as state:
            run.map(TRACE, state)
            with run.report.phase("write"), writer.errors():
                tell_without_crs(self.path, self.grid)
                write_lines(writer.part, state.features(), self.grid, LINES, self.fields)
                if is_geopackage(writer.part):
                    ends = state.junctions()
                    layer = JUNCTIONS, JUNCTION_FIELDS, POINTS
                    write_features(writer.part, ends, self.grid, *layer)
            return state.found()

    @property
    def fields(self) -> Fields:
        """The attributes of lines and their data types."""
        numbers = ("id", "downstream", "outlet", "start", "end", "cells")
        return {
            **dict.fromkeys(numbers, np.int64),
            **dict.fromkeys(("length", "drop", "slope", "sinuosity"), np.float64),
            "accumulation": self.layers[1].dtype.type,
            **dict.fromkeys([EDGE_CELLS] * self.edge_cells, np.int64),
            **dict.fromkeys(ORDERS, np.int64),
            "pfafstetter": object,
        }


class LineState(ChannelState):
    """All pieces, with their steps on disk; then all links."""

    _operation: StreamLines

    def __init__(self, operation: StreamLines, plan: StreamPlan, writer: FileWriter) -> None:
        super().__init__(operation, plan, writer.spill)
        self._writer = writer
        self._file = self.paged.file()
        self._written = 0

    def add(self, phase: Phase, at: Block, message: Any) -> None:
        with self._writer.errors():
            super().add(phase, at, message)

    def keep(self, pieces: np.ndarray, steps: np.ndarray) -> None:
        ends = np.cumsum(pieces["cells"], dtype=np.int64)
        pieces["place"] = self._written + ends - pieces["cells"]
        self.paged.write(self._file, steps)
        self._written += len(steps)

    def join(self, phase: Phase) -> None:
        with self._writer.errors():
            super().join(phase)
            self._codes = Codes(self.links)
            self._listed = self.links.listed()
        rows = self.links.piece_table.rows
        self._ends, self._places = (rows["top"], rows["bottom"], rows["edge"]), rows["place"]
        self._rise = units.rise_of(self._operation.layers[2])

    def _drawn(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the rows of links in order, and their `DRAWN` values, chunk by chunk."""
        links = self.links
        for chunk in self._listed.chunks():
            for k in range(0, len(chunk), _LINKS):
                which = chunk[k : k + _LINKS]
                values = np.empty(len(which), DRAWN)
                columns = Drawn(*(values[name] for name in Drawn._fields))
                tables = links.pieces, links.links, self._ends
                self.paged.run(gather, *tables, which, columns, np.zeros(1, np.int64))
                yield which, values

    def features(self) -> Iterator[list[Feature]]:
        """Yield batches of links, each with coordinates and attributes."""
        excess = Excess.of(self._plan)
        for which, links in self._drawn():
            first, ends = 0, np.cumsum(links["cells"])
            while first < len(which):
                before = ends[first] - links["cells"][first]
                last = max(int(np.searchsorted(ends, before + _BATCH, side="right")), first + 1)
                size = int(ends[last - 1] - before)
                extra, cells = max(size - _BATCH, 0) * CELL_BYTES, counted(size, "cell")
                if excess.has_room(extra, f"for a link of {cells}"):
                    yield self._batch(which[first:last], links[first:last])
                first = last
        excess.refuse()

    def junctions(self) -> Iterator[list[Feature]]:
        """Yield batches of junctions: the first cells of links by their numbers, then outlets."""
        count, base = 0, base_of(self._operation.layers[2])
        for _, links in self._drawn():
            kinds = np.where(links["inflows"] > 0, "junction", "head")
            columns = links["start"], kinds, links["inflows"], links["id"], links["top"] + base
            yield from self._points(count, *columns)
            count += len(links)
        for _, drawn in self._drawn():
            links = drawn[drawn["downstream"] == 0]
            ones, none = np.ones(len(links), np.int64), np.zeros(len(links), np.int64)
            same = np.full(len(links), "outlet"), ones, none
            yield from self._points(count, links["end"], *same, links["low"] + base)
            count += len(links)

    def _points(
        self, count: int, cells: np.ndarray, *columns: np.ndarray
    ) -> Iterator[list[Feature]]:
        grid = self._operation.grid
        for k in range(0, len(cells), _JUNCTIONS):
            chunk = slice(k, k + _JUNCTIONS)
            xy = cell_centres(grid, np.stack(np.divmod(cells[chunk], grid.cols), axis=1))
            ids = count + k + 1 + np.arange(len(xy))
            rows = zip(*(column[chunk].tolist() for column in columns), strict=True)
            yield [
                (at, dict(zip(JUNCTION_FIELDS, (number, *row), strict=True)))
                for at, number, row in zip(xy, ids.tolist(), rows, strict=True)
            ]

    def _batch(self, which: np.ndarray, links: np.ndarray) -> list[Feature]:
        operation = self._operation
        row, col, starts = self._cells(which, links)
        xy = cell_centres(operation.grid, np.stack((row, col), axis=1))
        tip = starts[1:] - 1
        columns = self._columns(links)
        straight = _straight(operation.grid, row[starts[:-1]], row[tip], col[starts[:-1]], col[tip])
        length = columns["length"]
        with np.errstate(invalid="ignore", divide="ignore"):
            columns["slope"] = np.where(length > 0, columns["drop"] * self._rise / length, 0.0)
            columns["sinuosity"] = np.where(length > 0, np.maximum(length / straight, 1.0), 1.0)
        codes = self._codes.of(which)
        rows = zip(*(columns[name].tolist() for name in columns), codes, strict=True)
        names = [*columns, "pfafstetter"]
        return [
            (xy[a:b], dict(zip(names, values, strict=True)))
            for a, b, values in zip(starts[:-1].tolist(), starts[1:].tolist(), rows, strict=True)
        ]

    def _columns(self, links: np.ndarray) -> dict[str, np.ndarray]:
        """Return the attributes of links; slope and sinuosity remain to be filled in."""
        dtype = self._operation.layers[1].dtype
        sums = links["sums"].copy()
        same = "id", "downstream", "outlet", "start", "end", "cells"
        return {
            **{name: links[name] for name in same},
            "length": links["lengths"] * self._operation.units[1],
            "drop": links["top"] - links["low"],
            "slope": np.empty(0),
            "sinuosity": np.empty(0),
            "accumulation": sums.view(dtype) if dtype.kind == "f" else sums.astype(dtype),
            **dict.fromkeys([EDGE_CELLS] * self._operation.edge_cells, links["edge"]),
            **{name: links[name] for name in ORDERS},
        }

    def _cells(
        self, which: np.ndarray, links: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rows and columns of the cells of links' lines, and where each line starts."""
        count, outlet = links["cells"], links["downstream"] == 0
        steps = self._steps(which, int(count.sum()))
        # A line has one cell more than its link, except at an outlet, whose step is 8.
        line = np.repeat(np.arange(len(which)), count + 1)
        along = np.arange(len(steps) + len(count)) - line
        start = np.cumsum(count) - count
        paths = []
        corners = np.divmod(links["start"], self._operation.grid.cols)
        for corner, step in zip(corners, (ROW_STEP, COL_STEP), strict=True):
            path = np.concatenate(([0], np.cumsum(np.append(step, 0)[steps])))
            paths.append(path[along] + (corner - path[start])[line])
        on_line = np.ones(len(line), bool)
        on_line[np.cumsum(count + 1)[outlet] - 1] = False
        starts = np.concatenate(([0], np.cumsum(count + ~outlet)))
        return paths[0][on_line], paths[1][on_line], starts

    def _steps(self, which: np.ndarray, cells: int) -> np.ndarray:
        """Return the steps between the cells of links, concatenated."""
        positions, counts = np.empty((2, cells), np.int64)
        state = np.array([0, -1, 0])
        pieces = self.links.pieces, self._places
        self.paged.run(list_pieces, *pieces, which, positions, counts, state)
        positions, counts = positions[: state[2]], counts[: state[2]]
        # Read adjacent parts of the file at once.
        new = np.flatnonzero(np.append(True, positions[1:] != (positions + counts)[:-1]))
        sizes = np.add.reduceat(counts, new)
        parts = [
            os.pread(self._file.fileno(), size, at)
            for at, size in zip(positions[new].tolist(), sizes.tolist(), strict=True)
        ]
        return np.frombuffer(b"".join(parts), np.uint8)


def _straight(
    grid: GridSpec, row: np.ndarray, to_row: np.ndarray, col: np.ndarray, to_col: np.ndarray
) -> np.ndarray:
    """Return straight distances between cells, measured as by `step_lengths`."""
    east, _, south, _ = step_lengths(grid)
    down = np.concatenate(([0.0], np.cumsum(south)))
    # The parallel at the middle latitude.
    middle = (east[(row + to_row) // 2] + east[(row + to_row + 1) // 2]) / 2
    return np.hypot(down[to_row] - down[row], (to_col - col) * middle)
