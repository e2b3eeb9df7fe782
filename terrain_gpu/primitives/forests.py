"""The minimum spanning forest of a graph, given as a list of edges."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from ..arguments import Backend, array, checked, whole
from ..cuda.arrays import Array
from ..errors import InputError
from .arrays import Move, on_gpu, placed
from .components import count_vertices

LEAST_GROUP, MOST_GROUP = 1 << 16, 1 << 31
"""A list of at most the one number of edges is never split, one of more than the other always."""

SAMPLE = 1024
"""Edges from which the one is chosen at which a list is split."""


@checked(edges=array, weights=array, n=lambda name, value: whole(name, value, 0, 2**40))
def spanning_forest(
    edges: Array,
    weights: Array,
    n: int | None = None,
    *,
    backend: Backend = "auto",
    device: int = 0,
) -> Array:
    """Find the minimum spanning forest of a graph.

    Edges are compared by weight, and edges of equal weight by their index in the list. No two are
    equal in this order, so there is only one forest: all backends and numbers of threads find it.

    The CPU sorts edges and joins trees in this order (J. Kruskal 1956). A list much longer than the
    number of vertices is first split at an edge of a sample; when the lighter part is done, edges
    of the heavier part inside one tree are dropped unsorted (filter-Kruskal: V. Osipov, P. Sanders
    and J. Singler 2009). The GPU splits and filters in the same way, but joins every tree across
    its least edge, in rounds (O. Boruvka 1926; with a list of the remaining edges, as in A. Fallin,
    A. Gonzalez, J. Seo and M. Burtscher, "A high-performance MST implementation for GPUs", 2023).

    Parameters
    ----------
    edges
        (m, 2) integers: the ends of undirected edges. Loops and repeated edges are allowed. A numpy
        array, or a CuPy array, which stays on its GPU; int32 and int64 are read there in place.
    weights
        (m,) integers or floats of up to 64 bits, also negative or infinite; -0.0 equals 0.0.
    n
        Number of vertices; by default, the largest vertex of an edge plus one.
    backend
        "cpu", "cuda" or "auto": the GPU if it works. A CuPy array stays on its GPU.
    device
        Number of the GPU, for arrays that are not on one.

    Returns
    -------
    array
        int64, numpy or CuPy as given: the indices of the forest's edges in `edges`, ascending. They
        are n less the number of components.

    Raises
    ------
    InputError
        when a shape or type is another, a weight is NaN, a vertex is outside 0 to n - 1, or the
        backend is not known.

    Examples
    --------
    >>> spanning_forest([[0, 1], [1, 2], [2, 0], [3, 4]], [2.5, 1.0, 2.5, 7.0])
    array([0, 1, 3])
    """
    edges, weights = (a if on_gpu(a) else np.asarray(a) for a in (edges, weights))
    if not edges.size:  # an empty list is an array of floats
        edges = edges.reshape(0, 2).astype(np.int64)
    if edges.dtype.kind not in "iu" or edges.ndim != 2 or edges.shape[1] != 2:
        raise InputError(
            f"edges of type {edges.dtype} and shape {edges.shape} are not usable; give (m, 2) "
            "integers"
        )
    if weights.dtype.kind not in "iuf" or weights.dtype.itemsize > 8:
        raise InputError(
            f"weights are of type {weights.dtype}; give integers or floats of up to 64 bits"
        )
    if weights.shape != edges.shape[:1]:
        raise InputError(
            f"weights have shape {weights.shape}; ({len(edges)},) is needed, one for each edge"
        )

    def work(xp: ModuleType, take: Move, give: Move) -> Array:
        local = take(edges)
        vertices = count_vertices(local, n)
        if local.dtype not in (np.int32, np.int64):
            local = local.astype(np.int64)
        keys = _keys(xp, take(weights))
        return give(forest_of(xp, xp.ascontiguousarray(local), keys, vertices))

    return placed(backend, device, (edges, weights), work)


def forest_of(xp: ModuleType, edges: Array, keys: Array, n: int) -> Array:
    """Return the indices of the forest's edges, see `spanning_forest`; `xp` is numpy or cupy.

    `edges` are int32 or int64 with ends in range, `keys` unsigned, of 32 or 64 bits.
    """
    if xp is np:
        from .forests_cpu import CpuForest as Forest
    else:
        from .forests_gpu import GpuForest as Forest  # type: ignore[assignment]
    forest = Forest(edges, keys, n)
    group = min(max(int(forest.GROUP * n), LEAST_GROUP), MOST_GROUP)
    _grow(forest, forest.all_edges(), group)
    return xp.flatnonzero(forest.chosen).astype(np.int64, copy=False)


def _keys(xp: ModuleType, weights: Array) -> Array:
    """Return unsigned integers of 32 or 64 bits in the order of the weights."""
    kind, bits = weights.dtype.kind, 8 * max(4, weights.dtype.itemsize)
    values = xp.ascontiguousarray(weights.astype(f"{kind}{bits // 8}", copy=False))
    if kind == "u":
        return values
    least = np.array(-(2 ** (bits - 1)), f"i{bits // 8}")[()]
    if kind == "i":
        return (values ^ least).view(f"u{bits // 8}")
    wrong = xp.isnan(values)
    if wrong.any():
        raise InputError(
            f"weights[{int(wrong.argmax())}] is NaN, which cannot be ordered; give a number, or "
            "leave the edge out"
        )
    words = values.view(f"i{bits // 8}")
    words = words * (words != least)  # -0.0 is 0.0; as floats, CuPy would flush the smallest to 0
    return (words ^ ((words >> (bits - 1)) | least)).view(f"u{bits // 8}")


def _grow(forest: Any, edges: Array, group: int) -> None:
    """Join trees across a list of edges, between trees, of which no lighter edge is left."""
    while len(edges) > group:
        light, edges = forest.split(edges, *_pivot(forest, edges.ids, 0.75 * group / len(edges)))
        _grow(forest, light, group)
        edges = forest.between_trees(edges)
    forest.join(edges)


def _pivot(forest: Any, ids: Array, share: float) -> tuple[np.unsignedinteger, np.integer]:
    """Return key and id of an edge: about this share of the list precedes it, and not all."""
    sample = ids[:: max(1, len(ids) // SAMPLE)]
    keys, sample = (forest.to_host(a) for a in (forest.keys[sample], sample))
    order = np.lexsort((sample, keys))
    at = order[min(len(order) - 2, int(share * len(order)))]
    return keys[at], sample[at]
