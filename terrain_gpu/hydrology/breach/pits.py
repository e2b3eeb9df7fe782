"""The pits of all blocks: those inside a block in files, those that span blocks in memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...errors import StoreError
from ...grid import Block, BlockGrid, cells_in
from ...primitives.grid_components import label_block
from ...store.files import read_sealed, write_sealed
from ..common.rims import BlockRim, RimLines
from ..common.voids import known_bytes
from .kernels import find_low, join_low, join_marks, place, survey
from .kinds import OUTLET, PIT


class LowRim(NamedTuple):
    """The low cells at the rim of a block.

    Attributes
    ----------
    names
        int32, for each rim cell: the number of its component of low cells, from 1; 0 for other
        valid cells; -1 for nodata.
    heights
        Elevations of the rim cells.
    first, drains
        For each component: the id of its first cell, and whether it drains within the block.
    """

    names: BlockRim
    heights: BlockRim
    first: np.ndarray
    drains: np.ndarray


def find_pits(
    heights: np.ndarray, valid: np.ndarray, outlets: np.ndarray, base: int, cols: int
) -> tuple[np.ndarray, LowRim]:
    """Find the pits of a block that do not reach its rim, and the low cells that do.

    Parameters
    ----------
    heights, valid
        Elevations and the mask of valid cells, with a margin of one cell.
    outlets
        int32, flat indices of outlets in the block.
    base, cols
        Id of the block's first cell, and number of columns of the raster.

    Returns
    -------
    numpy.ndarray
        int32, flat indices of the pits.
    LowRim
        The components of low cells at the rim.
    """
    inner = valid[1:-1, 1:-1]
    low, labels = np.empty(inner.shape, bool), np.empty(inner.shape, np.int32)
    find_low(heights, valid, outlets, low)
    count = label_block(low, True, labels)
    first, drains = np.empty(count + 1, np.int32), np.zeros(count + 1, bool)
    survey(heights, valid, labels, first, drains)
    at_rim = np.unique(np.concatenate(BlockRim.of(labels)))
    at_rim = at_rim[at_rim > 0]
    within = ~drains
    within[0] = within[at_rim] = False
    names = np.zeros(count + 1, np.int32)
    names[at_rim] = np.arange(1, len(at_rim) + 1)
    sides = zip(BlockRim.of(labels), BlockRim.of(inner), strict=True)
    row, col = np.divmod(first[at_rim].astype(np.int64), inner.shape[1])
    rim = LowRim(
        BlockRim(*(np.where(is_valid, names[side], -1) for side, is_valid in sides)),
        BlockRim.of(heights[1:-1, 1:-1]),
        base + row * cols + col,
        drains[at_rim],
    )
    return first[within], rim


def low_bytes(blocks: BlockGrid, itemsize: int) -> int:
    """Return the bytes of `LowRims`: the lines, and at most one component per two cells."""
    return known_bytes(blocks) * (8 + itemsize + 17)


class LowRims:
    """Components of low cells at the rims of all blocks; after `join`, the pits among them."""

    def __init__(self, blocks: BlockGrid, dtype: np.dtype) -> None:
        self._names, self._heights = RimLines(blocks, np.int64, -1), RimLines(blocks, dtype)
        self._first, self._drains = [np.zeros(1, np.int64)], [np.zeros(1, bool)]
        self._count, self._cols = 0, blocks.cols

    def add(self, at: Block, rim: LowRim) -> None:
        """Add the rim of a block."""
        base = self._count
        names = (np.where(side > 0, side + np.int64(base), side) for side in rim.names)
        self._names.put(at, BlockRim(*names))
        self._heights.put(at, rim.heights)
        self._first.append(rim.first)
        self._drains.append(rim.drains)
        self._count += len(rim.first)

    def join(self) -> None:
        """Join components across the borders between blocks."""
        parent = np.arange(self._count + 1)
        first, drains = np.concatenate(self._first), np.concatenate(self._drains)
        names, heights = self._names, self._heights
        for lines, of_lines in ((names.rows, heights.rows), (names.cols, heights.cols)):
            for k in range(lines.shape[1] - 1):
                sides = lines[1, k], lines[0, k + 1]
                join_low(parent, drains, *sides, of_lines[1, k], of_lines[0, k + 1])
        join_marks(parent, first, drains)
        is_pit = (parent == np.arange(self._count + 1)) & ~drains
        is_pit[0] = False
        self.pits = np.sort(first[is_pit])
        self._first, self._drains = [], []

    def within(self, window: tuple[int, int, int, int]) -> np.ndarray:
        """Return the ids of the pits in a window."""
        return self.pits[cells_in(window, self.pits, self._cols)]


@dataclass(frozen=True)
class BlockFiles:
    """The files that a run keeps for every block, in a folder that must exist.

    The folder must belong to this run, since late workers of another run could write to it.
    """

    folder: Path

    def save_marks(self, at: Block, pits: np.ndarray, outlets: np.ndarray) -> None:
        """Save the pits and outlets of a block, which are flat int32 indices."""
        marks = np.concatenate((np.array([len(pits)], np.int32), pits, outlets))
        write_sealed(self._path("pits", at), marks.tobytes())

    def has_marks(self, at: Block) -> bool:
        """Whether the pits and outlets of a block are saved and intact."""
        try:
            read_sealed(self._path("pits", at))
        except StoreError:
            return False
        return True

    def mark(
        self, kinds: np.ndarray, blocks: BlockGrid, corner: tuple[int, int], ring: int
    ) -> None:
        """Mark the pits and outlets of all blocks in `kinds`.

        Parameters
        ----------
        kinds
            uint8, a window of the raster. Receives the marks.
        corner
            Row and column of the first cell of `kinds`, which may be outside the raster.
        ring
            Width, in cells, of the margin of `kinds` where pits are not marked.
        """
        side = blocks.block
        lines = [
            range(max(start, 0) // side, min(-(-(start + extent) // side), count))
            for start, extent, count in zip(corner, kinds.shape, blocks.shape, strict=True)
        ]
        for i in lines[0]:
            for j in lines[1]:
                r0, _, c0, c1 = blocks.window(i, j)
                marks = np.frombuffer(read_sealed(self._path("pits", (i, j))), np.int32)
                pits, outlets = np.split(marks[1:], marks[:1])
                where = c1 - c0, r0 - corner[0], c0 - corner[1]
                place(kinds, pits, *where, PIT, ring)
                place(kinds, outlets, *where, OUTLET, 0)

    def channels(self, at: Block) -> Path:
        """Return the path of the file with the channels of a block."""
        return self._path("ways", at)

    def _path(self, kind: str, at: Block) -> Path:
        return self.folder / f"{kind}-{at[0]}.{at[1]}"
