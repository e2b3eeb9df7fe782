"""Benchmark of building the distance index: on a GPU, on the CPU, and the kernels alone.

    python scripts/bench_gpu_index.py FOLDER [--side 4096] [--rounds 3] [--threads N] [--no-cpu]
    python scripts/bench_gpu_index.py FOLDER --methods [--side 1024] [--rounds 1] [--tiles 16 32 64]

Terrain is white noise with frequency f scaled by f^-1.8, made on the GPU: heights of 0 to 1000 m
in cells of 10 m, as float32 and, in 1/65 m, as uint16. From store to committed index, the files of
both backends compared byte for byte; "kernels" is what the GPU computes, cells and entries in its
memory. With `--methods`, the kernels alone by each method of `build-index --method`, for each size
of tiles; a block is all of the raster, and entries must be the same, bit for bit.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from pathlib import Path
from typing import Any, get_args

import cupy
import numpy as np
from bench_gpu_paths import terrain

from terrain_gpu import GridSpec, build_index, create_layer
from terrain_gpu.arguments import IndexMethod
from terrain_gpu.cuda.device import name_of
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
    print(f"\n{cost}, {len(cells)} x {len(cells)}, s\n\n| M | {' | '.join(METHODS)} |")
    print("| --- " * (1 + len(METHODS)) + "|")
    for tile in tiles:
        seconds, first = [], None
        for method in METHODS:
            # What fits: 9 or 17 bytes for each pair of a rim cell and a cell.
            each = scratch_bytes(method, tile, 8) * ceil_div(len(cells), tile)
            rows = min(ceil_div(len(cells), tile), max(1, ROOM // each))
            alone, found = kernels(cost, cells, grid, rounds, tile, method, rows)
            seconds.append(f"{alone:.3f}")
            row = found[0][:1].tobytes()
            first = first or row
            assert row == first, method
        print(f"| {tile}^2 | {' | '.join(seconds)} |", flush=True)


def write_store(store: Path, cells: np.ndarray, grid: GridSpec) -> None:
    with create_layer(store, "elevation", grid, cells.dtype, overwrite=True) as writer:
        for i, j in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(i, j)
            writer.write_block(i, j, np.ascontiguousarray(cells[r0:r1, c0:c1]))
        writer.commit()


def files(store: Path) -> dict[str, bytes]:
    found = (p for p in (store / NAME).rglob("*") if p.is_file())
    return {str(p.relative_to(store)): p.read_bytes() for p in found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--no-cpu", action="store_true")
    parser.add_argument("--methods", action="store_true")
    parser.add_argument("--tiles", type=int, nargs="+", default=TILES)
    how = parser.parse_args()
    print(name_of())
    heights = terrain(how.side).get()
    grid = GridSpec(how.side, how.side, transform=(10.0, 0.0, 0.0, 0.0, -10.0, 0.0))
    for cost, dtype in COSTS.items():
        cells = (heights * (65 if dtype == np.uint16 else 1)).astype(dtype)
        if cost == "friction":
            cells = cells / np.float32(250) + np.float32(0.5)
        if how.methods:
            compare_methods(cost, cells, grid, how.rounds, how.tiles)
            continue
        alone, _ = kernels(cost, cells, grid, how.rounds)
        tiles = (how.side // TILE) ** 2
        print(f"{cost}: kernels {alone:.3f} s, {alone / tiles * 1e6:.1f} us a tile", flush=True)
        store = how.folder / f"{cost}.zarr"
        write_store(store, cells, grid)
        found: list[Any] = []
        for backend in ("cuda",) if how.no_cpu else ("cuda", "cpu"):
            # The first round compiles.
            friction = "elevation" if cost == "friction" else None
            run = {"cost": cost, "friction": friction, "backend": backend, "threads": how.threads}
            runs = [build_index(store, **run, overwrite=True) for _ in range(how.rounds + 1)][1:]
            seconds = [r.seconds["total"] for r in runs]
            found.append(files(store))
            size, threads = runs[0].result["bytes"], runs[0].settings["threads"]
            print(
                f"  {backend}: {statistics.median(seconds):.2f} s ({min(seconds):.2f} to "
                f"{max(seconds):.2f}), {threads} threads, {size / 1e9:.2f} GB",
                flush=True,
            )
        assert all(f == found[0] for f in found)
        shutil.rmtree(store)


if __name__ == "__main__":
    main()
