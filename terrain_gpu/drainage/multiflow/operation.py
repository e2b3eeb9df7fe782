"""Flow accumulation over several directions as an operation: `MultipleFlow`.

1. *Flow*: blocks are visited until what drains through all cells at their rims is known.
2. *Cells*: each block is read again, with what drains through the cells around it, and written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from ...engine.operation import Operation, OutputLayer, Phase, SolvedBlock, State
from ...engine.plan import StreamPlan, fit_blocks, layer_bytes
from ...engine.proof import Limits
from ...engine.run import Run
from ...errors import StoreError
from ...grid import Block, BlockGrid
from ...store.spill import Slots
from ..division import EXPONENTS, METHODS, geometry
from ..rims import BlockRim, RimLines
from ..verify.multiflow import plan_division, verify_division
from ..weights import Rule, rule_of
from .kernels import UNKNOWN, count_inflows, first_waiting, pass_on
from .visits import KEPT, RINGS, Flow, FlowSteps, FlowVisits

_FLOW, _CELLS = Phase("flow"), Phase("cells", writes=True)


@dataclass(frozen=True)
class MultipleFlow(Operation):
    """The operation; fields are parameters of `flow_accumulation`."""

    store: str
    method: str = "mfd"
    exponent: float = 1.1
    filled: str = "filled"
    directions: str = "flow_direction"
    areas: bool = False
    exclude_self: bool = False
    into: str = "flow_accumulation"
    weights: str | None = None

    command = "flow-accumulation"
    mark = "accumulation_of"
    halo = RINGS
    phases = (_FLOW, _CELLS)

    @property
    def inputs(self) -> tuple[str, ...]:
        weights = () if self.weights is None else (self.weights,)
        return self.filled, self.directions, *weights

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        return (OutputLayer(self.into, self.rule.dtype, self.rule.nodata, "flow accumulation"),)

    def settings(self) -> dict[str, Any]:
        return {
            "accumulation_of": self.directions,
            "method": self.method,
            **({"exponent": self.exponent} if self.method in EXPONENTS else {}),
            "filled": self.filled,
            "areas": self.areas,
            "exclude_self": self.exclude_self,
            **({"weights": self.weights} if self.weights is not None else {}),
        }

    @cached_property
    def rule(self) -> Rule:
        weights = None if self.weights is None else self.layers[2]
        return rule_of(self.grid, weights, "sum", self.areas, self.exclude_self, divided=True)

    @cached_property
    def how(self) -> tuple[int, float]:
        """The method and the exponent, for kernels."""
        return METHODS[self.method], self.exponent

    @cached_property
    def geometry(self) -> tuple[np.ndarray, np.ndarray]:
        return geometry(self.grid)

    def plan(
        self, memory_limit: int | str | None, threads: int | None, gpu: Any = None
    ) -> StreamPlan:
        read = [layer.dtype for layer in self.layers]
        return plan_multiple_flow(self.blocks, read, memory_limit=memory_limit, threads=threads)

    def new_work(self) -> DivisionWork:
        return DivisionWork(self.blocks)

    # -- the phases -----------------------------------------------------------------------------

    def execute(self, run: Run) -> dict[str, Any]:
        state = _FlowRims(self.blocks)
        with run.report.phase(_FLOW.name), _saved(run, state) as restored:
            if restored:
                for at in self.blocks.ids():
                    run.tick(at)
            else:
                self._find_rims(run, state)
        run.map(_CELLS, state)
        return {} if self.weights is None else {"without_weight": int(state.without.sum())}

    def _find_rims(self, run: Run, state: _FlowRims) -> None:
        threads = max(run.plan.workers, 1)
        works: SimpleQueue[DivisionWork] = SimpleQueue()
        for _ in range(threads):
            works.put(self.new_work())
        capacity = self.blocks.count
        if run.folder is not None:
            one = (self.blocks.block + 2 * RINGS) ** 2 * (self.layers[0].dtype.itemsize + 1 + KEPT)
            capacity = threads + max(run.plan.memory_limit - run.plan.memory, 0) // one
        visits = FlowVisits(state.rims, (run.folder or Path()) / "flow", capacity)

        def read(at: Block) -> Flow:
            window = self.blocks.window(*at)
            heights, codes = (one.read_ring(window, halo=RINGS) for one in self.layers[:2])
            return Flow.of(heights, codes)

        def begin(at: Block) -> tuple[Flow, int]:
            flow, weights = read(at), None
            if self.weights is not None:
                weights = self.layers[2].read_ring(self.blocks.window(*at), halo=0)
            cells, state.without[at] = self._begin(at, flow, weights)
            return flow, cells

        def advance(at: Block, flow: Flow, first: bool) -> tuple[int, np.ndarray]:
            work = works.get()
            try:
                return self._pass_on(at, flow, first, work), work.crossed.copy()
            finally:
                works.put(work)

        of = FlowSteps(begin, read, advance, run.tick)
        try:
            visits.run(of, threads)
            for i, j in np.argwhere(visits.left)[:1].tolist():
                flow, (r0, _, c0, _) = visits.load(of, (i, j)), self.blocks.window(i, j)
                row, col = divmod(first_waiting(flow.codes, flow.waiting), flow.codes.shape[1])
                raise StoreError(
                    f"{self.layers[1].path}: directions lead round in a circle, and what drains "
                    f"through row {r0 + row - RINGS}, column {c0 + col - RINGS} has no end; "
                    "compute them again (terrain-gpu flow-direction --overwrite)"
                )
        finally:
            visits.close()
        run.told |= {"block_visits": visits.visits, "block_loads": visits.loads}

    def _begin(self, at: Block, flow: Flow, weights: Any) -> tuple[int, int]:
        """Set the flow of a block before its first visit.

        Returns
        -------
        int, int
            How many of its cells drain, and how many of these have no weight.
        """
        window = self.blocks.window(*at)
        codes = flow.codes[RINGS:-RINGS, RINGS:-RINGS]
        known, (own,) = self.rule.own(window, codes, weights)
        flow.sums[:] = 0
        flow.sums.reshape(flow.codes.shape)[RINGS:-RINGS, RINGS:-RINGS] = own
        heights, codes = flow.heights, flow.codes
        cells = count_inflows(heights, codes, *self.geometry, window[0], self.how, flow.waiting)
        return cells, cells - np.count_nonzero(known)

    def _pass_on(self, at: Block, flow: Flow, first: bool, work: DivisionWork) -> int:
        """Pass on what can be in a block; return how many cells are done by this."""
        row0 = self.blocks.window(*at)[0]
        done: int = pass_on(
            flow.heights, flow.codes, *self.geometry, row0, self.how, flow.waiting, flow.sums,
            first, work.stack, work.crossed
        )  # fmt: skip
        return done

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        given: Any,
        work: Any,
    ) -> SolvedBlock:
        heights, codes, *more = cells
        inner = np.s_[RINGS:-RINGS, RINGS:-RINGS]
        weights: Any = more[0][inner] if more else None
        flow = Flow.of(heights, codes, work.kept)
        self._begin(at, flow, weights)
        flow.enter(given)
        self._pass_on(at, flow, True, work)
        sums = flow.sums.reshape(codes.shape)[inner]
        self.rule.write(self.blocks.window(*at), codes[inner], weights, [sums], out[0])
        return SolvedBlock(tuple(out))

    # -- the proof ------------------------------------------------------------------------------

    def plan_verify(self, memory_limit: int, threads: int | None) -> None:
        plan_division(self.layers, self.outputs[0], self.blocks, Limits(memory_limit, threads))

    def verify(self, run: Run, found: dict[str, Any]) -> dict[str, Any]:
        result, limits = run.layer(self.into), run.proof_limits
        verify_division(self.layers, result, self.blocks, self.rule, self.how, limits, found)
        return {"verified_cells": self.grid.cells}


class DivisionWork:
    """Work space of one thread: `Flow.kept`, and for `kernels.pass_on`."""

    def __init__(self, blocks: BlockGrid) -> None:
        rows, cols = (min(blocks.block, side) + 2 * RINGS for side in (blocks.rows, blocks.cols))
        self.kept = np.empty(KEPT * rows * cols, np.uint8)
        self.stack = np.empty(rows * cols, np.int32)
        self.crossed = np.empty((3, 3), np.int64)


class _FlowRims(State):
    """What drains through the cells at the rims of all blocks.

    Attributes
    ----------
    without
        How many cells of each block drain and have no weight.
    """

    def __init__(self, blocks: BlockGrid) -> None:
        self.rims = RimLines(blocks, np.int64, UNKNOWN)
        self.without = np.zeros(blocks.shape, np.int64)

    def given(self, phase: Phase, at: Block) -> BlockRim:
        return self.rims.around(at, UNKNOWN)


@contextmanager
def _saved(run: Run, state: _FlowRims) -> Iterator[bool]:
    """Restore what an earlier run has found, if it has, else save what is found inside."""
    if run.folder is None:
        yield False
        return
    arrays = state.rims.rows, state.rims.cols, state.without
    largest = max(one.nbytes for one in arrays)
    slots = Slots(run.folder / "rims", len(arrays), largest, resume=True)
    try:
        restored = all(
            [slot in slots and slots.is_whole(slot, one) for slot, one in enumerate(arrays)]
        )
        if not restored:
            for one, value in zip(arrays, (UNKNOWN, UNKNOWN, 0), strict=True):
                one[...] = value
        yield restored
        if not restored:
            for slot, one in enumerate(arrays):
                slots.save(slot, one)
            slots.sync()
        run.keep_spill(True)
    finally:
        slots.close()


def plan_multiple_flow(
    blocks: BlockGrid,
    read: list[np.dtype],
    *,
    memory_limit: int | str | None = None,
    threads: int | None = None,
) -> StreamPlan:
    """Plan both phases; blocks that are read again in the first are not counted.

    Parameters
    ----------
    read
        Types of the layers: heights, directions, weights if there are any.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    rows, cols, ring = blocks.rows, blocks.cols, (blocks.block + 2 * RINGS) ** 2
    down, across = blocks.shape
    sizes = [dtype.itemsize for dtype in read]
    own = 26 if len(read) < 3 else 60  # what a rule needs for a block
    worker = ring * (KEPT + 4 + own)
    rims = 16 * (down * cols + across * rows)
    return fit_blocks(
        blocks,
        read[0].name,
        "for flow-accumulation of",
        buffer=ring * (sum(sizes) + 8),
        worker=worker,
        scratch=ring * (max(sizes) + 16) + 256 * rows,
        held=rims,
        joined=rims + worker + ring * (sum(sizes) + KEPT) + 256 * rows,
        passes=2,
        bytes_read=2 * sum(layer_bytes(rows, cols, size, blocks.block) for size in sizes),
        bytes_written=layer_bytes(rows, cols, 8, blocks.block),
        memory_limit=memory_limit,
        threads=threads,
    )
