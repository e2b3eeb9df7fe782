"""The levels of contours: a list, or multiples of an interval from a base."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...arguments import refused
from ...errors import ArgumentError
from ...facts import Settings

_MOST_NUMBER = 2.0**40
"""Limit of the numbers of levels, so that all levels are different."""


class ContourLevels(NamedTuple):
    """Numbered levels.

    Attributes
    ----------
    breaks
        Levels in ascending order, with the numbers 0, 1, ...; the last may be infinite. If there
        are none, the level of each integer k is base + k * interval.
    """

    breaks: tuple[float, ...] = ()
    interval: float = 0.0
    base: float = 0.0

    def of(self, number: int) -> float:
        """Return the level of a number."""
        return self.breaks[number] if self.breaks else self.base + number * self.interval

    @property
    def parts(self) -> tuple[np.ndarray, float, float]:
        """The levels, as kernels take them."""
        return np.array(self.breaks, np.float64), self.base, self.interval

    def settings(self) -> Settings:
        """Return the levels as settings of a run."""
        breaks = list(map(repr, self.breaks))  # JSON has no infinite numbers
        return {"interval": self.interval, "base": self.base, "breaks": breaks}

    def refuse(self, values: np.ndarray) -> None:
        """Reject an interval that is too small compared with values, or a level that is not finite.

        Raises
        ------
        InputError
            If there is such a value, which the message names.
        """
        if self.breaks or not values.size:
            return
        for value in (float(values.min()), float(values.max())):
            if max(abs(value), abs(self.base)) / self.interval >= _MOST_NUMBER:
                raise refused(
                    "interval",
                    f" {self.interval:g} is too small for the value {value:g} of the layer; give a "
                    "larger one, or {breaks}",
                )
            if not math.isfinite(abs(value) + abs(self.base) + 2 * self.interval):
                raise ArgumentError(
                    f"the next level beyond the value {value:g} of the layer is no finite number; "
                    "give {breaks} instead of an {interval}, or nodata if that is no height"
                )

    def bands(self, values: np.ndarray) -> np.ndarray:
        """Return the number of the least level at or above each float64 value."""
        if self.breaks:
            return np.searchsorted(self.breaks, values, side="left")
        found = np.ceil((values - self.base) / self.interval).astype(np.int64)
        # Divisions are rounded.
        while (above := self.base + (found - 1) * self.interval >= values).any():
            found -= above
        while (below := self.base + found * self.interval < values).any():
            found += below
        return found

    def band(self, number: int) -> tuple[float | None, float | None]:
        """Return the previous level and the level of a number; None if there is none."""
        lower = self.of(number - 1) if number or not self.breaks else None
        upper = self.of(number)
        return lower, upper if math.isfinite(upper) else None
