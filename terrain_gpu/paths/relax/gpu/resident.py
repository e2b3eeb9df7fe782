"""Which blocks of a region are on the GPU, when they are read on demand."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ....grid import Block, BlockGrid
from .piece import Piece
from .relaxing import CHANGED
from .variants import SIDE


class ResidentBlocks:
    """Keeps track of which blocks of a piece are on the GPU, if they are read on demand."""

    def __init__(self, piece: Piece, *, whole: bool) -> None:
        side = piece.problem.blocks.block
        self.piece, self._first = piece, (piece.window[0] // side, piece.window[2] // side)
        self._tiles = side // SIDE
        self._here = np.full(BlockGrid(piece.shape.rows, piece.shape.cols, side).shape, whole)
        self._around = set() if whole else piece.around()
        self._told = 0
        if not whole:
            piece.relaxing.send_away()

    @property
    def whole(self) -> bool:
        """Whether all blocks are there."""
        return bool(self._here.all())

    def beside(self, lowered: np.ndarray) -> list[Block]:
        """Missing blocks that tiles beside lowered cells around the piece need.

        Parameters
        ----------
        lowered
            Which cells around the piece were lowered, in the order of `Rims.ring`.
        """
        h, rows, cols = self.piece.shape.halo, self.piece.shape.rows, self.piece.shape.cols
        across, k = h * (cols + 2 * h), np.flatnonzero(lowered)
        lines, sides = k[k < 2 * across], k[k >= 2 * across] - 2 * across
        row = np.concatenate((np.where(lines < across, 0, rows - 1), sides % rows))
        col = np.concatenate((lines % (cols + 2 * h) - h, np.where(sides < h * rows, 0, cols - 1)))
        wanted, block = np.zeros_like(self._here), self._tiles * SIDE
        reach = (-2 * SIDE, 0, 2 * SIDE)  # a tile, and the one beside it
        for down, along in itertools.product(reach, reach):
            i, j = (row + down).clip(0, rows - 1), (col + along).clip(0, cols - 1)
            wanted[i // block, j // block] = True
        return self._places(wanted & ~self._here)

    def with_around(self, blocks: list[Block]) -> set[Block]:
        """Blocks, and those beside them that lie around the piece and have not been read."""
        near = {(i + k, j + m) for i, j in blocks for k in (-1, 0, 1) for m in (-1, 0, 1)}
        near &= self._around
        self._around -= near
        return near | set(blocks)

    def arrived(self) -> int:
        """Return the number of blocks that were read since the last call."""
        here = int(np.count_nonzero(self._here))
        new, self._told = here - self._told, here
        return new

    def wanted(self) -> list[Block]:
        """Missing blocks that pending tiles need, including the cells around the tiles."""
        if self.whole:
            return []
        return self._chosen(_beside(self.piece.relaxing.waiting()), ~self._here)

    def changed(self) -> list[Block]:
        """Blocks with distances that were lowered."""
        return self._chosen(self.piece.relaxing.flagged(CHANGED))

    def _chosen(self, tiles: np.ndarray, among: Any = True) -> list[Block]:
        for axis in (0, 1):
            starts = np.arange(0, tiles.shape[axis], self._tiles)
            tiles = np.logical_or.reduceat(tiles, starts, axis=axis)
        return self._places(tiles & among)

    def _places(self, blocks: np.ndarray) -> list[Block]:
        row, col = self._first
        return [(row + i, col + j) for i, j in np.argwhere(blocks).tolist()]

    def admit(self, blocks: list[Block]) -> None:
        """Add blocks, and release tiles whose cells and surrounding cells are all present."""
        import cupy

        for i, j in blocks:
            self._here[i - self._first[0], j - self._first[1]] = True
        down, across = self.piece.shape.tiles
        tiles = self._here.repeat(self._tiles, 0).repeat(self._tiles, 1)[:down, :across]
        ready = cupy.array(~_beside(~tiles))
        self.piece.launch("admit", ready.size, ready, *self.piece.relaxing.pending)


def _beside(tiles: np.ndarray) -> np.ndarray:
    """Tiles, and all tiles that touch them."""
    found = tiles.copy()
    for axis in (0, 1):
        near = found.copy()
        to, of = np.moveaxis(near, axis, 0), np.moveaxis(found, axis, 0)
        to[1:] |= of[:-1]
        to[:-1] |= of[1:]
        found = near
    return found
