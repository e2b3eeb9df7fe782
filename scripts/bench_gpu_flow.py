"""Time hydrology on a GPU: from a raw DEM to directions, accumulation and filled heights.

    python scripts/bench_gpu_flow.py --side 16384 --work /tmp

Each round begins with a store of heights and a cold disk cache. "floor" is the same bytes read by
parallel pread and written with fsync, in the same run: heights read, and results written.
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path

import cupy
import numpy as np
from bench_gpu_mst import cold, floor, make_store, terrain, tiles_of

from terrain_gpu import TileStore, fill, flow_accumulation, flow_direction, minimum_spanning_tree

STEPS = {
    "mst": (lambda store, **how: minimum_spanning_tree(store, weight="flow", **how), 1),
    "flow_direction": (flow_direction, 1),
    "flow_accumulation": (flow_accumulation, 4),
    "filled": (fill, 4),
}
"""Layers in the order in which they are made: the function, and bytes per cell."""


def run(store: Path, backend: str) -> dict[str, float]:
    """Make all layers; print and return the seconds of each."""
    seconds = {}
    for name, (make, _) in STEPS.items():
        begin = time.perf_counter()
        found = make(store, backend=backend, overwrite=True)
        seconds[name] = time.perf_counter() - begin
        report = found.report
        phases = " ".join(f"{k} {v:.3f}" for k, v in report.seconds.items())
        print(
            f"{backend} {name:18s} {seconds[name]:.3f} s ({phases}), "
            f"peak {report.peak_rss_bytes / 1e6:.0f} MB",
            flush=True,
        )
    return seconds


def same(store: Path) -> None:
    """Compare both backends, bit for bit."""
    found = []
    for backend in ("cpu", "cuda"):
        run(store, backend)
        opened = TileStore.open(store)
        layers = [opened.layer(name) for name in STEPS]
        found.append([layer.read_window(*layer.grid.window).tobytes() for layer in layers])
    print(f"{store.name}: the same bits: {found[0] == found[1]}", flush=True)


def rounds(work: Path, tiles: np.ndarray, side: int, count: int) -> None:
    """Raw DEM to directions and accumulation, beside the floor."""
    store = work / "flow.zarr"
    files = make_store(store, tiles, side)
    for _ in range(count):
        for name in STEPS:
            shutil.rmtree(store / name, ignore_errors=True)
        shutil.rmtree(work / "floor", ignore_errors=True)
        wanted = STEPS["flow_direction"][1] + STEPS["flow_accumulation"][1]
        read, write = floor(files, work / "floor", wanted * side * side)
        shutil.rmtree(work / "floor", ignore_errors=True)
        cold()
        seconds = run(store, "cuda")
        wall = sum(seconds.values()) - seconds["filled"]
        print(
            f"DEM to accumulation {wall:.3f} s, floor {read + write:.3f} ({read:.3f} + "
            f"{write:.3f}), {wall / (read + write):.2f} x",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=16384)
    parser.add_argument("--compare", type=int, default=4096, help="0: do not compare.")
    parser.add_argument("--work", type=Path, default=Path("/tmp"))
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    for name, whole in (("real", False), ("whole", True)) if args.compare else ():
        tiles = tiles_of(terrain(args.compare))
        if whole:
            tiles = np.rint(tiles / 4).astype(np.uint16)
        make_store(args.work / f"{name}.zarr", tiles, args.compare)
        same(args.work / f"{name}.zarr")
        shutil.rmtree(args.work / f"{name}.zarr")
    if args.rounds:
        tiles = tiles_of(terrain(args.side))
        cupy.get_default_memory_pool().free_all_blocks()
        rounds(args.work, tiles, args.side, args.rounds)


if __name__ == "__main__":
    main()
