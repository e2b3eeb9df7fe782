"""Time connected components on data in memory: every method, on graphs from the literature.

    python scripts/bench_components.py               # on a GPU
    python scripts/bench_components.py --cpu         # on the CPU, smaller graphs, beside scipy
    python scripts/bench_components.py --forests     # minimum spanning forests; also with --cpu
    python scripts/bench_components.py --masks       # on the CPU, a mask, beside cc3d if installed

Medians in ms. All methods are compared with the first: their labels must be equal. scipy adds the
weights of repeated edges, so its forest may be another one there.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from terrain_gpu.primitives import spanning_forest
from terrain_gpu.primitives.components import METHODS, connected_components
from terrain_gpu.primitives.grid_components import label_block

QUARTERS = 0.45, 0.6, 0.75  # R-MAT with a = 0.45, b = 0.15, c = 0.15, d = 0.25


def rmat(xp: Any, n: int, m: int) -> Any:
    """R-MAT edges: each bit picks a quarter of the adjacency matrix; then fitted to n vertices."""
    bits = (n - 1).bit_length()
    edges = xp.zeros((m, 2), np.int32)
    part = 1 << 25
    for first in range(0, m, part):
        u, v = (xp.zeros(min(part, m - first), np.int64) for _ in range(2))
        for _ in range(bits):
            r = xp.random.random(len(u))
            u = 2 * u + (r >= QUARTERS[1])
            v = 2 * v + (((r >= QUARTERS[0]) & (r < QUARTERS[1])) | (r >= QUARTERS[2]))
        edges[first : first + part, 0] = u * n >> bits
        edges[first : first + part, 1] = v * n >> bits
    return edges


def torus(xp: Any, side: int) -> Any:
    cells = xp.arange(side * side, dtype=np.int32).reshape(side, side)
    edges = xp.empty((2, side, side, 2), np.int32)
    edges[..., 0] = cells
    edges[0, ..., 1] = xp.roll(cells, -1, 1)
    edges[1, ..., 1] = xp.roll(cells, -1, 0)
    return edges.reshape(-1, 2)


def graphs(xp: Any, scale: float) -> Iterator[tuple[str, Any, int]]:
    """Name, edges as int32, vertices."""
    xp.random.seed(1)

    def size(millions: float) -> int:
        return int(millions * 1e6 * scale)

    n, m = size(50), size(200)
    edges = xp.random.randint(0, n, (m, 2)).astype(np.int32)
    yield f"random {n / 1e6:g} M / {m / 1e6:g} M", edges, n
    del edges
    n = size(20)
    yield f"R-MAT {n / 1e6:g} M / {m / 1e6:g} M", rmat(xp, n, m), n
    side = int(size(100) ** 0.5)
    yield f"torus {side} x {side}", torus(xp, side), side * side
    n = size(100)
    path = xp.arange(n, dtype=np.int32)
    yield f"path {n / 1e6:g} M", xp.stack([path[:-1], path[1:]], 1), n
    path = xp.random.permutation(n).astype(np.int32)
    yield f"path {n / 1e6:g} M, ids at random", xp.stack([path[:-1], path[1:]], 1), n
    del path
    star = xp.full((n, 2), n // 2, np.int32)
    star[:, 0] = xp.arange(n)
    yield f"star {n / 1e6:g} M", star, n


class Machine:
    """Where to run."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        self.backend = "cpu" if xp is np else "cuda"

    def sync(self) -> None:
        if self.xp is not np:
            self.xp.cuda.Device().synchronize()

    def free(self) -> None:
        if self.xp is not np:
            self.xp.get_default_memory_pool().free_all_blocks()

    def time(self, least: float, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Median in ms, and the result.

        After a warm-up call; repeated for `least` seconds, at least three times.
        """
        result = call(*args, **options)
        self.sync()
        seconds: list[float] = []
        while len(seconds) < 3 or sum(seconds) < least:
            result = None
            begin = time.perf_counter()
            result = call(*args, **options)
            self.sync()
            seconds.append(time.perf_counter() - begin)
        return 1e3 * statistics.median(seconds), result


def edge_lists(machine: Machine, scale: float, methods: list[str], least: float) -> None:
    xp = machine.xp
    for name, edges, n in graphs(xp, scale):
        first = None
        for method in methods:
            ms, labels = machine.time(
                least, connected_components, edges, n, method, backend=machine.backend
            )
            if first is None:
                first = labels
                roots = int((labels == xp.arange(n)).sum())
                print(f"{name}: {roots} components", flush=True)
            assert bool((labels == first).all()), method
            print(f"    {method} {ms:.1f}", flush=True)
            del labels
            machine.free()
        if xp is np:
            peer(machine, edges, n, first, least)
        else:
            ms, _ = machine.time(least, connected_components, edges.astype(np.int64), n)
            print(f"    rem, int64 edges {ms:.1f}", flush=True)
            parts(machine, edges, n)
        del edges, first
        machine.free()


def parts(machine: Machine, edges: Any, n: int) -> None:
    """Where the time of "stages" and "hybrid" goes, on a GPU."""
    from terrain_gpu.engine.machine import available_threads
    from terrain_gpu.primitives import components_gpu as gpu
    from terrain_gpu.primitives.edge_components import depth_first, stride

    xp, m = machine.xp, len(edges)
    line = []

    def timed(name: str, call: Callable[..., Any], *args: Any) -> Any:
        ms, result = machine.time(0, call, *args)
        line.append(f"{name} {ms:.1f}")
        return result

    def groups(step: int) -> None:
        for k in range(0, m, n):
            forest.update(edges, step, k, min(k + n, m))

    forest = gpu._Parents(xp.arange(n, dtype=np.int32))
    timed("all updates in order", groups, 1)
    timed("permuted", groups, stride(m))
    share = next(reversed(gpu._shares.values()), gpu.FIRST_SHARE)
    low = round(share * n)
    timed("split", gpu._split, forest, edges, low)
    width, inner, cross = gpu._split(forest, edges, low)
    mine = timed("copy", lambda: inner.get().astype(np.int64))
    timed("depth first, a core's part", depth_first, mine, 0, np.empty(width, np.int32))
    forest.over("rem", edges, low, forest.parent)
    forest.shortcut()
    pairs = timed("reduce cross edges", gpu._one_for_each_pair, forest, cross)
    print("    " + ", ".join(line), flush=True)
    print(
        f"    share of the CPU {share:.2%} on {available_threads()} cores: {len(inner)} edges, "
        f"{len(cross)} cross, {len(pairs)} pairs",
        flush=True,
    )


def peer(machine: Machine, edges: np.ndarray, n: int, labels: Any, least: float) -> None:
    """scipy, from the same list of edges."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components as by_scipy

    ones = np.ones(len(edges), np.int8)

    def call() -> Any:
        return by_scipy(coo_array((ones, edges.T), shape=(n, n)), directed=False)

    ms, (count, _) = machine.time(least, call)
    assert count == (labels == np.arange(n)).sum()
    print(f"    scipy.sparse.csgraph {ms:.1f}", flush=True)


def forests(
    machine: Machine, scale: float, weights: list[str], groups: list[float], least: float
) -> None:
    """Minimum spanning forests of the graphs, by type of weights and by where lists are split."""
    from terrain_gpu.primitives import forests_cpu, forests_gpu

    xp = machine.xp
    method: Any = forests_cpu.CpuForest if xp is np else forests_gpu.GpuForest
    for name, edges, n in graphs(xp, scale):
        chance = xp.random.random(len(edges))
        first = None
        for kind in weights:
            # Few weights below 2^24, so that all types have the same order.
            values = (chance * 2**24).astype(np.int64).astype(kind)
            for group in groups or [method.GROUP]:
                method.GROUP = group
                ms, found = machine.time(
                    least, spanning_forest, edges, values, n, backend=machine.backend
                )
                if first is None:
                    first = found
                    print(f"{name}: {len(found)} edges of the forest", flush=True)
                assert bool((found == first).all()), kind
                print(f"    {kind}, split beyond {group:g} n: {ms:.1f}", flush=True)
                del found
                machine.free()
        if xp is np:
            forest_of_scipy(machine, edges, values, n, least)
        del edges, chance, values, first
        machine.free()


def forest_of_scipy(
    machine: Machine, edges: np.ndarray, values: np.ndarray, n: int, least: float
) -> None:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import minimum_spanning_tree

    def graph() -> Any:
        return coo_array((values + 1, edges.T), shape=(n, n)).tocsr()

    of_graph, matrix = machine.time(least, graph)
    ms, tree = machine.time(least, minimum_spanning_tree, matrix)
    print(f"    scipy.sparse.csgraph {ms:.1f}, and {of_graph:.1f} for its matrix; ", end="")
    print(f"{tree.nnz} edges", flush=True)


def masks(xp: Any, side: int) -> Iterator[tuple[str, Any]]:
    """Noise of several densities, and terrain above its median."""
    xp.random.seed(2)
    for share in (0.1, 0.4, 0.5, 0.6):
        yield f"noise {share}", xp.random.random((side, side)) < share
    f = xp.fft.rfft2(xp.random.standard_normal((side, side)).astype(np.float32))
    k = xp.hypot(xp.fft.fftfreq(side)[:, None], xp.fft.rfftfreq(side)[None, :])
    k[0, 0] = 1
    z = xp.fft.irfft2(f * k**-1.8, s=(side, side))
    yield "terrain", z > xp.median(z)
    yield "all", xp.ones((side, side), bool)


def grids(machine: Machine, side: int, least: float) -> None:
    xp = machine.xp
    cc3d = None
    if xp is np:
        try:
            import cc3d
        except ImportError:
            print("cc3d is not installed")
    for name, mask in masks(xp, side):
        for c in (8, 4):
            ms, labels = machine.time(
                least, connected_components, mask, connectivity=c, backend=machine.backend
            )
            count = int((labels.ravel() == xp.arange(mask.size)).sum())
            line = f"{name}, {side} x {side}, {c} connected: {count} components, {ms:.1f}"
            del labels
            if xp is np:
                one, _ = machine.time(least, block, mask, c == 8)
                line += f", label_block {one:.1f}"
                if cc3d is not None:
                    other, (_, k) = machine.time(
                        least, cc3d.connected_components, mask, connectivity=c, return_N=True
                    )
                    assert k == count
                    line += f", cc3d {other:.1f}, ratio {ms / other:.2f} and {one / other:.2f}"
            print(line, flush=True)


def block(mask: np.ndarray, diagonal: bool) -> np.ndarray:
    labels = np.empty(mask.shape, np.int32)
    label_block(mask, diagonal, labels)
    return labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--masks", action="store_true")
    parser.add_argument("--forests", action="store_true")
    parser.add_argument("--weights", default="float32,int32,int64,float64", help="Of forests.")
    parser.add_argument("--groups", default="", help="Of forests: edges per vertex, unsplit.")
    parser.add_argument("--scale", type=float, help="Of the literature's sizes: 1, or 0.02.")
    parser.add_argument("--side", type=int, default=8192, help="Of masks.")
    parser.add_argument("--methods", default=",".join(METHODS[1:]))
    parser.add_argument("--seconds", type=float, default=0, help="For each time, at least.")
    args = parser.parse_args()
    if args.cpu or args.masks:
        machine = Machine(np)
    else:
        import cupy

        machine = Machine(cupy)
    scale = args.scale or (0.02 if args.cpu else 1)
    if args.forests:
        groups = [float(group) for group in args.groups.split(",") if group]
        forests(machine, scale, args.weights.split(","), groups, args.seconds)
        return
    if not args.masks:
        edge_lists(machine, scale, args.methods.split(","), args.seconds)
    if args.masks or not args.cpu:
        grids(machine, args.side, args.seconds)


if __name__ == "__main__":
    main()
