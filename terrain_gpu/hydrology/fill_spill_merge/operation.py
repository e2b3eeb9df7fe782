"""Find where rain water comes to rest, as an operation: `RestingWater`."""

from __future__ import annotations

import math
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
from ...grid.lengths import Measured, area_units
from ...spanning_tree.weights import Weight
from ...store import TileStore
from ..common.codes import DIRECTIONS, open_directions
from ..common.relative import base_of
from ..depressions.block import WORK_BYTES
from ..forest.block import Work, read_forest, work_bytes
from ..forest.source import Forest, open_drained
from . import LAYER, FillSpillMerge, kernels
from .block import BlockCatchments, Catchments
from .pools import ROW_BYTES, AllPools
from .proof import plan_water, verify_water
from .rain import Rain

if TYPE_CHECKING:
    from .block import Pools

_TREE = Phase("catchments", joined="tree")
_ROOMS = Phase("rooms", joined="settle")
_LEVELS = Phase("levels", joined="levels", counted=False)


@dataclass(frozen=True)
class RestingWater(Operation):
    """The operation. The fields are the options of `FillSpillMerge`."""

    store: str
    rain: float | str
    directions: str = DIRECTIONS
    into: str = LAYER
    table: str | None = None

    command = "fill-spill-merge"
    mark = "water_of"
    messages = (Catchments,)
    halo = 1

    @property
    def phases(self) -> tuple[Phase, ...]:
        write = Phase("water", writes=True, joined="table" if self.table else "")
        return _TREE, _ROOMS, write

    @cached_property
    def forest(self) -> Forest:
        return open_drained(self.store, self.command, ("flow",))

    @property
    def inputs(self) -> tuple[str, ...]:
        layers = self.forest.cells.name, self.forest.edges.name, self.directions
        return (*layers, self.rain) if isinstance(self.rain, str) else layers

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        kind, unit = np.dtype(np.float32), units.in_unit(units.unit_of(self.layers[0]))
        return (OutputLayer(self.into, kind, math.nan, "depths of water", described=unit),)

    @property
    def measures(self) -> tuple[Measured, ...]:
        return ("areas",)

    def settings(self) -> Settings:
        return {
            "water_of": self.layers[0].name,
            "rain": self.rain,
            "directions": self.directions,
            "table": self.table is not None,
        }

    def refuse_finished(self) -> None:
        refuse_without_table(self)

    def plan(self, machine: Machine) -> StreamPlan:
        blocks, dtype = self.blocks, self.layers[0].dtype
        rows, cols, ring = blocks.rows, blocks.cols, blocks.largest(1)
        read = [layer.dtype.itemsize for layer in self.layers]
        known = planned_pools(blocks)
        key = Weight("flow", dtype).key_dtype
        return fit_blocks(
            blocks,
            dtype.name,
            "to find where water rests on",
            buffer=ring * (sum(read) + 4),
            worker=work_bytes(blocks, dtype, key) + ring * (WORK_BYTES + 16),
            scratch=blocks.largest(1, tiled=True) * (sum(read) + 8),
            common=PER_ROW * rows,
            held=known,
            joined=known,
            passes=3,
            bytes_read=3 * sum(layer_bytes(rows, cols, size, blocks.block) for size in read),
            bytes_written=layer_bytes(rows, cols, 4, blocks.block),
            machine=machine,
        )

    def new_work(self) -> Work:
        return Work(self.blocks)

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        planned = planned_pools(self.blocks)
        return AllPools(self, Growing(plan, planned, planned))

    def execute(self, run: Run) -> Findings:
        state = self.begin(run.plan, run.spill)
        assert isinstance(state, AllPools)
        run.map(_TREE, state)
        run.map(_ROOMS, state)
        while len(state.waiting):
            run.map(_LEVELS, state)
        run.map(self.phases[-1], state)
        if self.table is not None:
            self._write_table(state)
        return state.found()

    def _write_table(self, state: AllPools) -> None:
        from ...io.tables import write_table  # brings GDAL
        from .table import columns

        assert self.table is not None
        base = base_of(self.layers[0])
        write_table(Path(self.table), columns(state, self.grid, self.scale, base), self.grid)

    # -- rain and volumes -------------------------------------------------------------------------

    @cached_property
    def units(self) -> tuple[np.ndarray, float]:
        """The area of a cell in each row, as an integer number of units; and the unit."""
        return area_units(self.grid)

    @cached_property
    def water(self) -> Rain:
        return Rain(self.grid, self.layers[3] if isinstance(self.rain, str) else self.rain)

    @property
    def scale(self) -> float:
        """Number of units of water per unit of volume."""
        return self.water.scale

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        given: Pools | None,
        work: Work,
    ) -> SolvedBlock:
        window = self.blocks.window(*at)
        block = read_forest(self.forest, window, cells[0], cells[1], work)
        sets = BlockCatchments(block, cells[2][1:-1, 1:-1], 0.0)
        valid = block.valid[1:-1, 1:-1]
        if given is None:
            depths = cells[3][1:-1, 1:-1] if isinstance(self.rain, str) else None
            return SolvedBlock(known=sets.catchments(self.water.of(window, valid, depths)))
        pool = sets.pools(given)
        if not phase.writes:
            sums = np.zeros((len(given.ids), 3), np.int64)
            raster = window[0], self.units[0], self.water.areas
            kernels.fill_below(sets.heights, pool, given.levels, *raster, given.scales, sums)
            some = np.flatnonzero(sums[:, 0])
            return SolvedBlock(known=(given.ids[some], sums[some]))
        out[0][...] = np.where(valid, np.float32(0), np.float32(np.nan))
        kernels.depths(sets.heights, pool, given.levels, out[0].reshape(-1))
        row = np.nonzero(out[0] > 0)[0] + window[0]
        units = np.rint(out[0][out[0] > 0] * (self.water.areas[row] * self.scale))
        stands = len(row), int(self.units[0][row].sum()), int(units.astype(np.int64).sum())
        return SolvedBlock(tuple(out), known=stands)

    # -- the proof ------------------------------------------------------------------------------

    def plan_verify(self, machine: Machine) -> None:
        plan_water(self.layers[0], self.outputs[0], self.water, Limits(machine))

    def verify(self, run: Run, found: Findings) -> Findings:
        heights, depths = self.layers[0], run.layer(self.into)
        verify_water(heights, depths, self.forest.connectivity, self.water, found, run.proof_limits)
        return {"verified_cells": self.grid.cells}


def planned_pools(blocks: BlockGrid) -> int:
    """Return the number of bytes planned for the pools."""
    return 2 * blocks.line_cells * ROW_BYTES


def operation_of(store: TileStore | None, asked: FillSpillMerge) -> RestingWater:
    """Return the operation after checking the layers; `store` is None when only planning."""
    if store is not None:
        _check(store, asked.directions)
    return RestingWater(
        "" if store is None else str(store.path),
        *(getattr(asked, one.name) for one in fields(RestingWater) if one.name != "store"),
    )


def _check(store: TileStore, directions: str) -> None:
    """Reject directions without outlets, or made from other elevations than the forest was."""
    codes = open_directions(store, directions)
    if "outlets" not in (codes.info.get("settings") or {}):
        raise StoreError(
            f"{codes.path}: not made by flow-direction; fill-spill-merge needs its outlets"
        )
    forest = open_drained(store, FillSpillMerge.command, ("flow",))
    if "flats" not in codes.info["settings"]:
        for name in forest.identity:
            RunRecord(store, codes).input(name)
