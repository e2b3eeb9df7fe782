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
_ROW = PADDED * LANES
_DOWN, _UP = 1, 2
"""Flags of a row that changed, as in `cpu.tile`."""

WORK_BYTES = 8 * (PADDED * _ROW + 8 * TILE * TILE + 8 * LANES) + 2 * PADDED


def new_work(distance: np.dtype) -> tuple:
    """Allocate the work space of `relax_tile`."""
    return (
        np.empty(PADDED * _ROW, distance),  # distances with their halo
        np.empty((8, TILE, TILE), distance),  # costs, see `fill_weights`
        np.empty(PADDED, np.uint8),  # flags _DOWN and _UP of each row
        np.empty(PADDED, np.bool_),  # rows to scan
        np.empty(8 * LANES, distance),  # by side and corner: the least lowered distances
    )


@register_jitable
def _from_row(way, d, y, other, straight, right, left):
    """Relax a row from the row above or below."""
    changed = np.uint8(0)
    at, there = (y * PADDED + 1) * LANES, other * _ROW
    for x in range(TILE):
        changed |= relax_from_row(
            way, d, at + x * LANES, there + x * LANES, left[x], straight[x], right[x]
        )
    return changed


@register_jitable
def _scan(way, d, y, from_left, from_right):
    """Relax a row rightwards and leftwards."""
    changed = np.uint8(0)
    at = y * _ROW
    for x in range(1, TILE + 1):
        here = at + x * LANES
        changed |= relax_from(way, d, here, here - LANES, from_left[x - 1])
    for k in range(TILE):
        here = at + (TILE - k) * LANES
        changed |= relax_from(way, d, here, here + LANES, from_right[TILE - 1 - k])
    return changed


@register_jitable
def _from_sides(way, d, weights, fresh, scan):
    """Relax the outer columns of the tile from its halo."""
    for y in range(1, TILE + 1):
        changed = np.uint8(0)
        at = y * _ROW
        for dy, k in ((0, 4), (-1, 5), (1, 3)):
            changed |= relax_from(way, d, at + LANES, at + dy * _ROW, weights[k, y - 1, 0])
        last = at + TILE * LANES
        for dy, k in ((0, 0), (-1, 7), (1, 1)):
            there = last + LANES + dy * _ROW
            changed |= relax_from(way, d, last, there, weights[k, y - 1, TILE - 1])
        if changed:
            fresh[y] = _DOWN | _UP
            scan[y] = True


@register_jitable
def _sweep(way, work):
    """Sweep until nothing changes; returns the number of row passes and scans."""
    d, weights, fresh, scan, _ = work
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
                changed = np.uint8(0)
                if fresh[other] & seen:
                    fresh[other] &= kept
                    passes += 1
                    changed |= _from_row(
                        way, d, y, other, weights[a, y - 1], weights[b, y - 1], weights[c, y - 1]
                    )
                if scan[y] or changed:
                    scan[y] = False
                    passes += 1
                    changed |= _scan(way, d, y, weights[4, y - 1], weights[0, y - 1])
                if changed:
                    fresh[y] = _DOWN | _UP
        busy = False
        for y in range(TILE):
            busy |= (fresh[y] & _DOWN) != 0 or (fresh[y + 2] & _UP) != 0
    return passes


@register_jitable
def _note_rim(d, before, row, col, width, lowered):
    """For each side and corner, the least lowered distances that may affect the tile beyond."""
    lowered[:] = infinity_of(lowered)
    for y, outer, k in ((1, 0, 6), (TILE, TILE + 1, 2)):
        for x in range(1, TILE + 1):
            was = ((row + y) * width + col + x) * LANES
            o = outer * _ROW + x * LANES
            note_lowered(lowered, k, d, y * _ROW + x * LANES, before, was, o, o - LANES, o + LANES)
    for x, outer, k in ((1, 0, 4), (TILE, TILE + 1, 0)):
        for y in range(1, TILE + 1):
            was = ((row + y) * width + col + x) * LANES
            o = y * _ROW + outer * LANES
            note_lowered(lowered, k, d, y * _ROW + x * LANES, before, was, o, o - _ROW, o + _ROW)
    for y, x, k in ((1, 1, 5), (1, TILE, 7), (TILE, 1, 3), (TILE, TILE, 1)):
        was = ((row + y) * width + col + x) * LANES
        o = (0 if y == 1 else TILE + 1) * _ROW + (0 if x == 1 else TILE + 1) * LANES
        note_lowered(lowered, k, d, y * _ROW + x * LANES, before, was, o, o, o)


@register_jitable
def _copy(to, fro):
    for x in range(len(to)):
        to[x] = fro[x]


@jit
def relax_tile(way, distances, width, row, col, whole, work):
    """Relax a tile to convergence; the weights are in `work`, which also receives what it lowered.

    Parameters
    ----------
    way
        `Sum` or `Max`, see `edges.joining`.
    distances
        Distances of the block, padded by one, flat.
    width
        Cells in a padded row of the block.
    row, col
        First row and column of the tile's halo in the padded block.
    whole
        Whether to relax every row, and not only those that the halo affects.

    Returns
    -------
    passes
        Number of row passes and scans.
    """
    d, weights, fresh, scan, lowered = work
    for y in range(PADDED):
        first = ((row + y) * width + col) * LANES
        _copy(d[y * _ROW : (y + 1) * _ROW], distances[first : first + _ROW])
    fresh[:] = _DOWN | _UP if whole else 0
    scan[:] = whole
    fresh[0] = _DOWN
    fresh[TILE + 1] = _UP
    _from_sides(way, d, weights, fresh, scan)
    passes = _sweep(way, work)
    _note_rim(d, distances, row, col, width, lowered)
    for y in range(1, TILE + 1):
        fro, to = y * _ROW + LANES, ((row + y) * width + col + 1) * LANES
        _copy(distances[to : to + TILE * LANES], d[fro : fro + TILE * LANES])
    return passes
