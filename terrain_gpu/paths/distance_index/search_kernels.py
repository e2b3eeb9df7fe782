"""Kernels of searches from a distance index: over the rims of all tiles, and inside of one."""

from __future__ import annotations

import heapq

import numpy as np

from ...compiled import jit
from ...grid.neighbours import COL_STEP, ROW_STEP
from ...primitives.tournament import NOBODY, challenge, first, leave
from ..cost.edges import infinity_of, join, joining
from .tile import arriving, fill_square, relax_square, through

DONE, LACKS_TILE, REACHED = range(3)
"""Why `search_rims` returns: no pending distance is within the limit; it needs the entries of a
tile; it has visited a tile that is watched."""

SEED = 2**16 - 1
"""Origin of rim cells that are reached from the source inside of its tile."""


@jit
def announce(old, tile, rim, rims, keys, ids, tree):
    """Make the tiles around one pending, into which distances lead that are lower than `old`."""
    down, across = rims.shape[0] - 2, rims.shape[1] - 2
    i, j = tile // across, tile % across
    mine, crossings = rims[i + 1, j + 1], rim.crossings
    for p in range(crossings.shape[1]):
        b, r, c = crossings[0, p], i + crossings[2, p], j + crossings[3, p]
        if not (0 <= r < down and 0 <= c < across):
            continue
        value, other = mine[b], r * across + c
        lower = value < old[b] and value < rims[r + 1, c + 1, crossings[4, p]]
        if lower and value < keys[other]:
            keys[other] = value
            challenge(tree, keys, ids, other)


@jit
def search_rims(way, pool, slots, rim, rims, keys, ids, tree, origins, marks, limit):
    """Propagate distances from rim to rim, the tile with the least pending one first.

    Parameters
    ----------
    way
        From `edges.joining`.
    pool, slots
        `Entries`, and for each tile where they hold its own; -1 for a tile that must be read first.
    rim
        See `rim.TileRim`.
    rims
        Distances of all rim cells, by tile, padded by one tile.
    keys, ids, tree
        For each tile its least pending distance and its number, in a tournament.
    origins
        uint16 (tiles, rim cells): the rim cell of its tile, or the number of rim cells + that of
        the step, from which each rim cell got its distance. No rows if nobody asks.
    marks
        bool (2, tiles): tiles whose rims are not all infinite any more; and tiles with targets.
    limit
        Distances beyond are not propagated.

    Returns
    -------
    why, tile
        See `DONE`.
    """
    infinity, nothing = infinity_of(rims), np.empty(0, np.uint16)
    across, (touched, watched) = rims.shape[1] - 2, marks
    queue = [(infinity, np.int64(0))]
    news, old = np.empty((2, rims.shape[2]), rims.dtype)
    while True:
        t = first(tree)
        if t == NOBODY or keys[t] > limit:
            return DONE, np.int64(-1)
        slot = slots[t]
        if slot < 0:
            return LACKS_TILE, t
        leave(tree, keys, ids, t)
        keys[t] = infinity
        i, j = t // across, t % across
        mine = rims[i + 1, j + 1]
        own = origins[t] if len(origins) > 0 else nothing
        arriving(way, pool.steps[slot], rim, rims, i, j, news, own)
        old[:] = mine
        through(way, pool, slot, mine, news, queue, own)
        touched[t] = True
        announce(old, t, rim, rims, keys, ids, tree)
        if watched[t]:
            return REACHED, t


@jit
def solve_inside(cost, heights, frictions, absent, lengths, options, distances, work):
    """Relax the cells of one square, from the distances that are set; padded by one."""
    unit = len(distances) - 2
    relax_square(cost, heights, frictions, absent, lengths, options, distances, 0, 0, unit, work)


@jit
def way_inside(cost, heights, frictions, absent, lengths, options, work, begin, end, start):
    """The cells of a least-cost path inside of one square, by E. W. Dijkstra's algorithm.

    Parameters
    ----------
    work
        From `tile.new_weights`.
    begin, end
        Numbers of cells of the square, row by row.
    start
        The distance that the path begins with.

    Returns
    -------
    cells
        Their numbers, from `end` back to `begin`; none without a path.
    """
    way = joining(cost)
    one, weights = work
    fill_square(cost, heights, frictions, absent, lengths, 0, 0, options, one, weights)
    infinity, side = infinity_of(weights), weights.shape[1]
    far = np.full(side * side, infinity, weights.dtype)
    before = np.full(side * side, -1, np.int64)
    far[begin] = start
    queue = [(start, np.int64(begin))]
    while len(queue) > 0:
        value, cell = heapq.heappop(queue)
        if value > far[cell]:
            continue
        if cell == end:
            break
        y, x = cell // side, cell % side
        for k in range(8):
            r, c = y + ROW_STEP[k], x + COL_STEP[k]
            if not (0 <= r < side and 0 <= c < side):
                continue
            weight = weights[(k + 4) % 8, r, c]
            if weight == infinity:
                continue
            new, other = join(way, value, weight), r * side + c
            if new < far[other]:
                far[other], before[other] = new, cell
                heapq.heappush(queue, (new, np.int64(other)))
    cells = [np.int64(end)]
    while cells[-1] != begin and cells[-1] >= 0:
        cells.append(before[cells[-1]])
    if cells[-1] < 0:
        cells.clear()
    return np.array(cells, np.int64)
