"""A block of flow directions with a margin of one cell, and a thread's work space for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ...engine.proof import around
from ...grid import BlockGrid, GridSpec, Window
from ...grid.neighbours import COL_STEP, ROW_STEP
from ...store import Layer
from ..common.cell_kernels import cells_of, ids_of
from ..common.code_values import NOWHERE, OUTLET
from ..common.codes import end_ways, no_code
from ..common.flow_loops import loop_error
from .kernels import (
    follow,
    follow_all,
    pass_on,
    prepare,
    sort_cells,
)
from .rim_kernels import fill_ring, ring_cells


class FlowWork:
    """Work space of one thread: flat arrays for a block and its ring.

    Attributes
    ----------
    exits, order
        int32; see `kernels.follow` and `kernels.sort_cells`.
    inflow
        uint8; see `kernels.sort_cells`.
    sums
        int64, for values of 8 bytes or less; see `FlowBlock.array`.
    """

    BYTES = 4 + 4 + 1 + 8
    """Bytes per cell."""

    def __init__(self, blocks: BlockGrid) -> None:
        n = (min(blocks.block, blocks.rows) + 2) * (min(blocks.block, blocks.cols) + 2)
        self.exits, self.order = np.empty(n, np.int32), np.empty(n, np.int32)
        self.inflow, self.sums = np.empty(n, np.uint8), np.empty(n, np.int64)


@dataclass
class FlowBlock:
    """A block of flow directions.

    Attributes
    ----------
    layer
        The layer of directions, for messages.
    window
        The window of the block.
    cols
        Number of columns of the raster.
    codes
        uint8, shape (rows + 2, cols + 2). Flow paths end in the ring and at cells of code `OUTLET`.
    entries
        int32, flat indices of the cells where flow enters the block.
    work
        The thread's arrays, which may be longer than the block.
    """

    layer: Layer
    window: Window
    cols: int
    codes: np.ndarray
    entries: np.ndarray
    work: FlowWork

    @property
    def size(self) -> int:
        return self.codes.size

    def globally(self, cells: np.ndarray) -> np.ndarray:
        """Return the ids in the raster of cells, int64; -1 for negative indices."""
        return ids_of(cells, *self._place)

    def locally(self, ids: np.ndarray) -> np.ndarray:
        """Return the flat indices, int32, of ids in the block or its ring."""
        return cells_of(ids, *self._place)

    @property
    def _place(self) -> tuple[int, int, int, int]:
        """The block with its ring, as arguments of `ids_of`."""
        return self.window[0] - 1, self.window[2] - 1, self.codes.shape[1], self.cols

    def after(self, cells: np.ndarray) -> np.ndarray:
        """Return the indices of the cells that the given cells drain to; -1 at ends of paths."""
        code = self.codes.ravel()[cells]
        k = np.unpackbits(code[:, None], axis=1, bitorder="little").argmax(axis=1)
        to = cells + ROW_STEP[k] * self.codes.shape[1] + COL_STEP[k]
        return np.where((code == OUTLET) | (code == NOWHERE), -1, to)

    @property
    def outlets(self) -> np.ndarray:
        """Mask of the outlets of the block."""
        return self.codes[1:-1, 1:-1] == OUTLET

    @property
    def edge(self) -> np.ndarray:
        """Mask of the cells next to nodata that drain but are not outlets."""
        inner = self.codes[1:-1, 1:-1]
        return around(self.codes == NOWHERE) & (inner != NOWHERE) & (inner != OUTLET)

    @property
    def ring(self) -> np.ndarray:
        """Flat indices of the cells of the ring, int32."""
        return ring_cells(*self.codes.shape)

    def fill_ring(self, values: np.ndarray, value: float) -> None:
        """Set the cells of the ring in an array of the shape of the codes."""
        fill_ring(values, values.dtype.type(value))

    def array(self, dtype: np.dtype | type) -> np.ndarray:
        """Return `FlowWork.sums` as an array of this type and the shape of the codes."""
        return self.work.sums.view(dtype)[: self.size].reshape(self.codes.shape)

    def stopped(self, stops: np.ndarray) -> FlowBlock:
        """Return this block with flow paths that also end at the cells of the mask `stops`."""
        return replace(self, codes=self.codes * ~stops)  # `OUTLET` is 0

    @cached_property
    def _order(self) -> np.ndarray:
        inflow, order = self.work.inflow[: self.size], self.work.order
        count, at = sort_cells(self.codes, inflow.reshape(self.codes.shape), order)
        self._check_cycle(at)
        return order[:count]

    def pass_on(self, sums: np.ndarray, adds: bool) -> None:
        """Pass sums downstream; see `kernels.pass_on`."""
        pass_on(self.codes, self._order, sums, adds)

    def follow_all(self, rule: int, values: np.ndarray) -> None:
        """Follow the flow from all cells; see `kernels.follow_all`."""
        follow_all(self.codes, self._order, rule, values)

    def follow(self, cells: np.ndarray, rule: int, values: np.ndarray) -> np.ndarray:
        """Follow the flow from some cells, and return their exits; see `kernels.follow`.

        Overwrites the order of the cells.
        """
        exits = self.work.exits[: self.size]
        at, found = follow(self.codes, cells, rule, exits, values, self.work.order)
        self._check_cycle(at)
        return found

    def _check_cycle(self, at: int) -> None:
        """Raise an error if a cell lies on a cycle; -1 if none does."""
        if at >= 0:
            row, col = divmod(at, self.codes.shape[1])
            raise loop_error(self.layer, self.window[0] + row - 1, self.window[2] + col - 1)


def read_flow(
    layer: Layer, grid: GridSpec, window: Window, codes: np.ndarray, work: FlowWork
) -> FlowBlock:
    """Prepare a block of directions read with a margin of one cell; changes `codes` in place.

    Raises
    ------
    StoreError
        If a cell holds no D8 code.
    """
    end_ways(layer, grid, window, codes)
    at, into = prepare(codes)
    if at >= 0:
        row, col = divmod(at, codes.shape[1])
        raise no_code(layer, window[0] + row - 1, window[2] + col - 1, codes[row, col])
    return FlowBlock(layer, window, grid.cols, codes, into, work)
