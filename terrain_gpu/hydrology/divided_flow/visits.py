"""What is known of the rims of all blocks: `FlowVisits`.

A block passes on what it can each time it is visited, and is visited again when more has reached
it. Blocks in memory come first, of these the one that most has reached; then blocks that were not
visited yet, and at last those that had to leave memory.
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
"""Of cells around a block: those that drain into it, and those to which they may drain as well."""


INNER = np.s_[RINGS:-RINGS, RINGS:-RINGS]
"""A block without them."""


class KeptCells(NamedTuple):
    """What is kept of each cell of a block between its visits.

    Attributes
    ----------
    dtype
        Of the values of a cell that other blocks must know.
    unknown
        The value of cells of which it is not known yet.
    marks
        Number of further bytes.
    """

    dtype: np.dtype
    unknown: Any
    marks: int = 1

    @property
    def size(self) -> int:
        """Bytes per cell."""
        return self.dtype.itemsize + self.marks


class Flow(NamedTuple):
    """A block with its rings of cells, and its flow so far.

    Attributes
    ----------
    cells
        Filled heights, directions, and what else is held.
    kept
        uint8: `values` and `marks`.
    values
        Of each cell, flat in the first dimension.
    marks
        uint8, shape (`KeptCells.marks`, cells). The first are those of `waiting`, see `kernels`.
    unknown
        See `KeptCells`.
    """

    cells: list[np.ndarray]
    kept: np.ndarray
    values: np.ndarray
    marks: np.ndarray
    unknown: Any

    @classmethod
    def of(cls, cells: list[np.ndarray], of: KeptCells, kept: np.ndarray | None = None) -> Flow:
        """Return the flow of a block, not set yet; `kept` may be longer."""
        n, wide = cells[0].size, of.dtype.itemsize
        kept = np.empty(of.size * n, np.uint8) if kept is None else kept[: of.size * n]
        values = kept[: wide * n].view(of.dtype.base).reshape(n, *of.dtype.shape)
        return cls(cells, kept, values, kept[wide * n :].reshape(of.marks, n), of.unknown)

    @property
    def codes(self) -> np.ndarray:
        return self.cells[1]

    @property
    def waiting(self) -> np.ndarray:
        return self.marks[0]

    def inner(self, cells: np.ndarray) -> np.ndarray:
        """Return values, flat in the first dimension, by rows and columns without the rings."""
        return cells.reshape(*self.codes.shape, *cells.shape[1:])[INNER]

    @property
    def ring(self) -> np.ndarray:
        """What is known of the cells of the block and of those around it, by rows and columns."""
        return self.values.reshape(*self.codes.shape, *self.values.shape[1:])[1:-1, 1:-1]

    def enter(self, ring: BlockRim) -> None:
        """Set what is known of the cells around the block."""
        cells = self.ring
        cells[0], cells[-1], cells[:, 0], cells[:, -1] = ring

    def learn(self, ring: BlockRim) -> None:
        """Add what is known of the cells around the block; what was known stays."""
        cells = self.ring
        lines = cells[0], cells[-1], cells[:, 0], cells[:, -1]
        self.enter(BlockRim(*map(self._with, lines, ring)))

    def learn_rim(self, step: Block, rim: BlockRim) -> None:
        """Add what is known of the rim of a block around this one, at this place: (-1, 0) is N."""
        (down, right), (row, col) = step, ((0, np.s_[1:-1], -1)[k + 1] for k in step)
        side = (rim.south, rim.east if right < 0 else rim.west, rim.north)[down + 1]
        if down and right:
            side = side[-1 if right < 0 else 0]
        self.ring[row, col] = self._with(self.ring[row, col], side)

    def _with(self, before: np.ndarray, found: np.ndarray) -> np.ndarray:
        return np.where(is_unknown(found, self.unknown), before, found)

    def rim(self) -> BlockRim:
        """Return what is known of the cells at the rim of the block."""
        found, waiting = (BlockRim.of(self.inner(one)) for one in (self.values, self.waiting))
        for values, waits in zip(found, waiting, strict=True):
            values[waits != DONE] = self.unknown
        return found


def is_unknown(values: np.ndarray, unknown: Any) -> np.ndarray:
    """Return which values are not known yet; `unknown` may be NaN."""
    found: np.ndarray = (values == unknown) | np.isnan(values)
    return found


class FlowSteps(NamedTuple):
    """What is done with blocks; all but `done` from any thread.

    Attributes
    ----------
    begin
        Returns the flow of a block before its first visit, and the number of its cells.
    read
        Returns the flow of a block with `kept` not set.
    pass_on
        Passes on flow, given whether it is the first visit. Returns how many cells are done by
        this, and how often flow went to each block around, shape (3, 3).
    done
        Is told of blocks that are complete.
    """

    begin: Callable[[Block], tuple[Flow, int]]
    read: Callable[[Block], Flow]
    pass_on: Callable[[Block, Flow, bool], tuple[int, np.ndarray]]
    done: Callable[[Block], None]


class _VisitedFlow(NamedTuple):
    """A block after a visit; `cells` wait for inflow."""

    flow: Flow
    cells: int
    rim: BlockRim
    crossed: np.ndarray


class FlowVisits:
    """Visits of blocks until nothing changes.

    Parameters
    ----------
    rims
        Receives what is known of the cells at the rims of blocks; `KeptCells.unknown` at first.
    spill
        File for blocks that leave memory.
    capacity
        Number of blocks that memory holds.
    kept
        What is kept of a block.

    Attributes
    ----------
    left
        How many cells of each block wait for inflow; -1 before its first visit.
    visits, loads
        How often blocks were visited, and read.
    """

    def __init__(self, rims: RimLines, spill: Path, capacity: int, kept: KeptCells) -> None:
        self.blocks: BlockGrid = rims.blocks
        self.rims, self.capacity, self.unknown = rims, capacity, kept.unknown
        self.left = np.full(self.blocks.shape, -1, np.int64)
        self.visits = self.loads = 0
        self._news = np.zeros(self.blocks.shape, np.int64)
        self._flows: dict[Block, Any] = {}
        size = kept.size * (self.blocks.block + 2 * RINGS) ** 2
        self._slots = Slots(spill, self.blocks.count, size)

    def run(self, of: FlowSteps, threads: int) -> None:
        """Visit blocks, some at a time; all that is known of them changes in this thread only."""
        new = self.blocks.ids()
        busy: dict[Future[_VisitedFlow], Block] = {}
        with ThreadPoolExecutor(threads) as pool:
            while True:
                while len(busy) < threads and (at := self._next(new, busy.values())) is not None:
                    flow = self._flows.pop(at, None)
                    if flow is None:
                        self._make_room(len(busy))
                        self.loads += 1
                    self._news[at] = 0  # the ring has all there was
                    ring, left = self.rims.around(at, self.unknown), int(self.left[at])
                    busy[pool.submit(self._visit, of, at, flow, ring, left)] = at
                if not busy:
                    return
                for one in wait(busy, return_when=FIRST_COMPLETED).done:
                    self._take(busy.pop(one), one.result(), of)

    def _visit(
        self, of: FlowSteps, at: Block, flow: Flow | None, ring: BlockRim, left: int
    ) -> _VisitedFlow:
        """Visit a block, from any thread."""
        first = left < 0
        if first:
            flow, left = of.begin(at)
        elif flow is None:
            flow = self.load(of, at)
        assert flow is not None
        flow.enter(ring)
        done, crossed = of.pass_on(at, flow, first)
        return _VisitedFlow(flow, left - done, flow.rim(), crossed)

    def _take(self, at: Block, found: _VisitedFlow, of: FlowSteps) -> None:
        """Take note of a visit."""
        self.visits += 1
        self.rims.put(at, found.rim)
        self._tell(at, found.crossed)
        self.left[at] = found.cells
        if found.cells:
            self._flows[at] = found.flow  # the last one used
        else:
            of.done(at)

    def load(self, of: FlowSteps, at: Block) -> Flow:
        """Return the flow of a block that was visited and is not complete."""
        if (flow := self._flows.get(at)) is None:
            flow = of.read(at)
            self._slots.load(self._slot(at), flow.kept)
        return flow

    def _next(self, new: Iterator[Block], busy: Collection[Block]) -> Block | None:
        """Return the block to visit next, if there is one."""
        here = [at for at in self._flows if self._news[at]]
        if here:
            return max(here, key=self._news.__getitem__)
        if (at := next(new, None)) is not None:
            return at
        news = self._news.copy()
        for at in busy:
            news[at] = 0
        i, j = (int(k) for k in np.unravel_index(news.argmax(), news.shape))
        return (i, j) if news[i, j] else None

    def _tell(self, at: Block, crossed: np.ndarray) -> None:
        """Count flow to the blocks around one."""
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
        """Forget all blocks, and remove what was spilled."""
        self._flows.clear()
        self._slots.close(keep=False)
