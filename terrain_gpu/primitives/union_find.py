"""Union-find inside kernels."""

from __future__ import annotations

from numba.extending import register_jitable


@register_jitable
def find(parent, v):
    """Root of `v`, halving the path on the way (R. Tarjan and J. van Leeuwen 1984)."""
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v
