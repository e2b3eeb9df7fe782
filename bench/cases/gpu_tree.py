"""How fast are trees and distances on a GPU: on resident data, and end to end on a cold disk?

"floor" is the same bytes read by parallel pread and written with fsync, in the same run.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.device import cupy, free, tiles_of
from bench.disk import cold, floor
from bench.stores import add_tiles, shards
from bench.table import Table
from bench.terrain import spectral
from bench.timing import phases
from terrain_gpu import minimum_spanning_tree, shortest_paths
from terrain_gpu.cuda.backend import Gpu
from terrain_gpu.grid import BlockGrid
from terrain_gpu.spanning_tree.gpu import plan
from terrain_gpu.spanning_tree.gpu.regions import GpuSolver
from terrain_gpu.spanning_tree.weights import Weight

BLOCK = 1024


def resident(name: str, tiles: np.ndarray, side: int, table: Table) -> None:
    """The tree of cells that are in the memory of the GPU."""
    for weight in ("absdiff", "max"):
        blocks, kind = BlockGrid(side, side, BLOCK), Weight(weight, tiles.dtype)
        solver = GpuSolver(blocks, side, kind, None, True, Gpu(0, 2**62, given=True, wanted=True))
        slot = solver.slots(1)[0]
        slot.cells.set(tiles)
        solved = solver.solve((0, 0), slot)
        assert solved.edges == side * side - 1, solved.edges
        work = slot.lane.work
        seconds = []
        for _ in range(5):
            begin = time.perf_counter()
            with work.stream:
                work.run()
                work.stream.synchronize()
            seconds.append(time.perf_counter() - begin)
        best = sorted(seconds)[2]
        table.row(name, weight, f"{best:.4f}", side * side / best / 1e9)
        del work, solver, slot
        free()


def end_to_end(work: Path, tiles: np.ndarray, side: int, rounds: int, table: Table) -> None:
    """Spanning tree and cost distance, cold store to fsynced layer, and the floor of the disk."""
    store = work / "gpu-tree.zarr"
    shutil.rmtree(store, ignore_errors=True)
    add_tiles(store, tiles)
    middle = [(side // 2, side // 2)]
    whole = tiles.dtype.kind == "u"
    cost, size, friction = ("absdiff", 4, None) if whole else ("friction", 8, "elevation")
    how: dict[str, Any] = {"cost": cost, "friction": friction, "backend": "cuda"}
    runs: list[tuple[str, int, Callable[[], Any]]] = [
        (f"tree, {w}", 1, partial(minimum_spanning_tree, store, weight=w, backend="cuda"))
        for w in ("absdiff", "max")
    ]
    runs.append((f"distances, {cost}", size, partial(shortest_paths, store, middle, **how)))
    for name, size, run in runs * rounds:
        for layer in ("mst", "distance"):
            shutil.rmtree(store / layer, ignore_errors=True)
        read, write = floor(store, shards(store), [1 << 20] * (size * side * side >> 20))
        cold(store)
        begin = time.perf_counter()
        report = run().report
        wall = time.perf_counter() - begin
        least, peak = f"{read + write:.3f} ({read:.3f} + {write:.3f})", report.peak_rss_bytes
        figures = wall, least, wall / (read + write), phases(report.seconds), peak // 10**6
        table.row(f"{tiles.dtype}, {name}", *figures)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--side", type=int, default=16384, help="a multiple of 1024")
    parser.add_argument("--rounds", type=int, default=2, help="of the runs end to end")
    parser.add_argument("--no-resident", action="store_true")
    parser.add_argument("--region", type=int, help="side of a region at most")


def run(given: argparse.Namespace) -> None:
    """Print both tables."""
    plan.MOST_SIDE = given.region or plan.MOST_SIDE
    side, z = given.side, spectral(cupy, given.side)
    heights = tiles_of(z)
    whole = np.rint(heights).astype(np.uint16)
    noise = cupy.random.RandomState(2).standard_normal(z.shape, dtype=cupy.float32)
    rough = tiles_of((z * 5 + noise * 50).clip(0, 65535))
    del z, noise
    free()
    if not given.no_resident:
        table = Table("resident | weight | s | G cells/s")
        resident("uint16 terrain", whole, side, table)
        resident("float32 terrain", heights, side, table)
        resident("uint16 rough", rough.astype(np.uint16), side, table)
        resident("uint16 constant", np.zeros_like(whole), side, table)
        print()
    table = Table("end to end | s | floor (read + written) | x | s by phase | peak MB")
    for tiles in (whole, heights + 1):
        end_to_end(given.work, tiles, side, given.rounds, table)
