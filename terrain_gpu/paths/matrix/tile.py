"""Relax one tile for all lanes: `cpu.tile` with a vector of distances in each cell.

Sweeps go down and up; each row is relaxed from the one before and then scanned in both directions,
while it is in the nearest cache. Steps are priced once for all lanes.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ...grid import TILE
from ..edges import infinity_of
from .vectors import LANES, note_lowered, relax_from, relax_from_row

PADDED = TILE + 2
_DOWN, _UP = 1, 2
"""Flags of a row that changed, as in `cpu.tile`."""

WORK_BYTES = 8 * (4 * TILE * LANES + 8 * TILE * TILE + 8 * LANES) + 2 * PADDED


def new_work(distance: np.dtype) -> tuple:
    """Allocate the work space of `relax_tile`."""
    return (
        np.empty(4 * TILE * LANES, distance),  # distances at the sides before
        np.empty((8, TILE, TILE), distance),  # costs, see `fill_weights`
        np.empty(PADDED, np.uint8),  # flags _DOWN and _UP of each row
        np.empty(PADDED, np.bool_),  # rows to scan
        np.empty(8 * LANES, distance),  # by side and corner: the least lowered distances
    )


@register_jitable
def _from_row(way, d, row, other, straight, right, left):
    """Relax a row, whose halo begins at `row`, from the row above or below."""
    changed = np.uint8(0)
    for x in range(TILE):
        at = row + (x + 1) * LANES
        changed |= relax_from_row(way, d, at, other + x * LANES, left[x], straight[x], right[x])
    return changed


@register_jitable
def _scan(way, d, row, from_left, from_right):
    """Relax a row rightwards and leftwards."""
    changed = np.uint8(0)
    for x in range(1, TILE + 1):
        here = row + x * LANES
        changed |= relax_from(way, d, here, here - LANES, from_left[x - 1])
    for k in range(TILE):
        here = row + (TILE - k) * LANES
        changed |= relax_from(way, d, here, here + LANES, from_right[TILE - 1 - k])
    return changed


@register_jitable
def _from_sides(way, d, first, stride, weights, fresh, scan):
    """Relax the outer columns of the tile from its halo."""
    for y in range(1, TILE + 1):
        changed = np.uint8(0)
        at = first + y * stride
        for dy, k in ((0, 4), (-1, 5), (1, 3)):
            changed |= relax_from(way, d, at + LANES, at + dy * stride, weights[k, y - 1, 0])
        last = at + TILE * LANES
        for dy, k in ((0, 0), (-1, 7), (1, 1)):
            there = last + LANES + dy * stride
            changed |= relax_from(way, d, last, there, weights[k, y - 1, TILE - 1])
        if changed:
            fresh[y] = _DOWN | _UP
            scan[y] = True


@register_jitable
def _sweep(way, d, first, stride, work):
    """Sweep until nothing changes; returns the number of row passes and scans."""
    _, weights, fresh, scan, _ = work
    passes = 0
    busy = True
    while busy:
        for turn in range(2):
            down = turn == 0
            seen, kept = (_DOWN, _UP) if down else (_UP, _DOWN)
            a, b, c = (6, 7, 5) if down else (2, 1, 3)
            for n in range(1, TILE + 1):
                y = n if down else TILE + 1 - n
                other = y - 1 if down else y + 1
                row, beside = first + y * stride, first + other * stride
                changed = np.uint8(0)
                if fresh[other] & seen:
                    fresh[other] &= kept
                    passes += 1
                    straight, right, left = weights[a, y - 1], weights[b, y - 1], weights[c, y - 1]
                    changed |= _from_row(way, d, row, beside, straight, right, left)
                if scan[y] or changed:
                    scan[y] = False
                    passes += 1
                    changed |= _scan(way, d, row, weights[4, y - 1], weights[0, y - 1])
                if changed:
                    fresh[y] = _DOWN | _UP
        busy = False
        for y in range(TILE):
            busy |= (fresh[y] & _DOWN) != 0 or (fresh[y + 2] & _UP) != 0
    return passes


_SIDES = ((6, True, 1, 0), (2, True, TILE, TILE + 1), (4, False, 1, 0), (0, False, TILE, TILE + 1))
"""For each side: its direction, whether it is a row, the outer row or column, the one beyond."""


@register_jitable
def _keep_sides(d, first, stride, before):
    """Copy the outer rows and columns."""
    for side in range(4):
        _, along, own, _ = _SIDES[side]
        step, start = (LANES, own * stride) if along else (stride, own * LANES)
        for n in range(TILE):
            at = first + start + (n + 1) * step
            for lane in range(LANES):
                before[(side * TILE + n) * LANES + lane] = d[at + lane]


@register_jitable
def _note_sides(d, first, stride, before, lowered):
    """For each side and corner, the least lowered distances that may affect the tile beyond."""
    lowered[:] = infinity_of(lowered)
    for side in range(4):
        k, along, own, beyond = _SIDES[side]
        step, across = (LANES, stride) if along else (stride, LANES)
        for n in range(TILE):
            at = first + own * across + (n + 1) * step
            o = first + beyond * across + (n + 1) * step
            was = (side * TILE + n) * LANES
            note_lowered(lowered, k, d, at, before, was, o, o - step, o + step)
    for k, y, x in ((5, 0, 0), (7, 0, 1), (3, 1, 0), (1, 1, 1)):
        was = (y * TILE + x * (TILE - 1)) * LANES
        at = first + (1 + y * (TILE - 1)) * stride + (1 + x * (TILE - 1)) * LANES
        o = first + y * (TILE + 1) * stride + x * (TILE + 1) * LANES
        note_lowered(lowered, k, d, at, before, was, o, o, o)


@jit
def relax_tile(way, distances, first, stride, whole, work):
    """Relax a tile to convergence; the weights are in `work`, which also receives what it lowered.

    Parameters
    ----------
    way
        `Sum` or `Max`, see `edges.joining`.
    distances
        Distances of the block, padded by one, flat.
    first
        Where the tile's halo begins in them.
    stride
        From one row to the next.
    whole
        Whether to relax every row, and not only those that the halo affects.

    Returns
    -------
    passes
        Number of row passes and scans.
    """
    before, weights, fresh, scan, lowered = work
    _keep_sides(distances, first, stride, before)
    fresh[:] = _DOWN | _UP if whole else 0
    scan[:] = whole
    fresh[0] = _DOWN
    fresh[TILE + 1] = _UP
    _from_sides(way, distances, first, stride, weights, fresh, scan)
    passes = _sweep(way, distances, first, stride, work)
    _note_sides(distances, first, stride, before, lowered)
    return passes
