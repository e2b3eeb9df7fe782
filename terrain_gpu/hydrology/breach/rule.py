"""The limits and costs of breaching, for the operation and its proof."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...cells import differences
from ...errors import InputError
from ..common.weights import FILL_VALUE, named_largest

FINEST = 1 << 10
"""Smallest number of cost units per unit of elevation: costs resolve a millimetre if elevations are
in metres."""


def reach_of(shape: tuple[int, int], max_distance: int) -> int:
    """Return how many rows and columns a channel may extend from its pit in such a raster."""
    return min(max_distance, max(*shape, 2) - 1)


class BreachRule:
    """The cost of cuts, in whole cost units, so that sums do not depend on their order.

    Attributes
    ----------
    reach
        Number of rows and columns that a channel may extend from its pit.
    per_unit
        Cost units per unit of elevation: 1 for integers if sums allow it, else a power of two for
        which sums over all cells within reach stay below 2^62.
    deepest
        The deepest cut allowed; infinity for no limit.

    Raises
    ------
    InputError
        If elevations span too wide a range.
    """

    def __init__(self, heights: Any, max_distance: int, max_depth: float | None) -> None:
        self.reach = reach_of(heights.grid.shape, max_distance)
        self.deepest = math.inf if max_depth is None else float(max_depth)
        statistics = heights.statistics()
        low, high = (statistics[end] or 0 for end in ("min", "max"))
        bits = 61 - ((2 * max_distance + 1) ** 2).bit_length()
        whole = heights.dtype.kind in "iu"
        # Half the range, since that of floats may overflow; Python's integers are exact.
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
        """Bytes of work space for a search."""
        return 28 * (2 * self.reach + 1) ** 2

    def units(self, heights: Any, lowered: np.ndarray) -> np.ndarray:
        """Return the cuts in cost units, int64."""
        if heights.dtype.kind in "iu":
            scaled = differences(heights, lowered) * self.per_unit
        else:
            high, low = (one.astype(np.float64) * self.per_unit for one in (heights, lowered))
            scaled = high - low
        return np.rint(scaled).astype(np.int64)
