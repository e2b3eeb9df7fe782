"""Depressions computed again for proofs, by flooding over all neighbours, without a tree."""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ...grid.neighbours import COL_STEP, ROW_STEP

SEA = -1
"""Stands for the pit of a set with an outlet; it counts as the deepest."""

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
    """Whether pit `u` survives where it meets pit `v`: it is lower, or first in row-major order."""
    if u < 0 or v < 0:
        return v >= 0
    return z[u] < z[v] or (z[u] == z[v] and u < v)


@jit
def raise_water(z, width, order, outlets, rim, step, space, edges, levels):
    """Flood the cells of a block, and join those under water into sets.

    A set with a cell of the rim is *open*: it continues in other blocks and is identified by one of
    its rim cells. Other sets are identified by their pits.

    Parameters
    ----------
    z
        float64, elevations, flat; NaN for nodata.
    order
        Valid cells sorted by elevation, then in row-major order.
    outlets, rim
        Masks, flat.
    step
        1 for 8 neighbours, 2 for 4.
    space
        int32, work space `above`, `pit` and `door`: the set of each cell, the pit of each set, and
        its cell at the rim.
    edges
        int32, shape (n, 2). Receives for each edge a rim cell of one set, its pit if it is closed,
        or `SEA`; and a rim cell of the other set, which is open.
    levels
        float64. Receives the level at which these two sets meet.

    Returns
    -------
    first
        For each cell, the pit of its set at the moment when the water reaches the cell.
    dead
        For the pit of each closed set, the level at which it dies, infinity if it does not.
    up
        For the pit of each closed set, the pit of the set that it merges into, `SEA`, or -2 - a rim
        cell of an open set.
    count
        The number of edges.
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
    """Join the open sets of all blocks. The last set is the sea.

    Parameters
    ----------
    order
        Indices that sort the edges by level.
    ends
        Shape (n, 2), the sets that each edge joins.
    heights
        Elevations of the sets' cells, in the order of the cells; -infinity for the sea.
    dead, up
        Receive the level at which each set dies, and the set that it merges into.
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
    """Find, for each set, the smallest kept set that contains it.

    Parameters
    ----------
    order
        Sets that die, the last to die first.
    into
        Receives that set, which may be the set itself; -1 for none.
    level
        Receives the level at which the largest removed set that contains it dies, or -infinity.
    parent
        Receives the smallest kept set that contains it, other than itself; -1 for none.
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
    """Find the set of the smallest depression that contains each cell.

    Parameters
    ----------
    first
        From `raise_water`.
    within
        `dead` and `up` from `raise_water`, and for each pit and rim cell its index among the sets
        of all blocks, or -1.
    outside
        `dead` and `up` of the sets of all blocks.
    found
        Receives the set, -1 for none.
    lifted
        Receives the level of the largest depression without an index that contains the cell, or
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
    """Add the cells to the sums of their depressions: count, area, and both halves of the volume.

    Parameters
    ----------
    into
        The depression of each set, or -1.
    sizes
        Area of a cell in each row, as a number of units and in square map units.
    scales
        For each depression, the factor that turns its volume into whole units.
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
    """Add to each depression those inside it; `rising` sorts them by `dead`."""
    for i in rising:
        p = parent[i]
        if p >= 0:
            volumes[p] += volumes[i] + (dead[p] - dead[i]) * (units[i] * unit)
            units[p] += units[i]
