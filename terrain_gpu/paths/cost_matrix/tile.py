"""Relax one tile for all lanes: `relax.tile` with a vector of distances in each cell.

Sweeps go down and up; each row is relaxed from the one before (by knight's moves from the next two)
and then scanned in both directions, while it is in the nearest cache. Steps are priced once for all
lanes.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ...grid import TILE
from ...grid.neighbours import COL_STEP_16, NEIGHBOUR, ROW_STEP_16
from ..cost.edges import infinity_of
from .lanes import LANES, note_lowered, relax_from, relax_from_row

_DOWN, _UP = 1, 2
"""Flags of a row that must be relaxed, as in `relax.tile`."""

WORK_BYTES = 8 * (8 * TILE * LANES + 16 * TILE * TILE + 8 * LANES) + 2 * (TILE + 4)
"""Of `new_work`, at most."""


def new_work(distance: np.dtype, halo: int = 1) -> tuple:
    """Allocate the work space of `relax_tile`, for 8 or 16 neighbours by the halo."""
    return (
        np.empty(4 * halo * TILE * LANES, distance),  # distances at the sides before
        np.empty((8 * halo, TILE, TILE), distance),  # costs, see `fill_weights`
        np.empty(TILE + 2 * halo, np.uint8),  # flags _DOWN and _UP of each row
        np.empty(TILE + 2 * halo, np.bool_),  # rows to scan
        np.empty(8 * LANES, distance),  # by side and corner: the least lowered distances
    )


@register_jitable
def _from_row(way, d, row, other, straight, right, left, halo):
    """Relax a row, whose halo begins at `row`, from the row above or below."""
    changed = np.uint8(0)
    for x in range(TILE):
        at, there = row + (x + halo) * LANES, other + (x + halo - 1) * LANES
        changed |= relax_from_row(way, d, at, there, left[x], straight[x], right[x])
    return changed


@register_jitable
def _by_knights(way, d, row, near, far, weights, y, down):
    """Relax a row by the knight's moves from the next two rows above or below."""
    first, step = (12, 1) if down else (11, -1)  # from the left one
    changed = np.uint8(0)
    a, b = weights[first, y], weights[first + step, y]
    c, e = weights[first + 2 * step, y], weights[first + 3 * step, y]
    for x in range(TILE):
        at, left = row + (x + 2) * LANES, x * LANES
        changed |= relax_from(way, d, at, near + left, a[x])
        changed |= relax_from(way, d, at, far + left + LANES, b[x])
        changed |= relax_from(way, d, at, far + left + 3 * LANES, c[x])
        changed |= relax_from(way, d, at, near + left + 4 * LANES, e[x])
    return changed


@register_jitable
def _scan(way, d, row, from_left, from_right, halo):
    """Relax a row rightwards and leftwards."""
    changed = np.uint8(0)
    first = row + halo * LANES
    for x in range(TILE):
        here = first + x * LANES
        changed |= relax_from(way, d, here, here - LANES, from_left[x])
    for k in range(TILE):
        here = first + (TILE - 1 - k) * LANES
        changed |= relax_from(way, d, here, here + LANES, from_right[TILE - 1 - k])
    return changed


@register_jitable
def _tell(due, y, halo):
    """A row has changed: those that steps from it lead to must be relaxed."""
    for n in range(1, halo + 1):
        due[y + n] |= _DOWN
        due[y - n] |= _UP


@register_jitable
def _from_sides(way, d, first, stride, weights, due, scan):
    """Relax the outer columns of the tile from its halo."""
    halo = len(weights) // 8
    for y in range(halo, TILE + halo):
        changed, r = np.uint8(0), y - halo
        at = first + y * stride
        start = at + halo * LANES
        for dy, k in ((0, 4), (-1, 5), (1, 3)):
            changed |= relax_from(way, d, start, start - LANES + dy * stride, weights[k, r, 0])
        last = start + (TILE - 1) * LANES
        for dy, k in ((0, 0), (-1, 7), (1, 1)):
            there = last + LANES + dy * stride
            changed |= relax_from(way, d, last, there, weights[k, r, TILE - 1])
        if halo == 2:
            for x in (2, 3, TILE, TILE + 1):
                for k in range(8, 16):
                    c = x + COL_STEP_16[k]
                    if c < 2 or c > TILE + 1:
                        there = at + ROW_STEP_16[k] * stride + c * LANES
                        changed |= relax_from(way, d, at + x * LANES, there, weights[k, r, x - 2])
        if changed:
            _tell(due, y, halo)
            scan[y] = True


@register_jitable
def _sweep(way, d, first, stride, work):
    """Sweep until nothing changes; returns the number of row passes and scans."""
    _, weights, due, scan, _ = work
    halo = len(weights) // 8
    passes = 0
    busy = True
    while busy:
        for turn in range(2):
            down = turn == 0
            seen, kept = (_DOWN, _UP) if down else (_UP, _DOWN)
            a, b, c = (6, 7, 5) if down else (2, 1, 3)
            back = -stride if down else stride
            for n in range(TILE):
                r = n if down else TILE - 1 - n
                y = r + halo
                row = first + y * stride
                changed = np.uint8(0)
                if due[y] & seen:
                    due[y] &= kept
                    passes += 1
                    straight, right, left = weights[a, r], weights[b, r], weights[c, r]
                    changed |= _from_row(way, d, row, row + back, straight, right, left, halo)
                    if halo == 2:
                        near, far = row + back, row + 2 * back
                        changed |= _by_knights(way, d, row, near, far, weights, r, down)
                if scan[y] or changed:
                    scan[y] = False
                    passes += 1
                    changed |= _scan(way, d, row, weights[4, r], weights[0, r], halo)
                if changed:
                    _tell(due, y, halo)
        busy = False
        for y in range(halo, TILE + halo):
            busy |= due[y] != 0
    return passes


_SIDES = ((6, True, True), (2, True, False), (4, False, True), (0, False, False))
"""For each side: its direction, whether it is a row, and whether it is the first one."""


@register_jitable
def _line(side, n, halo, stride):
    """Where the n-th line from a side begins, from cell to cell, and across to the outside."""
    _, along, begins = _SIDES[side]
    step, across = (LANES, stride) if along else (stride, LANES)
    own = halo + n if begins else halo + TILE - 1 - n
    return own * across + halo * step, step, -across if begins else across


@register_jitable
def _keep_sides(d, first, stride, before, halo):
    """Copy the outer rows and columns, as many as the halo."""
    for line in range(4 * halo):
        start, step, _ = _line(line // halo, line % halo, halo, stride)
        for n in range(TILE):
            at = first + start + n * step
            for lane in range(LANES):
                before[(line * TILE + n) * LANES + lane] = d[at + lane]


@register_jitable
def _note_sides(d, first, stride, before, lowered, halo):
    """For each side and corner, the least lowered distances that may affect the tile beyond."""
    lowered[:] = infinity_of(lowered)
    for side in range(4):
        k = _SIDES[side][0]
        start, step, outward = _line(side, 0, halo, stride)
        for n in range(TILE):
            at = first + start + n * step
            o = at + outward
            was = (side * halo * TILE + n) * LANES
            note_lowered(lowered, k, d, at, before, was, o, o - step, o + step)
    for k, y, x in ((5, 0, 0), (7, 0, 1), (3, 1, 0), (1, 1, 1)):
        was = (y * halo * TILE + x * (TILE - 1)) * LANES
        at = first + (halo + y * (TILE - 1)) * stride + (halo + x * (TILE - 1)) * LANES
        o = at + (2 * y - 1) * stride + (2 * x - 1) * LANES
        note_lowered(lowered, k, d, at, before, was, o, o, o)
    if halo == 2:
        _note_moves(d, first, stride, before, lowered)


@register_jitable
def _note_moves(d, first, stride, before, lowered):
    """Lower `lowered` to the distances that knight's moves may carry outward."""
    for line in range(8):
        start, step, _ = _line(line // 2, line % 2, 2, stride)
        for n in range(TILE):
            at = start + n * step
            y, x = at // stride, at % stride // LANES
            for k in range(8, 16):
                r, c = y + ROW_STEP_16[k], x + COL_STEP_16[k]
                dy = (r > TILE + 1) - (r < 2)
                dx = (c > TILE + 1) - (c < 2)
                if dy != 0 or dx != 0:
                    side = np.int64(NEIGHBOUR[dy + 1, dx + 1])
                    o = first + r * stride + c * LANES
                    was = (line * TILE + n) * LANES
                    note_lowered(lowered, side, d, first + at, before, was, o, o, o)


@jit
def relax_tile(way, distances, first, stride, whole, work):
    """Relax a tile to convergence; the weights are in `work`, which also receives what it lowered.

    Parameters
    ----------
    way
        `Sum` or `Max`, see `edges.joining`.
    distances
        Distances of the block, padded by the halo, flat.
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
    before, weights, due, scan, lowered = work
    halo = len(weights) // 8
    _keep_sides(distances, first, stride, before, halo)
    due[:] = _DOWN | _UP if whole else 0
    scan[:] = whole
    for n in range(halo):
        due[halo + n] |= _DOWN
        due[TILE + halo - 1 - n] |= _UP
    _from_sides(way, distances, first, stride, weights, due, scan)
    passes = _sweep(way, distances, first, stride, work)
    _note_sides(distances, first, stride, before, lowered, halo)
    return passes
