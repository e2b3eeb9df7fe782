"""Relax one block for all lanes: `relax.block` with a vector of distances in each cell.

A tile is visited for all lanes at once, in the order of the least pending distance of any lane.
Within a block of moderate size the lanes' fronts are pending together: a visit serves six or seven
lanes of eight, while over a whole raster it would serve four.
"""

from __future__ import annotations

import heapq

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ...grid import TILE
from ...grid.neighbours import COL_STEP, ROW_STEP
from ..cost.edges import infinity_of, joining
from ..cost.knights import halo_of
from ..cost.steps import fill_weights
from ..relax.block import side_of
from .lanes import LANES
from .tile import relax_tile


@jit
def seed(distances, keys, whole, lane, rows, cols, values):
    """As `relax.block.seed`, for one lane."""
    halo = (distances.shape[0] - keys.shape[0] * TILE) // 2
    for k in range(len(rows)):
        r, c = rows[k], cols[k]
        if values[k] < distances[r + halo, c + halo, lane]:
            distances[r + halo, c + halo, lane] = values[k]
            for dr in range(-halo, halo + 1):
                for dc in range(-halo, halo + 1):
                    i, j = (r + dr) // TILE, (c + dc) // TILE
                    if 0 <= i < keys.shape[0] and 0 <= j < keys.shape[1]:
                        keys[i, j, lane] = min(keys[i, j, lane], values[k])
            whole[r // TILE, c // TILE] = True


@jit
def receive(distances, keys, halo):
    """As `relax.block.receive`, for all lanes."""
    lines = len(halo) // 4
    height, width = distances.shape[0] - 2 * lines, distances.shape[1] - 2 * lines
    for line in range(4 * lines):
        s, n = line // lines, line % lines
        along, across = (width, height) if s < 2 else (height, width)
        edge = 0 if s % 2 == 0 else (across - 1) // TILE
        fixed = lines - 1 - n if s % 2 == 0 else across + lines + n
        for k in range(along + 2 * lines):
            r, c = (fixed, k) if s < 2 else (k, fixed)
            for lane in range(LANES):
                value = halo[line, k, lane]
                if value >= distances[r, c, lane]:
                    continue
                distances[r, c, lane] = value
                for t in range(max(k - 2 * lines, 0) // TILE, min(k, along - 1) // TILE + 1):
                    i, j = (edge, t) if s < 2 else (t, edge)
                    keys[i, j, lane] = min(keys[i, j, lane], value)


@jit
def receive_seam(distances, keys, whole, column, halo):
    """As `relax.block.receive_seam`, for all lanes."""
    lines = len(halo)
    height, width = distances.shape[0] - 2 * lines, distances.shape[1] - 2 * lines
    j = (column - lines - 1) // TILE
    for n in range(lines):
        for k in range(height + 2 * lines):
            for lane in range(LANES):
                value = halo[n, k, lane]
                if value >= distances[k, column + n, lane]:
                    continue
                distances[k, column + n, lane] = value
                for i in range(max(k - 2 * lines, 0) // TILE, min(k, height - 1) // TILE + 1):
                    keys[i, j, lane] = min(keys[i, j, lane], value)
                    if column + n < width + lines:
                        whole[i, j] = True


@jit
def take_rim(distances, rim):
    """As `relax.block.take_rim`, for all lanes."""
    lines = len(rim) // 4
    height, width = distances.shape[0] - 2 * lines, distances.shape[1] - 2 * lines
    for n in range(lines):
        below, right = lines + height - 1 - n, lines + width - 1 - n
        for lane in range(LANES):
            for k in range(width):
                rim[n, k, lane] = distances[lines + n, k + lines, lane]
                rim[lines + n, k, lane] = distances[below, k + lines, lane]
            for k in range(height):
                rim[2 * lines + n, k, lane] = distances[k + lines, lines + n, lane]
                rim[3 * lines + n, k, lane] = distances[k + lines, right, lane]


@jit
def relax_block(
    cost,
    heights,
    frictions,
    absent,
    lengths,
    options,
    distances,
    keys,
    whole,
    limits,
    guard,
    work,
    sides,
):
    """Relax pending tiles in order; see `relax.block.relax_block`, which this follows.

    Parameters
    ----------
    distances, keys, sides
        With the lanes as last axis.
    limits
        By lane: larger distances are not passed on.

    Returns
    -------
    least, visits, passes, overflow
        As there; nothing stays pending.
    """
    infinity = infinity_of(distances)
    down, across = keys.shape[:2]
    width, halo = distances.shape[1], halo_of(options)
    flat, lowered = distances.reshape(distances.size), work[4]
    queue = [(infinity, np.int64(0))]
    queue.clear()
    for t in range(down * across):
        key = _least(keys[t // across, t % across], limits, infinity)
        if key < infinity:
            heapq.heappush(queue, (key, np.int64(t)))
    visits = passes = 0
    while len(queue) > 0:
        key, t = heapq.heappop(queue)
        i, j = t // across, t % across
        if key != _least(keys[i, j], limits, infinity):
            continue
        keys[i, j] = infinity
        visits += 1
        row, col = i * TILE, j * TILE
        fill_weights(cost, heights, frictions, absent, lengths, row, col, options, work[1])
        first, stride = (row * width + col) * LANES, width * LANES
        passes += relax_tile(joining(cost), flat, first, stride, whole[i, j], work)
        whole[i, j] = False
        r, c = row + halo, col + halo
        if guard < infinity and _farthest(distances[r : r + TILE, c : c + TILE]) > guard:
            return infinity, visits, passes, True
        for k in range(8):
            found = lowered[k * LANES : (k + 1) * LANES]
            y, x = i + ROW_STEP[k], j + COL_STEP[k]
            if 0 <= y < down and 0 <= x < across:
                if _lower(keys[y, x], found, limits):
                    key = _least(keys[y, x], limits, infinity)
                    heapq.heappush(queue, (key, y * across + x))
            else:
                _lower(sides[side_of(k, y, x, down, across)], found, limits)
    return infinity, visits, passes, False


@register_jitable
def _least(keys, limits, infinity):
    """The least key of a lane that does not exceed its limit."""
    found = infinity
    for lane in range(LANES):
        if keys[lane] <= limits[lane]:
            found = min(found, keys[lane])
    return found


@register_jitable
def _lower(keys, found, limits):
    """Lower keys to distances within their limits; returns whether one is lower."""
    changed = False
    for lane in range(LANES):
        if found[lane] < keys[lane] and found[lane] <= limits[lane]:
            keys[lane] = found[lane]
            changed = True
    return changed


@register_jitable
def _farthest(tile):
    """The largest finite distance of a tile."""
    infinity = infinity_of(tile)
    most = tile.dtype.type(0)
    for y in range(TILE):
        for x in range(TILE):
            for lane in range(LANES):
                if tile[y, x, lane] < infinity:
                    most = max(most, tile[y, x, lane])
    return most
