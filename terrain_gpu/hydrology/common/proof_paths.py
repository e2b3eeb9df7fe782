"""Flow paths along a layer of directions for proofs: within blocks, then between them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...engine.plan import StreamPlan
from ...engine.proof import wrong
from ...grid import Block, BlockGrid
from ...store.readable import Readable
from .code_values import NOWHERE
from .codes import end_ways, no_code
from .proof_gathered import GatheredParts
from .proof_kernels import crossings, entries, order_cells, order_ways, ways_out

ORDER_BYTES = 45
"""Bytes per cell of a block for a worker that follows flow paths and adds up along them."""

PATHS_BYTES = 20
"""Bytes per cell of a block for a worker that only follows flow paths."""

BETWEEN = "cells that drain to other blocks"
"""What exceeds the memory limit, for messages."""

_WAY_BYTES = 8 * 8
"""Bytes for a cell where flow leaves a block and one where it enters."""


def ways_between(blocks: BlockGrid) -> int:
    """Return the planned number of cells that drain into another block; up to twice as many may."""
    return blocks.line_cells


def paths_bytes(blocks: BlockGrid) -> int:
    """Return the bytes planned for `FlowPaths`."""
    return _WAY_BYTES * ways_between(blocks)


class BlockFlow(NamedTuple):
    """The flow paths of a block that continue in other blocks or come from there.

    Attributes
    ----------
    target
        Ids of the cells, in other blocks, to which paths leave the block.
    entered, exit
        Ids of the cells where paths enter the block, and the index in `target` where each leaves
        it, -1 if it ends inside.
    """

    target: np.ndarray
    entered: np.ndarray
    exit: np.ndarray


class BlockPaths(NamedTuple):
    """Follows flow paths within blocks; can be sent to workers.

    Attributes
    ----------
    codes
        The layer of directions.
    blocks
        The blocks.
    """

    codes: Readable
    blocks: BlockGrid

    def within(
        self, at: Block, codes: np.ndarray, stops: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return where cells drain to within the block, and their order; see `order_cells`.

        Parameters
        ----------
        codes
            uint8, with a margin of one cell. Receives 0 at `stops`, and 255 for cells that do not
            drain.
        stops
            bool, the cells where flow paths end, with a margin of one cell.

        Raises
        ------
        StoreError
            If a cell holds no D8 code.
        VerificationError
            If the directions form a loop.
        """
        r0, _, c0, c1 = window = self.blocks.window(*at)
        end_ways(self.codes, self.codes.grid, window, codes)
        if stops is not None:
            codes[stops & (codes != NOWHERE)] = 0
        size = (codes.shape[0] - 2) * (codes.shape[1] - 2)
        target, order = np.empty(size, np.int32), np.empty(size, np.int32)
        count, cell = order_cells(codes, target, np.empty(size, np.uint8), order)
        if cell >= 0:
            row, col = divmod(cell, c1 - c0)
            code = int(codes[row + 1, col + 1])
            if target[cell] == -4:
                raise no_code(self.codes, r0 + row, c0 + col, code)
            problem = f"direction {code} leads into a loop"
            wrong(self.codes, problem, "acyclic", r0 + row, c0 + col)
        return target, order[:count]

    def look(
        self, at: Block, codes: np.ndarray, target: np.ndarray, order: np.ndarray
    ) -> tuple[np.ndarray, BlockFlow]:
        """Return the cells where flow paths leave a block, and what `FlowPaths.add` takes."""
        window, cols = self.blocks.window(*at), self.blocks.cols
        exits = np.empty(len(target), np.int32)
        leaving = np.empty(ways_out(target, order, exits), np.int64)
        over = np.empty_like(leaving)
        corner = np.array([window[0], window[2], cols])
        crossings(codes, corner, target, exits, leaving, over)
        entered = np.empty(len(target), bool)
        entries(codes, entered)
        into = np.flatnonzero(entered & (codes[1:-1, 1:-1].ravel() != NOWHERE))
        row, col = np.divmod(into, window[3] - window[2])
        ids = (window[0] + row) * cols + window[2] + col
        return leaving, BlockFlow(over, ids, exits[into].astype(np.int64))


def entering(blocks: BlockGrid, at: Block, into: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the sorted ids that are in a block, and their cells in the block."""
    r0, r1, c0, c1 = blocks.window(*at)
    starts = np.arange(r0, r1) * blocks.cols
    first, last = np.searchsorted(into, (starts + c0, starts + c1))
    row = np.repeat(np.arange(r1 - r0), last - first)
    before = np.cumsum(last - first) - (last - first)
    which = np.arange(len(row)) - before[row] + first[row]
    return which, into[which] - starts[row] - c0 + row * (c1 - c0)


class FlowPaths:
    """The flow paths of all blocks. The arrays are set by `join`.

    Attributes
    ----------
    of
        Follows the paths of one block.
    target
        Ids of the cells to which paths leave a block, in the order in which blocks were added.
    following, order
        The index of the path that continues each, -1 for none; and an order in which each path
        comes before the one that continues it.
    """

    def __init__(self, codes: Readable, blocks: BlockGrid, plan: StreamPlan) -> None:
        self.codes, self.blocks = codes, blocks
        self.of = BlockPaths(codes, blocks)
        self._parts: GatheredParts[BlockFlow] = GatheredParts(
            plan, _WAY_BYTES, codes, BETWEEN, ways_between(blocks)
        )
        self.target = self.following = self.order = np.empty(0, np.int64)

    def add(self, flow: BlockFlow) -> None:
        """Add the flow paths of a block."""
        self._parts.add(flow, max(len(flow.target), len(flow.entered)))

    def join(self) -> None:
        """Follow the paths from block to block.

        Raises
        ------
        VerificationError
            If the directions form a loop.
        PlanError
            If the paths do not fit the memory limit.
        """
        parts = self._parts.take()
        bases = np.cumsum([0, *(len(flow.target) for flow in parts[:-1])])
        based = zip(parts, bases, strict=True)
        exit_of = np.concatenate(
            [np.where(flow.exit < 0, -1, flow.exit + base) for flow, base in based]
        )
        self.target, entered, _ = (np.concatenate(one) for one in zip(*parts, strict=True))
        del parts, based
        order = np.argsort(entered)
        # Each target is among `entered`, since its block read the same codes around itself.
        self.following = exit_of[order[np.searchsorted(entered, self.target, sorter=order)]]
        waiting, order = np.empty((2, len(self.target)), np.int64)
        count, x = order_ways(self.following, waiting, order)
        if x >= 0:
            row, col = divmod(int(self.target[x]), self.blocks.cols)
            wrong(self.codes, "direction leads into a loop", "acyclic", row, col)
        self.order = order[:count]
