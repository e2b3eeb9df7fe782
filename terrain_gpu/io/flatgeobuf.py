"""Write FlatGeobuf files, feature by feature, without another library.

The format is version 3 of https://flatgeobuf.org: a header and features, each a FlatBuffer
preceded by its size. Files have no spatial index, so features keep their order and can be streamed.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..facts import JsonObject
from ..grid import GridSpec
from ..grid.crs import grid_crs
from .wkb import Part, parts_of_wkb

FLATGEOBUF = ".fgb"

MAGIC = b"fgb\x03fgb\x00"
KINDS = ("", "Point", "LineString", "Polygon", "", "MultiLineString", "MultiPolygon")
"""Geometry types by number."""
TYPES = ("i1", "u1", "b1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "O")
"""Data types of attributes by number; the last is text."""

Row = tuple[bytes | None, JsonObject]
"""A geometry as well-known binary, and attributes; those that are None are left out."""


def write_flatgeobuf(
    file: Path,
    rows: Iterable[Row],
    grid: GridSpec,
    layer: str,
    fields: Mapping[str, type],
    kind: str,
) -> None:
    """Write features of one kind of geometry, in the CRS of a grid."""
    coders = [(name, *_coder(number, one)) for number, (name, one) in enumerate(fields.items())]
    count, box = 0, np.array([math.inf, math.inf, -math.inf, -math.inf])
    with open(file, "wb") as out:
        out.write(_header(grid, layer, fields, kind, 0, box))
        for wkb, attributes in rows:
            parts = [] if wkb is None else parts_of_wkb(wkb)[0]
            for _, rings in parts:
                for xy in rings:
                    np.minimum(box[:2], xy.min(axis=0), out=box[:2])
                    np.maximum(box[2:], xy.max(axis=0), out=box[2:])
            values = b"".join(
                head + code(attributes[name])
                for name, head, code in coders
                if attributes[name] is not None
            )
            out.write(_feature(parts, kind, values))
            count += 1
        out.seek(0)
        out.write(_header(grid, layer, fields, kind, count, box))


def number_of(kind: type) -> int:
    """The number of a data type in the format."""
    return TYPES.index(np.dtype(kind).str.lstrip("<|>"))


def _coder(number: int, kind: type) -> tuple[bytes, Any]:
    """The bytes before each value of a column, and the function that encodes a value."""
    head, dtype = struct.pack("<H", number), np.dtype(kind)
    if dtype.kind == "O":
        return head, _text
    return head, lambda value: np.array(value, dtype).astype(dtype.newbyteorder("<")).tobytes()


def _text(value: Any) -> bytes:
    coded = str(value).encode()
    return struct.pack("<I", len(coded)) + coded


# -- FlatBuffers: https://flatbuffers.dev/internals ------------------------------------------------


class _Buffer:
    """A FlatBuffer preceded by its size, written from the front."""

    def __init__(self) -> None:
        self.data = bytearray(8)
        """Begins with the size and the offset of the root table."""

    def _pad(self, size: int, beyond: int = 0) -> None:
        self.data += bytes(-(len(self.data) + beyond) % size)

    def refer(self, position: int) -> None:
        """Make the reference at an offset point to what is written next."""
        struct.pack_into("<I", self.data, position, len(self.data) - position)

    def table(self, position: int, fields: Mapping[int, tuple[str, Any]]) -> dict[int, int]:
        """Write a table to which the reference at `position` points; return offsets of its fields.

        Fields are given by number in the schema, with a `struct` format and a value each, the
        largest type first.
        """
        sizes = {number: struct.calcsize(form) for number, (form, _) in fields.items()}
        offsets, offset = [0] * (max(fields) + 1), 4
        for number in fields:
            offsets[number], offset = offset, offset + sizes[number]
        slots = [4 + 2 * len(offsets), offset, *offsets]
        self._pad(
            8, 2 * len(slots) + 4
        )  # aligns the fields, which follow the first four bytes of the table
        begin = len(self.data)
        self.data += struct.pack(f"<{len(slots)}H", *slots)
        self.refer(position)
        first = len(self.data)
        self.data += struct.pack("<i", first - begin)
        for form, value in fields.values():
            self.data += struct.pack("<" + form, value)
        return {number: first + offsets[number] for number in fields}

    def vector(self, position: int, values: bytes, size: int = 1) -> None:
        """Write a vector of values of `size` bytes, to which the reference at `position` points."""
        self._pad(max(size, 4), 4)
        self.refer(position)
        self.data += struct.pack("<I", len(values) // size) + values

    def text(self, position: int, value: str) -> None:
        """Write text to which the reference at `position` points."""
        self.vector(position, value.encode())
        self.data += b"\0"

    def finish(self) -> bytes:
        self._pad(8)
        struct.pack_into("<I", self.data, 0, len(self.data) - 4)
        return bytes(self.data)


REFERENCE = "I", 0
"""A field that refers to something written later."""
ROOT = 4
"""Offset of the reference to the root table."""


def _header(
    grid: GridSpec, layer: str, fields: Mapping[str, type], kind: str, count: int, box: np.ndarray
) -> bytes:
    """The header; its length does not depend on count and box."""
    buffer = _Buffer()
    fields_written = {8: ("Q", count), 0: REFERENCE, 1: REFERENCE, 7: REFERENCE}
    fields_written |= {10: REFERENCE} if grid.crs_wkt else {}
    fields_written |= {9: ("H", 0), 2: ("B", KINDS.index(kind))}  # 9: without an index
    offsets = buffer.table(ROOT, fields_written)
    buffer.text(offsets[0], layer)
    bounded = bool(np.isfinite(box).all())  # if not, four values with a length of 0
    buffer.vector(offsets[1], np.where(bounded, box, 0.0).astype("<f8").tobytes(), 8)
    struct.pack_into("<I", buffer.data, len(buffer.data) - 36, 4 * bounded)
    buffer.vector(offsets[7], bytes(4 * len(fields)), 4)
    first = len(buffer.data) - 4 * len(fields)
    for number, (name, one) in enumerate(fields.items()):
        column = buffer.table(first + 4 * number, {0: REFERENCE, 1: ("B", number_of(one))})
        buffer.text(column[0], name)
    if grid.crs_wkt:
        organisation, _, code = (grid.crs_code or "").partition(":")
        code_field = {1: ("i", int(code))} if code.isdigit() else {}
        crs = buffer.table(offsets[10], {0: REFERENCE, 4: REFERENCE, **code_field})
        buffer.text(crs[0], organisation)
        wkt = grid.crs_wkt
        buffer.text(crs[4], grid_crs(grid).to_wkt() if wkt.startswith("BOUNDCRS") else wkt)
    return MAGIC + buffer.finish()


def _feature(parts: Sequence[Part], kind: str, values: bytes) -> bytes:
    buffer = _Buffer()
    offsets = buffer.table(ROOT, {0: REFERENCE, 1: REFERENCE} if parts else {1: REFERENCE})
    if parts:
        _geometry(buffer, offsets[0], parts, kind)
    buffer.vector(offsets[1], values)
    return buffer.finish()


def _geometry(buffer: _Buffer, position: int, parts: Sequence[Part], kind: str) -> None:
    type_ = "B", KINDS.index(kind)
    if kind == "MultiPolygon":
        offsets = buffer.table(position, {7: REFERENCE, 6: type_})
        buffer.vector(offsets[7], bytes(4 * len(parts)), 4)
        first = len(buffer.data) - 4 * len(parts)
        for number, part in enumerate(parts):
            _geometry(buffer, first + 4 * number, [part], "Polygon")
        return
    several = [xy for _, rings in parts for xy in rings]
    offsets = buffer.table(position, {0: REFERENCE, 1: REFERENCE, 6: type_})
    sizes = [len(xy) for xy in several] if kind in ("Polygon", "MultiLineString") else []
    buffer.vector(offsets[0], np.cumsum(sizes).astype("<u4").tobytes(), 4)
    buffer.vector(offsets[1], np.concatenate(several).astype("<f8").tobytes(), 8)
