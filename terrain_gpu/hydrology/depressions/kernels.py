"""Depressions as sets of cells below a level, which grow and merge along the spanning forest.

A *pit* is the lowest cell of such a set. Where two sets meet, the one with the higher pit dies: the
depression around that pit is complete and spills there. Sets with an outlet never die. Of cells at
equal elevations, the first in row-major order counts as lower.

Elevations are float64. An edge has the elevation of its higher end, and a *key*: twice its id, plus
1 if its second end is higher. Edges are ordered by elevation, then by key.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ...grid.neighbours import COL_STEP, EDGE_OF, ROW_STEP

OCEAN = -1
"""Stands for the pit of a set that has an outlet."""

IN_ORDER = np.array([5, 6, 7, 4, 0, 3, 2, 1])
"""Neighbours in the order of the keys of their edges: NW, N, NE, W, E, SW, S, SE."""

LOW_BITS = 30
"""Volumes are sums of integers of 60 bits, added up in two halves."""


def volume_scales(depths: np.ndarray, area: float) -> np.ndarray:
    """Return factors, powers of two, that scale the volumes of depressions to 60-bit integers.

    Each depression has its own, so that a fill value in one does not swamp the others.

    Parameters
    ----------
    depths
        Depths of the depressions. A depth that is not positive and finite has no volume.
    area
        The area of the largest cell.
    """
    sound = np.where(np.isfinite(depths) & (depths > 0), depths, 1.0)
    bits = 2 * LOW_BITS - 1 - np.frexp(sound)[1] - np.frexp(area)[1]
    return np.ldexp(1.0, np.minimum(bits, 1000))


@register_jitable
def _edge(z, row, col, k, corner):
    """Return the elevation and key of the edge from a cell of a block to its neighbour `k`."""
    row0, _, col0, _, cols = corner
    r, c = row + ROW_STEP[k], col + COL_STEP[k]
    here, there = z[row + 1, col + 1], z[r + 1, c + 1]
    if k >= 4:
        row, col, here, there = r, c, there, here
    key = 2 * (4 * ((row0 + row) * cols + col0 + col) + EDGE_OF[k & 3])
    return (here, key) if here >= there else (there, key + 1)


@register_jitable
def roots(z, down, root, stack):
    """Find and number the last cell of each flow path; see `catchments`."""
    count = joined = 0
    width = z.shape[1] - 2
    for v in range(len(root)):
        if down[v] > v and down[down[v]] == v:
            down[v] = -1
        root[v] = -1
        joined += down[v] >= 0
    for v in range(len(root)):
        top, u = 0, v
        if np.isnan(z[v // width + 1, v % width + 1]):
            continue
        while root[u] < 0 and down[u] >= 0:
            stack[top] = u
            top += 1
            u = down[u]
        if root[u] < 0:
            root[u] = count
            count += 1
        for i in range(top):
            root[stack[i]] = root[u]
    return count, joined


@jit
def catchments(z, links, outlets, down, root, stack):
    """Join each cell to the neighbour across its least edge, unless that neighbour is higher.

    All edges to neighbours that are not higher have the elevation of the cell, so the first of them
    in the order of keys is the least.

    Parameters
    ----------
    z
        Elevations with a margin of one cell; NaN for nodata.
    links
        uint8, the edges of each cell as a bit per neighbour, including edges to other blocks.
    outlets
        Cells that others are joined to but that are not joined to any other.
    down
        int32. Receives the next cell downstream of each cell, -1 at the last one.
    root
        int32. Receives the catchment of each cell, -1 for nodata.
    stack
        int32, work space.

    Returns
    -------
    catchments, joined
        The number of catchments, and the number of cells joined to another.
    """
    rows, width = z.shape[0] - 2, z.shape[1] - 2
    for v in range(rows * width):
        down[v] = -1
        row, col = v // width, v % width
        for k in IN_ORDER:
            r, c = row + ROW_STEP[k], col + COL_STEP[k]
            if (links[v] >> k) & 1 and z[r + 1, c + 1] <= z[row + 1, col + 1]:
                if 0 <= r < rows and 0 <= c < width:
                    down[v] = r * width + c
                break
    for v in outlets:
        down[v] = -1
    return roots(z, down, root, stack)


@jit
def pits(z, outlets, corner, root, heights, cells):
    """Find the elevation and cell id of the pit of each catchment; `OCEAN` at outlets."""
    row0, _, col0, _, cols = corner
    width = z.shape[1] - 2
    heights[:] = np.inf
    for v in range(len(root)):
        at, row, col = root[v], v // width, v % width
        if at >= 0 and z[row + 1, col + 1] < heights[at]:
            heights[at] = z[row + 1, col + 1]
            cells[at] = (row0 + row) * cols + col0 + col
    for v in outlets:
        heights[root[v]], cells[root[v]] = -np.inf, OCEAN


@jit
def edges_between(z, links, corner, root, heights, keys, ends):
    """List the edges between catchments of a block; return their number."""
    rows, width = z.shape[0] - 2, z.shape[1] - 2
    count = 0
    for v in range(rows * width):
        row, col = v // width, v % width
        for k in range(4):
            r, c = row + ROW_STEP[k], col + COL_STEP[k]
            if not (links[v] >> k) & 1 or not (0 <= r < rows and 0 <= c < width):
                continue
            u = r * width + c
            if root[u] != root[v]:
                if count < len(keys):
                    heights[count], keys[count] = _edge(z, row, col, k, corner)
                    ends[count, 0], ends[count, 1] = root[v], root[u]
                count += 1
    return count


@register_jitable
def root_of(above, v):
    while above[v] != v:
        above[v] = above[above[v]]
        v = above[v]
    return v


@register_jitable
def older(heights, cells, a, b):
    return heights[a] < heights[b] or (heights[a] == heights[b] and cells[a] < cells[b])


@jit
def merge(order, edges, ends, pit, dead, up, node, met):
    """Merge the sets of a block. A set with an edge to another block stays open.

    Open sets are the *nodes* of the graph that joins the blocks.

    Parameters
    ----------
    order
        Indices that sort the edges.
    edges
        Elevations and keys of the edges.
    ends
        int32, shape (n, 2): the catchments at both ends, -1 as the second for an edge to another
        block.
    pit
        Elevations and cells of the pits of catchments.
    dead
        Receives the elevation and key of the edge at which the set of each catchment dies; infinity
        and -1 if it does not die within the block.
    up
        int32. Receives the catchment whose set it merges into, or -2 - node for an open set.
    node
        int32. Receives the node of each catchment, or -1.
    met
        int32, shape (n, 2). Receives the nodes that each edge joins, -1 for none; for an edge to
        another block, the node on this side first.

    Returns
    -------
    int
        The number of nodes, -1 if the edges have a cycle.
    """
    heights, cells = pit
    count = len(cells)
    above, oldest = np.arange(count), np.arange(count)
    opened = np.full(count, -1)
    nodes = 0
    dead[0][:], dead[1][:] = np.inf, -1
    up[:], node[:], met[:] = -1, -1, -1
    for e in order:
        a = root_of(above, ends[e, 0])
        if ends[e, 1] < 0:
            if opened[a] < 0:
                node[oldest[a]] = opened[a] = nodes
                nodes += 1
            met[e, 0] = opened[a]
            continue
        b = root_of(above, ends[e, 1])
        if a == b:
            return -1
        if older(heights, cells, oldest[b], oldest[a]):
            a, b = b, a
        young = oldest[b]
        if opened[b] >= 0:
            if opened[a] < 0:
                node[oldest[a]] = opened[a] = nodes
                nodes += 1
            met[e, 0], met[e, 1] = opened[a], opened[b]
        elif cells[young] != OCEAN:
            dead[0][young], dead[1][young] = edges[0][e], edges[1][e]
            up[young] = oldest[a] if opened[a] < 0 else -2 - opened[a]
        above[b] = a
    return nodes


@jit
def merge_nodes(order, edges, ends, pit, dead, up):
    """Merge the sets of all blocks, as `merge` does; return False if the edges have a cycle."""
    heights, cells = pit
    above, oldest = np.arange(len(cells)), np.arange(len(cells))
    dead[0][:], dead[1][:], up[:] = np.inf, -1, -1
    for e in order:
        a, b = root_of(above, ends[e, 0]), root_of(above, ends[e, 1])
        if a == b:
            return False
        if older(heights, cells, oldest[b], oldest[a]):
            a, b = b, a
        young = oldest[b]
        if cells[young] != OCEAN:
            dead[0][young], dead[1][young], up[young] = edges[0][e], edges[1][e], oldest[a]
        above[b] = a
    return True


@jit
def climb(starts, levels, dead, up):
    """Move each start up to the first set that dies above its level."""
    for i in range(len(starts)):
        while starts[i] >= 0 and dead[starts[i]] <= levels[i]:
            starts[i] = up[starts[i]]


@jit
def climb_to(at, numbers, dead, up, below):
    """Move each branch up to the first one with a number, or -1.

    A branch lies within the branches above it that die at a higher elevation, not within one that
    dies at the same.

    Parameters
    ----------
    below
        Receives the last branch passed that has no number; -1 if the first has one.
    """
    for i in range(len(at)):
        below[i] = -1
        while at[i] >= 0 and numbers[at[i]] == 0:
            below[i] = at[i]
            while at[i] >= 0 and dead[at[i]] <= dead[below[i]]:
                at[i] = up[at[i]]


@jit
def regions(z, down, root, starts, dead, up, found, stack):
    """Find the smallest depression that contains each cell below its spill elevation.

    Parameters
    ----------
    down, root
        From `catchments`.
    starts
        The branch of each catchment: an index of `dead` and `up`, or -1.
    found
        int32. Receives the branch of each cell, -1 for none.
    stack
        int32, work space.
    """
    width = z.shape[1] - 2
    found[: len(root)] = -2
    for v in range(len(root)):
        if root[v] < 0:
            found[v] = -1
            continue
        top, u = 0, v
        while found[u] == -2 and down[u] >= 0:
            stack[top] = u
            top += 1
            u = down[u]
        if found[u] == -2:
            stack[top] = u
            top += 1
            at = starts[root[u]]
        else:
            at = found[u]
        for i in range(top - 1, -1, -1):
            u = stack[i]
            height = z[u // width + 1, u % width + 1]
            while at >= 0 and dead[at] <= height:
                at = up[at]
            found[u] = at


@jit
def measure(z, found, into, dead, row0, units, areas, scales, sums):
    """Add the cells to the sums of their depressions: count, area, volume below the spill.

    Parameters
    ----------
    into
        The branch of the depression that each branch counts to, or -1.
    row0
        Row of the block's first row in the raster.
    units, areas
        Area of a cell in each row of the raster, as a number of units and in square map units.
    scales
        For each branch, the factor that turns its volume into whole units; see `volume_scales`.
    sums
        int64, shape (n, 4): cells, area units, high and low half of the volume.
    """
    width = z.shape[1] - 2
    for v in range(len(found)):
        at = found[v]
        if at >= 0:
            at = into[at]
        if at < 0:
            continue
        row = row0 + v // width
        depth = dead[at] - z[v // width + 1, v % width + 1]
        volume = np.int64(np.rint(depth * scales[at] * areas[row]))
        sums[at, 0] += 1
        sums[at, 1] += units[row]
        sums[at, 2] += volume >> LOW_BITS
        sums[at, 3] += volume & ((1 << LOW_BITS) - 1)


@jit
def add_up(order, parent, dead, unit, cells, units, volumes):
    """Add to each depression those inside it, which come earlier in `order`."""
    for i in order:
        p = parent[i]
        if p >= 0:
            volumes[p] += volumes[i] + (dead[p] - dead[i]) * (units[i] * unit)
            cells[p] += cells[i]
            units[p] += units[i]
