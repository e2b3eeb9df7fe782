"""Files of lines: their formats, and lines as GeoJSON, well-known binary and GeoPackage."""

from __future__ import annotations

import logging
import math
import os
import struct
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import numpy as np
from rasterio.crs import CRS

from ..errors import InputError
from ..grid import GridSpec
from ..grid.crs import grid_crs
from ..store import outputs
from ..store.file_writer import writable_file
from .flatgeobuf import FLATGEOBUF
from .geojson import Geometry
from .reprojection import to_lonlat
from .vectors import GEOJSON, GEOPACKAGE, import_pyogrio

log = logging.getLogger(__name__)

PARQUET = ".parquet"

_FINEST, _DEGREE = 3e-9, 111_320
"""Smallest side of a cell in GeoJSON, in degrees, and the number of metres in a degree."""

_DATE = "OGR_CURRENT_DATE"
"""GDAL option that replaces the current time in files, so that equal runs write equal bytes."""


@contextmanager
def whole_file(path: str | os.PathLike[str], *, overwrite: bool) -> Iterator[Path]:
    """Temporary path for a vector file that is moved into place when complete; see `write_paths`.

    Raises
    ------
    InputError
        as `checked_target`.
    OutputError
        when the file cannot be written.
    """
    target = checked_target(path, overwrite=overwrite)
    with outputs.whole_file(target) as part:
        yield part


def tell_without_crs(path: str | os.PathLike[str], grid: GridSpec) -> None:
    """Warn if a GeoJSON file will not be in longitude and latitude, which readers expect."""
    if not grid.crs_wkt and Path(path).suffix.lower() in GEOJSON:
        log.warning(
            "%s: the raster has no coordinate system, so its own coordinates are written, with "
            '"crs": null; readers of GeoJSON may interpret them as longitude and latitude',
            path,
        )


def refuse_too_fine(path: str | os.PathLike[str], grid: GridSpec) -> None:
    """Reject GeoJSON for cells too small for nine decimals of a degree."""
    if not (grid.crs_wkt and grid.transform) or Path(path).suffix.lower() not in GEOJSON:
        return
    crs = grid_crs(grid)
    unit = crs.units_factor[1]
    degrees = math.degrees(unit) if crs.is_geographic else unit / _DEGREE
    side = min(abs(grid.transform[0]), abs(grid.transform[4])) * degrees
    if side < _FINEST:
        raise InputError(
            f"{path}: GeoJSON is written with nine decimals of a degree, too few for cells of "
            f"{side:.1g} degrees; write a GeoPackage (.gpkg)"
        )


def checked_target(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Check that a vector file can be written at this path; return its absolute path.

    Raises
    ------
    InputError
        when it exists, its folder does not exist, its extension is not .geojson, .json, .gpkg,
        .parquet or .fgb, or the library for its format is missing.
    OutputError
        when its folder cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() not in (*GEOJSON, GEOPACKAGE, PARQUET, FLATGEOBUF):
        raise InputError(
            f"{path}: the name must end in .geojson (GeoJSON), .gpkg (GeoPackage), .parquet "
            "(GeoParquet) or .fgb (FlatGeobuf)"
        )
    target = writable_file(path, overwrite=overwrite)
    if is_geopackage(path):
        import_pyogrio(path)
    if path.suffix.lower() == PARQUET:
        import_parquet(path)
    return target


def import_parquet(path: Path) -> tuple[ModuleType, ModuleType]:
    """Import pyarrow; `path` is for messages.

    Raises
    ------
    InputError
        when it is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(
            f"{path}: Parquet needs pyarrow ({error}); pip install 'terrain_gpu[parquet]', "
            "or use another format"
        ) from None
    return pyarrow, pyarrow.parquet


def is_geopackage(path: Path) -> bool:
    return path.suffix.lower() == GEOPACKAGE


def geojson_lines(lines: list[np.ndarray], crs: CRS | None) -> Iterator[Geometry]:
    """Lines as GeoJSON geometries in longitude and latitude, or unchanged if there is no CRS."""
    cut = False
    if crs is not None and lines:
        # All at once: one call of PROJ takes longer than a thousand positions.
        lonlat = lonlat_of(np.concatenate(lines), crs)
        lines = np.split(lonlat, np.cumsum([len(line) for line in lines])[:-1])
        cut = bool(np.ptp(lonlat[:, 0]) > 180)
    for line in lines:
        yield geojson_line(line, cut=cut)


def lonlat_of(xy: np.ndarray, crs: CRS) -> np.ndarray:
    """Positions in longitude and latitude with nine decimals, as written to GeoJSON."""
    lonlat = to_lonlat(xy, crs)
    beyond = np.abs(lonlat[:, 0]) > 180  # from rasters of 0 to 360 degrees
    lonlat[beyond, 0] = (lonlat[beyond, 0] + 180) % 360 - 180
    rounded: np.ndarray = np.round(lonlat, 9)
    return rounded


def geojson_line(xy: np.ndarray, *, cut: bool) -> Geometry:
    """A line as a GeoJSON geometry, in parts where it crosses the antimeridian if `cut`."""
    pieces = cut_line(xy) if cut else [xy]
    if len(pieces) == 1:
        return {"type": "LineString", "coordinates": pieces[0]}
    return {"type": "MultiLineString", "coordinates": pieces}


def wkb_line(xy: np.ndarray) -> bytes:
    """A line as well-known binary."""
    return struct.pack("<BII", 1, 2, len(xy)) + xy.astype("<f8").tobytes()


def wkb_lines(parts: Sequence[np.ndarray]) -> bytes:
    """Parts of a line as a well-known binary MultiLineString."""
    return struct.pack("<BII", 1, 5, len(parts)) + b"".join(map(wkb_line, parts))


def cut_line(xy: np.ndarray, west: float = -180.0, east: float = 180.0) -> list[np.ndarray]:
    """Cut a line where it crosses the antimeridian (RFC 7946, 3.1.9), or another seam."""
    x, y = xy.T
    middle, half = (west + east) / 2, (east - west) / 2
    last = np.flatnonzero(np.abs(np.diff(x)) > half)
    if not len(last):  # most lines; the rest takes a quarter of the time to write GeoJSON
        return [xy]
    to_east = x[last] > middle
    before = half - np.abs(x[last] - middle)
    after = half - np.abs(x[last + 1] - middle)
    part = before / np.maximum(before + after, np.finfo(np.float64).tiny)
    sides = np.where(to_east, east, west), np.where(to_east, west, east)
    height = y[last] + part * (y[last + 1] - y[last])
    ends = np.stack((sides[0], height, sides[1], height), axis=1).reshape(-1, 2)
    whole = np.insert(xy, np.repeat(last + 1, 2), ends, axis=0)
    return np.split(whole, last + 2 + 2 * np.arange(len(last)))


def write_layer(
    file: Path,
    layer: str,
    lines: Sequence[bytes | None],
    columns: dict[str, np.ndarray],
    grid: GridSpec,
    *,
    kind: str = "LineString",
    append: bool = False,
) -> None:
    """Write geometries (WKB) and their fields to a GeoPackage, without the current time."""
    pyogrio = import_pyogrio(file)
    crs = grid.crs_wkt
    if crs.startswith("BOUNDCRS"):  # from WKT2, GDAL would store only the base CRS
        crs = grid_crs(grid).to_wkt()
    before = pyogrio.get_gdal_config_option(_DATE)
    pyogrio.set_gdal_config_options({_DATE: "1970-01-01T00:00:00.000Z"})
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "'crs' was not provided")
            pyogrio.raw.write(
                file,
                np.array(lines, object),
                list(columns.values()),
                list(columns),
                layer=layer,
                driver="GPKG",
                geometry_type=kind,
                crs=crs or None,
                append=append,
            )
    finally:
        pyogrio.set_gdal_config_options({_DATE: before})
