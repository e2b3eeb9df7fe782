"""What do compressed stores cost and save, from a cold store to committed layers?

"raw floor" is the disk alone: the shards that are not compressed read in parallel, and as many
bytes as the result has written with fsync, in the same round. Coding and decoding are timed from
memory to memory, in whole shards. A cold cache of all
files needs the right to drop it.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.device import cupy, free, tiles_of
from bench.disk import THREADS, cold, floor
from bench.stores import add_tiles, shards
from bench.table import Table
from bench.terrain import fractal, spectral
from bench.timing import phases
from terrain_gpu import TileStore, create_layer, flow_direction, minimum_spanning_tree
from terrain_gpu import shortest_paths as distances
from terrain_gpu.engine.compression import chosen
from terrain_gpu.grid import TILE, GridSpec
from terrain_gpu.store.checksums import crc32c

BLOCK = 1024
CODECS = "none", "blosc-lz4", "blosc-zstd", "zstd", "auto"


def heights(side: int, backend: str) -> np.ndarray:
    """Terrain, 0 to 1000, uint16, as blocks of tiles in Z-order."""
    z = cupy.rint(spectral(cupy, side)) if backend == "cuda" else fractal(side, "uint16")
    tiles = tiles_of(z.astype("u2"))
    if backend == "cuda":
        free()
    return tiles


def each(work: Callable[[int], Any], count: int, threads: int = THREADS) -> list[Any]:
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, range(count)))


def content(store: Path, name: str) -> int:
    """A checksum of the cells of a layer, however they are compressed."""
    layer = TileStore.open(store).layer(name)
    ids = list(layer.blocks.ids())

    def one(k: int) -> int:
        tiles = np.empty(((BLOCK // TILE) ** 2, TILE, TILE), layer.dtype)
        layer.read_tiles(*ids[k], tiles)
        return crc32c(tiles)

    return crc32c(np.array(each(one, len(ids)), "<u8"))


class Nowhere:
    """Takes shards and forgets them."""

    def put(self, *shard: Any) -> tuple[()]:
        return ()


def rate(act: Callable[..., Any], ids: list, tiles: np.ndarray, threads: int) -> float:
    """GB/s of cells that threads read or write, after a first block for each."""
    each(lambda k: act(*ids[k], tiles[k]), min(threads, len(ids)), threads)
    begin = time.perf_counter()
    each(lambda k: act(*ids[k], tiles[k]), len(ids), threads)
    return tiles.nbytes / 1e9 / (time.perf_counter() - begin)


def coding(work: Path, codecs: list[str], shape: tuple[int, int]) -> None:
    """GB/s of uncompressed bytes between memory and memory, by number of threads."""
    counts = [n for n in (1, 2, 4, 8) if n < THREADS] + [THREADS]
    print()
    table = Table("layer, codec | ratio", *(f"{n} thread(s)" for n in counts))
    for name in ("elevation", "mst", "distance"):
        for codec in codecs:
            layer = TileStore.open(work / f"{codec}.zarr").layer(name)
            if layer.compress is None:
                continue
            ids = list(layer.blocks.ids())
            tiles = np.empty((len(ids), (BLOCK // TILE) ** 2, TILE, TILE), layer.dtype)
            how = {"block_size": BLOCK, "compress": layer.compress}
            shutil.rmtree(work / "code.zarr", ignore_errors=True)
            rates: list[list[float]] = [[], []]
            grid = GridSpec(*shape)
            with create_layer(work / "code.zarr", "coded", grid, layer.dtype, **how) as writer:
                writer._shards = Nowhere()
                for n in counts:
                    rates[0].append(rate(layer.read_tiles, ids, tiles, n))
                    rates[1].append(rate(writer.write_tiles, ids, tiles, n))
            ratio = layer.info["stored_bytes"] / tiles.nbytes
            for what, found in zip(("decode", "code"), rates, strict=True):
                table.row(f"{name} {what} {layer.compress}", ratio, *found)


def middle(store: Path) -> tuple[int, int]:
    grid = TileStore.open(store).grid
    return grid.rows // 2, grid.cols // 2


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--side", type=int, default=16384, help="a multiple of 1024")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--codecs", nargs="+", default=list(CODECS), choices=CODECS)


def run(given: argparse.Namespace) -> None:
    """Print the tables."""
    work, side = given.work / "compressed-stores", given.side
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    tree = partial(minimum_spanning_tree, backend=given.backend)
    runs: dict[str, tuple[str, int, Callable[..., Any]]] = {
        "tree": ("mst", 1, partial(tree, weight="absdiff")),
        "distances": (
            "distance", 4,
            lambda store, **how: distances(
                store, [middle(store)], cost="absdiff", backend=given.backend, **how
            ),
        ),
        "directions": ("flow_direction", 1, partial(flow_direction, backend=given.backend)),
    }  # fmt: skip
    tiles = heights(side, given.backend)
    stores = {codec: work / f"{codec}.zarr" for codec in ("none", *given.codecs)}
    for store, part in ((work / "first.zarr", tiles[:4]), *((s, tiles) for s in stores.values())):
        codec = store.stem
        name = None if codec == "none" else "blosc-lz4" if codec == "first" else codec
        if codec == "auto":
            name = chosen(store, tiles.nbytes, THREADS)
        begin = time.perf_counter()
        add_tiles(store, part, compress=name)
        wall = time.perf_counter() - begin
        size = TileStore.open(store).layer("elevation").info["stored_bytes"]
        print(f"made {codec}: {name}, {size / 1e6:.0f} MB, {wall:.2f} s", flush=True)
    del tiles
    raw, rows = shards(stores["none"]), []
    for what, (layer, item, compute) in runs.items():
        if what == "directions":
            coding(work, [c for c in given.codecs if c not in ("none", "auto")], (side, side))
        for store in (work / "first.zarr", *stores.values()):
            if what == "directions":
                tree(store, weight="flow", overwrite=True)
            if store.stem == "first":  # compiles kernels
                compute(store, compress="blosc-lz4")
        walls: dict[str, list[float]] = {codec: [] for codec in stores}
        floors, said = [], {}
        for _ in range(given.rounds):
            sizes = [item * BLOCK**2] * (side // BLOCK) ** 2
            read = raw if what != "directions" else raw + shards(stores["none"], "mst")
            floors.append(sum(floor(stores["none"], read, sizes)))
            for codec, store in stores.items():
                shutil.rmtree(store / layer, ignore_errors=True)
                cold(store)
                compress = None if codec == "none" else codec
                begin = time.perf_counter()
                said[codec] = compute(store, compress=compress).report
                walls[codec].append(time.perf_counter() - begin)
        same = len({content(store, layer) for store in stores.values()}) == 1
        base = statistics.median(floors)
        rows.append((what, "raw floor", "", "", base, 1, "", "", ""))
        for codec, report in said.items():
            wall = statistics.median(walls[codec])
            took = TileStore.open(stores[codec]).layer(layer).compress
            moved = (round((n or 0) / 1e6) for n in (report.bytes_read, report.bytes_written))
            peak = round(report.peak_rss_bytes / 1e6)
            name = f"{codec}{f' ({took})' * (codec == 'auto')}"
            figures = wall, wall / base, "yes" if same else "NO", phases(report.seconds), peak
            rows.append((what, name, *moved, *figures))
    print()
    table = Table(
        "operation | codec | MB read | MB written | s, median | x floor | same cells | "
        "the last: s by phase | peak MB"
    )
    for row in rows:
        table.row(*row)
    shutil.rmtree(work)
