"""Kernels of a block of the spanning forest: its trees, rooted.

Neighbours are numbered in the order of the D8 codes: E, SE, S, SW, W, NW, N, NE. For arguments,
see `block.Work`.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ...grid.neighbours import COL_STEP, EDGE_OF, ROW_STEP
from ...spanning_tree.cpu.keys import edge_key, rule_at

DIRECTION = np.array([0, 3, 2, 1, -1, -1, -1, -1])
"""Direction of the edge to a neighbour, -1 if the neighbour is the lower endpoint."""
_NONE, _KEPT, _ALONE, _ROOT = range(8, 12)
"""Codes of cells that are nodata or not visited yet; of cells to keep; of the root of a tree
without cells to keep; and of other roots."""
_NUMBER = np.zeros(256, np.uint8)
_NUMBER[1 << np.arange(8)] = np.arange(8)
"""Number of the neighbour for each single bit."""
_FIRST = np.iinfo(np.int64).min
"""Before the ids of all edges."""


@jit
def join_edges(edges, links):
    """Compute the D8 edge bits of a window; see `grid.neighbours.symmetric`.

    Parameters
    ----------
    edges
        uint8, the forward edges of the window with a margin of one cell.
    links
        uint8, of the shape of the window. Receives the bits.

    Returns
    -------
    bool
        False if a value is not a set of forward edges.
    """
    rows, cols = links.shape
    every = np.uint8(0)
    for row in range(rows):
        above, into = edges[row], links[row]
        west, own = edges[row + 1, 0:cols], edges[row + 1, 1 : cols + 1]
        north_west, north, north_east = above[0:cols], above[1 : cols + 1], above[2 : cols + 2]
        for x in range(cols):
            here = own[x]
            every |= here
            bits = (here & 1) | (here >> 2 & 2) | (here & 4) | (here << 2 & 8)
            bits |= (west[x] & 1) << 4 | (north_west[x] & 8) << 2
            into[x] = bits | (north[x] & 4) << 4 | (north_east[x] & 2) << 6
    return every < 16


@jit
def cut_rim(valid, links):
    """Take the edges that leave a block out of its edge bits.

    Parameters
    ----------
    valid
        Mask of the valid cells, with a margin of one cell.
    links
        uint8, from `join_edges`.

    Returns
    -------
    cells, steps, sound
        The cells, int32, and the numbers of their neighbours, uint8, of these edges, row by row.
        Whether all edges of the block, and the ends of these, are at valid cells.
    """
    rows, cols = links.shape
    lost = False
    for row in range(rows):
        here, own = valid[row + 1, 1 : cols + 1], links[row]
        for x in range(cols):
            lost |= (own[x] != 0) & ~here[x]
    cells, steps = np.empty(6 * (rows + cols), np.int32), np.empty(6 * (rows + cols), np.uint8)
    count = 0
    for row in range(rows):
        for col in range(0, cols, 1 if row in (0, rows - 1) else max(cols - 1, 1)):
            for k in range(8):
                r, c = row + ROW_STEP[k], col + COL_STEP[k]
                inside = 0 <= r < rows and 0 <= c < cols
                if not inside and links[row, col] >> k & 1:
                    links[row, col] ^= 1 << k
                    lost |= not valid[r + 1, c + 1]
                    cells[count], steps[count] = row * cols + col, k
                    count += 1
    return cells[:count], steps[:count], not lost


@jit
def root_trees(links, valid, kept, cols, code, order):
    """Order the vertices of a block by removing leaves, so that each comes before its parent.

    First the leaves are removed row by row, then the vertices that became leaves, and so on.
    Consecutive vertices are mostly independent, so the processor can overlap them.

    Parameters
    ----------
    links, code, order
        See `Work`; `order` has room for one more entry.
    valid
        Mask of valid cells.
    kept
        int32, cells that are removed last, together with those on paths between them.
    cols
        Number of columns of the block.

    Returns
    -------
    branches, vertices, complete
        The number of vertices removed before the kept ones, and in all. Whether these are all valid
        cells: vertices on cycles are never removed.
    """
    code[: len(valid)] = _NONE
    code[kept] = _KEPT
    count = expected = 0
    for v in range(len(valid)):
        order[count] = v
        expected += valid[v]
        count += (links[v] & (links[v] - 1) == 0) & valid[v] & (code[v] == _NONE)
    branches = _remove_leaves(links, cols, code, order, 0, count, _ALONE)
    count = branches
    for v in kept:
        order[count] = v
        count += (links[v] & (links[v] - 1) == 0) & (code[v] == _KEPT)
        code[v] = _NONE
    count = _remove_leaves(links, cols, code, order, branches, count, _ROOT)
    return branches, count, count == expected


@register_jitable
def _remove_leaves(links, cols, code, order, done, count, root):
    """Remove the leaves at `done` to `count` and all that become leaves; return the new count."""
    step = ROW_STEP * cols + COL_STEP
    while done < count:
        v = np.int64(order[done])
        done += 1
        bits = links[v]
        if bits == 0:  # its last neighbour was removed before it
            code[v] = root
            continue
        k = _NUMBER[bits]
        code[v] = k
        links[v] = 0
        u = v + step[k]
        bits = links[u] & ~(1 << (k + 4 & 7))
        links[u] = bits
        order[count] = u
        count += (bits & (bits - 1) == 0) & (bits != 0) & (code[u] == _NONE)
    return count


@jit
def find_parents(order, cols, code, parent):
    """Find the parent of each vertex of `order` from its code."""
    step = ROW_STEP * cols + COL_STEP
    for v in order:
        parent[v] = v + step[code[v]] if code[v] < _NONE else -1


@jit
def clear(order, sums):
    """Set the sums of some vertices to 0."""
    for v in order:
        sums[v] = 0


@jit
def lead_out(codes, cells, steps):
    """Set the D8 codes of cells that drain to their neighbours of these numbers."""
    for i in range(len(cells)):
        codes[cells[i]] = 1 << steps[i]


@jit
def fold(branches, cols, code, sums):
    """Add the sum of each vertex of a branch to that of its parent."""
    step = ROW_STEP * cols + COL_STEP
    for v in branches:
        if code[v] < _NONE:
            sums[v + step[code[v]]] += sums[v]


@jit
def parent_edges(operands, rule, corner, order, code, parent, keys, ids):
    """Compute the key and id of the edge from each cell of `order` to its parent, if any."""
    row0, _, col0, col1, cols = corner
    width = col1 - col0
    for v in order:
        if parent[v] < 0:
            continue
        k = code[v]
        row, col = v // width, v % width
        r, c = row + ROW_STEP[k], col + COL_STEP[k]
        here, there = operands[row + 1, col + 1], operands[r + 1, c + 1]
        d = DIRECTION[k]
        if d < 0:
            row, col, d = r, c, DIRECTION[k - 4]
        keys[v] = edge_key(here, there, rule_at(rule, d, row0 + row))
        ids[v] = 4 * ((row0 + row) * cols + col0 + col) + d


@jit
def outward_edges(operands, rule, corner, cells, low, before, keys, ids):
    """Compute the keys and ids of outward edges; see `BlockForest.outward`.

    Parameters
    ----------
    corner
        The window, and the number of columns of the raster.
    low
        bool, whether the outlets are low.
    before
        Less than the ids of all edges when a cell's id is added.
    """
    row0, _, col0, col1, cols = corner
    width = col1 - col0
    for i in range(len(cells)):
        row, col = cells[i] // width, cells[i] % width
        keys[i], ids[i] = 0, _FIRST
        if low[i]:
            here = operands[row + 1, col + 1]
            keys[i] = edge_key(here, here, rule_at(rule, 0, row0 + row))
            ids[i] = (row0 + row) * cols + col0 + col + before


@jit
def crossing_edges(cells, steps, corner):
    """Return the ends and ids of edges that lead from lower endpoints to other blocks.

    See `skeleton.Crossing`; `cells` and `steps` are from `cut_rim`.
    """
    row0, _, col0, col1, cols = corner
    width, count = col1 - col0, 0
    for k in steps:
        count += k < 4
    ends, ids = np.empty((count, 2), np.int64), np.empty(count, np.int64)
    count = 0
    for i in range(len(cells)):
        k = steps[i]
        if k < 4:
            cell = (row0 + cells[i] // width) * cols + col0 + cells[i] % width
            ends[count, 0], ends[count, 1] = cell, cell + ROW_STEP[k] * cols + COL_STEP[k]
            ids[count] = 4 * cell + DIRECTION[k]
            count += 1
    return ends, ids


@jit
def crossing_keys(operands, rule, corner, cells, steps, keys):
    """Compute the keys of these edges."""
    row0, _, col0, col1, _ = corner
    width, count = col1 - col0, 0
    for i in range(len(cells)):
        k = steps[i]
        if k < 4:
            row, col = cells[i] // width, cells[i] % width
            here = operands[row + 1, col + 1]
            there = operands[row + 1 + ROW_STEP[k], col + 1 + COL_STEP[k]]
            keys[count] = edge_key(here, there, rule_at(rule, DIRECTION[k], row0 + row))
            count += 1


@register_jitable
def step_length(metric, v, u, k):
    """Return the length of the step from cell `v` to its neighbour `u`, number `k`.

    `metric` holds the first row and the width of the block, and the result of `step_lengths`.
    """
    row0, width, lengths = metric
    # Division of unsigned 32-bit integers is faster.
    return lengths[EDGE_OF[k], row0 + np.int64(np.uint32(min(v, u)) // np.uint32(width))]


@jit
def parent_lengths(metric, order, code, along):
    """Compute the length of each cell's edge to its parent; `metric`: see `step_length`."""
    step = ROW_STEP * metric[1] + COL_STEP
    for v in order:
        k = code[v]
        along[v] = 0
        if k < _NONE:
            along[v] = step_length(metric, v, v + step[k], k)


@jit
def d8_codes(branches, trunk, cols, code, parent, into, codes):
    """Encode drainage directions as D8 codes: 0 at outlets, 255 for vertices that do not drain.

    Parameters
    ----------
    into
        The vertex that each vertex of the trunk drains to; see `tree.gather`. Branches drain to the
        trunk.
    codes
        uint8. Receives the codes.
    """
    step = ROW_STEP * cols + COL_STEP
    alone = 0
    for v in range(len(codes)):
        codes[v] = 1 << code[v] if code[v] < _NONE else 255
        alone += code[v] == _ALONE
    astray = alone > 0
    for v in trunk:
        u = into[v]
        if u >= 0:
            k = code[v] if u == parent[v] else code[u] + 4
            codes[v] = 1 << (k & 7)
        else:
            codes[v] = 0 if u == -1 else 255
            astray |= u != -1
    if not astray:
        return
    for i in range(len(branches) - 1, -1, -1):
        v = branches[i]
        if code[v] >= _NONE or codes[v + step[code[v]]] == 255:
            codes[v] = 255
