"""A block of flow directions with one ring of cells, and a thread's work space for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ...engine.proof import around
from ...grid import BlockGrid, GridSpec, Window
from ...grid.neighbours import COL_STEP, ROW_STEP
from ...store import Layer
from ..common.code_values import NOWHERE, OUTLET
from ..common.codes import end_ways, no_code
from ..common.flow_loops import circle
from .kernels import (
    UNKNOWN,
    end_inside,
    entries,
    first_wrong,
    follow,
    follow_all,
    pass_on,
    sort_cells,
)


class FlowWork:
    """Work space of one thread, flat, for a block and its ring.

    Attributes
    ----------
    exits, order
        int32, see `kernels.follow` and `kernels.sort_cells`.
    inflow
        uint8, see `kernels.sort_cells`.
    sums
        int64.
    """

    BYTES = 4 + 4 + 1 + 8
    """Per cell."""

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
        The directions, for messages.
    window
        Its cells.
    cols
        Columns of the raster.
    codes
        uint8, shape (rows + 2, cols + 2). Ways end in the ring, and at cells of code `OUTLET`.
    entries
        int32, indices of the cells at which flow enters the block.
    work
        The thread's arrays, which may be longer.
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
        """Ids of cells in the raster, int64; -1 for what is not an index."""
        row, col = np.divmod(cells.astype(np.int64), self.codes.shape[1])
        ids = (self.window[0] + row - 1) * self.cols + self.window[2] + col - 1
        return np.where(cells < 0, -1, ids)

    def locally(self, ids: np.ndarray) -> np.ndarray:
        """Indices of cells, int32, from their ids; they lie in the block or its ring."""
        row, col = ids // self.cols - self.window[0], ids % self.cols - self.window[2]
        return ((row + 1) * self.codes.shape[1] + col + 1).astype(np.int32)

    def after(self, cells: np.ndarray) -> np.ndarray:
        """Indices of the cells that cells drain to; -1 where their ways end."""
        code = self.codes.ravel()[cells]
        k = np.unpackbits(code[:, None], axis=1, bitorder="little").argmax(axis=1)
        to = cells + ROW_STEP[k] * self.codes.shape[1] + COL_STEP[k]
        return np.where((code == OUTLET) | (code == NOWHERE), -1, to)

    @property
    def outlets(self) -> np.ndarray:
        """Which cells of the block are outlets."""
        return self.codes[1:-1, 1:-1] == OUTLET

    @property
    def edge(self) -> np.ndarray:
        """Which cells of the block lie on the edge of the data and drain inwards."""
        inner = self.codes[1:-1, 1:-1]
        return around(self.codes == NOWHERE) & (inner != NOWHERE) & (inner != OUTLET)

    @property
    def ring(self) -> np.ndarray:
        """Indices of the cells of the ring, int32."""
        rows, cols = self.codes.shape
        across, down = np.arange(cols), np.arange(cols, (rows - 1) * cols, cols)
        sides = across, down, down + cols - 1, across + (rows - 1) * cols
        return np.concatenate(sides).astype(np.int32)

    def array(self, dtype: np.dtype | type) -> np.ndarray:
        """The sums of the work space as an array of this type, of the shape of the codes."""
        return self.work.sums.view(dtype)[: self.size].reshape(self.codes.shape)

    def stopped(self, stops: np.ndarray) -> FlowBlock:
        """This block with ways that end at more cells."""
        return replace(self, codes=self.codes * ~stops)  # `OUTLET` is 0

    @cached_property
    def _order(self) -> np.ndarray:
        inflow, order = self.work.inflow[: self.size], self.work.order
        count, at = sort_cells(self.codes, inflow.reshape(self.codes.shape), order)
        self._refuse_circle(at)
        return order[:count]

    def pass_on(self, sums: np.ndarray, adds: bool) -> None:
        """Pass sums on to the next cells, see `kernels.pass_on`."""
        pass_on(self.codes, self._order, sums, adds)

    def follow_all(self, how: int, values: np.ndarray) -> None:
        """Follow the flow from all cells, see `kernels.follow_all`."""
        follow_all(self.codes, self._order, how, values)

    def follow(self, cells: np.ndarray, how: int, values: np.ndarray) -> np.ndarray:
        """Follow the flow from some cells, see `kernels.follow`; return their exits.

        The order of the cells is lost.
        """
        exits, ring = self.work.exits[: self.size], self.ring
        exits[:] = UNKNOWN
        exits[ring] = ring
        at = follow(self.codes, cells, how, exits, values, self.work.order)
        self._refuse_circle(at)
        return exits[cells]

    def _refuse_circle(self, at: int) -> None:
        if at >= 0:
            row, col = divmod(at, self.codes.shape[1])
            raise circle(self.layer, self.window[0] + row - 1, self.window[2] + col - 1)


def read_flow(
    layer: Layer, grid: GridSpec, window: Window, codes: np.ndarray, work: FlowWork
) -> FlowBlock:
    """Prepare a block of directions that was read with one ring; `codes` are changed.

    Raises
    ------
    StoreError
        when a cell holds no D8 code.
    """
    end_ways(layer, grid, window, codes)
    at = first_wrong(codes)
    if at >= 0:
        row, col = divmod(at, codes.shape[1])
        raise no_code(layer, window[0] + row - 1, window[2] + col - 1, codes[row, col])
    into = np.empty(2 * sum(codes.shape), np.int32)
    into = np.unique(into[: entries(codes, into)])
    end_inside(codes)
    return FlowBlock(layer, window, grid.cols, codes, into, work)
