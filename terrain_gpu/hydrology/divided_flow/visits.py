"""Visits of blocks until flow has passed through all of them: `FlowVisits`.

Each visit of a block passes on as much flow as possible; the block is visited again once more has
reached it. Blocks in memory come first, among them the one that flow has reached most often; then
blocks not yet visited; and last those that had to leave memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...grid import Block, BlockGrid
from ...store.spill import Slots
from ..common.rims import BlockRim, RimLines
from .kernels import DONE

RINGS = 2
"""Margin around a block: the cells that drain into it, and those they may also drain to."""


INNER = np.s_[RINGS:-RINGS, RINGS:-RINGS]
"""A block without that margin."""


class KeptCells(NamedTuple):
    """The values kept for each cell of a block between its visits.

    Attributes
    ----------
    dtype
        Data type of the value of a cell that other blocks need.
    unknown
        Stands for a value that is not known yet.
    marks
        Number of additional bytes per cell.
    """

    dtype: np.dtype
    unknown: Any
    marks: int = 1

    @property
    def size(self) -> int:
        """Bytes per cell."""
        return self.dtype.itemsize + self.marks


class Flow(NamedTuple):
    """A block with its margin of cells, and its flow so far.

    Attributes
    ----------
    cells
        Filled elevations, directions, and the other held inputs.
    kept
        uint8, the memory of `values` and `marks`.
    values
        The value of each cell; flat in the first dimension.
    marks
        uint8, shape (`KeptCells.marks`, cells). The first row is `waiting`; see `kernels`.
    unknown
        See `KeptCells`.
    """

    cells: list[np.ndarray]
    kept: np.ndarray
    values: np.ndarray
    marks: np.ndarray
    unknown: Any

    @classmethod
    def of(cls, cells: list[np.ndarray], cell: KeptCells, memory: np.ndarray | None = None) -> Flow:
        """Return the flow of a block, not initialised; `memory` may be longer than needed."""
        n, wide = cells[0].size, cell.dtype.itemsize
        memory = np.empty(cell.size * n, np.uint8) if memory is None else memory[: cell.size * n]
        values = memory[: wide * n].view(cell.dtype.base).reshape(n, *cell.dtype.shape)
        return cls(cells, memory, values, memory[wide * n :].reshape(cell.marks, n), cell.unknown)

    @property
    def codes(self) -> np.ndarray:
        return self.cells[1]

    @property
    def waiting(self) -> np.ndarray:
        return self.marks[0]

    def inner(self, cells: np.ndarray) -> np.ndarray:
        """Turn flat values into rows and columns, without the margin."""
        return cells.reshape(*self.codes.shape, *cells.shape[1:])[INNER]

    @property
    def ring(self) -> np.ndarray:
        """The values of the block and of the cells next to it, by rows and columns."""
        return self.values.reshape(*self.codes.shape, *self.values.shape[1:])[1:-1, 1:-1]

    def enter(self, ring: BlockRim) -> None:
        """Set the values of the cells around the block."""
        cells = self.ring
        cells[0], cells[-1], cells[:, 0], cells[:, -1] = ring

    def learn(self, ring: BlockRim) -> None:
        """Set those values around the block that `ring` knows; keep the others."""
        cells = self.ring
        lines = cells[0], cells[-1], cells[:, 0], cells[:, -1]
        self.enter(BlockRim(*map(self._with, lines, ring)))

    def learn_rim(self, step: Block, rim: BlockRim) -> None:
        """Set the values that the rim of a neighbouring block knows.

        `step` is the offset of that block, for example (-1, 0) for the one to the north.
        """
        (down, right), (row, col) = step, ((0, np.s_[1:-1], -1)[k + 1] for k in step)
        side = (rim.south, rim.east if right < 0 else rim.west, rim.north)[down + 1]
        if down and right:
            side = side[-1 if right < 0 else 0]
        self.ring[row, col] = self._with(self.ring[row, col], side)

    def _with(self, before: np.ndarray, values: np.ndarray) -> np.ndarray:
        return np.where(is_unknown(values, self.unknown), before, values)

    def rim(self) -> BlockRim:
        """Return the values of the cells at the rim of the block, as far as they are known."""
        rim, waiting = (BlockRim.of(self.inner(one)) for one in (self.values, self.waiting))
        for values, waits in zip(rim, waiting, strict=True):
            values[waits != DONE] = self.unknown
        return rim


def is_unknown(values: np.ndarray, unknown: Any) -> np.ndarray:
    """Return the mask of values not known yet: those equal to `unknown`, and NaN."""
    mask: np.ndarray = (values == unknown) | np.isnan(values)
    return mask


class FlowSteps(NamedTuple):
    """The functions called for blocks; all but `done` may be called from any thread.

    Attributes
    ----------
    begin
        Returns the initial flow of a block, and the number of its cells that drain.
    read
        Returns the flow of a block with `kept` not initialised.
    pass_on
        Passes flow on; the last argument says whether this is the first visit. Returns the number
        of cells completed, and how often flow went to each block around, shape (3, 3).
    done
        Called for each block that is complete.
    """

    begin: Callable[[Block], tuple[Flow, int]]
    read: Callable[[Block], Flow]
    pass_on: Callable[[Block, Flow, bool], tuple[int, np.ndarray]]
    done: Callable[[Block], None]


class _VisitedFlow(NamedTuple):
    """A block after a visit; `cells` is the number of cells that wait for inflow."""

    flow: Flow
    cells: int
    rim: BlockRim
    crossed: np.ndarray


class FlowVisits:
    """Visits of blocks until nothing changes.

    Parameters
    ----------
    rims
        Receives the values of the cells at the rims of blocks; `KeptCells.unknown` at first.
    spill
        File for blocks that leave memory.
    capacity
        Number of blocks held in memory.
    kept
        The values kept for each cell.

    Attributes
    ----------
    left
        Number of cells of each block that wait for inflow; -1 before its first visit.
    visits, loads
        Number of visits, and number of times that blocks were read.
    """

    def __init__(self, rims: RimLines, spill: Path, capacity: int, cell: KeptCells) -> None:
        self.blocks: BlockGrid = rims.blocks
        self.rims, self.capacity, self.unknown = rims, capacity, cell.unknown
        self.left = np.full(self.blocks.shape, -1, np.int64)
        self.visits = self.loads = 0
        self._news = np.zeros(self.blocks.shape, np.int64)
        self._flows: dict[Block, Any] = {}
        size = cell.size * (self.blocks.block + 2 * RINGS) ** 2
        self._slots = Slots(spill, self.blocks.count, size)

    def run(self, of: FlowSteps, threads: int) -> None:
        """Visit blocks with several threads. Only this thread changes the state."""
        new = self.blocks.ids()
        busy: dict[Future[_VisitedFlow], Block] = {}
        with ThreadPoolExecutor(threads) as pool:
            while True:
                while len(busy) < threads and (at := self._next(new, busy.values())) is not None:
                    flow = self._flows.pop(at, None)
                    if flow is None:
                        self._make_room(len(busy))
                        self.loads += 1
                    self._news[at] = 0  # the ring contains it all
                    ring, waiting = self.rims.around(at, self.unknown), int(self.left[at])
                    busy[pool.submit(self._visit, of, at, flow, ring, waiting)] = at
                if not busy:
                    return
                for one in wait(busy, return_when=FIRST_COMPLETED).done:
                    self._take(busy.pop(one), one.result(), of)

    def _visit(
        self, of: FlowSteps, at: Block, flow: Flow | None, ring: BlockRim, waiting: int
    ) -> _VisitedFlow:
        """Visit a block, from any thread."""
        first = waiting < 0
        if first:
            flow, waiting = of.begin(at)
        elif flow is None:
            flow = self.load(of, at)
        assert flow is not None
        flow.enter(ring)
        done, crossed = of.pass_on(at, flow, first)
        return _VisitedFlow(flow, waiting - done, flow.rim(), crossed)

    def _take(self, at: Block, visited: _VisitedFlow, of: FlowSteps) -> None:
        """Record the result of a visit."""
        self.visits += 1
        self.rims.put(at, visited.rim)
        self._tell(at, visited.crossed)
        self.left[at] = visited.cells
        if visited.cells:
            self._flows[at] = visited.flow  # as the most recently used
        else:
            of.done(at)

    def load(self, of: FlowSteps, at: Block) -> Flow:
        """Return the flow of a block that was visited before and is not complete."""
        if (flow := self._flows.get(at)) is None:
            flow = of.read(at)
            self._slots.load(self._slot(at), flow.kept)
        return flow

    def _next(self, new: Iterator[Block], busy: Collection[Block]) -> Block | None:
        """Return the block to visit next, or None."""
        in_memory = [at for at in self._flows if self._news[at]]
        if in_memory:
            return max(in_memory, key=self._news.__getitem__)
        if (at := next(new, None)) is not None:
            return at
        news = self._news.copy()
        for at in busy:
            news[at] = 0
        i, j = (int(k) for k in np.unravel_index(news.argmax(), news.shape))
        return (i, j) if news[i, j] else None

    def _tell(self, at: Block, crossed: np.ndarray) -> None:
        """Count the flow that went to the blocks around one."""
        (i, j), (down, across) = at, self.blocks.shape
        for r in range(max(i - 1, 0), min(i + 2, down)):
            for c in range(max(j - 1, 0), min(j + 2, across)):
                if self.left[r, c]:
                    self._news[r, c] += crossed[r - i + 1, c - j + 1]

    def _make_room(self, busy: int) -> None:
        while self._flows and len(self._flows) + busy >= self.capacity:
            at, flow = next(iter(self._flows.items()))
            self._slots.save(self._slot(at), flow.kept)
            del self._flows[at]

    def _slot(self, at: Block) -> int:
        return at[0] * self.blocks.shape[1] + at[1]

    def close(self) -> None:
        """Release all blocks, and remove the spill file."""
        self._flows.clear()
        self._slots.close(keep=False)
