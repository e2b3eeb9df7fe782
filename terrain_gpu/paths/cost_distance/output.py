"""Write least-cost paths to vector files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...facts import JsonObject
from ...grid import GridSpec, cell_centres
from ...grid.crs import grid_crs
from ...grid.units import of_lengths
from ...io.features import GeometryType, write_features
from ...io.flatgeobuf import FLATGEOBUF
from ...io.frames import frame
from ...io.geojson import write_geojson
from ...io.lines import (
    PARQUET,
    cut_line,
    geojson_lines,
    is_geopackage,
    tell_without_crs,
    whole_file,
    wkb_line,
    wkb_lines,
    write_layer,
)
from ..relax.trace import TracedPath

if TYPE_CHECKING:
    import geopandas

LAYER = "paths"
"""Name of the layer in a GeoPackage of paths."""


class TracedPaths(list[TracedPath]):
    """Least-cost paths, and the grid of their raster."""

    def __init__(self, paths: Iterable[TracedPath], grid: GridSpec, unit: str = "") -> None:
        super().__init__(paths)
        self._grid, self._unit = grid, unit

    def to_geodataframe(self) -> geopandas.GeoDataFrame:
        """Return the paths as lines in the CRS of the grid, with the properties of `write_paths`.

        ``attrs["units"]`` has the units of cost and length, if known.

        Raises
        ------
        InputError
            when GeoPandas is not installed.
        """
        shapes, columns, _ = _features(self, self._grid)
        own = {"cost": self._unit, "length": of_lengths(self._grid)}
        return frame(shapes, columns, self._grid, own)


def write_paths(
    path: str | os.PathLike[str],
    paths: Iterable[TracedPath],
    grid: GridSpec,
    *,
    overwrite: bool = False,
    prove: Callable[[Path], object] | None = None,
) -> None:
    """Write least-cost paths as lines through cell centres.

    Every feature has the properties source and target (ids), source_name and target_name if sources
    and targets have names, cost, length (map units or metres) and cells (the number of cells). A
    path of one cell repeats its position.

    Parameters
    ----------
    path
        .geojson or .json: GeoJSON (RFC 7946), in WGS 84 longitude and latitude with nine decimals,
        cut where a path crosses the antimeridian. If the grid has no CRS, its own coordinates are
        written, with ``"crs": null``. .gpkg: GeoPackage, layer "paths", .parquet: GeoParquet, or
        .fgb: FlatGeobuf, in the grid's CRS, cut where a path crosses from the last column to the
        first. The file appears only when complete.
    overwrite
        Replace an existing file, once the new one is complete.
    prove
        Called with the complete file before it is renamed; if it raises, the file is not published.

    Raises
    ------
    InputError
        when the extension is unknown, the file exists, pyogrio (.gpkg) or pyarrow
        (.parquet) is missing, or the paths cannot be reprojected to WGS 84 (.geojson).
    OutputError
        when the file cannot be written.
    """
    with whole_file(path, overwrite=overwrite) as part:
        tell_without_crs(path, grid)
        write = _write_geojson
        if is_geopackage(part):
            write = _write_geopackage
        elif part.suffix.lower() in (PARQUET, FLATGEOBUF):
            write = _write_binary
        write(part, paths, grid)
        if prove is not None:
            prove(part)


def _properties(path: TracedPath) -> JsonObject:
    names = {"source_name": path.source_name, "target_name": path.target_name}
    return {
        "source": int(path.source),
        "target": int(path.target),
        **{key: name for key, name in names.items() if name is not None},
        "cost": np.asarray(path.cost).item(),
        "length": float(path.length),
        "cells": len(path.cells),
    }


def _line(path: TracedPath, grid: GridSpec) -> np.ndarray:
    """Positions of a path, at least two."""
    xy = cell_centres(grid, path.cells)
    return xy if len(xy) > 1 else np.repeat(xy, 2, axis=0)


def _write_geojson(file: Path, paths: Iterable[TracedPath], grid: GridSpec) -> None:
    crs = grid_crs(grid) if grid.crs_wkt else None
    rows = ((_properties(path), next(geojson_lines([_line(path, grid)], crs))) for path in paths)
    write_geojson(file, rows, crs=crs is not None)


def _write_geopackage(file: Path, paths: Iterable[TracedPath], grid: GridSpec) -> None:
    shapes, columns, kind = _features(paths, grid)
    write_layer(file, LAYER, shapes, columns, grid, kind=kind)


def _write_binary(file: Path, paths: Iterable[TracedPath], grid: GridSpec) -> None:
    shapes, columns, kind = _features(paths, grid)
    fields = {
        name: object if one.dtype == object else one.dtype.type for name, one in columns.items()
    }
    rows = zip(*(one.tolist() for one in columns.values()), strict=True)
    found = [
        (wkb, dict(zip(columns, row, strict=True))) for wkb, row in zip(shapes, rows, strict=True)
    ]
    # Geometries are well-known binary already.
    shape = GeometryType(kind, lambda wkb: wkb, lambda lines, crs: iter(()))
    write_features(file, iter([found]), grid, LAYER, fields, shape)


def _features(
    paths: Iterable[TracedPath], grid: GridSpec
) -> tuple[Sequence[bytes], dict[str, np.ndarray], str]:
    """Lines (WKB), their properties, and their geometry type."""
    lines, rows = [], []
    west, _, east, _ = grid.bounds
    for path in paths:
        lines.append(cut_line(_line(path, grid), west, east))
        rows.append(_properties(path))
    cut = any(len(parts) > 1 for parts in lines)
    shapes = [wkb_lines(parts) if cut else wkb_line(parts[0]) for parts in lines]
    fields: dict[str, type] = {
        "source": np.int64,
        "target": np.int64,
        "length": np.float64,
        "cells": np.int64,
    }
    fields |= {name: object for name in ("source_name", "target_name") if rows and name in rows[0]}
    costs = np.array([row["cost"] for row in rows])
    columns: dict[str, np.ndarray] = {
        name: np.array([row[name] for row in rows], kind) for name, kind in fields.items()
    }
    # The integers of the format are int64; uint64 costs are written as floats.
    columns["cost"] = costs if costs.dtype == np.int64 else costs.astype(np.float64)
    return shapes, columns, "MultiLineString" if cut else "LineString"
