"""Plain, slow, obviously right implementations that every fast path is compared with."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

FORWARD = ((0, 1), (1, -1), (1, 0), (1, 1))
"""Steps to the upper endpoint of an edge, in the order of directions: E, SW, S, SE."""


def vertices(z, nodata=None):
    """Mask of the cells that are vertices: finite and not nodata."""
    mask = np.isfinite(z) if z.dtype.kind == "f" else np.ones(z.shape, bool)
    return mask if nodata is None else mask & (z != nodata)


def weight_of(a, b, weight):
    """Weight between two cells: exact for integers, in the cells' own type for floats."""
    if weight == "max":
        return max(a.item(), b.item())
    if a.dtype.kind in "iu":
        return abs(int(a) - int(b))
    with np.errstate(over="ignore"):
        return abs(a - b).item()


def edges(z, weight, nodata=None, connectivity=8):
    """All edges as (weight, id of the lower endpoint, direction)."""
    good = vertices(z, nodata)
    rows, cols = z.shape
    found = []
    for row in range(rows):
        for col in range(cols):
            for d, (dr, dc) in enumerate(FORWARD):
                r, c = row + dr, col + dc
                if connectivity == 4 and dr and dc:
                    continue
                if not (r < rows and 0 <= c < cols and good[row, col] and good[r, c]):
                    continue
                found.append((weight_of(z[row, col], z[r, c], weight), row * cols + col, d))
    return found


def kruskal(z, weight, nodata=None, connectivity=8):
    """Minimum spanning forest by Kruskal: (mask of forward edges, exact total weight, edges)."""
    rows, cols = z.shape
    parent = list(range(rows * cols))

    def find(v):
        while parent[v] != v:
            parent[v] = parent[parent[v]]
            v = parent[v]
        return v

    mask = np.zeros(rows * cols, np.uint8)
    total, count = [], 0
    for w, cell, d in sorted(edges(z, weight, nodata, connectivity)):
        dr, dc = FORWARD[d]
        u, v = find(cell), find(cell + dr * cols + dc)
        if u != v:
            parent[u] = v
            mask[cell] |= 1 << d
            total.append(w)
            count += 1
    return mask.reshape(rows, cols), exact_sum(total), count


def exact_sum(weights):
    """Integers as they are, floats as the correctly rounded sum."""
    if not weights or isinstance(weights[0], int):
        return sum(weights)
    if any(math.isinf(w) for w in weights):
        return math.inf
    total = sum(map(Fraction, weights))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf
