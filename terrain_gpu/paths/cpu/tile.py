"""Relax one tile: Gauss-Seidel sweeps over 64 x 64 cells, in cache and in registers.

A downward sweep relaxes every row from the row above, in vector registers. Then rows are scanned
rightwards and leftwards. Each step of a scan waits for the previous one, so eight rows are scanned
together, as lanes of a vector. An upward sweep follows. Rows whose neighbours have not changed are
skipped. Neighbours are numbered as D8 codes are: E, SE, S, SW, W, NW, N, NE; then knight's moves,
which also relax a row from the second one above or below.
"""

from __future__ import annotations

import numpy as np
from numba.extending import overload, register_jitable

from ...compiled import jit
from ...grid import TILE
from ...grid.neighbours import COL_STEP_16, NEIGHBOUR, ROW_STEP_16
from ..edges import infinity_of, join
from ..front import Front
from ..vectors import SCANNED, relax_row, scan_rows
from .front import front_from_sides, front_rows

PADDED = TILE + 2

_CELLS = TILE * TILE

_DOWN, _UP = 1, 2
"""Flags of a row that must be relaxed: from the rows above (down), or from those below (up)."""


def new_tile_work(distance: np.dtype, halo: int = 1) -> tuple:
    """Allocate the work space of `relax_tile`, for 8 or 16 neighbours by the halo."""
    side = TILE + 2 * halo
    return (
        np.empty((side, side), distance),  # distances with their halo
        np.empty((8 * halo, TILE, TILE), distance),  # cost of a step into each cell from each
        np.empty(side, np.uint8),  # flags _DOWN and _UP of each row
        np.empty(side, np.bool_),  # rows to scan
    )


@register_jitable
def relax_rows(way, work):
    """Sweep until nothing changes; returns the number of row passes and of scans."""
    # No function takes these arrays but those of `vectors`: numba would count references, with an
    # atomic operation for each array, which takes longer than the row.
    d, weights, due, scan = work
    flat, prices = d.reshape(d.size), weights.reshape(weights.size)
    side = d.shape[0]
    halo = (side - TILE) // 2
    passes = 0
    busy = True
    while busy:
        for turn in range(2):
            down = turn == 0
            back, seen = (-side, _DOWN) if down else (side, _UP)
            for n in range(TILE):
                y = halo + n if down else TILE + halo - 1 - n
                if due[y] & seen == 0:
                    continue
                due[y] ^= seen
                passes += 1
                at, row = y * side + halo, (y - halo) * TILE
                near, far = at + back, at + 2 * back
                others = near - 1, near, near + 1
                changed = relax_row(way, flat, at, others, prices, _steps(row, down))
                if halo == 2:
                    others = near - 2, far - 1, far + 1, near + 2
                    changed |= relax_row(way, flat, at, others, prices, _moves(row, down))
                if changed:
                    scan[y] = True
                    for k in range(1, halo + 1):
                        due[y + k] |= _DOWN
                        due[y - k] |= _UP
            for y in range(halo, TILE + halo, SCANNED):
                wanted = False
                for n in range(SCANNED):
                    wanted |= scan[y + n]
                    scan[y + n] = False
                if not wanted:
                    continue
                passes += 1
                at, row = y * side + halo, (y - halo) * TILE
                changes = scan_rows(way, flat, at, side, prices, 4 * _CELLS + row, row)
                for n in range(SCANNED):
                    if changes >> n & 1:
                        for k in range(1, halo + 1):
                            due[y + n + k] |= _DOWN
                            due[y + n - k] |= _UP
        busy = False
        for y in range(halo, TILE + halo):
            busy |= due[y] != 0
    return passes


@register_jitable
def _steps(row, down):
    """Where the costs of steps into a row begin, from the left to the right."""
    a, b, c = (5, 6, 7) if down else (3, 2, 1)
    return a * _CELLS + row, b * _CELLS + row, c * _CELLS + row


@register_jitable
def _moves(row, down):
    """As `_steps`, of knight's moves."""
    a, step = (12, 1) if down else (11, -1)
    b, c, d = a + step, a + 2 * step, a + 3 * step
    return a * _CELLS + row, b * _CELLS + row, c * _CELLS + row, d * _CELLS + row


@register_jitable
def _tell(due, y, halo):
    """A row has changed: those that steps from it lead to must be relaxed."""
    for n in range(1, halo + 1):
        due[y + n] |= _DOWN
        due[y - n] |= _UP


@register_jitable
def _from_sides(way, work):
    d, weights, due, scan = work
    halo = (d.shape[0] - TILE) // 2
    first, last = halo, TILE + halo - 1
    for y in range(halo, TILE + halo):
        r = y - halo
        old = d[y, first]
        new = min(old, join(way, d[y, first - 1], weights[4, r, 0]))
        new = min(new, join(way, d[y - 1, first - 1], weights[5, r, 0]))
        new = min(new, join(way, d[y + 1, first - 1], weights[3, r, 0]))
        end = d[y, last]
        then = min(end, join(way, d[y, last + 1], weights[0, r, TILE - 1]))
        then = min(then, join(way, d[y - 1, last + 1], weights[7, r, TILE - 1]))
        then = min(then, join(way, d[y + 1, last + 1], weights[1, r, TILE - 1]))
        changed = (new < old) | (then < end)
        d[y, first] = new
        d[y, last] = min(then, d[y, last])
        if halo == 2:
            changed |= _knights_from_sides(way, d, weights, y)
        if changed:
            _tell(due, y, halo)
            scan[y] = True


@register_jitable
def _knights_from_sides(way, d, weights, y):
    """Relax the outer two cells at both ends of a row by knight's moves from the halo."""
    changed = False
    for x in (2, 3, TILE, TILE + 1):
        for k in range(8, 16):
            there = x + COL_STEP_16[k]
            if there < 2 or there > TILE + 1:
                new = join(way, d[y + ROW_STEP_16[k], there], weights[k, y - 2, x - 2])
                changed |= new < d[y, x]
                d[y, x] = min(d[y, x], new)
    return changed


def sweep(way, work):
    """`relax_rows`, or the same for a `Front`; in compiled code only."""
    raise RuntimeError("for compiled code only")


@overload(sweep)
def _sweep_of(way, work):
    return front_rows if way.instance_class is Front else relax_rows


def from_sides(way, work):
    """Relax the outer columns of the tile from its halo; in compiled code only."""
    raise RuntimeError("for compiled code only")


@overload(from_sides)
def _from_sides_of(way, work):
    return front_from_sides if way.instance_class is Front else _from_sides


@jit
def relax_tile(way, distances, row, col, whole, work, improved):
    """Relax a tile to convergence; the weights are in `work`.

    Parameters
    ----------
    way
        `Sum`, `Max` or `Front`, see `front.way_of`. This function takes longest to compile; so it
        is compiled only for these and not for every model.
    distances
        Distances of the block, padded by the halo.
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
    d, _, due, scan = work
    side, infinity = d.shape[0], infinity_of(d)
    halo = (side - TILE) // 2
    first, last = halo, TILE + halo - 1
    # Other indices might be negative, and count from the end, which prevents vectorisation.
    top, left = np.uint64(row), np.uint64(col)
    for y in range(np.uint64(side)):
        for x in range(np.uint64(side)):
            d[y, x] = distances[top + y, left + x]
    due[:] = _DOWN | _UP if whole else 0
    scan[:] = whole
    for n in range(halo):
        due[first + n] |= _DOWN
        due[last - n] |= _UP
    from_sides(way, work)
    passes = sweep(way, work)
    # A lowered distance matters only to neighbours with a larger distance.
    improved[:] = infinity
    if halo == 2:
        _moves_outward(d, distances[row : row + side, col : col + side], improved)
    for y, outer, k in ((first, first - 1, 6), (last, last + 1, 2)):
        old, new, out = distances[row + y, col : col + side], d[y], d[outer]
        for x in range(first, last + 1):
            farther = new[x] < max(out[x], out[x - 1], out[x + 1])
            if (new[x] < old[x]) & farther:
                improved[k] = min(improved[k], new[x])
    for x, outer, k in ((first, first - 1, 4), (last, last + 1, 0)):
        for y in range(first, last + 1):
            new = d[y, x]
            farther = new < max(d[y, outer], d[y - 1, outer], d[y + 1, outer])
            if (new < distances[row + y, col + x]) & farther:
                improved[k] = min(improved[k], new)
    for y, x, k in ((first, first, 5), (first, last, 7), (last, first, 3), (last, last, 1)):
        outer = d[y - 1 if y == first else y + 1, x - 1 if x == first else x + 1]
        if (d[y, x] < distances[row + y, col + x]) & (d[y, x] < outer):
            improved[k] = min(improved[k], d[y, x])
    for y in range(np.uint64(first), np.uint64(last + 1)):
        for x in range(np.uint64(first), np.uint64(last + 1)):
            distances[top + y, left + x] = d[y, x]
    return passes


@register_jitable
def _moves_outward(new, old, improved):
    """Lower `improved` to the lowered distances that knight's moves may carry outward."""
    for y in range(2, TILE + 2):
        inner = 3 < y < TILE
        for x in range(2, TILE + 2):
            if (inner and 3 < x < TILE) or new[y, x] >= old[y, x]:
                continue
            for k in range(8, 16):
                r, c = y + ROW_STEP_16[k], x + COL_STEP_16[k]
                dy = (r > TILE + 1) - (r < 2)
                dx = (c > TILE + 1) - (c < 2)
                if (dy != 0 or dx != 0) and new[y, x] < new[r, c]:
                    side = NEIGHBOUR[dy + 1, dx + 1]
                    improved[side] = min(improved[side], new[y, x])
