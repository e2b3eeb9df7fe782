"""Flow directions of a filled DEM, as an operation: `GradientDirection`.

1. *Flats*: read each block, and find the hop distances of flat cells at its rim; repeat for blocks
   whose distances become shorter through a neighbouring block.
2. *Directions*: read each block again, together with the distances around it, and write it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...engine.machine import Machine
from ...engine.operation import Operation, OutputLayer, Phase, SolvedBlock, State
from ...engine.plan import PER_ROW, StreamPlan, fit_blocks, layer_bytes
from ...engine.proof import Limits
from ...engine.run import Run
from ...errors import StoreError
from ...facts import Findings, Settings
from ...grid import Block, BlockGrid
from ...grid.lengths import step_lengths
from ..common.code_values import NOWHERE, OUTLET
from ..common.codes import DIRECTIONS, ENCODING, TREE_DIRECTIONS, end_ways, hops_dtype
from ..common.rims import BlockRim, RimLines
from .gradient_kernels import down_flats, flats_at_rim, mark_nearer, spread, steepest
from .proof import plan_gradient, verify_gradient

_FLATS, _WRITE = Phase("flats", joined="rims"), Phase("directions", writes=True)


@dataclass(frozen=True)
class GradientDirection(Operation):
    """The operation.

    Attributes
    ----------
    filled
        The layer of filled elevations.
    along
        The directions along which it was filled; their outlets are used.
    into
        The layer to write.
    """

    store: str
    filled: str = "filled"
    along: str = TREE_DIRECTIONS
    into: str = DIRECTIONS

    command = "flow-direction"
    only_on_cpu = "gradients in flats run"
    mark = "outlets"
    messages = (BlockRim,)
    halo = 1
    proof_passes = 2
    phases = (_FLATS, _WRITE)

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.filled, self.along

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        return (
            OutputLayer(self.into, np.dtype(np.uint8), NOWHERE, "drainage directions", ENCODING),
        )

    def settings(self) -> Settings:
        outlets = self.layers[1].info["settings"]["outlets"]
        return {"outlets": outlets, "flats": "gradient", "filled": self.filled, "along": self.along}

    def plan(self, machine: Machine) -> StreamPlan:
        heights = self.layers[0].dtype
        return plan_flats(self.blocks, heights, machine=machine)

    @cached_property
    def per_length(self) -> np.ndarray:
        return 1 / step_lengths(self.grid)

    def new_work(self) -> FlatWork:
        return FlatWork(self.blocks)

    def execute(self, run: Run) -> Findings:
        state = _FlatRims(self.blocks, self.layers[0].dtype)
        run.map(_FLATS, state)
        while state.waiting.any():
            run.map(_FLATS._replace(counted=False), state)
        run.map(_WRITE, state)
        run.told["block_visits"] = state.visits
        return {"cells": self.layers[1].info["result"]["cells"], "outlets": state.outlets}

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        context: tuple[BlockRim, BlockRim],
        work: FlatWork,
    ) -> SolvedBlock:
        heights, codes = cells
        r0, _, c0, _ = window = self.blocks.window(*at)
        end_ways(self.layers[1], self.grid, window, codes)
        low, high = (hops[: codes.size].reshape(codes.shape) for hops in (work.low, work.high))
        for hops, ring in zip((low, high), context, strict=True):
            hops[0], hops[-1], hops[:, 0], hops[:, -1] = ring
        flat = low.ravel(), high.ravel()
        if phase.writes:
            count = steepest(heights, codes, self.per_length, r0, work.kind, work.flats, out[0])
        else:
            count = flats_at_rim(heights, codes, work.kind, *flat, work.flats)
        flats = work.flats[:count]
        for hops, from_low in zip(flat, (True, False), strict=True):
            spread(heights, codes, work.kind, flats, hops, from_low, work.queue)
        if not phase.writes:
            rims = [BlockRim.of(array[1:-1, 1:-1]) for array in (heights, low, high)]
            return SolvedBlock(known=(rims, np.count_nonzero(codes[1:-1, 1:-1] == OUTLET)))
        cell = down_flats(heights, codes, work.kind, flats, *flat, out[0])
        if cell >= 0:
            row, col = divmod(cell, codes.shape[1])
            raise StoreError(
                f"{self.layers[0].path}: row {r0 + row - 1}, column {c0 + col - 1}: this flat does "
                "not drain to an outlet; fill the DEM again (terrain-gpu fill --overwrite)"
            )
        return SolvedBlock(tuple(out))

    def plan_verify(self, machine: Machine) -> None:
        heights, along = self.layers
        plan_gradient(heights, along, self.outputs[0], Limits(machine))

    def verify(self, run: Run, totals: Findings) -> Findings:
        heights, along = self.layers
        verify_gradient(heights, along, run.layer(self.into), totals, run.proof_limits)
        return {"verified_cells": self.grid.cells}


class FlatWork:
    """Work space of one thread: flat arrays for a block and its ring; see `gradient_kernels`."""

    def __init__(self, blocks: BlockGrid) -> None:
        n = (min(blocks.block, blocks.rows) + 2) * (min(blocks.block, blocks.cols) + 2)
        self.kind = np.empty(n, np.uint8)
        self.low, self.high = np.empty((2, n), hops_dtype(blocks))
        self.flats, self.queue = np.empty((2, n), np.int32)


class _FlatRims(State):
    """Hop distances at the rims of blocks.

    Attributes
    ----------
    waiting
        Mask of the blocks that must be visited.
    visits
        Number of visits.
    """

    def __init__(self, blocks: BlockGrid, heights: np.dtype) -> None:
        self._blocks, hops = blocks, hops_dtype(blocks)
        self._unknown = np.iinfo(hops).max
        hop_rims = (RimLines(blocks, hops, self._unknown) for _ in range(2))
        self._rims = RimLines(blocks, heights), *hop_rims
        self._outlets = np.zeros(blocks.shape, np.int64)
        self.waiting, self.visits = np.ones(blocks.shape, bool), 0

    @property
    def outlets(self) -> int:
        return int(self._outlets.sum())

    def finished(self, phase: Phase, at: Block, done: bool) -> bool:
        return done or not (phase.writes or self.waiting[at])

    def given(self, phase: Phase, at: Block) -> tuple[BlockRim, ...]:
        return tuple(rims.around(at, self._unknown) for rims in self._rims[1:])

    def add(self, phase: Phase, at: Block, message: Any) -> None:
        if phase.writes:
            return
        of_block, self._outlets[at] = message
        for rims, rim in zip(self._rims, of_block, strict=True):
            rims.put(at, rim)
        self.visits += 1

    def join(self, phase: Phase) -> None:
        """Find the blocks whose distances become shorter through a neighbouring block."""
        self.waiting[:] = False
        for lines, waiting in (
            ([rims.rows for rims in self._rims], self.waiting),
            ([rims.cols for rims in self._rims], self.waiting.T),
        ):
            for k in range(len(waiting) - 1):
                marks = np.zeros((2, waiting.shape[1]), bool)
                first = tuple(of[1, k] for of in lines)
                second = tuple(of[0, k + 1] for of in lines)
                mark_nearer(first, second, self._blocks.block, *marks)
                waiting[k : k + 2] |= marks


def plan_flats(
    blocks: BlockGrid,
    heights: np.dtype,
    *,
    machine: Machine,
) -> StreamPlan:
    """Plan the passes. Blocks that the first one reads more than once are counted once.

    Raises
    ------
    PlanError
        If the memory limit is too small.
    """
    rows, cols, ring = blocks.rows, blocks.cols, blocks.largest(1)
    down, across = blocks.shape
    hops = hops_dtype(blocks).itemsize
    read = heights.itemsize + 1
    return fit_blocks(
        blocks,
        heights.name,
        "for the directions of",
        buffer=ring * (read + 1),
        worker=ring * (9 + 2 * hops),
        scratch=blocks.largest(1, tiled=True) * (read + 2),
        common=PER_ROW * rows,
        held=2 * (down * cols + across * rows) * (heights.itemsize + 2 * hops),
        passes=2,
        bytes_read=2 * sum(layer_bytes(rows, cols, n, blocks.block) for n in (read - 1, 1)),
        bytes_written=layer_bytes(rows, cols, 1, blocks.block),
        machine=machine,
    )
