"""Time compressed stores on a GPU: from a cold store to committed layers, beside the raw bytes.

    python scripts/bench_gpu_codecs.py --side 16384 --rounds 3 --work /tmp
    python scripts/bench_gpu_codecs.py --side 2048 --backend cpu

Prints Markdown tables. "raw floor" is the disk alone: the shards that are not compressed read in
parallel, and as many bytes as the result has written with fsync, in the same round. Coding and
decoding are timed from memory to memory, in whole shards. Needs the right to drop the cache.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from terrain_gpu import TileStore, create_layer, flow_direction, minimum_spanning_tree
from terrain_gpu import shortest_paths as distances
from terrain_gpu.engine.compression import chosen
from terrain_gpu.grid import TILE, GridSpec
from terrain_gpu.store.checksums import crc32c

BLOCK, THREADS = 1024, min(16, os.cpu_count() or 1)
CODECS = "none", "blosc-lz4", "blosc-zstd", "zstd", "auto"


def heights(side: int, backend: str) -> np.ndarray:
    """Fractal terrain, 0 to 1000, uint16, as blocks of tiles in Z-order."""
    if backend == "cuda":
        import bench_gpu_mst
        import cupy

        tiles = bench_gpu_mst.tiles_of(cupy.rint(bench_gpu_mst.terrain(side)).astype("u2"))
        cupy.get_default_memory_pool().free_all_blocks()
        return tiles
    from make_terrain import terrain_window

    from terrain_gpu.store.tiles import split_bits, z_view

    z = np.rint(terrain_window(0, side, 0, side, dtype="float32")).astype("u2")
    n = side // BLOCK
    tiles = np.empty((n * n, (BLOCK // TILE) ** 2, TILE, TILE), "u2")
    for k in range(n * n):
        i, j = divmod(k, n)
        part = z[i * BLOCK : (i + 1) * BLOCK, j * BLOCK : (j + 1) * BLOCK]
        np.copyto(z_view(tiles[k]), split_bits(part))
    return tiles


def each(work: Callable[[int], Any], count: int, threads: int = THREADS) -> list[Any]:
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, range(count)))


def make_store(store: Path, tiles: np.ndarray, compress: str | None) -> None:
    n = int(len(tiles) ** 0.5)
    grid = GridSpec(n * BLOCK, n * BLOCK)
    how = {"block_size": BLOCK, "compress": compress}
    with create_layer(store, "elevation", grid, tiles.dtype, **how) as writer:
        each(lambda k: writer.write_tiles(*divmod(k, n), tiles[k]), n * n)
        writer.commit()


def files_of(layer: Path) -> list[Path]:
    return [p for p in (layer / "c").rglob("*") if p.is_file()]


def cold(store: Path) -> None:
    """Drop what the system holds of a store."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    except OSError:
        for file in store.rglob("*"):
            if file.is_file():
                with open(file, "rb") as opened:
                    os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def floor(files: list[Path], out: Path, sizes: list[int]) -> float:
    """Seconds to read files in parallel, and to write others of these sizes with fsync."""
    part = os.urandom(max(sizes))

    def write(k: int) -> None:
        with open(out / str(k), "wb", buffering=0) as file:
            file.write(memoryview(part)[: sizes[k]])
            os.fsync(file.fileno())

    out.mkdir()
    cold(files[0].parents[3])
    begin = time.perf_counter()
    each(lambda k: len(files[k].read_bytes()), len(files))
    each(write, len(sizes))
    spent = time.perf_counter() - begin
    shutil.rmtree(out)
    return spent


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
    print(f"\n| layer, codec | ratio | {' | '.join(f'{n} thread(s)' for n in counts)} |")
    print("| --- " * (2 + len(counts)) + "|", flush=True)
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
                told = " | ".join(f"{r:.1f}" for r in found)
                print(f"| {name} {what} {layer.compress} | {ratio:.2f} | {told} |", flush=True)


def middle(store: Path) -> tuple[int, int]:
    grid = TileStore.open(store).grid
    return grid.rows // 2, grid.cols // 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--side", type=int, default=16384, help="A multiple of 1024.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("/tmp"))
    parser.add_argument("--backend", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--codecs", nargs="+", default=list(CODECS), choices=CODECS)
    args = parser.parse_args()
    work, side = args.work / "bench-gpu-codecs", args.side
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    tree = partial(minimum_spanning_tree, backend=args.backend)
    runs: dict[str, tuple[str, int, Callable[..., Any]]] = {
        "tree": ("mst", 1, partial(tree, weight="absdiff")),
        "distances": (
            "distance", 4,
            lambda store, **how: distances(
                store, [middle(store)], cost="absdiff", backend=args.backend, **how
            ),
        ),
        "directions": ("flow_direction", 1, partial(flow_direction, backend=args.backend)),
    }  # fmt: skip
    tiles = heights(side, args.backend)
    print(f"{side} x {side} uint16, {THREADS} threads, {platform.processor()}, {args.work}")
    stores = {codec: work / f"{codec}.zarr" for codec in ("none", *args.codecs)}
    for store, part in ((work / "first.zarr", tiles[:4]), *((s, tiles) for s in stores.values())):
        codec = store.stem
        name = None if codec == "none" else "blosc-lz4" if codec == "first" else codec
        if codec == "auto":
            name = chosen(store, tiles.nbytes, THREADS)
        begin = time.perf_counter()
        make_store(store, part, name)
        wall = time.perf_counter() - begin
        size = TileStore.open(store).layer("elevation").info["stored_bytes"]
        print(f"made {codec}: {name}, {size / 1e6:.0f} MB, {wall:.2f} s", flush=True)
    del tiles
    raw = files_of(stores["none"] / "elevation")
    lines = []
    for what, (layer, item, run) in runs.items():
        if what == "directions":
            coding(work, [c for c in args.codecs if c not in ("none", "auto")], (side, side))
        for store in (work / "first.zarr", *stores.values()):
            if what == "directions":
                tree(store, weight="flow", overwrite=True)
            if store.stem == "first":  # compiles kernels
                run(store, compress="blosc-lz4")
        walls: dict[str, list[float]] = {codec: [] for codec in stores}
        floors, said = [], {}
        for _ in range(args.rounds):
            sizes = [item * BLOCK**2] * (side // BLOCK) ** 2
            read = raw if what != "directions" else raw + files_of(stores["none"] / "mst")
            floors.append(floor(read, work / "floor", sizes))
            for codec, store in stores.items():
                shutil.rmtree(store / layer, ignore_errors=True)
                cold(store)
                compress = None if codec == "none" else codec
                begin = time.perf_counter()
                report = run(store, compress=compress).report
                walls[codec].append(time.perf_counter() - begin)
                said[codec] = report
        same = len({content(store, layer) for store in stores.values()}) == 1
        base = statistics.median(floors)
        lines.append(f"| {what} | raw floor | | | {base:.3f} | 1 | |")
        for codec, report in said.items():
            wall = statistics.median(walls[codec])
            took = TileStore.open(stores[codec]).layer(layer).compress
            moved = [f"{(n or 0) / 1e6:.0f}" for n in (report.bytes_read, report.bytes_written)]
            lines.append(
                f"| {what} | {codec}{f' ({took})' * (codec == 'auto')} | {' | '.join(moved)} | "
                f"{wall:.3f} | {wall / base:.2f} | {'yes' if same else 'NO'} |"
            )
            phases = " ".join(f"{k} {v:.3f}" for k, v in report.seconds.items())
            print(f"{lines[-1]} {phases}, peak {report.peak_rss_bytes / 1e6:.0f} MB", flush=True)
    print("\n| operation | codec | MB read | MB written | s, median | x floor | same cells |")
    print("| --- " * 7 + "|")
    print("\n".join(lines))
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
