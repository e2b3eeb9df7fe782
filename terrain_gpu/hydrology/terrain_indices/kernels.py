"""Terrain indices of a block."""

from __future__ import annotations

import math

import numpy as np

from ...compiled import jit
from .rule import NODATA, PLOT, PLOT_SINE, RADIANS

_NODATA = np.float32(NODATA)


@jit
def indices(slopes, absent, sums, per_width, least_tangent, twi, spi, ls):
    """Compute the indices of a block. Pass empty arrays for indices that are not needed.

    Parameters
    ----------
    per_width, least_tangent
        See `IndexRule`; `per_width` for the rows of the block.
    """
    for r in range(slopes.shape[0]):
        for c in range(slopes.shape[1]):
            if absent[r, c]:
                if twi.size:
                    twi[r, c] = _NODATA
                if spi.size:
                    spi[r, c] = _NODATA
                if ls.size:
                    ls[r, c] = _NODATA
                continue
            area = float(sums[r, c]) * per_width[r]
            angle = float(slopes[r, c]) * RADIANS
            if twi.size:
                twi[r, c] = math.log(area / max(math.tan(angle), least_tangent))
            if spi.size:
                spi[r, c] = area * math.tan(angle)
            if ls.size:
                steep = math.pow(math.sin(angle) / PLOT_SINE, 1.3)
                ls[r, c] = math.pow(area / PLOT, 0.4) * steep
