"""Where the areas of places touch: the cheapest step from the area of one to that of another."""

from __future__ import annotations

import numpy as np

from ...compiled import jit
from ...grid import TILE
from ...grid.neighbours import COL_STEP_16, ROW_STEP_16
from ...primitives.union_find import find
from ..cost.edges import infinity_of, join
from ..cost.knights import halo_of
from ..cost.steps import fill_weights

SHARED = 4
"""Direction of a link between places that share a cell: no step."""

WAYS = 12
"""Directions of crossings: the neighbours 0 to 3 and 8 to 11, and none. Each pair of cells is seen
from its first."""


def link_dtype(distance: np.dtype) -> np.dtype:
    """Of a crossing: ids of two places, the lesser one first, the cost of the way, and where it is.

    `where` is the first cell, row by row, times `WAYS`, plus the direction of the other one; costs
    are float64 or uint64, which no sum of two distances exceeds.
    """
    cost = np.dtype("<f8" if distance.kind == "f" else "<u8")
    return np.dtype([("from", "<u4"), ("to", "<u4"), ("cost", cost), ("where", "<i8")])


@jit
def crossings(cost, cells, options, inner, origin, row, distances, ids, work, found):
    """Find the steps between cells of different places in a row of tiles; returns their number.

    Parameters
    ----------
    cells
        Heights, frictions, absent and lengths of a block; see `fill_weights`.
    inner
        Rows and columns of the block.
    origin
        First row and column of the block, and columns of the raster.
    row
        First row of the tiles.
    distances, ids
        Of the block, padded as its cells; the id of the nearest place is 0 where there is none.
    work
        (8 or 16, TILE, TILE) of the type of distances.
    found
        Columns of `link_dtype`, which receive the steps: 4 for each cell suffice, or 8.
    """
    one, other, costs, where = found
    heights, frictions, absent, lengths = cells
    kind, infinity = costs.dtype.type, infinity_of(distances)
    halo, count, down = halo_of(options), 0, min(TILE, inner[0] - row)
    for col in range(0, inner[1], TILE):
        across = min(TILE, inner[1] - col)
        if not _several(ids[row : row + down + 2 * halo, col : col + across + 2 * halo]):
            continue
        fill_weights(cost, heights, frictions, absent, lengths, row, col, options, work)
        for y in range(down):
            for x in range(across):
                r, c = row + y + halo, col + x + halo
                a, here = ids[r, c], kind(distances[r, c])
                cell = (origin[0] + row + y) * origin[2] + origin[1] + col + x
                for n in range(4 * halo):
                    k = n + n // 4 * 4
                    s, t = r + ROW_STEP_16[k], c + COL_STEP_16[k]
                    b, w = ids[s, t], work[k, y, x]
                    if min(a, b) == 0 or a == b or not w < infinity:
                        continue
                    one[count], other[count] = min(a, b), max(a, b)
                    way = join(cost, here, kind(w))
                    costs[count] = join(cost, way, kind(distances[s, t]))
                    where[count] = cell * WAYS + k
                    count += 1
    return count


@jit
def _several(ids):
    """Whether there are cells of two places."""
    first = 0
    for r in range(ids.shape[0]):
        for c in range(ids.shape[1]):
            if ids[r, c] != 0:
                if first == 0:
                    first = ids[r, c]
                elif ids[r, c] != first:
                    return True
    return False


def cheapest(links: np.ndarray) -> np.ndarray:
    """The link of least cost of each pair, the first one of several; by pairs."""
    order = np.lexsort([links[name] for name in ("where", "cost", "to", "from")])
    links = links[order]
    new = np.ones(len(links), bool)
    new[1:] = (links["from"][1:] != links["from"][:-1]) | (links["to"][1:] != links["to"][:-1])
    return links[new]


def spanning_tree(links: np.ndarray) -> np.ndarray:
    """The links of the spanning forest of least cost (J. B. Kruskal 1956), by pairs.

    Of links of the same cost, the least pairs are taken.
    """
    ids, ends = np.unique(np.stack((links["from"], links["to"])), return_inverse=True)
    one, other = ends.reshape(2, -1)
    order = np.lexsort((links["to"], links["from"], links["cost"]))
    kept = np.zeros(len(links), bool)
    _kruskal(order, one, other, np.arange(len(ids)), kept)
    return links[kept]


@jit
def _kruskal(order, one, other, parent, kept):
    for k in order:
        a, b = find(parent, one[k]), find(parent, other[k])
        if a != b:
            parent[max(a, b)] = min(a, b)
            kept[k] = True
