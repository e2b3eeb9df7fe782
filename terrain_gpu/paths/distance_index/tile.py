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
from ..cost.edges import infinity_of, join, joining
from ..cost.fields import pages
from ..cost.steps import fill_weights
from ..relax.block import _farthest
from ..relax.tile import relax_tile
from .rim import unit_of


class Entries(NamedTuple):
    """Entries of the tiles of a block, without the superfluous ones; see `packing`.

    Attributes
    ----------
    ends
        int64 (tiles, rim cells + 1): where the distances from each rim cell begin, and the last
        end.
    others
        uint8, or uint16 where a tile has more rim cells: those that these lead to.
    ways
        The distances.
    steps
        (tiles, steps): costs of steps into the tile, see `rim.TileRim`; infinity for no step.
    """

    ends: np.ndarray
    others: np.ndarray
    ways: np.ndarray
    steps: np.ndarray


LANES = 64
"""A tile is relaxed from this many rim cells at once."""


def new_weights(unit: int, distance: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Allocate costs of the step into each cell from each neighbour: of a tile of the store, and of
    a square of this side.
    """
    one = np.empty((8, TILE, TILE), distance)
    return one, one if unit == TILE else np.empty((8, unit, unit), distance)


def new_index_work(side: int, distance: np.dtype) -> tuple:
    """Allocate the work space of `index_square`, for tiles of this side."""
    return (
        pages((side + 2, (side + 2) * LANES), distance),  # by row, column with its halo, and lane
        *new_weights(unit_of(side), distance),
        np.empty((2, side + 2), np.bool_),  # rows to relax from the row above, and from below
    )


@register_jitable
def fill_square(cost, heights, frictions, absent, lengths, row, col, options, one, weights):
    """As `steps.fill_weights`, for a square; the arrays are from `new_weights`."""
    for y in range(0, weights.shape[1], TILE):
        for x in range(0, weights.shape[1], TILE):
            down, right = row + y, col + x
            fill_weights(cost, heights, frictions, absent, lengths, down, right, options, one)
            if weights.shape[1] > TILE:
                for k in range(8):
                    for r in range(TILE):
                        for c in range(TILE):
                            weights[k, y + r, x + c] = one[k, r, c]


@jit
def relax_from_many(way, d, weights, row, col, pending):
    """Relax a tile from many cells at once, one lane per cell, until nothing changes.

    All lanes use the same step costs, so each cost is loaded once. In scans along a row each cell
    depends on the previous one; with lanes, these delays overlap. `row` and `col` are those of the
    tile in `weights`.
    """
    side = len(d) - 2
    down, up = pending
    busy = True
    while busy:
        busy = False
        for y in range(1, side + 1):
            if down[y]:
                down[y] = False
                if _relax_row(way, d[y - 1], d[y], side, weights, row + y - 1, col, 6, 7, 5):
                    busy = down[y + 1] = up[y - 1] = True
        for y in range(side, 0, -1):
            if up[y]:
                up[y] = False
                if _relax_row(way, d[y + 1], d[y], side, weights, row + y - 1, col, 2, 1, 3):
                    busy = down[y + 1] = up[y - 1] = True


@register_jitable
def _relax_row(way, other, here, side, weights, row, col, straight, right, left):
    """Relax a row from the row above or below, then along itself; whether anything changed."""
    changed = False
    beyond, beside, before = weights[straight, row], weights[right, row], weights[left, row]
    east, west = weights[0, row], weights[4, row]
    # With one index into whole rows, LLVM sees that columns do not overlap, and vectorises; other
    # indices might be negative, and count from the end.
    lanes, first, count = np.uint64(LANES), np.uint64(col), np.uint64(side)
    for x in range(count):
        wn, wr, wl, ww = beyond[first + x], beside[first + x], before[first + x], west[first + x]
        for lane in range(lanes):
            i = (x + np.uint64(1)) * lanes + lane
            old = here[i]
            best = min(join(way, other[i], wn), join(way, other[i + lanes], wr))
            best = min(best, join(way, other[i - lanes], wl), old)
            new = min(best, join(way, here[i - lanes], ww))
            changed |= new != old
            here[i] = new
    for x in range(np.uint64(1), count):
        we = east[first + count - np.uint64(1) - x]
        for lane in range(lanes):
            i = (count - x) * lanes + lane
            old = here[i]
            new = min(old, join(way, here[i + lanes], we))
            changed |= new != old
            here[i] = new
    return changed


@jit
def index_square(
    cost, heights, frictions, absent, lengths, row, col, options, rim, nothing, symmetric, work,
    entries,
):  # fmt: skip
    """Compute the entries of the tiles of a square: relax each from its rim cells, `LANES` at once.

    The square is a tile of the index, or the tiles of the index in a tile of the store, for which
    the costs of steps are computed together.

    Parameters
    ----------
    heights, frictions, absent, lengths, row, col, options
        See `steps.fill_weights`.
    rim
        See `rim.TileRim`.
    nothing
        Distance of a rim cell from itself.
    symmetric
        Whether to keep only distances to rim cells of lower number.
    work
        From `new_index_work`.
    entries
        (tile rows, tile columns, entries), receives those of the tiles that the raster has; see
        `rim.entries_of`.
    """
    d, one, weights, _ = work
    side = len(d) - 2
    fill_square(cost, heights, frictions, absent, lengths, row, col, options, one, weights)
    for i in range(entries.shape[0]):
        for j in range(entries.shape[1]):
            _index_tile(
                joining(cost), absent, row, col, i * side, j * side, rim, nothing, symmetric, work,
                entries[i, j],
            )  # fmt: skip


@jit
def _index_tile(way, absent, row, col, down, right, rim, nothing, symmetric, work, entries):
    """As `index_square`, for the tile that begins so far down and right in the square."""
    d, _, weights, pending = work
    infinity, (rows, cols) = infinity_of(d), rim.cells
    count, (row, col) = len(rows), (row + down, col + right)
    for first in range(0, count, LANES):
        last = min(first + LANES, count)
        d[:] = infinity
        pending[:] = False
        for b in range(first, last):
            r, c = rows[b], cols[b]
            if not absent[row + 1 + r, col + 1 + c]:
                d[r + 1, (c + 1) * LANES + b - first] = nothing
                # The row of the cell itself has not been scanned yet.
                pending[0, r + 1 : r + 3] = True
                pending[1, r] = True
        relax_from_many(way, d, weights, down, right, pending)
        for b in range(first, last):
            start = b * (b - 1) // 2 if symmetric else b * count
            for a in range(b if symmetric else count):
                entries[start + a] = d[rows[a] + 1, (cols[a] + 1) * LANES + b - first]
    begin = len(entries) - rim.crossings.shape[1]
    for p in range(rim.crossings.shape[1]):
        b, k = rim.crossings[0, p], rim.crossings[1, p]
        r, c = rows[b], cols[b]
        gone = absent[row + 1 + r + ROW_STEP[k], col + 1 + c + COL_STEP[k]]
        entries[begin + p] = infinity if gone else weights[k, down + r, right + c]


@jit
def pass_block(way, data, rim, rims, first, shape, inside, limit, guard, sides, scratch):
    """Propagate distances from rim to rim through the tiles of a block until none is pending.

    Tiles are visited in the order of their least pending distance.

    Parameters
    ----------
    way
        From `edges.joining`; nothing else of a cost model matters here.
    data
        `Entries` of the block's tiles, row by row.
    rim
        See `rim.TileRim`.
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
        Two arrays of a value for each rim cell.

    Returns
    -------
    visits, overflow
        Number of tiles visited, and whether `guard` was exceeded.
    """
    infinity, nothing = infinity_of(rims), np.empty(0, np.uint16)
    (down, across), crossings = shape, rim.crossings
    keys = np.full((down, across), infinity, rims.dtype)
    queue, inner = [(infinity, np.int64(0))], [(infinity, np.int64(0))]
    queue.clear()
    for t in range(down * across):
        i, j = t // across, t % across
        if inside or i in (0, down - 1) or j in (0, across - 1):
            y, x = first[0] + i, first[1] + j
            mine = rims[y + 1, x + 1]
            keys[i, j] = arriving(
                way, data.steps[t], crossings, rims, y, x, mine, scratch[0], nothing
            )
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
        arriving(way, data.steps[t], crossings, rims, y, x, mine, scratch[0], nothing)
        old[:] = mine
        visits += 1
        ways = data.ends[t], data.others, data.ways
        if through(way, *ways, mine, scratch[0], inner, nothing) > guard:
            return visits, True
        for p in range(crossings.shape[1]):
            b, dy, dx = crossings[0, p], crossings[2, p], crossings[3, p]
            value = mine[b]
            if value >= old[b] or value >= rims[y + 1 + dy, x + 1 + dx, crossings[4, p]]:
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
def arriving(way, steps, crossings, rims, i, j, mine, news, origins):
    """Compute lower distances at a rim from steps out of other tiles; returns the least.

    Parameters
    ----------
    steps
        Costs of these steps.
    crossings
        See `rim.TileRim`, or `rim.Squares` for a square of tiles.
    i, j
        Row and column of the tile, or of the first one in the square.
    mine
        The distances at its rim.
    news
        Receives a distance for each rim cell; infinity where none is lower.
    origins
        uint16, receives the number of rim cells + that of the step for each of them; or no
        elements.
    """
    infinity, never = infinity_of(rims), infinity_of(steps)
    news[:] = infinity
    least = infinity
    for p in range(crossings.shape[1]):
        there = rims[i + 1 + crossings[2, p], j + 1 + crossings[3, p], crossings[4, p]]
        b = crossings[0, p]
        if there < mine[b] and steps[p] < never:
            new = join(way, there, rims.dtype.type(steps[p]))
            if new < mine[b] and new < news[b]:
                news[b] = new
                least = min(least, new)
                if len(origins) > 0:
                    origins[b] = len(mine) + p
    return least


@register_jitable
def through(way, ends, others, ways, mine, news, queue, origins):
    """Lower the rim `mine` of a tile by arriving distances, and by ways through the tile.

    The method is E. W. Dijkstra's; `queue` is a list of its entries, empty before and after.
    Returns the largest distance that was lowered. `ends`, `others` and `ways` are `Entries`, with
    the ends of this tile. `origins`, if it has elements, receives for each rim cell that is lowered
    on a way through the tile the one before it.
    """
    kind, infinity = mine.dtype.type, infinity_of(mine)
    most = kind(0)
    queue.clear()
    for b in range(len(mine)):
        if news[b] < mine[b]:
            mine[b] = news[b]
            heapq.heappush(queue, (news[b], np.int64(b)))
    while len(queue) > 0:
        value, b = heapq.heappop(queue)
        if value > mine[b]:
            continue
        most = max(most, value)
        for e in range(ends[b], ends[b + 1]):
            a = others[e]
            new = join(way, value, kind(ways[e]))
            if new < mine[a]:
                mine[a] = new
                if new < infinity:
                    heapq.heappush(queue, (new, np.int64(a)))
                if len(origins) > 0:
                    origins[a] = b
    return most


@register_jitable
def relax_square(
    cost, heights, frictions, absent, lengths, options, distances, row, col, unit, work
):
    """Relax a square of tiles of the store, those inside the padded field, until nothing changes.

    Returns whether there was a distance to begin with.
    """
    infinity, improved = infinity_of(distances), np.empty(8, distances.dtype)
    last_row = min(row + unit, distances.shape[0] - 2)
    last_col = min(col + unit, distances.shape[1] - 2)
    if distances[row : last_row + 2, col : last_col + 2].min() == infinity:
        return False
    whole = busy = True
    while busy:
        busy = False
        for y in range(row, last_row, TILE):
            for x in range(col, last_col, TILE):
                fill_weights(cost, heights, frictions, absent, lengths, y, x, options, work[1])
                relax_tile(joining(cost), distances, y, x, whole, work, improved, False)
                for k in range(8):
                    r, c = y + ROW_STEP[k] * TILE, x + COL_STEP[k] * TILE
                    inside = row <= r < last_row and col <= c < last_col
                    busy |= inside and improved[k] < infinity
        whole = False
    return True


@jit
def seed_rims(
    cost, heights, frictions, absent, lengths, options, distances, chosen, rim, rims, first, shape,
    unit, work,
):  # fmt: skip
    """Solve the `chosen` squares, which contain sources, and lower the rims of their tiles.

    `first` and `shape` are those of the block's tiles, as for `pass_block`.
    """
    side, (rows, cols) = rim.side, rim.cells
    own = unit // side
    for i in range(chosen.shape[0]):
        for j in range(chosen.shape[1]):
            row, col = i * unit, j * unit
            if not chosen[i, j] or not relax_square(
                cost, heights, frictions, absent, lengths, options, distances, row, col, unit, work
            ):
                continue
            for y in range(i * own, min((i + 1) * own, shape[0])):
                for x in range(j * own, min((j + 1) * own, shape[1])):
                    mine = rims[first[0] + y + 1, first[1] + x + 1]
                    for b in range(len(rows)):
                        r, c = y * side + 1 + rows[b], x * side + 1 + cols[b]
                        if r < distances.shape[0] - 1 and c < distances.shape[1] - 1:
                            mine[b] = min(mine[b], distances[r, c])


@jit
def fill_block(
    cost, heights, frictions, absent, lengths, options, distances, rim, rims, first, shape, unit,
    work,
):  # fmt: skip
    """Compute the distances of all cells of a block from the rims of its tiles and its sources.

    `distances` must hold the start values of sources. Returns the largest distance.
    """
    side, (rows, cols) = rim.side, rim.cells
    down, across = shape
    for i in range(-1, down + 1):
        for j in range(-1, across + 1):
            mine = rims[first[0] + i + 1, first[1] + j + 1]
            for b in range(len(rows)):
                r, c = i * side + rows[b] + 1, j * side + cols[b] + 1
                if 0 <= r < distances.shape[0] and 0 <= c < distances.shape[1]:
                    distances[r, c] = min(distances[r, c], mine[b])
    most, inner = distances.dtype.type(0), distances[1:-1, 1:-1]
    for row in range(0, inner.shape[0], unit):
        for col in range(0, inner.shape[1], unit):
            if relax_square(
                cost, heights, frictions, absent, lengths, options, distances, row, col, unit, work
            ):
                most = max(most, _farthest(inner[row : row + unit, col : col + unit]))
    return most
