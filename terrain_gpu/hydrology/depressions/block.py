"""The depressions of one block: `BlockSets`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...grid import Window
from ...grid.neighbours import COL_STEP, ROW_STEP
from ..common.code_values import NOWHERE, OUTLET
from ..common.relative import as_floats, base_of
from ..forest.block import BlockForest, edge_ids
from . import kernels

_COUNT = np.array([bits.bit_count() for bits in range(256)], np.uint8)
"""Number of bits set in each byte."""

WORK_BYTES = 75
"""Bytes per cell that a worker needs beyond `block.Work`: edges, sets, levels and temporaries, if
every fourth cell is a pit."""


class Known(NamedTuple):
    """What one block contributes to the hierarchy.

    Attributes
    ----------
    nodes
        Elevations and cells of the pits of its open sets.
    met
        Elevations and keys of the edges between two open sets, and the two nodes.
    crossing
        Elevations and keys of the edges to other blocks, and the node on this side.
    closed
        For its complete depressions: elevation and cell of the pit, elevation and key of the spill,
        and the parent: the cell of its pit, -1 for an outlet, or -2 - node.
    """

    nodes: tuple[np.ndarray, ...]
    met: tuple[np.ndarray, ...]
    crossing: tuple[np.ndarray, ...]
    closed: tuple[np.ndarray, ...]


class Branches(NamedTuple):
    """What a block receives from the hierarchy.

    Attributes
    ----------
    closed
        int64, the number of each of its complete depressions, or 0.
    nodes
        int64, the branch of each of its nodes, -1 where its water reaches an outlet.
    pits, dead, up, numbers
        For each branch: the elevation of the pit, the elevation at which it dies, the branch that
        it merges into (or -1), and its number (or 0).
    """

    closed: np.ndarray
    nodes: np.ndarray
    pits: np.ndarray
    dead: np.ndarray
    up: np.ndarray
    numbers: np.ndarray


def leave_out_undrained(block: BlockForest, codes: np.ndarray) -> None:
    """Remove the cells of a block that reach no outlet.

    They form whole trees of the forest, from which water cannot leave at any level. `codes` are the
    block's directions with a margin of one cell.
    """
    drains = codes != NOWHERE
    block.valid &= drains
    inner = drains[1:-1, 1:-1].reshape(-1)
    block.work.links[: block.size] *= inner
    crossing = inner[block.out_cell]
    block.out_cell, block.out_step = block.out_cell[crossing], block.out_step[crossing]


@dataclass
class BlockSets:
    """The sets of cells of one block; see `kernels.merge`.

    Parameters
    ----------
    block
        The forest of the block. Its work arrays `links`, `order`, `parent`, `one` and `two` are
        overwritten.
    codes
        uint8, the flow directions of the block, which end at outlets.
    least
        Depressions shallower than this are ignored.

    Raises
    ------
    StoreError
        If the stored tree is not a forest of these cells.
    """

    block: BlockForest
    codes: np.ndarray
    least: float

    def __post_init__(self) -> None:
        block, work = self.block, self.block.work
        size = block.size
        self.heights = as_floats(block.heights, base_of(block.forest.cells))
        self.heights[~block.valid] = np.nan
        self.down, self.root = work.order[:size], work.parent[:size]
        links = work.links[:size]
        edges = int(_COUNT[links].sum()) // 2
        np.bitwise_or.at(links, block.out_cell, np.uint8(1) << block.out_step)
        outlets = np.flatnonzero((self.codes == OUTLET) & block.valid[1:-1, 1:-1])
        corner = np.array((*block.window, block.cols), np.int64)
        z = self.heights
        count, joined = self._catchments(links, outlets)
        between = edges - joined
        self.pit = np.empty(count), np.empty(count, np.int64)
        kernels.pits(z, outlets, corner, self.root, *self.pit)
        levels, keys = np.empty(between), np.empty(between, np.int64)
        ends = np.empty((between, 2), np.int32)
        if kernels.edges_between(z, links, corner, self.root, levels, keys, ends) != between:
            raise block.no_forest()
        self._merge(levels, keys, ends)

    def _catchments(self, links: np.ndarray, outlets: np.ndarray) -> tuple[int, int]:
        """Find the catchments; return their number and the number of cells joined to another."""
        tree = links, outlets, self.down, self.root, self.block.work.one
        count, joined = kernels.catchments(self.heights, *tree)
        return count, joined

    def _merge(self, levels: np.ndarray, keys: np.ndarray, ends: np.ndarray) -> None:
        across, across_keys = self._crossing()
        beyond = np.full((len(across), 2), -1, np.int32)
        beyond[:, 0] = self.root[self.block.out_cell]
        levels, keys = np.append(levels, across), np.append(keys, across_keys)
        ends = np.concatenate((ends, beyond))
        count = len(self.pit[0])
        self.dead = np.empty(count), np.empty(count, np.int64)
        self.up, self.node = np.empty((2, count), np.int32)
        met = np.empty((len(ends), 2), np.int32)
        order = np.lexsort((keys, levels))
        self.nodes = kernels.merge(
            order, (levels, keys), ends, self.pit, self.dead, self.up, self.node, met
        )
        if self.nodes < 0:
            raise self.block.no_forest()
        joining = met[:, 1] >= 0
        self._met = levels[joining], keys[joining], met[joining, 0], met[joining, 1]
        self._across = across, across_keys, met[len(ends) - len(across) :, 0]
        deep = self.dead[0] - self.pit[0] >= self.least
        self.closed = np.flatnonzero((self.dead[1] >= 0) & (self.dead[0] > self.pit[0]) & deep)

    def _crossing(self) -> tuple[np.ndarray, np.ndarray]:
        """Elevations and keys of the edges to other blocks."""
        block, step = self.block, self.block.out_step
        row, col = block.out_cell // block.width + 1, block.out_cell % block.width + 1
        z_here = self.heights[row, col]
        z_there = self.heights[row + ROW_STEP[step], col + COL_STEP[step]]
        first, second = np.where(step < 4, z_here, z_there), np.where(step < 4, z_there, z_here)
        keys = 2 * edge_ids(block.cols, block.globally(block.out_cell), step)
        return np.maximum(z_here, z_there), keys + (second > first)

    def known(self) -> Known:
        heights, cells = self.pit
        # An open set continues in another block, so its parent is not known yet.
        up = np.where(self.node >= 0, -1, self.up)
        parents = self.up[self.closed].astype(np.int64)
        kernels.climb(parents, self.dead[0][self.closed], self.dead[0], up)
        inside = parents >= 0
        into = np.maximum(parents, 0)
        node = self.node[into]
        pit = np.where(self.dead[1][into] < 0, -1, cells[into])
        parents = np.where(inside, np.where(node >= 0, -2 - node, pit), parents)
        roots = np.empty(self.nodes, np.int64)
        roots[self.node[self.node >= 0]] = np.flatnonzero(self.node >= 0)
        return Known(
            (heights[roots], cells[roots]),
            self._met,
            self._across,
            (
                heights[self.closed],
                cells[self.closed],
                self.dead[0][self.closed],
                self.dead[1][self.closed],
                parents,
            ),
        )

    def regions(self, outside: Branches) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Find the smallest depression that contains each cell.

        Returns
        -------
        branches
            int32, the branch of each cell, flat; -1 for none.
        dead, up, numbers
            Of the branches, as in `Branches`: first those of this block, then those of `outside`.
        """
        count = len(self.up)
        beyond = np.where(outside.nodes >= 0, outside.nodes + count, -1)  # the branch of each node
        branch = np.arange(count)
        is_node = self.node >= 0
        branch[is_node] = beyond[self.node[is_node]]
        branch[(self.dead[1] < 0) & ~is_node] = -1  # outlets, and sets that never spill
        up = self.up.astype(np.int64)
        inside, out = up >= 0, up <= -2
        up[out] = beyond[-2 - up[out]]
        up[inside] = branch[up[inside]]
        numbers = np.zeros(count, np.int64)
        numbers[self.closed] = outside.closed
        dead = np.append(self.dead[0], outside.dead)
        up = np.append(up, np.where(outside.up >= 0, outside.up + count, -1))
        branches = self.block.work.two[: self.block.size]
        kernels.regions(
            self.heights, self.down, self.root, branch, dead, up, branches, self.block.work.one
        )
        return branches, dead, up, np.append(numbers, outside.numbers)

    @property
    def window(self) -> Window:
        return self.block.window
