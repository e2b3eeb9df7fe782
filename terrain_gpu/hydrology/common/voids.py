"""Voids that reach the edge of the raster: the sea, or the surroundings of the data.

Cells that are nodata form voids, joined over all eight neighbours. A void that touches no cell of
the raster's edge is an inner void: water leaves there only if an option says so.
"""

from __future__ import annotations

import numpy as np

from ...compiled import jit
from ...grid import Block, BlockGrid
from ...primitives.grid_components import label_block
from ...primitives.union_find import find
from .rims import BlockRim, RimLines


def label_voids(absent: np.ndarray) -> tuple[np.ndarray, int]:
    """Label the voids of a block, int32; return the labels and the number of voids."""
    labels = np.empty(absent.shape, np.int32)
    return labels, label_block(np.ascontiguousarray(absent), True, labels) if absent.any() else 0


def known_bytes(blocks: BlockGrid) -> int:
    """Return the bytes of `Voids` after `join`."""
    down, across = blocks.shape
    return 2 * (across * blocks.rows + down * blocks.cols)


def voids_bytes(blocks: BlockGrid) -> int:
    """Return the bytes of `Voids` before `join`: names, and their parents."""
    return 24 * known_bytes(blocks)


class Voids:
    """The voids at the rims of all blocks; after `join`, the mask of rim cells in outer voids."""

    def __init__(self, blocks: BlockGrid) -> None:
        self._rims = RimLines(blocks, np.int64)
        self._count = 0

    def add(self, at: Block, known: BlockRim | None) -> None:
        """Add the labels along the rim of a block; None if it has no voids."""
        if known is None:
            return
        base = self._count
        names = np.unique(np.concatenate(known))
        names = names[names > 0]
        self._count += len(names)
        labels = [np.where(side > 0, base + 1 + np.searchsorted(names, side), 0) for side in known]
        self._rims.put(at, BlockRim(*labels))

    def join(self) -> None:
        """Join voids across the borders between blocks."""
        parent, rims = np.arange(self._count + 1), self._rims
        for first, last in (rims.rows, rims.cols):
            for k in range(len(first) - 1):
                join_line(parent, last[k], first[k + 1])
        outer = np.zeros(self._count + 1, bool)
        edges = (rims.rows[0, 0], rims.rows[1, -1], rims.cols[0, 0], rims.cols[1, -1])
        mark_outer(parent, np.concatenate(edges), outer)
        rims.rows, rims.cols = outer[rims.rows], outer[rims.cols]

    def of(self, at: Block) -> tuple[BlockRim, BlockRim]:
        """Return the masks of cells in outer voids, for the rim of a block and the ring around it.

        Lines of the ring include its corners. Cells outside the raster count as outer voids.
        """
        return self._rims.of(at), self._rims.around(at, True)


def outside(absent: np.ndarray, known: tuple[BlockRim, BlockRim]) -> np.ndarray:
    """Return the mask of cells in outer voids, for a block with a margin of one cell.

    Parameters
    ----------
    absent
        bool, the nodata cells of the block.
    known
        From `Voids.of`.
    """
    rim, ring = known
    mask = np.zeros((absent.shape[0] + 2, absent.shape[1] + 2), bool)
    labels, count = label_voids(absent)
    if count:
        outer = np.zeros(count + 1, bool)
        for side, line in zip(BlockRim.of(labels), rim, strict=True):
            outer[side[line]] = True
        outer[0] = False
        mask[1:-1, 1:-1] = outer[labels]
    mask[0], mask[-1], mask[:, 0], mask[:, -1] = ring
    return mask


@jit
def join_line(parent, one, other):
    """Join voids of neighbouring cells on both sides of a border; 0 means no void."""
    for at in range(len(one)):
        if one[at] == 0:
            continue
        for beside in range(max(at - 1, 0), min(at + 2, len(one))):
            if other[beside] != 0:
                a, b = find(parent, one[at]), find(parent, other[beside])
                parent[max(a, b)] = min(a, b)


@jit
def mark_outer(parent, edge, outer):
    """Mark the voids that are joined to one at the raster's edge."""
    for name in edge:
        if name != 0:
            outer[find(parent, name)] = True
    for name in range(1, len(parent)):
        outer[name] = outer[find(parent, name)]
