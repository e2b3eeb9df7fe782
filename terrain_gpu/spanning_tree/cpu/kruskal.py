"""Kruskal's algorithm with frozen vertices on an edge list, used by every level above the tiles.

Edges are taken in their total order (J. Kruskal 1956). One that joins two components is the least
that leaves either of them. If a component holds no *frozen* vertex, one that has edges outside of
this graph, all of its edges have been seen, so the edge is in the minimum spanning tree. Components
that both hold one are not joined, because less may join them elsewhere. So none ever holds two, and
the spanning forest of the edges between them goes up one level.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ...primitives.union_find import find
from .keys import add_weight

_DIGIT = 11
"""Bits of a digit in sorting: three for 32 bits."""


def new_list_work(vertices: int, edges: int, key: np.dtype) -> tuple:
    """Allocate the work arrays of `contract` for this many vertices and edges."""
    ends = np.empty(edges, np.uint32), np.empty(edges, np.uint32)
    return (
        (np.empty(edges, key), np.empty(edges, np.int64), *ends),  # keys, ids and ends of edges
        np.empty((2, edges), np.uint64),  # for sorting them
        np.empty((2, vertices), np.uint32),  # parents by final edges; by candidates
        np.empty(vertices, np.bool_),  # frozen
        np.empty(vertices, np.int64),  # picked edges
    )


@jit
def contract(work, vertices, count, sums, mode):
    """Find the final edges and candidates of a graph whose frozen vertices have edges elsewhere.

    Parameters
    ----------
    work
        From `new_list_work`; ``work[0]`` holds `count` edges, ``work[3]`` flags frozen vertices.
    sums, mode
        See `add_weight`.

    Returns
    -------
    final, candidates
        Their numbers. ``work[4][:final]`` are the ids of the final edges. The candidates, the
        spanning forest of the edges left between frozen vertices, are at the start of ``work[0]``.
    """
    (keys, ids, us, vs), words, parents, frozen, picked = work
    order = words[_sorted(keys, ids, words, count)]
    parent, above = parents
    for c in range(vertices):
        parent[c] = c
        above[c] = c
    final = 0
    last = vertices  # candidates are picked from the end on: all are fewer than the vertices
    for k in range(count):
        e = np.int64(order[k] & np.uint64(0xFFFFFFFF))
        u, v = find(parent, us[e]), find(parent, vs[e])
        if u == v:
            continue
        if frozen[u] and frozen[v]:
            a, b = find(above, u), find(above, v)
            if a != b:
                above[a] = b
                last -= 1
                picked[last] = e
                us[e], vs[e] = u, v
            continue
        # A frozen vertex remains the root of its component. Else roots are neighbours in memory.
        if frozen[u] or (u < v and not frozen[v]):
            parent[v] = u
        else:
            parent[u] = v
        add_weight(sums, keys[e], mode)
        picked[final] = ids[e]
        final += 1
    chosen = np.sort(picked[last:vertices])
    for k in range(len(chosen)):
        e = chosen[k]
        keys[k], ids[k], us[k], vs[k] = keys[e], ids[e], us[e], vs[e]
    return final, len(chosen)


@register_jitable
def _sorted(keys, ids, words, count):
    """Sort edges by key and id, their places into the lower halves of one of two rows of `words`.

    Returns which one.
    """
    for k in range(count):
        words[0, k] = k
    at = _sorted_by(ids, 0, words, 0, count)
    at = _sorted_by(ids, 32, words, at, count)
    at = _sorted_by(keys, 0, words, at, count)
    return _sorted_by(keys, 32, words, at, count) if keys.itemsize == 8 else at


@register_jitable
def _sorted_by(values, shift, words, at, count):
    """Sort places, which are in row `at` of `words`, by 32 bits of their values; stable.

    A radix sort from the least digit on. Digits that all values share are passed over.
    """
    low, digit = np.uint64(0xFFFFFFFF), np.uint64((1 << _DIGIT) - 1)
    counts = np.zeros((3, 1 << _DIGIT), np.int64)
    row = words[at]
    for k in range(count):
        e = row[k] & low
        value = (np.uint64(values[e]) >> np.uint64(shift)) & low
        row[k] = (value << np.uint64(32)) | e
        counts[0, value & digit] += 1
        counts[1, (value >> np.uint64(_DIGIT)) & digit] += 1
        counts[2, value >> np.uint64(2 * _DIGIT)] += 1
    for d in range(3):
        starts, by = counts[d], np.uint64(32 + d * _DIGIT)
        if starts.max() == count:
            continue
        total = 0
        for k in range(len(starts)):
            starts[k], total = total, total + starts[k]
        row, other = words[at], words[1 - at]
        for k in range(count):
            place = starts[(row[k] >> by) & digit]
            starts[(row[k] >> by) & digit] = place + 1
            other[place] = row[k]
        at = 1 - at
    return at
