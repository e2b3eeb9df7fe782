"""Connected components of a graph or of a mask, on plain arrays."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from ..arguments import Backend, Connectivity, array, checked, text, whole
from ..cuda.arrays import Array
from ..errors import InputError
from .arrays import Move, on_gpu, placed
from .edge_components import INNER, edge_components
from .grid_components import grid_components
from .lists_cpu import each

STAGES = ("stages", "stages-rem", "stages-sv", "stages-sv-updt", "stages-cc")
METHODS = ("auto", *INNER, *STAGES, "hybrid")


@checked(edges=array, n=lambda name, value: whole(name, value, 0, 2**40), method=text)
def connected_components(
    edges: Array,
    n: int | None = None,
    method: str = "auto",
    connectivity: Connectivity = 8,
    backend: Backend = "auto",
    device: int = 0,
) -> Array:
    """Label the connected components of a graph, or of a mask of grid cells.

    The label of a component is its least vertex, so all methods and backends agree exactly.

    Parameters
    ----------
    edges
        Either (m, 2) integers: the edges of an undirected graph, in any order; loops and
        repeated edges are allowed. Or (rows, cols) bool: a mask, whose cells are joined to their
        neighbours in it; cell (row, col) is vertex ``row * cols + col``. A numpy array, or a
        CuPy array, which stays on its GPU; int32 and int64 edges there are read in place.
    n
        Number of vertices; by default, the largest vertex of an edge plus one. Not for a mask.
    method
        One of

        ``auto``
            The fastest as measured: ``rem``.
        ``rem``
            M. Rem's union-find with splicing (E. W. Dijkstra 1976; M. Patwary, J. Blair and
            F. Manne 2010), in one pass over the edges, which the threads of the CPU or GPU share;
            they splice by compare-and-swap, as in C. Hong, L. Dhulipala and J. Shun 2020. A mask is
            not converted to edges: the CPU joins runs of rows, in parallel strips (L. He, Y. Chao
            and K. Suzuki 2008); the GPU joins cells to the one or two neighbours that imply the
            others.
        ``sv``
            Y. Shiloach and U. Vishkin 1982, in O(log n) rounds of the kernels SV0 to SV5 of F.
            Dehne and K. Yogaratnam 2010: SV0 start, SV1 shortcut and mark, SV2 hook on smaller
            trees, SV3 hook stagnant trees, SV4 shortcut, SV5 look for changes.
        ``sv-updt``
            ``sv`` with step 3 of ``cc-updt`` at the end of each round (G. Cong and P. Muzio 2014).
        ``soman``
            Shiloach and Vishkin with alternating hooking (J. Soman, K. Kothapalli and P. J.
            Narayanan 2010): all roots are hooked onto greater labels in one round and onto smaller
            ones in the next, then shortcut to stars. Edges inside a tree are dropped.
        ``cc``
            Graft and shortcut (D. Bader and G. Cong 2005), in rounds over all edges: 1. graft roots
            onto smaller ones, 2. shortcut to stars.
        ``cc-updt``
            ``cc`` with a third step: 3. replace the ends of edges by their roots, and drop edges
            inside a tree (G. Cong and P. Muzio 2014).
        ``stages``, ``stages-rem``, ``stages-sv``, ``stages-sv-updt``, ``stages-cc``
            Permute the edges and take them in groups as large as the number of vertices: each
            group is updated as in step 3 above, then solved by another method, ``cc-updt`` if
            none is named (G. Cong and P. Muzio 2014).
        ``hybrid``
            Depth-first search on the CPU's cores for a share of the vertices, ``rem`` on the GPU
            for the others at the same time; edges between the parts are reduced to one per pair of
            components (D. Banerjee and K. Kothapalli 2011). The share is tuned from the times of
            both sides, and remembered in the process for graphs of about the same size. On the
            CPU, plain depth-first search.

    connectivity
        For a mask: 4 or 8 neighbours.
    backend
        "cpu", "cuda" or "auto": the GPU if it works. A CuPy array stays on its GPU.
    device
        Number of the GPU, for arrays that are not on one.

    Returns
    -------
    array
        int64, numpy or CuPy as given: (n,) labels of vertices; or an array of the mask's shape, -1
        outside it. Internally, labels have 32 bits for fewer than 2**31 vertices.

    Raises
    ------
    InputError
        when shape or type is neither of these, a vertex is outside 0 to n - 1, or a method,
        connectivity or backend is not known.
    """
    if method not in METHODS:
        raise InputError(f"method {method!r} is not known; use one of {', '.join(METHODS)}")
    if connectivity not in (4, 8):
        raise InputError(f"connectivity {connectivity} is not known; use 4 or 8")
    array = edges if on_gpu(edges) else np.asarray(edges)
    mask = array.dtype == bool
    if mask:
        _check_mask(array, n)
    elif array.dtype.kind not in "iu" or array.ndim != 2 or array.shape[1] != 2:
        raise InputError(
            f"edges of type {array.dtype} and shape {array.shape} are not usable; give (m, 2) "
            "integers, or a mask as (rows, cols) bool"
        )
    method = "rem" if method == "auto" else method
    diagonal = connectivity == 8

    def work(xp: ModuleType, take: Move, give: Move) -> Array:
        local = take(array)
        if xp is np:
            of_edges, of_mask = edge_components, grid_components
        else:
            from .components_gpu import edge_components as of_edges
            from .components_gpu import grid_components as of_mask
        if mask and method == "rem":
            return give(of_mask(xp.ascontiguousarray(local), diagonal))
        if mask:
            labels = of_edges(mask_edges(xp, local, diagonal), local.size, method)
            return give(xp.where(local, labels.reshape(local.shape), -1))
        vertices = count_vertices(local, n)
        if local.dtype not in (np.int32, np.int64):
            local = local.astype(np.int64)
        return give(of_edges(xp.ascontiguousarray(local), vertices, method))

    return placed(backend, device, (array,), work)


def _check_mask(mask: Array, n: int | None) -> None:
    if mask.ndim != 2:
        raise InputError(f"a mask of shape {mask.shape} is not usable; give rows and columns")
    if n is not None:
        raise InputError(f"n {n} is for edges only; leave it out for a mask")


def count_vertices(edges: Array, n: int | None) -> int:
    """Return `n`, by default the least possible; raise `InputError` if an end is out of range."""
    low, high = _range(edges) if len(edges) else (0, -1)
    if n is None:
        n = high + 1
    elif not isinstance(n, int | np.integer) or n < 0:
        raise InputError(f"n {n!r} is not a number of vertices; give an integer, 0 or more")
    if low < 0 or high >= n:
        raise InputError(
            f"vertex {low if low < 0 else high} of an edge is outside 0 to {n - 1}; renumber "
            f"the vertices, or give at least n {high + 1}"
        )
    return int(n)


def _range(edges: Array) -> tuple[int, int]:
    """Return the least and the greatest end; the CPU's threads share the edges."""

    def of_part(begin: int, end: int) -> tuple[int, int]:
        return int(edges[begin:end].min()), int(edges[begin:end].max())

    parts = [of_part(0, len(edges))] if on_gpu(edges) else each(of_part, len(edges))
    return min(low for low, _ in parts), max(high for _, high in parts)


def mask_edges(xp: ModuleType, mask: Array, diagonal: bool) -> Array:
    """Return the edges between neighbours in a mask, (m, 2) int64; `xp` is numpy or CuPy."""
    cells = xp.arange(mask.size, dtype=np.int64).reshape(mask.shape)
    sides = [(np.s_[:, :-1], np.s_[:, 1:]), (np.s_[:-1], np.s_[1:])]
    if diagonal:
        sides += [(np.s_[:-1, :-1], np.s_[1:, 1:]), (np.s_[:-1, 1:], np.s_[1:, :-1])]
    both = [(a, b, mask[a] & mask[b]) for a, b in sides]
    return xp.concatenate([xp.stack([cells[a][k], cells[b][k]], 1) for a, b, k in both])
