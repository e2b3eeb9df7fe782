"""Write GeoJSON: features as `json.dumps` writes them, but positions in a tenth of the time."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ..compiled import jit

Geometry = dict[str, Any]
"""Its type, and its coordinates: positions, float64 of shape (n, 2), or lists of such arrays."""

_POSITION = 40
"""Bytes of the longest position: two numbers of sign, 6 + 9 digits and point, brackets, commas."""
_COMMA, _SPACE, _OPEN, _CLOSE, _MINUS, _POINT, _ZERO = b", []-.0"


def write_geojson(
    file: Path, features: Iterable[tuple[dict[str, Any], Geometry | None]], *, crs: bool
) -> None:
    """Write attributes and geometries to a new file; `crs`: in longitude and latitude."""
    with open(file, "w", encoding="utf-8") as out:
        out.write('{"type": "FeatureCollection",\n')
        if not crs:
            out.write('"crs": null,\n')
        out.write('"features": [')
        comma = "\n"
        for attributes, geometry in features:
            properties = json.dumps(attributes)
            out.write(f'{comma}{{"type": "Feature", "properties": {properties}, "geometry": ')
            out.write(_geometry(geometry) + "}")
            comma = ",\n"
        out.write("\n]}\n")


def listed(geometry: Geometry) -> dict[str, Any]:
    """A geometry as it is read: with lists in place of arrays."""
    return {**geometry, "coordinates": _listed(geometry["coordinates"])}


def _listed(coordinates: Any) -> Any:
    if isinstance(coordinates, np.ndarray):
        return coordinates.tolist()
    return [_listed(part) for part in coordinates]


def _geometry(geometry: Geometry | None) -> str:
    if geometry is None:
        return "null"
    kind, coordinates = json.dumps(geometry["type"]), _text(geometry["coordinates"])
    return f'{{"type": {kind}, "coordinates": {coordinates}}}'


def _text(coordinates: Any) -> str:
    if not isinstance(coordinates, np.ndarray):
        return f"[{', '.join(map(_text, coordinates))}]"
    text = np.empty(_POSITION * len(coordinates), np.uint8)
    size = format_positions(np.ascontiguousarray(coordinates), text)
    return str(text[:size].data, "ascii") if size else json.dumps(coordinates.tolist())


@jit
def format_positions(xy: np.ndarray, text: np.ndarray) -> int:
    """Format positions as `json.dumps` does; returns the length of the text, or 0 if it cannot.

    A number is written with the fewest digits that are read as the same number: those of a decimal
    of at most nine places and 15 digits in all, if it is the nearest number to one. There must be
    no other numbers, and none less than 0.0001, which have an exponent.
    """
    if len(xy) == 0:
        return 0
    at = 0
    for position in xy:
        text[at], text[at + 1] = _COMMA if at else _OPEN, _SPACE
        at += 2 if at else 1
        for side in range(2):
            value = abs(position[side])
            units = np.rint(value * 1e9)
            if not 1e5 <= units < 1e15 or units / 1e9 != value:
                return 0
            text[at], text[at + 1] = _SPACE if side else _OPEN, _MINUS
            at += 2 if position[side] < 0 else 1
            whole, part = divmod(np.uint64(units), np.uint64(10**9))
            point = at + 1
            while whole >= 10 ** (point - at):
                point += 1
            for k in range(point - 1, at - 1, -1):
                text[k] = _ZERO + whole % np.uint64(10)
                whole //= np.uint64(10)
            text[point] = _POINT
            at = point + 10
            for k in range(at - 1, point, -1):
                text[k] = _ZERO + part % np.uint64(10)
                part //= np.uint64(10)
            while at > point + 2 and text[at - 1] == _ZERO:
                at -= 1
            text[at] = _CLOSE if side else _COMMA
            at += 1
    text[at] = _CLOSE
    return at + 1
