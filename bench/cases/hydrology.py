"""How fast is hydrology from store to store, compared with other programs in memory?

    taskset -c 0,1 python -m bench hydrology --side 8192
    taskset -c 0,1 python -m bench hydrology --side 4096 --others

Peers (pyflwdir, TopoToolbox, r.watershed) run if they are installed; their inputs are in memory
before the clock starts. Medians of seconds. Results are compared: filled heights with
TopoToolbox's, cell for cell; accumulation along pyflwdir's directions with its own. --others:
operations that no peer has, or that run on the CPU only, without peers, over the same terrain
rounded to metres, where half of the cells are flat.
"""

from __future__ import annotations

import argparse
import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rasterio.crs import CRS

import terrain_gpu
from bench import peers
from bench.stores import add_layer, cells_of, square_cells
from bench.table import Table
from bench.terrain import fractal
from bench.timing import repeated

UTM = CRS.from_epsg(32633).to_wkt()


class Times:
    """The table of one raster."""

    def __init__(self, cells: int, rounds: int) -> None:
        self.cells, self.rounds = cells, rounds
        self.table = Table("operation | s | M cells/s | s of processors")

    def __call__(self, name: str, work: Callable[[], Any], rounds: int | None = None) -> Any:
        """Add a row; returns the last result."""
        spent, found = repeated(work, rounds or self.rounds)
        self.table.row(name, spent.wall, self.cells / spent.wall / 1e6, spent.processor)
        return found


def made(path: Path, z: np.ndarray) -> None:
    """A store of heights."""
    shutil.rmtree(path, ignore_errors=True)
    add_layer(path, z, grid=square_cells(z.shape, crs=UTM), block_size=1024)


def ours(path: Path, z: np.ndarray, timed: Times) -> None:
    """What peers have, too."""
    one, how = terrain_gpu, {"overwrite": True}
    made(path, z)
    flow = {"weight": "flow", "backend": "cpu"}
    tree = timed("spanning tree", lambda: one.minimum_spanning_tree(path, **flow, **how))
    assert tree.report.valid_cells == z.size
    timed("flow-direction", lambda: one.flow_direction(path, **how))
    timed("flow-accumulation", lambda: one.flow_accumulation(path, **how))
    timed("fill", lambda: one.fill(path, **how))
    timed("basins", lambda: one.basins(path, **how))
    timed("hand, 1000 cells", lambda: one.hand(path, 1000, **how))
    for count in (1, 100_000):
        drawn = np.random.default_rng(0).integers(0, z.shape, (count, 2))
        points = list(map(tuple, drawn.tolist()))
        timed(f"watershed, {count} points", lambda at=points: one.watershed(path, at, **how))
    for ending in (".gpkg", ".geojson"):
        lines = {"lines": path.with_suffix(ending), **how}
        timed(f"streams, 1000 cells, {ending}", lambda more=lines: one.streams(path, 1000, **more))
    for words, limit in (("in memory", None), ("spilled", "500MB")):
        orders = {"order": "horton", "memory_limit": limit, **how}
        timed(f"streams, 2 cells, {words}", lambda more=orders: one.streams(path, 2, **more))


def others(path: Path, z: np.ndarray, timed: Times) -> None:
    """What no peer has."""
    made(path, z)
    one = terrain_gpu
    one.minimum_spanning_tree(path, weight="flow", backend="cpu", overwrite=True)
    one.flow_direction(path, overwrite=True)
    one.flow_accumulation(path, areas=True, overwrite=True)
    one.fill(path, overwrite=True)
    lines = path.with_suffix(".gpkg")
    works: dict[str, Callable[..., Any]] = {
        "reading and writing (calc)": lambda **how: one.calc(path, "elevation + 0", **how),
        "basins": lambda **how: one.basins(path, **how),
        "watershed, one point": lambda **how: one.watershed(path, [(9, 9)], **how),
        "streams, 1000 cells, with lines": lambda **how: one.streams(
            path, "0.1km2", lines=lines, **how
        ),
        "hand, 1000 cells": lambda **how: one.hand(path, "0.1km2", **how),
        "flow-direction, gradient": lambda **how: one.flow_direction(
            path, flats="gradient", into="gradient", **how
        ),
        "fill, epsilon": lambda **how: one.fill(path, epsilon=True, into="sloping", **how),
        "flow-accumulation, dinf": lambda **how: one.flow_accumulation(
            path, method="dinf", into="dinf", **how
        ),
        "flow-accumulation, mfd": lambda **how: one.flow_accumulation(
            path, method="mfd", into="mfd", **how
        ),
        "hand, dinf": lambda **how: one.hand(path, "0.1km2", method="dinf", into="averages", **how),
        "breach": lambda **how: one.breach(path, **how),
        "depressions": lambda **how: one.depressions(path, **how),
        "fill-spill-merge": lambda **how: one.fill_spill_merge(path, rain=0.1, **how),
        "slope": lambda **how: one.slope(path, **how),
        "terrain-indices, three": lambda **how: one.terrain_indices(
            path, twi="twi", spi="spi", ls="ls", **how
        ),
    }
    for name, work in works.items():
        timed(name, functools.partial(work, overwrite=True))


def topotoolbox(path: Path, z: np.ndarray, timed: Times) -> None:
    """Filled heights."""
    try:
        from topotoolbox import _grid
    except ImportError:
        return
    fixed = np.zeros(z.shape, np.uint8)
    fixed[[0, -1]] = fixed[:, [0, -1]] = 1
    out, queue = np.empty_like(z), np.empty(z.shape, np.int64)
    arguments = out, queue, z, fixed, (z.shape[1], z.shape[0])
    timed("TopoToolbox fillsinks hybrid", lambda: _grid.fillsinks_hybrid(*arguments))
    print("filled heights are equal:", np.array_equal(out, cells_of(path, "filled")))


def pyflwdir(path: Path, z: np.ndarray, timed: Times) -> None:
    """Directions and sums."""
    try:
        import pyflwdir
    except ImportError:
        return
    flow = timed("pyflwdir from_dem", lambda: pyflwdir.from_dem(z, outlets="edge"), 1)
    sums = timed("pyflwdir upstream_area", lambda: flow.upstream_area("cell"), 1)
    grid, codes = terrain_gpu.TileStore.open(path).grid, flow.to_array(ftype="d8")
    add_layer(path, codes, layer="theirs", grid=grid, nodata=247, block_size=1024)
    terrain_gpu.flow_accumulation(path, directions="theirs", into="along")
    print("sums along its directions are equal:", np.array_equal(cells_of(path, "along"), sums))


def watershed_of_grass(path: Path, z: np.ndarray, timed: Times) -> None:
    """Directions and sums by r.watershed, in memory."""
    if peers.has_grass():
        command = "r.watershed -s elevation=z drainage=d accumulation=a --q"
        spent = peers.grass(path.parent, z, [], command)
        timed.table.row("r.watershed", spent.wall, z.size / spent.wall / 1e6, spent.processor)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--others", action="store_true")


def run(given: argparse.Namespace) -> None:
    """Print the table."""
    z, path = fractal(given.side, lakes=True), given.work / f"hydrology{given.side}.zarr"
    timed = Times(z.size, given.rounds)
    if given.others:
        others(path, np.rint(z), timed)
        return
    for work in (ours, topotoolbox, pyflwdir, watershed_of_grass):
        work(path, z, timed)
