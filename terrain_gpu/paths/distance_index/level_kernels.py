"""Compute the entries of a square of tiles from those of its four quarters."""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ..cost.edges import infinity_of, join

LANES = 64
"""A square is relaxed from this many rim cells at once."""


@register_jitable
def _lower(way, here, there, cost):
    """Lower distances by one more step, lane by lane; whether any changed."""
    changed = False
    for lane in range(np.uint64(LANES)):
        old = there[lane]
        new = min(old, join(way, here[lane], cost))
        changed |= new != old
        there[lane] = new
    return changed


@jit
def relax_quarters(way, quarters, exits, into, d, pending):
    """Relax the rim cells of four quarters from those that are pending, until nothing changes.

    All lanes use the same entries, so each is loaded once. Rim cells are visited by their numbers,
    upwards and downwards in turn: most paths follow rims.

    Parameters
    ----------
    way
        From `edges.joining`.
    quarters
        `Entries` of the four.
    exits, into
        Steps from each rim cell to other quarters: where they begin, and int64 (3, steps) quarter,
        number of the step there, and the cell that it leads to.
    d
        (rim cells of the quarters one after the other, lanes): distances.
    pending
        bool, for each of these cells; False afterwards.
    """
    count, never = quarters.ends.shape[1] - 1, infinity_of(quarters.steps)
    upwards, busy = True, True
    while busy:
        busy = False
        for n in range(len(d)):
            v = n if upwards else len(d) - 1 - n
            if not pending[v]:
                continue
            pending[v] = False
            quarter, b = v // count, v % count
            for e in range(quarters.ends[quarter, b], quarters.ends[quarter, b + 1]):
                other = quarter * count + np.int64(quarters.others[e])
                if _lower(way, d[v], d[other], quarters.ways[e]):
                    busy = pending[other] = True
            for p in range(exits[v], exits[v + 1]):
                cost, other = quarters.steps[into[0, p], into[1, p]], into[2, p]
                if cost < never and _lower(way, d[v], d[other], cost):
                    busy = pending[other] = True
        upwards = not upwards


@jit
def square_entries(way, quarters, exits, into, rim, outer, nothing, symmetric, d, pending, entries):
    """Compute the entries of a square, as `tile.index_square` those of a tile.

    Parameters
    ----------
    quarters, exits, into, d, pending
        See `relax_quarters`.
    rim
        The rim cells of the square as rim cells of the quarters.
    outer
        int64 (2, steps): quarter and number there of each step into the square.
    nothing, symmetric
        See `tile.index_square`.
    entries
        Receives them, see `rim.entries_of`.
    """
    infinity, count = infinity_of(d), len(rim)
    for first in range(0, count, LANES):
        last = min(first + LANES, count)
        d[:] = infinity
        for b in range(first, last):
            d[rim[b], b - first] = nothing
            pending[rim[b]] = True
        relax_quarters(way, quarters, exits, into, d, pending)
        for b in range(first, last):
            start = b * (b - 1) // 2 if symmetric else b * count
            for a in range(b if symmetric else count):
                entries[start + a] = d[rim[a], b - first]
    begin = len(entries) - outer.shape[1]
    for p in range(outer.shape[1]):
        entries[begin + p] = quarters.steps[outer[0, p], outer[1, p]]
