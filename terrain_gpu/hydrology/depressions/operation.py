"""Find the hierarchy of depressions, as an operation: `DepressionLabels`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...engine.machine import Machine
from ...engine.operation import (
    Operation,
    OutputLayer,
    Phase,
    SolvedBlock,
    State,
    refuse_without_table,
)
from ...engine.plan import PER_ROW, Growing, StreamPlan, fit_blocks, layer_bytes
from ...engine.proof import Limits, RunRecord
from ...engine.run import Run
from ...errors import StoreError
from ...facts import Findings, Settings
from ...grid import Block, BlockGrid, units
from ...grid.lengths import Measured, area_units, cell_areas
from ...spanning_tree.weights import Weight
from ...store import TileStore
from ..common.codes import DIRECTIONS, label_dtype, open_directions
from ..common.relative import base_of, restored
from ..forest.block import Work, read_forest, work_bytes
from ..forest.source import Forest, open_forest
from . import LAYER, Depressions, kernels
from .block import WORK_BYTES, BlockSets, Known, leave_out_undrained
from .proof import DepressionRule, plan_depressions_proof, verify_depressions
from .state import NODE_BYTES, Hierarchy
from .table import DepressionTotals, Kept

if TYPE_CHECKING:
    from .block import Branches


@dataclass(frozen=True)
class DepressionLabels(Operation):
    """The operation. The fields are the options of `Depressions`."""

    store: str
    directions: str = DIRECTIONS
    into: str | None = LAYER
    conditioned: str | None = None
    table: str | None = None
    min_depth: float = 0.0
    min_area: float = 0.0
    min_volume: float = 0.0

    command = "depressions"
    mark = "depressions_of"
    messages = (Known,)
    halo = 1

    @property
    def phases(self) -> tuple[Phase, ...]:
        return (
            Phase("merge", joined="hierarchy"),
            Phase("measure", joined="totals"),
            Phase("label", writes=True, joined="table" if self.table else ""),
        )

    @property
    def proof_passes(self) -> int:  # type: ignore[override]
        return 3 if self.min_area or self.min_volume else 2

    @cached_property
    def forest(self) -> Forest:
        return open_forest(self.store)

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.forest.cells.name, self.forest.edges.name, self.directions

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        heights, kind, layers = self.layers[0], "conditioned heights", []
        if self.into is not None:
            layers.append(OutputLayer(self.into, label_dtype(self.grid), 0, "depressions"))
        if self.conditioned is not None:
            like = heights.dtype, heights.nodata
            described = units.same_quantity(heights)
            layers.append(
                OutputLayer(self.conditioned, *like, kind, {"holds": kind}, described=described)
            )
        return tuple(layers)

    @property
    def measures(self) -> tuple[Measured, ...]:
        return ("areas",)

    def settings(self) -> Settings:
        return {
            "depressions_of": self.layers[0].name,
            "directions": self.directions,
            "min_depth": self.min_depth,
            "min_area": self.min_area,
            "min_volume": self.min_volume,
            "table": self.table is not None,
        }

    def refuse_finished(self) -> None:
        refuse_without_table(self)

    def plan(self, machine: Machine) -> StreamPlan:
        blocks, dtype = self.blocks, self.layers[0].dtype
        rows, cols, ring = blocks.rows, blocks.cols, blocks.largest(1)
        written = [output.dtype.itemsize for output in self.outputs]
        read, nodes = [dtype.itemsize, 1, 1], planned_nodes(blocks)
        key = Weight("max", dtype).key_dtype
        return fit_blocks(
            blocks,
            dtype.name,
            "to find the depressions of",
            buffer=ring * (sum(read) + sum(written)),
            worker=work_bytes(blocks, dtype, key) + ring * WORK_BYTES,
            scratch=blocks.largest(1, tiled=True) * (sum(read) + 2 * sum(written)),
            common=PER_ROW * rows,
            held=nodes,
            joined=nodes,
            passes=3,
            bytes_read=3 * sum(layer_bytes(rows, cols, size, blocks.block) for size in read),
            bytes_written=sum(layer_bytes(rows, cols, size, blocks.block) for size in written),
            machine=machine,
        )

    def new_work(self) -> Work:
        return Work(self.blocks)

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        least = self.min_area, self.min_volume
        totals = DepressionTotals(self.grid, self.units[1], self.areas.max(), least)
        return _Nesting(self, totals, plan)

    @cached_property
    def units(self) -> tuple[np.ndarray, float]:
        """The area of a cell in each row, as an integer number of units; and the unit."""
        return area_units(self.grid)

    @cached_property
    def areas(self) -> np.ndarray:
        return cell_areas(self.grid)

    @property
    def base(self) -> int:
        """See `relative.base_of`."""
        return base_of(self.layers[0])

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        context: Branches | None,
        work: Work,
    ) -> SolvedBlock:
        window = self.blocks.window(*at)
        block = read_forest(self.forest, window, cells[0], cells[1], work)
        leave_out_undrained(block, cells[2])
        sets = BlockSets(block, cells[2][1:-1, 1:-1], self.min_depth)
        if context is None:
            return SolvedBlock(known=sets.known())
        branches, dead, up, numbers = sets.regions(context)
        if not phase.writes:
            pits = np.append(sets.pit[0], context.pits)
            return SolvedBlock(known=self._measured(sets, branches, pits, dead, up, numbers))
        smallest_kept = Kept.of(dead, up, numbers)
        shape = block.heights.shape[0] - 2, block.width
        if self.into is not None:
            out[0][...] = smallest_kept.labels(branches).reshape(shape)
        if self.conditioned is not None:
            out[-1][...] = block.heights[1:-1, 1:-1]
            levels = smallest_kept.levels(branches).reshape(shape)
            higher = np.isfinite(levels)
            out[-1][higher] = restored(levels[higher], self.base, out[-1].dtype)
        return SolvedBlock(tuple(out))

    def _measured(
        self,
        sets: BlockSets,
        branches: np.ndarray,
        pits: np.ndarray,
        dead: np.ndarray,
        up: np.ndarray,
        numbers: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return indices of depressions (their numbers minus one) and their sums in this block."""
        into = np.arange(len(dead))
        kernels.climb_to(into, numbers, dead, up, np.empty_like(into))
        sums = np.zeros((len(dead), 4), np.int64)
        cells = sets.heights, branches, into, dead, sets.window[0]
        scales = kernels.volume_scales(dead - pits, self.areas.max())
        kernels.measure(*cells, self.units[0], self.areas, scales, sums)
        counted = np.flatnonzero(sums[:, 0])
        return numbers[counted] - 1, sums[counted]

    # -- the proof ------------------------------------------------------------------------------

    @property
    def rule(self) -> DepressionRule:
        heights, _, codes = self.layers
        least = self.min_depth, self.min_area, self.min_volume
        return DepressionRule(codes, heights, self.forest.connectivity, *least)

    proven_by_workers = False

    def plan_verify(self, machine: Machine) -> None:
        plan_depressions_proof(self.rule, Limits(machine))

    def verify(self, run: Run, totals: Findings) -> Findings:
        named = self.into, self.conditioned
        numbers, heights = (None if name is None else run.layer(name) for name in named)
        verify_depressions(self.rule, numbers, heights, totals, run.proof_limits)
        return {"verified_cells": self.grid.cells}


class _Nesting(Hierarchy):
    """The hierarchy, then the totals of the depressions and the numbers of those kept."""

    def __init__(
        self, operation: DepressionLabels, totals: DepressionTotals, plan: StreamPlan
    ) -> None:
        path, nodes = operation.forest.edges.path, planned_nodes(operation.blocks)
        room = Growing(plan, nodes, nodes)
        super().__init__(path, operation.min_depth, room)
        self._operation, self._totals = operation, totals

    def join(self, phase: Phase) -> None:
        super().join(phase)
        if phase.joined == "totals":
            self.number = self._totals.number(self)
        elif phase.joined == "table":
            from ...io.tables import write_table  # brings GDAL

            operation = self._operation
            assert operation.table is not None
            integers = operation.layers[0].dtype.kind != "f"
            columns = self._totals.columns(self, operation.base, integers=integers)
            write_table(Path(operation.table), columns, operation.grid)

    def found(self) -> Findings:
        return self._totals.found(self)


def planned_nodes(blocks: BlockGrid) -> int:
    """Return the number of bytes planned for the hierarchy."""
    return 2 * blocks.line_cells * NODE_BYTES


def operation_of(store: TileStore | None, tool: Depressions) -> DepressionLabels:
    """Return the operation after checking the layers; `store` is None when only planning."""
    if store is not None:
        _check(store, tool.directions)
    return DepressionLabels(
        "" if store is None else str(store.path),
        *(getattr(tool, field.name) for field in fields(DepressionLabels) if field.name != "store"),
    )


def _check(store: TileStore, directions: str) -> None:
    """Reject directions without outlets, or made from other elevations than the forest was."""
    codes = open_directions(store, directions)
    if "outlets" not in (codes.info.get("settings") or {}):
        raise StoreError(f"{codes.path}: not made by flow-direction; depressions need its outlets")
    forest = open_forest(store)
    if "flats" not in codes.info["settings"]:
        for name in forest.identity:
            RunRecord(store, codes).input(name)
    base_of(forest.cells)  # raises an error if the integers span too wide a range
