"""Read polygons from their file as corners of cells: `read_polygons`."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ...errors import ReprojectionError
from ...facts import JsonObject
from ...grid.crs import grid_crs
from ..features import POLYGONS
from ..geojson import listed
from ..wkb import parts_of_wkb
from .line_files import (
    FileRoom,
    LineFile,
    binary_rows,
    geojson_rows,
    parsed,
    projected,
    readable,
    wrong_line,
)

_POSITION, _PARSED = 250, 14
"""Bytes in memory for a position of GeoJSON, beside its text; for a byte of a binary file."""


class FilePolygons(NamedTuple):
    """A feature of a file of polygons along the edges of cells.

    Attributes
    ----------
    number
        Number of the feature, counted from 1.
    attributes
        Attributes of the feature.
    corners
        int64 (n, 2): rows and columns of the corners of all rings; the last corner of a ring is its
        first. The polygon is to the left of its rings, on a map with north up.
    starts
        int64: where each ring starts, and the total.
    polygon
        int64: the number of the polygon that each ring belongs to.
    """

    number: int
    attributes: JsonObject
    corners: np.ndarray
    starts: np.ndarray
    polygon: np.ndarray


def read_polygons(of: LineFile, room: FileRoom) -> Iterator[FilePolygons]:
    """Yield the features of a file.

    Raises
    ------
    VerificationError
        when positions are not exactly corners of cells, or rings are not closed.
    """
    # Nothing of a feature is kept here while the next one is read, but its text.
    if of.is_binary:
        with readable(of.path):
            for number, (attributes, wkb) in enumerate(binary_rows(of, room, _PARSED), 1):
                yield _of_binary(of, number, attributes, wkb)
        return
    for number, text in geojson_rows(of, room, partial(_parsed_bytes, of)):
        yield _of_geojson(of, number, text)


def _parsed_bytes(of: LineFile, text: str) -> int:
    # In longitude and latitude, a second geometry is made for the comparison.
    return 3 * len(text) + _POSITION * (1 + of.lonlat) * text.count("[")


def _of_binary(
    of: LineFile, number: int, attributes: JsonObject, wkb: bytes | None
) -> FilePolygons:
    parts, end = parts_of_wkb(wkb) if wkb else ([], 0)
    if not wkb or end != len(wkb) or struct.unpack_from("<I", wkb, 1)[0] != 6:
        wrong_line(of.path, number, "is not a MultiPolygon", what="feature")
    return _polygons(of, number, attributes, [rings for _, rings in parts], None)


def _of_geojson(of: LineFile, number: int, text: str) -> FilePolygons:
    attributes, geometry = parsed(of, number, text)
    try:
        polygons = [
            [np.array(ring, np.float64).reshape(-1, 2) for ring in one]
            for one in geometry["coordinates"]
        ]
    except (ValueError, KeyError, TypeError):
        wrong_line(of.path, number, "cannot be read", what="feature")
    return _polygons(of, number, attributes, polygons, geometry)


def _polygons(
    of: LineFile,
    number: int,
    attributes: JsonObject,
    polygons: list[list[np.ndarray]],
    geometry: Any,
) -> FilePolygons:
    rings = [ring for one in polygons for ring in one]
    owner = np.repeat(np.arange(len(polygons)), [len(one) for one in polygons])
    if not rings:
        wrong_line(of.path, number, "has no polygon", what="feature")
    starts = np.cumsum([0, *map(len, rings)])
    corners = _corners(of, number, np.concatenate(rings), geometry, starts, owner)
    a, _, _, _, e, _ = of.grid.transform
    if a * e > 0:  # mirrored
        parts = [corners[b:c][::-1] for b, c in pairwise(starts)]
        corners = np.concatenate(parts)
    open_ = (corners[starts[:-1]] != corners[starts[1:] - 1]).any(axis=1)
    if open_.any() or (np.diff(starts) < 2).any():
        wrong_line(of.path, number, "a ring is not closed", what="feature")
    return FilePolygons(number, attributes, corners, starts, owner)


def _corners(
    of: LineFile,
    number: int,
    xy: np.ndarray,
    geometry: Any,
    starts: np.ndarray,
    owner: np.ndarray,
) -> np.ndarray:
    """The corners at positions, which must be exact."""
    grid = of.grid
    a, _, c, _, e, f = grid.transform
    if of.lonlat:
        try:
            xy = projected(grid, xy)
        except ReprojectionError:
            wrong_line(of.path, number, "positions are not corners of cells", what="feature")
    with np.errstate(all="ignore"):
        places = ((xy - (c, f)) / (a, e))[:, ::-1]
        sides = np.array((grid.rows, grid.cols))
        inside = np.all((places > -0.5) & (places < sides + 0.5), axis=1)
    corners = np.rint(np.where(np.expand_dims(inside, 1), places, 0)).astype(np.int64)
    right = np.stack((c + a * corners[:, 1], f + e * corners[:, 0]), axis=1)
    same = bool(inside.all())
    if of.lonlat:
        rings = [right[b:d] for b, d in pairwise(starts)]
        cuts = np.searchsorted(owner, np.arange(int(owner[-1]) + 2))
        several = [rings[b:d] for b, d in pairwise(cuts)]
        (again,) = POLYGONS.geojson([several], grid_crs(grid))
        same &= again is not None and listed(again) == geometry
    else:
        same &= right.tobytes() == np.ascontiguousarray(xy).tobytes()
    if not same:
        wrong_line(of.path, number, "positions are not corners of cells", what="feature")
    return corners
