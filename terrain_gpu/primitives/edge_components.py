"""Components of a list of edges on the CPU, in the same steps as ``cuda/kernels/components.cu``.

Each method takes and leaves a `parent` whose trees are stars, as "stages" needs, and returns the
number of its rounds. A root is the least vertex of its tree, except as in `has_other_roots`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable

from ..compiled import jit
from .lists_cpu import each
from .union_find import find

LEAST_GROUP = 1 << 16
"""Fewest edges of a group of "stages"; otherwise as many as there are vertices."""


def label_dtype(n: int) -> np.dtype:
    """Return the internal type of labels: 32 bits if they suffice, to halve the random accesses."""
    return np.dtype(np.int32 if n < 2**31 else np.int64)


def edge_components(edges: np.ndarray, n: int, method: str) -> np.ndarray:
    """Return the least vertex of each vertex's component, int64.

    `edges` are (m, 2) integers with ends in range.
    """
    if method != "rem":  # its kernel reads int32, too
        edges = edges.astype(np.int64, copy=False)
    parent = np.arange(n, dtype=label_dtype(n))
    if method == "hybrid":
        depth_first(edges, 0, parent)
    elif method.startswith("stages"):
        _stages(edges, parent, INNER[inner_method(method)])
    else:
        INNER[method](edges, parent)
    if has_other_roots(method):
        least_vertices(parent)
    return parent.astype(np.int64)


def has_other_roots(method: str) -> bool:
    """Return whether the roots of this method need not be the least vertices."""
    return "sv" in method or method == "soman"


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


def _stages(edges: np.ndarray, parent: np.ndarray, inner: Callable[..., int]) -> None:
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


@intrinsic
def swap_if(typingctx, array, index, old, new):
    """Set ``array[index]`` to `new` if it is `old`, atomically; return whether it was."""

    def build(context, builder, signature, arguments):
        kind = signature.args[0]
        array, index, old, new = arguments
        view = context.make_array(kind)(context, builder, array)
        place = cgutils.get_item_pointer(context, builder, kind, view, [index], wraparound=False)
        return builder.extract_value(builder.cmpxchg(place, old, new, "acq_rel", "monotonic"), 1)

    return types.boolean(array, types.intp, array.dtype, array.dtype), build


def rem(edges: np.ndarray, parent: np.ndarray) -> int:
    """M. Rem's union-find, in one pass; threads share the edges, and join as in `rem.cuh`."""
    each(_join, len(edges), edges, parent)
    each(_to_roots, len(parent), parent)
    return 1


@jit
def _join(begin, end, edges, parent):
    """Climb from both ends of each edge, splicing; by compare-and-swap unless alone."""
    alone = end - begin == len(edges)
    for e in range(begin, end):
        u, v = np.int64(edges[e, 0]), np.int64(edges[e, 1])
        while True:
            up, other = np.int64(parent[u]), np.int64(parent[v])
            if up == other:
                break
            if up < other:
                u, v, up, other = v, u, other, up
            done = True
            if alone:
                parent[u] = other
            else:
                done = swap_if(parent, u, up, other)
            if u == up and done:
                break
            u = up


@jit
def _to_roots(begin, end, parent):
    """Make the root of each vertex its parent."""
    for v in range(begin, end):
        up = parent[v]
        while parent[up] != up:
            up = parent[up]
        parent[v] = up


@register_jitable
def _graft(edges, parent, up):
    """Graft roots onto lesser (`up`: greater) labels across an edge; return whether any was."""
    grafted = False
    for e in range(len(edges)):
        u, v = parent[edges[e, 0]], parent[edges[e, 1]]
        low, high = min(u, v), max(u, v)
        root, onto = (low, high) if up else (high, low)
        if low != high and parent[root] == root:
            parent[root] = onto
            grafted = True
    return grafted


@jit
def graft_and_shortcut(edges, parent):
    """Method cc: rounds of grafting and shortcutting over all edges."""
    rounds = 1
    while _graft(edges, parent, False):
        shortcut(parent)
        rounds += 1
    return rounds


@jit
def graft_and_update(edges, parent):
    """Method cc-updt: relabel edges after each round, and drop those inside a tree."""
    rounds = 0
    while len(edges):
        _graft(edges, parent, False)
        shortcut(parent)
        edges = update(edges, 1, 0, len(edges), parent)
        rounds += 1
    return rounds


@jit
def graft_both_ways(edges, parent):
    """Method soman: as cc-updt, but onto greater and lesser roots in turn."""
    rounds = 0
    while len(edges):
        _graft(edges, parent, rounds % 2 == 0)
        for v in range(len(parent)):
            parent[v] = find(parent, v)
        edges = update(edges, 1, 0, len(edges), parent)
        rounds += 1
    return rounds


@jit
def shiloach_vishkin(edges, parent, relabel=False):
    """Method sv: Y. Shiloach and U. Vishkin 1982, in the steps of Dehne and Yogaratnam.

    Method sv-updt relabels edges after each round, as cc-updt does.
    """
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
        if relabel:
            edges = update(edges, 1, 0, len(edges), parent)
        again = False
        for v in range(n):  # SV5: check for changes
            again |= stamp[v] == turn
    return turn


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


INNER: dict[str, Callable[..., int]] = {
    "rem": rem,
    "sv": shiloach_vishkin,
    "sv-updt": functools.partial(shiloach_vishkin, relabel=True),
    "soman": graft_both_ways,
    "cc": graft_and_shortcut,
    "cc-updt": graft_and_update,
}
