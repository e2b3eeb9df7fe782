"""How fast are shortest paths on a GPU that holds the raster? And by the classical methods?

Spectral terrain, made on the GPU; the source is the middle cell. Only `relax` is timed, from a seed
to convergence. Distances of a raster of --check cells on a side are compared with the CPU's, bit
for bit. With --disk, also from store to committed store, within limits of the GPU's memory (0:
none). With --methods, only the classical methods and the default, for rasters of these sides;
distances must be bit-identical.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
from pathlib import Path
from typing import Any

import numpy as np

from bench.device import cupy, free
from bench.relaxation import Bench
from bench.stores import add_layer
from bench.table import Table
from bench.terrain import spectral
from bench.timing import phases
from terrain_gpu import shortest_paths
from terrain_gpu.paths.cost.models import AbsDiff, Friction
from terrain_gpu.paths.relax.gpu import relaxing
from terrain_gpu.paths.relax.gpu.classic import RELAXERS


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


def report(name: str, bench: Bench, rounds: int, table: Table) -> None:
    """Add a row: medians after a round that compiles."""
    runs = [bench.solve() for _ in range(rounds + 1)][1:]
    seconds = statistics.median(r[0] for r in runs)
    found, shape = runs[0][1], bench.shape
    visits, waves = int(found["visits"]), int(found["number"])
    table.row(
        f"{shape.rows}^2 {name}", f"{seconds:.4f}", shape.rows * shape.cols / seconds / 1e6, waves,
        visits / (shape.tiles[0] * shape.tiles[1]), int(found["steps"]) / visits, visits / waves,
    )  # fmt: skip


def check(side: int) -> None:
    """Compare distances with those of the CPU."""
    z = spectral(cupy, side)
    middle = (side // 2, side // 2)
    for cost, name, cells in (
        (AbsDiff(), "absdiff", z.round().astype(cupy.uint16)),
        (Friction(), "friction", z + 20),
    ):
        bench = Bench(cost, cells, middle)
        bench.solve()
        data = cells.get()
        frictions = data if name == "friction" else None
        expected = shortest_paths(
            data, [middle], cost=name, friction=frictions, cell_size=(10.0, 10.0), backend="cpu"
        )
        same = np.array_equal(bench.result(), expected.distance())
        print(f"{name} {side}^2: {'the bits of the CPU' if same else 'DIFFERS FROM THE CPU'}")


MOST = 30.0
"""Seconds; a method that takes longer is not tried on larger rasters."""


def methods(sides: list[int], rounds: int, store: Path | None) -> None:
    """The classical methods and the default."""
    table = Table("raster | method | s | M cells/s | store to store s | visits of a tile | rounds")
    slow: set[tuple[str, str]] = set()
    for side in sides:
        z = spectral(cupy, side)
        for cost, name, cells in (
            (AbsDiff(), "absdiff", z.round().astype(cupy.uint16)),
            (Friction(), "friction", z + 20),
        ):
            middle = (side // 2, side // 2)
            bench = Bench(cost, cells, middle)
            run = {"cost": name, "backend": "cuda", "overwrite": True}
            run["friction"] = "elevation" if name == "friction" else None
            if store is not None:
                shutil.rmtree(store, ignore_errors=True)
                shortest_paths(add_layer(store, cells.get()), [middle], **run)  # to compile
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
                whole = None
                if store is not None:
                    found = shortest_paths(store, [middle], **run, method=method)
                    whole = found.report.seconds["total"]
                tiles = bench.shape.tiles[0] * bench.shape.tiles[1]
                table.row(
                    f"{side}^2 {cells.dtype}, {name}", method, f"{seconds:.4f}",
                    side * side / seconds / 1e6, whole, int(runs[0][1]["visits"]) / tiles,
                    int(runs[0][1]["number"]),
                )  # fmt: skip


def on_disk(store: Path, cells: np.ndarray, limits: list[int]) -> None:
    """Whole runs; the first also writes backlinks."""
    side, how = len(cells), {"cost": "friction", "friction": "elevation", "backend": "cuda"}
    add_layer(store, cells, overwrite=True)
    table = Table("limit, GB | regions | visited | s by phase | peak MB")
    for k, limit in enumerate(limits):
        how |= {"backlink": k == 0, "overwrite": True, "gpu_memory_limit": limit or None}
        found = shortest_paths(store, [(side // 2, side // 2)], **how).report
        regions = found.result["regions"], found.result["region_visits"]
        peak = found.peak_rss_bytes // 10**6
        table.row(limit / 1e9, *regions, phases(found.seconds), peak)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--side", type=int, default=16384)
    parser.add_argument("--spiral", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", type=int, default=2048, help="0: none")
    parser.add_argument("--disk", action="store_true")
    parser.add_argument("--gpu-memory-limits", type=int, nargs="+", default=[0, 0])
    parser.add_argument("--methods", type=int, nargs="+", metavar="SIDE")
    parser.add_argument("--fill", type=float, nargs="+", default=[relaxing._FILL])


def run(given: argparse.Namespace) -> None:
    """Print the tables."""
    side, rounds, store = given.side, given.rounds, given.work / "gpu-paths.zarr"
    middle = (side // 2, side // 2)
    if given.methods:
        methods(given.methods, rounds, store if given.disk else None)
        return
    if given.check:
        check(given.check)
    z = spectral(cupy, side)
    heights, frictions = z.round().astype(cupy.uint16), z + 20
    del z
    free()
    table = Table(
        "raster | s | M cells/s | waves | visits of a tile | steps of a visit | tiles a wave"
    )
    for fill in given.fill:
        relaxing._FILL = fill
        more = f", fill {fill}" * (len(given.fill) > 1)
        report(f"float32, friction{more}", Bench(Friction(), frictions, middle), rounds, table)
        report(f"uint16, absdiff{more}", Bench(AbsDiff(), heights, middle), rounds, table)
    cells = frictions.get()
    del heights, frictions
    constant = Bench(Friction(), cupy.ones((side, side), np.float32), middle)
    report("constant, friction", constant, rounds, table)
    del constant
    flat = Bench(AbsDiff(), cupy.zeros((side, side), np.uint16), middle)
    report("constant, absdiff", flat, rounds, table)
    del flat
    if given.spiral:
        n = given.spiral
        ones = cupy.ones((n, n), np.float32)
        report("spiral, friction", Bench(Friction(), ones, (0, 0), rings(n)), 1, table)
    if given.disk:
        print()
        on_disk(store, cells, given.gpu_memory_limits)
