"""Read the lines of a network back from their file, as cells: `read_lines`."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ...errors import VerificationError
from ...grid import GridSpec, cell_centres
from ...io.lines import geojson_lines, is_geopackage
from ...io.vectors import WGS84, grid_crs, reprojected

FIELDS = ("start", "end", "weight", "pass_height", "length", "cells")
_BATCH = 1 << 16
_ENVELOPES = (0, 32, 48, 48, 64)
"""Bytes of the envelope in the header of a GeoPackage's geometry, by its kind."""


class Batch(NamedTuple):
    """Some lines of a file.

    Attributes
    ----------
    number
        Of the first line, from 1.
    attributes
        Of each line.
    cells
        int64, the ids of the cells of all lines.
    starts
        int64 (n + 1,): where each line starts in `cells`, and the total.
    """

    number: int
    attributes: list[dict[str, Any]]
    cells: np.ndarray
    starts: np.ndarray


def wrong_line(path: Path, number: int, what: str, check: str = "line") -> NoReturn:
    """Raise `VerificationError` for a line of a file."""
    raise VerificationError(
        f"{path}: line {number:,}: {what}; extract the network again with --overwrite", check
    )


def read_lines(
    file: Path, path: Path, grid: GridSpec, allow: Callable[[int], None]
) -> Iterator[Batch]:
    """Yield the lines of a file in batches of about 65 536 cells; no line is shared by two.

    Parameters
    ----------
    file, path
        The file, and its final path, for messages.
    allow
        Called with the bytes of each line as stored; refuses those that do not fit the memory.

    Raises
    ------
    VerificationError
        when positions are not exactly those of cells of the raster.
    """
    read = _geopackage if is_geopackage(file) else partial(_geojson, crs=bool(grid.crs_wkt))
    number, gathered = 1, 0
    held: list[tuple[dict[str, Any], Any, np.ndarray]] = []
    for found in read(file, path, allow):
        held.append(found)
        gathered += len(found[2])
        if gathered > _BATCH:
            yield _located(path, number, held, grid)
            number, gathered, held = number + len(held), 0, []
    if held:
        yield _located(path, number, held, grid)


def _located(path: Path, number: int, held: list[tuple[Any, ...]], grid: GridSpec) -> Batch:
    """Find the cells of positions, and compare these with the centres of the cells."""
    attributes, geometries, lines = zip(*held, strict=True)
    starts = np.cumsum([0, *map(len, lines)])
    xy = np.concatenate(lines)
    lonlat = geometries[0] is not None
    if lonlat:
        xy = reprojected(xy, WGS84, grid_crs(grid))
    a, _, c, _, e, f = grid.transform
    with np.errstate(all="ignore"):
        col, row = ((xy - (c, f)) / (a, e)).T - 0.5
        inside = (row > -0.5) & (row < grid.rows - 0.5) & (col > -0.5) & (col < grid.cols - 0.5)
    places = np.rint(np.where(inside, (row, col), 0)).astype(np.int64).T
    centres = np.split(cell_centres(grid, places), starts[1:-1])
    if lonlat:
        right = zip(geojson_lines(centres, grid_crs(grid)), geometries, strict=True)
        same = [one == other for one, other in right]
    else:
        same = [one.tobytes() == other.tobytes() for one, other in zip(centres, lines, strict=True)]
    same = [one and inside[i:j].all() for one, (i, j) in zip(same, _pairs(starts), strict=True)]
    if not all(same):
        wrong_line(path, number + same.index(False), "positions are not the centres of cells")
    return Batch(number, list(attributes), places[:, 0] * grid.cols + places[:, 1], starts)


def _pairs(starts: np.ndarray) -> list[tuple[int, int]]:
    return list(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True))


def _geojson(
    file: Path, path: Path, allow: Callable[[int], None], crs: bool
) -> Iterator[tuple[dict[str, Any], Any, np.ndarray]]:
    """Attributes, geometry if it is in longitude and latitude, and positions of each line."""
    frame, number, more = [], 0, True
    with open(file, encoding="utf-8") as text:
        for line in text:
            if not line.startswith('{"type": "Feature",'):
                frame.append(line.rstrip("\n"))
                continue
            allow(len(line))
            number += 1
            try:
                feature = json.loads(line.rstrip(",\n"))
                geometry, attributes = feature["geometry"], feature["properties"]
                parts = geometry["coordinates"]
                several = geometry["type"] == "MultiLineString"
                if not several:
                    parts = [parts]
                positions = [np.array(part, np.float64).reshape(-1, 2) for part in parts]
            except (ValueError, KeyError, TypeError):
                wrong_line(path, number, "cannot be read")
            if not more or len(frame) < 2 or (several and not crs):
                wrong_line(path, number, "is not written as this program does")
            more = line.endswith(",\n")
            for k in range(len(positions) - 1):  # without the ends that a cut adds
                positions[k], positions[k + 1] = positions[k][:-1], positions[k + 1][1:]
            yield attributes, geometry if crs else None, np.concatenate(positions)
    head = ['{"type": "FeatureCollection",', *([] if crs else ['"crs": null,']), '"features": [']
    if frame != [*head, "]}"] or (number and more):
        wrong_line(path, number, "the file around the lines is not written as this program does")


def _geopackage(
    file: Path, path: Path, allow: Callable[[int], None]
) -> Iterator[tuple[dict[str, Any], None, np.ndarray]]:
    """As `_geojson`, read without GDAL, which has written it."""
    names = ", ".join(f'"{name}"' for name in FIELDS)
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?immutable=1", uri=True)) as base:
        try:
            ((column,),) = base.execute(
                "SELECT column_name FROM gpkg_geometry_columns WHERE table_name = 'network'"
            )
            rows = base.execute(f'SELECT "{column}", {names} FROM network ORDER BY rowid')
            for number, (blob, *values) in enumerate(rows, 1):
                allow(len(blob))
                start = 8 + _ENVELOPES[blob[3] >> 1 & 7]
                if blob[:2] != b"GP" or blob[start : start + 5] != b"\x01\x02\x00\x00\x00":
                    wrong_line(path, number, "is not a line")
                xy = np.frombuffer(blob, "<f8", offset=start + 9).reshape(-1, 2)
                if int.from_bytes(blob[start + 5 : start + 9], "little") != len(xy):
                    wrong_line(path, number, "is not a line")
                # SQLite has no NaN, and its infinities are plain numbers.
                yield dict(zip(FIELDS, values, strict=True)), None, xy
        except (sqlite3.Error, ValueError, TypeError, IndexError) as error:
            raise VerificationError(
                f"{path}: cannot be read back ({error}); extract the network again with "
                "--overwrite",
                "line",
            ) from error


def same_number(found: Any, right: float | int) -> bool:
    """Whether an attribute is a number, of the right type and with the same bits."""
    if type(right) is int:
        return type(found) is int and found == right
    return (
        type(found) is float
        and found == right
        and math.copysign(1, found) == math.copysign(1, right)
    )
