"""Relax one tile: Gauss-Seidel sweeps over 64 x 64 cells, in cache and in registers.

A downward sweep relaxes every row from the row above, in vector registers. Then rows are scanned
rightwards and leftwards. Each step of a scan waits for the previous one, so four rows are scanned
together. An upward sweep follows. Rows whose neighbours have not changed are skipped. Neighbours
are numbered as D8 codes are: E, SE, S, SW, W, NW, N, NE.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ...grid import TILE
from ..edges import infinity_of, join

PADDED = TILE + 2

_DOWN, _UP = 1, 2
"""Flags of a row that changed: the next row (down) or the previous one (up) must be relaxed."""


def new_tile_work(distance: np.dtype) -> tuple:
    """Allocate the work space of `relax_tile`."""
    return (
        np.empty((PADDED, PADDED), distance),  # distances with their halo
        np.empty((8, TILE, TILE), distance),  # cost of a step into each cell from each neighbour
        np.empty(PADDED, np.uint8),  # flags _DOWN and _UP of each row
        np.empty(PADDED, np.bool_),  # rows to scan
    )


@register_jitable
def relax_rows(way, work):
    """Sweep until nothing changes; returns the number of row passes and pairs of scans."""
    d, weights, fresh, scan = work
    passes = 0
    busy = True
    while busy:
        for y in range(1, TILE + 1):
            if fresh[y - 1] & _DOWN:
                fresh[y - 1] &= _UP
                passes += 1
                if _from_row(way, d[y], d[y - 1], weights, y - 1, 6, 7, 5):
                    fresh[y] = _DOWN | _UP
                    scan[y] = True
        passes += _scan_rows(way, work)
        for y in range(TILE, 0, -1):
            if fresh[y + 1] & _UP:
                fresh[y + 1] &= _DOWN
                passes += 1
                if _from_row(way, d[y], d[y + 1], weights, y - 1, 2, 1, 3):
                    fresh[y] = _DOWN | _UP
                    scan[y] = True
        passes += _scan_rows(way, work)
        busy = False
        for y in range(TILE):
            busy |= (fresh[y] & _DOWN) != 0 or (fresh[y + 2] & _UP) != 0
    return passes


@register_jitable
def _from_row(way, here, other, weights, row, up, right_up, left_up):
    """Relax a row from the row above or below; returns whether anything changed."""
    # Rows selected by one index are known to be contiguous, which vectorisation needs.
    straight, right, left = weights[up, row], weights[right_up, row], weights[left_up, row]
    changed = False
    for x in range(TILE):
        old = here[x + 1]
        new = min(join(way, other[x + 1], straight[x]), join(way, other[x + 2], right[x]))
        new = min(new, join(way, other[x], left[x]), old)
        changed |= new != old
        here[x + 1] = new
    return changed


@register_jitable
def _scan_rows(way, work):
    """Scan changed rows rightwards and leftwards, four rows together."""
    d, weights, fresh, scan = work
    passes = 0
    for y in range(1, TILE + 1, 4):
        if not (scan[y] | scan[y + 1] | scan[y + 2] | scan[y + 3]):
            continue
        scan[y : y + 4] = False
        passes += 1
        a, b, c, e = d[y], d[y + 1], d[y + 2], d[y + 3]
        changed = (False, False, False, False)
        for side in range(2):
            k = 4 if side == 0 else 0
            wa, wb = weights[k, y - 1], weights[k, y]
            wc, we = weights[k, y + 1], weights[k, y + 2]
            x = 0 if side == 0 else TILE + 1
            step = 1 - 2 * side
            va, vb, vc, ve = a[x], b[x], c[x], e[x]
            ca, cb, cc, ce = changed
            for _ in range(TILE):
                x += step
                old = a[x]
                va = min(old, join(way, va, wa[x - 1]))
                ca |= va != old
                a[x] = va
                old = b[x]
                vb = min(old, join(way, vb, wb[x - 1]))
                cb |= vb != old
                b[x] = vb
                old = c[x]
                vc = min(old, join(way, vc, wc[x - 1]))
                cc |= vc != old
                c[x] = vc
                old = e[x]
                ve = min(old, join(way, ve, we[x - 1]))
                ce |= ve != old
                e[x] = ve
            changed = (ca, cb, cc, ce)
        for k in range(4):
            if changed[k]:
                fresh[y + k] = _DOWN | _UP
    return passes


@register_jitable
def _from_sides(way, work):
    """Relax the outer columns of the tile from its halo."""
    d, weights, fresh, scan = work
    for y in range(1, TILE + 1):
        r = y - 1
        old = d[y, 1]
        new = min(old, join(way, d[y, 0], weights[4, r, 0]))
        new = min(new, join(way, d[y - 1, 0], weights[5, r, 0]))
        new = min(new, join(way, d[y + 1, 0], weights[3, r, 0]))
        last = d[y, TILE]
        then = min(last, join(way, d[y, TILE + 1], weights[0, r, TILE - 1]))
        then = min(then, join(way, d[y - 1, TILE + 1], weights[7, r, TILE - 1]))
        then = min(then, join(way, d[y + 1, TILE + 1], weights[1, r, TILE - 1]))
        if new < old or then < last:
            d[y, 1] = new
            d[y, TILE] = min(then, d[y, TILE])
            fresh[y] = _DOWN | _UP
            scan[y] = True


@jit
def relax_tile(way, distances, row, col, whole, work, improved):
    """Relax a tile to convergence; the weights are in `work`.

    Parameters
    ----------
    way
        `Sum` or `Max`, see `edges.joining`. This function takes longest to compile; so it is
        compiled only for these two and not for every model.
    distances
        Distances of the block, padded by one.
    row, col
        First row and column of the tile's halo in the padded block.
    whole
        Whether to relax every row, and not only those that the halo affects.
    improved
        Receives, for each side and corner, the least lowered distance that may affect the tile
        beyond.

    Returns
    -------
    passes
        Number of row passes.
    """
    d, _, fresh, scan = work
    for y in range(PADDED):
        for x in range(PADDED):
            d[y, x] = distances[row + y, col + x]
    fresh[:] = _DOWN | _UP if whole else 0
    scan[:] = whole
    fresh[0] = _DOWN
    fresh[TILE + 1] = _UP
    _from_sides(way, work)
    passes = relax_rows(way, work)
    # A lowered distance matters only to neighbours with a larger distance.
    improved[:] = infinity_of(d)
    for y, outer, k in ((1, 0, 6), (TILE, TILE + 1, 2)):
        old, new, out = distances[row + y, col : col + PADDED], d[y], d[outer]
        for x in range(1, TILE + 1):
            farther = new[x] < max(out[x], out[x - 1], out[x + 1])
            if (new[x] < old[x]) & farther:
                improved[k] = min(improved[k], new[x])
    for x, outer, k in ((1, 0, 4), (TILE, TILE + 1, 0)):
        for y in range(1, TILE + 1):
            new = d[y, x]
            farther = new < max(d[y, outer], d[y - 1, outer], d[y + 1, outer])
            if (new < distances[row + y, col + x]) & farther:
                improved[k] = min(improved[k], new)
    for y, x, k in ((1, 1, 5), (1, TILE, 7), (TILE, 1, 3), (TILE, TILE, 1)):
        outer = d[0 if y == 1 else TILE + 1, 0 if x == 1 else TILE + 1]
        if (d[y, x] < distances[row + y, col + x]) & (d[y, x] < outer):
            improved[k] = d[y, x]
    for y in range(1, TILE + 1):
        for x in range(1, TILE + 1):
            distances[row + y, col + x] = d[y, x]
    return passes
