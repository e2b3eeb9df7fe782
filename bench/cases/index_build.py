"""How fast is a distance index built on a GPU, against the CPU; and what do the kernels take alone?

Spectral terrain: heights of 0 to 1000 m in cells of 10 m, as float32 and, in 1/65 m, as uint16.
From store to committed index, the files of both backends compared byte for byte; "kernels" is what
the GPU computes, cells and entries in its memory. With --methods, the kernels alone by each method
of `build-index --method`, for each size of tiles; a block is all of the raster, and entries must be
the same, bit for bit.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from pathlib import Path
from typing import Any, get_args

import numpy as np

from bench.device import cupy
from bench.stores import add_layer, square_cells
from bench.table import Table
from bench.terrain import spectral
from terrain_gpu import GridSpec, build_index
from terrain_gpu.arguments import IndexMethod
from terrain_gpu.grid import TILE, BlockGrid, ceil_div
from terrain_gpu.grid.lengths import step_lengths
from terrain_gpu.io.places import NO_PLACES
from terrain_gpu.paths.cost.models import CostModel
from terrain_gpu.paths.cost.terrain import Raster, Terrain
from terrain_gpu.paths.distance_index.classic import scratch_bytes
from terrain_gpu.paths.distance_index.files import NAME, Index, index_dtype
from terrain_gpu.paths.distance_index.gpu import GpuEntrySolver
from terrain_gpu.paths.distance_index.rim import TILES

METHODS = get_args(IndexMethod)
ROOM = 20_000_000_000
"""GPU memory for rows of tiles."""
COSTS = {"absdiff": np.uint16, "friction": np.float32, "tobler": np.float32}


def kernels(
    cost: str,
    cells: np.ndarray,
    grid: GridSpec,
    rounds: int,
    tile: int = 64,
    method: str = "relax",
    rows: int = 16,
) -> tuple[float, list[Any]]:
    """Seconds to compute all entries, so many rows of tiles at once; and the entries of a few."""
    model = CostModel(cost, False, {})
    blocks = BlockGrid(*cells.shape, 8192)
    own = {
        "settings": {"tile": tile},
        "dtype": index_dtype(model, cells.dtype),
        "symmetric": not model.kind.directed,
    }
    index = Index(Path(), blocks, own)
    raster = Raster(cells, "cells")
    ground = Terrain(blocks, model, raster, None, None, step_lengths(grid), NO_PLACES, index.dtype)
    ground = ground.stepping((True, True, False), max(TILE, tile))
    solver = GpuEntrySolver(ground, ground.options, index, index.dtype.type(0), rows, method)
    field, (down, across) = ground.load((0, 0)), index.tiles((0, 0))
    parts = [solver.upload(field, k, min(k + rows, down)) for k in range(0, down, rows)]
    seconds = []
    for _ in range(rounds + 1):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        found = [solver.solve(part, across) for part in parts[:1]]
        for part in parts[1:]:
            solver.solve(part, across)
        cupy.cuda.Device().synchronize()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:]), [entries.get() for entries in found]


def compare_methods(
    cost: str, cells: np.ndarray, grid: GridSpec, rounds: int, tiles: list[int]
) -> None:
    """Print a table of the kernels' seconds, of each method for each size of tiles."""
    print(f"\n{cost}, {len(cells)} x {len(cells)}, s\n")
    table = Table("M", *METHODS)
    for tile in tiles:
        seconds, first = [], None
        for method in METHODS:
            # What fits: 9 or 17 bytes for each pair of a rim cell and a cell.
            each = scratch_bytes(method, tile, 8) * ceil_div(len(cells), tile)
            rows = min(ceil_div(len(cells), tile), max(1, ROOM // each))
            alone, found = kernels(cost, cells, grid, rounds, tile, method, rows)
            seconds.append(alone)
            row = found[0][:1].tobytes()
            first = first or row
            assert row == first, method
        table.row(f"{tile}^2", *seconds)


def files(store: Path) -> dict[str, bytes]:
    """The files of the index."""
    found = (p for p in (store / NAME).rglob("*") if p.is_file())
    return {str(p.relative_to(store)): p.read_bytes() for p in found}


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--no-cpu", action="store_true")
    parser.add_argument("--methods", action="store_true")
    parser.add_argument("--tiles", type=int, nargs="+", default=TILES)


def run(given: argparse.Namespace) -> None:
    """Print what each cost takes."""
    heights = spectral(cupy, given.side).get()
    grid = square_cells(heights.shape)
    for cost, dtype in COSTS.items():
        cells = (heights * (65 if dtype == np.uint16 else 1)).astype(dtype)
        if cost == "friction":
            cells = cells / np.float32(250) + np.float32(0.5)
        if given.methods:
            compare_methods(cost, cells, grid, given.rounds, given.tiles)
            continue
        alone, _ = kernels(cost, cells, grid, given.rounds)
        tiles = (given.side // TILE) ** 2
        print(f"\n{cost}: kernels {alone:.3f} s, {alone / tiles * 1e6:.1f} us a tile\n")
        store = add_layer(given.work / f"{cost}.zarr", cells, overwrite=True)
        found: list[Any] = []
        table = Table("backend | s, median | least | most | threads | GB")
        for backend in ("cuda",) if given.no_cpu else ("cuda", "cpu"):
            # The first round compiles.
            friction = "elevation" if cost == "friction" else None
            how = {"cost": cost, "friction": friction, "backend": backend, "threads": given.threads}
            runs = [build_index(store, **how, overwrite=True) for _ in range(given.rounds + 1)][1:]
            seconds = [r.seconds["total"] for r in runs]
            found.append(files(store))
            size, threads = runs[0].result["bytes"] / 1e9, runs[0].settings["threads"]
            of = (statistics.median(seconds), min(seconds), max(seconds))
            table.row(backend, *of, threads, size)
        assert all(f == found[0] for f in found)
        shutil.rmtree(store)
