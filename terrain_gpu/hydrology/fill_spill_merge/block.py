"""The catchments and pools of one block: `BlockCatchments`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..depressions.block import BlockSets
from ..depressions.kernels import regions
from . import kernels


class Catchments(NamedTuple):
    """What one block reports about its catchments.

    Attributes
    ----------
    pits
        Elevations and cells of their pits; the cell is `OCEAN` for an outlet.
    rain
        int64, units of rain on each catchment.
    between
        Elevations and keys of the edges between two catchments, and the two catchments, int32.
    crossing
        Elevations and keys of the edges to other blocks, the catchment on this side, and whether
        the whole catchment drains over the edge.
    span
        The lowest and the highest elevation.
    """

    pits: tuple[np.ndarray, np.ndarray]
    rain: np.ndarray
    between: tuple[np.ndarray, ...]
    crossing: tuple[np.ndarray, ...]
    span: tuple[float, float]


class Pools(NamedTuple):
    """What a block receives about its pools.

    Attributes
    ----------
    start
        int64, the row of each of its catchments, -1 if the row has an outlet.
    dead, up
        For each row: the elevation at which it dies, and the row that it merges into, or -1.
    first, floor
        The first pool of each row, and the elevation at which each pool begins.
    ids
        int64, the number of each pool among those of all blocks.
    levels, scales
        For each pool; see `kernels.fill_below` and `kernels.find_surfaces`.
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
    """Catchments of steepest descent. Parameters as for `BlockSets`; `least` has no effect."""

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
        """Return the catchments; `rain` holds the units of water on each cell."""
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
        """Find the pool of each cell among those of `given`, -1 for none; int32."""
        work, size = self.block.work, self.block.size
        rows, pool = work.two[:size], work.three[:size]
        paths = self.down, self.root, given.start, given.dead, given.up
        regions(self.heights, *paths, rows, work.one)
        kernels.pools_of(self.heights, rows, given.first, given.floor, pool)
        return pool
