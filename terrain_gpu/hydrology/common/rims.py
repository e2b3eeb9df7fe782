"""Values along the rims of all blocks: a row or column on each side of every border."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from ...grid import Block, BlockGrid


class BlockRim(NamedTuple):
    """The values along the rim of a block: first and last row, first and last column."""

    north: np.ndarray
    south: np.ndarray
    west: np.ndarray
    east: np.ndarray

    @classmethod
    def of(cls, cells: np.ndarray) -> BlockRim:
        """Return a copy of the rim of a block."""
        sides = cells[0], cells[-1], cells[:, 0], cells[:, -1]
        return cls(*(side.copy() for side in sides))


class RimLines:
    """The values at the rims of all blocks.

    Attributes
    ----------
    dtype
        Data type of a cell. If it has several values, all arrays have another dimension.
    rows, cols
        The first and last rows, or columns, of all blocks; shape (2, blocks down or across, cells).
    """

    def __init__(self, blocks: BlockGrid, dtype: DTypeLike, value: Any = 0) -> None:
        self.blocks, self.dtype = blocks, np.dtype(dtype)
        down, across = blocks.shape
        self.rows = np.full((2, down, blocks.cols), value, dtype)
        self.cols = np.full((2, across, blocks.rows), value, dtype)

    def of(self, at: Block) -> BlockRim:
        """Return views of the rim of a block."""
        i, j = at
        r0, r1, c0, c1 = self.blocks.window(*at)
        north, south = self.rows[:, i, c0:c1]
        west, east = self.cols[:, j, r0:r1]
        return BlockRim(north, south, west, east)

    def put(self, at: Block, rim: BlockRim) -> None:
        """Set the rim of a block."""
        for line, side in zip(self.of(at), rim, strict=True):
            line[:] = side

    def put_cells(self, ids: np.ndarray, values: np.ndarray) -> None:
        """Set the values of rim cells, given by their ids in the raster."""
        blocks = self.blocks
        row, col = np.divmod(ids, blocks.cols)
        for lines, across, along, count in (
            (self.rows, row, col, blocks.rows),
            (self.cols, col, row, blocks.cols),
        ):
            which, within = np.divmod(across, blocks.block)
            last = (within == blocks.block - 1) | (across == count - 1)
            for side, cells in enumerate((within == 0, last)):
                lines[side, which[cells], along[cells]] = values[cells]

    def around(self, at: Block, beyond: bool | float | int) -> BlockRim:
        """Return the ring around a block, corners included; `beyond` is used outside the raster."""
        i, j = at
        r0, r1, c0, c1 = self.blocks.window(*at)
        rows, cols = self.rows, self.cols
        down, across = self.blocks.shape

        def line(of: np.ndarray | None, start: int, stop: int) -> np.ndarray:
            cells = np.full(stop - start + 2, beyond, self.dtype)
            if of is not None:
                first, last = max(start - 1, 0), min(stop + 1, len(of))
                cells[first - start + 1 : last - start + 1] = of[first:last]
            return cells

        def row(side: int, k: int) -> np.ndarray:
            return line(rows[side, k] if 0 <= k < down else None, c0, c1)

        def col(side: int, k: int) -> np.ndarray:
            return line(cols[side, k] if 0 <= k < across else None, r0, r1)

        return BlockRim(row(1, i - 1), row(0, i + 1), col(1, j - 1), col(0, j + 1))
