"""Extract the network of a spanning forest, as an operation: `NetworkLines`.

1. *Outlines*: read each block once, and contract it to the cells with edges to other blocks.
2. *Skeleton*: compute the longest path to either side of every edge between blocks.
3. *Lines*: read each block again, trace its edges with long enough paths on both sides, and keep
   them on disk as pieces of lines; likewise those to which lines of other blocks may be extended.
4. *Writing*: join the pieces, and write them line by line.
"""

from __future__ import annotations

import logging
import math
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ...compiled import known_types, tell_compiling
from ...engine.machine import MB, Machine
from ...engine.operation import Operation, OutputFile, Phase, SolvedBlock, State
from ...engine.plan import Excess, StreamPlan
from ...engine.proof import Limits
from ...engine.run import Result, Run
from ...facts import Findings, Settings
from ...grid import Block
from ...grid.distance import Distance
from ...grid.lengths import Measured, length_unit, step_lengths, whole_lengths
from ...io.features import library_bytes
from ...io.frames import FeatureResult
from ...io.lines import tell_without_crs
from ...io.places import NO_PLACES, Places, PlacesLike, as_places
from ...io.settling import Ground, refuse_unusable
from ...report import Report
from ...spanning_tree import LAYER as TREE
from ...store import Layer, TileStore
from ..common.outlets import cells_in
from ..forest.block import read_forest
from ..forest.features import features, write_lines
from ..forest.lines import POSSIBLE_BYTES, PieceFile, trace_pieces
from ..forest.plan import plan_blocks, planned_skeleton
from ..forest.skeleton import ByBlock
from ..forest.source import Forest, heights_in, open_forest
from . import ExtractNetwork, prune
from .proof import plan_network_proof, verify_network

if TYPE_CHECKING:
    from .prune import LengthWork

log = logging.getLogger(__name__)

_LINES = 32 * MB
"""Bytes reserved for lines."""

OUTLINES, LINES = Phase("outlines", joined="skeleton"), Phase("lines", joined="ends")


@dataclass(repr=False)
class Network(FeatureResult):
    """A network written to a file.

    Attributes
    ----------
    path
        The file.
    lines, cells
        Number of lines, and of cells on them. A cell where lines meet counts once for each line.
    length
        Total length of all lines, in map units, or in metres for a geographic CRS.
    report
        The run's `Report`.
    """

    path: Path
    lines: int
    cells: int
    length: float
    report: Report


def network_of(store: TileStore | None, tool: ExtractNetwork) -> NetworkLines:
    """Return the operation; `store` is None when only planning.

    Raises
    ------
    InputError
        If a point to keep is nodata.
    StoreError
        If the spanning forest is out of date or damaged.
    """
    path = str(tool.path)
    if store is None:
        return NetworkLines("", path, 0.0)
    cells = open_forest(store).cells
    points = NO_PLACES if tool.keep is None else kept_places(cells, tool.keep)
    return NetworkLines(str(store.path), path, _least(tool, store), points)


def _least(tool: ExtractNetwork, store: TileStore) -> float | None:
    """The shortest dead end that is kept, in the unit of lengths; None without a limit."""
    length = cast("Distance | None", tool.min_length)
    return None if length is None else length.in_map_units(store.grid, "min_length")


def refuse(tool: ExtractNetwork, store: TileStore) -> None:
    """Reject what cannot be used, before a spanning tree is computed."""
    _least(tool, store)
    if tool.keep is not None and TREE not in store:
        kept_places(heights_in(store), tool.keep)


def kept_places(cells: Layer, keep: PlacesLike) -> Places:
    """Return the cells to keep, over an elevation layer.

    Raises
    ------
    InputError
        If a point is nodata.
    """
    points = as_places(cells.grid, keep, "keep")
    if not len(points):
        return points
    refuse_unusable(points, Ground([cells]))
    return points.one_per_cell("points to keep")


@dataclass(frozen=True)
class NetworkLines(Operation):
    """The operation. `kept` are the points to keep; see `ExtractNetwork` for the others."""

    store: str
    path: str
    min_length: float | None = None
    kept: Places = field(default_factory=lambda: NO_PLACES, compare=False, repr=False)

    command = "network"
    mark = ""
    halo = 1
    phases = (OUTLINES, LINES)
    proof_passes = 2

    @cached_property
    def forest(self) -> Forest:
        return open_forest(self.store)

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.forest.cells.name, self.forest.edges.name

    @property
    def outputs(self) -> tuple[OutputFile, ...]:
        return (OutputFile(self.path),)

    @property
    def measures(self) -> tuple[Measured, ...]:
        return ("lengths",)

    def settings(self) -> Settings:
        return {"min_length": self.min_length, "kept": len(self.kept)}

    def plan(self, machine: Machine) -> StreamPlan:
        return plan_blocks(
            self.blocks,
            self.layers[0].dtype,
            "extract the network of",
            vertex=prune.VERTEX_BYTES,
            work=prune.LengthWork.BYTES + 8,
            beside=_LINES + library_bytes(self.path),
            machine=machine,
        )

    def examine(self) -> None:
        if self.forest.weight.name == "absdiff":
            log.warning(
                "%s: computed with weight absdiff, so its lines follow the least climb, not "
                "valleys; for valleys, use compute-mst --weight flow or max",
                self.forest.edges.path,
            )

    @cached_property
    def lengths(self) -> tuple[np.ndarray, int]:
        """Step lengths in whole units, and the length that paths of the network must have."""
        units, unit = whole_lengths(self.grid, step_lengths(self.grid))
        if self.min_length is None:
            return units, prune.ENDLESS
        return units, math.ceil(min(self.min_length / unit, prune.ENDLESS))

    def new_work(self) -> LengthWork:
        return prune.LengthWork(self.blocks)

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        context: Any,
        work: LengthWork,
    ) -> SolvedBlock:
        units, least = self.lengths
        block = read_forest(self.forest, self.blocks.window(*at), cells[0], cells[1], work)
        points = cells_in(block.window, self.kept)
        if phase == OUTLINES:
            return SolvedBlock(known=prune.outline(block, points, units))
        bits, condition, arcs = prune.keep(block, points, units, context, least)
        return SolvedBlock(known=(trace_pieces(block, bits, condition, points), arcs))

    proven_by_workers = False

    def plan_verify(self, machine: Machine) -> None:
        plan_network_proof(self.forest, Limits(machine))

    def verify(self, run: Run, totals: Findings) -> Findings:
        (writer,) = run.writers.values()
        files = writer.part, writer.path
        with writer.errors():
            verify_network(self.forest, files, self.min_length, self.kept, totals, run.proof_limits)
        return {"verified_lines": totals["lines"]}

    def result(self, result: Result) -> Network:
        report, totals = result.report, result.found
        report.valid_cells = self.forest.edges.info["result"]["vertices"]
        report.result["length_unit"] = length_unit(self.grid)
        path = Path(self.path).absolute()
        return Network(path, totals["lines"], totals["cells"], totals["length"], report)

    def execute(self, run: Run) -> Findings:
        (writer,) = run.writers.values()
        if not known_types(prune.contract_lengths):
            tell_compiling(prune.contract_lengths, self.command)
        with closing(_NetworkState(self, run)) as state:
            for phase in self.phases:
                run.map(phase, state)
            with run.report.phase("write"), writer.errors():
                tell_without_crs(self.path, self.grid)
                batches = features(state.pieces, self.grid, self.forest.weight)
                return write_lines(writer.part, batches, self.grid)


class _NetworkState(State):
    """The outlines of blocks, the solved skeleton, the pieces of lines, and their extensions."""

    def __init__(self, operation: NetworkLines, run: Run) -> None:
        (self._writer,) = run.writers.values()
        self._blocks, self._least = operation.blocks, operation.lengths[1]
        beside = _LINES + library_bytes(operation.path)
        self._skeleton = planned_skeleton(
            run.plan, operation.forest.cells.dtype, vertex=prune.VERTEX_BYTES, beside=beside
        )
        self._beyond: ByBlock | None = None
        self._arcs: list[np.ndarray] = []
        # Outlines are freed before pieces are kept.
        free = _LINES + POSSIBLE_BYTES * self._blocks.line_cells
        self.pieces = PieceFile(
            self._writer.path.parent,
            operation.forest.cells.dtype,
            Excess.of(run.plan, advice=", or a larger --min-length", beside=-free),
        )

    def given(self, phase: Phase, at: Block) -> tuple[np.ndarray, ...] | None:
        return None if self._beyond is None else self._beyond.of(at)

    def add(self, phase: Phase, at: Block, message: Any) -> None:
        if phase == OUTLINES:
            self._skeleton.add(message)
            return
        pieces, arcs = message
        with self._writer.errors():
            self.pieces.put(at, pieces)
        self._arcs.append(arcs)

    def join(self, phase: Phase) -> None:
        if phase == OUTLINES:
            self._beyond = prune.solve(self._skeleton.join(), self._blocks, self._least)
        else:
            self.pieces.choose(prune.entered(np.concatenate(self._arcs)))

    def close(self) -> None:
        self.pieces.close()
