"""The base of operations over divided flow: `DividedFlow`.

1. *Flow*: visit blocks until the values of all cells at their rims are known.
2. *Cells*: read each block again, together with the values around it, and write it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from typing import ClassVar

import numpy as np

from ...engine.machine import Machine
from ...engine.operation import Operation, Phase, SolvedBlock, State
from ...engine.plan import StreamPlan, fit_blocks, layer_bytes
from ...engine.run import Run
from ...errors import StoreError
from ...facts import Findings
from ...grid import Block, BlockGrid
from ...store import Layer
from ...store.spill import Slots
from ..common.flow_loops import loop_error
from ..common.rims import BlockRim, RimLines
from .division import geometry
from .kernels import first_waiting
from .remote import FLOWS, FlowDispatch
from .visits import RINGS, Flow, FlowSteps, FlowVisits, KeptCells

_FLOW, _CELLS = Phase("flow"), Phase("cells", writes=True)


class DividedFlow(Operation):
    """An operation whose first two inputs are filled elevations and flow directions.

    Attributes
    ----------
    held
        Number of inputs kept in memory between visits of a block. The others are read for the first
        visit only.
    """

    halo = RINGS
    phases = (_FLOW, _CELLS)
    held: ClassVar[int] = 2

    @property
    @abstractmethod
    def division(self) -> tuple[int, float]:
        """The method and the exponent, as kernels take them."""

    @property
    @abstractmethod
    def kept(self) -> KeptCells:
        """The values kept for each cell of a block between its visits."""

    @property
    @abstractmethod
    def working(self) -> int:
        """Bytes per cell that a worker needs in addition to `DivisionWork`."""

    @abstractmethod
    def start(self, at: Block, flow: Flow, unheld: list[np.ndarray]) -> tuple[int, np.ndarray]:
        """Initialise the flow of a block before its first visit.

        Parameters
        ----------
        unheld
            Cells of the inputs that are not held, with a margin of `RINGS` cells.

        Returns
        -------
        int
            The number of cells of the block that drain.
        numpy.ndarray
            int64, shape (3,): how many of these have no weight, and what `WeightRule.few_units`
            counts.
        """

    @abstractmethod
    def advance(self, at: Block, flow: Flow, first: bool, work: DivisionWork) -> int:
        """Pass flow on in a block as far as possible; return the number of cells completed."""

    @abstractmethod
    def finish(
        self, at: Block, flow: Flow, unheld: list[np.ndarray], out: list[np.ndarray]
    ) -> None:
        """Write the outputs of a complete block into `out`."""

    def hold(self, cells: list[np.ndarray]) -> list[np.ndarray]:
        """Convert the cells of the held inputs to what kernels take."""
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

    def execute(self, run: Run) -> Findings:
        state = FlowRims(self.blocks, self.kept)
        with run.report.phase(_FLOW.name), _saved(run, state) as restored:
            if restored:
                for at in self.blocks.ids():
                    run.tick(at)
            else:
                self._find_rims(run, state)
                self.refuse_found(state)
        run.map(_CELLS, state)
        vars(self).pop("geometry", None)  # frees memory; the proof computes its own
        return self.findings(state)

    def refuse_found(self, state: FlowRims) -> None:
        """Raise an error for invalid input that the first visits of blocks have found."""

    def findings(self, state: FlowRims) -> Findings:
        """Return the totals to record."""
        return {}

    def begin_flow(self, at: Block) -> tuple[Flow, int, np.ndarray]:
        """Read a block; return its initial flow and what `start` returns."""
        flow = self._read_flow(at)
        return flow, *self.start(at, flow, self._read_rings(at, self.layers[self.held :]))

    def _read_flow(self, at: Block) -> Flow:
        cells = self._read_rings(at, self.layers[: self.held])
        return Flow.of(self.hold(cells), self.kept)

    def _read_rings(self, at: Block, layers: list[Layer]) -> list[np.ndarray]:
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
            raise self._cycle(state, (i, j))
        run.told |= {"block_visits": visits.visits, "block_loads": visits.loads}

    def _visit_here(self, run: Run, state: FlowRims, capacity: int) -> FlowVisits:
        """Visit blocks in this process, keeping `capacity` blocks besides those being visited."""
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

    def _cycle(self, state: FlowRims, at: Block) -> StoreError:
        """Return the error for a block in which cells still wait for inflow at the end."""
        flow, _, _ = self.begin_flow(at)
        flow.enter(state.rims.around(at, state.unknown))
        self.advance(at, flow, True, self.new_work())
        row, col = divmod(first_waiting(flow.codes, flow.waiting), flow.codes.shape[1])
        r0, _, c0, _ = self.blocks.window(*at)
        return loop_error(self.layers[1], r0 + row - RINGS, c0 + col - RINGS)

    def close(self) -> None:
        FLOWS.forget()

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        context: BlockRim,
        work: DivisionWork,
    ) -> SolvedBlock:
        unheld = cells[self.held :]
        flow = Flow.of(self.hold(cells[: self.held]), self.kept, work.kept)
        self.start(at, flow, unheld)
        flow.enter(context)
        self.advance(at, flow, True, work)
        self.finish(at, flow, unheld, out)
        return SolvedBlock(tuple(out))


class DivisionWork:
    """Work space of one thread: memory for `Flow.kept` and for kernels."""

    def __init__(self, blocks: BlockGrid, cell: KeptCells) -> None:
        rows, cols = (min(blocks.block, side) + 2 * RINGS for side in (blocks.rows, blocks.cols))
        self.kept = np.empty(cell.size * rows * cols, np.uint8)
        self.stack = np.empty(rows * cols, np.int32)
        self.crossed = np.empty((3, 3), np.int64)


class FlowRims(State):
    """The values of the cells at the rims of all blocks, as far as they are known.

    Attributes
    ----------
    counts
        int64, shape (block rows, block columns, 3): the counts that `DividedFlow.start` returns.
    """

    def __init__(self, blocks: BlockGrid, cell: KeptCells) -> None:
        self.unknown = cell.unknown
        self.rims = RimLines(blocks, cell.dtype, cell.unknown)
        self.counts = np.zeros((*blocks.shape, 3), np.int64)

    def given(self, phase: Phase, at: Block) -> BlockRim:
        return self.rims.around(at, self.unknown)


@contextmanager
def _saved(run: Run, state: FlowRims) -> Iterator[bool]:
    """Restore the rims that an earlier run saved, if any; otherwise save them at the end.

    Yields whether they were restored.
    """
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
    cell: KeptCells,
    *,
    held: int = 2,
    working: int = 26,
    machine: Machine,
) -> StreamPlan:
    """Plan both phases. Blocks that the first phase reads more than once are counted once.

    Parameters
    ----------
    read
        Data types of the inputs.
    written
        Number of outputs, each of 8 bytes per cell.
    held, working
        See `DividedFlow`.

    Raises
    ------
    PlanError
        If the memory limit is too small.
    """
    rows, cols, ring = blocks.rows, blocks.cols, blocks.largest(RINGS)
    down, across = blocks.shape
    sizes = [dtype.itemsize for dtype in read]
    worker = ring * (cell.size + 4 + working)
    rims = 2 * cell.dtype.itemsize * (down * cols + across * rows)
    return fit_blocks(
        blocks,
        read[0].name,
        f"for {command} of",
        buffer=ring * (sum(sizes) + 8 * written),
        worker=worker,
        scratch=blocks.largest(RINGS, tiled=True) * (max(sizes) + 16 * written),
        common=256 * rows,
        held=rims,
        joined=rims + worker + ring * (sum(sizes) + cell.size),
        passes=2,
        bytes_read=2 * sum(layer_bytes(rows, cols, size, blocks.block) for size in sizes),
        bytes_written=written * layer_bytes(rows, cols, 8, blocks.block),
        machine=machine,
    )
