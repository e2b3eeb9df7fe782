"""How long does the spanning tree of a block take, compared with the tables of the thesis of 2012?

A block of 256 x 256 cells leaves its final edges and the contracted paths, as phase 1 of the
thesis: it is read from memory, and copied to the GPU (if there is one) and back. Terrain of 0 to
1000, whole numbers, weight max, 8 neighbours. The GPU takes several blocks at once as one larger
region, which leaves less than its blocks.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from bench.device import cupy, tiles_of
from bench.table import Table
from bench.terrain import spectral
from terrain_gpu.cuda import device
from terrain_gpu.cuda.backend import Gpu
from terrain_gpu.grid import BlockGrid
from terrain_gpu.spanning_tree.cpu import contract, frozen
from terrain_gpu.spanning_tree.levels import Solver
from terrain_gpu.spanning_tree.weights import Weight

BLOCK = 256
METHODS = {"contract": contract, "frozen": frozen}
THESIS = (
    ("3.1 baseline, Boost on the CPU", (251, 260, 418), (124, 171, 507)),
    ("3.2 tournament tree", (185, 220, 483), (123, 180, 670)),
    ("3.3 edges marked as deleted", (380, 422, 767), (375, 570, 2100)),
    ("3.4 arrays allocated once", (162, 184, 311), (60, 81, 330)),
    ("3.5 dead ends and paths on the GPU", None, (24, 102, 190)),
    ("3.7 the fastest", (162, 184, 311), (60, 81, 339)),
)
"""Table and variant; least, average and most milliseconds of a block on its CPU and GPU."""


def on_cpu(z: np.ndarray, kind: Weight, method: ModuleType, count: int) -> list[float]:
    """Seconds of each block in one thread."""
    solver = Solver(z.shape, BLOCK, kind, None, True, method)
    seconds, mask = [], np.empty((BLOCK, BLOCK), np.uint8)
    for k, (i, j) in enumerate(inner(z, BLOCK, count)):
        r0, r1, c0, c1 = window = BlockGrid(*z.shape, BLOCK).window(i, j)
        begin = time.perf_counter()
        solver.solve(window, z[r0:r1, c0:c1], mask)
        seconds.append(time.perf_counter() - begin)
        if k == 0:  # compiles
            seconds.clear()
    return seconds


def inner(z: np.ndarray, side: int, count: int) -> list[tuple[int, int]]:
    """Regions with neighbours on all sides, and the first twice."""
    n = len(z) // side
    found = [(i, j) for i in range(1, n - 1) for j in range(1, n - 1)][:count]
    return [found[0], *found]


def on_gpu(z: np.ndarray, kind: Weight, method: ModuleType, side: int, count: int) -> list[float]:
    """Seconds of each region, with its copies to the GPU and back."""
    from terrain_gpu.spanning_tree.gpu.regions import GpuSolver

    gpu = Gpu(0, 2**62, given=True, wanted=True)
    solver = GpuSolver(BlockGrid(*z.shape, BLOCK), side, kind, None, True, gpu, method)
    slot, seconds = solver.slots(1)[0], []
    for k, (i, j) in enumerate(inner(z, side, count)):
        r0, r1, c0, c1 = solver.regions.window(i, j)
        cells = tiles_of(z[r0:r1, c0:c1], BLOCK)
        begin = time.perf_counter()
        slot.cells.set(cells)
        solved = solver.solve((i, j), slot)
        slot.mask.get()
        seconds.append(time.perf_counter() - begin)
        if k == 0:
            seconds.clear()
            candidates = len(solved.region.candidates[0])
            print(f"    first of {side}: {solved.edges} final edges, {candidates} candidates")
    return seconds


def parts(z: np.ndarray, kind: Weight, side: int) -> None:
    """Where the time of "contract" goes on a GPU."""
    from terrain_gpu.spanning_tree.gpu import contract as on_device
    from terrain_gpu.spanning_tree.gpu.regions import GpuSolver

    gpu = Gpu(0, 2**62, given=True, wanted=True)
    solver = GpuSolver(BlockGrid(*z.shape, BLOCK), side, kind, None, True, gpu, contract)
    slot = solver.slots(1)[0]
    r0, r1, c0, c1 = solver.regions.window(1, 1)
    slot.cells.set(tiles_of(z[r0:r1, c0:c1], BLOCK))
    solver.solve((1, 1), slot)
    work: Any = slot.lane.work
    found_ms = []

    def timed(name: str, call: Callable[[], Any]) -> Any:
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            found = call()
            work.stream.synchronize()
            times.append(time.perf_counter() - begin)
        found_ms.append(f"{name} {1e3 * statistics.median(times):.2f}")
        return found

    with work.stream:
        timed("forest", work.grow)
        words, us, vs = timed("its edges", work._forest_edges)
        order = timed("sort", lambda: cupy.argsort(words))
        edges = cupy.stack((us, vs), 1).astype(np.int64)
        keep = work._keep()
        timed("root, contract", lambda: on_device.contract_forest(cupy, edges, order, keep))
        timed("weigh", work.weigh)
    print(f"    parts of a region of {side}, ms: {', '.join(found_ms)}", flush=True)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--sides", type=int, nargs="+", default=[256, 1024, 4096], help="of regions of a GPU"
    )
    parser.add_argument("--blocks", type=int, default=100, help="regions of each size at most")


def run(given: argparse.Namespace) -> None:
    """Print the table: milliseconds for 256 x 256 cells."""
    sides = [] if device.why_not() else given.sides
    z = np.rint(spectral(np, 3 * max([*sides, 2048]))).astype(np.uint16)
    kind, table = Weight("max", z.dtype), Table("milliseconds | least | average | most")

    def row(name: str, seconds: list[float], blocks: int) -> None:
        table.row(name, *(1e3 * f(seconds) / blocks for f in (min, statistics.fmean, max)))

    for name, method in METHODS.items():
        row(f"{name}, CPU, one thread", on_cpu(z, kind, method, given.blocks), 1)
    for side in sides:
        for name, method in METHODS.items():
            seconds = on_gpu(z, kind, method, side, given.blocks)
            row(f"{name}, GPU, regions of {side}", seconds, (side // BLOCK) ** 2)
        parts(z, kind, side)
    for name, *both in THESIS:  # Core i7 at 2.66 GHz and GeForce GT 330M, of 10 000 blocks
        for where, found in zip(("CPU", "GPU"), both, strict=True):
            if found is not None:
                table.row(f"thesis, {name}, {where}", *found)
