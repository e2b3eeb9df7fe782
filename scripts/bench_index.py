"""Benchmark of the distance index: its size, its build, and queries of pairs against other ways.

    python scripts/bench_index.py DEM.tif FOLDER [--window ROW,COL,SIDE] [--pairs 100] [--runs 5]

For each cost: bytes per cell; CPU seconds to build it; for random pairs with different starts, of
one query alone, and of one of many; of `shortest_paths` that stops at its target, and of
`cost_matrix`, whose batches hold eight sources; and after how many pairs the build and the queries
have taken less. All with one thread, so that CPU seconds compare.
"""

from __future__ import annotations

import argparse
import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import rasterio

from terrain_gpu import (
    GridSpec,
    TileStore,
    build_index,
    cost_matrix,
    create_layer,
    query_index,
    shortest_paths,
)

COSTS: dict[str, dict[str, Any]] = {
    "absdiff": {},
    "friction": {"friction": "friction"},
    "surface": {},
    "tobler": {},
    "minimax": {},
}


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of this process, and the result."""
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def write_store(store: Path, dem: str, window: list[int] | None) -> np.ndarray:
    """Write heights, and frictions of 1 to 5 by slope; return the mask of cells with a value."""
    with rasterio.open(dem) as source:
        row, col, side = window or (0, 0, max(source.shape))
        cells = source.read(1, window=((row, row + side), (col, col + side)))
        nodata, step = source.nodata, abs(source.transform.a)
        wkt = source.crs.to_wkt() if source.crs else ""
        at = source.window_transform(((row, row + side), (col, col + side)))
    grid = GridSpec(*cells.shape, tuple(at)[:6], wkt)
    slope = np.hypot(*np.gradient(cells.astype(np.float32))) / step
    friction = (1 + np.minimum(4 * slope, 4)).astype(np.float32)
    layers = {"elevation": (cells, nodata), "friction": (friction, None)}
    for name, (data, void) in layers.items():
        with create_layer(store, name, grid, data.dtype, nodata=void) as writer:
            for at in writer.blocks.ids():
                r0, r1, c0, c1 = writer.block_window(*at)
                writer.write_block(*at, np.ascontiguousarray(data[r0:r1, c0:c1]))
            writer.commit()
    return cells != nodata if nodata is not None else np.isfinite(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dem")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--window", type=lambda text: list(map(int, text.split(","))))
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--runs", type=int, default=5)
    how = parser.parse_args()
    store = how.folder / "bench.zarr"
    shutil.rmtree(store, ignore_errors=True)
    good = np.argwhere(write_store(store, how.dem, how.window))
    rng = np.random.default_rng(1)
    ends = good[rng.choice(len(good), 2 * how.pairs)].reshape(-1, 2, 2).tolist()
    starts, stops = [tuple(a) for a, _ in ends], [tuple(b) for _, b in ends]
    print(f"{how.dem}: {TileStore.open(store).grid.shape}, {how.pairs} pairs")
    for cost, more in COSTS.items():
        own = {"cost": cost, **more, "threads": 1}
        run = {**own, "backend": "cpu", "overwrite": True}

        def sssp(k: int, run: dict[str, Any] = run) -> Any:
            how = {"targets": [stops[k]], "stop_at_targets": True}
            return shortest_paths(store, [starts[k]], **run, **how)

        def matrix(run: dict[str, Any] = own) -> Any:
            return cost_matrix(store, starts[:8], stops[:8], **run)

        build_index(store, **run)  # compiles
        query_index(store, starts[:1], stops[:1])
        sssp(0)
        matrix()
        built, report = timed(lambda run=run: build_index(store, **run))
        first, _ = timed(lambda: query_index(store, starts[:1], stops[:1]))
        every, found = timed(lambda: query_index(store, starts, stops))
        lines, _ = timed(lambda: query_index(store, starts, stops, trace=True))
        alone = timed(lambda: [sssp(k) for k in range(how.runs)])[0] / how.runs
        batch = timed(matrix)[0] / 8
        each = every / how.pairs
        pays = [
            math.ceil(built / (other - each)) if other > each else "never"
            for other in (alone, batch)
        ]
        result = report.result
        print(
            f"{cost}: {result['bytes_per_cell']} bytes per cell, build {built:.2f} s; first query "
            f"{first:.3f} s, {how.pairs} queries {each:.3f} s each, with paths "
            f"{lines / how.pairs:.3f}; shortest_paths {alone:.3f}, cost_matrix {batch:.3f} s a "
            f"source; pays from {pays[0]} and {pays[1]} pairs; "
            f"{found.report.result['tiles_read']} tiles read",
            flush=True,
        )


if __name__ == "__main__":
    main()
