"""Time the spanning tree of blocks of 256 x 256 cells beside the tables of the thesis of 2012.

    python scripts/bench_contract.py                 # CPU, and the GPU if there is one
    python scripts/bench_contract.py --sides 256 1024 4096

A block leaves its final edges and the contracted paths, as phase 1 of the thesis: it is read from
memory, and copied to the GPU and back. Terrain of 0 to 1000, whole numbers, weight max, 8
neighbours. The GPU takes several blocks at once as one larger region, which leaves less than its
blocks.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from terrain_gpu.cuda import device
from terrain_gpu.cuda.backend import Gpu
from terrain_gpu.grid import TILE, BlockGrid
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


def terrain(side: int) -> np.ndarray:
    """Spectral terrain of whole numbers from 0 to 1000."""
    rng = np.random.default_rng(1)
    f = np.fft.rfft2(rng.standard_normal((side, side)))
    k = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None, :])
    k[0, 0] = 1
    z = np.fft.irfft2(f * k**-1.8, s=(side, side))
    return np.rint((z - z.min()) * (1000 / np.ptp(z))).astype(np.uint16)


def tiles_of(z: np.ndarray) -> np.ndarray:
    """A region's cells as blocks of 256, and these as tiles in Z-order."""
    n, bits = len(z) // BLOCK, (BLOCK // TILE).bit_length() - 1
    order = [0, bits + 2]
    for b in range(bits):
        order += [1 + b, bits + 3 + b]
    order += [bits + 1, 2 * bits + 3]
    parts = z.reshape((n, *(2,) * bits, TILE) * 2)
    return np.ascontiguousarray(parts.transpose(order)).reshape(n * n, -1, TILE, TILE)


def row(name: str, seconds: list[float], blocks: int) -> None:
    """Print the least, average and most milliseconds of a block."""
    line(name, *(1e3 * f(seconds) / blocks for f in (min, statistics.fmean, max)))


def line(name: str, least: float, mean: float, most: float) -> None:
    print(f"{name:44s} {least:9.3f} {mean:9.3f} {most:9.3f}", flush=True)


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
        cells = tiles_of(z[r0:r1, c0:c1])
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
    import cupy

    from terrain_gpu.spanning_tree.gpu import contract as on_device
    from terrain_gpu.spanning_tree.gpu.regions import GpuSolver

    gpu = Gpu(0, 2**62, given=True, wanted=True)
    solver = GpuSolver(BlockGrid(*z.shape, BLOCK), side, kind, None, True, gpu, contract)
    slot = solver.slots(1)[0]
    r0, r1, c0, c1 = solver.regions.window(1, 1)
    slot.cells.set(tiles_of(z[r0:r1, c0:c1]))
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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sides", type=int, nargs="+", default=[256, 1024, 4096])
    parser.add_argument("--blocks", type=int, default=100, help="Most regions of each size.")
    args = parser.parse_args()
    why_not = device.why_not()
    sides = [] if why_not else args.sides
    z = terrain(3 * max([*sides, 2048]))
    kind = Weight("max", z.dtype)
    print(f"{'milliseconds for 256 x 256 cells':44s} {'least':>9s} {'average':>9s} {'most':>9s}")
    for name, method in METHODS.items():
        row(f"{name}, CPU, one thread", on_cpu(z, kind, method, args.blocks), 1)
    if why_not:
        print(why_not)
    else:
        print(device.name_of())
    for side in sides:
        for name, method in METHODS.items():
            seconds = on_gpu(z, kind, method, side, args.blocks)
            row(f"{name}, GPU, regions of {side}", seconds, (side // BLOCK) ** 2)
        parts(z, kind, side)
    print("thesis of 2012, Core i7 at 2.66 GHz and GeForce GT 330M, of 10 000 blocks:")
    for name, *both in THESIS:
        for where, found in zip(("CPU", "GPU"), both, strict=True):
            if found is not None:
                line(f"    {name}, {where}", *found)


if __name__ == "__main__":
    main()
