"""The water that falls on each cell, in whole units: `Rain`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...errors import InputError
from ...grid import GridSpec, Window
from ...grid.lengths import cell_areas
from ..common.code_values import NOWHERE
from ..common.weights import FILL_VALUE, largest_weight, named_largest, with_weight

BITS = 61
"""Number of bits of the largest possible sum of water over a raster, in units."""

COARSEST = 1e-6
"""Largest depth that a unit may stand for: a micrometre if elevations are in metres."""


@dataclass(frozen=True)
class Rain:
    """Rain as whole units of water, whose sums do not depend on the order of blocks.

    Attributes
    ----------
    depth
        The depth of rain on every cell, or the layer of these depths.
    """

    grid: GridSpec
    depth: Any

    @cached_property
    def areas(self) -> np.ndarray:
        return cell_areas(self.grid)

    @cached_property
    def scale(self) -> float:
        """Number of units of water per unit of volume: a power of two, so that no sum overflows.

        Raises InputError if the depths are too large, or span too wide a range.
        """
        largest = self.depth if isinstance(self.depth, float) else largest_weight(self.depth)
        most = float(largest) * float(self.areas.max()) * self.grid.cells
        if not math.isfinite(most):
            raise InputError(
                f"rain {largest}: the total exceeds the largest float64 number; give less rain"
            )
        scale = math.ldexp(1.0, min(BITS - math.frexp(most)[1], 1000)) if most else 1.0
        coarse = scale * float(self.areas.max()) * COARSEST < 1
        if most and coarse and not isinstance(self.depth, float):
            raise InputError(
                f"{named_largest(self.depth)} is so large that rain of {COARSEST:g} on other cells "
                f"would be lost next to it. {FILL_VALUE}"
            )
        return scale

    def of(self, window: Window, valid: np.ndarray, depths: np.ndarray | None) -> np.ndarray:
        """Return the units of water on each cell of a window, 0 where it is not valid; int64.

        `depths` are the cells of the layer of rain, if there is one. Raises InputError for a
        negative depth.
        """
        scales = self.areas[window[0] : window[1], None] * self.scale
        if depths is None:
            return np.rint(valid * (self.depth * scales)).astype(np.int64)
        rained_on = with_weight(self.depth, window, np.where(valid, np.uint8(0), NOWHERE), depths)
        for row, col in np.argwhere(rained_on & (depths < 0))[:1].tolist():
            raise InputError(
                f"{self.depth.path}: row {window[0] + row}, column {window[2] + col}: the rain is "
                f"{depths[row, col]}; give depths of at least 0, or nodata"
            )
        return np.rint(np.where(rained_on, depths, 0) * scales).astype(np.int64)
