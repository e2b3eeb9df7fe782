"""What drains through the rims of all blocks: `Visits`.

A block passes on what it can each time it is visited, and is visited again when more flow has
reached it. Blocks in memory come first, of these the one that most flow has reached; then blocks
that were not visited yet, and at last those that had to leave memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...grid import Block, BlockGrid
from ...store.spill import Slots
from ..rims import BlockRim, RimLines
from .kernels import DONE, UNKNOWN

RINGS = 2
"""Of cells around a block: those that drain into it, and those to which they may drain as well."""

KEPT = 9
"""Bytes per cell of `Flow.kept`."""


class Flow(NamedTuple):
    """A block with its rings of cells, and its flow so far.

    Attributes
    ----------
    heights, codes
        Filled heights and directions.
    kept
        uint8: `sums` and `waiting`.
    sums, waiting
        See `kernels`, flat.
    """

    heights: np.ndarray
    codes: np.ndarray
    kept: np.ndarray
    sums: np.ndarray
    waiting: np.ndarray

    @classmethod
    def of(cls, heights: np.ndarray, codes: np.ndarray, kept: np.ndarray | None = None) -> Flow:
        """Return the flow of a block, not set yet; `kept` may be longer."""
        n = codes.size
        kept = np.empty(KEPT * n, np.uint8) if kept is None else kept[: KEPT * n]
        return cls(heights, codes, kept, kept[: 8 * n].view(np.int64), kept[8 * n :])

    def enter(self, ring: BlockRim) -> None:
        """Set what drains through the cells around the block."""
        sums = self.sums.reshape(self.codes.shape)[1:-1, 1:-1]
        sums[0], sums[-1], sums[:, 0], sums[:, -1] = ring

    def rim(self) -> BlockRim:
        """Return what drains through the cells at the rim of the block, where it is known."""
        sums, waiting = (
            BlockRim.of(cells.reshape(self.codes.shape)[RINGS:-RINGS, RINGS:-RINGS])
            for cells in (self.sums, self.waiting)
        )
        for values, waits in zip(sums, waiting, strict=True):
            values[waits != DONE] = UNKNOWN
        return sums


class Blocks(NamedTuple):
    """What is done with blocks.

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


class Visits:
    """Visits of blocks until nothing changes.

    Parameters
    ----------
    rims
        Receives what drains through the cells at the rims of blocks; `UNKNOWN` at first.
    spill
        File for blocks that leave memory.
    capacity
        Number of blocks that memory holds.

    Attributes
    ----------
    left
        How many cells of each block wait for inflow; -1 before its first visit.
    visits, loads
        How often blocks were visited, and read.
    """

    def __init__(self, rims: RimLines, spill: Path, capacity: int) -> None:
        self.blocks: BlockGrid = rims.blocks
        self.rims, self.capacity = rims, capacity
        self.left = np.full(self.blocks.shape, -1, np.int64)
        self.visits = self.loads = 0
        self._news = np.zeros(self.blocks.shape, np.int64)
        self._flows: dict[Block, Any] = {}
        self._slots = Slots(spill, self.blocks.count, KEPT * (self.blocks.block + 2 * RINGS) ** 2)

    def run(self, of: Blocks) -> None:
        """Visit blocks."""
        for at in self._order():
            first = self.left[at] < 0
            flow = self._flows.pop(at, None)
            if flow is None:
                self._make_room()
                self.loads += 1
                if first:
                    flow, self.left[at] = of.begin(at)
                else:
                    flow = self.load(of, at)
            flow.enter(self.rims.around(at, UNKNOWN))
            done, crossed = of.pass_on(at, flow, first)
            self.visits += 1
            self.left[at] -= done
            self.rims.put(at, flow.rim())
            self._tell(at, crossed)
            if self.left[at]:
                self._flows[at] = flow  # the last one used
            else:
                of.done(at)

    def load(self, of: Blocks, at: Block) -> Flow:
        """Return the flow of a block that was visited and is not complete."""
        if (flow := self._flows.get(at)) is None:
            flow = of.read(at)
            self._slots.load(self._slot(at), flow.kept)
        return flow

    def _order(self) -> Iterator[Block]:
        """Yield the block to visit next, as long as there is one."""
        new = self.blocks.ids()
        while True:
            here = [at for at in self._flows if self._news[at]]
            if here:
                yield max(here, key=self._news.__getitem__)
            elif (at := next(new, None)) is not None:
                yield at
            elif self._news.any():
                i, j = np.unravel_index(self._news.argmax(), self._news.shape)
                yield int(i), int(j)
            else:
                return

    def _tell(self, at: Block, crossed: np.ndarray) -> None:
        """Count flow to the blocks around one, which has heard all there was."""
        (i, j), (down, across) = at, self.blocks.shape
        self._news[at] = 0
        for r in range(max(i - 1, 0), min(i + 2, down)):
            for c in range(max(j - 1, 0), min(j + 2, across)):
                if self.left[r, c] > 0:  # others hear it at their first visit
                    self._news[r, c] += crossed[r - i + 1, c - j + 1]

    def _make_room(self) -> None:
        while len(self._flows) >= self.capacity:
            at, flow = next(iter(self._flows.items()))
            self._slots.save(self._slot(at), flow.kept)
            del self._flows[at]

    def _slot(self, at: Block) -> int:
        return at[0] * self.blocks.shape[1] + at[1]

    def close(self) -> None:
        """Forget all blocks, and remove what was spilled."""
        self._flows.clear()
        self._slots.close(keep=False)
