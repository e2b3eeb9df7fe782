"""Where the last column of a raster meets the first one: rims and halos of blocks at the seam.

A block is padded to whole tiles, so the column beyond the seam may lie inside of its last tile.
There it holds cells like any others, which belong to the block across. What the block itself finds
for them are upper bounds of their distances, like all others during relaxation.
"""

from __future__ import annotations

import numpy as np

from ..edges import infinity_of


def trim_rim(distances: np.ndarray, rim: np.ndarray, column: int) -> None:
    """Let the rim of a block at the seam end there, see `block.take_rim`."""
    rim[:2, column - 1 :] = infinity_of(rim)
    rim[3, : len(distances) - 2] = distances[1:-1, column - 1]


def lower_sides(distances: np.ndarray, before: np.ndarray, column: int, sides: np.ndarray) -> None:
    """Set the least distances that a visit has lowered on the sides toward the seam.

    Parameters
    ----------
    distances
        Of the block; with an axis of lanes, each lane is treated alone.
    before
        Distances in the last column, before the visit.
    sides
        See `block.relax_block`. It takes the last column of tiles for that of the raster.
    """
    now, beyond = distances[1:-1, column - 1], distances[:, column]
    lowered, infinity = now < before[: len(now)], infinity_of(now)
    # A lowered distance matters only to neighbours with a larger distance.
    farther = now < np.maximum(np.maximum(beyond[:-2], beyond[1:-1]), beyond[2:])
    sides[0] = np.minimum(sides[0], np.where(lowered & farther, now, infinity).min(axis=0))
    for k, end in ((7, 0), (1, -1)):
        found = np.where(lowered[end] & (now[end] < beyond[end]), now[end], infinity)
        sides[k] = np.minimum(sides[k], found)
