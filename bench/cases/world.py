"""What does travel time to the nearest city take over the whole Earth, end to end?

A synthetic friction surface (minutes per metre, float32, seas without a value) from 85 N to 60 S,
by default of 30 arc-seconds, as those of the Malaria Atlas Project are. The raster is converted,
and the time to the nearest of the cities and which one it is are computed, each by a command of its
own. With --check, the raster is rolled by a third of its columns and computed again: the times must
be the same bits.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import numpy as np
import rasterio
from rasterio.transform import Affine
from rasterio.windows import Window

from bench.programs import run as run_program
from bench.table import Table
from bench.timing import phases
from terrain_gpu import TileStore

NORTH, SOUTH = 85, -60
OCTAVES = 6
STRIP = 128
SEA = 0.0
"""Noise below is sea, about half of the cells."""
SEED = 18


def noise(shape: tuple[int, int], rows: range) -> np.ndarray:
    """Fractal noise of some rows, which joins at the sides."""
    total = np.zeros((len(rows), shape[1]), np.float32)
    for octave in range(OCTAVES):
        across, down = 12 << octave, 5 << octave
        nodes = np.random.default_rng((SEED, octave)).standard_normal((down + 2, across))
        y, x = np.array(rows) / shape[0] * down, np.arange(shape[1]) / shape[1] * across
        i, j = y.astype(int), x.astype(int)
        v, u = (y - i)[:, None].astype(np.float32), (x - j).astype(np.float32)
        left, right = (nodes[:, k % across].astype(np.float32) for k in (j, j + 1))
        lines = left + (right - left) * u * u * (3 - 2 * u)
        v = v * v * (3 - 2 * v)
        total += (lines[i] * (1 - v) + lines[i + 1] * v) * np.float32(0.6**octave)
    return total


def write_world(file: Path, columns: int, cities: int, rolled: int) -> list[tuple[int, int]]:
    """Write the friction surface, rolled by some columns; return cells of cities."""
    shape = columns * (NORTH - SOUTH) // 360, columns
    cell = 360 / columns
    profile = {
        "driver": "GTiff", "height": shape[0], "width": columns, "count": 1, "dtype": "float32",
        "nodata": -9999, "crs": "EPSG:4326", "transform": Affine(cell, 0, -180, 0, -cell, NORTH),
        "tiled": True, "compress": "zstd", "BIGTIFF": "IF_SAFER",
    }  # fmt: skip
    rng = np.random.default_rng(SEED)
    wanted = np.sort(rng.integers(0, shape[0], 4 * cities))
    found: list[tuple[int, int]] = []
    with rasterio.open(file, "w", **profile) as out:
        for row in range(0, shape[0], STRIP):
            rows = range(row, min(row + STRIP, shape[0]))
            heights = noise(shape, rows)
            friction = 0.0006 + 0.02 * np.abs(np.sin(8 * heights)) ** 3
            cells = np.where(heights < SEA, np.float32(-9999), friction.astype(np.float32))
            for k in wanted[(wanted >= row) & (wanted < rows.stop)]:
                col = int(rng.integers(columns))
                if cells[k - row, col] >= 0:
                    found.append((int(k), (col + rolled) % columns))
            window = Window(0, row, columns, len(rows))
            out.write(np.roll(cells, rolled, axis=1), 1, window=window)
    return [found[k] for k in np.sort(rng.permutation(len(found))[:cities])]


def write_cities(file: Path, cells: list[tuple[int, int]], columns: int) -> None:
    """Write the centres of cells as GeoJSON."""
    cell, features = 360 / columns, []
    for number, (row, col) in enumerate(sorted(set(cells)), 1):
        at = [-180 + (col + 0.5) * cell, NORTH - (row + 0.5) * cell]
        point = {"type": "Point", "coordinates": at}
        features.append({"type": "Feature", "properties": {"id": number}, "geometry": point})
    file.write_text(json.dumps({"type": "FeatureCollection", "features": features}))


def compute(folder: Path, given: argparse.Namespace, rolled: int, table: Table) -> Path:
    """Convert and compute; returns the store."""
    folder.mkdir(parents=True, exist_ok=True)
    friction, cities = folder / "friction.tif", folder / "cities.geojson"
    store = folder / "world.zarr"
    write_cities(cities, write_world(friction, given.columns, given.cities, rolled), given.columns)
    limits = ["--memory-limit", given.memory_limit, "--threads", given.threads, "--overwrite"]
    costs = ["--layer", "friction", "--cost", "friction", "--friction", "friction"]
    costs += ["--sources", cities, "--allocation", folder / "city.tif", "--backend", given.backend]
    for words in (
        ["convert-dataset", friction, store, "--layer", "friction"],
        ["compute-sssp", store, *costs],
    ):
        spent, peak, report = run_program(*words, *limits)
        table.row(words[0], *spent, peak / 1e9, phases(report["seconds"]))
    result = report["result"]
    keys = "tile_visits_per_tile", "spilled_bytes", "regions", "region_visits", "reached", "wrap"
    print(f"    {', '.join(f'{key} {result[key]}' for key in keys if key in result)}", flush=True)
    return store


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--columns", type=int, default=43200, help="a multiple of 72")
    parser.add_argument("--cities", type=int, default=10_000)
    parser.add_argument("--memory-limit", default="2GB")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--check", action="store_true", help="a rolled raster, too")


def run(given: argparse.Namespace) -> None:
    """Print the table."""
    table = Table("command | s | s of processors | peak GB | s by phase")
    store = compute(given.work / "world", given, 0, table)
    if not given.check:
        return
    rolled = given.columns // 3
    other = compute(given.work / "rolled", given, rolled, table)
    one, two = (TileStore.open(path).layer("distance") for path in (store, other))
    for row in range(0, one.grid.rows, STRIP):
        rows = row, min(row + STRIP, one.grid.rows)
        right, found = (a.read_window(*rows, 0, given.columns) for a in (one, two))
        if np.roll(right, rolled, axis=1).tobytes() != found.tobytes():
            raise SystemExit(f"the times of the rolled raster differ in rows from {row}")
    print("the rolled raster has the same times, bit for bit")
