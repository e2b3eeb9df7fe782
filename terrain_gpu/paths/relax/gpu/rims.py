"""The outer cells of regions, which neighbours see, and the queue of pending regions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from ....grid import Block, BlockGrid, Window
from ....grid.neighbours import COL_STEP, ROW_STEP
from ...cost.edges import infinity_of

Region = tuple[int, int]


def region_windows(blocks: BlockGrid, side: int, halo: int, across: int) -> dict[Region, Window]:
    """The windows of regions, of `side` rows and `across` columns.

    Steps across a seam reach `halo` columns, so a last region that is narrower belongs to the one
    before it.
    """
    rows = range(0, blocks.rows, side)
    cols = list(range(0, blocks.cols, across))
    if blocks.wraps and len(cols) > 1 and blocks.cols - cols[-1] < halo:
        cols.pop()
    down, along = pairwise([*rows, blocks.rows]), list(pairwise([*cols, blocks.cols]))
    return {(i, j): (*r, *c) for i, r in enumerate(down) for j, c in enumerate(along)}


class RegionMap:
    """Regions of a raster: rectangles of blocks.

    Parameters
    ----------
    sides
        Rows and columns of a region, in blocks.
    halo
        See `region_windows`.
    """

    def __init__(self, blocks: BlockGrid, sides: tuple[int, int], halo: int) -> None:
        self.sides = sides
        side, across = (count * blocks.block for count in sides)
        self.windows = region_windows(blocks, side, halo, across)
        self._last = max(j for _, j in self.windows)

    def of(self, at: Block) -> Region:
        """Return the region of a block."""
        return at[0] // self.sides[0], min(at[1] // self.sides[1], self._last)

    def cells(self, at: Region) -> int:
        """Return the number of cells of a region."""
        r0, r1, c0, c1 = self.windows[at]
        return (r1 - r0) * (c1 - c0)


class Rims:
    """The outer cells of all regions, the last values each saw of others, and pending regions.

    Attributes
    ----------
    changed
        Lock of all this, notified when regions become pending.
    """

    def __init__(
        self,
        windows: dict[Region, Window],
        dtype: np.dtype,
        *,
        wraps: bool = False,
        halo: int = 1,
    ) -> None:
        self.changed = threading.Condition()
        self.windows, self.dtype, self.halo = windows, dtype, halo
        self._across = max(j for _, j in windows) + 1 if wraps else None
        self.infinity = infinity_of(np.empty(0, dtype))
        self.pending: dict[Region, Any] = {}
        self._sides: dict[Region, tuple[np.ndarray, ...]] = {}
        self._seen: dict[Region, np.ndarray] = {}

    def shape(self, at: Region) -> tuple[int, int]:
        r0, r1, c0, c1 = self.windows[at]
        return r1 - r0, c1 - c0

    def _beside(self, at: Region, k: int) -> Region:
        """Return the region in direction k, which may lie beyond the seam."""
        i, j = at[0] + int(ROW_STEP[k]), at[1] + int(COL_STEP[k])
        return i, j if self._across is None else j % self._across

    def start(self, at: Region, key: float) -> None:
        """Make a region pending."""
        with self.changed:
            self.pending[at] = min(key, self.pending.get(at, key))
            self.changed.notify_all()

    def next(
        self, farthest: float, may: Callable[[Region], bool] = lambda region: True
    ) -> Region | None:
        """Remove and return the pending region with the least key that `may` be taken, or None."""
        with self.changed:
            self.pending = {at: key for at, key in self.pending.items() if key <= farthest}
            at = min(filter(may, self.pending), key=lambda at: self.pending[at], default=None)
            if at is not None:
                del self.pending[at]
            return at

    def ring(self, at: Region) -> tuple[np.ndarray, np.ndarray]:
        """The cells of neighbours around a region, now and when it last saw them.

        Rows above and below with corners, then columns left and right; `halo` of each. The region
        is no longer pending then.
        """
        with self.changed:
            self.pending.pop(at, None)
            ring = self._ring(at)
            seen = self._seen.get(at, np.full(len(ring), self.infinity, self.dtype))
            self._seen[at] = ring
        return ring, seen

    def _ring(self, at: Region) -> np.ndarray:
        h, (height, width) = self.halo, self.shape(at)

        def lines(k: int, side: int, length: int, along: slice = slice(None)) -> np.ndarray:
            """Return part of a neighbour's side, the line next to this region first."""
            found = np.full((h, length), self.infinity, self.dtype)
            if (sides := self._sides.get(self._beside(at, k))) is not None:
                part = sides[side][:, along]
                found[:, : part.shape[1]] = part  # a region may be narrower
            return found

        first, last = slice(h), slice(-h, None)
        above = lines(5, 1, h, last), lines(6, 1, width), lines(7, 1, h, first)
        below = lines(3, 0, h, last), lines(2, 0, width), lines(1, 0, h, first)
        left, right = lines(4, 3, height), lines(0, 2, height)
        whole = np.hstack(above)[::-1], np.hstack(below), left[::-1], right
        return np.concatenate([part.ravel() for part in whole])

    def put(self, at: Region, rim: np.ndarray) -> None:
        """Store a region's outer cells; neighbours next to lowered ones become pending."""
        with self.changed:
            self._put(at, rim)

    def _put(self, at: Region, rim: np.ndarray) -> None:
        h, (height, width) = self.halo, self.shape(at)
        ends = np.cumsum(h * np.array((width, width, height)))
        new = tuple(part.reshape(h, -1) for part in np.split(rim, ends))
        old = self._sides.get(at, tuple(np.full_like(a, self.infinity) for a in new))
        new = tuple(map(np.minimum, old, new))  # cells not on the GPU are unchanged
        self._sides[at] = new
        first, last, whole = slice(h), slice(-h, None), slice(None)
        for k, (side, part) in enumerate(
            (
                (3, whole), (1, last), (1, whole), (1, first),
                (2, whole), (0, first), (0, whole), (0, last),
            )
        ):  # fmt: skip
            other = self._beside(at, k)
            mine = new[side][:, part]
            better = mine < old[side][:, part]
            if other in self.windows and better.any():
                self.start(other, mine[better].min())
