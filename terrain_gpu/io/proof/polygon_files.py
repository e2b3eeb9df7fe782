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

BATCH = 1 << 10
"""Positions of small features that are located together; one call of PROJ takes as long."""
BATCH_BYTES = 2 * _POSITION * BATCH


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


class _Feature(NamedTuple):
    """A feature as it is in the file: its rings by polygon, and the geometry of GeoJSON."""

    number: int
    attributes: JsonObject
    polygons: list[list[np.ndarray]]
    geometry: Any


def read_polygons(of: LineFile, room: FileRoom) -> Iterator[FilePolygons]:
    """Yield the features of a file.

    Raises
    ------
    VerificationError
        when positions are not exactly corners of cells, or rings are not closed.
    """
    held: list[_Feature] = []
    gathered = 0
    for feature in _features(of, room):
        held.append(feature)
        gathered += sum(len(ring) for one in feature.polygons for ring in one)
        # Nothing of a large feature is kept here while the next one is read.
        del feature
        if gathered > BATCH:
            yield from _located(of, held)
            held, gathered = [], 0
    if held:
        yield from _located(of, held)


def _features(of: LineFile, room: FileRoom) -> Iterator[_Feature]:
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


def _of_binary(of: LineFile, number: int, attributes: JsonObject, wkb: bytes | None) -> _Feature:
    parts, end = parts_of_wkb(wkb) if wkb else ([], 0)
    if not wkb or end != len(wkb) or struct.unpack_from("<I", wkb, 1)[0] != 6:
        wrong_line(of.path, number, "is not a MultiPolygon", what="feature")
    return _with_rings(of, _Feature(number, attributes, [rings for _, rings in parts], None))


def _of_geojson(of: LineFile, number: int, text: str) -> _Feature:
    attributes, geometry = parsed(of, number, text)
    try:
        polygons = [
            [np.array(ring, np.float64).reshape(-1, 2) for ring in one]
            for one in geometry["coordinates"]
        ]
    except (ValueError, KeyError, TypeError):
        wrong_line(of.path, number, "cannot be read", what="feature")
    return _with_rings(of, _Feature(number, attributes, polygons, geometry))


def _with_rings(of: LineFile, feature: _Feature) -> _Feature:
    """Check that there are rings, and that they have positions."""
    lengths = [len(ring) for one in feature.polygons for ring in one]
    if not lengths:
        wrong_line(of.path, feature.number, "has no polygon", what="feature")
    if min(lengths) < 2:
        wrong_line(of.path, feature.number, "a ring is not closed", what="feature")
    return feature


def _located(of: LineFile, held: list[_Feature]) -> Iterator[FilePolygons]:
    """Find the corners at the positions of features."""
    rings = [ring for feature in held for one in feature.polygons for ring in one]
    lengths = np.array([len(ring) for ring in rings])
    starts = np.append(0, np.cumsum(lengths))
    first = np.cumsum([0, *(sum(map(len, feature.polygons)) for feature in held)])
    corners = _corners(of, held, np.concatenate(rings), starts, first)
    a, _, _, _, e, _ = of.grid.transform
    if a * e > 0:  # mirrored
        corners = corners[np.repeat(starts[:-1] + starts[1:] - 1, lengths) - np.arange(starts[-1])]
    closed = (corners[starts[:-1]] == corners[starts[1:] - 1]).all(axis=1)
    _refuse(of, held, np.logical_and.reduceat(closed, first[:-1]), "a ring is not closed")
    for feature, (r0, r1) in zip(held, pairwise(first), strict=True):
        begin, end = starts[r0], starts[r1]
        polygon = np.repeat(np.arange(len(feature.polygons)), [len(p) for p in feature.polygons])
        own = corners[begin:end], starts[r0 : r1 + 1] - begin, polygon
        yield FilePolygons(feature.number, feature.attributes, *own)


def _refuse(of: LineFile, held: list[_Feature], right: np.ndarray, why: str) -> None:
    """Raise an error if one of the features is not right."""
    if not right.all():
        wrong_line(of.path, held[int(np.argmin(right))].number, why, what="feature")


def _corners(
    of: LineFile, held: list[_Feature], xy: np.ndarray, starts: np.ndarray, first: np.ndarray
) -> np.ndarray:
    """The corners at positions, which must be exact."""
    grid, why = of.grid, "positions are not corners of cells"
    a, _, c, _, e, f = grid.transform
    begin = starts[first]  # of each feature
    if of.lonlat:
        try:
            xy = projected(grid, xy)
        except ReprojectionError as error:
            _refuse(of, held, begin[1:] <= error.number, why)
            raise
    with np.errstate(all="ignore"):
        places = ((xy - (c, f)) / (a, e))[:, ::-1]
        sides = np.array((grid.rows, grid.cols))
        inside = np.all((places > -0.5) & (places < sides + 0.5), axis=1)
    corners = np.rint(np.where(np.expand_dims(inside, 1), places, 0)).astype(np.int64)
    right = np.stack((c + a * corners[:, 1], f + e * corners[:, 0]), axis=1)
    _refuse(of, held, np.logical_and.reduceat(inside, begin[:-1]), why)
    if of.lonlat:
        left = iter(np.split(right, starts[1:-1]))
        several = [[[next(left) for _ in one] for one in feature.polygons] for feature in held]
        pairs = zip(held, POLYGONS.geojson(several, grid_crs(grid)), strict=True)
        same = np.array(
            [again is not None and listed(again) == own.geometry for own, again in pairs]
        )
    else:
        equal = right.view(np.int64) == np.ascontiguousarray(xy).view(np.int64)
        same = np.logical_and.reduceat(equal.all(axis=1), begin[:-1])
    _refuse(of, held, same, why)
    return corners
