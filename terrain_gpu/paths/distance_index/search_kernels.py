"""Kernels of searches from a distance index: over the rims of all tiles, and inside of one."""

from __future__ import annotations

import heapq

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ...grid.neighbours import COL_STEP, ROW_STEP
from ...primitives.tournament import NOBODY, challenge, first, leave
from ..cost.edges import infinity_of, join, joining
from .tile import arriving, fill_square, relax_square, through

DONE, LACKS_TILE, REACHED = range(3)
"""Why `search_rims` returns: no pending distance is within the limit; it needs the entries of a
square; it has visited a tile that is watched."""


@register_jitable
def _owner(squares, split, i, j):
    """The square in which a search sees a tile: the largest one that is not split."""
    level = len(squares.across) - 1
    while True:
        found = squares.first[level] + (i >> level) * squares.across[level] + (j >> level)
        if level == 0 or not split[found]:
            return found
        level -= 1


@jit
def announce(old, mine, square, level, shape, squares, split, rims, keys, ids, tree):
    """Make the squares around one pending, into which distances lead that are lower than `old`.

    `mine` are the distances at the rim of the square; for the rest see `search_rims`.
    """
    down, across = shape
    number, crossings = square - squares.first[level], squares.crossings
    i = number // squares.across[level] << level
    j = number % squares.across[level] << level
    for p in range(squares.steps[level], squares.steps[level + 1]):
        b, r, c = crossings[0, p], i + crossings[2, p], j + crossings[3, p]
        value = mine[b]
        if value >= old[b] or not (0 <= r < down and 0 <= c < across):
            continue
        if value < rims[r + 1, c + 1, crossings[4, p]]:
            other = _owner(squares, split, r, c)
            if value < keys[other]:
                keys[other] = value
                challenge(tree, keys, ids, other)


@jit
def search_rims(way, pool, slots, shape, squares, rims, keys, ids, tree, origins, marks, limit):
    """Propagate distances from rim to rim, the square with the least pending one first.

    Parameters
    ----------
    way
        From `edges.joining`.
    pool, slots
        `Entries` of squares of all levels, one after the other in flat arrays, and for each square
        where its ends and its steps begin (2, squares); -1 for one that must be read first.
    shape
        Number of tile rows and columns.
    squares
        `rim.Squares`.
    rims
        Distances of all rim cells, by tile, padded by one tile, after the last ones up to whole
        squares. Those of a larger square are rim cells of its tiles.
    keys, ids, tree
        For each square its least pending distance and its number, in a tournament.
    origins
        (tiles, rim cells): the rim cell of its square, or the number of these + that of the step,
        from which each rim cell got its distance. No rows if nobody asks.
    marks
        bool (3, squares): those whose rims are not all infinite any more; those with targets; and
        those that are split, because an end lies in them.
    limit
        Distances beyond are not propagated.

    Returns
    -------
    why, square
        See `DONE`.
    """
    infinity, (touched, watched, split) = infinity_of(rims), marks
    queue = [(infinity, np.int64(0))]
    largest = squares.rims[-1] - squares.rims[-2]
    all_news, all_old, all_mine = np.empty((3, largest), rims.dtype)
    traced = len(origins) > 0
    all_own = np.empty(largest if traced else 0, origins.dtype)
    while True:
        t = first(tree)
        if t == NOBODY or keys[t] > limit:
            return DONE, np.int64(-1)
        if slots[0, t] < 0:
            return LACKS_TILE, t
        leave(tree, keys, ids, t)
        keys[t] = infinity
        level = 0
        while t >= squares.first[level + 1]:
            level += 1
        number = t - squares.first[level]
        i = number // squares.across[level] << level
        j = number % squares.across[level] << level
        cells = squares.cells[:, squares.rims[level] : squares.rims[level + 1]]
        crossings = squares.crossings[:, squares.steps[level] : squares.steps[level + 1]]
        count = cells.shape[1]
        news, old, mine = all_news[:count], all_old[:count], all_mine[:count]
        for b in range(count):
            mine[b] = old[b] = rims[i + 1 + cells[0, b], j + 1 + cells[1, b], cells[2, b]]
        own = all_own[:count]
        ends, steps = pool.ends[slots[0, t] :], pool.steps[slots[1, t] :]
        arriving(way, steps, crossings, rims, i, j, mine, news, own)
        through(way, ends, pool.others, pool.ways, mine, news, queue, own)
        for b in range(count):
            if mine[b] < old[b]:
                y, x = i + cells[0, b], j + cells[1, b]
                rims[y + 1, x + 1, cells[2, b]] = mine[b]
                if traced:
                    origins[y * shape[1] + x, cells[2, b]] = own[b]
        touched[t] = True
        announce(old, mine, t, level, shape, squares, split, rims, keys, ids, tree)
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
