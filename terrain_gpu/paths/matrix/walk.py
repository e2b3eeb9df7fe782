"""Follow least-cost paths from targets to sources through one block, for one lane."""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload, register_jitable

from ...compiled import jit
from ...grid import TILE
from ...grid.neighbours import COL_STEP, EDGE_OF, ROW_STEP
from ..cpu.finalise import predecessors
from ..edges import infinity_of
from ..steps import SOURCE

FLAT = 3
"""Code of cells of flats, whose predecessor depends on more than the cells around."""

INSIDE, ENDED, ON_FLAT = range(3)
"""State of a path: unfinished, at its source, or on a flat."""

_PADDED = TILE + 2


def new_tile(distance: np.dtype, heights: np.dtype, frictions: np.dtype) -> tuple:
    """Allocate the work space of `walk_back`."""
    return (
        np.empty((_PADDED, _PADDED), heights),
        np.empty((_PADDED, _PADDED), frictions),
        np.empty((_PADDED, _PADDED), np.bool_),
        np.empty((4, _PADDED)),
        np.empty((_PADDED, _PADDED), distance),
        np.empty((8, TILE, TILE), distance),
        np.empty((TILE, TILE), np.uint8),
        np.empty((_PADDED, _PADDED), np.uint8),
    )


@register_jitable
def _code_tile(cost, field, options, lane, limit, roots, row, col, tile, codes):
    """Code the predecessors of a tile."""
    heights, frictions, absent, lengths, distances = field
    h, f, a, along, d, work, code, flat = tile
    infinity = infinity_of(d)
    for y in range(_PADDED):
        for x in range(_PADDED):
            h[y, x] = heights[row + y, col + x]
            f[y, x] = frictions[row + y, col + x]
            a[y, x] = absent[row + y, col + x]
            value = distances[row + y, col + x, lane]
            d[y, x] = value if value <= limit else infinity
    for k in range(4):
        for y in range(_PADDED):
            along[k, y] = lengths[k, row + y]
    rows, cols, values = roots
    count = 0
    for k in range(len(rows)):
        count += row <= rows[k] < row + TILE and col <= cols[k] < col + TILE
    own = np.empty(count, rows.dtype), np.empty(count, cols.dtype), np.empty(count, values.dtype)
    count = 0
    for k in range(len(rows)):
        if row <= rows[k] < row + TILE and col <= cols[k] < col + TILE:
            own[0][count], own[1][count] = rows[k] - row, cols[k] - col
            own[2][count] = values[k]
            count += 1
    predecessors(cost, h, f, a, along, options, d, own, work, code, flat)
    for y in range(TILE):
        for x in range(TILE):
            codes[row + y, col + x] = FLAT if flat[y + 1, x + 1] else code[y, x]


@register_jitable
def _add(sums, k, value):
    """Add to a sum of twice the precision (D. E. Knuth's two-sum)."""
    high = sums[k] + value
    part = high - sums[k]
    sums[k + 1] += (sums[k] - (high - part)) + (value - part)
    sums[k] = high


def rise(a, b):
    """Rise from height `a` to `b`, float64, in compiled code; heights may be unsigned."""
    raise RuntimeError("for compiled code only")


@overload(rise)
def _rise_of(a, b):
    if isinstance(a, types.Float):
        return lambda a, b: np.float64(b) - np.float64(a)
    return lambda a, b: np.float64(b - a) if b > a else -np.float64(a - b)


@jit
def walk_back(
    cost,
    field,
    options,
    lane,
    limit,
    roots,
    tile,
    codes,
    known,
    inner,
    walkers,
    places,
    sums,
    steps,
):
    """Follow paths until they end or leave the block.

    Parameters
    ----------
    field
        Heights, frictions, absent cells, lengths and distances of a block, with its halo.
    options
        (diagonal, corner_cutting, reverse).
    limit
        Distances beyond count as not reached.
    roots
        Rows, columns and distances of the lane's sources in the block.
    tile
        From `new_tile`.
    codes
        uint8: D8 codes towards predecessors, `FLAT` on flats; filled by tiles on demand.
    known
        Which tiles of `codes` are filled.
    inner
        Rows and columns of the block; cells beyond belong to others.
    walkers
        Numbers of the paths to follow.
    places
        int64 (n, 4): row and column within the block, state, and number of cells so far.
    sums
        float64 (n, 4): length and climb, each as a sum of twice the precision.
    steps
        uint8, receives the codes of the steps of all paths, one path after the other; a path stops
        where it is full. No codes if empty.

    Returns
    -------
    count
        For each path: the number of codes.
    """
    heights, lengths, reverse = field[0], field[3], options[2]
    counts = np.zeros(len(walkers), np.int64)
    filled = 0
    for n in range(len(walkers)):
        w = walkers[n]
        r, c, state, cells = places[w]
        while state == INSIDE and 0 <= r < inner[0] and 0 <= c < inner[1]:
            if len(steps) > 0 and filled == len(steps):
                break
            i, j = r // TILE, c // TILE
            if not known[i, j]:
                where = i * TILE, j * TILE
                _code_tile(cost, field, options, lane, limit, roots, *where, tile, codes)
                known[i, j] = True
            code = codes[r, c]
            if code == SOURCE:
                state = ENDED
                break
            if code == FLAT:
                state = ON_FLAT
                break
            k = 0
            while code >> k != 1:
                k += 1
            s, t = r + ROW_STEP[k], c + COL_STEP[k]
            _add(sums[w], 0, lengths[EDGE_OF[k], r + 1 + min(ROW_STEP[k], 0)])
            up = rise(heights[s + 1, t + 1], heights[r + 1, c + 1])
            _add(sums[w], 2, max(-up if reverse else up, 0.0))
            if len(steps) > 0:
                steps[filled] = code
                filled += 1
                counts[n] += 1
            cells += 1
            r, c = s, t
        places[w] = r, c, state, cells
    return counts
