"""Graphs from the literature, of numpy or CuPy (`xp`): edges of int32, shape (m, 2)."""

from __future__ import annotations

from typing import Any

import numpy as np

QUARTERS = 0.45, 0.6, 0.75  # R-MAT with a = 0.45, b = 0.15, c = 0.15, d = 0.25


def random_graph(xp: Any, n: int, m: int) -> Any:
    """Edges between vertices at random."""
    return xp.random.randint(0, n, (m, 2)).astype(np.int32)


def rmat(xp: Any, n: int, m: int) -> Any:
    """R-MAT edges: each bit picks a quarter of the adjacency matrix; then fitted to n vertices."""
    bits = (n - 1).bit_length()
    edges = xp.zeros((m, 2), np.int32)
    part = 1 << 25
    for first in range(0, m, part):
        u, v = (xp.zeros(min(part, m - first), np.int64) for _ in range(2))
        for _ in range(bits):
            r = xp.random.random(len(u))
            u = 2 * u + (r >= QUARTERS[1])
            v = 2 * v + (((r >= QUARTERS[0]) & (r < QUARTERS[1])) | (r >= QUARTERS[2]))
        edges[first : first + part, 0] = u * n >> bits
        edges[first : first + part, 1] = v * n >> bits
    return edges


def torus(xp: Any, side: int) -> Any:
    """Each vertex and its neighbours to the right and below."""
    cells = xp.arange(side * side, dtype=np.int32).reshape(side, side)
    edges = xp.empty((2, side, side, 2), np.int32)
    edges[..., 0] = cells
    edges[0, ..., 1] = xp.roll(cells, -1, 1)
    edges[1, ..., 1] = xp.roll(cells, -1, 0)
    return edges.reshape(-1, 2)
