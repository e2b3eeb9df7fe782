"""Components of a list of edges on the CPU, in the same steps as ``cuda/kernels/components.cu``.

Each kernel takes and leaves a `parent` whose trees are stars, as "stages" needs. Except in
`shiloach_vishkin`, a root is the least vertex of its tree, and parents only decrease.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import register_jitable

from ..compiled import jit

LEAST_GROUP = 1 << 16
"""Fewest edges of a group of "stages"; otherwise as many as there are vertices."""


def label_dtype(n: int) -> np.dtype:
    """Return the internal type of labels: 32 bits if they suffice, to halve the random accesses."""
    return np.dtype(np.int32 if n < 2**31 else np.int64)


def edge_components(edges: np.ndarray, n: int, method: str) -> np.ndarray:
    """Return the least vertex of each vertex's component, int64.

    `edges` are (m, 2) integers with ends in range.
    """
    edges = edges.astype(np.int64, copy=False)  # kernels are compiled for one type only
    parent = np.arange(n, dtype=label_dtype(n))
    if method == "hybrid":
        depth_first(edges, 0, parent)
    elif method.startswith("stages"):
        _stages(edges, parent, INNER[inner_method(method)])
    else:
        INNER[method](edges, parent)
    least_vertices(parent)
    return parent.astype(np.int64)


def inner_method(method: str) -> str:
    """Return the method that "stages" or "stages-METHOD" runs on each group."""
    return method.partition("-")[2] or "cc-updt"


def stride(m: int) -> int:
    """Return a stride coprime to m: its multiples modulo m are a permutation, without a table.

    About m times the golden ratio, at most 2^20 so that products fit 64 bits.
    """
    step = max(1, min(int(m * 0.618), 1 << 20))
    while math.gcd(step, m) > 1:
        step += 1
    return step


def _stages(edges: np.ndarray, parent: np.ndarray, inner: Callable[..., Any]) -> None:
    """Solve groups of permuted edges in turn, each relabelled by the roots found so far."""
    m = len(edges)
    step, group = stride(m), max(len(parent), LEAST_GROUP)
    for first in range(0, m, group):
        stop = min(first + group, m)
        inner(update(edges, step, first, stop, parent), parent)


@jit
def shortcut(parent):
    """Make every tree a star; parents are less than their children."""
    for v in range(len(parent)):
        parent[v] = parent[parent[v]]


@jit
def update(edges, step, first, stop, parent):
    """Return edges `first` to `stop` of the permutation by `step`, between roots, without loops."""
    m = len(edges)
    out = np.empty((stop - first, 2), np.int64)
    count = 0
    for k in range(first, stop):
        e = k * step % m
        u, v = parent[edges[e, 0]], parent[edges[e, 1]]
        out[count, 0], out[count, 1] = u, v
        count += u != v
    return out[:count]


@jit
def rem(edges, parent):
    """M. Rem's union-find: climb both trees at once, splicing them on the way."""
    for e in range(len(edges)):
        u, v = edges[e, 0], edges[e, 1]
        while parent[u] != parent[v]:
            if parent[u] < parent[v]:
                u, v = v, u
            up = np.int64(parent[u])
            parent[u] = parent[v]
            if up == u:
                break
            u = up
    shortcut(parent)


@register_jitable
def _graft(edges, parent):
    """Graft roots onto lesser labels across an edge; return whether any was grafted."""
    grafted = False
    for e in range(len(edges)):
        u, v = parent[edges[e, 0]], parent[edges[e, 1]]
        low, high = min(u, v), max(u, v)
        if low != high and parent[high] == high:
            parent[high] = low
            grafted = True
    return grafted


@jit
def graft_and_shortcut(edges, parent):
    """Method cc: rounds of grafting and shortcutting over all edges."""
    while _graft(edges, parent):
        shortcut(parent)


@jit
def graft_and_update(edges, parent):
    """Method cc-updt: relabel edges after each round, and drop those inside a tree."""
    while len(edges):
        _graft(edges, parent)
        shortcut(parent)
        edges = update(edges, 1, 0, len(edges), parent)


@jit
def shiloach_vishkin(edges, parent):
    """Method sv: Y. Shiloach and U. Vishkin 1982, in the steps of Dehne and Yogaratnam."""
    n = len(parent)
    now = np.empty_like(parent)  # SV0
    stamp = np.zeros(n, parent.dtype)
    turn = 0
    again = True
    while again:
        turn += 1
        for v in range(n):  # SV1: shortcut; mark the trees that it changes
            now[v] = parent[parent[v]]
            if now[v] != parent[v]:
                stamp[now[v]] = turn
        for e in range(len(edges)):  # SV2: hook trees on lesser ones
            for k in range(2):
                u, v = edges[e, k], edges[e, 1 - k]
                if now[u] == parent[u] and now[v] < now[u]:
                    now[now[u]] = now[v]
                    stamp[now[v]] = turn
        for e in range(len(edges)):  # SV3: hook trees that did not change in this round
            for k in range(2):
                root, other = now[edges[e, k]], now[edges[e, 1 - k]]
                if root != other and now[root] == root and stamp[root] < turn:
                    now[root] = other
        for v in range(n):  # SV4: shortcut
            parent[v] = now[now[v]]
        again = False
        for v in range(n):  # SV5: check for changes
            again |= stamp[v] == turn


@jit
def depth_first(edges, low, parent):
    """Label vertices from `low` on by depth-first search along the edges between them.

    `parent` has one entry per vertex, and receives the least vertex of its component.
    """
    n = len(parent)
    begin = np.zeros(n + 1, np.int64)
    for e in range(len(edges)):
        u, v = edges[e, 0] - low, edges[e, 1] - low
        if 0 <= u < n and 0 <= v < n:
            begin[u] += 1
            begin[v] += 1
    for v in range(n):
        begin[v + 1] += begin[v]
    near = np.empty(begin[n], parent.dtype)
    for e in range(len(edges)):
        u, v = edges[e, 0] - low, edges[e, 1] - low
        if 0 <= u < n and 0 <= v < n:
            begin[u] -= 1
            near[begin[u]] = v
            begin[v] -= 1
            near[begin[v]] = u
    parent[:] = -1
    stack = np.empty(n, parent.dtype)
    for start in range(n):
        if parent[start] >= 0:
            continue
        parent[start] = low + start
        stack[0] = start
        size = 1
        while size:
            size -= 1
            u = stack[size]
            for k in range(begin[u], begin[u + 1]):
                v = near[k]
                if parent[v] < 0:
                    parent[v] = low + start
                    stack[size] = v
                    size += 1


@jit
def least_vertices(parent):
    """Relabel each star with its least vertex; with "sv", the root may be another vertex."""
    least = np.full(len(parent), -1, parent.dtype)
    for v in range(len(parent)):
        root = parent[v]
        if least[root] < 0:
            least[root] = v
        parent[v] = least[root]


INNER: dict[str, Callable[..., Any]] = {
    "rem": rem,
    "sv": shiloach_vishkin,
    "cc": graft_and_shortcut,
    "cc-updt": graft_and_update,
}
