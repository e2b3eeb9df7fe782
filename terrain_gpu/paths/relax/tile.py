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
from ..cost.continuous import Front
from ..cost.edges import Differences, infinity_of, join
from .continuous import front_from_sides, front_rows
from .simd import SCANNED, close_row, relax_row, scan_rows

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
    # Rows as bits, the first one lowest.
    one, count = np.uint64(1), np.uint64(SCANNED)
    rows = (one << count) - one
    down, up, wide = np.uint64(0), np.uint64(0), np.uint64(0)
    for n in range(np.uint64(TILE)):
        y = n + np.uint64(halo)
        down |= np.uint64(due[y] & _DOWN) << n
        up |= np.uint64(due[y] >> 1) << n
        wide |= np.uint64(scan[y]) << n
    passes = 0
    while down | up:
        for turn in range(2):
            downward = turn == 0
            back = -side if downward else side
            for k in range(TILE):
                n = np.uint64(k if downward else TILE - 1 - k)
                if (down if downward else up) >> n & one == 0:
                    continue
                bit = one << n
                if downward:
                    down ^= bit
                else:
                    up ^= bit
                passes += 1
                row = np.int64(n) * TILE
                at = (np.int64(n) + halo) * side + halo
                near, far = at + back, at + 2 * back
                others = near - 1, near, near + 1
                changed = relax_row(way, flat, at, others, prices, _steps(row, downward))
                if halo == 2:
                    others = near - 2, far - 1, far + 1, near + 2
                    changed |= relax_row(way, flat, at, others, prices, _moves(row, downward))
                if changed:
                    wide |= bit
                    down, up = _told(down, up, bit, halo)
            for n in range(np.uint64(0), np.uint64(TILE), count):
                if wide >> n & rows == 0:
                    continue
                passes += 1
                row = np.int64(n) * TILE
                at = (np.int64(n) + halo) * side + halo
                found = scan_rows(way, flat, at, side, prices, 4 * _CELLS + row, row)
                down, up = _told(down, up, np.uint64(found) << n, halo)
            wide = np.uint64(0)
    return passes


@register_jitable
def _difference_rows(way, work):
    """`relax_rows` with `Differences`; -1 if 16 bits do not suffice.

    Rows are closed one by one, as soon as they change.
    """
    d, z, due, scan = work
    flat, ground = d.reshape(d.size), z.reshape(z.size)
    side, one = d.shape[0], np.uint64(1)
    down, up, wide = np.uint64(0), np.uint64(0), np.uint64(0)
    for n in range(np.uint64(TILE)):
        y = n + one
        down |= np.uint64((due[y] & _DOWN) | scan[y]) << n
        up |= np.uint64(due[y] >> 1) << n
        wide |= np.uint64(scan[y]) << n
    passes, longest = 0, np.uint16(0)
    while down | up:
        for turn in range(2):
            downward = turn == 0
            back = -side if downward else side
            for k in range(TILE):
                n = np.uint64(k if downward else TILE - 1 - k)
                if (down if downward else up) >> n & one == 0:
                    continue
                bit = one << n
                if downward:
                    down ^= bit
                else:
                    up ^= bit
                passes += 1
                at = (np.int64(n) + 1) * side + 1
                near = at + back
                others = near - 1, near, near + 1
                if relax_row(way, flat, at, others, ground, others) | (wide & bit != 0):
                    passes += 1
                    wide &= ~bit
                    longest = max(longest, close_row(flat, ground, at))
                    down, up = _told(down, up, bit, 1)
    most = np.uint16(0)
    for y in range(one, np.uint64(TILE + 1)):
        for x in range(one, np.uint64(TILE + 1)):
            most = max(most, d[y, x])
    return passes if most < 0xFFFF - longest else -1


@register_jitable
def _told(down, up, changed, halo):
    """Add the rows that steps from changed rows lead to: downwards and upwards."""
    for k in range(np.uint64(1), np.uint64(halo + 1)):
        down, up = down | changed << k, up | changed >> k
    return down, up


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
    # Other indices might be negative, and count from the end.
    one, first = np.uint64(1), np.uint64(halo)
    last = first + np.uint64(TILE - 1)
    for r in range(np.uint64(TILE)):
        y = r + first
        old, x = d[y, first], np.uint64(0)
        new = min(old, join(way, d[y, first - one], cost_of(way, weights, 4, r, x)))
        new = min(new, join(way, d[y - one, first - one], cost_of(way, weights, 5, r, x)))
        new = min(new, join(way, d[y + one, first - one], cost_of(way, weights, 3, r, x)))
        end, x = d[y, last], np.uint64(TILE - 1)
        then = min(end, join(way, d[y, last + one], cost_of(way, weights, 0, r, x)))
        then = min(then, join(way, d[y - one, last + one], cost_of(way, weights, 7, r, x)))
        then = min(then, join(way, d[y + one, last + one], cost_of(way, weights, 1, r, x)))
        changed = (new < old) | (then < end)
        d[y, first] = new
        d[y, last] = min(then, d[y, last])
        if halo == 2:
            changed |= _knights_from_sides(way, d, weights, np.int64(y))
        if changed:
            _tell(due, np.int64(y), halo)
            scan[y] = True


@register_jitable
def _knights_from_sides(way, d, weights, y):
    """Relax the outer two cells at both ends of a row by knight's moves from the halo."""
    changed = False
    for x in (2, 3, TILE, TILE + 1):
        for k in range(8, 16):
            there = x + COL_STEP_16[k]
            if there < 2 or there > TILE + 1:
                w = cost_of(way, weights, k, y - 2, x - 2)
                new = join(way, d[y + ROW_STEP_16[k], there], w)
                changed |= new < d[y, x]
                d[y, x] = min(d[y, x], new)
    return changed


def sweep(way, work):
    """`relax_rows`, or the same for a `Front`; in compiled code only."""
    raise RuntimeError("for compiled code only")


@overload(sweep)
def _sweep_of(way, work):
    if way.instance_class is Differences:
        return _difference_rows
    return front_rows if way.instance_class is Front else relax_rows


def from_sides(way, work):
    """Relax the outer columns of the tile from its halo; in compiled code only."""
    raise RuntimeError("for compiled code only")


@overload(from_sides)
def _from_sides_of(way, work):
    return front_from_sides if way.instance_class is Front else _from_sides


def cost_of(way, weights, k, y, x):
    """The cost of the step into a cell of the tile from neighbour k; in compiled code only."""
    raise RuntimeError("for compiled code only")


@overload(cost_of)
def _cost_of_way(way, weights, k, y, x):
    if way.instance_class is not Differences:
        return lambda way, weights, k, y, x: weights[k, y, x]

    def difference(way, weights, k, y, x):
        a = weights[y + np.uint64(1), x + np.uint64(1)]
        b = weights[y + np.uint64(1 + ROW_STEP_16[k]), x + np.uint64(1 + COL_STEP_16[k])]
        return max(a, b) - min(a, b)

    return difference


def within(way, distance):
    """A distance of the block as the tile holds it; in compiled code only."""
    raise RuntimeError("for compiled code only")


@overload(within)
def _within_of(way, distance):
    if way.instance_class is not Differences:
        return lambda way, distance: distance
    return lambda way, distance: np.uint16(min(np.uint32(distance - way.base), np.uint32(0xFFFF)))


def beyond(way, distance):
    """A distance of the tile as the block holds it; in compiled code only."""
    raise RuntimeError("for compiled code only")


@overload(beyond)
def _beyond_of(way, distance):
    if way.instance_class is not Differences:
        return lambda way, distance: distance
    return lambda way, distance: np.uint32(distance + way.base)


def brought(way, distance, price):
    """What a step brings at least, and less than the farthest; in compiled code only."""
    raise RuntimeError("for compiled code only")


@overload(brought)
def _brought_of(way, distance, price):
    if way.instance_class is Front:  # what comes from between two cells may be less
        return lambda way, distance, price: distance
    if way.instance_class is Differences:
        return lambda way, distance, price: min(join(way, distance, price), np.uint16(0xFFFE))
    return lambda way, distance, price: join(way, distance, price)  # noqa: PLW0108 - numba wants one


@jit
def relax_tile(way, distances, row, col, whole, work, improved, mutual):
    """Relax a tile to convergence; the weights are in `work`.

    Parameters
    ----------
    way
        `Sum`, `Max` or `Front`, see `continuous.way_of`; or `Differences`. This function takes
        longest to compile; so it is compiled only for these and not for every model.
    distances
        Distances of the block, padded by the halo.
    row, col
        First row and column of the tile's halo in the padded block.
    whole
        Whether to relax every row, and not only those that the halo affects.
    improved
        Receives, for each side and corner, the least distance that a lowered cell may bring to the
        tile beyond.
    mutual
        Whether steps cost the same both ways. If so, it is known what they bring.

    Returns
    -------
    passes
        Number of row passes; -1 if `Differences` do not fit. The block is as before then.
    """
    d, prices, due, scan = work
    side, infinity = d.shape[0], infinity_of(distances)
    halo = (side - TILE) // 2
    first, last = halo, TILE + halo - 1
    # Other indices might be negative, and count from the end, which prevents vectorisation.
    top, left = np.uint64(row), np.uint64(col)
    for y in range(np.uint64(side)):
        for x in range(np.uint64(side)):
            d[y, x] = within(way, distances[top + y, left + x])
    due[:] = _DOWN | _UP if whole else 0
    scan[:] = whole
    for n in range(halo):
        due[first + n] |= _DOWN
        due[last - n] |= _UP
    from_sides(way, work)
    passes = sweep(way, work)
    if passes < 0:
        return -1
    improved[:] = infinity
    if halo == 2:
        _moves_outward(d, distances[row : row + side, col : col + side], improved)
    begin, zero, end = np.uint64(first), np.uint64(0), np.uint64(TILE - 1)
    far = within(way, infinity)
    # A diagonal step from a corner leads to the tile beyond the corner.
    for r, k in ((zero, 6), (end, 2)):
        y, least = begin + r, far
        for step in ((k - 1) % 8, k, (k + 1) % 8):
            dy, dx = ROW_STEP_16[step], COL_STEP_16[step]
            v, right = y + np.uint64(dy), begin + np.uint64(dx)
            for c in range(np.uint64(dx < 0), np.uint64(TILE - (dx > 0))):
                new, old = d[y, begin + c], within(way, distances[top + y, left + begin + c])
                there = brought(way, new, cost_of(way, prices, step, r, c)) if mutual else new
                least = min(least, there if (new < old) & (there < d[v, right + c]) else far)
        improved[k] = min(improved[k], beyond(way, least) if least < far else infinity)
    for c, k in ((zero, 4), (end, 0)):
        x, least = begin + c, far
        for step in ((k - 1) % 8, k, (k + 1) % 8):
            dy, dx = ROW_STEP_16[step], COL_STEP_16[step]
            down, u = begin + np.uint64(dy), x + np.uint64(dx)
            for r in range(np.uint64(dy < 0), np.uint64(TILE - (dy > 0))):
                new, old = d[begin + r, x], within(way, distances[top + begin + r, left + x])
                there = brought(way, new, cost_of(way, prices, step, r, c)) if mutual else new
                least = min(least, there if (new < old) & (there < d[down + r, u]) else far)
        improved[k] = min(improved[k], beyond(way, least) if least < far else infinity)
    for r, c, k in ((zero, zero, 5), (zero, end, 7), (end, zero, 3), (end, end, 1)):
        y, x = begin + r, begin + c
        new, old = d[y, x], within(way, distances[top + y, left + x])
        there = brought(way, new, cost_of(way, prices, k, r, c)) if mutual else new
        if (new < old) & (there < d[y + np.uint64(ROW_STEP_16[k]), x + np.uint64(COL_STEP_16[k])]):
            improved[k] = min(improved[k], beyond(way, there))
    for y in range(begin, begin + np.uint64(TILE)):
        for x in range(begin, begin + np.uint64(TILE)):
            distances[top + y, left + x] = beyond(way, d[y, x])
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
