"""How fast are connected components and spanning forests in memory, by method and graph?

On graphs from the literature, compared with scipy on the CPU. --forests: minimum spanning forests.
--masks: a mask, on the CPU against cc3d if it is installed. Median milliseconds. All methods are
compared with the first: their labels must be equal. scipy adds the weights of repeated edges, so
its forest may be another one there.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csgraph

from bench.device import Machine
from bench.graphs import random_graph, rmat, torus
from bench.table import Table
from bench.terrain import spectral
from terrain_gpu.primitives import spanning_forest
from terrain_gpu.primitives.components import METHODS, connected_components
from terrain_gpu.primitives.grid_components import label_block


def graphs(xp: Any, scale: float) -> Iterator[tuple[str, Any, int]]:
    """Name, edges as int32, vertices."""
    xp.random.seed(1)

    def size(millions: float) -> int:
        return int(millions * 1e6 * scale)

    n, m = size(50), size(200)
    yield f"random {n / 1e6:g} M / {m / 1e6:g} M", random_graph(xp, n, m), n
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


def edge_lists(machine: Machine, scale: float, methods: list[str], least: float) -> None:
    """Components of the graphs by each method."""
    xp, notes = machine.xp, []
    timed = partial(machine.median, least=least)
    last = "scipy" if xp is np else "rem, int64 edges"
    table = Table("graph (vertices / edges), ms | components", *methods, last)
    for name, edges, n in graphs(xp, scale):
        first, row = None, []
        for method in methods:
            ms, labels = timed(connected_components, edges, n, method, backend=machine.backend)
            first = labels if first is None else first
            assert bool((labels == first).all()), method
            row.append(ms)
            del labels
            machine.free()
        count = int((first == xp.arange(n)).sum())
        if xp is np:
            ones = np.ones(len(edges), np.int8)
            ms, (found, _) = timed(
                lambda e=edges, n=n, ones=ones: csgraph.connected_components(
                    coo_array((ones, e.T), shape=(n, n)), directed=False
                )
            )
            assert found == count
        else:
            ms, _ = timed(connected_components, edges.astype(np.int64), n)
            notes.append(f"{name}: {parts(machine, edges, n)}")
        table.row(name, count, *row, ms)
        del edges, first
        machine.free()
    print("\n".join(notes))


def parts(machine: Machine, edges: Any, n: int) -> str:
    """Tell where the time of "stages" and "hybrid" goes, on a GPU."""
    from terrain_gpu.engine.machine import available_threads
    from terrain_gpu.primitives import components_gpu as gpu
    from terrain_gpu.primitives.edge_components import depth_first, stride

    xp, m = machine.xp, len(edges)
    line = []

    def timed(name: str, call: Callable[..., Any], *args: Any) -> Any:
        ms, result = machine.median(call, *args)
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
    sizes = f"{len(inner)} edges, {len(cross)} cross, {len(pairs)} pairs"
    return f"{', '.join(line)}; {share:.2%} by {available_threads()} cores: {sizes}"


def forests(
    machine: Machine, scale: float, weights: list[str], groups: list[float], least: float
) -> None:
    """Minimum spanning forests of the graphs, by type of weights and by where lists are split."""
    from terrain_gpu.primitives import forests_cpu, forests_gpu

    xp = machine.xp
    timed = partial(machine.median, least=least)
    method: Any = forests_cpu.CpuForest if xp is np else forests_gpu.GpuForest
    groups = groups or [method.GROUP]
    columns = [f"{kind}, split beyond {group:g} n" for kind in weights for group in groups]
    table = Table("graph, ms | edges of the forest", *columns, "scipy | its matrix | its edges")
    for name, edges, n in graphs(xp, scale):
        chance = xp.random.random(len(edges))
        first, row, peer = None, [], (None, None, None)
        for kind in weights:
            # Few weights below 2^24, so that all types have the same order.
            values = (chance * 2**24).astype(np.int64).astype(kind)
            for group in groups:
                method.GROUP = group
                ms, found = timed(spanning_forest, edges, values, n, backend=machine.backend)
                first = found if first is None else first
                assert bool((found == first).all()), kind
                row.append(ms)
                del found
                machine.free()
        if xp is np:
            of_matrix, matrix = timed(
                lambda v=values, e=edges, n=n: coo_array((v + 1, e.T), shape=(n, n)).tocsr()
            )
            ms, tree = timed(csgraph.minimum_spanning_tree, matrix)
            peer = ms, of_matrix, tree.nnz
        table.row(name, len(first), *row, *peer)
        del edges, chance, values, first
        machine.free()


def masks(xp: Any, side: int) -> Iterator[tuple[str, Any]]:
    """Noise of several densities, and terrain above its median."""
    xp.random.seed(2)
    for share in (0.1, 0.4, 0.5, 0.6):
        yield f"noise {share}", xp.random.random((side, side)) < share
    z = spectral(xp, side)
    yield "terrain", z > xp.median(z)
    yield "all", xp.ones((side, side), bool)


def grids(machine: Machine, side: int, least: float) -> None:
    """Components of masks, on the CPU also by the kernel of one block."""
    xp, timed = machine.xp, partial(machine.median, least=least)
    table = Table(f"mask, {side}^2, ms | neighbours | components | ours | label_block | cc3d")
    cc3d = import_module("cc3d") if xp is np and find_spec("cc3d") else None
    for name, mask in masks(xp, side):
        for c in (8, 4):
            ms, labels = timed(connected_components, mask, connectivity=c, backend=machine.backend)
            count = int((labels.ravel() == xp.arange(mask.size)).sum())
            del labels
            one = timed(block, mask, c == 8)[0] if xp is np else None
            other = None
            if cc3d is not None:
                other, (_, k) = timed(
                    cc3d.connected_components, mask, connectivity=c, return_N=True
                )
                assert k == count
            table.row(name, c, count, ms, one, other)


def block(mask: np.ndarray, diagonal: bool) -> np.ndarray:
    """Label a mask by the kernel of a block."""
    labels = np.empty(mask.shape, np.int32)
    label_block(mask, diagonal, labels)
    return labels


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--masks", action="store_true", help="only of masks")
    parser.add_argument("--forests", action="store_true", help="only spanning forests")
    parser.add_argument("--weights", nargs="+", default=["float32", "int32", "int64", "float64"])
    parser.add_argument(
        "--groups", nargs="*", type=float, default=[], help="of forests: edges per vertex, unsplit"
    )
    parser.add_argument("--scale", type=float, help="of the literature's sizes: 1, or 0.02 by CPU")
    parser.add_argument("--side", type=int, default=8192, help="of masks")
    parser.add_argument("--methods", nargs="+", default=METHODS[1:])
    parser.add_argument("--seconds", type=float, default=0, help="for each time, at least")


def run(given: argparse.Namespace) -> None:
    """Print what each graph takes."""
    machine = Machine(given.backend)
    scale = given.scale or (0.02 if given.backend == "cpu" else 1)
    if given.forests:
        forests(machine, scale, given.weights, given.groups, given.seconds)
    elif not given.masks:
        edge_lists(machine, scale, given.methods, given.seconds)
    if given.masks:
        grids(machine, given.side, given.seconds)
