"""Levels above the tiles of a distance index: `LevelSolver`.

A square of level k consists of 2^k x 2^k tiles. Its entries are those that a tile of its size would
have. They are computed from those of its quarters, the squares of the level below, by relaxing
steps between rim cells of the quarters; no other cells are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...grid.neighbours import COL_STEP, ROW_STEP
from ..cost.edges import infinity_of
from .files import Index
from .level_kernels import LANES, square_entries
from .packing import Packer
from .rim import rim_cells, rim_of, rim_steps
from .tile import Entries


def level_bytes(index: Index) -> int:
    """Bytes for the levels of one block at a time."""
    if not index.levels:
        return 0
    item = index.dtype.itemsize
    found = 0
    for level in range(1, index.levels + 1):
        side = index.tile << level
        count, below = rim_cells(side), rim_cells(side // 2)
        # The work space to relax and to pack a square; its quarters, and the steps between them.
        found += 4 * below * (LANES * item + 1) + (3 * index.entries(level) + 2 * count**2) * item
        found += index.packed_bytes(level) + 4 * below**2 * (item + 2) + 8 * 5 * 16 * count
    # The entries of a level and of the one below.
    return found + 2 * 16 * index.blocks.block**2 * (item + 2)


class LevelSolver:
    """Computes and packs the squares of a level, one at a time, in its own arrays."""

    def __init__(self, index: Index, level: int, way: Any, nothing: Any) -> None:
        self.way, self.nothing, self.symmetric = way, nothing, index.symmetric
        self._side = index.tile << level - 1
        self._packer = Packer(2 * self._side, index.symmetric, index.dtype)
        small, large, count = rim_of(self._side), rim_of(2 * self._side), rim_cells(self._side)
        numbers = np.zeros((self._side, self._side), np.int64)
        numbers[tuple(small.cells)] = np.arange(count)

        def numbered(cells: np.ndarray) -> np.ndarray:
            """Numbers of cells of the square that are rim cells of quarters."""
            (i, j), inside = cells // self._side, cells % self._side
            return (2 * i + j) * count + numbers[tuple(inside)]

        b, k = large.crossings[:2]
        self._rim = numbered(large.cells)
        step_of = np.zeros((count, 8), np.int64)
        step_of[tuple(small.crossings[:2])] = np.arange(rim_steps(self._side))
        quarter, own = np.divmod(self._rim[b], count)
        self._outer = np.stack((quarter, step_of[own, k]))
        # Steps between quarters, by the cell that they start from.
        found = []
        for q in range(4):
            corner = self._side * np.array([[q // 2], [q % 2]])
            b, k = small.crossings[:2]
            cells = small.cells[:, b] + corner
            sources = cells + np.stack((ROW_STEP[k], COL_STEP[k]))
            inside = ((sources >= 0) & (sources < 2 * self._side)).all(axis=0)
            step = np.flatnonzero(inside)
            into = numbered(cells[:, inside])
            found.append(np.stack((0 * step + q, step, into, numbered(sources[:, inside]))))
        steps = np.concatenate(found, axis=1)
        steps = steps[:, np.argsort(steps[3], kind="stable")]
        self._exits = np.searchsorted(steps[3], np.arange(4 * count + 1))
        self._into = np.ascontiguousarray(steps[:3])
        self._d = np.empty((4 * count, LANES), index.dtype)
        self._pending = np.zeros(4 * count, bool)
        self._entries = np.empty(index.entries(level), index.dtype)

    def pack(self, quarters: Sequence[Entries | None]) -> tuple[bytes, Entries]:
        """Compute a square; None stands for a quarter outside the raster.

        Returns its compressed bytes, and the entries that these hold.
        """
        square_entries(
            self.way,
            self._joined(quarters),
            self._exits,
            self._into,
            self._rim,
            self._outer,
            self.nothing,
            self.symmetric,
            self._d,
            self._pending,
            self._entries,
        )
        packed = self._packer.pack(self.way, self._entries)
        return packed, self._packer.links(packed)

    def _joined(self, quarters: Sequence[Entries | None]) -> Entries:
        ends = np.zeros((4, rim_cells(self._side) + 1), np.int64)
        steps = np.full((4, rim_steps(self._side)), infinity_of(self._entries), self._entries.dtype)
        first = 0
        for quarter, entries in enumerate(quarters):
            if entries is not None:
                ends[quarter], steps[quarter] = entries.ends[0] + first, entries.steps[0]
                first += len(entries.ways)
        there = [entries for entries in quarters if entries is not None]
        others, ways = (np.concatenate([e[k] for e in there]) for k in (1, 2))
        return Entries(ends, others, ways, steps)

    def compile(self) -> None:
        """Compile in this thread, where Ctrl-C works; in a worker it would have to wait."""
        count, steps = rim_cells(self._side), rim_steps(self._side)
        none = np.empty(0, self._entries.dtype)
        numbers = np.min_scalar_type(count - 1)
        never = np.full((1, steps), infinity_of(none), none.dtype)
        ends = np.zeros((1, count + 1), np.int64)
        self.pack([Entries(ends, none.astype(numbers), none, never)] * 4)
