"""Contour lines of a layer.

1. *Trace*: the lines in every block are traced; their vertices go to a file.
2. *Write*: pieces of lines are joined across blocks, and written level by level.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...cells import is_nodata
from ...compiled import known_types, tell_compiling
from ...engine.machine import Machine
from ...engine.operation import Phase, SolvedBlock
from ...engine.plan import Excess, PlanStep, StreamPlan, fit_blocks, layer_bytes, other_blocks
from ...engine.proof import Limits
from ...engine.run import Result, Run
from ...facts import Findings, Settings
from ...grid import Block
from ...io.features import LINES, Feature, Fields
from ...io.frames import FeatureResult
from ...io.proof.line_files import LineFile
from ...plurals import counted
from ...report import Report
from ..drawing.levels import ContourLevels
from ..drawing.pieces import JOINING, Drawing, LinePieces, batches, successors
from . import kernels
from .proof import IsolineProof

NAME = "contours"
"""Name of the layer in a GeoPackage."""

VERTEX = np.dtype([("side", "<i8"), ("share", "<f8")])
"""A crossing: the side that a level crosses (`kernels`), and where, from 0 to 1."""

CROSSING_BYTES = 75
"""Bytes per crossing: 56 while a block is traced, 16 until it is written."""

_SOME = 1 << 16
"""Number of crossings located at a time."""

VERTEX_BYTES = 300
"""Bytes per vertex while a line is assembled and written."""


@dataclass(repr=False)
class Contours(FeatureResult):
    """Contours written to a file.

    Attributes
    ----------
    path
        The file.
    features
        Number of lines; of areas, each a MultiPolygon.
    levels
        Number of levels or breaks that have some.
    report
        The run's `Report`.
    """

    path: Path
    features: int
    levels: int
    report: Report


@dataclass(frozen=True)
class ContourLines(Drawing):
    """Contour lines."""

    levels: ContourLevels

    command = "contours"
    name = NAME
    fields: ClassVar[Fields] = {"level": np.float64}
    shape = LINES

    def settings(self) -> Settings:
        return {**super().settings(), **self.levels.settings()}

    def plan(self, machine: Machine) -> StreamPlan:
        (layer,), blocks = self.layers, self.blocks
        (rows, cols), item = self.grid.shape, layer.dtype.itemsize
        ring = blocks.largest(1)
        return fit_blocks(
            blocks,
            layer.dtype.name,
            "for the contours of",
            buffer=ring * item,
            # Classes, crossings before each side, masks; and a crossing for every cell.
            worker=(8 + 16 + 3 + CROSSING_BYTES) * ring,
            scratch=blocks.largest(tiled=True) * item,
            held=self.held,
            joined=self.held + JOINING,
            advice=other_blocks("smaller", blocks.block),
            bytes_read=layer_bytes(rows, cols, item, blocks.block),
            machine=machine,
        )

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        given: int,
        work: object,
    ) -> SolvedBlock:
        # The squares of a block begin at its cells, and need the row and the column after it.
        heights = cells[0][1:, 1:]
        r0, _, c0, _ = self.blocks.window(*at)
        inside = ~is_nodata(heights, self.layers[0].nodata)
        inside[self.grid.rows - r0 :] = False
        inside[:, self.grid.cols - c0 :] = False
        self.levels.refuse(heights[inside])
        levels = self.levels.parts
        classes = np.zeros(heights.shape, np.int64)
        kernels.classify(heights, inside, *levels, classes)
        before = np.empty(2 * heights.size, np.int64)
        count = kernels.count_crossings(classes, inside, before)
        if count > given:
            return SolvedBlock(known=count)
        following, entered = np.empty(count, np.int64), np.empty(count, bool)
        kernels.link(heights, classes, inside, *levels, before, following, entered)
        order, starts = np.empty(count, np.int64), np.empty(count + 1, np.int64)
        pieces, open_ = kernels.chains(following, entered, order, starts)
        del following, entered
        starts = starts[: pieces + 1].copy()
        order = order[: starts[-1]]
        side, number, share = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count)
        kernels.place(heights, classes, inside, *levels, before, side, number, share)
        vertices = np.empty(len(order), VERTEX)
        for k in range(0, len(order), _SOME):
            some = order[k : k + _SOME]
            row, col = np.divmod(side[some] >> 1, heights.shape[1])
            cell = (row + r0) * self.grid.cols + (col + c0)
            vertices["side"][k : k + _SOME] = 2 * cell + (side[some] & 1)
            vertices["share"][k : k + _SOME] = share[some]
        return SolvedBlock(known=(vertices, starts, number[order[starts[:-1]]], open_))

    def plan_verify(self, machine: Machine) -> None:
        IsolineProof.plan(self.layers[0], Limits(machine))

    def verify(self, run: Run, found: Findings) -> Findings:
        (writer,) = run.writers.values()
        file = LineFile(writer.part, writer.path, self.grid, self.name, tuple(self.fields))
        checked = IsolineProof(file, self.layers[0], self.levels).run(run.proof_limits)
        return {"verified_lines": checked["lines"]}

    def result(self, found: Result) -> Contours:
        path, (lines, levels) = Path(self.path), (found.found[k] for k in ("lines", "levels"))
        return Contours(path.absolute(), lines, levels, found.report)

    def compile(self) -> None:
        if not known_types(kernels.link):
            tell_compiling(kernels.link, "contours")
        cells, inside = np.zeros((3, 3), self.layers[0].dtype)[1:, 1:], np.ones((2, 2), bool)
        levels, classes = ContourLevels((), 1.0).parts, np.zeros((2, 2), np.int64)
        kernels.classify(cells, inside, *levels, classes)
        before, empty = np.empty(8, np.int64), np.empty(0, np.int64)
        kernels.count_crossings(classes, inside, before)
        kernels.link(cells, classes, inside, *levels, before, empty, np.empty(0, bool))
        kernels.chains(empty, np.empty(0, bool), empty, np.empty(1, np.int64))
        kernels.place(cells, classes, inside, *levels, before, empty, empty, np.empty(0))

    def pieces(self, plan: StreamPlan, writer: Any) -> Lines:
        return Lines(self, plan, writer)


class Lines(LinePieces):
    """The pieces of all blocks, then lines."""

    def __init__(self, operation: ContourLines, plan: StreamPlan, writer: Any) -> None:
        super().__init__(
            operation, plan, writer, VERTEX, VERTEX_BYTES, "pieces of contours", 6
        )  # fmt: skip
        self._planned = plan.unit_rows * plan.unit_cols
        own, workers = plan.worker_memory or plan.memory, max(plan.workers, 1)
        steps = (PlanStep(own, workers),) if plan.worker_memory else plan.steps
        self._excess = Excess(own, plan.memory_limit, steps, per="workers")
        free = max(plan.memory_limit - own, 0)
        self._most = self._planned + free // (workers * CROSSING_BYTES)
        self._operation = operation
        self._found = {"lines": 0, "levels": 0, "closed": 0}

    def given(self, phase: Phase, at: Block) -> int:
        """Return the most crossings of a block for which there is room."""
        return self._most

    def found(self) -> Findings:
        return self._found

    def add(
        self, phase: Phase, at: Block, known: tuple[np.ndarray, np.ndarray, np.ndarray, int]
    ) -> None:
        if isinstance(known, int):
            what = f"for contours that cross {counted(known, 'time')} between the cells of a block"
            self._excess.has_room((known - self._planned) * CROSSING_BYTES, what)
            return
        vertices, starts, number, open_ = known
        if not len(number):
            return
        side = vertices["side"]
        # A piece of an open line is followed by the one that begins where it ends.
        after = np.where(np.arange(len(number)) < open_, side[starts[1:] - 1], -1)
        least = np.minimum.reduceat(side, starts[:-1])
        self.add_pieces(
            at, vertices, np.diff(starts), side[starts[:-1]], after, least, number
        )  # fmt: skip

    def features(self) -> Iterator[list[Feature]]:
        self._excess.refuse()
        yield from super().features()

    def name_of(self, key: int) -> str:
        return f"level {self._operation.levels.of(key):g}"

    def largest(self, enough: int, *columns: np.ndarray) -> tuple[int, str]:
        _, counts, first, after, _, number = columns
        levels, rank = np.unique(number, return_inverse=True)
        sizes, of = np.zeros(len(levels), np.int64), np.arange(len(levels))
        np.add.at(sizes, rank, counts)  # of all lines of a level
        if int(sizes.max()) * VERTEX_BYTES > enough:
            pieces, starts, _ = _joined(first, after, rank * (2 * self._operation.grid.cells))
            sizes, of = np.add.reduceat(counts[pieces], starts[:-1]), rank[pieces[starts[:-1]]]
        most = int(sizes.argmax())
        level = self._operation.levels.of(int(levels[of[most]]))
        vertices = counted(sizes[most], "vertex", "vertices")
        return int(sizes[most]) * VERTEX_BYTES, f"a contour of level {level:g} with {vertices}"

    def draw(self, *columns: np.ndarray) -> Iterator[list[Feature]]:
        """Yield batches of lines, by level, and where they begin."""
        places, counts, first, after, least, number = columns
        levels, rank = np.unique(number, return_inverse=True)
        level = [self._operation.levels.of(int(k)) for k in levels]
        rings = after < 0  # of one block
        pieces, starts, closed = _joined(first, after, rank * (2 * self._operation.grid.cells))
        heads = pieces[starts[:-1]]
        begin = np.where(closed, np.minimum.reduceat(least[pieces], starts[:-1]), first[heads])
        order = np.lexsort((begin, rank[heads]))
        sizes = np.add.reduceat(counts[pieces], starts[:-1])[order]
        before, used = np.append(0, np.cumsum(sizes)), set()
        for a, b in batches(np.arange(1, len(order) + 1), before):
            found: list[Feature] = []
            for k in order[a:b].tolist():
                own = pieces[starts[k] : starts[k + 1]]
                # A piece ends where the next one begins.
                twice = np.cumsum(counts[own]) - 1
                if rings[own[0]] or not closed[k]:
                    twice = twice[:-1]
                vertices = np.delete(self.read(places[own], counts[own]), twice)
                xy = self._positions(vertices, closed=bool(closed[k]))
                if len(xy) > 1:
                    found.append((xy, {"level": level[rank[own[0]]]}))
                    used.add(rank[own[0]])
                    self._found["closed"] += bool(closed[k])
            self._found["lines"] += len(found)
            yield found
        self._found["levels"] += len(used)

    def _positions(self, vertices: np.ndarray, *, closed: bool) -> np.ndarray:
        """Positions of the vertices of a line, without repetitions."""
        grid = self._operation.grid
        side, share = vertices["side"], vertices["share"]
        if closed:  # from its least side on, whichever block it was found in
            start = int(side.argmin())
            side, share = np.roll(side, -start), np.roll(share, -start)
            side, share = np.append(side, side[:1]), np.append(share, share[:1])
        row, col = np.divmod(side >> 1, grid.cols)
        down = side & 1
        a, _, c, _, e, f = grid.transform
        x = c + a * (col + 0.5 + np.where(down, 0.0, share))
        y = f + e * (row + 0.5 + np.where(down, share, 0.0))
        xy = np.stack((x, y), axis=1)
        if a * e > 0:  # mirrored
            xy = xy[::-1]
        new = np.append(True, (xy[1:] != xy[:-1]).any(axis=1))
        return xy[new]


def _joined(
    first: np.ndarray, after: np.ndarray, shift: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pieces of each line, where each line starts in them, and whether it is closed.

    Parameters
    ----------
    shift
        What makes the sides of different levels different.
    """
    rings, size = after < 0, len(first)
    following = successors(first + shift, np.where(rings, -1, after + shift))
    following[rings] = np.flatnonzero(rings)
    entered = np.zeros(size, bool)
    entered[following[following >= 0]] = True
    pieces, starts = np.empty(size, np.int64), np.empty(size + 1, np.int64)
    count, open_ = kernels.chains(following, entered, pieces, starts)
    alone = np.flatnonzero((following < 0) & ~entered)
    joined = int(starts[count])
    closed = np.zeros(count + len(alone), bool)
    closed[open_:count] = True
    return (
        np.append(pieces[:joined], alone),
        np.append(starts[: count + 1], joined + 1 + np.arange(len(alone))),
        closed,
    )
