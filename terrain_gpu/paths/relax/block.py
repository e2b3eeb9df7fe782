"""Relax one block: its tiles in the order of their least pending distance.

Blocks are visited in the same way. This is a label-correcting method, and its order makes it nearly
label-setting. Distances never fall below the true ones, and every relaxation is monotone, also in
floating point. Any order therefore ends at the same fixed point.
"""

from __future__ import annotations

import heapq

import numpy as np
from numba import types
from numba.extending import overload, register_jitable

from ...compiled import jit
from ...grid import TILE
from ...grid.neighbours import COL_STEP, ROW_STEP
from ..cost.edges import Differences, infinity_of, is_mutual
from ..cost.models import AbsDiff
from ..cost.steps import fill_weights
from .continuous import way_of
from .simd import enter_tile
from .tile import PADDED, relax_tile


@jit
def seed(distances, keys, whole, rows, cols, values):
    """Lower the cells of sources (block coordinates) to `values`; their tiles become pending."""
    across = keys.shape[1]
    halo = (distances.shape[0] - keys.shape[0] * TILE) // 2
    for k in range(len(rows)):
        r, c = rows[k], cols[k]
        if values[k] < distances[r + halo, c + halo]:
            distances[r + halo, c + halo] = values[k]
            for dr in range(-halo, halo + 1):
                for dc in range(-halo, halo + 1):
                    i, j = (r + dr) // TILE, (c + dc) // TILE
                    if 0 <= i < keys.shape[0] and 0 <= j < across:
                        keys[i, j] = min(keys[i, j], values[k])
            whole[r // TILE, c // TILE] = True


@jit
def receive(distances, keys, halo):
    """Lower the halo to the distances of the neighbours; tiles next to it become pending.

    `halo` holds the lines of cells around the block, for each side as many as there are: those
    above and below (with corners), left and right, the nearest first; each fills the front of its
    row.
    """
    lines = len(halo) // 4
    height, width = distances.shape[0] - 2 * lines, distances.shape[1] - 2 * lines
    for line in range(4 * lines):
        s, n = line // lines, line % lines
        along, across = (width, height) if s < 2 else (height, width)
        edge = 0 if s % 2 == 0 else (across - 1) // TILE
        fixed = lines - 1 - n if s % 2 == 0 else across + lines + n
        for k in range(along + 2 * lines):
            r, c = (fixed, k) if s < 2 else (k, fixed)
            value = halo[line, k]
            if value >= distances[r, c]:
                continue
            distances[r, c] = value
            for t in range(max(k - 2 * lines, 0) // TILE, min(k, along - 1) // TILE + 1):
                i, j = (edge, t) if s < 2 else (t, edge)
                keys[i, j] = min(keys[i, j], value)


@jit
def receive_seam(distances, keys, whole, column, halo):
    """Lower the columns beyond the seam to the distances there, like `receive`.

    Parameters
    ----------
    distances
        Distances of the block, padded by as many columns as there are.
    keys, whole
        See `relax_block`.
    column
        The first of them, from `BlockGrid.seam`. It may lie inside of the last tiles, see `seam`.
    halo
        For each column: distances beyond the seam, with the corners.
    """
    lines = len(halo)
    height, width = distances.shape[0] - 2 * lines, distances.shape[1] - 2 * lines
    j = (column - lines - 1) // TILE
    for n in range(lines):
        for k in range(height + 2 * lines):
            value = halo[n, k]
            if value >= distances[k, column + n]:
                continue
            distances[k, column + n] = value
            for i in range(max(k - 2 * lines, 0) // TILE, min(k, height - 1) // TILE + 1):
                keys[i, j] = min(keys[i, j], value)
                # In a halo, changes are noticed; inside of a tile they are not.
                if column + n < width + lines:
                    whole[i, j] = True


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
    limit,
    guard,
    work,
    sides,
):
    """Relax pending tiles in order, while the least pending distance is at most `limit`.

    Parameters
    ----------
    heights, frictions, absent, lengths, options
        See `fill_weights`.
    distances
        Distances of the block, padded by `halo_of` the options.
    keys
        Per tile: the least distance still to be propagated into it.
    whole
        Per tile: whether cells within it were set.
    limit
        Tiles with larger keys stay pending.
    guard
        Stop when a distance exceeds this.
    work
        From `new_tile_work`.
    sides
        Per D8 direction: lowered to the least distance that may be brought beyond that side or
        corner.

    Returns
    -------
    least, visits, passes, overflow
        Least pending key, number of tiles relaxed and of row passes, and whether `guard` was
        exceeded.
    """
    infinity = infinity_of(distances)
    down, across = keys.shape
    queue = [(keys[0, 0], np.int64(0))]
    queue.clear()
    for t in range(down * across):
        if keys[t // across, t % across] < infinity:
            heapq.heappush(queue, (keys[t // across, t % across], np.int64(t)))
    improved = np.empty(8, distances.dtype)
    # Made here, because making tuples and views counts references.
    z = np.empty((PADDED, PADDED), np.uint16)
    small, into = (np.empty_like(z), z, work[2], work[3]), z.reshape(z.size)
    cells = distances.reshape(distances.size), heights.reshape(heights.size)
    flats = *cells, absent.reshape(absent.size).view(np.uint8)
    visits = passes = 0
    least = infinity
    while len(queue) > 0:
        key, t = heapq.heappop(queue)
        i, j = t // across, t % across
        if key != keys[i, j]:
            continue
        if key > limit:
            least = key
            break
        keys[i, j] = infinity
        visits += 1
        row, col = i * TILE, j * TILE
        passed = relax_differences(
            cost, flats, options, distances, row, col, whole[i, j], guard, small, into, improved
        )
        if passed < 0:
            fill_weights(cost, heights, frictions, absent, lengths, row, col, options, work[1])
            way = way_of(cost, options, lengths, row)
            passed = relax_tile(
                way, distances, row, col, whole[i, j], work, improved, is_mutual(cost)
            )
            if guard < infinity and _farthest(work[0]) > guard:
                return least, visits, passes, True
        passes += passed
        whole[i, j] = False
        for k in range(8):
            if improved[k] == infinity:
                continue
            y, x = i + ROW_STEP[k], j + COL_STEP[k]
            if 0 <= y < down and 0 <= x < across:
                if improved[k] < keys[y, x]:
                    keys[y, x] = improved[k]
                    heapq.heappush(queue, (improved[k], y * across + x))
            else:
                side = side_of(k, y, x, down, across)
                sides[side] = min(sides[side], improved[k])
                # The corner cell of a corner tile also touches the neighbours on both sides; they
                # learn of it through sides k - 1 and k + 1.
    return least, visits, passes, False


def relax_differences(
    cost, flats, options, distances, row, col, whole, guard, work, heights, improved
):
    """`relax_tile` with `Differences`, in compiled code only.

    Returns -1, with the block as before, for other costs, tiles with absent cells and where 16 bits
    do not suffice.

    Parameters
    ----------
    flats
        Distances, heights and absent cells of the block, in one dimension.
    work
        As for `relax_tile`, with `heights` in place of costs of steps.
    """
    raise RuntimeError("for compiled code only")


@overload(relax_differences)
def _relax_differences_of(
    cost, flats, options, distances, row, col, whole, guard, work, heights, improved
):
    if cost.instance_class is AbsDiff and flats[1].dtype == types.uint16:
        return _relax_differences
    return _relax_no_differences


def _relax_no_differences(
    cost, flats, options, distances, row, col, whole, guard, work, heights, improved
):
    return -1


def _relax_differences(
    cost, flats, options, distances, row, col, whole, guard, work, heights, improved
):
    diagonal, corner_cutting, _ = options
    if not diagonal or not corner_cutting:
        return -1
    stride = distances.shape[1]
    base = enter_tile(*flats, row * stride + col, stride, heights)
    if guard < np.uint32(0xFFFF) or base > guard - np.uint32(0xFFFF):
        return -1
    return relax_tile(Differences(base), distances, row, col, whole, work, improved, True)


@register_jitable
def _farthest(d):
    """The largest finite distance of a tile."""
    infinity = infinity_of(d)
    most = d.dtype.type(0)
    for y in range(d.shape[0]):
        row = d[y]
        for x in range(d.shape[1]):
            most = max(most, row[x] if row[x] < infinity else d.dtype.type(0))
    return most


@register_jitable
def side_of(k, y, x, down, across):
    """D8 direction of the block that contains a tile outside this block."""
    dy = -1 if y < 0 else (1 if y >= down else 0)
    dx = -1 if x < 0 else (1 if x >= across else 0)
    for m in range(8):
        if ROW_STEP[m] == dy and COL_STEP[m] == dx:
            return m
    return k


@jit
def take_rim(distances, rim):
    """Copy the outer cells of a block to `rim`: lines at the top, bottom, left and right.

    Each side has as many as the halo, the outermost first.
    """
    lines = len(rim) // 4
    height, width = distances.shape[0] - 2 * lines, distances.shape[1] - 2 * lines
    for n in range(lines):
        above, below = lines + n, lines + height - 1 - n
        left, right = lines + n, lines + width - 1 - n
        for k in range(width):
            rim[n, k] = distances[above, k + lines]
            rim[lines + n, k] = distances[below, k + lines]
        for k in range(height):
            rim[2 * lines + n, k] = distances[k + lines, left]
            rim[3 * lines + n, k] = distances[k + lines, right]
