"""Benchmark of shortest paths on a GPU, the raster in its memory.

    python scripts/bench_gpu_paths.py [--side 16384] [--spiral 4096] [--rounds 3] [--check 0]
                                      [--disk FOLDER] [--gpu-memory-limits BYTES ...]
    python scripts/bench_gpu_paths.py --methods 2048 4096 8192 --disk FOLDER

Terrain is white noise with frequency f scaled by f^-1.8, made on the GPU; the source is the
middle cell. Only `relax` is timed, from a seed to convergence. Distances of a raster of `--check`
cells on a side are compared with the CPU's, bit for bit. With `--disk`, also from store to
committed store, within limits of the GPU's memory (0: none). With `--methods`, only the classical
methods beside the default, for rasters of these sides; distances must be bit-identical.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from terrain_gpu import GridSpec, create_layer
from terrain_gpu.cuda.device import module, name_of
from terrain_gpu.paths.cost.models import AbsDiff, Friction, cuda_name
from terrain_gpu.paths.cost_distance.pipeline import shortest_paths
from terrain_gpu.paths.relax.gpu import memory, relaxing, variants
from terrain_gpu.paths.relax.gpu.classic import RELAXERS
from terrain_gpu.paths.relax.relaxation import GUARDS

EVERY = (True, True, False)
STORE = "bench.zarr"


def terrain(side: int, seed: int = 1, slope: float = 1.8) -> Any:
    """Heights from 0 to 1000."""
    noise = cupy.random.RandomState(seed).standard_normal((side, side), dtype=cupy.float32)
    spectrum = cupy.fft.rfft2(noise)
    y, x = cupy.fft.fftfreq(side)[:, None], cupy.fft.rfftfreq(side)[None, :]
    frequency = cupy.sqrt(x * x + y * y)
    frequency[0, 0] = 1
    spectrum *= (frequency**-slope).astype(cupy.float32)
    z = cupy.fft.irfft2(spectrum, s=(side, side))
    z -= z.min()
    z *= 1000 / z.max()
    return z


def rings(side: int) -> Any:
    """Walls of a corridor that winds inward, both one cell wide."""
    r, c = cupy.ogrid[:side, :side]
    depth = cupy.minimum(cupy.minimum(r, side - 1 - r), cupy.minimum(c, side - 1 - c))
    walls = depth % 2 == 1
    for k in range(1, side // 2, 2):
        # Each ring is closed beside the gap to the next one, so there is one way round.
        walls[k, k + 1] = False
        walls[k + 1 : k + 2, k + 2] |= k + 2 < side // 2
    return walls


class Bench:
    """A problem on the GPU: cost, cells, and a seed."""

    def __init__(self, cost: Any, cells: Any, seed: tuple[int, int], walls: Any = None) -> None:
        self.cost, self.seed = cost, seed
        self.shape = memory.Shape(*cells.shape)
        self.integer = isinstance(cost, AbsDiff) and cells.dtype.kind == "u"
        self.dtype = np.dtype(np.uint32 if self.integer else np.float64)
        self.heights = memory.padded(self.shape, cells.dtype, 0)
        self._inside(self.heights)[...] = cells
        self.frictions = self.heights
        self.distances = memory.padded(self.shape, self.dtype, variants.absent(self.dtype))
        self.walls = walls
        lengths = np.repeat(
            np.array([10.0, np.hypot(10.0, 10.0), 10.0])[:, None], self.shape.padded, 1
        )
        self.lengths = cupy.array(lengths)

    def _inside(self, array: Any) -> Any:
        whole = array[: self.shape.padded * self.shape.pitch - 31]
        rows, cols, pitch = self.shape.rows, self.shape.cols, self.shape.pitch
        return cupy.lib.stride_tricks.as_strided(
            whole[pitch + 1 :], (rows, cols), (pitch * whole.itemsize, whole.itemsize)
        )

    def solve(self, method: str = "relax") -> tuple[float, Any]:
        """Seconds, and the method's report."""
        top = 2**31 - 1 if self.integer else np.inf
        inside = self._inside(self.distances)
        inside[...] = top
        if self.walls is not None:
            inside[self.walls] = variants.absent(self.dtype)
        self.relaxing = own = relaxing.Relaxing(
            self.shape, self.cost, self.heights.dtype, None, self.dtype, EVERY, top
        )
        given = cuda_name(self.cost), self.heights.dtype, self.dtype, 1
        fields = module("fields", variants.fields_macros(*given))
        at = cupy.array([self.seed[0] * self.shape.cols + self.seed[1]])
        fields.get_function("sources")(
            (1,),
            (1,),
            (at, cupy.zeros(1, self.dtype), 1, self.shape.cols, self.shape.pitch, self.heights,
             self.distances, *own.pending, memory.new_notes()),
        )  # fmt: skip
        guard = GUARDS[4] if self.integer else np.inf
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        if method in RELAXERS:
            found = RELAXERS[method](self, lambda: None)
        else:
            found = own.run(self.heights, self.heights, self.lengths, self.distances, guard)
        cupy.cuda.Device().synchronize()
        return time.perf_counter() - start, found

    def result(self) -> np.ndarray:
        return self._inside(self.distances).get()


def report(name: str, bench: Bench, rounds: int) -> None:
    runs = [bench.solve() for _ in range(rounds + 1)][1:]
    seconds = statistics.median(r[0] for r in runs)
    found = runs[0][1]
    tiles = bench.shape.tiles[0] * bench.shape.tiles[1]
    visits = int(found["visits"])
    cells = bench.shape.rows * bench.shape.cols
    print(
        f"| {bench.shape.rows}^2 {name} | {seconds:.4f} | {cells / seconds / 1e6:.0f} "
        f"| {int(found['number'])} | {visits / tiles:.2f} | {int(found['steps']) / visits:.1f} "
        f"| {visits / int(found['number']):.0f} |",
        flush=True,
    )


def check(side: int) -> None:
    z = terrain(side)
    heights, frictions = z.round().astype(cupy.uint16), z + 20
    middle = (side // 2, side // 2)
    for cost, name, cells in (
        (AbsDiff(), "absdiff", heights),
        (Friction(), "friction", frictions),
    ):
        bench = Bench(cost, cells, middle)
        bench.solve()
        expected = shortest_paths(
            cells.get(), [middle], cost=name, cell_size=(10.0, 10.0), backend="cpu"
        )
        same = np.array_equal(bench.result(), expected.distance())
        print(f"{name} {side}^2: {'the bits of the CPU' if same else 'DIFFERS FROM THE CPU'}")


def new_store(folder: Path, cells: np.ndarray) -> Path:
    store = folder / STORE
    grid = GridSpec(*cells.shape, (10.0, 0.0, 0.0, 0.0, -10.0, 0.0))
    with create_layer(store, "elevation", grid, cells.dtype, overwrite=True) as writer:

        def write(at: tuple[int, int]) -> None:
            r0, r1, c0, c1 = writer.block_window(*at)
            writer.write_block(*at, np.ascontiguousarray(cells[r0:r1, c0:c1]))

        with ThreadPoolExecutor() as pool:
            list(pool.map(write, writer.blocks.ids()))
        writer.commit()
    return store


MOST = 30.0
"""Seconds; a method that takes longer is not tried on larger rasters."""


def methods(sides: list[int], rounds: int, disk: Path | None) -> None:
    """The classical methods beside the default."""
    print("| raster | method | s | M cells/s | store to store s | visits of a tile | rounds |")
    print("| --- " * 7 + "|")
    slow: set[tuple[str, str]] = set()
    for side in sides:
        z = terrain(side)
        for cost, name, cells in (
            (AbsDiff(), "absdiff", z.round().astype(cupy.uint16)),
            (Friction(), "friction", z + 20),
        ):
            middle = (side // 2, side // 2)
            bench = Bench(cost, cells, middle)
            run = {"cost": name, "backend": "cuda", "overwrite": True}
            run["friction"] = "elevation" if name == "friction" else None
            if disk is not None:
                shutil.rmtree(disk / STORE, ignore_errors=True)
                shortest_paths(new_store(disk, cells.get()), [middle], **run)  # to compile
            expected = None
            for method in ("relax", *RELAXERS):
                if (name, method) in slow:
                    continue
                bench.solve(method)  # once to compile and to compare
                result = bench.result()
                expected = result if expected is None else expected
                if not np.array_equal(result, expected):
                    raise SystemExit(f"{method}, {name} {side}^2: differs from relax")
                runs = [bench.solve(method) for _ in range(rounds)]
                seconds = statistics.median(r[0] for r in runs)
                if seconds > MOST:
                    slow.add((name, method))
                whole = ""
                if disk is not None:
                    found = shortest_paths(disk / STORE, [middle], **run, method=method)
                    whole = f"{found.report.seconds['total']:.2f}"
                tiles = bench.shape.tiles[0] * bench.shape.tiles[1]
                print(f"| {side}^2 {cells.dtype}, {name} | {method} | {seconds:.4f} "
                      f"| {side * side / seconds / 1e6:.1f} | {whole} "
                      f"| {int(runs[0][1]['visits']) / tiles:.1f} | {int(runs[0][1]['number'])} |",
                      flush=True)  # fmt: skip


def on_disk(folder: Path, cells: np.ndarray, limits: list[int]) -> None:
    """Whole runs; the first also writes backlinks."""
    store, side = new_store(folder, cells), len(cells)
    for k, limit in enumerate(limits):
        found = shortest_paths(
            store,
            [(side // 2, side // 2)],
            cost="friction",
            friction="elevation",
            backlink=k == 0,
            overwrite=True,
            backend="cuda",
            gpu_memory_limit=limit or None,
        ).report
        phases = ", ".join(f"{name} {t:.2f}" for name, t in found.seconds.items())
        print(f"disk, limit {limit / 1e9:g} GB, regions {found.result['regions']} visited "
              f"{found.result['region_visits']} times, peak {found.peak_rss_bytes / 1e6:.0f} MB: "
              f"{phases}", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=16384)
    parser.add_argument("--spiral", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", type=int, default=2048)
    parser.add_argument("--disk", type=Path)
    parser.add_argument("--gpu-memory-limits", type=int, nargs="+", default=[0, 0])
    parser.add_argument("--methods", type=int, nargs="+", metavar="SIDE")
    parser.add_argument("--fill", type=float, nargs="+", default=[relaxing._FILL])
    arguments = parser.parse_args()
    if arguments.methods:
        methods(arguments.methods, arguments.rounds, arguments.disk)
        print(f"{name_of()}, CuPy {cupy.__version__}")
        return
    if arguments.check:
        check(arguments.check)
    side = arguments.side
    middle = (side // 2, side // 2)
    z = terrain(side)
    heights, frictions = z.round().astype(cupy.uint16), z + 20
    del z
    cupy.get_default_memory_pool().free_all_blocks()
    print("| raster | s | M cells/s | waves | visits of a tile | steps of a visit | tiles a wave |")
    print("| --- " * 7 + "|")
    for fill in arguments.fill:
        relaxing._FILL = fill
        if len(arguments.fill) > 1:
            print(f"fill {fill}")
        report("float32, friction", Bench(Friction(), frictions, middle), arguments.rounds)
        report("uint16, absdiff", Bench(AbsDiff(), heights, middle), arguments.rounds)
    constant = Bench(Friction(), cupy.ones((side, side), np.float32), middle)
    report("constant, friction", constant, arguments.rounds)
    flat = Bench(AbsDiff(), cupy.zeros((side, side), np.uint16), middle)
    report("constant, absdiff", flat, arguments.rounds)
    if arguments.spiral:
        n = arguments.spiral
        walls = rings(n)
        report(
            "spiral, friction", Bench(Friction(), cupy.ones((n, n), np.float32), (0, 0), walls), 1
        )
    if arguments.disk:
        cells = frictions.get()
        del heights, frictions, constant, flat
        on_disk(arguments.disk, cells, arguments.gpu_memory_limits)
    print(f"{name_of()}, CuPy {cupy.__version__}")


if __name__ == "__main__":
    main()
