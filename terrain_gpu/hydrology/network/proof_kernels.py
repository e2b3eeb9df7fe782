"""Kernels of the proof of a network: longest paths in a block and between blocks, and the check.

Directed edges of a block are numbered by cell and D8 neighbour. The reach of an edge is the length
of the longest path that begins with it; -1 if it is not known.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ...grid.neighbours import COL_STEP, EDGE_OF, ROW_STEP

NO_EDGE, TWICE, MISSING, EXCESS = range(1, 5)


@register_jitable
def _length(units, row, k):
    return units[EDGE_OF[k], row + min(ROW_STEP[k], 0) + 1]


@register_jitable
def _beyond(reach, links, ends, v, k):
    """Return the length of the longest path from a cell that does not begin with its edge `k`."""
    best = ends[v]
    for j in range(8):
        if j != k and links[v] >> j & 1:
            best = max(best, reach[v, j])
    return best


@jit
def reach_inside(links, units, width, ends, reach, left, stack):
    """Compute the reach of all edges of a block, except where paths leave it over unknown edges.

    Parameters
    ----------
    links
        uint8, the edges of each cell as D8 bits.
    units
        int64, shape (4, rows + 1): lengths of steps E, SW, S, SE from the row above the block on.
    ends
        int64, 0, or at kept points the length that stands for them.
    reach
        int64, shape (cells, 8): the reach of edges to other blocks, as far as known. Receives that
        of edges inside the block.
    left
        uint8. Receives the number of edges of each cell whose reach is not known.
    stack
        int32, work space, two per cell.
    """
    height = len(links) // width
    top = 0
    for v in range(len(links)):
        left[v] = 0
        for k in range(8):
            if links[v] >> k & 1:
                row, col = v // width + ROW_STEP[k], v % width + COL_STEP[k]
                if 0 <= row < height and 0 <= col < width:
                    reach[v, k] = -1
                left[v] += reach[v, k] < 0
        if links[v] != 0 and left[v] <= 1:
            stack[top] = v
            top += 1
    while top > 0:
        top -= 1
        u = stack[top]
        for k in range(8):
            # With one unknown edge, only paths that come over it can be computed; else all.
            if not links[u] >> k & 1 or (left[u] == 1 and reach[u, k] >= 0):
                continue
            row, col = u // width + ROW_STEP[k], u % width + COL_STEP[k]
            v, back = row * width + col, (k + 4) & 7
            if not (0 <= row < height and 0 <= col < width) or reach[v, back] >= 0:
                continue
            reach[v, back] = _length(units, u // width, k) + _beyond(reach, links, ends, u, k)
            left[v] -= 1
            if left[v] <= 1:
                stack[top] = v
                top += 1


@jit
def outline(links, units, width, ends, reach, left, number, found):
    """Reduce a block to the paths between its edges to other blocks; see `reach_inside`.

    Parameters
    ----------
    number
        int32, work space.
    found
        Four arrays, which receive nothing if they are empty: the nodes, which are the cells where
        these paths begin, meet or end, int32; the longest path from each node away from them,
        int64; the nodes at both ends of each path, int32, shape (n, 2); and its length, with the
        longest paths from its first and from its second end into its side branches, int64, shape
        (n, 3).

    Returns
    -------
    int, int
        The number of nodes, and of paths between them.
    """
    nodes, hang, chains, spans = found
    height, write = len(links) // width, len(nodes) > 0
    count = paths = 0
    for v in range(len(links)):
        number[v] = -1
        leaves = False
        for k in range(8):
            row, col = v // width + ROW_STEP[k], v % width + COL_STEP[k]
            inside = 0 <= row < height and 0 <= col < width
            leaves |= (links[v] >> k & 1 == 1) and not inside
        if leaves or left[v] > 2:
            number[v] = count
            if write:
                nodes[count], hang[count] = v, _beyond(reach, links, ends, v, 8)
            count += 1
    for v in range(len(links)):
        if number[v] < 0:
            continue
        for k in range(8):
            row, col = v // width + ROW_STEP[k], v % width + COL_STEP[k]
            inside = 0 <= row < height and 0 <= col < width
            if not links[v] >> k & 1 or reach[v, k] >= 0 or not inside:
                continue
            at, step = v, k
            length, near, far = np.int64(0), np.int64(0), np.int64(0)
            while True:
                length += _length(units, at // width, step)
                at += ROW_STEP[step] * width + COL_STEP[step]
                if number[at] >= 0:
                    break
                aside = _beyond(reach, links, ends, at, 8)
                near, far = max(near, length + aside), max(far, aside - length)
                came = (step + 4) & 7
                for j in range(8):
                    if j != came and links[at] >> j & 1 and reach[at, j] < 0:
                        step = j
            if number[v] < number[at]:
                if write:
                    chains[paths, 0], chains[paths, 1] = number[v], number[at]
                    spans[paths, 0], spans[paths, 1], spans[paths, 2] = length, near, far + length
                paths += 1
    return count, paths


@jit
def reach_between(first, out, to, spans, hang, reach, left, stack):
    """Compute the reach of the edges of a graph; edges 2 m and 2 m + 1 are one path both ways.

    Parameters
    ----------
    first, out
        Where the edges of each node start in `out`, and their numbers.
    to
        The node at the end of each edge.
    spans
        int64, shape (n, 3); see `outline`.
    hang
        int64, the longest path from each node away from the graph.
    reach
        int64. Receives the reach of each edge.
    left, stack
        int64, work space.

    Returns
    -------
    int
        The number of edges whose reach is known; fewer than all if there is a cycle.
    """
    reach[:] = -1
    top = known = 0
    for v in range(len(hang)):
        left[v] = first[v + 1] - first[v]
        if left[v] <= 1:
            stack[top] = v
            top += 1
    while top > 0:
        top -= 1
        u = stack[top]
        for i in range(first[u], first[u + 1]):
            e = out[i] ^ 1  # the reverse of out[i]
            if reach[e] >= 0 or (left[u] == 1 and reach[out[i]] >= 0):
                continue
            best = hang[u]
            for j in range(first[u], first[u + 1]):
                if j != i:
                    best = max(best, reach[out[j]])
            reach[e] = max(spans[e >> 1, 1 + (e & 1)], spans[e >> 1, 0] + best)
            known += 1
            v = to[e ^ 1]
            left[v] -= 1
            if left[v] <= 1:
                stack[top] = v
                top += 1
    return known


@jit
def gather_edges(cells, steps, bits):
    """Collect the edges of lines at each cell; return the first that repeats an edge, or -1."""
    bits[:] = 0
    for n in range(len(cells)):
        if bits[cells[n]] & steps[n]:
            return n
        bits[cells[n]] |= steps[n]
    return -1


@jit
def check_edges(links, units, width, ends, reach, least, bits):
    """Check the edges of lines at each cell of a block; return fault and cell, 0 and -1 if none.

    Parameters
    ----------
    least
        The length that paths on both sides of an edge must have.
    bits
        uint8, the edges of lines at each cell, as D8 bits.
    """
    for v in range(len(links)):
        if links[v] == 0 and bits[v] == 0:
            continue
        if bits[v] & ~links[v]:
            return NO_EDGE, v
        inner = away = right = 0
        entered, best = False, np.int64(-1)
        for k in range(8):
            if not links[v] >> k & 1:
                continue
            on = reach[v, k]
            back = _length(units, v // width, k) + _beyond(reach, links, ends, v, k)
            if on >= least and back >= least:
                inner |= 1 << k
            elif on < least:
                if on > best:
                    best, away = on, 0
                if on == best:
                    away |= 1 << k
            if on >= least and back < least:
                entered |= bits[v] >> k & 1 == 1
                right |= bits[v] & 1 << k  # checked at the cell that it comes from
        end = inner != 0 and inner & (inner - 1) == 0 and ends[v] == 0
        right |= inner | (away if end or entered else 0)
        if right & ~bits[v]:
            return MISSING, v
        if bits[v] & ~right:
            return EXCESS, v
    return 0, -1
