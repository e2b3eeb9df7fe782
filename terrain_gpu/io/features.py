"""Write features and their attributes, batch by batch, in four formats."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rasterio.crs import CRS

from ..engine.machine import MB
from ..facts import JsonObject
from ..grid import GridSpec
from ..grid.crs import grid_crs
from .flatgeobuf import FLATGEOBUF, write_flatgeobuf
from .geojson import Geometry, write_geojson
from .lines import (
    PARQUET,
    cut_line,
    geojson_lines,
    import_parquet,
    is_geopackage,
    wkb_line,
    wkb_lines,
    write_layer,
)
from .reprojection import to_lonlat

Fields = Mapping[str, type]
"""Data types of attributes; `object` for text."""

Feature = tuple[Any, JsonObject]
"""A geometry in the form that its `GeometryType` expects, and attributes."""

Polygon = list[np.ndarray]
"""Closed rings, float64 of shape (n, 2): the outer one counterclockwise, then holes, clockwise."""


class GeometryType(NamedTuple):
    """A type of geometry.

    Attributes
    ----------
    kind
        Its name.
    wkb
        Returns well-known binary, or None for no geometry.
    geojson
        Returns geometries in longitude and latitude, or unchanged if there is no CRS.
    """

    kind: str
    wkb: Callable[[Any], bytes | None]
    geojson: Callable[[list[Any], CRS | None], Iterator[Geometry | None]]


def write_features(
    file: Path,
    batches: Iterator[list[Feature]],
    grid: GridSpec,
    layer: str,
    fields: Fields,
    shape: GeometryType,
) -> None:
    """Write features to a new GeoPackage, GeoParquet, FlatGeobuf or GeoJSON file."""
    write = _write_geojson
    if is_geopackage(file):
        write = _write_geopackage
    elif file.suffix.lower() == PARQUET:
        write = _write_parquet
    elif file.suffix.lower() == FLATGEOBUF:
        write = _write_flatgeobuf
    write(file, batches, grid, layer, fields, shape)


def _write_geojson(
    file: Path,
    batches: Iterator[list[Feature]],
    grid: GridSpec,
    layer: str,
    fields: Fields,
    shape: GeometryType,
) -> None:
    crs = grid_crs(grid) if grid.crs_wkt else None

    def rows() -> Iterator[tuple[JsonObject, Geometry | None]]:
        for features in batches:
            geometries = shape.geojson([geometry for geometry, _ in features], crs)
            yield from zip([attributes for _, attributes in features], geometries, strict=True)

    write_geojson(file, rows(), crs=crs is not None)


def _write_geopackage(
    file: Path,
    batches: Iterator[list[Feature]],
    grid: GridSpec,
    layer: str,
    fields: Fields,
    shape: GeometryType,
) -> None:
    def append(features: list[Feature]) -> None:
        columns: dict[str, np.ndarray] = {
            name: np.array([attributes[name] for _, attributes in features], kind)
            for name, kind in fields.items()
        }
        geometries = [shape.wkb(geometry) for geometry, _ in features]
        write_layer(file, layer, geometries, columns, grid, kind=shape.kind, append=file.exists())

    for features in batches:
        append(features)
    if not file.exists():
        append([])


def _write_parquet(
    file: Path,
    batches: Iterator[list[Feature]],
    grid: GridSpec,
    layer: str,
    fields: Fields,
    shape: GeometryType,
) -> None:
    """Write GeoParquet 1.1 with a row group for each batch."""
    pyarrow, parquet = import_parquet(file)
    crs = grid_crs(grid).to_dict(projjson=True) if grid.crs_wkt else None
    column = {"encoding": "WKB", "geometry_types": [shape.kind], "crs": crs}
    about = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": column}}
    types = [
        (name, pyarrow.string() if kind is object else pyarrow.from_numpy_dtype(kind))
        for name, kind in fields.items()
    ]
    schema = pyarrow.schema([*types, ("geometry", pyarrow.binary())], {"geo": json.dumps(about)})
    with parquet.ParquetWriter(file, schema) as out:
        for features in batches:
            columns = {name: [attributes[name] for _, attributes in features] for name in fields}
            columns["geometry"] = [shape.wkb(geometry) for geometry, _ in features]
            out.write_table(pyarrow.table(columns, schema=schema))


def _write_flatgeobuf(
    file: Path,
    batches: Iterator[list[Feature]],
    grid: GridSpec,
    layer: str,
    fields: Fields,
    shape: GeometryType,
) -> None:
    rows = (
        (shape.wkb(geometry), attributes)
        for features in batches
        for geometry, attributes in features
    )
    write_flatgeobuf(file, rows, grid, layer, fields, shape.kind)


def library_bytes(path: str) -> int:
    """Memory of the libraries that write a file; pyogrio brings its own copy of GDAL."""
    return {".gpkg": 80 * MB, PARQUET: 120 * MB}.get(Path(path).suffix.lower(), 0)


# -- lines: positions, none if fewer than two --------------------------------------------------


def _wkb_of_line(xy: np.ndarray) -> bytes | None:
    return wkb_line(xy) if len(xy) > 1 else None


def _geojson_of_lines(lines: list[np.ndarray], crs: CRS | None) -> Iterator[Geometry | None]:
    for xy, geometry in zip(lines, geojson_lines(lines, crs), strict=True):
        yield geometry if len(xy) > 1 else None


POINTS = GeometryType(
    "Point",
    lambda xy: struct.pack("<BIdd", 1, 1, *xy),
    lambda points, crs: (None for _ in points),  # only written to GeoPackages
)
LINES = GeometryType("LineString", _wkb_of_line, _geojson_of_lines)


def lines_across(grid: GridSpec) -> GeometryType:
    """Lines that are cut where they cross the seam of a raster around the Earth."""
    west, _, east, _ = grid.bounds

    def wkb(xy: np.ndarray) -> bytes | None:
        return wkb_lines(cut_line(xy, west, east)) if len(xy) > 1 else None

    return GeometryType("MultiLineString", wkb, _geojson_of_lines)


# -- polygons ----------------------------------------------------------------------------------


def _wkb_of_polygons(polygons: Sequence[Polygon]) -> bytes:
    parts = [struct.pack("<BII", 1, 6, len(polygons))]
    for rings in polygons:
        parts.append(struct.pack("<BII", 1, 3, len(rings)))
        for ring in rings:
            parts += struct.pack("<I", len(ring)), ring.astype("<f8").tobytes()
    return b"".join(parts)


def _geojson_of_polygons(several: list[Sequence[Polygon]], crs: CRS | None) -> Iterator[Geometry]:
    rings = [ring for polygons in several for rings in polygons for ring in rings]
    if crs is not None and rings:
        # All at once: one call of PROJ takes longer than a thousand positions.
        lonlat = to_lonlat(np.concatenate(rings), crs)
        rings = np.split(lonlat, np.cumsum([len(ring) for ring in rings])[:-1])
    left = iter(rings)
    for polygons in several:
        coordinates = [[next(left) for _ in rings] for rings in polygons]
        if crs is not None:
            coordinates = [_continued(rings, turn=not crs.is_geographic) for rings in coordinates]
        yield {"type": "MultiPolygon", "coordinates": coordinates}


def _continued(rings: Polygon, *, turn: bool) -> Polygon:
    """Round to nine decimals; across the antimeridian, longitudes continue beyond 180 degrees."""
    whole = np.concatenate(rings)
    if turn:
        whole[:, 0] = np.unwrap(whole[:, 0], period=360)
    return np.split(np.round(whole, 9), np.cumsum([len(ring) for ring in rings])[:-1])


POLYGONS = GeometryType("MultiPolygon", _wkb_of_polygons, _geojson_of_polygons)
