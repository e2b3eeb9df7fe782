"""A block of flow directions with one ring of cells, and a thread's work space for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...grid import BlockGrid, GridSpec, Window
from ...store import Layer
from ..codes import end_ways, no_code
from .entries import circle
from .kernels import NO_STOPS, UNKNOWN, entries, follow, next_cells


class FlowWork:
    """Work space of one thread, flat, for a block and its ring.

    Attributes
    ----------
    after, exits, stack
        int32, see `kernels.follow`.
    waiting
        uint8, see `kernels.pass_on`.
    sums
        int64.
    """

    BYTES = 4 + 4 + 4 + 1 + 8
    """Per cell."""

    def __init__(self, blocks: BlockGrid) -> None:
        n = (min(blocks.block, blocks.rows) + 2) * (min(blocks.block, blocks.cols) + 2)
        self.after, self.exits, self.stack = (np.empty(n, np.int32) for _ in range(3))
        self.waiting, self.sums = np.empty(n, np.uint8), np.empty(n, np.int64)


@dataclass
class FlowBlock:
    """A block of flow directions.

    Attributes
    ----------
    path
        The layer of directions, for messages.
    window
        Its cells.
    cols
        Columns of the raster.
    codes
        uint8, shape (rows + 2, cols + 2).
    after
        See `kernels.next_cells`.
    work
        The thread's arrays, which may be longer.
    """

    path: object
    window: Window
    cols: int
    codes: np.ndarray
    after: np.ndarray
    work: FlowWork

    @property
    def size(self) -> int:
        return self.codes.size

    def globally(self, cells: np.ndarray) -> np.ndarray:
        """Ids of cells in the raster, int64; -1 for what is not an index."""
        row, col = np.divmod(cells.astype(np.int64), self.codes.shape[1])
        ids = (self.window[0] + row - 1) * self.cols + self.window[2] + col - 1
        return np.where(cells < 0, -1, ids)

    def locally(self, ids: np.ndarray) -> np.ndarray:
        """Indices of cells, int32, from their ids; they lie in the block or its ring."""
        row, col = ids // self.cols - self.window[0], ids % self.cols - self.window[2]
        return ((row + 1) * self.codes.shape[1] + col + 1).astype(np.int32)

    @property
    def inner(self) -> np.ndarray:
        """Indices of its cells, row by row, int32."""
        rows, cols = self.codes.shape
        return np.arange(rows * cols, dtype=np.int32).reshape(rows, cols)[1:-1, 1:-1].ravel()

    def entries(self) -> np.ndarray:
        """Indices of the cells at which flow enters the block."""
        rows, cols = self.codes.shape
        into = np.empty(2 * (rows + cols), np.int32)
        return np.unique(into[: entries(self.codes, self.after, into)])

    def follow(
        self,
        cells: np.ndarray,
        own: np.ndarray,
        how: int,
        values: np.ndarray,
        stops: np.ndarray = NO_STOPS,
    ) -> np.ndarray:
        """Follow the flow from cells, see `kernels.follow`; return their exits."""
        exits = self.work.exits[: self.size]
        ring = exits.reshape(self.codes.shape)
        inside = ring[1:-1, 1:-1]
        exits[:] = np.arange(self.size, dtype=np.int32)
        inside[:] = UNKNOWN
        at = follow(self.after, cells, own, stops, how, exits, values, self.work.stack)
        self.refuse_circle(at)
        return exits[cells]

    def refuse_circle(self, at: int) -> None:
        if at >= 0:
            row, col = divmod(at, self.codes.shape[1])
            raise circle(self.path, self.window[0] + row - 1, self.window[2] + col - 1)


def read_flow(
    layer: Layer, grid: GridSpec, window: Window, codes: np.ndarray, work: FlowWork
) -> FlowBlock:
    """Prepare a block of directions that was read with one ring; `codes` may be changed.

    Raises
    ------
    StoreError
        when a cell holds no D8 code.
    """
    end_ways(layer, grid, window, codes)
    after = work.after[: codes.size]
    at = next_cells(codes, after)
    if at >= 0:
        row, col = divmod(at, codes.shape[1])
        raise no_code(layer, window[0] + row - 1, window[2] + col - 1, codes[row, col])
    return FlowBlock(layer.path, window, grid.cols, codes, after, work)
