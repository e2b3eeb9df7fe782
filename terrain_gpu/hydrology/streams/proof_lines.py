"""Proof that a file holds the links of channels as lines: `verify_lines`.

It shares nothing with the program that draws the lines except the layers of directions, sums and
elevations, and the lengths of steps. The file is right exactly if

1. the vertices of every line are centres of cells, and its steps follow their directions. A line
   begins at a head or a junction, and ends at the next junction or at an outlet. An outlet that is
   a link of its own has a line without vertices;
2. every channel cell is on exactly one line, not counting the junction where a line ends;
3. lines are in row-major order of their first cells;
4. their attributes follow from their cells and from the graph of all links, see `proof_links`. So
   do the junctions of a GeoPackage and the reported totals.

The file is read twice. The first time, the cells of lines are sorted by blocks on disk; then blocks
are read once to check (1) and (2) and to look up sums and elevations at the ends of links. The
second time, attributes are compared. Memory holds about 65 536 cells of lines, and the links that
fit the limit; the others are spilled to disk.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ...engine.machine import MB
from ...engine.plan import Excess, StreamPlan
from ...engine.proof import Limits, Read, RunRecord, check_blocks, plan_proof, wrong_totals
from ...errors import StoreError, VerificationError
from ...facts import Findings
from ...grid import Block, BlockGrid, cell_centres, units
from ...grid.lengths import step_lengths, whole_lengths
from ...grid.neighbours import EDGE_OF
from ...io.features import library_bytes
from ...io.lines import is_geopackage
from ...io.proof.line_files import (
    Batch,
    BlockRecords,
    FileRoom,
    LineFile,
    attributes_of,
    check_attributes,
    read_geopackage,
    read_lines,
    same_value,
    well_known,
    wrong_line,
)
from ...store import Layer, TileStore
from ...store.files import output_errors
from ...store.readable import Readable
from ..common.codes import end_ways
from ..common.relative import as_floats, base_of
from ..common.sums import EDGE_LAYER, open_edge_cells
from .proof import recorded_channels
from .proof_kernels import BEFORE, END, FIRST, LINE_FAULTS, NO_CHANNEL, check_steps, find_reaches
from .proof_link_kernels import LAST
from .proof_links import HELD, LINK, LinkGraph

LAYERS = "streams", "junctions"
FIELDS = (
    *("id", "downstream", "outlet", "start", "end", "cells", "length", "drop", "slope"),
    *("sinuosity", "accumulation", "strahler", "shreve", "horton", "hack", "topological"),
    "pfafstetter",
)
EDGE_CELLS = "edge_cells"
"""An optional attribute of lines."""
JUNCTION_FIELDS = "id", "kind", "upstream", "downstream", "elevation"

_RECORD = np.dtype([("cell", "<i8"), ("line", "<i8"), ("step", "u1")])
_FILE_BYTES = 48 * MB
"""Bytes for a batch of lines as Python objects."""
_CELLS, _CELL_BYTES = 1 << 14, 150
"""Number of cells of lines checked at a time in a block, and bytes for each."""
_POINTS = 1 << 14
"""Number of links read, and of junctions compared, at a time."""


class Channels(NamedTuple):
    """The layers that define channels, and the smallest sum of a channel cell.

    `counts` is the layer of edge cells, or None if lines have no such attribute.
    """

    codes: Readable
    sums: Readable
    heights: Readable
    least: int | float
    counts: Any = None

    @property
    def reads(self) -> list[Read]:
        counts = [] if self.counts is None else [Read(self.counts)]
        return [Read(self.codes, 1), Read(self.sums, 1), Read(self.heights), *counts]

    @property
    def fields(self) -> tuple[str, ...]:
        """The attributes of lines."""
        return FIELDS if self.counts is None else (*FIELDS, EDGE_CELLS)

    @property
    def blocks(self) -> BlockGrid:
        """The largest blocks among those of the layers."""
        return max((read.layer.blocks for read in self.reads), key=lambda blocks: blocks.block)


def plan_lines_proof(channels: Channels, path: str, limits: Limits) -> StreamPlan:
    """Plan the pass over the blocks.

    Raises
    ------
    PlanError
        If the memory limit is too small.
    """
    blocks = channels.blocks
    held = HELD + _FILE_BYTES + library_bytes(path) + 128 * blocks.rows + 8 * blocks.count
    worker = 3 * blocks.largest() + _CELLS * _CELL_BYTES
    return plan_proof(blocks, channels.reads, limits, worker=worker, held=held)


def verify_lines(
    channels: Channels, files: tuple[Path, Path], expected: Findings, limits: Limits
) -> Findings:
    """Check every line of a file, and that none is missing.

    Parameters
    ----------
    files
        The present path of the file, and its final path.
    expected
        The reported "links", "cells", "heads", "outlets", "length" and "strahler".

    Returns
    -------
    dict
        The same totals, as found.

    Raises
    ------
    VerificationError
        If a line is wrong or missing; the first fault found is reported.
    PlanError
        If the memory limit is too small.
    StoreError
        If a layer is damaged.
    """
    plan, folder = plan_lines_proof(channels, str(files[1]), limits), files[1].parent
    graph = LinkGraph(folder, plan.memory_limit - plan.memory + HELD)
    with ExitStack() as stack:
        stack.enter_context(closing(graph))
        with output_errors(folder):
            scratch = [stack.enter_context(tempfile.TemporaryFile(dir=folder)) for _ in range(2)]
        records, chains = (file.fileno() for file in scratch)
        checker = _LinesChecker(channels, files, plan, graph, (records, chains))
        checker.sort_cells()
        reads, add = channels.reads, lambda at, paths: None
        check_blocks(plan, channels.blocks, reads, checker.check, add, limits)
        return checker.check_links(expected)


def verify_stored_lines(
    store: TileStore, streams: str, file: str, heights: str, limits: Limits
) -> Findings:
    """Check a file with `verify_lines` and the settings recorded with a layer of its channels.

    Parameters
    ----------
    streams
        A layer of orders, of any kind.
    heights
        The layer that the elevations of lines come from.

    Raises
    ------
    StoreError
        If `streams` is not a layer of streams; also as for `verify_lines`.
    """
    layer, path = store.layer(streams), Path(file)
    if "streams_of" not in (layer.info.get("settings") or {}):
        raise StoreError(
            f"{layer.path}: not a layer of streams, so lines cannot be compared with it; name one "
            "(--layer; terrain-gpu streams makes it)"
        )
    recorded = RunRecord(store, layer)
    links = recorded.result.get("links")
    if type(links) is not int or not 0 < links <= layer.grid.cells:
        raise recorded.damaged("links", links)
    codes, sums, least = recorded_channels(recorded)
    counts: tuple[Layer, ...] = ()
    if EDGE_CELLS in attributes_of(path, layer.grid):
        counts = (open_edge_cells(store, EDGE_LAYER, codes),)
    channels = Channels(codes, sums, store.layer(heights), least, *counts)
    return verify_lines(channels, (path, path), recorded.result, limits)


class _LinesChecker:
    def __init__(
        self,
        channels: Channels,
        files: tuple[Path, Path],
        plan: StreamPlan,
        graph: LinkGraph,
        scratch: tuple[int, int],
    ) -> None:
        self.channels, self.grid, self.blocks = channels, channels.codes.grid, channels.blocks
        self.path, self.graph = files[1], graph
        self.room = FileRoom(Excess.of(plan), "to verify a line", _FILE_BYTES)
        self.lines = LineFile(*files, self.grid, LAYERS[0], channels.fields, gaps=True)
        self.records = BlockRecords(scratch, _RECORD, self.blocks)
        self.base = base_of(channels.heights)
        self.lengths, self.rise = step_lengths(self.grid), units.rise_of(channels.heights)
        self.south = np.concatenate(([0.0], np.cumsum(self.lengths[2])))
        self.units, self.unit = whole_lengths(self.grid, self.lengths)

    # -- lines as cells -------------------------------------------------------------------------

    def sort_cells(self) -> None:
        """Write the cells of lines sorted by blocks, and record where lines begin and end."""
        before = -1
        for read in read_lines(self.lines, self.room):
            batch, alone = self._with_alone(read, self.grid.cells)
            step = batch.steps(self.path, self.grid.cols)
            begin, end = batch.starts[:-1], batch.starts[1:] - 1
            records = np.empty(len(step), _RECORD)
            records["cell"], records["step"] = batch.cells, step
            records["line"] = np.repeat(np.arange(len(begin)), np.diff(batch.starts))
            records["line"] += batch.number - 1
            records["step"][begin] |= FIRST
            records["step"][end[~alone]] |= END
            last = np.where(alone, end, end - 1)
            records["step"][last[~alone]] |= BEFORE
            with output_errors(self.path.parent):
                self.records.put(records)
            rows = np.zeros(len(begin), LINK)
            rows["cells"], rows["span"] = np.diff(batch.starts), self._spans(batch, step)
            for name, index in (("first", begin), ("end", end), ("last", last)):
                rows[name] = batch.cells[index]
            self._refuse_order(batch.number, np.append(before, rows["first"]))
            before = rows["first"][-1]
            self.graph.add(rows)
        self.graph.complete()

    def _refuse_order(self, number: int, first: np.ndarray) -> None:
        for k in np.flatnonzero(np.diff(first) <= 0)[:1].tolist():
            problem = "is not in row-major order of first cells"
            if first[k] == first[k + 1]:
                problem = "begins where the one before it does"
            wrong_line(self.path, number + k, problem, "order")

    def _with_alone(self, batch: Batch, cells: int) -> tuple[Batch, np.ndarray]:
        """Add its cell to each line without vertices; also return the mask of these lines."""
        alone = np.diff(batch.starts) == 0
        starts = []
        for k in np.flatnonzero(alone).tolist():
            start = batch.attributes[k].get("start")
            if type(start) is not int or not 0 <= start < cells:
                problem = f"start is {start!r}, which is not a cell"
                wrong_line(self.path, batch.number + k, problem, "attribute")
            starts.append(start)
        cells_of_all = np.insert(batch.cells, batch.starts[:-1][alone], np.array(starts, np.int64))
        shifted = batch.starts + np.concatenate(([0], np.cumsum(alone)))
        return batch._replace(cells=cells_of_all, starts=shifted), alone

    def _spans(self, batch: Batch, step: np.ndarray) -> np.ndarray:
        """Return the lengths of lines in whole units."""
        moves = np.flatnonzero(step < 8)
        row = batch.cells // self.grid.cols
        upper = np.minimum(row[moves], row[moves + 1])
        units = np.zeros(len(step) + 1, np.int64)
        units[moves + 1] = self.units[EDGE_OF[step[moves]], upper]
        return np.diff(np.cumsum(units)[batch.starts])

    # -- the blocks -----------------------------------------------------------------------------

    def check(self, at: Block, data: list[np.ndarray]) -> None:
        """Compare the cells of lines in a block with its channels; called from any thread."""
        codes, sums, heights, *counts = data
        r0, r1, c0, c1 = window = self.blocks.window(*at)
        end_ways(self.channels.codes, self.grid, window, codes)
        shape = r1 - r0, c1 - c0
        state, on_line = np.empty(shape, np.uint8), np.zeros(shape, bool)
        find_reaches(codes, sums, sums.dtype.type(self.channels.least), state)
        for records in self.records.some(at, _CELLS):
            row, col = np.divmod(records["cell"], self.grid.cols)
            row, col = row - r0, col - c0
            step, on_own_link = np.ascontiguousarray(records["step"]), np.empty(len(records), bool)
            fault, k = check_steps(codes, state, row * shape[1] + col, step, on_own_link, on_line)
            if fault:
                problem = f"{LINE_FAULTS[fault]} at row {r0 + row[k]}, column {c0 + col[k]}"
                wrong_line(self.path, int(records["line"][k]) + 1, problem, "channel")
            marks = step & (FIRST | BEFORE) | np.where(on_own_link & (step & 15 == 8), LAST, 0)
            marked = np.flatnonzero(marks)
            row, col = row[marked], col[marked]
            through = sums[row + 1, col + 1]
            # The bits of positive floats have the same order as the floats.
            real = through.dtype.kind == "f"
            through = through.astype(np.float64).view(np.int64) if real else through
            # + 0.0 turns -0.0 into 0.0; SQLite has no -0.0.
            height = as_floats(heights[row, col], self.base) + 0.0
            lines = records["line"][marked]
            edge = counts[0][row, col] if counts else np.zeros(len(marked))
            through, edge = through.astype(np.int64), edge.astype(np.int64)
            self.graph.mark(lines, marks[marked], through, edge, height)
        for row, col in np.argwhere((state != NO_CHANNEL) & ~on_line)[:1].tolist():
            raise VerificationError(
                f"{self.path}: row {r0 + row}, column {c0 + col}: is on a channel but on no line; "
                "write it again with --overwrite",
                "channel",
                r0 + row,
                c0 + col,
            )

    # -- the links ------------------------------------------------------------------------------

    def check_links(self, expected: Findings) -> Findings:
        """Compare attributes, junctions and totals with those that follow from the lines."""
        fault = self.graph.solve()
        if fault is not None:
            wrong_line(self.path, fault[0] + 1, fault[1], "acyclic")
        totals: Findings = dict.fromkeys(
            ("links", "cells", "heads", "outlets", "length", "strahler"), 0
        )
        for batch in read_lines(self.lines, self.room):
            first, count = batch.number - 1, len(batch.attributes)
            links = self.graph.rows(first, count)
            columns = self._columns(first, links)
            columns["pfafstetter"] = self.graph.codes(first, count)
            rows = zip(*columns.values(), strict=True)
            for k, (attributes, row) in enumerate(zip(batch.attributes, rows, strict=True)):
                right = dict(zip(columns, row, strict=True))
                check_attributes(self.path, batch.number + k, attributes, right)
            totals["links"] += count
            totals["cells"] += sum(columns["cells"])
            totals["heads"] += int((links["inflows"] == 0).sum())
            totals["outlets"] += int(links["ends"].sum())
            totals["length"] += int(links["span"].sum())
            totals["strahler"] = max(totals["strahler"], int(links["strahler"].max(initial=0)))
        if is_geopackage(self.path):
            self._check_junctions(totals["links"], totals["outlets"])
        totals["length"] *= self.unit
        for name, value in totals.items():
            wrong_totals(self, name, value, expected.get(name))
        return totals

    def _columns(self, first: int, links: np.ndarray) -> dict[str, list[Any]]:
        """Return the attributes of links by name, except Pfafstetter codes."""
        length, dtype = links["span"] * self.unit, self.channels.sums.dtype
        sums = links["sums"].copy()
        with np.errstate(invalid="ignore", divide="ignore"):
            drop = links["top"] - links["low"]
            slope = np.where(length > 0, drop * self.rise / length, 0.0)
            bends = np.where(length > 0, np.maximum(length / self._straight(links), 1.0), 1.0)
        columns = {
            "id": np.arange(first + 1, first + 1 + len(links)),
            "downstream": links["down"] + 1,
            "start": links["first"],
            "end": links["end"],
            "cells": links["cells"] - ~links["ends"],
            "length": length,
            "drop": drop,
            "slope": slope,
            "sinuosity": bends,
            "accumulation": sums.view(np.float64) if dtype.kind == "f" else sums,
            "outlet": links["outlet"] + 1,
        }
        if self.channels.counts is not None:
            columns[EDGE_CELLS] = links["edge"]
        orders = ("strahler", "shreve", "horton", "hack", "topological")
        columns |= {name: links[name] for name in orders}
        return {name: column.tolist() for name, column in columns.items()}

    def _straight(self, links: np.ndarray) -> np.ndarray:
        """Return the distances between the ends of lines, from meridian and middle parallel."""
        (row, col), (to_row, to_col) = (
            np.divmod(links[name], self.grid.cols) for name in ("first", "end")
        )
        east = self.lengths[0]
        across = (east[(row + to_row) // 2] + east[(row + to_row + 1) // 2]) / 2
        return np.hypot(self.south[to_row] - self.south[row], (to_col - col) * across)

    # -- the junctions --------------------------------------------------------------------------

    def _check_junctions(self, links: int, outlets: int) -> None:
        names = LAYERS[1], JUNCTION_FIELDS
        stored = read_geopackage(self.lines.file, self.path, *names)
        for number, right in enumerate(self._junctions(links), 1):
            blob, *attributes = next(stored, (None,))
            if blob is None:
                wrong_junction(self.path, number, f"is missing; there must be {links + outlets:,}")
            point, *values = right
            if well_known(blob) != struct.pack("<BIdd", 1, 1, *point):
                wrong_junction(self.path, number, "is not at the centre of its cell")
            for name, one, value in zip(JUNCTION_FIELDS, attributes, values, strict=True):
                if not same_value(one, value):
                    wrong_junction(self.path, number, f"{name} is {one!r} but should be {value!r}")
        if next(stored, None) is not None:
            wrong_junction(self.path, links + outlets + 1, "is one too many")

    def _junctions(self, links: int) -> Iterator[tuple[Any, ...]]:
        """Yield the point and attributes of each junction: first cells of links, then outlets."""
        for first, rows in self.graph.chunks(_POINTS):
            ids = np.arange(first + 1, first + 1 + len(rows))
            heads = np.where(rows["inflows"] > 0, "junction", "head")
            top = rows["top"] + self.base
            yield from self._placed(rows["first"], ids, heads, rows["inflows"], ids, top)
        for _, rows in self.graph.chunks(_POINTS):
            ends = rows[rows["ends"]]
            ids = np.arange(links + 1, links + 1 + len(ends))
            same = np.full(len(ends), "outlet"), np.ones_like(ids), np.zeros_like(ids)
            yield from self._placed(ends["end"], ids, *same, ends["low"] + self.base)
            links += len(ends)

    def _placed(self, cells: np.ndarray, *columns: np.ndarray) -> Iterator[tuple[Any, ...]]:
        points = cell_centres(self.grid, np.stack(np.divmod(cells, self.grid.cols), axis=1))
        return zip(points, *(column.tolist() for column in columns), strict=True)


def wrong_junction(path: Path, number: int, problem: str) -> NoReturn:
    """Raise `VerificationError` for a junction of a file."""
    raise VerificationError(
        f"{path}: junction {number:,}: {problem}; write it again with --overwrite", "junction"
    )
