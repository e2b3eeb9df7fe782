"""Voids that reach the edge of the raster: the sea, or what lies around the data.

Cells without a value form voids, joined over all eight neighbours. A void that touches no cell of
the raster's edge is an inner one: water does not leave there unless it is told to.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..compiled import jit
from ..grid import Block, BlockGrid
from ..primitives.grid_components import label_block
from ..primitives.union_find import find


class VoidRim(NamedTuple):
    """What lies along the rim of a block: first and last row, first and last column."""

    north: np.ndarray
    south: np.ndarray
    west: np.ndarray
    east: np.ndarray


def label_voids(absent: np.ndarray) -> tuple[np.ndarray, int]:
    """Label the voids of a block, int32; return how many there are."""
    labels = np.empty(absent.shape, np.int32)
    return labels, label_block(np.ascontiguousarray(absent), True, labels) if absent.any() else 0


def rim_of(labels: np.ndarray) -> VoidRim:
    return VoidRim(labels[0].copy(), labels[-1].copy(), labels[:, 0].copy(), labels[:, -1].copy())


def known_bytes(blocks: BlockGrid) -> int:
    """Return the bytes of `Voids` after `join`."""
    down, across = blocks.shape
    return 2 * (across * blocks.rows + down * blocks.cols)


def voids_bytes(blocks: BlockGrid) -> int:
    """Return the bytes of `Voids` before that: names, and their parents."""
    return 24 * known_bytes(blocks)


class Voids:
    """The voids at the rims of all blocks, and after `join` which of them are outer."""

    def __init__(self, blocks: BlockGrid) -> None:
        self.blocks = blocks
        down, across = blocks.shape
        self._rows = np.zeros((2, down, blocks.cols), np.int64)
        self._cols = np.zeros((2, across, blocks.rows), np.int64)
        self._count = 0

    def add(self, at: Block, known: VoidRim | None) -> None:
        """Add the labels along the rim of a block; None without voids."""
        if known is None:
            return
        base = self._count
        names = np.unique(np.concatenate(known))
        names = names[names > 0]
        self._count += len(names)
        for line, side in zip(self._lines(at), known, strict=True):
            line[:] = np.where(side > 0, base + 1 + np.searchsorted(names, side), 0)

    def _lines(self, at: Block) -> VoidRim:
        i, j = at
        r0, r1, c0, c1 = self.blocks.window(*at)
        north, south = self._rows[:, i, c0:c1]
        west, east = self._cols[:, j, r0:r1]
        return VoidRim(north, south, west, east)

    def join(self) -> None:
        """Join voids over the lines between blocks."""
        parent = np.arange(self._count + 1)
        for first, last in (self._rows, self._cols):
            for k in range(len(first) - 1):
                join_line(parent, last[k], first[k + 1])
        outer = np.zeros(self._count + 1, bool)
        edges = (self._rows[0, 0], self._rows[1, -1], self._cols[0, 0], self._cols[1, -1])
        mark_outer(parent, np.concatenate(edges), outer)
        self._rows, self._cols = outer[self._rows], outer[self._cols]

    def of(self, at: Block) -> tuple[VoidRim, VoidRim]:
        """Return which cells of a block's rim, and of the ring around it, are in outer voids.

        Lines of the ring begin and end at its corners. Outside of the raster all are.
        """
        i, j = at
        r0, r1, c0, c1 = self.blocks.window(*at)
        rows, cols = self._rows, self._cols
        down, across = self.blocks.shape

        def row(side: int, k: int) -> np.ndarray:
            return self._ringed(rows[side, k] if 0 <= k < down else None, c0, c1)

        def col(side: int, k: int) -> np.ndarray:
            return self._ringed(cols[side, k] if 0 <= k < across else None, r0, r1)

        return self._lines(at), VoidRim(row(1, i - 1), row(0, i + 1), col(1, j - 1), col(0, j + 1))

    @staticmethod
    def _ringed(line: np.ndarray | None, start: int, stop: int) -> np.ndarray:
        found = np.ones(stop - start + 2, bool)
        if line is not None:
            first, last = max(start - 1, 0), min(stop + 1, len(line))
            found[first - start + 1 : last - start + 1] = line[first:last]
        return found


def outside(absent: np.ndarray, known: tuple[VoidRim, VoidRim]) -> np.ndarray:
    """Return which cells of a block and one ring around it lie in outer voids.

    Parameters
    ----------
    absent
        Which cells of the block have no value.
    known
        From `Voids.of`.
    """
    rim, ring = known
    found = np.zeros((absent.shape[0] + 2, absent.shape[1] + 2), bool)
    labels, count = label_voids(absent)
    if count:
        outer = np.zeros(count + 1, bool)
        for side, line in zip(rim_of(labels), rim, strict=True):
            outer[side[line]] = True
        outer[0] = False
        found[1:-1, 1:-1] = outer[labels]
    found[0], found[-1], found[:, 0], found[:, -1] = ring
    return found


@jit
def join_line(parent, one, other):
    """Join voids of neighbouring cells on both sides of a line; 0 where there is none."""
    for at in range(len(one)):
        if one[at] == 0:
            continue
        for beside in range(max(at - 1, 0), min(at + 2, len(one))):
            if other[beside] != 0:
                a, b = find(parent, one[at]), find(parent, other[beside])
                parent[max(a, b)] = min(a, b)


@jit
def mark_outer(parent, edge, outer):
    """Mark the voids joined to one at the raster's edge."""
    for name in edge:
        if name != 0:
            outer[find(parent, name)] = True
    for name in range(1, len(parent)):
        outer[name] = outer[find(parent, name)]
