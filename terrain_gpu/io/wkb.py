"""Parse well-known binary, the form in which OGR returns geometries."""

from __future__ import annotations

import struct

import numpy as np

Part = tuple[str, list[np.ndarray]]
"""Point, LineString or Polygon, and its positions (n, 2): one array, or one for each ring."""


def parts_of_wkb(data: bytes, at: int = 0) -> tuple[list[Part], int]:
    """Parse a geometry in little-endian two-dimensional WKB; return its parts and its end.

    Raises
    ------
    KeyError
        when the type is not a point, line, polygon or collection.
    """
    kind = struct.unpack_from("<I", data, at + 1)[0]
    at += 5
    if kind == 1:
        xy = np.frombuffer(data, "<f8", 2, at).reshape(1, 2)
        return ([] if np.isnan(xy).all() else [("Point", [xy])]), at + 16
    count = struct.unpack_from("<I", data, at)[0]
    at += 4
    if kind == 2:
        return [("LineString", [_positions(data, at, count)])], at + 16 * count
    parts: list[Part] = []
    if kind == 3:
        rings = []
        for _ in range(count):
            size = struct.unpack_from("<I", data, at)[0]
            rings.append(_positions(data, at + 4, size))
            at += 4 + 16 * size
        return ([("Polygon", rings)] if rings else []), at
    if kind not in (4, 5, 6, 7):
        raise KeyError(kind)
    for _ in range(count):
        members, at = parts_of_wkb(data, at)
        parts += members
    return parts, at


def _positions(data: bytes, at: int, count: int) -> np.ndarray:
    return np.frombuffer(data, "<f8", 2 * count, at).reshape(count, 2)
