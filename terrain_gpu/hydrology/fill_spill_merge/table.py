"""The table of depressions and the water in them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...grid import GridSpec, cell_centres
from ..depressions import kernels as hierarchy
from ..depressions.kernels import OCEAN
from . import kernels
from .pools import AllPools

_ROWS = 1 << 15
"""Number of rows written at a time."""


def columns(
    found: AllPools, grid: GridSpec, scale: float, base: int
) -> Iterator[dict[str, np.ndarray]]:
    """Yield the table in parts, at least one even if it has no rows.

    The depressions that spill come first and have the numbers that `depressions` gives them; those
    that never spill follow.

    Parameters
    ----------
    scale
        Number of units of water per unit of volume.
    base
        Added to elevations.
    """
    rows = np.flatnonzero(found.depressions)
    rows = rows[np.lexsort((found.cells[rows], np.isinf(found.dead[rows])))]
    number = np.zeros(len(found.cells) + 1, np.int64)  # the last entry stands for no parent
    number[rows] = np.arange(1, len(rows) + 1)
    number[:-1][found.cells == OCEAN] = 0
    water, arrived = found.water.copy(), found.passing.copy()
    for values in (water, arrived):
        kernels.add_up(found.deaths, found.pools, values)
    parents = found.up[rows]
    hierarchy.climb(parents, found.dead[rows], found.dead, found.up)
    for start in range(0, max(len(rows), 1), _ROWS):
        which = rows[start : start + _ROWS]
        pit = np.stack(np.divmod(found.cells[which], grid.cols), axis=1)
        x, y = cell_centres(grid, pit).T
        whole = found.first[which + 1] - 1
        yield {
            "id": number[which],
            "parent": number[parents[start : start + _ROWS]],
            "row": pit[:, 0],
            "col": pit[:, 1],
            "x": x,
            "y": y,
            "height": found.heights[which] + base,
            "spill_height": found.dead[which] + base,
            "inflow": arrived[whole] / scale,
            "water": water[whole] / scale,
            "level": found.surfaces[which] + base,
        }
