"""Voids that reach the edge of the raster, found again for proofs by flooding."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...engine.proof import border_ids, known_of
from ...grid import Block, BlockGrid, Window
from .proof_void_kernels import flood, spread

VOID_BYTES = 9
"""Bytes per cell of a block that a worker needs."""


class _Rim(NamedTuple):
    """Ids of nodata cells along the rim of a block, and the voids that they are in."""

    ids: np.ndarray
    voids: np.ndarray


def floods_bytes(blocks: BlockGrid) -> int:
    """Return the bytes that `Floods` may need."""
    return 60 * blocks.rim_cells


class BlockVoids(NamedTuple):
    """The voids of a block; can be sent to workers.

    Attributes
    ----------
    ids, outer
        Sorted ids of nodata cells at the rim of the block and around it, and whether they are in
        outer voids. None before `Floods.join`.
    """

    blocks: BlockGrid
    ids: Any = None
    outer: Any = None

    def look(self, at: Block, absent: np.ndarray) -> _Rim | None:
        """Flood the voids of a block; return what `Floods.add` takes."""
        if not absent.any():
            return None
        window = self.blocks.window(*at)
        labels = flooded(absent)
        rim = np.zeros(absent.shape, bool)
        rim[[0, -1]] = rim[:, [0, -1]] = True
        where = np.flatnonzero(rim & absent)
        return _Rim(self._globally(window, where), labels[where].astype(np.int64))

    def _globally(self, window: Window, cells: np.ndarray) -> np.ndarray:
        row, col = np.divmod(cells, window[3] - window[2])
        return (window[0] + row) * self.blocks.cols + window[2] + col

    def outside(self, at: Block, absent: np.ndarray) -> np.ndarray:
        """Return the mask of cells of a block and its ring in outer voids or outside the raster.

        Parameters
        ----------
        absent
            bool, the nodata cells of the block and its ring.
        """
        r0, r1, c0, c1 = window = self.blocks.window(*at)
        mask = np.ones(absent.shape, bool)
        top, left = int(r0 == 0), int(c0 == 0)
        bottom, right = int(r1 == self.blocks.rows), int(c1 == self.blocks.cols)
        inside = (slice(top, absent.shape[0] - bottom), slice(left, absent.shape[1] - right))
        mask[inside] = False
        ring = np.zeros(absent.shape, bool)
        ring[[0, -1]] = ring[:, [0, -1]] = True
        around = np.flatnonzero(ring & absent & ~mask)
        row, col = np.divmod(around, absent.shape[1])
        mask.ravel()[around] = self._are_outer((r0 + row - 1) * self.blocks.cols + c0 + col - 1)
        inner = absent[1:-1, 1:-1]
        if inner.any():
            labels = flooded(inner)
            rim = np.zeros(inner.shape, bool)
            rim[[0, -1]] = rim[:, [0, -1]] = True
            where = np.flatnonzero(rim & inner)
            outer = np.zeros(int(labels.max()) + 1, bool)
            outer[labels[where]] = self._are_outer(self._globally(window, where))
            outer[0] = False
            mask[1:-1, 1:-1] = outer[labels].reshape(inner.shape)
        return mask

    def _are_outer(self, ids: np.ndarray) -> np.ndarray:
        if not len(self.ids):
            return np.zeros(len(ids), bool)
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return (self.ids[at] == ids) & self.outer[at]


class Floods:
    """The voids of all blocks; after `join`, the rim cells that are in outer voids."""

    def __init__(self, blocks: BlockGrid) -> None:
        self.blocks, self.of = blocks, BlockVoids(blocks)
        self._rims: list[_Rim] = []
        self._count = 0
        self._ids, self._outer = np.empty(0, np.int64), np.empty(0, bool)

    def add(self, rim: _Rim | None) -> None:
        if rim is None or not len(rim.ids):
            return
        names, which = np.unique(rim.voids, return_inverse=True)
        self._rims.append(_Rim(rim.ids, which.reshape(-1) + self._count))
        self._count += len(names)

    def join(self) -> None:
        """Spread the voids that touch the edge of the raster across the borders between blocks."""
        if not self._rims:
            return
        ids, voids = (np.concatenate(one) for one in zip(*self._rims, strict=True))
        self._rims.clear()
        order = np.argsort(ids)
        ids, voids = ids[order], voids[order]
        rows, cols = self.blocks.rows, self.blocks.cols
        row, col = np.divmod(ids, cols)
        edge = (row == 0) | (row == rows - 1) | (col == 0) | (col == cols - 1)
        arcs = []
        for down, right in ((0, 1), (1, -1), (1, 0), (1, 1)):
            inside = (row + down < rows) & (col + right >= 0) & (col + right < cols)
            neighbours = ids[inside] + down * cols + right
            at = np.minimum(np.searchsorted(ids, neighbours), len(ids) - 1)
            met = ids[at] == neighbours
            arcs.append(np.stack((voids[inside][met], voids[at[met]])))
        outer = np.zeros(self._count, bool)
        outer[voids[edge]] = True
        one, other = np.unique(np.concatenate(arcs, axis=1), axis=1)
        spread(outer, *lists_of(np.append(one, other), np.append(other, one), self._count))
        self._ids, self._outer = ids, outer[voids]

    def near(self, at: Block) -> BlockVoids:
        """Return what a block needs to know about the voids of other blocks."""
        ids, where = known_of(border_ids(self.blocks, at), self._ids)
        return BlockVoids(self.blocks, ids, self._outer[where])


def flooded(absent: np.ndarray) -> np.ndarray:
    """Return the void that each cell is in, int32, flat; 0 for none."""
    labels = np.zeros(absent.size, np.int32)
    flood(np.ascontiguousarray(absent), labels, np.empty(absent.size, np.int32))
    return labels


def lists_of(one: np.ndarray, other: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the lists of voids that touch each void: where each list begins, and all lists."""
    order = np.argsort(one, kind="stable")
    return np.searchsorted(one[order], np.arange(count + 1)), other[order]
