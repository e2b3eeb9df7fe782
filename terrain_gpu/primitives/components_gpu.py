"""Components on a GPU: the methods, in launches of ``cuda/kernels/components.cu``."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from ..cuda.arrays import DeviceArray, DeviceModule
from ..cuda.device import module
from ..engine.machine import available_threads
from ..facts import Settings
from . import edge_components as host

THREADS = 256

TYPES = {"int32": "int", "int64": "long long"}

FIRST_SHARE = 0.02
"""The CPU's share of the vertices in "hybrid" before any measurement."""

_shares: dict[tuple[int, int, int], float] = {}
"""The CPU's shares measured by "hybrid", by device and by sizes of graphs in powers of two."""


def variants() -> list[Settings]:
    """Return the macros of every pair of types."""
    return [macros(np.dtype(a), np.dtype(b)) for a in TYPES for b in TYPES]


def macros(edge: np.dtype, label: np.dtype) -> Settings:
    """Return the macros of ``cuda/kernels/components.cu``."""
    return {"EDGE": TYPES[edge.name], "LABEL": TYPES[label.name]}


def launch(name: str, kernels: DeviceModule, count: int, *arguments: object) -> None:
    """Launch a kernel with about one thread per item; Python ints are passed as int64."""
    import cupy

    if count == 0:
        return
    processors = cupy.cuda.Device().attributes["MultiProcessorCount"]
    blocks = min(-(-count // THREADS), processors * (2048 // THREADS))
    converted = tuple(np.int64(a) if isinstance(a, int) else a for a in arguments)
    kernels.get_function(name)((blocks,), (THREADS,), converted)


def grid_components(mask: DeviceArray, diagonal: bool) -> DeviceArray:
    """Return the least cell of each cell's component, int64, -1 outside the mask.

    Union-find over cells, starting with runs of at most 32 cells.
    """
    import cupy

    rows, cols = mask.shape
    label = host.label_dtype(mask.size)
    kernels = module("components", macros(label, label))
    parent = cupy.empty(mask.size, label)
    labels = cupy.empty(mask.shape, np.int64)
    count = rows * -(-cols // 32) * 32
    launch("start_runs", kernels, count, rows, cols, mask, parent)
    launch("join_cells", kernels, count, rows, cols, np.int32(diagonal), mask, parent)
    launch("finish_cells", kernels, mask.size, mask.size, mask, parent, labels)
    return labels


def edge_components(edges: DeviceArray, n: int, method: str) -> DeviceArray:
    """Return the least vertex of each vertex's component, int64.

    `edges` are (m, 2), int32 or int64, with ends in range.
    """
    import cupy

    if edges.data.ptr % (2 * edges.itemsize):  # kernels read both ends at once
        edges = edges.copy()
    label = host.label_dtype(n)
    forest = _Parents(cupy.arange(n, dtype=label))
    if method == "hybrid":
        _hybrid(forest, edges)
    elif method.startswith("stages"):
        m, inner = len(edges), INNER[host.inner_method(method)]
        step, group = host.stride(m), max(n, host.LEAST_GROUP)
        for first in range(0, m, group):
            inner(forest, forest.update(edges, step, first, min(first + group, m)))
    else:
        INNER[method](forest, edges)
    least = None
    if host.has_other_roots(method):
        least = cupy.full(n, n, label)
        forest.launch("least_vertices", n, n, forest.parent, least)
    labels = cupy.empty(n, np.int64)
    forest.launch("finish", n, n, forest.parent, least, labels)
    return labels


class _Parents:
    """Parents of vertices, and launches of kernels on them and on edges of either type."""

    def __init__(self, parent: DeviceArray) -> None:
        import cupy

        self.parent = parent
        self.n = len(parent)
        self.flag = cupy.zeros(1, np.int32)

    def _kernels(self, edge: np.dtype) -> DeviceModule:
        return module("components", macros(edge, self.parent.dtype))

    def launch(self, name: str, count: int, *arguments: object) -> None:
        """Launch a kernel that does not read edges."""
        launch(name, self._kernels(self.parent.dtype), count, *arguments)

    def over(self, name: str, edges: DeviceArray, *arguments: object) -> None:
        """Launch a kernel over edges."""
        launch(name, self._kernels(edges.dtype), len(edges), edges, len(edges), *arguments)

    def shortcut(self) -> None:
        self.launch("shortcut", self.n, self.n, self.parent)

    def update(self, edges: DeviceArray, step: int, first: int, stop: int) -> DeviceArray:
        """Return edges `first` to `stop` of the permutation by `step`, between roots, no loops."""
        import cupy

        out = cupy.empty((stop - first, 2), self.parent.dtype)
        count = cupy.zeros(1, np.uint64)
        self.over("update", edges, step, first, stop, self.parent, out, count)
        return out[: int(count[0])]


# -- methods: they return their number of rounds ---------------------------------------------------


def _rem(forest: _Parents, edges: DeviceArray) -> int:
    forest.over("rem", edges, 0, forest.parent)
    forest.shortcut()
    return 1


def _graft_and_shortcut(forest: _Parents, edges: DeviceArray) -> int:
    rounds, again = 0, True
    while again:
        forest.flag.fill(0)
        forest.over("graft", edges, np.int32(0), forest.parent, forest.flag)
        forest.shortcut()
        again = bool(forest.flag[0])
        rounds += 1
    return rounds


def _graft_and_update(forest: _Parents, edges: DeviceArray, both_ways: bool = False) -> int:
    rounds = 0
    while len(edges):
        up = np.int32(both_ways and rounds % 2 == 0)
        forest.over("graft", edges, up, forest.parent, forest.flag)
        forest.shortcut()
        edges = forest.update(edges, 1, 0, len(edges))
        rounds += 1
    return rounds


def _shiloach_vishkin(forest: _Parents, edges: DeviceArray, relabel: bool = False) -> int:
    import cupy

    n, before, flag = forest.n, forest.parent, forest.flag
    now, stamp = cupy.empty_like(before), cupy.empty(n, np.int32)
    forest.launch("sv0", n, n, stamp)
    turn, again = np.int32(0), True
    while again:
        turn += np.int32(1)
        flag.fill(0)
        forest.launch("sv1", n, n, before, now, stamp, turn)
        forest.over("sv2", edges, before, now, stamp, turn)
        forest.over("sv3", edges, now, stamp, turn)
        forest.launch("sv4", n, n, now, before)
        if relabel:
            edges = forest.update(edges, 1, 0, len(edges))
        forest.launch("sv5", n, n, stamp, turn, flag)
        again = bool(flag[0])
    return int(turn)


def _hybrid(forest: _Parents, edges: DeviceArray) -> None:
    """Solve the first vertices on the CPU's cores and the others on the GPU, concurrently."""
    import cupy

    n, parent = forest.n, forest.parent
    key = cupy.cuda.Device().id, n.bit_length(), len(edges).bit_length()
    low = round(_shares.get(key, FIRST_SHARE) * n)
    width, inner, cross = _split(forest, edges, low)
    mine, labels = inner.get().astype(np.int64), np.empty(low, parent.dtype)
    host.depth_first(mine[:0], 0, labels[:0])  # compile it before the clock starts
    marks = cupy.cuda.Event(), cupy.cuda.Event()
    marks[0].record()
    forest.over("rem", edges, low, parent)
    forest.shortcut()
    marks[1].record()
    begin = time.perf_counter()
    with ThreadPoolExecutor(available_threads()) as pool:
        parts = range(0, low, width)
        list(pool.map(lambda k: host.depth_first(mine, k, labels[k : k + width]), parts))
    cpu = time.perf_counter() - begin
    marks[1].synchronize()
    gpu = cupy.cuda.get_elapsed_time(*marks) / 1e3
    if 0 < low < n:  # next time, shares are in proportion to the speeds
        speeds = low / cpu, (n - low) / gpu
        _shares[key] = speeds[0] / sum(speeds)
    parent[:low].set(labels)
    _rem(forest, _one_for_each_pair(forest, cross))


def _split(forest: _Parents, edges: DeviceArray, low: int) -> tuple[int, DeviceArray, DeviceArray]:
    """Return the vertices per core, the edges inside the cores' parts, and those between parts."""
    import cupy

    width = max(1, -(-low // available_threads()))
    counts = cupy.zeros(2, np.uint64)
    forest.over("split", edges, low, width, None, None, counts)
    inner, cross = (cupy.empty((int(k), 2), forest.parent.dtype) for k in counts.get())
    counts.fill(0)
    forest.over("split", edges, low, width, inner, cross, counts)
    return width, inner, cross


def _one_for_each_pair(forest: _Parents, cross: DeviceArray) -> DeviceArray:
    """Return the edges between roots, without loops and repetitions."""
    import cupy

    pairs = forest.update(cross, 1, 0, len(cross))
    if not len(pairs):
        return pairs
    pairs = pairs[cupy.lexsort(pairs.T)]
    first = cupy.ones(len(pairs), bool)
    first[1:] = (pairs[1:] != pairs[:-1]).any(1)
    return pairs[first]


INNER: dict[str, Callable[..., int]] = {
    "rem": _rem,
    "sv": _shiloach_vishkin,
    "sv-updt": partial(_shiloach_vishkin, relabel=True),
    "soman": partial(_graft_and_update, both_ways=True),
    "cc": _graft_and_shortcut,
    "cc-updt": _graft_and_update,
}
