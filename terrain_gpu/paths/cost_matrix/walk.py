"""Follow least-cost paths from targets to sources through one block, for one lane."""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload, register_jitable

from ...compiled import jit
from ...grid.neighbours import (
    CODE_16,
    COL_STEP,
    COL_STEP_16,
    EDGE_OF,
    EDGE_OF_16,
    NEIGHBOUR_OF,
    ROW_STEP,
    ROW_STEP_16,
)
from ..cost.edges import edge, infinity_of, join
from ..cost.knights import Knights, halo_of
from ..cost.steps import SOURCE

FLAT, UNKNOWN = 7, 5  # no codes of steps
"""Codes of cells whose predecessor depends on more than the cells around, or is not found yet."""

INSIDE, ENDED, ON_FLAT = range(3)
"""State of a path: unfinished, at its source, or on a flat."""


@register_jitable
def _step_into(cost, field, options, r, c, k):
    """Cost of the step into a padded cell from its neighbour `k`, as `fill_weights` has it."""
    heights, frictions, absent, lengths, distances = field
    diagonal, corner_cutting, reverse = options
    kind, infinity = distances.dtype.type, infinity_of(distances)
    dy, dx = ROW_STEP[k], COL_STEP[k]
    cut = not corner_cutting and absent[r, c + dx] and absent[r + dy, c]
    if k % 2 == 1 and (cut or not diagonal):
        return infinity
    r0, c0, r1, c1 = r + dy, c + dx, r, c
    if reverse:
        r0, c0, r1, c1 = r1, c1, r0, c0
    a, b = kind(heights[r0, c0]), kind(heights[r1, c1])
    fa, fb = kind(frictions[r0, c0]), kind(frictions[r1, c1])
    w = kind(edge(cost, a, b, fa, fb, lengths[EDGE_OF[k], r + min(dy, 0)]))
    return w if w <= infinity else infinity


def _move_into(cost, field, options, r, c, k):
    """As `_step_into`, for a knight's move; none where there are 4 or 8 neighbours."""
    raise RuntimeError("for compiled code only")


@overload(_move_into)
def _move_into_of(cost, field, options, r, c, k):
    if getattr(options, "instance_class", None) is not Knights:
        return lambda cost, field, options, r, c, k: infinity_of(field[4])
    return _priced_move


def _priced_move(cost, field, options, r, c, k):
    heights, frictions, absent, lengths, _ = field
    dy, one, other = ROW_STEP_16[k], k - 8, (k - 7) % 8
    r0, c0, r1, c1 = r + dy, c + COL_STEP_16[k], r, c
    if options.reverse:
        r0, c0, r1, c1 = r1, c1, r0, c0
    rp, cp = r + ROW_STEP[one], c + COL_STEP[one]
    rq, cq = r + ROW_STEP[other], c + COL_STEP[other]
    length = 0.5 * lengths[EDGE_OF_16[k], r + min(dy, 0)]
    z = 0.5 * (np.float64(heights[rp, cp]) + np.float64(heights[rq, cq]))
    f = 0.5 * (np.float64(frictions[rp, cp]) + np.float64(frictions[rq, cq]))
    a, b = np.float64(heights[r0, c0]), np.float64(heights[r1, c1])
    fa, fb = np.float64(frictions[r0, c0]), np.float64(frictions[r1, c1])
    w = join(cost, edge(cost, a, z, fa, f, length), edge(cost, z, b, f, fb, length))
    return np.inf if absent[rp, cp] or absent[rq, cq] or not w <= np.inf else w


@register_jitable
def _code_of(cost, field, options, lane, r, c, around):
    """D8 code towards the predecessor of a padded cell that is reached and not a source.

    The neighbour of lowest direction from which a step gives exactly its distance, and which is
    strictly nearer, as in `relax.finalise`. A neighbour with a larger distance never gives it.
    """
    distances = field[4]
    here = distances[r, c, lane]
    nearer = 0
    for k in range(len(around)):  # all loads are issued before the first value is used
        around[k] = distances[r + ROW_STEP_16[k], c + COL_STEP_16[k], lane]
        nearer |= (around[k] < here) << k
    for k in range(len(around)):
        if nearer >> k & 1 == 0:
            continue
        if k < 8:
            w = _step_into(cost, field, options, r, c, k)
        else:
            w = _move_into(cost, field, options, r, c, k)
        if join(cost, around[k], w) == here:
            return np.uint8(CODE_16[k])
    return np.uint8(FLAT)


@register_jitable
def _add(high, low, value):
    """Add to a sum of twice the precision (D. E. Knuth's two-sum)."""
    total = high + value
    part = total - high
    return total, low + ((high - (total - part)) + (value - part))


def rise(a, b):
    """Rise from height `a` to `b`, float64, in compiled code; heights may be unsigned."""
    raise RuntimeError("for compiled code only")


@overload(rise)
def _rise_of(a, b):
    if isinstance(a, types.Float):
        return lambda a, b: np.float64(b) - np.float64(a)
    return lambda a, b: np.float64(b - a) if b > a else -np.float64(a - b)


@jit
def mark_sources(distances, lane, roots, codes, halo):
    """Code the sources of a lane in a block: rows, columns, and distances that they start with."""
    rows, cols, values = roots
    for k in range(len(rows)):
        if distances[rows[k] + halo, cols[k] + halo, lane] == values[k]:
            codes[rows[k], cols[k]] = SOURCE


@jit
def walk_back(cost, field, options, lane, codes, inner, walkers, places, sums, steps):
    """Follow paths until they end or leave the block.

    Parameters
    ----------
    field
        Heights, frictions, absent cells, lengths and distances of a block, with its halo.
    options
        (diagonal, corner_cutting, reverse).
    codes
        uint8: D8 codes towards predecessors, `FLAT` on flats; `UNKNOWN` ones are found on demand.
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
    heights, lengths, reverse, halo = field[0], field[3], options[2], halo_of(options)
    counts = np.zeros(len(walkers), np.int64)
    filled, around = 0, np.empty(8 * halo, field[4].dtype)
    for n in range(len(walkers)):
        w = walkers[n]
        r, c, state, cells = places[w]
        length, length_low, climb, climb_low = sums[w]
        while state == INSIDE and 0 <= r < inner[0] and 0 <= c < inner[1]:
            if len(steps) > 0 and filled == len(steps):
                break
            code = codes[r, c]
            if code == UNKNOWN:
                code = _code_of(cost, field, options, lane, r + halo, c + halo, around)
                codes[r, c] = code
            if code == SOURCE:
                state = ENDED
                break
            if code == FLAT:
                state = ON_FLAT
                break
            k = np.int64(NEIGHBOUR_OF[code])
            s, t = r + ROW_STEP_16[k], c + COL_STEP_16[k]
            step = lengths[EDGE_OF_16[k], r + halo + min(ROW_STEP_16[k], 0)]
            length, length_low = _add(length, length_low, step)
            up = rise(heights[s + halo, t + halo], heights[r + halo, c + halo])
            climb, climb_low = _add(climb, climb_low, max(-up if reverse else up, 0.0))
            if len(steps) > 0:
                steps[filled] = code
                filled += 1
                counts[n] += 1
            cells += 1
            r, c = s, t
        places[w, 0], places[w, 1], places[w, 2], places[w, 3] = r, c, state, cells
        sums[w, 0], sums[w, 1], sums[w, 2], sums[w, 3] = length, length_low, climb, climb_low
    return counts
