"""After how many queries does a distance index pay? Its size, its build, and queries of pairs.

For each cost: bytes per cell; CPU seconds to build it; for random pairs with different starts, of
one query alone, and of one of many; of `shortest_paths` that stops at its target, and of
`cost_matrix`, whose batches hold eight sources; and after how many pairs the build and the queries
have taken less. All with one thread, so that CPU seconds compare.
"""

from __future__ import annotations

import argparse
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import rasterio

from bench.stores import add_layer
from bench.table import Table
from bench.terrain import fractal
from bench.timing import timed
from terrain_gpu import GridSpec, build_index, cost_matrix, query_index, shortest_paths

COSTS: dict[str, dict[str, Any]] = {
    "absdiff": {},
    "friction": {"friction": "friction"},
    "surface": {},
    "tobler": {},
    "minimax": {},
}


def heights(dem: Path | None, window: list[int] | None) -> tuple[np.ndarray, Any, GridSpec | None]:
    """Cells, the nodata value and the grid of a window of a raster; or fractal terrain."""
    if dem is None:
        return fractal(window[2] if window else 1024, "uint16"), None, None
    with rasterio.open(dem) as source:
        row, col, side = window or (0, 0, max(source.shape))
        part = (row, row + side), (col, col + side)
        cells, at = source.read(1, window=part), source.window_transform(part)
        wkt = source.crs.to_wkt() if source.crs else ""
        return cells, source.nodata, GridSpec(*cells.shape, tuple(at)[:6], wkt)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("dem", nargs="?", type=Path, help="a raster, or fractal terrain")
    parser.add_argument(
        "--window", metavar="ROW,COL,SIDE", type=lambda text: list(map(int, text.split(",")))
    )
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--runs", type=int, default=5, help="of shortest_paths")


def cpu_seconds(work: Callable[[], Any]) -> float:
    """CPU seconds of this process."""
    return timed(work)[0].processor


def run(given: argparse.Namespace) -> None:
    """Print the table."""
    store = given.work / "index-queries.zarr"
    shutil.rmtree(store, ignore_errors=True)
    cells, nodata, grid = heights(given.dem, given.window)
    step = abs(grid.transform[0]) if grid else 10.0
    slope = np.hypot(*np.gradient(cells.astype(np.float32))) / step
    friction = (1 + np.minimum(4 * slope, 4)).astype(np.float32)
    add_layer(store, cells, grid=grid, nodata=nodata)
    add_layer(store, friction, grid=grid, layer="friction")
    good = np.argwhere(cells != nodata if nodata is not None else np.isfinite(cells))
    rng = np.random.default_rng(1)
    ends = good[rng.choice(len(good), 2 * given.pairs)].reshape(-1, 2, 2).tolist()
    starts, stops = [tuple(a) for a, _ in ends], [tuple(b) for _, b in ends]
    print(f"{given.dem or 'fractal'}: {cells.shape}, {given.pairs} pairs, CPU seconds\n")
    table = Table(
        "cost | bytes per cell | build | first query | one of many | with its path | "
        "shortest_paths | cost_matrix, a source | pays from pairs | or | tiles read"
    )
    for cost, more in COSTS.items():
        own = {"cost": cost, **more, "threads": 1}
        how = {**own, "backend": "cpu", "overwrite": True}

        def sssp(k: int, how: dict[str, Any] = how) -> Any:
            stop = {"targets": [stops[k]], "stop_at_targets": True}
            return shortest_paths(store, [starts[k]], **how, **stop)

        def matrix(own: dict[str, Any] = own) -> Any:
            return cost_matrix(store, starts[:8], stops[:8], **own)

        build_index(store, **how)  # compiles
        query_index(store, starts[:1], stops[:1])
        sssp(0)
        matrix()
        spent, report = timed(build_index, store, **how)
        built = spent.processor
        first = cpu_seconds(lambda: query_index(store, starts[:1], stops[:1]))
        spent, found = timed(query_index, store, starts, stops)
        each = spent.processor / given.pairs
        lines = cpu_seconds(lambda: query_index(store, starts, stops, trace=True)) / given.pairs
        alone = cpu_seconds(lambda one=sssp: [one(k) for k in range(given.runs)]) / given.runs
        batch = cpu_seconds(matrix) / 8
        pays = (
            math.ceil(built / (other - each)) if other > each else "never"
            for other in (alone, batch)
        )
        size, tiles = report.result["bytes_per_cell"], found.report.result["tiles_read"]
        table.row(cost, size, built, first, each, lines, alone, batch, *pays, tiles)
