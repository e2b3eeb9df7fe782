"""The files of a case: rasters in many layouts, points as GeoJSON and GeoPackage."""

from __future__ import annotations

import json
import struct
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyogrio.raw
import rasterio
import rasterio.shutil
from rasterio.transform import Affine

from terrain_gpu import cells as values

from .cases import Terrain
from .oracles import Truth

Point = tuple[int, int, float | None, int]
"""Row, column, start cost, id."""


def write(
    folder: Path, terrain: Terrain, layer: str, how: str, variant: int
) -> tuple[list[str], Truth]:
    """Names of one raster's files, written if missing, and what they hold."""
    if layer == "friction":
        truth = Truth(terrain.friction())
    elif layer == "barriers":
        truth = Truth(terrain.barriers())
    else:
        truth = Truth(terrain.raster(variant), values.from_json(terrain.nodata))
    kind = truth.cells.dtype
    # Numbers of ten digits in ASCII make real cells.
    whole = (
        kind in (np.uint8, np.int16, np.int32) and abs(truth.cells.astype(np.int64)).max() < 10**9
    )
    if (how == "ascii" and not whole) or (how == "grass" and not (whole or _plain(truth))):
        how = "plain"
    stem = f"in-{layer}-{how}-{variant}"
    if how == "grass":
        truth = _grass(folder / f"{stem}.txt", terrain, truth)
        return [f"{stem}.txt"], truth
    if how == "ascii":
        path = folder / f"{stem}.asc"
        if not path.exists():
            _geotiff(folder / "for.tif", terrain, truth)
            with rasterio.open(folder / "for.tif") as source:
                rasterio.shutil.copy(source, path, driver="AAIGrid")
            for beside in (folder / "for.tif", path.with_suffix(".prj")):
                beside.unlink(missing_ok=True)
        with rasterio.open(path) as file:  # GDAL chooses the type from the values
            data, nodata = file.read(1), file.nodata
        data = data.astype(data.dtype.newbyteorder("<"))
        return [path.name], Truth(
            data, nodata if data.dtype.kind == "f" or nodata is None else int(nodata)
        )
    cols = terrain.cols
    parts = [(0, cols)]
    if how == "mosaic" and cols > 2 and not terrain.special:  # it does not keep the bits of NaN
        parts = [(0, cols // 2 + 1), (cols // 3, cols)]
    names = []
    for k, (left, right) in enumerate(parts):
        path = folder / f"{stem}-{k}.tif"
        if not path.exists():
            _geotiff(path, terrain, truth, how, left, right)
        names.append(path.name)
    return names, truth


def _plain(truth: Truth) -> bool:
    return truth.cells.dtype.kind == "f" and bool(np.isfinite(truth.cells).all())


def _geotiff(
    path: Path,
    terrain: Terrain,
    truth: Truth,
    how: str = "",
    left: int = 0,
    right: int | None = None,
) -> None:
    data = truth.cells[:, left:right]
    more: dict[str, object] = {}
    if how in ("tiled", "mosaic"):
        more = {"tiled": True, "blockxsize": 64, "blockysize": 32}
    elif how in ("deflate", "zstd"):
        more = {"compress": how, "predictor": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with rasterio.open(
            path,
            "w",
            driver="GTiff",
            height=data.shape[0],
            width=data.shape[1],
            count=1,
            dtype=data.dtype.newbyteorder("="),
            nodata=truth.nodata,
            crs=terrain.crs or None,
            transform=Affine(*terrain.grid.transform) @ Affine.translation(left, 0),
            **more,
        ) as out:
            out.write(data, 1)


def _grass(path: Path, terrain: Terrain, truth: Truth) -> Truth:
    whole = truth.cells.dtype.kind != "f"
    data = truth.cells.astype("<i4") if whole else truth.cells
    null = -9999 if truth.nodata is None else truth.nodata
    west, south, east, north = terrain.grid.bounds
    kind = "int" if whole else {4: "float", 8: "double"}[data.dtype.itemsize]
    head = [f"north: {north!r}", f"south: {south!r}", f"east: {east!r}", f"west: {west!r}"]
    head += [f"rows: {terrain.rows}", f"cols: {terrain.cols}", f"null: {null!r}", f"type: {kind}"]
    if not path.exists():
        lines = [" ".join(map(str, row)) for row in data]
        path.write_text("\n".join([*head, *lines]) + "\n")
    return Truth(data, int(null) if whole else float(null))


def write_points(path: Path, terrain: Terrain, points: Sequence[Point]) -> None:
    """Points in the middle of their cells, in the coordinate system of the raster."""
    xs, ys = terrain.grid.x_centres(), terrain.grid.y_centres()
    places = [(float(xs[col]), float(ys[row])) for row, col, _, _ in points]
    if path.suffix == ".gpkg":
        path.unlink(missing_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pyogrio.raw.write(
                path,
                geometry=np.array([struct.pack("<BIdd", 1, 1, *place) for place in places], object),
                field_data=[
                    np.array([name for *_, name in points], np.int64),
                    np.array([cost or 0.0 for _, _, cost, _ in points], np.float64),
                ],
                fields=["id", "cost"],
                geometry_type="Point",
                crs=terrain.crs or None,
                driver="GPKG",
            )
        return
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": list(place)},
            "properties": {"id": name, "cost": cost or 0},
        }
        for place, (_, _, cost, name) in zip(places, points, strict=True)
    ]
    text: dict[str, object] = {"type": "FeatureCollection", "features": features}
    if not terrain.crs:
        text["crs"] = None
    elif terrain.crs != "EPSG:4326":
        name = terrain.crs.replace("EPSG:", "urn:ogc:def:crs:EPSG::")
        text["crs"] = {"type": "name", "properties": {"name": name}}
    path.write_text(json.dumps(text))
