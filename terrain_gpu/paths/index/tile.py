"""Compute the index entries of a tile, and propagate distances from rim to rim through them.

The entries of a tile are the distances between its rim cells, and the costs of steps into them.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ...grid import TILE
from ...grid.neighbours import COL_STEP, ROW_STEP
from ..cpu.block import _farthest
from ..cpu.tile import PADDED, relax_tile
from ..edges import infinity_of, join, joining
from ..fields import pages
from ..steps import fill_weights

RING = 4 * TILE - 4
"""Number of rim cells of a tile; they are numbered clockwise from the upper left corner."""

_LAST = TILE - 1
_WAY = np.arange(_LAST)
RING_ROW = np.concatenate((0 * _WAY, _WAY, _LAST + 0 * _WAY, _LAST - _WAY))
RING_COL = np.concatenate((_WAY, _LAST + 0 * _WAY, _LAST - _WAY, 0 * _WAY))


def _crossings() -> np.ndarray:
    """Steps into rim cells from other tiles, in columns.

    Rows: rim cell, D8 direction to the other cell, row and column step to its tile, and the number
    of the other cell on the rim of its tile.
    """
    place = {(int(r), int(c)): b for b, (r, c) in enumerate(zip(RING_ROW, RING_COL, strict=True))}
    found = []
    for (row, col), b in place.items():
        for k in range(8):
            r, c = row + int(ROW_STEP[k]), col + int(COL_STEP[k])
            i, j = r // TILE, c // TILE
            if (i, j) != (0, 0):
                found.append((b, k, i, j, place[r % TILE, c % TILE]))
    return np.array(found, np.int64).T.copy()


CROSSINGS = _crossings()
STEPS = CROSSINGS.shape[1]


def entries_of(symmetric: bool) -> int:
    """Number of entries of a tile: distances between rim cells, then costs of steps into them."""
    return (RING * (RING - 1) // 2 if symmetric else RING * RING) + STEPS


class Entries(NamedTuple):
    """Entries of the tiles of a block, without the superfluous ones; see `packing`.

    Attributes
    ----------
    ends
        int64 (tiles, RING + 1): where the distances from each rim cell begin, and the last end.
    others
        uint8: the rim cells that these lead to.
    ways
        The distances.
    steps
        (tiles, STEPS): costs of steps into the tile, see `CROSSINGS`; infinity for no step.
    """

    ends: np.ndarray
    others: np.ndarray
    ways: np.ndarray
    steps: np.ndarray


LANES = 64
"""A tile is relaxed from this many rim cells at once: those of one side, and one unused lane."""


def new_index_work(distance: np.dtype) -> tuple:
    """Allocate the work space of `index_tile`."""
    return (
        pages((PADDED, PADDED * LANES), distance),  # by row, column with its halo, and lane
        np.empty((8, TILE, TILE), distance),  # cost of a step into each cell from each neighbour
        np.empty((2, PADDED), np.bool_),  # rows to relax from the row above, and from below
    )


@jit
def relax_from_many(way, work):
    """Relax a tile from many cells at once, one lane per cell, until nothing changes.

    All lanes use the same step costs, so each cost is loaded once. In scans along a row each cell
    depends on the previous one; with lanes, these delays overlap.
    """
    d, weights, pending = work
    down, up = pending
    busy = True
    while busy:
        busy = False
        for y in range(1, TILE + 1):
            if down[y]:
                down[y] = False
                if _relax_row(way, d[y - 1], d[y], weights, y - 1, 6, 7, 5):
                    busy = down[y + 1] = up[y - 1] = True
        for y in range(TILE, 0, -1):
            if up[y]:
                up[y] = False
                if _relax_row(way, d[y + 1], d[y], weights, y - 1, 2, 1, 3):
                    busy = down[y + 1] = up[y - 1] = True


@register_jitable
def _relax_row(way, other, here, weights, row, straight, right, left):
    """Relax a row from the row above or below, then along itself; whether anything changed."""
    changed = False
    beyond, beside, before = weights[straight, row], weights[right, row], weights[left, row]
    east, west = weights[0, row], weights[4, row]
    # With one index into whole rows, LLVM sees that columns do not overlap, and vectorises.
    for x in range(TILE):
        wn, wr, wl, ww = beyond[x], beside[x], before[x], west[x]
        for lane in range(LANES):
            i = (x + 1) * LANES + lane
            old = here[i]
            best = min(join(way, other[i], wn), join(way, other[i + LANES], wr))
            best = min(best, join(way, other[i - LANES], wl), old)
            new = min(best, join(way, here[i - LANES], ww))
            changed |= new != old
            here[i] = new
    for x in range(TILE - 1):
        we = east[TILE - 2 - x]
        for lane in range(LANES):
            i = (TILE - 1 - x) * LANES + lane
            old = here[i]
            new = min(old, join(way, here[i + LANES], we))
            changed |= new != old
            here[i] = new
    return changed


@jit
def index_tile(
    cost, heights, frictions, absent, lengths, row, col, options, nothing, symmetric, work, entries
):
    """Compute the entries of one tile: relax it from the rim cells of each side in turn.

    Parameters
    ----------
    heights, frictions, absent, lengths, row, col, options
        See `steps.fill_weights`.
    nothing
        Distance of a rim cell from itself.
    symmetric
        Whether to keep only distances to rim cells of lower number.
    work
        From `new_index_work`.
    entries
        Receives the entries, see `entries_of`.
    """
    d, weights, pending = work
    entries[:] = infinity_of(d)
    fill_weights(cost, heights, frictions, absent, lengths, row, col, options, weights)
    for first in range(0, RING, _LAST):
        d[:] = infinity_of(d)
        pending[:] = False
        for lane in range(_LAST):
            r, c = RING_ROW[first + lane], RING_COL[first + lane]
            if not absent[row + 1 + r, col + 1 + c]:
                d[r + 1, (c + 1) * LANES + lane] = nothing
                # The row of the cell itself has not been scanned yet.
                pending[0, r + 1 : r + 3] = True
                pending[1, r] = True
        relax_from_many(joining(cost), work)
        for lane in range(_LAST):
            b = first + lane
            start = b * (b - 1) // 2 if symmetric else b * RING
            for a in range(b if symmetric else RING):
                entries[start + a] = d[RING_ROW[a] + 1, (RING_COL[a] + 1) * LANES + lane]
    for p in range(STEPS):
        b, k = CROSSINGS[0, p], CROSSINGS[1, p]
        r, c = RING_ROW[b], RING_COL[b]
        if not absent[row + 1 + r + ROW_STEP[k], col + 1 + c + COL_STEP[k]]:
            entries[len(entries) - STEPS + p] = weights[k, r, c]


@jit
def pass_block(way, data, rims, first, shape, inside, limit, guard, sides, scratch):
    """Propagate distances from rim to rim through the tiles of a block until none is pending.

    Tiles are visited in the order of their least pending distance.

    Parameters
    ----------
    way
        From `edges.joining`; nothing else of a cost model matters here.
    data
        `Entries` of the block's tiles, row by row.
    rims
        Distances of all rim cells, by tile, padded by one tile.
    first, shape
        Row and column of the first tile of the block, and number of tile rows and columns.
    inside
        Whether rims within the block were set, and not only those of its neighbours.
    limit, guard
        See `block.relax_block`.
    sides
        Per D8 direction: lowered to the least distance that affects the block there.
    scratch
        Two arrays of RING values.

    Returns
    -------
    visits, overflow
        Number of tiles visited, and whether `guard` was exceeded.
    """
    infinity, nothing = infinity_of(rims), np.empty(0, np.uint16)
    down, across = shape
    keys = np.full((down, across), infinity, rims.dtype)
    queue, inner = [(infinity, np.int64(0))], [(infinity, np.int64(0))]
    queue.clear()
    for t in range(down * across):
        i, j = t // across, t % across
        if inside or i in (0, down - 1) or j in (0, across - 1):
            y, x = first[0] + i, first[1] + j
            keys[i, j] = arriving(way, data.steps[t], rims, y, x, scratch[0], nothing)
            if keys[i, j] < infinity:
                heapq.heappush(queue, (keys[i, j], np.int64(t)))
    visits = 0
    while len(queue) > 0:
        key, t = heapq.heappop(queue)
        i, j = t // across, t % across
        if key != keys[i, j]:
            continue
        if key > limit:
            break
        keys[i, j] = infinity
        y, x = first[0] + i, first[1] + j
        old, mine = scratch[1], rims[y + 1, x + 1]
        arriving(way, data.steps[t], rims, y, x, scratch[0], nothing)
        old[:] = mine
        visits += 1
        if through(way, data, t, mine, scratch[0], inner, nothing) > guard:
            return visits, True
        for p in range(STEPS):
            b, dy, dx = CROSSINGS[0, p], CROSSINGS[2, p], CROSSINGS[3, p]
            value = mine[b]
            if value >= old[b] or value >= rims[y + 1 + dy, x + 1 + dx, CROSSINGS[4, p]]:
                continue
            r, c = i + dy, j + dx
            if 0 <= r < down and 0 <= c < across:
                if value < keys[r, c]:
                    keys[r, c] = value
                    heapq.heappush(queue, (value, r * across + c))
                continue
            for k in range(8):
                if ROW_STEP[k] == _beyond(r, down) and COL_STEP[k] == _beyond(c, across):
                    sides[k] = min(sides[k], value)
    return visits, False


@register_jitable
def _beyond(k, count):
    return -1 if k < 0 else (1 if k >= count else 0)


@register_jitable
def arriving(way, steps, rims, i, j, news, origins):
    """Compute lower distances at a tile's rim from steps out of other tiles; returns the least.

    Parameters
    ----------
    steps
        Costs of these steps, see `CROSSINGS`.
    news
        RING values, receives the distances; infinity where none is lower.
    origins
        uint16, receives `RING` + the number of the step for each of them; or no elements.
    """
    infinity, never = infinity_of(rims), infinity_of(steps)
    mine = rims[i + 1, j + 1]
    news[:] = infinity
    least = infinity
    for p in range(STEPS):
        there = rims[i + 1 + CROSSINGS[2, p], j + 1 + CROSSINGS[3, p], CROSSINGS[4, p]]
        b = CROSSINGS[0, p]
        if there < mine[b] and steps[p] < never:
            new = join(way, there, rims.dtype.type(steps[p]))
            if new < mine[b] and new < news[b]:
                news[b] = new
                least = min(least, new)
                if len(origins) > 0:
                    origins[b] = RING + p
    return least


@register_jitable
def through(way, data, t, mine, news, queue, origins):
    """Lower the rim `mine` of tile `t` by arriving distances, and by ways through the tile.

    The method is E. W. Dijkstra's; `queue` is a list of its entries, empty before and after.
    Returns the largest distance that was lowered. `origins`, if it has elements, receives for each
    rim cell that is lowered on a way through the tile the one before it.
    """
    kind, infinity = mine.dtype.type, infinity_of(mine)
    ends, most = data.ends[t], kind(0)
    queue.clear()
    for b in range(RING):
        if news[b] < mine[b]:
            mine[b] = news[b]
            heapq.heappush(queue, (news[b], np.int64(b)))
    while len(queue) > 0:
        value, b = heapq.heappop(queue)
        if value > mine[b]:
            continue
        most = max(most, value)
        for e in range(ends[b], ends[b + 1]):
            a = data.others[e]
            new = join(way, value, kind(data.ways[e]))
            if new < mine[a]:
                mine[a] = new
                if new < infinity:
                    heapq.heappush(queue, (new, np.int64(a)))
                if len(origins) > 0:
                    origins[a] = b
    return most


@jit
def seed_rims(
    cost, heights, frictions, absent, lengths, options, distances, chosen, rims, first, work
):
    """Solve the `chosen` tiles, which contain sources, and lower their rims."""
    improved = np.empty(8, distances.dtype)
    for i in range(chosen.shape[0]):
        for j in range(chosen.shape[1]):
            if not chosen[i, j]:
                continue
            row, col = i * TILE, j * TILE
            fill_weights(cost, heights, frictions, absent, lengths, row, col, options, work[1])
            relax_tile(joining(cost), distances, row, col, True, work, improved, False)
            mine = rims[first[0] + i + 1, first[1] + j + 1]
            for b in range(RING):
                value = distances[row + 1 + RING_ROW[b], col + 1 + RING_COL[b]]
                mine[b] = min(mine[b], value)


@jit
def fill_block(
    cost, heights, frictions, absent, lengths, options, distances, rims, first, shape, work
):
    """Compute the distances of all cells of a block from the rims of its tiles and its sources.

    `distances` must hold the start values of sources. Returns the largest distance.
    """
    infinity = infinity_of(distances)
    down, across = shape
    improved = np.empty(8, distances.dtype)
    for i in range(-1, down + 1):
        for j in range(-1, across + 1):
            mine = rims[first[0] + i + 1, first[1] + j + 1]
            for b in range(RING):
                r, c = i * TILE + RING_ROW[b] + 1, j * TILE + RING_COL[b] + 1
                if 0 <= r < distances.shape[0] and 0 <= c < distances.shape[1]:
                    distances[r, c] = min(distances[r, c], mine[b])
    most = distances.dtype.type(0)
    for i in range(down):
        for j in range(across):
            row, col = i * TILE, j * TILE
            if distances[row : row + TILE + 2, col : col + TILE + 2].min() == infinity:
                continue
            fill_weights(cost, heights, frictions, absent, lengths, row, col, options, work[1])
            relax_tile(joining(cost), distances, row, col, True, work, improved, False)
            most = max(most, _farthest(work[0]))
    return most
