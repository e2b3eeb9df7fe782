"""Compiled steps of the proof: list edges, sort them, run Kruskal's algorithm, contract."""

from __future__ import annotations

import numpy as np

from ...compiled import jit

NODATA, _LEAVES, _DIAGONAL, _UNKNOWN = 1, 2, 3, 4
FAULTS = {
    NODATA: "ends at a cell without a value",
    _LEAVES: "leaves the raster",
    _DIAGONAL: "is diagonal, but cells have 4 neighbours",
    _UNKNOWN: "is at a cell with bits that are not edges",
}


@jit
def list_edges(bits, valid, keys, diagonal, corner, shape, out):
    """List all edges inside a piece by id; return (their number, a wrong edge, its fault or 0).

    `out` are the arrays of a `PieceEdges`; vertices are ``row * cols + col`` in the piece.
    """
    rows, cols = bits.shape
    out_keys, ids, us, vs, tree, strange = out
    count = 0
    for row in range(rows):
        for col in range(cols):
            first = 4 * ((corner[0] + row) * shape[1] + corner[1] + col)
            have = np.int64(bits[row, col])
            if have > 15:
                return count, first, _UNKNOWN
            for d in range(4):
                y = row + (d > 0)
                x = col + (1 if d == 0 else d - 2)
                chosen = have >> d & 1 != 0
                inside = y < rows and x >= 0 and x < cols
                if chosen:
                    if d & 1 and not diagonal:
                        return count, first + d, _DIAGONAL
                    if corner[0] + y >= shape[0] or not 0 <= corner[1] + x < shape[1]:
                        return count, first + d, _LEAVES
                    if not valid[row, col] or (inside and not valid[y, x]):
                        return count, first + d, NODATA
                if not inside or not valid[row, col] or not valid[y, x]:
                    continue
                if d & 1 and not diagonal:
                    continue
                out_keys[count] = keys[d, row, col]
                ids[count] = first + d
                us[count] = row * cols + col
                vs[count] = y * cols + x
                tree[count] = chosen
                strange[count] = -1 if chosen else first + d
                count += 1
    return count, -1, 0


@jit
def sum_floats(keys, mapped, point, words):
    """Add the mantissas of real weights, by exponent, as a low word of 32 bits and a high one.

    Keys are the bits of floats >= 0, or `mapped` to unsigned numbers in the order of floats.
    """
    last = point + 8 if point == 23 else point + 11
    for key in keys:
        bits = np.uint64(key)
        sign = 1
        if mapped:
            if bits >> np.uint64(last) & np.uint64(1):
                bits ^= np.uint64(1) << np.uint64(last)
            else:
                sign = -1
                bits ^= (np.uint64(2) << np.uint64(last)) - np.uint64(1)
                bits &= (np.uint64(1) << np.uint64(last)) - np.uint64(1)
        exponent = np.int64(bits >> np.uint64(point))
        mantissa = np.int64(bits & ((np.uint64(1) << np.uint64(point)) - np.uint64(1)))
        if exponent > 0:
            mantissa |= np.int64(1) << point
        words[exponent, 0] += sign * (mantissa & 0xFFFFFFFF)
        words[exponent, 1] += sign * (mantissa >> 32)


@jit
def sort_by_key(keys, order):
    """Sort `order` by key, stably: LSD radix sort that skips digits equal in all keys."""
    digit = np.uint64(2047)
    varying = np.uint64(0)
    for e in order:
        varying |= np.uint64(keys[e]) ^ np.uint64(keys[order[0]])
    spare = np.empty_like(order)
    counts = np.empty(2049, np.int64)
    shift = np.uint64(0)
    while shift < 64 and varying >> shift:
        if varying >> shift & digit:
            counts[:] = 0
            for e in order:
                counts[np.int64(np.uint64(keys[e]) >> shift & digit) + 1] += 1
            for k in range(2048):
                counts[k + 1] += counts[k]
            for e in order:
                k = np.int64(np.uint64(keys[e]) >> shift & digit)
                spare[counts[k]] = e
                counts[k] += 1
            order, spare = spare, order
        shift += np.uint64(11)
    return order


@jit
def _find(parent, v):
    """Root of `v`, halving the path on the way (R. Tarjan and J. van Leeuwen 1984)."""
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


@jit
def kruskal(order, us, vs, tree, size):
    """Return the edges that join two components, in order, and -1.

    Stops at the first `tree` edge that closes a cycle, and returns it in place of -1.
    """
    parent = np.arange(size, dtype=np.int32)
    kept = np.empty(size, np.int64)
    count = 0
    for e in order:
        u, v = _find(parent, us[e]), _find(parent, vs[e])
        if u != v:
            parent[max(u, v)] = min(u, v)
            kept[count] = e
            count += 1
        elif tree[e]:
            return kept[:count], e
    return kept[:count], -1


@jit
def skeleton(us, vs, tree, strange, terminal):
    """Reduce a forest, its edges in ascending order, to its skeleton between terminals.

    Removes dead ends and contracts unbranched paths to their largest edge.

    Returns
    -------
    number, left
        New numbers of the remaining vertices, -1 for the others and in an extra last entry; and the
        number of remaining vertices.
    best, us, vs, strange
        The remaining edges: the largest edge of the path, the ends in new numbers, and an edge of
        the path that is not in the forest to be verified, or -1.
    missing
        An edge that was removed, and so is in the minimum spanning forest, but is not in the forest
        to be verified; -1 if there is none.
    """
    size, edges = len(terminal), len(us)
    degree = np.zeros(size, np.int32)
    # The exclusive or of a vertex's edges: it gives the last one when the others are known.
    mixed = np.zeros(size, np.int64)
    for e in range(edges):
        for v in (us[e], vs[e]):
            degree[v] += 1
            mixed[v] ^= e
    missing = -1
    # 1. Dead ends.
    alive = np.ones(edges, np.bool_)
    for start in range(size):
        v = start
        while degree[v] == 1 and not terminal[v]:
            e = mixed[v]
            alive[e] = False
            if not tree[e]:
                missing = e
            degree[v] = 0
            v = us[e] ^ vs[e] ^ v
            degree[v] -= 1
            mixed[v] ^= e
    # 2. New numbers.
    number = np.full(size + 1, -1, np.int32)
    left = 0
    for v in range(size):
        if terminal[v] or degree[v] > 2:
            number[v] = left
            left += 1
    # 3. Paths, from the end with the smaller first edge.
    most = max(2 * left, 1)
    out_best, out_strange = np.empty(most, np.int64), np.empty(most, np.int64)
    out_us, out_vs = np.empty(most, np.int32), np.empty(most, np.int32)
    count = 0
    for first in range(edges):
        if not alive[first]:
            continue
        for start in (us[first], vs[first]):
            if number[start] < 0:
                continue
            e = best = first
            odd = strange[first]
            gone = -1
            v = us[e] ^ vs[e] ^ start
            while number[v] < 0:
                e = mixed[v] ^ e
                v = us[e] ^ vs[e] ^ v
                odd = max(odd, strange[e])
                less = min(best, e)
                best = max(best, e)
                if not tree[less]:
                    gone = less
            if e < first:
                continue
            if gone >= 0:
                missing = gone
            out_best[count], out_strange[count] = best, odd
            out_us[count], out_vs[count] = number[start], number[v]
            count += 1
            if e == first:
                break
    return (
        number,
        left,
        out_best[:count],
        out_us[:count],
        out_vs[:count],
        out_strange[:count],
        missing,
    )
