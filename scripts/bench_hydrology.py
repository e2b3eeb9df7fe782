"""Time hydrology on a fractal DEM, from store to store, beside other programs in memory.

    taskset -c 0,1 python scripts/bench_hydrology.py 8192 /tmp/hydrology
    taskset -c 0,1 python scripts/bench_hydrology.py 4096 /tmp/hydrology --others

Peers (pyflwdir, TopoToolbox, r.watershed) run if they are installed; their inputs are in memory
before the clock starts. Medians of seconds. Results are compared: filled heights with
TopoToolbox's, cell for cell; accumulation along pyflwdir's directions with its own. `--others`:
operations that no peer has, or that run on the CPU only, without peers, over the same terrain
rounded to metres, where half of the cells are flat.
"""

from __future__ import annotations

import argparse
import functools
import os
import resource
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from affine import Affine
from make_terrain import terrain_window
from rasterio.crs import CRS

import terrain_gpu
from terrain_gpu.grid import GridSpec

RUNS = 3
UTM = CRS.from_epsg(32633).to_wkt()


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def timed(name: str, cells: int, work: Callable[[], Any], runs: int = RUNS) -> Any:
    """Run once to compile, then `runs` times."""
    found = work()
    wall, processor = [], []
    for _ in range(runs):
        start, before = time.perf_counter(), cpu()
        found = work()
        wall.append(time.perf_counter() - start)
        processor.append(cpu() - before)
    seconds = statistics.median(wall)
    print(
        f"{name:34s} {seconds:8.2f} s  {cells / seconds / 1e6:7.1f} M cells/s  "
        f"{statistics.median(processor):8.2f} s of processors",
        flush=True,
    )
    return found


def make(path: Path, z: np.ndarray) -> None:
    grid = GridSpec(*z.shape, (10.0, 0.0, 0.0, 0.0, -10.0, 0.0), UTM)
    with terrain_gpu.create_layer(path, "elevation", grid, z.dtype, block_size=1024) as target:
        for at in target.blocks.ids():
            r0, r1, c0, c1 = target.block_window(*at)
            target.write_block(*at, np.ascontiguousarray(z[r0:r1, c0:c1]))
        target.commit()


def ours(path: Path, z: np.ndarray) -> dict[str, np.ndarray]:
    cells, how = z.size, {"overwrite": True}
    make(path, z)
    tree = timed("spanning tree", cells, lambda: terrain_gpu.minimum_spanning_tree(
        path, weight="flow", backend="cpu", **how
    ))  # fmt: skip
    assert tree.report.valid_cells == cells
    timed("flow-direction", cells, lambda: terrain_gpu.flow_direction(path, **how))
    found = {
        "sums": timed("flow-accumulation", cells, lambda: terrain_gpu.flow_accumulation(
            path, **how
        )),
        "filled": timed("fill", cells, lambda: terrain_gpu.fill(path, **how)),
    }  # fmt: skip
    timed("basins", cells, lambda: terrain_gpu.basins(path, **how))
    timed("hand, 1000 cells", cells, lambda: terrain_gpu.hand(path, 1000, **how))
    for count in (1, 100_000):
        drawn = np.random.default_rng(0).integers(0, z.shape, (count, 2))
        points = list(map(tuple, drawn.tolist()))
        timed(f"watershed, {count} points", cells, lambda given=points: terrain_gpu.watershed(
            path, given, **how
        ))  # fmt: skip
    for ending in (".gpkg", ".geojson"):
        lines = path.with_suffix(ending)
        timed(f"streams, 1000 cells, lines {ending}", cells, lambda to=lines: terrain_gpu.streams(
            path, 1000, lines=to, **how
        ))  # fmt: skip
    for words, limit in (("in memory", None), ("spilled", "500MB")):
        timed(f"streams, 2 cells, {words}", cells, lambda limit=limit: terrain_gpu.streams(
            path, 2, order="horton", memory_limit=limit, **how
        ))  # fmt: skip
    return {
        name: one.layers[next(iter(one.layers))].read_window(0, z.shape[0], 0, z.shape[1])
        for name, one in found.items()
    }


def others(path: Path, z: np.ndarray) -> None:
    make(path, z)
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
        timed(name, z.size, functools.partial(work, overwrite=True))


def topotoolbox(z: np.ndarray, found: dict[str, np.ndarray]) -> None:
    try:
        from topotoolbox import _grid
    except ImportError:
        return
    fixed = np.zeros(z.shape, np.uint8)
    fixed[[0, -1]] = fixed[:, [0, -1]] = 1
    out, queue = np.empty_like(z), np.empty(z.shape, np.int64)
    dims = (z.shape[1], z.shape[0])
    timed("TopoToolbox fillsinks hybrid", z.size, lambda: _grid.fillsinks_hybrid(
        out, queue, z, fixed, dims
    ))  # fmt: skip
    print("filled heights are equal:", np.array_equal(out, found["filled"]))


def pyflwdir(z: np.ndarray, path: Path) -> None:
    try:
        import pyflwdir
    except ImportError:
        return
    outer = timed("pyflwdir from_dem", z.size, lambda: pyflwdir.from_dem(z, outlets="edge"), 1)
    sums = timed("pyflwdir upstream_area", z.size, lambda: outer.upstream_area("cell"), 1)
    grid = terrain_gpu.TileStore.open(path).grid
    codes = outer.to_array(ftype="d8")
    with terrain_gpu.create_layer(path, "theirs", grid, "uint8", nodata=247, block_size=1024) as to:
        for at in to.blocks.ids():
            r0, r1, c0, c1 = to.block_window(*at)
            to.write_block(*at, np.ascontiguousarray(codes[r0:r1, c0:c1]))
        to.commit()
    along = terrain_gpu.flow_accumulation(path, directions="theirs", into="along")
    own = along.layers["along"].read_window(0, z.shape[0], 0, z.shape[1])
    print("sums along its directions are equal:", np.array_equal(own, sums))


def watershed_of_grass(z: np.ndarray, folder: Path) -> None:
    """Directions and accumulation by r.watershed, in memory, without its import of the raster."""
    if not shutil.which("grass"):
        return
    place = {"width": z.shape[1], "height": z.shape[0], "transform": Affine(10, 0, 0, 0, -10, 0)}
    with rasterio.open(
        folder / "z.tif", "w", driver="GTiff", count=1, dtype=z.dtype, **place
    ) as file:
        file.write(z, 1)
    script = (
        f"r.in.gdal -o {folder / 'z.tif'} output=z --q; g.region raster=z; "
        "TIMEFORMAT='%R s, %U s of processors'; time "
        "r.watershed -s elevation=z drainage=d accumulation=a --q"
    )
    command = ["grass", "--tmp-location", "XY", "--exec", "bash", "-c", script]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    told = next(line for line in done.stderr.splitlines() if line.endswith("s of processors"))
    print("r.watershed, directions and accumulation:", told, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("side", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--others", action="store_true")
    asked = parser.parse_args()
    print(f"{asked.side} x {asked.side} float32, {len(os.sched_getaffinity(0))} cores")
    z = terrain_window(0, asked.side, 0, asked.side, lakes=True)
    path = asked.folder / f"hydrology{asked.side}.zarr"
    if asked.others:
        others(path, np.rint(z))
        return
    found = ours(path, z)
    topotoolbox(z, found)
    pyflwdir(z, path)
    watershed_of_grass(z, asked.folder)


if __name__ == "__main__":
    main()
