"""Union-find for compiled code."""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable


@register_jitable
def find(parent, v):
    """Return the root of `v`, with path halving (R. Tarjan and J. van Leeuwen 1984)."""
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


@register_jitable
def join(parent, u, v):
    """Join the trees of `u` and `v`, int64; return whether these were two (M. Rem 1976).

    Climbs both trees at once, splicing them on the way. A parent is less than its children.
    """
    while parent[u] != parent[v]:
        if parent[u] < parent[v]:
            u, v = v, u
        up = np.int64(parent[u])
        parent[u] = parent[v]
        if up == u:
            return True
        u = up
    return False
