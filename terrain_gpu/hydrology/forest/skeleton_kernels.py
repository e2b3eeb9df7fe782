"""The kernel that roots the skeleton between blocks."""

from __future__ import annotations

import numpy as np

from ...compiled import jit


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
