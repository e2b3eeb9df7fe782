"""Where the last column of a raster meets the first one: rims and halos of blocks at the seam.

A block is padded to whole tiles, so the columns beyond the seam may lie inside of its last tile.
There they hold cells like any others, which belong to the block across. What the block itself finds
for them are upper bounds of their distances, like all others during relaxation. There are as many
as the halo: one, or two for 16 neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...grid import Block, BlockGrid
from ..cost.edges import infinity_of


def trim_rim(distances: np.ndarray, rim: np.ndarray, column: int) -> None:
    """Let the rim of a block at the seam end there, see `block.take_rim`."""
    halo = len(rim) // 4
    rim[: 2 * halo, column - halo :] = infinity_of(rim)
    for n in range(halo):
        rim[3 * halo + n, : len(distances) - 2 * halo] = distances[halo:-halo, column - 1 - n]


def lower_sides(distances: np.ndarray, before: np.ndarray, column: int, sides: np.ndarray) -> None:
    """Set the least distances that a visit has lowered on the sides toward the seam.

    Parameters
    ----------
    distances
        Of the block; with an axis of lanes, each lane is treated alone.
    before
        Distances in the last columns, the outermost first, before the visit.
    sides
        See `block.relax_block`. It takes the last column of tiles for that of the raster.
    """
    halo = len(before)
    height = len(distances) - 2 * halo
    beyond = distances[:, column : column + halo].max(axis=1)
    infinity = infinity_of(distances)
    # A lowered distance matters only to neighbours with a larger distance.
    around = np.max([beyond[n : n + height] for n in range(2 * halo + 1)], axis=0)
    corners = (7, np.s_[:halo]), (1, np.s_[-halo:])
    for n in range(min(halo, column - halo)):
        now = distances[halo:-halo, column - 1 - n]
        lowered = np.where(now < before[n, :height], now, infinity)
        found = np.where(lowered < around, lowered, infinity).min(axis=0)
        sides[0] = np.minimum(sides[0], found)
        for k, end in corners:
            farthest = beyond[end].max(axis=0)
            found = np.where(lowered[end] < farthest, lowered[end], infinity).min(axis=0)
            sides[k] = np.minimum(sides[k], found)


def take_halo(
    blocks: BlockGrid,
    at: Block,
    shape: tuple[int, int],
    rims: Mapping[Block, np.ndarray],
    found: np.ndarray,
) -> None:
    """Copy the cells of neighbours' rims next to a block, see `Relaxation._halo`.

    Parameters
    ----------
    shape
        Rows and columns of the block, in whole tiles.
    rims
        See `block.take_rim`.
    found
        Receives them.
    """
    (i, j), (height, width), seam = at, shape, blocks.seam(at)
    h = len(found) // 4
    for side, di in ((0, -1), (1, 1)):
        if (rim := rims.get((i + di, j))) is not None:
            first = (1 - side) * h
            found[side * h : (side + 1) * h, h : width + h] = rim[first : first + h, :width]
    _, _, c0, c1 = blocks.window(*at)
    for m in range(h):
        for side, k, n in ((2, h - 1 - m, -1 - m), (4 if seam else 3, width + h + m, c1 - c0 + m)):
            if (owner := blocks.column_beside(j, n)) is None:
                continue
            _, _, first, last = blocks.window(i, owner[0])
            line = 2 * h + owner[1] if n >= 0 else 3 * h + last - first - 1 - owner[1]
            if (rim := rims.get((i, owner[0]))) is not None:
                found[side * h + m, h : height + h] = rim[line, :height]
            for di in (-1, 1):
                if (rim := rims.get((i + di, owner[0]))) is None:
                    continue
                for y in range(h):
                    value = rim[(di < 0) * h + y, owner[1]]
                    if side == 4:
                        found[4 * h + m, h - 1 - y if di < 0 else height + h + y] = value
                    else:
                        found[(di > 0) * h + y, k] = value
