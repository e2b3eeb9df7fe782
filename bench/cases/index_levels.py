"""What do levels above the tiles of a distance index cost, and gain for queries of pairs?

For each number of levels: bytes of the index for each cell; CPU seconds of the build; milliseconds
for one query alone, which reads what it needs; and, with all that in memory, for each of many pairs
at random, of pairs at most 100 cells apart, and of one start and as many ends. All with one thread,
the least of some rounds. Costs must be the same with every number of levels: bit for bit those of
integers and minimax, others within 1e-12.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import rasterio

from bench.stores import add_layer
from bench.table import Table
from bench.terrain import spectral
from bench.timing import repeated
from terrain_gpu import TileStore, build_index, query_index
from terrain_gpu.paths.distance_index.search import RimSearch
from terrain_gpu.paths.distance_index.stored import stored_index

Cells = list[tuple[int, int]]


def read(dem: Path, side: int) -> np.ndarray:
    """The upper left cells of a raster, without values below 0."""
    with rasterio.open(dem) as source:
        cells = source.read(1, window=((0, side), (0, side)))
    return np.maximum(cells, 0).astype(cells.dtype)


def least(rounds: int, work: Callable[[], Any]) -> tuple[float, Any]:
    """The least CPU seconds of this process after a round that compiles, and the last result."""
    spent, found = repeated(work, rounds, min)
    return spent.processor, found


def measure(store: Path, cost: str, how: argparse.Namespace) -> None:
    """Print a row for each number of levels."""
    shape = TileStore.open(store).grid.shape
    rng = np.random.default_rng(3)
    starts, far = rng.integers(0, shape, (2, how.pairs, 2))
    near = np.clip(starts + rng.integers(-100, 101, starts.shape), 0, np.array(shape) - 1)
    starts, far, near = (list(map(tuple, cells.tolist())) for cells in (starts, far, near))
    friction = {"friction": "elevation"} if cost == "friction" else {}
    table = Table(
        "levels | bytes per cell | build, s | alone, ms | far | near | one start, far ends"
    )
    expected: list[Any] = []
    for levels in range(how.levels + 1):
        costs = {"cost": cost, **friction, "tile": how.tile, "levels": levels, "threads": 1}
        build, built = least(
            1, lambda costs=costs: build_index(store, **costs, backend="cpu", overwrite=True)
        )
        alone = [least(2, lambda p=p: query_index(store, [p[0]], [p[1]]))[0]
                 for p in zip(starts[:5], far[:5], strict=True)]  # fmt: skip
        operation, index = stored_index(TileStore.open(store))
        search = RimSearch(operation, index, 8 * 10**9, lines=False, levels=levels)

        def pairs(ends: Cells, search: RimSearch = search) -> np.ndarray:
            return np.array([search.costs(a, [b])[0] for a, b in zip(starts, ends, strict=True)])

        times, found = [], []
        for work in (
            lambda: pairs(far),
            lambda: pairs(near),
            lambda search=search: search.costs(starts[0], far),
        ):
            seconds, costs_found = least(3, work)
            times.append(seconds)
            found.append(costs_found)
        expected = expected or found
        for mine, theirs in zip(found, expected, strict=True):
            if search.dtype.kind == "u" or cost == "minimax":
                np.testing.assert_array_equal(mine, theirs)
            np.testing.assert_allclose(mine, theirs, rtol=1e-12)
        each = [1e3 * np.mean(alone), *(1e3 * s / how.pairs for s in times[:2]), 1e3 * times[2]]
        table.row(levels, built.result["bytes_per_cell"], build, *map(float, each))


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--side", type=int, default=2048)
    parser.add_argument("--costs", nargs="+", default=["absdiff", "minimax", "friction"])
    parser.add_argument("--dem", type=Path, help="a raster, or spectral terrain")
    parser.add_argument("--tile", type=int, default=64)
    parser.add_argument("--levels", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=50)


def run(given: argparse.Namespace) -> None:
    """Print a table for each cost."""
    cells = np.rint(spectral(np, given.side)).astype(np.uint16)
    if given.dem:
        cells = read(given.dem, given.side)
    for cost in given.costs:
        store, own = given.work / f"{cost}-{given.side}.zarr", cells
        if cost == "friction":
            own = (cells / 250 + 0.5).astype(np.float32)
        add_layer(store, own, overwrite=True)
        of = given.dem.name if given.dem else "f^-1.8"
        print(f"\n{cost}, {' x '.join(map(str, cells.shape))} of {of}, tiles of {given.tile}\n")
        measure(store, cost, given)
