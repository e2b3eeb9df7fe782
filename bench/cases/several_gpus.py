"""What do several GPUs of one process gain, for a spanning forest and shortest paths over arrays?

Shortest paths may use enough memory of each GPU for a region of half of the raster's longer side:
one GPU takes two or four regions in turn, several keep one each. Before that, one GPU takes the
raster whole. "resident" solves one region on each GPU whose cells are there. The results must be
bit-identical.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from bench.device import cupy, tiles_of
from bench.relaxation import Bench
from terrain_gpu import minimum_spanning_tree, shortest_paths
from terrain_gpu.cuda.backend import Gpu
from terrain_gpu.grid import BlockGrid, ceil_div
from terrain_gpu.paths.cost.models import Friction
from terrain_gpu.paths.relax.gpu.problem import Problem
from terrain_gpu.spanning_tree.gpu.regions import GpuSolver
from terrain_gpu.spanning_tree.weights import Weight

BLOCK = 1024


def heights(rows: int, cols: int) -> np.ndarray:
    """Waves of several lengths and noise, uint16."""
    y, x = np.arange(rows)[:, None], np.arange(cols)[None, :]
    found = np.random.default_rng(1).integers(4000, 4009, (rows, cols), np.uint16)
    for first in range(0, rows, BLOCK):
        part = slice(first, first + BLOCK)
        smooth = [np.sin(y[part] / k) * np.cos(x / (k + 7)) * k for k in (11, 130, 1700)]
        found[part] += sum(smooth).astype(np.int16).view(np.uint16)
    return found


def resident(z: np.ndarray, devices: tuple[int, ...], side: int, rounds: int) -> float:
    """Cells per second of regions solved at once, each on the GPU that holds its cells."""
    blocks, weight = BlockGrid(side, side, BLOCK), Weight("max", z.dtype)
    tiles = tiles_of(cupy.asarray(z[:side, :side]))
    works = []
    for device in devices:
        gpu = Gpu(device, 2**62, given=True, wanted=True)
        slot = (solver := GpuSolver(blocks, side, weight, None, True, gpu)).slots(1)[0]
        with cupy.cuda.Device(device):
            slot.cells.set(tiles)
        assert solver.solve((0, 0), slot).edges == side * side - 1
        works.append((device, slot.lane.work))

    def run(device: int, work: Any) -> None:
        with cupy.cuda.Device(device), work.stream:
            work.run()
            work.stream.synchronize()

    return len(devices) * side * side / timed(run, works, rounds)


def resident_paths(friction: np.ndarray, devices: tuple[int, ...], side: int, rounds: int) -> float:
    """The same for distances from the middle of each region."""
    works = []
    for device in devices:
        with cupy.cuda.Device(device):
            cells = cupy.asarray(friction[:side, :side])
            works.append((device, Bench(Friction(), cells, (side // 2, side // 2))))

    def run(device: int, bench: Bench) -> float:
        with cupy.cuda.Device(device):
            return bench.solve()[0]

    return len(devices) * side * side / timed(run, works, rounds)


def timed(run: Callable[..., float | None], works: list[Any], rounds: int) -> float:
    """Median seconds of `run` with all works at once: the most it returns, or all of its time."""
    seconds = []
    with ThreadPoolExecutor(len(works)) as pool:
        for _ in range(rounds + 1):
            begin = time.perf_counter()
            found = list(pool.map(lambda one: run(*one), works))
            whole = time.perf_counter() - begin
            seconds.append(max((one for one in found if one is not None), default=whole))
    return statistics.median(seconds[1:])


def show(name: str, devices: str, found: list[dict[str, float]]) -> None:
    """Print medians of phases."""
    phases = {key: statistics.median(one[key] for one in found) for key in found[0]}
    shown = "  ".join(f"{key} {seconds:.3f}" for key, seconds in phases.items())
    print(f"{name:20s} device {devices:8s} {shown}", flush=True)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--rows", type=int, default=32768)
    parser.add_argument("--cols", type=int, default=16384)
    parser.add_argument("--devices", nargs="+", default=["0", "0,1"])
    parser.add_argument("--rounds", type=int, default=3)


def run(given: argparse.Namespace) -> None:
    """Print what each number of GPUs takes."""
    z = heights(given.rows, given.cols)
    friction = (1 + z % 97).astype(np.float32)
    usual = Problem.plan
    side = ceil_div(max(given.rows, given.cols), 2 * BLOCK)
    regions = ceil_div(given.rows, side * BLOCK) * ceil_div(given.cols, side * BLOCK)

    def halves(self: Any) -> tuple[int, tuple[int, int]]:
        return usual(self)[0], (side, side)

    same: dict[str, Any] = {}
    for devices in given.devices:
        numbers = tuple(map(int, devices.split(",")))
        how: dict[str, Any] = {"device": numbers, "backend": "cuda", "block_size": BLOCK}
        speed = resident(z, numbers, min(8192, given.cols), given.rounds)
        print(f"resident, max        device {devices:8s} {speed / 1e9:.2f} G cells/s", flush=True)
        speed = resident_paths(friction, numbers, min(8192, given.cols), given.rounds)
        print(f"resident, friction   device {devices:8s} {speed / 1e9:.2f} G cells/s", flush=True)
        found = []
        for _ in range(given.rounds):
            tree = minimum_spanning_tree(z, **how)
            found.append(tree.report.seconds)
            assert same.setdefault("tree", tree.total_weight) == tree.total_weight
            del tree
        show("tree", devices, found)
        plans = [(1, usual)] * (len(numbers) == 1) + [(regions, halves)]
        for source in ((0, 0), (given.rows // 2, given.cols // 2)):
            for count, plan in plans:
                Problem.plan = plan  # type: ignore[method-assign]
                found = []
                for _ in range(given.rounds):
                    paths = shortest_paths(
                        friction, [source], cost="friction", friction=friction, **how
                    )
                    report = paths.report
                    assert report.result["regions"] == count, report.result
                    found.append(report.seconds)
                    distance = paths.distance()
                    assert np.array_equal(same.setdefault(f"paths {source}", distance), distance)
                    del paths
                show(f"{source} {count}", devices, found)
                print(" " * 20, "visits", report.result.get("region_visits", 1), flush=True)
        Problem.plan = usual  # type: ignore[method-assign]
