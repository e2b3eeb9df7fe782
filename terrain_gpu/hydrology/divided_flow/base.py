"""What operations over divided flow share: `DividedFlow`.

1. *Flow*: blocks are visited until what other blocks must know of all cells at their rims is known.
2. *Cells*: each block is read again, with what is known of the cells around it, and written.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar

import numpy as np

from ...engine.machine import Machine
from ...engine.operation import Operation, Phase, SolvedBlock, State
from ...engine.plan import StreamPlan, fit_blocks, layer_bytes
from ...engine.run import Run
from ...errors import StoreError
from ...grid import Block, BlockGrid
from ...store.spill import Slots
from ..common.flow_loops import circle
from ..common.rims import BlockRim, RimLines
from .division import geometry
from .kernels import first_waiting
from .remote import FLOWS, FlowDispatch
from .visits import RINGS, Flow, FlowSteps, FlowVisits, KeptCells

_FLOW, _CELLS = Phase("flow"), Phase("cells", writes=True)


class DividedFlow(Operation):
    """An operation over filled heights and directions, its first two inputs.

    Attributes
    ----------
    held
        How many inputs stay in memory with a block that is visited; others are read for the first
        visit alone.
    """

    halo = RINGS
    phases = (_FLOW, _CELLS)
    held: ClassVar[int] = 2

    @property
    @abstractmethod
    def how(self) -> tuple[int, float]:
        """The method and the exponent, for kernels."""

    @property
    @abstractmethod
    def kept(self) -> KeptCells:
        """What is kept of a block between its visits."""

    @property
    @abstractmethod
    def working(self) -> int:
        """Bytes per cell that a worker needs beside `DivisionWork`."""

    @abstractmethod
    def start(self, at: Block, flow: Flow, more: list[np.ndarray]) -> tuple[int, np.ndarray]:
        """Set the flow of a block before its first visit.

        Parameters
        ----------
        more
            Cells of the inputs that are not held, with `RINGS`.

        Returns
        -------
        int, numpy.ndarray
            How many of its cells drain; how many of these lack a weight, and the numbers of
            `WeightRule.few_units`.
        """

    @abstractmethod
    def advance(self, at: Block, flow: Flow, first: bool, work: DivisionWork) -> int:
        """Go on as far as can be in a block; return how many cells are done by this."""

    @abstractmethod
    def finish(self, at: Block, flow: Flow, more: list[np.ndarray], out: list[np.ndarray]) -> None:
        """Compute the outputs of a block that is complete."""

    def hold(self, cells: list[np.ndarray]) -> list[np.ndarray]:
        """Return cells of the inputs that are held, as kernels take them."""
        return cells

    @cached_property
    def geometry(self) -> tuple[np.ndarray, np.ndarray]:
        return geometry(self.grid)

    def plan(self, machine: Machine) -> StreamPlan:
        return plan_divided(
            self.blocks,
            self.command,
            [layer.dtype for layer in self.layers],
            len(self.outputs),
            self.kept,
            held=self.held,
            working=self.working,
            machine=machine,
        )

    def new_work(self) -> DivisionWork:
        return DivisionWork(self.blocks, self.kept)

    def execute(self, run: Run) -> dict[str, Any]:
        state = FlowRims(self.blocks, self.kept)
        with run.report.phase(_FLOW.name), _saved(run, state) as restored:
            if restored:
                for at in self.blocks.ids():
                    run.tick(at)
            else:
                self._find_rims(run, state)
                self.refuse_found(state)
        run.map(_CELLS, state)
        vars(self).pop("geometry", None)  # the proof has its own
        return self.findings(state)

    def refuse_found(self, state: FlowRims) -> None:
        """Refuse what the first visits of all blocks have shown."""

    def findings(self, state: FlowRims) -> dict[str, Any]:
        """Return the findings."""
        return {}

    def begin_flow(self, at: Block) -> tuple[Flow, int, np.ndarray]:
        """Read a block; return its flow before its first visit, and what `start` returns."""
        flow = self._read_flow(at)
        return flow, *self.start(at, flow, self._read_rings(at, self.layers[self.held :]))

    def _read_flow(self, at: Block) -> Flow:
        cells = self._read_rings(at, self.layers[: self.held])
        return Flow.of(self.hold(cells), self.kept)

    def _read_rings(self, at: Block, layers: list[Any]) -> list[np.ndarray]:
        window = self.blocks.window(*at)
        return [layer.read_ring(window, halo=RINGS) for layer in layers]

    def _find_rims(self, run: Run, state: FlowRims) -> None:
        sizes = [layer.dtype.itemsize for layer in self.layers[: self.held]]
        one = self.blocks.largest(RINGS) * (sum(sizes) + self.kept.size)
        spare = max(run.plan.memory_limit - run.plan.memory, 0)
        visits: FlowDispatch | FlowVisits
        if run.engine.remote:
            if run.cluster is not None:
                spare = run.cluster.spare(run.plan)
            visits = FlowDispatch(run, state, spare // one)
            visits.run()
        else:
            visits = self._visit_here(run, state, spare // one)
        for i, j in np.argwhere(visits.left)[:1].tolist():
            raise self._circle(state, (i, j))
        run.told |= {"block_visits": visits.visits, "block_loads": visits.loads}

    def _visit_here(self, run: Run, state: FlowRims, capacity: int) -> FlowVisits:
        """Visit blocks in this process, which keeps so many beside those that are visited."""
        threads = max(run.plan.workers, 1)
        works: SimpleQueue[DivisionWork] = SimpleQueue()
        for _ in range(threads):
            works.put(self.new_work())
        capacity = self.blocks.count if run.folder is None else threads + capacity
        visits = FlowVisits(state.rims, (run.folder or Path()) / "flow", capacity, self.kept)

        def begin(at: Block) -> tuple[Flow, int]:
            flow, count, state.counts[at] = self.begin_flow(at)
            return flow, count

        def advance(at: Block, flow: Flow, first: bool) -> tuple[int, np.ndarray]:
            work = works.get()
            try:
                return self.advance(at, flow, first, work), work.crossed.copy()
            finally:
                works.put(work)

        try:
            visits.run(FlowSteps(begin, self._read_flow, advance, run.tick), threads)
        finally:
            visits.close()
        return visits

    def _circle(self, state: FlowRims, at: Block) -> StoreError:
        """Return the error for a block where cells wait for inflow though nothing is left to do."""
        flow, _, _ = self.begin_flow(at)
        flow.enter(state.rims.around(at, state.unknown))
        self.advance(at, flow, True, self.new_work())
        row, col = divmod(first_waiting(flow.codes, flow.waiting), flow.codes.shape[1])
        r0, _, c0, _ = self.blocks.window(*at)
        return circle(self.layers[1], r0 + row - RINGS, c0 + col - RINGS)

    def close(self) -> None:
        FLOWS.forget()

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        given: Any,
        work: Any,
    ) -> SolvedBlock:
        more = cells[self.held :]
        flow = Flow.of(self.hold(cells[: self.held]), self.kept, work.kept)
        self.start(at, flow, more)
        flow.enter(given)
        self.advance(at, flow, True, work)
        self.finish(at, flow, more, out)
        return SolvedBlock(tuple(out))


class DivisionWork:
    """Work space of one thread: `Flow.kept`, and for kernels."""

    def __init__(self, blocks: BlockGrid, kept: KeptCells) -> None:
        rows, cols = (min(blocks.block, side) + 2 * RINGS for side in (blocks.rows, blocks.cols))
        self.kept = np.empty(kept.size * rows * cols, np.uint8)
        self.stack = np.empty(rows * cols, np.int32)
        self.crossed = np.empty((3, 3), np.int64)


class FlowRims(State):
    """What is known of the cells at the rims of all blocks.

    Attributes
    ----------
    counts
        Of each block, see `DividedFlow.start`.
    """

    def __init__(self, blocks: BlockGrid, kept: KeptCells) -> None:
        self.unknown = kept.unknown
        self.rims = RimLines(blocks, kept.dtype, kept.unknown)
        self.counts = np.zeros((*blocks.shape, 3), np.int64)

    def given(self, phase: Phase, at: Block) -> BlockRim:
        return self.rims.around(at, self.unknown)


@contextmanager
def _saved(run: Run, state: FlowRims) -> Iterator[bool]:
    """Restore what an earlier run has found, if it has, else save what is found inside."""
    if run.folder is None:
        yield False
        return
    arrays = state.rims.rows, state.rims.cols, state.counts
    largest = max(one.nbytes for one in arrays)
    slots = Slots(run.folder / "rims", len(arrays), largest, resume=True)
    try:
        restored = all(
            [slot in slots and slots.is_whole(slot, one) for slot, one in enumerate(arrays)]
        )
        if not restored:
            for one, value in zip(arrays, (state.unknown, state.unknown, 0), strict=True):
                one[...] = value
        yield restored
        if not restored:
            for slot, one in enumerate(arrays):
                slots.save(slot, one)
            slots.sync()
        run.keep_spill(True)
    finally:
        slots.close()


def plan_divided(
    blocks: BlockGrid,
    command: str,
    read: list[np.dtype],
    written: int,
    kept: KeptCells,
    *,
    held: int = 2,
    working: int = 26,
    machine: Machine,
) -> StreamPlan:
    """Plan both phases; blocks that are read again in the first are not counted.

    Parameters
    ----------
    read
        Types of the inputs.
    written
        Number of outputs, of 8 bytes per cell each.
    held, working
        See `DividedFlow`.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    rows, cols, ring = blocks.rows, blocks.cols, blocks.largest(RINGS)
    down, across = blocks.shape
    sizes = [dtype.itemsize for dtype in read]
    worker = ring * (kept.size + 4 + working)
    rims = 2 * kept.dtype.itemsize * (down * cols + across * rows)
    return fit_blocks(
        blocks,
        read[0].name,
        f"for {command} of",
        buffer=ring * (sum(sizes) + 8 * written),
        worker=worker,
        scratch=blocks.largest(RINGS, tiled=True) * (max(sizes) + 16 * written),
        common=256 * rows,
        held=rims,
        joined=rims + worker + ring * (sum(sizes) + kept.size),
        passes=2,
        bytes_read=2 * sum(layer_bytes(rows, cols, size, blocks.block) for size in sizes),
        bytes_written=written * layer_bytes(rows, cols, 8, blocks.block),
        machine=machine,
    )
