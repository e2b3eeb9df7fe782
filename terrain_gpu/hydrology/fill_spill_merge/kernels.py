"""Water on the merge tree of catchments.

A *row* is a catchment: all cells whose water runs down to one pit. Where two sets of rows meet, the
one with the higher pit dies, as in `depressions.kernels`. A row is divided into *pools* at the
levels where other rows merge into it; pools are numbered row by row, from the pit upwards. A pool
has the cells between its floor and its top. Except for the first pool of a row, it lies on top of
two others: the pool below it in the same row, and the last pool of the row that merged at its
floor. Rows with an outlet have no pools.

Water is counted in whole units. `room` is what a pool holds in addition to the pools below it.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ...grid.neighbours import COL_STEP, EDGE_OF, ROW_STEP
from ...spanning_tree.cpu.keys import edge_key, rule_at
from ...wide import less
from ..depressions.kernels import IN_ORDER, OCEAN, older, root_of, roots

MOST = (1 << 62) - 1
"""Upper limit for room, in units; no rain can fill it."""

_NO_STEP = 8


@jit
def descents(z, operands, rule, links, outlets, corner, down, root, stack, step):
    """Join each cell to its neighbour of steepest descent, the first if several are equally steep.

    The edge to it is the cell's least edge in the order of the tree, so the tree contains it.
    Parameters and results as for `depressions.kernels.catchments`, and

    step
        uint8. Receives the index of the neighbour that each cell drains to, `_NO_STEP` for none.
    """
    row0, _, _, _, _ = corner
    rows, width = z.shape[0] - 2, z.shape[1] - 2
    for v in range(rows * width):
        down[v], step[v] = -1, _NO_STEP
        row, col = v // width, v % width
        here, height = operands[row + 1, col + 1], z[row + 1, col + 1]
        least = edge_key(here, here, rule_at(rule, 0, row0 + row))
        for k in IN_ORDER:
            r, c = row + ROW_STEP[k], col + COL_STEP[k]
            if not (links[v] >> k) & 1 or not z[r + 1, c + 1] <= height:
                continue
            of_step = rule_at(rule, EDGE_OF[k & 3], row0 + (row if k < 4 else r))
            key = edge_key(here, operands[r + 1, c + 1], of_step)
            if step[v] == _NO_STEP or less(key, least):
                least, step[v] = key, k
    for v in outlets:
        step[v] = _NO_STEP
    for v in range(rows * width):
        row, col = v // width + ROW_STEP[step[v] & 7], v % width + COL_STEP[step[v] & 7]
        if step[v] != _NO_STEP and 0 <= row < rows and 0 <= col < width:
            down[v] = row * width + col
    return roots(z, down, root, stack)


@jit
def unite(pairs, heights, cells, rain, row):
    """Join catchments that drain into each other across borders of blocks.

    Parameters
    ----------
    pairs
        Shape (n, 2): the pairs of catchments to join.
    heights, cells, rain
        Pits and rain of catchments. The first entries are overwritten with those of rows.
    row
        int64. Receives the row of each catchment; rows are numbered in the order of catchments.

    Returns
    -------
    int
        The number of rows.
    """
    first = np.arange(len(row))
    for i in range(len(pairs)):
        a, b = root_of(first, pairs[i, 0]), root_of(first, pairs[i, 1])
        if a == b:
            continue
        a, b = min(a, b), max(a, b)
        first[b] = a
        rain[a] += rain[b]
        if older(heights, cells, b, a):
            heights[a], cells[a] = heights[b], cells[b]
    count = 0
    for v in range(len(row)):
        top = root_of(first, v)
        if top < v:
            row[v] = row[top]
            continue
        heights[count], cells[count], rain[count] = heights[v], cells[v], rain[v]
        row[v] = count
        count += 1
    return count


@jit
def nest(order, edges, ends, pit, dead, up, sides, deaths):
    """Merge rows along the edges between them; see `depressions.kernels.merge_nodes`.

    Parameters
    ----------
    order
        Indices that sort the edges.
    edges, ends
        Elevations of the edges, and the rows at both ends.
    pit
        Elevations and cells of the pits of rows.
    dead, up
        Receive the elevation of the edge at which each row dies (infinity if it does not), and the
        row that it merges into, or -1.
    sides
        int64, shape (rows, 2). Receives the rows at the ends of that edge: the one in the set that
        dies, then the one outside.
    deaths
        int64. Receives rows in the order in which they die.

    Returns
    -------
    int
        The number of rows that die; -1 if the edges have a cycle.
    """
    heights, cells = pit
    above, oldest = np.arange(len(cells)), np.arange(len(cells))
    dead[:], up[:], count = np.inf, -1, 0
    for e in order:
        near, far = ends[e, 0], ends[e, 1]
        a, b = root_of(above, far), root_of(above, near)
        if a == b:
            return -1
        if older(heights, cells, oldest[b], oldest[a]):
            a, b, near, far = b, a, far, near
        young = oldest[b]
        if cells[young] != OCEAN:
            dead[young], up[young] = edges[e], oldest[a]
            sides[young, 0], sides[young, 1] = near, far
            deaths[count] = young
            count += 1
        above[b] = a
    return count


@jit
def number_pools(deaths, cells, dead, up, first, floor, top, row, merged, event):
    """Number the pools of rows.

    Parameters
    ----------
    deaths, cells, dead, up
        From `nest`.
    first
        int64, shape (rows + 1,). Receives the first pool of each row.
    floor, top, row, merged
        Receive, for each pool, the elevations between which it has cells, its row, and the row that
        merged at its floor, or -1.
    event
        Receives the pool at whose floor each row merged, or -1.
    """
    first[:] = 0
    for r in range(len(cells)):
        first[r + 1] += cells[r] != OCEAN
        if up[r] >= 0 and cells[up[r]] != OCEAN:
            first[up[r] + 1] += 1
    for r in range(len(cells)):
        first[r + 1] += first[r]
    last = first[:-1].copy()
    for r in range(len(cells)):
        event[r] = -1
        for s in range(first[r], first[r + 1]):
            row[s], merged[s], floor[s], top[s] = r, -1, -np.inf, dead[r]
    for p in deaths:
        q = up[p]
        if cells[q] != OCEAN:
            top[last[q]] = dead[p]
            last[q] += 1
            event[p] = last[q]
            floor[last[q]], merged[last[q]] = dead[p], p


@jit
def pools_of(z, found, first, floor, pool):
    """Find the pool of each cell of a block from its row; -1 for none.

    Parameters
    ----------
    found
        int32, the row of each cell, or -1.
    first, floor
        The first pool of each row, and the floor of each pool, of those given to the block.
    """
    width = z.shape[1] - 2
    for v in range(len(found)):
        pool[v] = -1
        if found[v] < 0:
            continue
        height = z[v // width + 1, v % width + 1]
        low, high = first[found[v]], first[found[v] + 1]
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if floor[middle] <= height else (low, middle)
        pool[v] = low


@jit
def fill_below(z, pool, levels, row0, units, areas, scales, sums):
    """Add up the cells of each pool below its level, and the volume between them and the level.

    Parameters
    ----------
    pool
        int32, the pool of each cell, or -1.
    levels
        Level of each pool; infinity to count all cells and no volume.
    units, areas
        Area of a cell in each row of the raster, as a number of units and in square map units.
    scales
        For each pool, the factor that turns its volume into whole units. Sums stop at `MOST`.
    sums
        int64, shape (pools, 3): cells, area units and volume.
    """
    width = z.shape[1] - 2
    for v in range(len(pool)):
        s = pool[v]
        if s < 0:
            continue
        depth = levels[s] - z[v // width + 1, v % width + 1]
        if not depth > 0:
            continue
        row = row0 + v // width
        sums[s, 0] += 1
        sums[s, 1] += units[row]
        if depth < np.inf:
            sums[s, 2] = plus(sums[s, 2], whole(depth * areas[row] * scales[s]))


@register_jitable
def plus(one, other):
    """Add two numbers of units, up to `MOST`."""
    return min(one + other, MOST)


@register_jitable
def whole(volume):
    """Round to whole units, up to `MOST`."""
    return np.int64(np.rint(volume)) if volume < MOST else MOST


@jit
def areas_below(deaths, pools, own):
    """Return the area of all pools below each pool, in units.

    Parameters
    ----------
    deaths
        Rows in the order in which they die.
    pools
        `first`, `floor`, `top`, `row`, `merged` and `event` from `number_pools`.
    own
        int64, area of the cells of each pool itself, in units.
    """
    first, event, below = pools[0], pools[5], np.zeros_like(own)
    for p in deaths:
        s = event[p]
        if s >= 0:
            a, b = first[p + 1] - 1, s - 1
            below[s] = below[a] + own[a] + below[b] + own[b]
    return below


@jit
def find_rooms(pools, below, unit, scale, room):
    """Find how much each pool holds in addition to the pools below it.

    Parameters
    ----------
    below
        From `areas_below`.
    unit, scale
        The area of an area unit, and the number of units of water per unit of volume.
    room
        int64, units of water between the cells of each pool and its top. The volume over the pools
        below is added; `MOST` for pools without a top.
    """
    floor, top = pools[1], pools[2]
    for s in range(len(room)):
        if not top[s] < np.inf:
            room[s] = MOST
        elif below[s] > 0:
            room[s] = plus(room[s], whole((top[s] - floor[s]) * (below[s] * unit) * scale))


@register_jitable
def _beside(pools, s):
    """Return the pool above `s` and the other pool below that one; -1 for none."""
    first, _, _, row, merged, event = pools
    r = row[s]
    if s + 1 < first[r + 1]:
        return s + 1, first[merged[s + 1] + 1] - 1
    return event[r], event[r] - 1 if event[r] >= 0 else -1


@register_jitable
def _pour(amount, into, most, pools, sides, state):
    """Pour water into a row; return what does not fit below the top of the pool `most`.

    Water that a full pool cannot hold spills into the row across its edge. If the pool on that side
    is full too, the water rises into the pool above both. Water that reaches an outlet is gone.
    """
    first, row, merged = pools[0], pools[3], pools[4]
    room, water, full, passing, jump = state
    while first[into] < first[into + 1]:  # no outlet
        start = first[into]
        if len(passing):
            passing[start] += amount
        s = jump[start]
        while True:
            above, other = _beside(pools, s)
            if full[s] and s != most and above >= 0 and full[other]:
                s = above
                continue
            if full[s]:
                break
            put = min(amount, room[s] - water[s])
            water[s] += put
            amount -= put
            full[s] = water[s] == room[s]
            if amount == 0:
                return 0
        jump[start] = s
        if s == most:
            return amount
        if above < 0:
            into = sides[row[s], 1]
        else:
            if len(passing):
                passing[above] -= amount
            into = sides[row[s], 1] if _is_last(pools, s) else sides[merged[above], 0]
    return 0


@register_jitable
def _is_last(pools, s):
    """Whether a pool is the last one of its row."""
    return s + 1 == pools[0][pools[3][s] + 1]


@jit
def settle(deaths, up, sides, pools, rain, room, water, full, passing):
    """Let the rain run down and spill over until it is at rest.

    Rows are visited in the order in which they die. Where two pools meet and both overflow, the
    water rises above them. If only one overflows, its excess spills into the other.

    Parameters
    ----------
    deaths, up, sides, pools
        From `nest` and `number_pools`.
    rain
        int64, units of rain on each row.
    room
        Room of each pool; see `find_rooms`.
    water, full
        Receive the water in each pool itself, without the pools below it, and whether the pool is
        full. Both are 0 unless the pools below are full.
    passing
        int64. Receives numbers whose sum over a pool and all pools below it is the water that
        arrived there, as rain or over an edge. Empty if these are not needed.
    """
    first, event, counted = pools[0], pools[5], len(passing) > 0
    jump, over = np.arange(len(room)), np.zeros(len(rain), np.int64)
    state = room, water, full, passing, jump
    water[:], full[:], passing[:] = 0, False, 0
    for r in range(len(rain)):
        s = first[r]
        if s < first[r + 1]:
            if counted:
                passing[s] = rain[r]
            water[s] = min(rain[r], room[s])
            over[r], full[s] = rain[r] - water[s], water[s] == room[s]
    for p in deaths:
        q, s = up[p], event[p]
        if s < 0:
            _pour(over[p], sides[p, 1], -1, pools, sides, state)
            continue
        a, b = first[p + 1] - 1, s - 1
        if over[p] > 0 and not full[b]:
            if counted:
                passing[s] -= over[p]
            over[p] = _pour(over[p], sides[p, 1], b, pools, sides, state)
        elif over[q] > 0 and not full[a]:
            if counted:
                passing[s] -= over[q]
            over[q] = _pour(over[q], sides[p, 0], a, pools, sides, state)
        if full[a] and full[b]:
            rest = over[p] + over[q]
            water[s] = min(rest, room[s])
            over[q], full[s] = rest - water[s], water[s] == room[s]


@jit
def add_up(deaths, pools, values):
    """Add to the value of each pool those of all pools below it."""
    first, event = pools[0], pools[5]
    for p in deaths:
        s = event[p]
        if s >= 0:
            values[s] += values[s - 1] + values[first[p + 1] - 1]


@jit
def find_surfaces(order, pools, full, levels):
    """Find the water level over the cells of each pool.

    Parameters
    ----------
    order
        Rows, each after the row that it merges into.
    levels
        The levels of pools that hold water and are not full; -infinity for the others. Receives the
        levels of all pools, -infinity where there is no water.
    """
    first, top = pools[0], pools[2]
    for r in order:
        for s in range(first[r + 1] - 1, first[r] - 1, -1):
            if full[s]:
                above, other = _beside(pools, s)
                deeper = above >= 0 and full[other] and levels[above] > -np.inf
                levels[s] = levels[above] if deeper else top[s]


@jit
def depths(z, pool, levels, out):
    """Write the depth of water at each cell, 0 where it is dry, as float32."""
    width = z.shape[1] - 2
    for v in range(len(pool)):
        if pool[v] >= 0:
            out[v] = max(levels[pool[v]] - z[v // width + 1, v % width + 1], 0.0)
