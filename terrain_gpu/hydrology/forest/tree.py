"""Trees as arrays: vertices in an order in which each comes before its parent.

Every function is one or two sweeps up or down this order. Each tree has an arbitrary root, whose
parent is -1. Vertices whose edge to the parent is `cut` are roots as well.
"""

from __future__ import annotations

from typing import Any

from numba.extending import register_jitable

from ...compiled import jit
from ...wide import less

NONE = -1
"""No vertex: the parent of a root, or the vertex that an outlet drains to."""

UNREACHED = -2
"""Marks a vertex that does not drain to an outlet."""


@register_jitable
def _heavier(keys: Any, ids: Any, v: int, u: int) -> bool:
    """Whether the parent edge of `v` comes after the parent edge of `u` in the total order."""
    return _is_after(keys[v], ids[v], keys[u], ids[u])


@register_jitable
def _is_after(key: Any, number: Any, than_key: Any, than_number: Any) -> bool:
    """Whether an edge, given by key and id, comes after another in the total order."""
    return less(than_key, key) or (key == than_key and number > than_number)


@register_jitable
def _gate_edge(keys: Any, ids: Any, out_keys: Any, out_ids: Any, gate: int) -> tuple[Any, Any]:
    """Return the key and id of the edge from a vertex to its parent, or of an outward edge."""
    if gate >= 0:
        return keys[gate], ids[gate]
    return out_keys[-2 - gate], out_ids[-2 - gate]


@jit
def separate(order, parent, keys, ids, outlets, out_keys, out_ids, gate, cut, closed):
    """Cut the heaviest edge of the path through any two outlets, outward edges included.

    The result is the minimum spanning forest relative to the outlets (J. Cousty, G. Bertrand,
    L. Najman, M. Couprie 2009, Watershed cuts, section 5): each tree has at most one outlet. An
    edge is cut exactly if it is the heaviest on the path through some two outlets, so a subtree
    only needs to remember the outlet whose path has the lightest heaviest edge. If that edge is the
    outward edge of an outlet, the outlet is closed.

    Parameters
    ----------
    order, parent
        int32, the forest.
    keys, ids
        uint64 (complex128 for two words) and int64: weight key and id of the edge from each vertex
        to its parent.
    outlets
        int32, vertices.
    out_keys, out_ids
        Key and id of the outward edge of each outlet; see `BlockForest.outward`.
    gate
        int32, work space.
    cut
        bool. Set for vertices whose edge to the parent is cut.
    closed
        bool. Set for outlets that are closed.
    """
    for v in order:
        gate[v] = -1
    for i in range(len(outlets)):
        gate[outlets[i]] = -2 - i
    for v in order:
        p = parent[v]
        if gate[v] == -1 or p < 0:
            continue
        way = gate[v]
        key, number = _gate_edge(keys, ids, out_keys, out_ids, way)
        if _is_after(keys[v], ids[v], key, number):
            way, key, number = v, keys[v], ids[v]
        other = gate[p]
        if other == -1:
            gate[p] = way
            continue
        least, least_number = _gate_edge(keys, ids, out_keys, out_ids, other)
        if _is_after(key, number, least, least_number):
            way, other = other, way
        gate[p] = way
        if other >= 0:
            cut[other] = True
        else:
            closed[-2 - other] = True


@jit
def contract(order, parent, keys, ids, cut, number, numbered, sums, low, best, ends, heaviest):
    """Reduce a forest to some of its vertices: contract dead ends and paths without a branch.

    Parameters
    ----------
    order, parent, keys, ids, cut
        As for `separate`.
    number
        int32, 0, 1, ... at the vertices to keep, -1 elsewhere. Branching points between them
        receive the next numbers.
    numbered
        Number of vertices to keep.
    sums
        int64, one value per vertex. On return, each numbered vertex holds the sum over everything
        contracted into it: dead ends, and the vertices of a path on its side of the heaviest edge.
    low, best
        int32, work space.
    ends, heaviest
        int32, shape (n, 2) and (n,), with n at least twice `numbered`. Receive the numbers at the
        ends of each contracted path, and the vertex whose parent edge is the heaviest of the path.

    Returns
    -------
    vertices, edges
        Number of vertices and edges of the contracted forest.
    """
    # low[v] is the numbered vertex at the lower end of the open path up to v, best[v] the heaviest
    # edge of this path so far.
    for v in order:
        low[v] = -1
    count = 0
    for v in order:
        p = parent[v]
        above = p >= 0 and not cut[v]
        if number[v] >= 0:
            if not above:
                continue
            start, top = v, v
        else:
            start, top = low[v], best[v]
            if not above:
                if start >= 0:
                    sums[start] += sums[v]
                continue
            if start >= 0 and _heavier(keys, ids, v, top):
                top = v
                sums[start] += sums[v]
            else:
                sums[p] += sums[v]
            if start < 0:
                continue
        if number[p] < 0 and low[p] < 0:
            low[p], best[p] = start, top
            continue
        if number[p] < 0:
            number[p] = numbered
            numbered += 1
            ends[count, 0], ends[count, 1] = number[low[p]], number[p]
            heaviest[count] = best[p]
            count += 1
        ends[count, 0], ends[count, 1] = number[start], number[p]
        heaviest[count] = top
        count += 1
    return numbered, count


@jit
def gather(order, parent, cut, outlets, sums, into):
    """Drain every vertex to its tree's outlet, and sum what drains through each vertex.

    Parameters
    ----------
    order, parent, cut
        As for `separate`.
    outlets
        int32, vertices, at most one per tree.
    sums
        int64, the value of each vertex. Receives the sum that drains through it, 0 in trees without
        an outlet.
    into
        int32. Receives the next vertex towards the outlet: `NONE` at outlets, `UNREACHED` in trees
        without one.
    """
    for v in order:
        into[v] = -2
        if parent[v] >= 0 and not cut[v]:
            sums[parent[v]] += sums[v]
    for x in outlets:
        # Reverse the path from the outlet up to the root.
        root = x
        while parent[root] >= 0 and not cut[root]:
            root = parent[root]
        total = sums[root]
        v, before, below = x, -1, 0
        while True:
            into[v] = before
            below, sums[v] = sums[v], total - below
            if v == root:
                break
            v, before = parent[v], v
    for k in range(len(order) - 1, -1, -1):
        v = order[k]
        p = parent[v]
        if into[v] != -2:
            continue
        if p >= 0 and not cut[v] and into[p] != -2:
            into[v] = p
        else:
            sums[v] = 0
