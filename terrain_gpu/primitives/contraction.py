"""Tree contraction: remove dead ends and contract chains to paths."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import numpy as np

from ..arguments import Backend, PathReduction, RankMethod, array, checked, word, wrong
from ..cuda.arrays import Array
from ..errors import InputError
from .arrays import Move, integers, placed
from .euler import EulerTour
from .lists import rank


@dataclass(frozen=True)
class Contraction:
    """A forest reduced to its kept vertices and the paths between them.

    Attributes
    ----------
    vertices
        int64, ascending: the kept vertices, and those where at least three paths meet.
    offsets
        int64, (paths + 1,): path k is ``path_vertices[offsets[k]:offsets[k + 1]]``.
    path_vertices
        int64: the vertices of all paths, each from one of `vertices` to another, both included.
    weights
        int64, (paths,): sum or maximum of the weights of a path's edges.
    """

    vertices: Array
    offsets: Array
    path_vertices: Array
    weights: Array


def _tour(name: str, value: Array) -> EulerTour:
    if not isinstance(value, EulerTour):
        raise wrong(name, value, "what euler_tour returns")
    return EulerTour(**{field: array(f"{name}.{field}", a) for field, a in vars(value).items()})


@checked(tour=_tour, keep=array, weights=array, method=word(RankMethod), reduce=word(PathReduction))
def contract_tree(
    tour: EulerTour,
    keep: Array,
    weights: Array = None,
    *,
    reduce: PathReduction = "sum",
    method: RankMethod = "auto",
    backend: Backend = "auto",
    device: int = 0,
) -> Contraction:
    """Reduce a forest to the paths between kept vertices.

    1. *Dead ends*: keep an edge if there are kept vertices on both sides of it. Their number in a
       subtree is a difference of prefix sums over the preorder.
    2. *Roots*: orient every tree towards its first kept vertex.
    3. *Paths*: two edges that meet in a vertex of degree 2 that is not kept belong to one chain.
       Chains are lists, which `list_ranking` contracts in O(log n) rounds: once for the position of
       each edge in its chain; once, with weights that sum to a difference of edge numbers, for the
       last edge of its chain.

    Dead ends and paths are H. Haverkort's, for spanning trees of grid graphs.

    Parameters
    ----------
    tour
        From `euler_tour`, with n vertices.
    keep
        Vertices to keep, (n,) booleans. A tree without kept vertices disappears.
    weights
        Weight of the edge from each vertex to its parent, (n,) integers; 1 when None.
    reduce
        "sum" or "max": what becomes of the weights of a path. With distinct weights, "max"
        identifies the greatest edge of the path, as needed for spanning trees.
    method
        Of `list_ranking`.
    backend, device
        See `list_ranking`; CuPy arrays stay on their GPU.

    Returns
    -------
    contraction
        Arrays on the tour's device, the same for all methods and backends.

    Raises
    ------
    InputError
        when the shape or type of `keep` or `weights` does not match the tour.
    """

    def work(xp: ModuleType, take: Move, give: Move) -> Contraction:
        parent, preorder, size = (take(a) for a in (tour.parent, tour.preorder, tour.size))
        kept, count = take(keep), len(parent)
        if kept.shape != (count,) or kept.dtype != bool:
            raise InputError(
                f"keep is {kept.dtype} of shape {kept.shape}; "
                f"give booleans, one for each of {count} vertices"
            )
        values = take(np.ones(count, np.int64) if weights is None else weights)
        values = integers("weights", values)
        if values.shape != (count,):
            raise InputError(f"weights have shape {values.shape}; ({count},) is needed")
        arrays = contract(xp, parent, preorder, size, kept, values, reduce, method)
        return Contraction(*(give(array) for array in arrays))

    return placed(backend, device, (tour.parent, keep, weights), work)


def contract(
    xp: ModuleType,
    parent: Array,
    preorder: Array,
    size: Array,
    keep: Array,
    weights: Array,
    reduce: str,
    method: str = "auto",
) -> tuple[Array, Array, Array, Array]:
    """Return the arrays of a `Contraction`, see `contract_tree`; `xp` is numpy or cupy."""
    count = len(parent)
    edges, lower, upper = _living(xp, parent, preorder, size, keep)
    degree = xp.bincount(xp.concatenate((lower, upper)), minlength=count)
    corner = keep | (degree > 2)
    vertices = xp.flatnonzero(corner)
    if not len(edges):
        empty = xp.empty(0, np.int64)
        return vertices, xp.zeros(1, np.int64), empty, empty

    # Chains: the successor of an edge is the edge above its upper end, unless the path ends there.
    ids = xp.arange(len(edges))
    edge_above = xp.empty(count, np.int64)
    edge_above[lower] = ids
    succ = xp.where(corner[upper], ids, edge_above[upper])
    left = rank(xp, succ, None, method)
    last = ids + rank(xp, succ, succ - ids, method)

    final = succ == ids
    path = (xp.cumsum(final) - 1)[last]
    ends = xp.cumsum(xp.bincount(path))
    slot = ends[path] - 1 - left
    values = weights[edges].astype(np.int64, copy=False)
    if reduce == "max":
        reduced = values[xp.lexsort(xp.stack((values, path)))][ends - 1]
    else:
        along = xp.empty_like(values)
        along[slot] = values
        reduced = xp.cumsum(along)[ends - 1]
        reduced[1:] -= reduced[:-1].copy()

    path_vertices = xp.empty(len(edges) + len(ends), np.int64)
    path_vertices[slot + path] = lower
    offsets = xp.concatenate((xp.zeros(1, np.int64), ends + xp.arange(1, len(ends) + 1)))
    path_vertices[offsets[1:] - 1] = upper[final]
    return vertices, offsets, path_vertices, reduced


def _living(
    xp: ModuleType, parent: Array, preorder: Array, size: Array, keep: Array
) -> tuple[Array, Array, Array]:
    """Return the edges with kept vertices on both sides, by their child, and their ends.

    The upper end is the one nearer to the tree's first kept vertex in preorder.
    """
    count = len(parent)
    ids = xp.arange(count)
    roots = xp.flatnonzero(parent == ids)
    zero = xp.zeros(1, np.int64)
    kept_at, tree_at = xp.zeros(count, np.int64), xp.zeros(count, np.int64)
    kept_at[preorder] = keep
    tree_at[preorder[roots]] = 1
    before = xp.concatenate((zero, xp.cumsum(kept_at)))
    below = before[preorder + size] - before[preorder]
    tree = (xp.cumsum(tree_at) - 1)[preorder]
    edges = xp.flatnonzero((parent != ids) & (below > 0) & (below < below[roots][tree]))
    # Only trees with kept vertices have such edges.
    first = xp.flatnonzero(kept_at)[before[preorder[roots[tree[edges]]]]]
    child, above = edges, parent[edges]
    turned = (preorder[child] <= first) & (first < preorder[child] + size[child])
    return edges, xp.where(turned, above, child), xp.where(turned, child, above)
