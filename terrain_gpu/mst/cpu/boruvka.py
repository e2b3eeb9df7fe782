"""Boruvka with frozen components on an edge list, used by every level above the tiles.

Boruvka's step: every component picks its least outgoing edge under the total order (weight, edge
id); every picked edge is in the minimum spanning tree (O. Boruvka 1926; the cut property). Here a
component that holds a *frozen* vertex never picks, because some of its edges lie outside this
graph. The others pick until each component with edges holds exactly one frozen vertex. The edges
left between frozen vertices go up one level.
"""

from __future__ import annotations

import numba
import numpy as np
from numba.extending import overload, register_jitable

from ...compiled import jit
from ...primitives.union_find import find

SLOPES = np.uint32(0x7FFFFFFF)
"""The lower half of a key with slopes is this less the bits of the slope: never "no edge"."""


def rule_at(rule, direction, row):
    """Return the rule of the edges in a direction from a row; see `weights.Weight.rule`.

    Outside of compiled code, of those from each of several rows.
    """
    return rule[direction, row] if rule.ndim else rule


@overload(rule_at, inline="always")
def _rule_at(rule, direction, row):
    if isinstance(rule, numba.types.Array):
        return lambda rule, direction, row: rule[direction, row]
    return lambda rule, direction, row: rule


def edge_key(a, b, rule):
    """Return the keys of the edges between the cells of two arrays; see `rule_at`.

    In compiled code, `a` and `b` are single cells.
    """
    if rule.dtype.kind == "f":
        slope = (np.abs(a.astype(np.float64) - b) * rule).astype(np.float32)
        high = np.maximum(a, b)
        if a.dtype.kind == "f":
            bits = high.view(np.int32)
            high = (bits ^ ((bits >> 31) | np.int32(-(2**31)))).view(np.uint32)
        return (high.astype(np.uint64) << np.uint64(32)) | (SLOPES - slope.view(np.uint32))
    if a.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            return np.abs(a - b).view(f"u{a.itemsize}")
    return np.maximum(a, b) - (np.minimum(a, b) & rule)


@register_jitable
def _order_of_float(z):
    bits = np.float32(z).view(np.int32)
    return np.uint32(bits ^ ((bits >> np.int32(31)) | np.int32(-(2**31))))


@register_jitable
def _order_of_integer(z):
    return z


@overload(edge_key, inline="always")
def _edge_key(a, b, rule):
    if rule == numba.types.float64:
        high = _order_of_float if a == numba.types.float32 else _order_of_integer

        def key(a, b, rule):
            slope = np.float32(abs(np.float64(a) - np.float64(b)) * rule).view(np.uint32)
            return (np.uint64(high(max(a, b))) << np.uint64(32)) | np.uint64(SLOPES - slope)

    elif a == numba.types.float32:

        def key(a, b, rule):
            return np.float32(abs(a - b)).view(np.uint32)

    elif a == numba.types.float64:

        def key(a, b, rule):
            return np.float64(abs(a - b)).view(np.uint64)

    else:

        def key(a, b, rule):
            return max(a, b) - (min(a, b) & rule)

    return key


def add_weight(sums, key, mode):
    """Add the weight of an edge to exact accumulators, see `weights.Weight.exact`."""
    raise RuntimeError("for compiled code only")


@overload(add_weight, inline="always")
def _add_weight(sums, key, mode):
    bits = key.bitwidth
    size = 31 if bits == 32 else 63
    point = 23 if bits == 32 else 52

    def add(sums, key, mode):
        if bits == 64 and mode >= 4:
            add_weight(sums, np.uint32(key >> 32), mode - 4)
            return
        if mode == 0:
            sums[0] += np.int64(key & 0xFFFFFFFF)
            if bits == 64:
                sums[1] += np.int64(key >> 32)
            return
        magnitude = np.int64(key)
        sign = 1
        if mode == 2:
            magnitude = np.int64(key & np.uint64((1 << size) - 1))
            if not key >> size:
                sign = -1
                magnitude = ((1 << size) - 1) - magnitude
        exponent = magnitude >> point
        mantissa = magnitude & ((1 << point) - 1)
        if exponent > 0:
            mantissa |= 1 << point
        sums[2 * exponent] += sign * (mantissa & 0xFFFFFFFF)
        if bits == 64:
            sums[2 * exponent + 1] += sign * (mantissa >> 32)

    return add


def new_list_work(vertices: int, edges: int, key: np.dtype) -> tuple:
    """Allocate the work arrays of `contract` for this many vertices and edges."""

    def ids(count: int) -> np.ndarray:
        return np.empty(count, np.int64)

    return (
        (np.empty(edges, key), ids(edges), ids(edges), ids(edges)),  # key, id and ends of edges
        (np.empty(edges, key), ids(edges), ids(edges), ids(edges)),  # the live ones
        (ids(vertices), np.empty(vertices, key), ids(vertices)),  # parent, least key, its edge
        ids(vertices),  # active components
        np.empty(vertices, np.bool_),  # frozen
        ids(vertices),  # picked edges
    )


@jit
def contract(work, vertices, count, sums, mode):
    """Find the final edges and candidates of a graph whose frozen vertices have edges elsewhere.

    Parameters
    ----------
    work
        From `new_list_work`; ``work[0]`` holds `count` edges, ``work[4]`` flags frozen vertices.
    sums, mode
        See `add_weight`.

    Returns
    -------
    final, candidates
        Their numbers. ``work[5][:final]`` are the ids of the final edges. The candidates, the
        spanning forest of the edges left between frozen vertices, are at the start of ``work[0]``.
    """
    edges, live, union, active, frozen, picked = work
    keys, ids, us, vs = edges
    final, left = boruvka(edges, count, vertices, live, union, active, frozen, picked)
    for k in range(final):
        e = picked[k]
        add_weight(sums, keys[e], mode)
        picked[k] = ids[e]
    for k in range(left):
        # In two steps, because live edges have another order than `edges`.
        live[1][k] = ids[live[1][k]]
    for k in range(left):
        keys[k], ids[k], us[k], vs[k] = live[0][k], live[1][k], live[2][k], live[3][k]
    ends = picked[final:]
    frozen[:vertices] = False
    candidates, _ = boruvka(edges, left, vertices, live, union, active, frozen, ends)
    chosen = np.sort(ends[:candidates])
    for k in range(candidates):
        e = chosen[k]
        keys[k], ids[k], us[k], vs[k] = keys[e], ids[e], us[e], vs[e]
    return final, candidates


@jit
def boruvka(edges, count, vertices, live, union, active, frozen, picked):
    """Contract until only frozen components have edges.

    Parameters
    ----------
    edges
        Tuple (keys, ids, us, vs), of which the first `count` entries are used; not changed.
    live
        Receives the edges left, all between frozen vertices: key, position in `edges`, and the
        frozen vertices at both ends.
    union
        Tuple (parent, least, choice), one entry per vertex.
    frozen
        Per vertex: its component never picks.
    picked
        Receives the positions of the picked edges.

    Returns
    -------
    picked, left
        Number of picked edges and of edges left.
    """
    keys, at, us, vs = live
    ids = edges[1]
    parent, least, choice = union
    top = ~keys.dtype.type(0)
    for k in range(count):
        keys[k], at[k], us[k], vs[k] = edges[0][k], k, edges[2][k], edges[3][k]
    for c in range(vertices):
        parent[c] = c
        active[c] = c
    roots = vertices
    taken = 0
    left = 0
    while left < count:
        for k in range(roots):
            least[active[k]] = top
        for k in range(left, count):
            key, e, u, v = keys[k], ids[at[k]], us[k], vs[k]
            if key < least[u] or (key == least[u] and e < ids[at[choice[u]]]):
                least[u] = key
                choice[u] = k
            if key < least[v] or (key == least[v] and e < ids[at[choice[v]]]):
                least[v] = key
                choice[v] = k
        for k in range(roots):
            c = active[k]
            if frozen[c] or least[c] == top:
                continue
            e = choice[c]
            other = us[e] ^ vs[e] ^ c
            if c < other and choice[other] == e and not frozen[other]:
                continue  # both picked this edge: the smaller component remains a root
            parent[c] = other
            picked[taken] = at[e]
            taken += 1
        roots = compress(parent, active, roots)
        left, count = _relabel(live, left, count, parent, frozen)
    return taken, left


@register_jitable
def compress(parent, active, roots):
    """Point every active component to its root; keep only roots active, return their number."""
    still = 0
    for k in range(roots):
        c = active[k]
        parent[c] = find(parent, c)
        active[still] = c
        still += parent[c] == c
    return still


@register_jitable
def _relabel(live, left, end, parent, frozen):
    """Drop edges inside a component; move edges between frozen components to the front."""
    keys, at, us, vs = live
    kept = left
    for k in range(left, end):
        u = parent[us[k]]
        v = parent[vs[k]]
        if u == v:
            continue
        key, e = keys[k], at[k]
        place = kept
        if frozen[u] and frozen[v]:
            # Move the first of the other edges behind the last to make room.
            keys[kept], at[kept], us[kept], vs[kept] = keys[left], at[left], us[left], vs[left]
            place = left
            left += 1
        keys[place], at[place], us[place], vs[place] = key, e, u, v
        kept += 1
    return left, kept
