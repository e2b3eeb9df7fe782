"""Sources and targets of one or several cells, grouped by id."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ...grid import Block, BlockGrid
from ...io.places import Places


class Grouped:
    """Places by id: the cells that a point, line, polygon or zone covers.

    Attributes
    ----------
    ids
        int64, ascending: one for each place.
    rows, cols, costs
        Rows, columns and start costs of cells, sorted by place, then by row and column.
    owner
        The place of each cell.
    labels
        Labels of the places: their ids, or their names.
    in_file_order
        The places in the order of their first features in the file, then of others; without a
        vector file in the order of their ids.
    """

    def __init__(self, places: Places) -> None:
        order = np.lexsort((places.cols, places.rows, places.ids))
        self.rows, self.cols = places.rows[order], places.cols[order]
        self.costs = places.costs[order]
        ids, self._starts, self.owner = np.unique(
            places.ids[order], return_index=True, return_inverse=True
        )
        self.ids = ids.astype(np.int64)
        self.labels = self.ids
        if names := places.names:
            self.labels = np.array([names.get(i, str(i)) for i in self.ids.tolist()], object)
        self.in_file_order = np.arange(len(self))
        if places.in_order and places.given is not None:
            first = np.minimum.reduceat(places.given[order], self._starts)
            self.in_file_order = np.argsort(first, kind="stable")
        self._ends = np.append(self._starts[1:], len(self.rows))

    def __len__(self) -> int:
        return len(self.ids)

    def place(self, k: int) -> Places:
        """The cells of a place."""
        part = slice(self._starts[k], self._ends[k])
        ids = np.full(part.stop - part.start, self.ids[k], np.uint32)
        return Places(self.rows[part], self.cols[part], ids, self.costs[part])

    def least(self, values: np.ndarray) -> np.ndarray:
        """The least value of each place, from the values of cells along the first axis."""
        return np.minimum.reduceat(values, self._starts, axis=0)

    def nearest_cell(self, values: np.ndarray) -> np.ndarray:
        """The cell of each place with the least value; the first of several such cells."""
        best = np.flatnonzero(values == self.least(values)[self.owner])
        return best[np.unique(self.owner[best], return_index=True)[1]]

    def cells_in(self, blocks: BlockGrid, at: Block) -> np.ndarray:
        """The cells in a block."""
        order, owners = self._by_block(blocks.block, blocks.shape[1])
        number = at[0] * blocks.shape[1] + at[1]
        return order[slice(*np.searchsorted(owners, [number, number + 1]))]

    def _by_block(self, side: int, across: int) -> tuple[np.ndarray, np.ndarray]:
        if self._blocks[0] != (side, across):
            numbers = self.rows // side * across + self.cols // side
            order = np.argsort(numbers, kind="stable")
            self._blocks[:] = [(side, across), (order, numbers[order])]
        found: tuple[np.ndarray, np.ndarray] = self._blocks[1]
        return found

    @cached_property
    def _blocks(self) -> list:
        return [None, None]

    def by_vicinity(self) -> np.ndarray:
        """The places in the order of their first cells along D. Hilbert's curve (1891).

        The fronts of sources close to each other pass the same tiles at similar times. With the
        Z-order curve, which jumps, tiles are visited a tenth more often.
        """
        x, y = self.cols[self._starts], self.rows[self._starts]
        along = np.zeros(len(self), np.int64)
        for bit in range(30, -1, -1):
            right, down = x >> bit & 1, y >> bit & 1
            along |= ((3 * right) ^ down) << (2 * bit)
            # Rotate the quadrant, so that the curve enters it at its first cell.
            flip = (down == 0) & (right == 1)
            x, y = (np.where(flip, ~v, v) for v in (x, y))
            x, y = np.where(down == 0, y, x), np.where(down == 0, x, y)
        return np.argsort(along, kind="stable")
