"""Depressions found again for proofs: by raising the water over all neighbours, without a tree."""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ...grid.neighbours import COL_STEP, ROW_STEP

SEA = -1
"""In place of the pit of a set with an outlet, which is deeper than all others."""

HALF = 30
"""Bits of the lower half of a volume."""


@register_jitable
def _top(above, v):
    while above[v] != v:
        above[v] = above[above[v]]
        v = above[v]
    return v


@register_jitable
def _deeper(z, u, v):
    """Whether pit `u` goes on where it meets pit `v`: lower, or first, row by row."""
    if u < 0 or v < 0:
        return v >= 0
    return z[u] < z[v] or (z[u] == z[v] and u < v)


@jit
def raise_water(z, width, order, outlets, rim, step, space, edges, levels):
    """Raise the water over the cells of a block, and join those below it.

    A set with a cell of the rim is *open*: it goes on in other blocks, and is known by one of these
    cells. Others are known by their pits.

    Parameters
    ----------
    z
        Heights, flat; NaN where there is no value.
    order
        Cells with a value, by height, then row by row.
    outlets, rim
        Masks, flat.
    step
        1 for 8 neighbours, 2 for 4.
    space
        int32, `above`, `pit` and `door`: the set of each cell, and the pit and the cell at the rim
        of each set.
    edges, levels
        int32, shape (n, 2). Receive a cell of an open set or the deeper pit that it meets (or
        `SEA`), a cell of another open set, and the level at which they meet.

    Returns
    -------
    first, dead, up, count
        The pit of the set of each cell, when the water reaches the cell. By pits of closed sets:
        the level at which one dies, infinity if it does not; and the pit into whose set it merges
        then, or `SEA`, or -2 - a cell of the open set. The number of edges.
    """
    above, pit, door = space
    size, rows = len(z), len(z) // width
    first, up = np.full(size, np.int32(SEA)), np.full(size, np.int32(SEA))
    dead = np.full(size, np.inf)
    count = 0
    for v in order:
        level, row, col = z[v], v // width, v % width
        above[v], pit[v], door[v] = v, v, SEA
        if rim[v]:
            door[v] = v
        if outlets[v]:
            pit[v] = SEA
            if rim[v]:
                edges[count, 0], edges[count, 1], levels[count] = SEA, v, level
                count += 1
        for k in range(0, 8, step):
            r, c = row + ROW_STEP[k], col + COL_STEP[k]
            if not (0 <= r < rows and 0 <= c < width):
                continue
            u = r * width + c
            if not (z[u] < level or (z[u] == level and u < v)):
                continue
            a, b = _top(above, v), _top(above, u)
            if a == b:
                continue
            if _deeper(z, pit[b], pit[a]):
                a, b = b, a
            lost = pit[b]
            if door[b] >= 0:
                edges[count, 0], edges[count, 1] = pit[a], door[b]
                if door[a] >= 0:
                    edges[count, 0] = door[a]
                levels[count] = level
                count += 1
                door[a] = door[b]
            elif lost != SEA:
                dead[lost] = level
                up[lost] = pit[a] if door[a] < 0 else -2 - door[a]
            above[b] = a
        first[v] = pit[_top(above, v)]
    return first, dead, up, count


@jit
def join_sets(order, ends, levels, heights, dead, up):
    """Join the open sets of all blocks; the last one is the sea.

    Parameters
    ----------
    order
        Edges by level.
    ends
        Shape (n, 2).
    heights
        Of the sets' cells, in the order of the cells; -infinity for the sea.
    dead, up
        Receive the level at which each dies, and the set that it merges into then.
    """
    sea = len(heights) - 1
    above, pit = np.arange(sea + 1), np.arange(sea + 1)
    for e in order:
        a, b = _top(above, ends[e, 0]), _top(above, ends[e, 1])
        if a == b:
            continue
        p, q = pit[a], pit[b]
        if heights[q] < heights[p] or (heights[q] == heights[p] and q < p):
            a, b, p, q = b, a, q, p
        dead[q], up[q] = levels[e], p
        above[b] = a


@jit
def nest(order, dead, up, kept, into, level, parent):
    """Find for each set the smallest one that is kept and has it.

    Parameters
    ----------
    order
        Sets, those that die last first; those that never die are left out.
    into
        Receives the set, -1 for none.
    level
        Receives the level at which the largest one dies that is left out, or -infinity.
    parent
        Receives the smallest one that is kept and has the set within it, -1 for none.
    """
    into[:], level[:], parent[:] = -1, -np.inf, -1
    for i in order:
        at = up[i]
        while dead[at] <= dead[i]:
            at = up[at]
        parent[i] = into[at]
        into[i] = into[at]
        if kept[i]:
            into[i] = i
        else:
            level[i] = max(level[at], dead[i])


@jit
def smallest(z, first, within, outside, found, lifted):
    """Find the set of the smallest depression that each cell lies in.

    Parameters
    ----------
    first
        From `raise_water`.
    within
        `dead` and `up` from `raise_water`, and the number of each pit and cell of the rim among the
        sets of all blocks, -1 for none.
    outside
        `dead` and `up` of these sets.
    found
        Receives the set, -1 for none.
    lifted
        Receives the level of the largest depression without a number that the cell lies in, or
        -infinity.
    """
    dead, up, number = within
    for v in range(len(z)):
        found[v], lifted[v] = -1, -np.inf
        if np.isnan(z[v]):
            continue
        at, level = first[v], z[v]
        while at >= 0 and (dead[at] <= level or (number[at] < 0 and dead[at] < np.inf)):
            if dead[at] > level:
                level = lifted[v] = dead[at]
            at = up[at]
        if at == SEA:
            continue
        s = number[at] if at >= 0 else number[-2 - at]
        while s >= 0 and outside[0][s] <= level:
            s = outside[1][s]
        if s >= 0 and outside[0][s] < np.inf:
            found[v] = s


@jit
def add_cells(z, found, into, dead, sizes, scales, sums):
    """Add cells to depressions: their number, area, and the two halves of their volume.

    Parameters
    ----------
    into
        The depression of each set, or -1.
    sizes
        Of cells in each row: whole units, and area.
    scales
        Of each depression, by what volumes are multiplied to be whole numbers.
    """
    units, areas = sizes
    width = len(z) // len(units)
    for v in range(len(z)):
        at = found[v]
        if at >= 0:
            at = into[at]
        if at >= 0:
            row = v // width
            volume = np.int64(np.rint((dead[at] - z[v]) * scales[at] * areas[row]))
            sums[at, 0] += 1
            sums[at, 1] += units[row]
            sums[at, 2] += volume >> HALF
            sums[at, 3] += volume & ((1 << HALF) - 1)


@jit
def add_within(rising, parent, dead, unit, units, volumes):
    """Add to each depression those within it; `rising` has those first that die first."""
    for i in rising:
        p = parent[i]
        if p >= 0:
            volumes[p] += volumes[i] + (dead[p] - dead[i]) * (units[i] * unit)
            units[p] += units[i]
