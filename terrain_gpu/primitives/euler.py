"""Euler tours: depth, preorder and subtree sizes of a tree given by parents or edges."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import numpy as np

from ..arguments import Backend, RankMethod, array, checked, whole, word
from ..cuda.arrays import Array
from ..errors import InputError
from .arrays import Move, integers, placed
from .lists import rank
from .lists_cpu import NotLists


@dataclass(frozen=True)
class EulerTour:
    """Depth, preorder and subtree sizes of a rooted tree or forest.

    Attributes
    ----------
    parent
        int64, (n,): parent of each vertex; a root is its own parent.
    depth
        int64, (n,): number of edges between a vertex and its root.
    preorder
        int64, (n,): preorder number of a vertex: parents before children, siblings and roots in
        ascending order.
    size
        int64, (n,): number of vertices in the subtree of a vertex, itself included. The subtree has
        the preorder numbers from ``preorder`` up to, but not including, ``preorder + size``.
    """

    parent: Array
    depth: Array
    preorder: Array
    size: Array


@checked(parent=array, edges=array, root=whole, method=word(RankMethod))
def euler_tour(
    parent: Array = None,
    *,
    edges: Array = None,
    root: int = 0,
    method: RankMethod = "auto",
    backend: Backend = "auto",
    device: int = 0,
) -> EulerTour:
    """Compute depth, preorder and subtree sizes of a tree by list ranking of its Euler tour.

    The tour goes down and up every edge once. As a list: the step down to v is followed by the step
    down to its first child, or else up from v; the step up from v is followed by the step down to
    its next sibling, or else up from its parent. `list_ranking` ranks the list. The positions of
    both steps give sizes, and a prefix sum over the steps down gives preorder and depth. Roots
    are children of a virtual vertex, so a forest is one tree. R. Tarjan and U. Vishkin, "An
    efficient parallel biconnectivity algorithm" (SIAM Journal on Computing 14, 1985).

    Parameters
    ----------
    parent
        Parent of each vertex, (n,) integers; a root is its own parent.
    edges
        Instead of `parent`: the n - 1 edges of a tree, (n - 1, 2) integers, each in any direction.
        A first tour finds the parents, by the direction in which it first takes each edge.
    root
        Vertex to root the tree of `edges` at.
    method
        Of `list_ranking`.
    backend, device
        See `list_ranking`; CuPy arrays stay on their GPU.

    Returns
    -------
    tour
        Arrays on the same device, the same for all methods, backends and orders of edges.

    Raises
    ------
    InputError
        when these are not trees: a vertex out of range, a cycle, edges that do not connect all
        vertices.
    """
    if (parent is None) == (edges is None):
        raise InputError("give either parent or edges, and not both")

    def work(xp: ModuleType, take: Move, give: Move) -> EulerTour:
        above = parent if edges is None else root_tree(xp, take(edges), root, method)
        tour = tour_of(xp, integers("parent", take(above)), method)
        return EulerTour(*(give(array) for array in tour))

    return placed(backend, device, (parent, edges), work)


def tour_of(
    xp: ModuleType, parent: Array, method: str = "auto"
) -> tuple[Array, Array, Array, Array]:
    """Return parent, depth, preorder and size, see `euler_tour`; `xp` is numpy or cupy."""
    count = len(parent)
    if not count:
        return tuple(xp.empty(0, np.int64) for _ in range(4))
    _check_range(parent, count, "parent[{}] is {}", "the parent of a root is itself")
    try:
        ranks = rank(xp, _steps(xp, parent), None, method)
    except NotLists:
        v = _on_cycle(xp, parent)
        raise InputError(f"vertex {v} is its own ancestor; parents must lead to a root") from None
    down, up = 2 * count - 1 - ranks[:count], 2 * count - 1 - ranks[count:]
    begins = xp.zeros(2 * count, np.int8)
    begins[down] = 1
    begun = xp.cumsum(begins, dtype=np.int64)[down]
    return parent.astype(np.int64), 2 * begun - down - 2, begun - 1, (up - down + 1) // 2


def _check_range(ids: Array, count: int, message: str, remedy: str) -> None:
    wrong = (ids < 0) | (ids >= count)
    if wrong.any():
        k = int(wrong.argmax())
        raise InputError(
            f"{message.format(k, int(ids[k]))}, but the vertices are 0 to {count - 1}; {remedy}"
        )


def _steps(xp: ModuleType, parent: Array) -> Array:
    """Return the tour as a list: element v is the step down to v, n + v the step up from v.

    Raises
    ------
    NotLists
        when there is no root.
    """
    count = len(parent)
    kind = np.int32 if 2 * count < 2**31 else np.int64
    ids = xp.arange(count, dtype=kind)
    # The virtual vertex n is the parent of all roots; it has neither a parent nor steps.
    above = xp.where(parent == ids, count, parent).astype(kind)
    order = xp.argsort(above, kind="stable").astype(kind)
    above = above[order]
    if int(above[-1]) != count:
        raise NotLists
    sibling = above[1:] == above[:-1]
    after = count + above
    after[:-1] = xp.where(sibling, order[1:], after[:-1])
    after[-1] = count + order[-1]
    steps = xp.empty(2 * count, kind)
    steps[:count] = ids + count
    steps[count + order] = after
    first = xp.flatnonzero(xp.concatenate((xp.ones(1, bool), ~sibling)))[:-1]
    steps[above[first]] = order[first]
    return steps


def _on_cycle(xp: ModuleType, parent: Array) -> int:
    """Return a vertex on a cycle: an ancestor of a vertex that does not lead to a root."""
    far = parent
    for _ in range(len(parent).bit_length()):
        far = far[far]
    return int(far[(parent[far] != far).argmax()])


def root_tree(xp: ModuleType, edges: Array, root: int, method: str = "auto") -> Array:
    """Return the parents in the tree of these edges, see `euler_tour`; `xp` is numpy or cupy."""
    if not edges.size:
        edges = edges.reshape(0, 2).astype(np.int64)
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise InputError(f"edges have shape {edges.shape}; (n - 1, 2) is needed")
    half, count = len(edges), len(edges) + 1
    sources = integers("edges", edges.T.ravel())
    targets = xp.concatenate((sources[half:], sources[:half]))
    remedy = "a tree has one edge less than vertices"
    _check_range(sources, count, "end {} of the edges is {}", remedy)
    if not 0 <= root < count:
        raise InputError(f"root {root} is not one of the vertices, 0 to {count - 1}")
    parent = xp.full(count, -1, np.int64)
    parent[root] = root
    if half:
        try:
            ranks = rank(xp, _arcs(xp, sources, root), None, method)
        except NotLists:
            raise _no_tree(root) from None
        down = ranks > xp.concatenate((ranks[half:], ranks[:half]))
        parent[targets[down]] = sources[down]
    if (parent < 0).any():
        raise _no_tree(root)
    return parent


def _no_tree(root: int) -> InputError:
    return InputError(
        f"the edges are not a tree: from root {root} they do not lead to every vertex, "
        "so some of them are on a cycle"
    )


def _arcs(xp: ModuleType, sources: Array, root: int) -> Array:
    """Return the tour of a tree from `root` as a list of arcs; the second half reverses the first.

    The successor of u -> v is the arc after v -> u in the circular order of arcs that leave v.

    Raises
    ------
    NotLists
        when no edge leaves the root.
    """
    count = len(sources)
    order = xp.argsort(sources, kind="stable")
    sources = sources[order]
    new = xp.concatenate((xp.ones(1, bool), sources[1:] != sources[:-1]))
    firsts = order[xp.flatnonzero(new)]
    circle = xp.empty_like(order)
    circle[order[:-1]] = xp.where(new[1:], firsts[xp.cumsum(new) - 1][:-1], order[1:])
    circle[order[-1]] = firsts[-1]
    last = int(xp.searchsorted(sources, xp.asarray([root]), "right")[0]) - 1
    if last < 0 or int(sources[last]) != root:
        raise NotLists
    half = count // 2
    arcs = xp.concatenate((circle[half:], circle[:half]))
    final = (int(order[last]) + half) % count
    arcs[final] = final
    return arcs
