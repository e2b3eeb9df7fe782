"""The outer cells of regions, which neighbours see, and the queue of pending regions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ...grid import Window
from ...grid.neighbours import COL_STEP, ROW_STEP
from ..edges import infinity_of

Region = tuple[int, int]


class Rims:
    """The outer cells of all regions, the last values each saw of others, and pending regions.

    Attributes
    ----------
    changed
        Lock of all this, notified when regions become pending.
    """

    def __init__(
        self, windows: dict[Region, Window], dtype: np.dtype, *, wraps: bool = False
    ) -> None:
        self.changed = threading.Condition()
        self.windows, self.dtype = windows, dtype
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

    def start(self, at: Region, key: Any) -> None:
        """Make a region pending."""
        with self.changed:
            self.pending[at] = min(key, self.pending.get(at, key))
            self.changed.notify_all()

    def next(
        self, farthest: Any, may: Callable[[Region], bool] = lambda region: True
    ) -> Region | None:
        """Remove and return the pending region with the least key that `may` be taken, or None."""
        with self.changed:
            self.pending = {at: key for at, key in self.pending.items() if key <= farthest}
            at = min(filter(may, self.pending), key=lambda at: self.pending[at], default=None)
            if at is not None:
                del self.pending[at]
            return at

    def ring(self, at: Region) -> tuple[np.ndarray, np.ndarray]:
        """The cells of neighbours next to a region, now and when it last saw them.

        Top and bottom row with corners, left and right column.
        """
        with self.changed:
            ring = self._ring(at)
            seen = self._seen.get(at, np.full(len(ring), self.infinity, self.dtype))
            self._seen[at] = ring
        return ring, seen

    def _ring(self, at: Region) -> np.ndarray:
        height, width = self.shape(at)
        none = np.full(1, self.infinity, self.dtype)

        def beside(k: int, side: int, length: int) -> np.ndarray:
            other = self._beside(at, k)
            if other not in self._sides:
                return np.full(length, self.infinity, self.dtype)
            return self._sides[other][side]

        def corner(k: int, side: int, end: int) -> np.ndarray:
            other = self._beside(at, k)
            return self._sides[other][side][end : end + 1 or None] if other in self._sides else none

        return np.concatenate(
            (
                corner(5, 1, -1),
                beside(6, 1, width),
                corner(7, 1, 0),
                corner(3, 0, -1),
                beside(2, 0, width),
                corner(1, 0, 0),
                beside(4, 3, height),
                beside(0, 2, height),
            )
        )

    def put(self, at: Region, rim: np.ndarray) -> None:
        """Store a region's outer cells; neighbours next to lowered ones become pending."""
        with self.changed:
            self._put(at, rim)

    def _put(self, at: Region, rim: np.ndarray) -> None:
        height, width = self.shape(at)
        new = tuple(np.split(rim, np.cumsum((width, width, height))))
        old = self._sides.get(at, tuple(np.full(len(a), self.infinity, self.dtype) for a in new))
        new = tuple(map(np.minimum, old, new))  # cells not on the GPU are unchanged
        self._sides[at] = new
        first, last, whole = slice(0, 1), slice(-1, None), slice(None)
        for k, (side, part) in enumerate(
            (
                (3, whole), (1, last), (1, whole), (1, first),
                (2, whole), (0, first), (0, whole), (0, last),
            )
        ):  # fmt: skip
            other = self._beside(at, k)
            better = new[side][part] < old[side][part]
            if other in self.windows and better.any():
                self.start(other, new[side][part][better].min())
