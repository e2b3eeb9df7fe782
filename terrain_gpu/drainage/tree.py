"""Trees as arrays: vertices in an order in which each comes before its parent.

Of such an order everything here is one sweep, up or down. A forest has an arbitrary root in each
tree, with parent -1; vertices whose edge to the parent is `cut` are roots as well.
"""

from __future__ import annotations

from typing import Any

from numba.extending import register_jitable

from ..compiled import jit

NONE = -1
"""No vertex: the parent of a root, and what an outlet drains to."""

UNREACHED = -2
"""Drains nowhere."""


@register_jitable
def _heavier(keys: Any, ids: Any, v: int, u: int) -> bool:
    """Whether the edge from `v` to its parent comes after that of `u` in the total order."""
    return keys[v] > keys[u] or (keys[v] == keys[u] and ids[v] > ids[u])


@jit
def separate(order, parent, keys, ids, outlets, gate, cut):
    """Cut the heaviest edge of the path between any two outlets.

    What is left is the minimum spanning forest relative to the outlets (J. Cousty, G. Bertrand,
    L. Najman, M. Couprie 2009, Watershed cuts, section 5): each tree has one of them at most. An
    edge is cut exactly when it is the heaviest between some two outlets, so a subtree need only
    remember the outlet that is reached over the lightest heaviest edge.

    Parameters
    ----------
    order, parent
        int32, the forest.
    keys, ids
        uint64 and int64, weight key and id of each vertex's edge to its parent.
    outlets
        int32, vertices.
    gate
        int32 work space.
    cut
        bool, set where an edge to the parent is cut.
    """
    for v in order:
        gate[v] = -1
    for x in outlets:
        gate[x] = -2
    for v in order:
        p = parent[v]
        if gate[v] == -1 or p < 0:
            continue
        way = gate[v]
        if way == -2 or _heavier(keys, ids, v, way):
            way = v
        other = gate[p]
        if other == -1:
            gate[p] = way
        elif other == -2 or _heavier(keys, ids, way, other):
            cut[way] = True
        else:
            cut[other] = True
            gate[p] = way


@jit
def contract(order, parent, keys, ids, cut, number, numbered, sums, low, best, ends, heaviest):
    """What a forest is between some vertices: dead ends and paths without a branch are contracted.

    Parameters
    ----------
    order, parent, keys, ids, cut
        As for `separate`.
    number
        int32, 0, 1, ... at the vertices that stay, -1 elsewhere; branches between them get the
        numbers after.
    numbered
        How many vertices stay.
    sums
        int64, one value for each vertex. On return, those that have a number hold the values of all
        that were contracted towards them: of dead ends, and of a path's vertices on their side of
        its heaviest edge.
    low, best
        int32 work space.
    ends, heaviest
        int32, shape (n, 2) and (n,), n at least twice `numbered`: receive the numbers at the ends
        of each contracted path, and the vertex whose edge to its parent is its heaviest.

    Returns
    -------
    vertices, edges
        How many there are.
    """
    # low[v] is the vertex with a number from which an open path has come up to v, best[v] the
    # heaviest edge of it so far.
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
            ends[count] = number[low[p]], number[p]
            heaviest[count] = best[p]
            count += 1
        ends[count] = number[start], number[p]
        heaviest[count] = top
        count += 1
    return numbered, count


@jit
def gather(order, parent, cut, outlets, sums, into):
    """Let every vertex drain to its tree's outlet, and sum what drains through it.

    Parameters
    ----------
    order, parent, cut
        As for `separate`.
    outlets
        int32, vertices, one in a tree at most.
    sums
        int64, the value of each vertex; receives the sum over what drains through it, 0 without an
        outlet.
    into
        int32, receives the next vertex towards the outlet, `NONE` at outlets, `UNREACHED`.
    """
    for v in order:
        into[v] = -2
        if parent[v] >= 0 and not cut[v]:
            sums[parent[v]] += sums[v]
    for x in outlets:
        # The way from the outlet up to the root is turned round.
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
