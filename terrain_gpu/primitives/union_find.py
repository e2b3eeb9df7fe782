"""Union-find for compiled code."""

from __future__ import annotations

from numba.extending import register_jitable


@register_jitable
def find(parent, v):
    """Return the root of `v`, with path halving (R. Tarjan and J. van Leeuwen 1984)."""
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v
