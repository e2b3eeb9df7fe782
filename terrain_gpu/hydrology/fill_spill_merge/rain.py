"""How much water falls on each cell, in whole units: `Rain`."""

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
"""Of all water that can fall on a raster, in units."""

COARSEST = 1e-6
"""Largest depth of a unit, a micrometre where elevations are metres: less is no rain."""


@dataclass(frozen=True)
class Rain:
    """Sums of whole units do not depend on their order, so blocks do not matter.

    Attributes
    ----------
    depth
        Of the water on every cell, or the layer that has it.
    """

    grid: GridSpec
    depth: Any

    @cached_property
    def areas(self) -> np.ndarray:
        return cell_areas(self.grid)

    @cached_property
    def scale(self) -> float:
        """Units of water in a unit of volume; a power of two such that no sum overflows."""
        largest = self.depth if isinstance(self.depth, float) else largest_weight(self.depth)
        most = float(largest) * float(self.areas.max()) * self.grid.cells
        if not math.isfinite(most):
            raise InputError(f"rain {largest}: the sum is more than a float64 holds; give less")
        scale = math.ldexp(1.0, min(BITS - math.frexp(most)[1], 1000)) if most else 1.0
        coarse = scale * float(self.areas.max()) * COARSEST < 1
        if most and coarse and not isinstance(self.depth, float):
            raise InputError(
                f"{named_largest(self.depth)} is so large that rain of {COARSEST:g} on other cells "
                f"would be lost next to it. {FILL_VALUE}"
            )
        return scale

    def of(self, window: Window, valid: np.ndarray, depths: np.ndarray | None) -> np.ndarray:
        """Units on each cell of a window that is valid; `depths` are the layer's cells."""
        scales = self.areas[window[0] : window[1], None] * self.scale
        if depths is None:
            return np.rint(valid * (self.depth * scales)).astype(np.int64)
        known = with_weight(self.depth, window, np.where(valid, np.uint8(0), NOWHERE), depths)
        for row, col in np.argwhere(known & (depths < 0))[:1].tolist():
            raise InputError(
                f"{self.depth.path}: row {window[0] + row}, column {window[2] + col}: the rain is "
                f"{depths[row, col]}; give depths of at least 0, or nodata"
            )
        return np.rint(np.where(known, depths, 0) * scales).astype(np.int64)
