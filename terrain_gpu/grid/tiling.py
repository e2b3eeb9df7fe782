"""Tiles, blocks and windows of a raster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..errors import InputError
from . import morton

TILE = 64
"""Side of a tile in cells: the inner Zarr chunk, and the unit of a GPU thread block."""

MIN_BLOCK = TILE
MAX_BLOCK = 8192
Window = tuple[int, int, int, int]
"""Half-open cell range (row0, row1, col0, col1)."""


Block = tuple[int, int]
"""Row and column (i, j) of a block in the grid of blocks."""


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def round_up(a: int, b: int) -> int:
    return ceil_div(a, b) * b


def clip(window: Window, to: Window) -> Window:
    """Return the part of `window` inside `to`; if empty, row1 <= row0 or col1 <= col0."""
    return (
        max(window[0], to[0]),
        min(window[1], to[1]),
        max(window[2], to[2]),
        min(window[3], to[3]),
    )


def cells_in(window: Window, ids: np.ndarray, cols: int) -> np.ndarray:
    """Return which cells are in a window, as positions in `ids`.

    Parameters
    ----------
    ids
        int64, row * cols + column; sorted.
    """
    r0, r1, c0, c1 = window
    first, last = np.searchsorted(ids, [r0 * cols, r1 * cols])
    col = ids[first:last] % cols
    return first + np.flatnonzero((col >= c0) & (col < c1))


def is_empty(window: Window) -> bool:
    return window[1] <= window[0] or window[3] <= window[2]


@dataclass(frozen=True)
class BlockGrid:
    """A raster of `rows` x `cols` cells cut into square blocks of side `block`.

    Attributes
    ----------
    wraps
        Whether the first column follows the last one: the raster goes around the Earth.
    """

    rows: int
    cols: int
    block: int
    wraps: bool = False

    def __post_init__(self) -> None:
        b = self.block
        if b & (b - 1) or not MIN_BLOCK <= b <= MAX_BLOCK:
            raise InputError(
                f"block size {b} is not a power of two from {MIN_BLOCK} to {MAX_BLOCK}"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of blocks down and across."""
        return ceil_div(self.rows, self.block), ceil_div(self.cols, self.block)

    @property
    def count(self) -> int:
        down, across = self.shape
        return down * across

    @property
    def sides(self) -> tuple[int, int]:
        """Rows and columns of the largest block, clipped to the raster."""
        return min(self.block, self.rows), min(self.block, self.cols)

    def largest(self, halo: int = 0, *, tiled: bool = False) -> int:
        """Return the number of cells in the largest block.

        Parameters
        ----------
        halo
            Number of rings of cells around the block.
        tiled
            Whether the block is padded to whole tiles.
        """
        rows, cols = self.sides
        if tiled:
            rows, cols = round_up(rows, TILE), round_up(cols, TILE)
        return (rows + 2 * halo) * (cols + 2 * halo)

    @property
    def line_cells(self) -> int:
        """Number of cells along the boundaries of blocks, counted on one side of each boundary."""
        down, across = self.shape
        return (down - 1) * self.cols + (across - 1) * self.rows

    @property
    def rim_cells(self) -> int:
        """Number of cells along the rims of all blocks."""
        inside = [
            side // self.block * (self.block - 2) + max(side % self.block - 2, 0)
            for side in (self.rows, self.cols)
        ]
        return self.rows * self.cols - inside[0] * inside[1]

    def window(self, i: int, j: int) -> Window:
        """Return the window of block (i, j), clipped to the raster."""
        b = self.block
        return clip((i * b, i * b + b, j * b, j * b + b), (0, self.rows, 0, self.cols))

    def seam(self, at: Block, halo: int = 1) -> int | None:
        """Return the first column beyond the seam, in a block with its ring; None without a seam.

        The block is padded by `halo`, and to whole tiles, so this may be a column of its last tile.
        """
        _, _, c0, c1 = self.window(*at)
        return c1 - c0 + halo if self.wraps and c1 == self.cols else None

    def beyond_seam(self, window: Window, halo: int = 1) -> list[tuple[int, int]]:
        """Return ring columns beyond the seam of a window, each with its column in the raster."""
        _, _, c0, c1 = window
        around = [*range(c0 - halo, c0), *range(c1, c1 + halo)] if self.wraps else []
        beyond = [c for c in around if not 0 <= c < self.cols]
        return [(c - c0 + halo, c % self.cols) for c in beyond]

    def column_beside(self, j: int, n: int) -> tuple[int, int] | None:
        """Return the block column of a column, and the position in it; None outside the raster.

        Parameters
        ----------
        n
            Offset from the first column of block column j; it may be beyond the seam.
        """
        col = j * self.block + n
        if self.wraps:
            col %= self.cols
        return divmod(col, self.block) if 0 <= col < self.cols else None

    def ids(self) -> Iterator[tuple[int, int]]:
        """Yield every block (i, j), in Z-order."""
        down, across = self.shape
        # A stack of quadrants, not a sorted list: a trillion cells are a million blocks.
        side = 1 << max(down - 1, across - 1, 0).bit_length()
        stack = [(0, 0, side)]
        while stack:
            i, j, s = stack.pop()
            if i >= down or j >= across:
                continue
            if s == 1:
                yield i, j
                continue
            h = s // 2
            stack += [(i + h, j + h, h), (i + h, j, h), (i, j + h, h), (i, j, h)]


def z_rank_table(block: int) -> np.ndarray:
    """Return the Z-order rank of each tile of a block; int64, shape (block / TILE,) * 2."""
    return morton.z_ranks(block // TILE)


class RegionGrid(BlockGrid):
    """A grid of regions, which may be larger than any block."""

    def __post_init__(self) -> None:
        pass
