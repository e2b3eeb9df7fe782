"""The rim cells of a tile of the distance index, `rim_of`, and of its levels, `squares_of`."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, get_args

import numpy as np

from ...arguments import IndexTile
from ...grid import TILE, ceil_div
from ...grid.neighbours import COL_STEP, ROW_STEP

TILES = get_args(IndexTile)
"""Sides that tiles of an index may have."""


class TileRim(NamedTuple):
    """The rim cells of a tile, numbered clockwise from the upper left corner.

    Attributes
    ----------
    side
        Of the tile, in cells.
    cells
        int64 (2, count): their rows and columns.
    crossings
        int64 (5, steps), the steps into them from other tiles. Rows: rim cell, D8 direction to the
        other cell, row and column step to its tile, and the number of the other cell on the rim of
        its tile.
    """

    side: int
    cells: np.ndarray
    crossings: np.ndarray


@cache
def rim_of(side: int) -> TileRim:
    """The rim of a tile of side x side cells."""
    last = side - 1
    way = np.arange(last)
    rows = np.concatenate((0 * way, way, last + 0 * way, last - way))
    cols = np.concatenate((way, last + 0 * way, last - way, 0 * way))
    place = {(int(r), int(c)): b for b, (r, c) in enumerate(zip(rows, cols, strict=True))}
    found = []
    for (row, col), b in place.items():
        for k in range(8):
            r, c = row + int(ROW_STEP[k]), col + int(COL_STEP[k])
            i, j = r // side, c // side
            if (i, j) != (0, 0):
                found.append((b, k, i, j, place[r % side, c % side]))
    return TileRim(side, np.stack((rows, cols)), np.array(found, np.int64).T.copy())


class Squares(NamedTuple):
    """The squares of all levels of a raster: those of level k have 2^k x 2^k tiles.

    Attributes
    ----------
    first
        Number of the first square of each level, and the number of all. They are numbered row by
        row, so those of level 0 are numbered as tiles are.
    across
        Number of squares in a row of each level.
    rims, steps
        Where each level's columns begin in `cells` and in `crossings`, and the end of the last.
    cells
        int64 (3, rim cells): row and column of the tile in the square, and number on its rim.
    crossings
        As those of `TileRim`, with the tile of the other cell counted from the square's first one.
    """

    first: np.ndarray
    across: np.ndarray
    rims: np.ndarray
    steps: np.ndarray
    cells: np.ndarray
    crossings: np.ndarray


def squares_of(tile: int, levels: int, shape: tuple[int, int]) -> Squares:
    """The squares of all levels, for a grid of tiles with this side and shape (rows, columns)."""
    numbers = np.zeros((tile, tile), np.int64)
    numbers[tuple(rim_of(tile).cells)] = np.arange(rim_cells(tile))
    first, across, cells, crossings = [0], [], [], []
    for level in range(levels + 1):
        rim = rim_of(tile << level)
        cells.append(np.stack((*rim.cells // tile, numbers[tuple(rim.cells % tile)])))
        b, k = rim.crossings[:2]
        others = rim.cells[:, b] + np.stack((ROW_STEP[k], COL_STEP[k]))
        crossings.append(np.stack((b, k, *others // tile, numbers[tuple(others % tile)])))
        down, wide = (ceil_div(n, 1 << level) for n in shape)
        first.append(first[-1] + down * wide)
        across.append(wide)
    rims, steps = (
        np.cumsum([0, *(part.shape[1] for part in parts)]) for parts in (cells, crossings)
    )
    all_cells, all_crossings = (np.concatenate(parts, axis=1) for parts in (cells, crossings))
    return Squares(np.array(first), np.array(across), rims, steps, all_cells, all_crossings)


def rim_cells(side: int) -> int:
    """Number of rim cells of a tile."""
    return 4 * side - 4


def rim_steps(side: int) -> int:
    """Number of steps into them from other tiles: 3 for each, and 2 more at corners."""
    return 3 * rim_cells(side) + 8


def ways_of(side: int, symmetric: bool) -> int:
    """Number of distances between the rim cells of a tile."""
    count = rim_cells(side)
    return count * (count - 1) // 2 if symmetric else count * count


def entries_of(side: int, symmetric: bool) -> int:
    """Number of entries of a tile: distances between rim cells, then costs of steps into them."""
    return ways_of(side, symmetric) + rim_steps(side)


def number_dtype(side: int) -> np.dtype:
    """Dtype of numbers of rim cells."""
    return np.min_scalar_type(rim_cells(side) - 1)


def unit_of(side: int) -> int:
    """Side of the square of cells that is solved at once: a tile of the store, or of the index."""
    return max(TILE, side)
