"""What the commands of the net are given: small rasters, vector files and tables, from a seed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import rasterio

ROWS, COLS, NODATA = 300, 400, -9999
CELL = 30.0, 25.0
WEST, NORTH = 500_000.0, 5_000_000.0


UTM: dict[str, Any] = {
    "crs": "EPSG:32633",
    "transform": rasterio.Affine(CELL[0], 0, WEST, 0, -CELL[1], NORTH),
}


def make(folder: Path) -> None:
    """Write all inputs into a folder."""
    rng = np.random.default_rng(47)
    dem = heights(rng, ROWS, COLS)
    walls = np.zeros(dem.shape, "u1")
    walls[40:250, 130] = walls[200, 10:380] = 1
    walls[100, 130] = walls[200, 300] = 0
    save(folder / "dem.tif", dem, nodata=NODATA)
    save(folder / "walls.tif", walls)
    _aligned(folder, rng, dem)
    _of_other_kinds(folder, rng, dem[:150, :140])
    free = rng.permutation(np.argwhere((dem != NODATA) & (walls == 0)))
    _features(folder, [_point(*map(int, cell)) for cell in free[:40]])
    (folder / "classes.csv").write_text("class,value\n1,1\n2,2.5\n3,4\n4,\n5,9\n")
    (folder / "few.csv").write_text("class,value\n1,1\n2,3\n")
    (folder / "factors.txt").write_text("-60 4\n-10 0.8\n0 1\n20 2.5\n60 9\n")
    for path in folder.iterdir():  # stores record the times of their sources
        os.utime(path, (10**9, 10**9))


def save(path: Path, cells: np.ndarray, **how: Any) -> None:
    """Write one band, or several, as a GeoTIFF on the grid of the net."""
    bands = cells if cells.ndim == 3 else cells[None]
    shape = {"count": len(bands), "height": bands.shape[1], "width": bands.shape[2]}
    profile = {"driver": "GTiff", "dtype": bands.dtype.name, **UTM, **shape, **how}
    with rasterio.open(path, "w", **profile) as file:
        file.write(bands)


def _aligned(folder: Path, rng: np.random.Generator, dem: np.ndarray) -> None:
    """Rasters on the grid of the elevations."""
    valid = dem != NODATA
    save(folder / "whole.tif", np.where(valid, np.floor(dem), NODATA).astype("i2"), nodata=NODATA)
    friction = rng.integers(1, 9, dem.shape).astype("f4")
    friction[rng.random(dem.shape) < 0.01] = 0
    friction[rng.random(dem.shape) < 0.01] = -1
    save(folder / "friction.tif", friction, nodata=-1)
    classes = np.kron(rng.integers(1, 6, (30, 40), "u1"), np.ones((10, 10), "u1"))
    save(folder / "landcover.tif", classes, nodata=0)
    save(folder / "rain.tif", rng.integers(0, 50, dem.shape).astype("f4") / 1000)
    zones = np.zeros(dem.shape, "u2")
    zones[20:40, 30:60], zones[150:170, 200:240], zones[260:290, 340:390] = 7, 3, 12
    save(folder / "zones.tif", zones, nodata=0)
    globe = heights(rng, 90, 180)
    degrees = rasterio.Affine(2, 0, -180, 0, -2, 90)
    save(folder / "globe.tif", globe, nodata=NODATA, crs="EPSG:4326", transform=degrees)


def _of_other_kinds(folder: Path, rng: np.random.Generator, small: np.ndarray) -> None:
    """What conversions read: other types, layouts, masks, parts of a mosaic, texts, and damage."""
    tiles = {"tiled": True, "blockxsize": 64, "blockysize": 64}
    void = small == NODATA
    save(folder / "tiles.tif", small, nodata=NODATA, compress="deflate", **tiles)
    strips = {"compress": "lzw", "blockysize": 7}
    save(folder / "strips.tif", small.astype("f8"), nodata=NODATA, **strips)
    bands = np.stack((small, small + 1)).astype("i4")
    save(folder / "bands.tif", bands, interleave="pixel", compress="zstd")
    save(folder / "exact.tif", np.where(void, -1, small).astype("i8") * 2**40, **tiles)
    save(folder / "masked.tif", small.astype("i2"), **tiles)
    with rasterio.open(folder / "masked.tif", "r+") as file:
        file.write_mask(small > 300)
    save(folder / "west.tif", small[:, :80], nodata=NODATA)
    for name, first in (("east", 60), ("far", 200)):
        moved = UTM["transform"] @ rasterio.Affine.translation(first, 0)
        save(folder / f"{name}.tif", small[:, 60:], nodata=NODATA, transform=moved)
    large = np.where(np.arange(150)[:, None] == 120, 1e12, small)
    save(folder / "large.tif", large, nodata=NODATA)
    square = rasterio.Affine(30, 0, WEST, 0, -30, NORTH)
    text = {"driver": "AAIGrid", "crs": None, "transform": square}
    save(folder / "small.asc", small[:30, :40], nodata=NODATA, **text)
    lines = "\n".join(" ".join("*" if v == NODATA else f"{v:.2f}" for v in row) for row in small)
    sides = f"north: {NORTH}\nsouth: {NORTH - 4500}\neast: {WEST + 4200}\nwest: {WEST}\n"
    head = f"{sides}rows: 150\ncols: 140\nnull: *\ntype: float\n"
    (folder / "small.grass").write_text(f"{head}{lines}\n")
    codes = np.where(void, 255, 1 << rng.integers(0, 8, small.shape)).astype("u1")
    save(folder / "codes.tif", codes, nodata=255)
    (folder / "cut.tif").write_bytes((folder / "strips.tif").read_bytes()[:25_000])
    (folder / "empty.tif").write_bytes(b"")
    (folder / "text.tif").write_text("no raster\n")


def _features(folder: Path, places: list[list[float]]) -> None:
    """Points at these places, lines, a polygon, and a table of pairs."""

    def write(name: str, shapes: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
        made = [{"type": "Feature", "geometry": shape, "properties": p} for shape, p in shapes]
        crs = {"type": "name", "properties": {"name": UTM["crs"]}}
        text = json.dumps({"type": "FeatureCollection", "crs": crs, "features": made})
        (folder / name).write_text(text)

    for name, part in (("huts", 5), ("towns", 4), ("gauges", 6), ("outlets", 3)):
        here, places = places[:part], places[part:]
        points = [{"type": "Point", "coordinates": place} for place in here]
        fields = [
            {"id": 3 * n, "name": f"place {n}", "start": n / 2, "limit": 900.0 * n}
            for n in range(1, part + 1)
        ]
        write(f"{name}.geojson", list(zip(points, fields, strict=True)))
    river = [_point(r, c) for r, c in ((5, 5), (100, 120), (180, 220), (290, 390))]
    brook = [_point(r, c) for r, c in ((20, 380), (120, 300), (180, 220))]
    lines = [{"type": "LineString", "coordinates": line} for line in (river, brook)]
    write("rivers.geojson", [(line, {"width": 2.5 + n}) for n, line in enumerate(lines)])
    ring = [_point(r, c) for r, c in ((150, 40), (150, 90), (190, 90), (190, 40), (150, 40))]
    lake = {"type": "Polygon", "coordinates": [ring]}
    write("lakes.geojson", [(lake, {"id": 4, "name": "lake", "cost": 1.5})])
    ends = zip(places[:8], places[8:16], strict=True)
    pairs = "\n".join(f"p{n},{x},{y},{u},{v}" for n, ((x, y), (u, v)) in enumerate(ends))
    (folder / "pairs.csv").write_text(f"id,from_x,from_y,to_x,to_y\n{pairs}\n")


def heights(rng: np.random.Generator, rows: int, cols: int) -> np.ndarray:
    """Hills in steps of 1/4, with pits, a plain, lakes of nodata, and single cells of nodata."""
    y, x = np.mgrid[:rows, :cols] / max(rows, cols)
    hills = 300 * np.sin(5 * x + 1) * np.cos(4 * y) + 200 * x + 100 * y + 400
    rough = np.kron(rng.random((rows // 5 + 1, cols // 5 + 1)), np.ones((5, 5)))
    hills += 25 * rough[:rows, :cols]
    found = (np.round(4 * (hills + 6 * rng.random((rows, cols)))) / 4).astype("f4")
    found[rows // 3 : rows // 2, cols // 8 : cols // 4] = 450  # a plain, partly in a depression
    pits = rng.random(found.shape) < 0.01
    found[pits] -= 20
    found[rows // 2 : rows * 7 // 12, cols // 2 : cols * 3 // 5] = NODATA
    found[: rows // 15, -cols // 11 :] = NODATA
    found[rng.random(found.shape) < 0.004] = NODATA
    return found


def _point(row: int, col: int) -> list[float]:
    return [WEST + (col + 0.5) * CELL[0], NORTH - (row + 0.5) * CELL[1]]
