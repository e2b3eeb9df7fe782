"""Catchments and pools of a block: `BlockCatchments`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..depressions.block import BlockSets
from ..depressions.kernels import regions
from . import kernels


class Catchments(NamedTuple):
    """What a block knows of its catchments.

    Attributes
    ----------
    pits
        Heights and cells of their pits; `OCEAN` in place of the cell for an outlet.
    rain
        int64, units of rain on each.
    between
        Heights and keys of the edges between two of them, and these, int32.
    crossing
        Heights and keys of edges to other blocks, the catchment on this side, and whether all of it
        drains over the edge.
    span
        The lowest and the highest cell.
    """

    pits: tuple[np.ndarray, np.ndarray]
    rain: np.ndarray
    between: tuple[np.ndarray, ...]
    crossing: tuple[np.ndarray, ...]
    span: tuple[float, float]


class Pools(NamedTuple):
    """What other blocks and passes know about the pools of a block.

    Attributes
    ----------
    start
        int64, of its catchments: one of these rows, or -1 where there is an outlet.
    dead, up
        Of rows: the height at which each dies, and the row that it merges into, or -1.
    first, floor
        The first pool of each row, and the heights at which pools begin.
    ids
        int64, of pools: their numbers over all blocks.
    levels, scales
        Of pools, see `kernels.fill_below` and `kernels.find_surfaces`.
    """

    start: np.ndarray
    dead: np.ndarray
    up: np.ndarray
    first: np.ndarray
    floor: np.ndarray
    ids: np.ndarray
    levels: np.ndarray
    scales: np.ndarray


class BlockCatchments(BlockSets):
    """Catchments of steepest descent. Parameters are those of `BlockSets`, with `least` 0."""

    def _catchments(self, links: np.ndarray, outlets: np.ndarray) -> tuple[int, int]:
        block, work = self.block, self.block.work
        corner = np.array((*block.window, block.cols), np.int64)
        tree = links, outlets, corner, self.down, self.root, work.one, work.code
        rule = block.forest.weight.rule()
        count, joined = kernels.descents(self.heights, block.operands, rule, *tree)
        return count, joined

    def _merge(self, levels: np.ndarray, keys: np.ndarray, ends: np.ndarray) -> None:
        self._between = levels, keys, ends

    def catchments(self, rain: np.ndarray) -> Catchments:
        """What this block knows; `rain` has the units of each cell."""
        block = self.block
        heights = self.heights[1:-1, 1:-1][block.valid[1:-1, 1:-1]]
        sums = np.zeros(len(self.pit[0]), np.int64)
        inside = self.root >= 0
        np.add.at(sums, self.root[inside], rain.ravel()[inside])
        over = block.work.code[block.out_cell] == block.out_step
        return Catchments(
            self.pit,
            sums,
            self._between,
            (*self._crossing(), self.root[block.out_cell], over),
            (heights.min(initial=np.inf), heights.max(initial=-np.inf)),
        )

    def pools(self, given: Pools) -> np.ndarray:
        """Find the pool of each cell, among those given; -1 for none."""
        work, size = self.block.work, self.block.size
        found, pool = work.two[:size], work.three[:size]
        ways = self.down, self.root, given.start, given.dead, given.up
        regions(self.heights, *ways, found, work.one)
        kernels.pools_of(self.heights, found, given.first, given.floor, pool)
        return pool
