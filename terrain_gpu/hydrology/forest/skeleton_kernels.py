"""Kernels of the skeleton between blocks: its vertices in a block, and its root."""

from __future__ import annotations

import numpy as np

from ...compiled import jit


@jit
def number_vertices(order, out_cell, outlets, number):
    """Number the vertices that the outline of a block keeps, those with edges to others first.

    Parameters
    ----------
    order
        int32, the vertices.
    out_cell, outlets
        int32, the ends of edges to other blocks, sorted, maybe repeated; further vertices to keep.
    number
        int32. Receives the numbers of these vertices, and -1 for the others.

    Returns
    -------
    terminals, count
        int32, the vertices with edges to other blocks; and the number of vertices kept.
    """
    for v in order:
        number[v] = -1
    terminals, count = np.empty(len(out_cell), np.int32), 0
    for v in out_cell:
        if number[v] < 0:
            terminals[count], number[v] = v, count
            count += 1
    last = count
    for v in outlets:
        if number[v] < 0:
            number[v] = count
            count += 1
    return terminals[:last], count


@jit
def by_number(order, number, size, values):
    """Return the values, int64, of the `size` vertices that have a number, in their order."""
    found = np.empty(size, np.int64)
    for v in order:
        if number[v] >= 0:
            found[number[v]] = values[v]
    return found


@jit
def keep_joined(size, terminals, ends):
    """Return the mask of the vertices that are terminals or have edges, and their new numbers.

    Parameters
    ----------
    size, terminals
        The number of vertices, and of those with edges to other blocks, which come first.
    ends
        int32, shape (n, 2): edges between vertices, whose numbers are changed to the new ones.
    """
    keep = np.zeros(size, np.bool_)
    keep[:terminals] = True
    for e in range(len(ends)):
        keep[ends[e, 0]] = keep[ends[e, 1]] = True
    renumbered, count = np.empty(size, np.int32), 0
    for v in range(size):
        renumbered[v] = count if keep[v] else -1
        count += keep[v]
    for e in range(len(ends)):
        ends[e, 0], ends[e, 1] = renumbered[ends[e, 0]], renumbered[ends[e, 1]]
    return keep, renumbered


@jit
def root_graph(ends, size):
    """Root a forest by removing leaves.

    Returns the order of removal, in which each vertex comes before its parent and vertices on
    cycles are missing; the parents; and the edge to each parent. Both are -1 at roots.
    """
    degree = np.zeros(size, np.int32)
    # The exclusive or of a vertex's remaining edges. If one edge is left, it is that edge.
    mixed = np.zeros(size, np.int64)
    for e in range(len(ends)):
        for v in ends[e]:
            degree[v] += 1
            mixed[v] ^= e
    order, parent = np.empty(size, np.int32), np.full(size, -3, np.int32)
    via = np.full(size, -1, np.int64)
    count = 0
    for start in range(size):
        v = start
        while degree[v] == 1:
            e = mixed[v]
            u = ends[e, 0] ^ ends[e, 1] ^ v
            degree[v] = 0
            degree[u] -= 1
            mixed[u] ^= e
            parent[v], via[v] = u, e
            order[count] = v
            count += 1
            v = u
        if degree[v] == 0 and parent[v] == -3:
            parent[v] = -1
            order[count] = v
            count += 1
    return order[:count], parent, via
