"""Fill depressions so that every flow path descends strictly: `EpsilonFill`.

1. *Ways*: read each block, and find what the flow path from each of its entries adds to the level
   where the path leaves the block. Joined in memory, these give upper bounds of the levels at all
   entries: those along one path out of many.
2. *Rims*: read each block, and find the lowest levels that follow from those around it; repeat for
   blocks whose levels become lower through a neighbouring block.
3. *Cells*: read each block again, together with the lowest levels around it, and write it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...engine.machine import Machine
from ...engine.operation import OutputLayer, Phase, SolvedBlock, State
from ...engine.plan import StreamPlan
from ...engine.proof import Limits
from ...engine.run import Run
from ...errors import InputError
from ...facts import Findings, Settings
from ...grid import Block, BlockGrid, units
from ..along_flow.block import FlowBlock, read_flow
from ..along_flow.entries import Beyond
from ..along_flow.kernels import ADD, MAX, STEP
from ..along_flow.operation import AlongFlow, plan_flow
from ..common.code_values import NOWHERE
from ..common.codes import DIRECTIONS
from ..common.rims import BlockRim, RimLines
from ..forest.source import open_forest
from . import LAYER, Fill
from .proof import plan_epsilon, verify_epsilon
from .steps import LOWEST, UNKNOWN, heights_of, ordinals, rise, shores

_WAYS, _RIMS, _CELLS = (
    Phase("ways", joined="join"),
    Phase("rims", joined="lines"),
    Phase("cells", writes=True),
)

_ENTRY_BYTES = 120
"""Bytes per entry in addition to `entries.ENTRY_BYTES`."""

_RIM_BYTES = 9
"""Bytes per cell at a rim."""


@dataclass(frozen=True)
class EpsilonFill(AlongFlow):
    """The operation. Fields as for `PlainFill`."""

    store: str
    layer: str = "elevation"
    directions: str = DIRECTIONS
    into: str = LAYER

    command = Fill.command
    mark = Fill.mark
    messages = (BlockRim,)
    phases = (_WAYS, _RIMS, _CELLS)
    entry_more = _ENTRY_BYTES
    only_on_cpu = "epsilon runs"

    @property
    def held_bytes(self) -> int:
        return _rim_bytes(self.blocks)

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.directions, self.layer

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        heights = self.layers[1]
        like = heights.dtype, heights.nodata, "filled heights"
        return (OutputLayer(self.into, *like, described=units.same_quantity(heights)),)

    def settings(self) -> Settings:
        return {"fill_of": self.layer, "directions": self.directions, "epsilon": True}

    @cached_property
    def connectivity(self) -> int:
        return open_forest(self.store).connectivity

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        return _Levels(self, plan)

    def execute(self, run: Run) -> Findings:
        state = self.begin(run.plan, run.spill)
        assert isinstance(state, _Levels)
        run.map(_WAYS, state)
        run.map(_RIMS, state)
        while state.waiting.any():
            run.map(_RIMS._replace(counted=False), state)
        run.map(_CELLS, state)
        run.told["block_visits"] = state.visits
        return state.found()

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        context: Any,
        work: Any,
    ) -> SolvedBlock:
        if phase.name != _RIMS.name:
            return super().solve(phase, at, cells, out, context, work)
        codes = self.layers[0]
        block = read_flow(codes, self.grid, self.blocks.window(*at), cells[0], work)
        return SolvedBlock(known=self._look(block, cells[1], context))

    def _own(self, block: FlowBlock, heights: np.ndarray) -> np.ndarray:
        """Return the ordinals of the elevations of cells that drain, `UNKNOWN` elsewhere."""
        values = ordinals(heights, self.layers[1].nodata)
        values[block.codes == NOWHERE] = UNKNOWN
        return values

    def trace(self, block: FlowBlock, cells: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        ground, into, values = self._own(block, cells[0]), block.entries, block.array(np.int64)
        columns = []
        for rule, beyond in ((MAX, LOWEST), (STEP, LOWEST), (ADD, 0)):
            values[...] = 1 if rule == ADD else ground
            block.fill_ring(values, beyond)
            exits = block.follow(into, rule, values)
            columns.append(values.ravel()[into])
        return block.globally(into), block.globally(exits), *columns

    def _levels(self, block: FlowBlock, ground: np.ndarray, ring: BlockRim) -> np.ndarray:
        """Return the lowest levels of a block that follow from those around it.

        The levels around it, `ring`, are written into the margin of `ground`.
        """
        levels, work, shape = block.array(np.int64), block.work, block.codes.shape
        ground[0], ground[-1], ground[:, 0], ground[:, -1] = ring
        levels[...] = ground
        block.follow_all(STEP, levels)
        by, flat = 8 // self.connectivity, (ground.ravel(), levels.ravel())
        count = shores(shape, *flat, by, work.inflow, work.exits)
        listed = work.exits[:count]
        order = listed[np.argsort(flat[0][listed])]
        rise(shape[1], order, *flat, by, work.inflow, work.order)
        return levels

    def _look(self, block: FlowBlock, heights: np.ndarray, context: Any) -> tuple[Any, ...]:
        """Return the levels at the rim of a block, and by how much they exceed plain levels."""
        ids, around, ring = context
        ground = self._own(block, heights)
        filled = ground.copy()
        filled.ravel()[block.locally(ids)] = around
        block.follow_all(MAX, filled)
        levels = self._levels(block, ground, ring)
        inner, ground_inside, plain = (one[1:-1, 1:-1] for one in (levels, ground, filled))
        higher = inner > plain
        kind = self.layers[1].dtype, self.layers[1].nodata
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow is reported later
            above, below = (
                heights_of(one[higher], *kind).astype(np.float64) for one in (inner, plain)
            )
            most = float((above - below).max(initial=0))
        rims = BlockRim.of(inner), BlockRim.of(inner > ground_inside)
        return *rims, np.count_nonzero(higher), most

    def finish(
        self, block: FlowBlock, cells: list[np.ndarray], context: Any, out: list[np.ndarray]
    ) -> None:
        heights, nodata = cells[0], self.layers[1].nodata
        ground = self._own(block, heights)
        levels = self._levels(block, ground, context[2])
        inner, ground_inside = levels[1:-1, 1:-1], ground[1:-1, 1:-1]
        raised = inner > ground_inside
        filled = heights_of(inner[raised], heights.dtype, nodata)
        if not np.isfinite(filled).all():
            self._refuse(block, raised, filled)
        out[0][...] = heights[1:-1, 1:-1]
        out[0][raised] = filled

    def _refuse(self, block: FlowBlock, raised: np.ndarray, filled: np.ndarray) -> None:
        row, col = np.argwhere(raised)[np.flatnonzero(~np.isfinite(filled))[0]].tolist()
        r0, _, c0, _ = block.window
        raise InputError(
            f"{self.layers[1].path}: row {r0 + row}, column {c0 + col}: the filled elevation would "
            f"exceed the largest {self.layers[1].dtype.name} number; check this cell, or set it to "
            "nodata"
        )

    def plan(self, machine: Machine) -> StreamPlan:
        """Plan the passes. Blocks that the second one reads more than once are counted once."""
        size = self.layers[1].dtype.itemsize
        return plan_flow(
            self.blocks,
            "fill --epsilon",
            [1, size],
            [size],
            worker=56,
            held=self.held_bytes,
            entry_more=self.entry_more,
            passes=3,
            machine=machine,
        )

    def plan_verify(self, machine: Machine) -> None:
        codes, heights = self.layers
        plan_epsilon(codes, heights, self.outputs[0], Limits(machine))

    def verify(self, run: Run, totals: Findings) -> Findings:
        codes, heights = self.layers
        verify_epsilon(codes, heights, run.layer(self.into), self.connectivity, run.proof_limits)
        return {"verified_cells": self.grid.cells}


class _Levels(Beyond):
    """Levels at the rims of all blocks, and the levels of plain `fill` at entries.

    Attributes
    ----------
    waiting
        Mask of the blocks that must be visited.
    visits
        Number of visits.
    """

    def __init__(self, operation: EpsilonFill, plan: StreamPlan) -> None:
        super().__init__(operation, plan, MAX)
        blocks, self._eight = operation.blocks, operation.connectivity == 8
        self._levels = RimLines(blocks, np.int64, UNKNOWN)
        self._raised = RimLines(blocks, bool)
        self._above = np.zeros(blocks.shape, np.int64)
        self._most = np.zeros(blocks.shape)
        self.waiting, self.visits = np.ones(blocks.shape, bool), 0

    def finished(self, phase: Phase, at: Block, done: bool) -> bool:
        return done or (phase.name == _RIMS.name and not self.waiting[at])

    def given(self, phase: Phase, at: Block) -> Any:
        """Return the entries around a block, their plain levels, and the known levels around it."""
        if phase.name == _WAYS.name:
            return None
        entries = self.at_rim(at, inside=False)
        return *entries, self._levels.around(at, UNKNOWN)

    def add(self, phase: Phase, at: Block, message: Any) -> None:
        if phase.name != _RIMS.name:
            super().add(phase, at, message)
            return
        levels, raised, self._above[at], self._most[at] = message
        self._levels.put(at, levels)
        self._raised.put(at, raised)
        self.visits += 1

    def join(self, phase: Phase) -> None:
        if phase.name == _WAYS.name:
            self._join_ways()
        elif phase.name == _RIMS.name:
            self._mark_waiting()

    def _join_ways(self) -> None:
        """Add up what paths add to levels from block to block, by pointer doubling."""
        going, columns = self._joined()
        if not columns:
            return
        plain, levels, steps = columns
        self._combine(going, [plain])
        going = going.copy()
        while len(on := np.flatnonzero(going >= 0)):
            to = going[on]
            levels[on] = np.maximum(levels[on], levels[to] + steps[on])
            steps[on] += steps[to]
            going[on] = going[to]
        self._levels.put_cells(self._ids, levels)

    def _mark_waiting(self) -> None:
        """Find the blocks whose levels become lower through a neighbouring block."""
        self.waiting[:] = False
        side, (levels, raised) = self._blocks.block, (self._levels, self._raised)
        for lines, ups, waiting in (
            (levels.rows, raised.rows, self.waiting),
            (levels.cols, raised.cols, self.waiting.T),
        ):
            for k in range(len(waiting) - 1):
                for near, far, at in ((1, 0, k), (0, 1, k + 1)):
                    across = lines[far, 2 * k + 1 - at]
                    least = across.copy()
                    if self._eight:
                        np.minimum(least[1:], across[:-1], out=least[1:])
                        np.minimum(least[:-1], across[1:], out=least[:-1])
                    less = ups[near, at] & (least < lines[near, at] - 1)
                    waiting[at, np.unique(np.flatnonzero(less) // side)] = True

    def found(self) -> Findings:
        return {
            "raised_above_fill": int(self._above.sum()),
            "largest_rise": float(self._most.max()),
        }


def _rim_bytes(blocks: BlockGrid) -> int:
    down, across = blocks.shape
    return 2 * (down * blocks.cols + across * blocks.rows) * _RIM_BYTES
