"""Write tables whose rows have boxes or points, in the formats of `SUFFIXES`: `write_table`."""

from __future__ import annotations

import csv
import json
import os
import struct
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..facts import JsonObject
from ..grid import GridSpec
from ..grid.crs import grid_crs
from ..store.file_writer import writable_file
from ..store.outputs import whole_file
from .flatgeobuf import FLATGEOBUF, write_flatgeobuf
from .lines import import_parquet, is_geopackage, tell_without_crs, write_layer
from .reprojection import to_lonlat
from .vectors import import_pyogrio

SUFFIXES = (".csv", ".parquet", ".geojson", ".json", ".gpkg", FLATGEOBUF)

Columns = dict[str, np.ndarray]


def checked_table(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Return the absolute path of a table after checking that it can be written.

    Raises
    ------
    InputError
        when it exists, its folder does not exist, it has another extension, or pyarrow (Parquet)
        or pyogrio (GeoPackage) is missing.
    OutputError
        when its folder cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"{path}: the name of a table must end in .csv, .parquet, .geojson, .gpkg or .fgb"
        )
    if path.suffix.lower() == ".parquet":
        import_parquet(path)
    if is_geopackage(path):
        import_pyogrio(path)
    return writable_file(path, overwrite=overwrite)


def write_table(target: Path, parts: Iterator[Columns], grid: GridSpec) -> None:
    """Write the table in the format of its extension; it appears only when complete.

    Parameters
    ----------
    parts
        Some rows at a time, at least once. Each row has a box (west, south, east, north) or a point
        (x, y).
    target
        .csv: a line of names, then numbers with all their digits. .parquet: int64 and float64.
        .geojson: boxes as polygons, or points, in longitude and latitude of WGS 84 with nine
        decimals (RFC 7946), or in map coordinates with ``"crs": null`` if the grid has no CRS.
        .gpkg: the layer "table" of boxes or points in map coordinates. .fgb: the same layer.

    Raises
    ------
    InputError
        when positions cannot be reprojected to WGS 84 (.geojson).
    OutputError
        when the file cannot be written.
    """
    write = {
        ".csv": _write_csv,
        ".parquet": _write_parquet,
        ".gpkg": _write_geopackage,
        FLATGEOBUF: _write_flatgeobuf,
    }.get(target.suffix.lower(), _write_geojson)
    if write is _write_geojson:
        tell_without_crs(target, grid)
    with whole_file(target) as part:
        write(part, parts, grid)


def _write_csv(file: Path, parts: Iterator[Columns], grid: GridSpec) -> None:
    with open(file, "w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        for number, columns in enumerate(parts):
            if number == 0:
                writer.writerow(columns)
            writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))


def _write_parquet(file: Path, parts: Iterator[Columns], grid: GridSpec) -> None:
    pyarrow, parquet = import_parquet(file)
    tables = (pyarrow.table(columns) for columns in parts)
    first = next(tables)
    with parquet.ParquetWriter(file, first.schema) as out:
        out.write_table(first)
        for table in tables:
            out.write_table(table)


def _write_geopackage(file: Path, parts: Iterator[Columns], grid: GridSpec) -> None:
    for number, columns in enumerate(parts):
        kind, geometries, fields = _features(columns)
        write_layer(file, "table", geometries, fields, grid, kind=kind, append=number > 0)


def _write_flatgeobuf(file: Path, parts: Iterator[Columns], grid: GridSpec) -> None:
    first = next(parts)
    kind, _, fields = _features(first)

    def rows() -> Iterator[tuple[bytes, JsonObject]]:
        for columns in chain([first], parts):
            _, geometries, attributes = _features(columns)
            values = zip(*(column.tolist() for column in attributes.values()), strict=True)
            for wkb, row in zip(geometries, values, strict=True):
                yield wkb, dict(zip(attributes, row, strict=True))

    types = {name: column.dtype.type for name, column in fields.items()}
    write_flatgeobuf(file, rows(), grid, "table", types, kind)


def _features(columns: Columns) -> tuple[str, list[bytes], Columns]:
    """The geometry type of rows, their geometries (WKB), and the other columns."""
    boxes = "west" in columns
    header = struct.pack("<BIII", 1, 3, 1, 5) if boxes else struct.pack("<BI", 1, 1)
    names = [name for corner in _RING for name in corner] if boxes else ["x", "y"]
    positions = np.stack([columns[name] for name in names], axis=1).astype("<f8")
    fields = {name: columns[name] for name in columns if name not in _PLACE}
    return "Polygon" if boxes else "Point", [header + row.tobytes() for row in positions], fields


def _write_geojson(file: Path, parts: Iterator[Columns], grid: GridSpec) -> None:
    with open(file, "w", encoding="utf-8") as out:
        out.write('{"type": "FeatureCollection",\n')
        if not grid.crs_wkt:
            out.write('"crs": null,\n')
        out.write('"features": [')
        comma = "\n"
        for columns in parts:
            names = [name for name in columns if name not in _PLACE]
            values = zip(*(columns[name].tolist() for name in names), strict=True)
            kind, places = ("Polygon", _rings) if "west" in columns else ("Point", _points)
            for properties, place in zip(values, places(columns, grid), strict=True):
                feature = {
                    "type": "Feature",
                    "properties": dict(zip(names, properties, strict=True)),
                    "geometry": {"type": kind, "coordinates": place},
                }
                out.write(comma)
                json.dump(feature, out)
                comma = ",\n"
        out.write("\n]}\n")


_PLACE = ("west", "south", "east", "north", "x", "y")
_CORNERS = (("west", "south"), ("east", "south"), ("east", "north"), ("west", "north"))
"""Counterclockwise, as RFC 7946 requires."""

_RING = (*_CORNERS, _CORNERS[0])


def _rings(columns: Columns, grid: GridSpec) -> list[Any]:
    """Return the boxes as polygons: lists of one closed ring."""
    x, y = (np.stack([columns[corner[k]] for corner in _CORNERS], axis=1) for k in (0, 1))
    if grid.crs_wkt and x.size:
        x, y = _to_lonlat(x, y, grid)
    return np.stack([x, y], axis=2)[:, None, [0, 1, 2, 3, 0]].tolist()


def _points(columns: Columns, grid: GridSpec) -> list[Any]:
    """Return the points as positions."""
    x, y = columns["x"][:, None], columns["y"][:, None]
    if grid.crs_wkt and x.size:
        x, y = _to_lonlat(x, y, grid)
    return np.hstack([x, y]).tolist()


def _to_lonlat(x: np.ndarray, y: np.ndarray, grid: GridSpec) -> tuple[np.ndarray, np.ndarray]:
    crs = grid_crs(grid)
    lonlat = to_lonlat(np.stack((x.ravel(), y.ravel()), axis=1), crs).T
    lon, lat = (np.round(values, 9).reshape(x.shape) for values in lonlat)
    # Across the antimeridian, longitudes continue beyond 180 degrees.
    return lon if crs.is_geographic else np.unwrap(lon, period=360, axis=1), lat
