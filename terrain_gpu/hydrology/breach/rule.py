"""What breaching cuts and what that costs: for the operation and its proof."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...cells import differences
from ...errors import InputError
from ..common.weights import FILL_VALUE, named_largest

FINEST = 1 << 10
"""Least number of units in a height of 1: costs tell a millimetre where elevations are metres."""


def reach_of(shape: tuple[int, int], max_distance: int) -> int:
    """Rows and columns that a path may lead away from its pit, within a raster of this shape."""
    return min(max_distance, max(*shape, 2) - 1)


class BreachRule:
    """The cost of a cut, in whole numbers of a unit, so that sums do not depend on their order.

    Attributes
    ----------
    reach
        Rows and columns that a way may lead away from its pit.
    per_unit
        How many units a height of 1 has: 1 for integers, else a power of two by which sums over
        all cells within reach remain below 2^62.
    deepest
        The deepest cut, infinite where there is no limit.
    """

    def __init__(self, heights: Any, max_distance: int, max_depth: float | None) -> None:
        self.reach = reach_of(heights.grid.shape, max_distance)
        self.deepest = math.inf if max_depth is None else float(max_depth)
        known = heights.statistics()
        low, high = (known[end] or 0 for end in ("min", "max"))
        bits = 61 - ((2 * max_distance + 1) ** 2).bit_length()
        whole = heights.dtype.kind in "iu"
        # Halves: the range of floats may overflow. That of integers is exact.
        half = (high - low) / 2 if whole else float(high) / 2 - float(low) / 2
        exponent = math.frexp(half)[1] + 1 - bits
        self.per_unit = math.ldexp(1.0, -max(exponent, 0 if whole else -1000))
        if self.per_unit < (1 if whole else FINEST):
            raise InputError(
                f"{named_largest(heights)} is so far from the other elevations that cuts of less "
                f"than {1 / self.per_unit:.3g} would cost nothing. {FILL_VALUE}"
            )

    @property
    def search_bytes(self) -> int:
        """Work space of a search."""
        return 28 * (2 * self.reach + 1) ** 2

    def units(self, heights: np.ndarray, lowered: np.ndarray) -> np.ndarray:
        """Cuts in units, int64."""
        if heights.dtype.kind in "iu":
            scaled = differences(heights, lowered) * self.per_unit
        else:
            high, low = (one.astype(np.float64) * self.per_unit for one in (heights, lowered))
            scaled = high - low
        return np.rint(scaled).astype(np.int64)
