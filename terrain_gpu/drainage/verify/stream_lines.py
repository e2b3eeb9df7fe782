"""Proof that a file holds the links of channels as lines: `verify_lines`.

Nothing is shared with the program that draws them but the layers of directions, sums and
elevations, and the lengths of steps. The file is right exactly when

1. the positions of every line are centres of cells, and its steps the directions of these. It
   begins where other than one channel flows in, and ends at the next such cell or at an outlet. An
   outlet that is a link of its own has a line without positions;
2. every channel cell is on one line, not counting the next junction;
3. lines are in row-major order of their first cells;
4. their attributes follow from their cells, and from the graph of all links, see `link_graph`. So
   do the junctions of a GeoPackage, and the totals that are reported.

The file is read twice. First the cells of lines are sorted by blocks on disk, and blocks are read
once to check (1) and (2); there, sums and elevations of the ends of links are found. The second
time, attributes are compared. Memory is O(links), and some 65 536 cells of lines.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ...engine.plan import MB, StreamPlan, require
from ...engine.proof import Limits, Read, RunRecord, check_blocks, plan_proof, wrong_totals
from ...errors import InputError, StoreError, VerificationError
from ...grid import Block, cell_centres
from ...grid.lengths import step_lengths, whole_lengths
from ...grid.neighbours import EDGE_OF
from ...io.features import library_bytes
from ...io.lines import is_geopackage
from ...io.verify.line_files import (
    Batch,
    BlockRecords,
    LineFile,
    check_attributes,
    read_geopackage,
    read_lines,
    same_value,
    well_known,
    wrong_line,
)
from ...store import TileStore
from ..codes import end_ways
from .link_graph import LINK_BYTES, BasinCodes, find_orders
from .stream_kernels import BEFORE, END, FIRST, LINE_FAULTS, UNDRAWN, check_steps, find_reaches
from .streams import recorded_channels

LAYERS = "streams", "junctions"
FIELDS = (
    *("id", "downstream", "outlet", "start", "end", "cells", "length", "drop", "slope"),
    *("sinuosity", "accumulation", "strahler", "shreve", "horton", "hack", "topological"),
    "pfafstetter",
)
JUNCTION_FIELDS = "id", "kind", "upstream", "downstream", "elevation"

_RECORD = np.dtype([("cell", "<i8"), ("line", "<i8"), ("step", "u1")])
_FILE_BYTES = 48 * MB
"""Of a batch of lines, in Python's objects."""
_LINK_BYTES = LINK_BYTES + 100
_HELD = 16 * MB
"""Memory planned for links; more is counted as they come."""
_SHARE, _CELL_BYTES = 16, 100
"""Memory is planned for a cell of lines in so many of a block; and its bytes there."""
_POINTS = 1 << 14
"""Junctions compared at a time."""


class Channels(NamedTuple):
    """The layers that channels are taken from, and the least sum of a channel."""

    codes: Any
    sums: Any
    heights: Any
    least: int | float

    @property
    def reads(self) -> list[Read]:
        return [Read(self.codes, 1), Read(self.sums, 1), Read(self.heights)]

    @property
    def blocks(self) -> Any:
        """The largest blocks."""
        return max((read.layer.blocks for read in self.reads), key=lambda blocks: blocks.block)


def plan_lines_proof(
    channels: Channels, path: str, limits: Limits, more: int = 0, most: int = 0
) -> StreamPlan:
    """How blocks stream through the proof of the lines of their channels.

    Parameters
    ----------
    more, most
        Bytes for links beyond what is planned, and the most cells of lines in a block, once known.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    blocks = channels.blocks
    cells = blocks.block**2
    held = _HELD + more + _FILE_BYTES + library_bytes(path) + 128 * blocks.rows
    worker = 2 * cells + max(cells // _SHARE, most) * _CELL_BYTES
    return plan_proof(blocks, channels.reads, limits, worker=worker, held=held)


def verify_lines(
    channels: Channels, files: tuple[Path, Path], expected: Mapping[str, Any], limits: Limits
) -> dict[str, Any]:
    """Check every line of a file, and that none is missing.

    Parameters
    ----------
    files
        Where the file is, and where it will be.
    expected
        The reported "links", "cells", "heads", "outlets", "length" and "strahler".

    Returns
    -------
    dict
        The same, as found.

    Raises
    ------
    VerificationError
        at the first violation found.
    PlanError
        when the memory limit is too small.
    StoreError
        when a layer is damaged.
    """
    how = channels, str(files[1]), limits
    plan = plan_lines_proof(*how, _beyond(expected["links"]))
    with tempfile.TemporaryFile(dir=files[1].parent) as scratch:
        checker = _LinesChecker(channels, files, plan, scratch.fileno())
        checker.sort_cells(expected["links"])
        lines, most = len(checker.first), checker.most
        plan = plan_lines_proof(*how, _beyond(lines) + checker.records.memory, most)
        reads, add = channels.reads, lambda at, known: None
        check_blocks(plan, channels.blocks, reads, checker.check, add, limits)
        return checker.check_links(expected)


def verify_stored_lines(
    store: TileStore, streams: str, file: str, heights: str, limits: Limits
) -> dict[str, Any]:
    """`verify_lines` of a file, from what a layer of the same channels records.

    Parameters
    ----------
    streams
        A layer of orders; any order.
    heights
        The layer that the elevations of lines come from.

    Raises
    ------
    StoreError
        when this is no layer of streams, besides what `verify_lines` raises.
    """
    layer, path = store.layer(streams), Path(file)
    if "streams_of" not in (layer.info.get("settings") or {}):
        raise StoreError(
            f"{layer.path}: not a layer of streams, so lines cannot be compared with it; name one "
            "(--layer; terrain-gpu streams makes it)"
        )
    if not path.is_file():
        raise InputError(f"{file}: no such file")
    recorded = RunRecord(store, layer)
    links = recorded.result.get("links")
    if type(links) is not int or not 0 < links <= layer.grid.cells:
        raise recorded.damaged("links", links)
    codes, sums, least = recorded_channels(recorded)
    channels = Channels(codes, sums, store.layer(heights), least)
    return verify_lines(channels, (path, path), recorded.result, limits)


def _beyond(links: int) -> int:
    """Bytes for so many links beyond those planned."""
    return max(links * _LINK_BYTES - _HELD, 0)


class _LinesChecker:
    """Its arrays have an element for each line, that is, for each link."""

    def __init__(
        self, channels: Channels, files: tuple[Path, Path], plan: StreamPlan, scratch: int
    ) -> None:
        self.channels, self.grid, self.blocks = channels, channels.codes.grid, channels.blocks
        self.path, self.plan = files[1], plan
        self.lines = LineFile(*files, self.grid, LAYERS[0], FIELDS, gaps=True)
        self.records = BlockRecords(scratch, _RECORD, self.blocks)
        self.lengths = step_lengths(self.grid)
        self.units, self.unit = whole_lengths(self.grid, self.lengths)
        # First, last but one and last cells, how many there are, and lengths in units; then
        # elevations of first and last cells, sums of the last two, and whether it is an outlet.
        self.first = self.before = self.end = self.positions = self.span = np.empty(0, np.int64)
        self.top = self.bottom = np.empty(0)
        self.sums = np.empty((2, 0))
        self.outlet = np.empty(0, bool)
        self.most = 0

    def _require(self, more: int, what: str) -> None:
        require(self.plan.memory + more, self.plan.memory_limit, what)

    def _room(self, size: int) -> None:
        """Refuse a line that takes so many bytes if they do not fit the memory."""
        self._require(max(size - _FILE_BYTES, 0), "to verify a line of so many cells")

    # -- lines as cells -------------------------------------------------------------------------

    def sort_cells(self, links: int) -> None:
        """Write the cells of lines by blocks, and keep where lines begin and end.

        `links` is how many are planned.
        """
        found: list[np.ndarray] = [np.empty((5, 0), np.int64)]
        lines, cells = 0, self.grid.cells
        for read in read_lines(self.lines, self._room):
            batch, alone = self._with_alone(read, cells)
            step = batch.steps(self.path, self.grid.cols)
            begin, end = batch.starts[:-1], batch.starts[1:] - 1
            records = np.empty(len(step), _RECORD)
            records["cell"], records["step"] = batch.cells, step
            records["line"] = lines + np.repeat(np.arange(len(begin)), np.diff(batch.starts))
            records["step"][begin] |= FIRST
            records["step"][end[~alone]] |= END
            before = np.where(alone, end, end - 1)
            records["step"][before[~alone]] |= BEFORE
            self.records.put(records)
            span = self._spans(batch, step)
            ends = (batch.cells[place] for place in (begin, before, end))
            found.append(np.stack((*ends, end - begin + 1, span)))
            lines += len(begin)
            more = max(lines - links, 0) * _LINK_BYTES + self.records.memory
            self._require(more, f"to verify {lines:,} or more lines")
        self.first, self.before, self.end, self.positions, self.span = np.concatenate(found, axis=1)
        for k in np.flatnonzero(np.diff(self.first) <= 0)[:1].tolist():
            what = "is not in row-major order of first cells"
            if self.first[k] == self.first[k + 1]:
                what = "begins where the one before it does"
            wrong_line(self.path, k + 2, what, "order")
        self.top, self.bottom = np.zeros((2, lines))
        self.sums = np.zeros((2, lines), self.channels.sums.dtype)
        self.outlet = np.zeros(lines, bool)
        parts = self.records.where.values()
        self.most = max((sum(count for _, count in own) for own in parts), default=0)

    def _with_alone(self, batch: Batch, cells: int) -> tuple[Batch, np.ndarray]:
        """Put its cell into each line without positions; also tell which lines these are."""
        alone = np.diff(batch.starts) == 0
        starts = []
        for k in np.flatnonzero(alone).tolist():
            start = batch.attributes[k].get("start")
            if type(start) is not int or not 0 <= start < cells:
                wrong_line(self.path, batch.number + k, f"start is {start!r}, no cell", "attribute")
            starts.append(start)
        more = np.insert(batch.cells, batch.starts[:-1][alone], np.array(starts, np.int64))
        places = batch.starts + np.concatenate(([0], np.cumsum(alone)))
        return batch._replace(cells=more, starts=places), alone

    def _spans(self, batch: Batch, step: np.ndarray) -> np.ndarray:
        """The lengths of lines in whole units."""
        moves = np.flatnonzero(step < 8)
        row = batch.cells // self.grid.cols
        upper = np.minimum(row[moves], row[moves + 1])
        units = np.zeros(len(step) + 1, np.int64)
        units[moves + 1] = self.units[EDGE_OF[step[moves]], upper]
        return np.diff(np.cumsum(units)[batch.starts])

    # -- the blocks -----------------------------------------------------------------------------

    def check(self, at: Block, data: list[np.ndarray]) -> None:
        """Compare the cells of lines in a block with its channels, from any thread."""
        codes, sums, heights = data
        r0, r1, c0, c1 = window = self.blocks.window(*at)
        end_ways(self.channels.codes, self.grid, window, codes)
        state, taken = np.empty((r1 - r0, c1 - c0), np.uint8), np.empty((r1 - r0, c1 - c0), bool)
        find_reaches(codes, sums, sums.dtype.type(self.channels.least), state)
        records = self.records.of(at)
        row, col = np.divmod(records["cell"], self.grid.cols)
        row, col = row - r0, col - c0
        step, own = np.ascontiguousarray(records["step"]), np.empty(len(records), bool)
        fault, k = check_steps(codes, state, row * (c1 - c0) + col, step, own, taken)
        if fault == UNDRAWN:
            self._undrawn(r0 + k // (c1 - c0), c0 + k % (c1 - c0))
        if fault:
            what = f"{LINE_FAULTS[fault]} at row {r0 + row[k]}, column {c0 + col[k]}"
            wrong_line(self.path, int(records["line"][k]) + 1, what, "channel")
        # 0.0 for -0.0, which SQLite does not have.
        line, height = records["line"], heights[row, col].astype(np.float64) + 0.0
        through = sums[row + 1, col + 1]
        begin, before, last = step & FIRST != 0, step & BEFORE != 0, own & (step & 15 == 8)
        self.top[line[begin]] = height[begin]
        self.sums[0, line[before]] = through[before]
        self.sums[1, line[last]], self.bottom[line[last]] = through[last], height[last]
        self.outlet[line[last]] = True

    def _undrawn(self, row: int, col: int) -> NoReturn:
        raise VerificationError(
            f"{self.path}: row {row}, column {col}: {LINE_FAULTS[UNDRAWN]}; write it again with "
            "--overwrite",
            "channel",
            row,
            col,
        )

    # -- the links ------------------------------------------------------------------------------

    def check_links(self, expected: Mapping[str, Any]) -> dict[str, Any]:
        """Compare attributes, junctions and totals with what follows from the lines."""
        down = np.where(self.outlet, -1, np.searchsorted(self.first, self.end))
        sums = self.sums[self.outlet.astype(np.int64), np.arange(len(down))]
        last = np.where(self.outlet, self.end, self.before)
        orders = find_orders(down, sums, last)
        if isinstance(orders, int):
            wrong_line(self.path, orders + 1, "leads round in a circle", "acyclic")
        columns = self._columns(down, sums)
        for name in ("strahler", "shreve", "horton", "hack", "topological"):
            columns[name] = getattr(orders, name)
        columns["outlet"] = orders.outlet + 1
        codes = BasinCodes(down, sums, last, orders.main)
        lines = 0
        for batch in read_lines(self.lines, self._room):
            part = slice(lines, lines + len(batch.attributes))
            rows = zip(*(column[part].tolist() for column in columns.values()), strict=True)
            for k, (own, row) in enumerate(zip(batch.attributes, rows, strict=True)):
                right = dict(zip(columns, row, strict=True)) | {"pfafstetter": codes.of(lines + k)}
                check_attributes(self.path, batch.number + k, own, right)
            lines += len(batch.attributes)
        inflows = np.bincount(down[down >= 0], minlength=len(down))
        if is_geopackage(self.path):
            self._check_junctions(inflows)
        found = {
            "links": len(down),
            "cells": int(columns["cells"].sum()),
            "heads": int((inflows == 0).sum()),
            "outlets": int(self.outlet.sum()),
            "length": int(self.span.sum()) * self.unit,
            "strahler": int(orders.strahler.max(initial=0)),
        }
        for name, value in found.items():
            wrong_totals(self, name, value, expected.get(name))
        return found

    def _columns(self, down: np.ndarray, sums: np.ndarray) -> dict[str, np.ndarray]:
        """Attributes of links by name, but orders and codes."""
        low = np.where(self.outlet, self.bottom, self.top[down])
        length = self.span * self.unit
        with np.errstate(invalid="ignore", divide="ignore"):
            drop = self.top - low
            slope = np.where(length > 0, drop / length, 0.0)
            bends = np.where(length > 0, np.maximum(length / self._straight(), 1.0), 1.0)
        return {
            "id": np.arange(1, len(down) + 1),
            "downstream": down + 1,
            "start": self.first,
            "end": self.end,
            "cells": self.positions - ~self.outlet,
            "length": length,
            "drop": drop,
            "slope": slope,
            "sinuosity": bends,
            "accumulation": sums,
        }

    def _straight(self) -> np.ndarray:
        """Distances between the ends of lines: down the meridian, along the middle parallel."""
        (row, col), (to_row, to_col) = (
            np.divmod(cells, self.grid.cols) for cells in (self.first, self.end)
        )
        east, south = self.lengths[0], np.concatenate(([0.0], np.cumsum(self.lengths[2])))
        across = (east[(row + to_row) // 2] + east[(row + to_row + 1) // 2]) / 2
        return np.hypot(south[to_row] - south[row], (to_col - col) * across)

    # -- the junctions --------------------------------------------------------------------------

    def _check_junctions(self, inflows: np.ndarray) -> None:
        count, outlets = len(inflows), np.flatnonzero(self.outlet)
        names = LAYERS[1], JUNCTION_FIELDS
        found = read_geopackage(self.lines.file, self.path, *names)
        for number, right in enumerate(self._junctions(inflows, outlets), 1):
            blob, *own = next(found, (None,))
            if blob is None:
                wrong_junction(self.path, number, f"is missing; {count + len(outlets):,} are right")
            point, *values = right
            if well_known(blob) != struct.pack("<BIdd", 1, 1, *point):
                wrong_junction(self.path, number, "is not at the centre of its cell")
            for name, one, value in zip(JUNCTION_FIELDS, own, values, strict=True):
                if not same_value(one, value):
                    wrong_junction(self.path, number, f"{name} is {one!r} where {value!r} is right")
        if next(found, None) is not None:
            wrong_junction(self.path, count + len(outlets) + 1, "is one too many")

    def _junctions(self, inflows: np.ndarray, outlets: np.ndarray) -> Iterator[tuple[Any, ...]]:
        """The place and the attributes of each, those of first cells before outlets."""
        heads = np.where(inflows > 0, "junction", "head")
        for number in range(0, len(inflows), _POINTS):
            own = slice(number, number + _POINTS)
            ids = np.arange(1, len(inflows) + 1)[own]
            columns = self.first[own], ids, heads[own], inflows[own], ids, self.top[own]
            yield from self._placed(*columns)
        for number in range(0, len(outlets), _POINTS):
            some = outlets[number : number + _POINTS]
            ids = len(inflows) + 1 + number + np.arange(len(some))
            same = np.full(len(some), "outlet"), np.ones_like(some), np.zeros_like(some)
            yield from self._placed(self.end[some], ids, *same, self.bottom[some])

    def _placed(self, cells: np.ndarray, *columns: np.ndarray) -> Iterator[tuple[Any, ...]]:
        places = cell_centres(self.grid, np.stack(np.divmod(cells, self.grid.cols), axis=1))
        return zip(places, *(column.tolist() for column in columns), strict=True)


def wrong_junction(path: Path, number: int, what: str) -> NoReturn:
    """Raise `VerificationError` for a junction of a file."""
    raise VerificationError(
        f"{path}: junction {number:,}: {what}; write it again with --overwrite", "junction"
    )
