"""Read lines and polygons from FlatGeobuf files, without the code that wrote them."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from ...facts import JsonObject

LINE, POLYGON, LINES, POLYGONS = 2, 3, 5, 6
"""Geometry types."""

_FORMS = ("b", "B", "?", "h", "H", "i", "I", "q", "Q", "f", "d")
_TEXT = 11
"""Data types of attributes: the formats of numbers, and text."""


class _Fields:
    """A table in a FlatBuffer: its fields by number."""

    def __init__(self, data: bytes, offset: int) -> None:
        self._data, self._at = data, offset
        self._vtable = offset - struct.unpack_from("<i", data, offset)[0]
        self._size = struct.unpack_from("<H", data, self._vtable)[0]

    def _place(self, number: int) -> int:
        slot = 4 + 2 * number
        if slot >= self._size:
            return 0
        distance = int(struct.unpack_from("<H", self._data, self._vtable + slot)[0])
        return distance and self._at + distance

    def value(self, number: int, form: str, other: int) -> int:
        """A number, or `other` if the field is omitted."""
        offset = self._place(number)
        return int(struct.unpack_from("<" + form, self._data, offset)[0]) if offset else other

    def _target(self, number: int) -> int:
        offset = self._place(number)
        return offset and offset + int(struct.unpack_from("<I", self._data, offset)[0])

    def table(self, number: int) -> _Fields | None:
        offset = self._target(number)
        return _Fields(self._data, offset) if offset else None

    def bytes(self, number: int, size: int = 1) -> bytes:
        """The bytes of a vector of elements of `size` bytes; empty if it is omitted."""
        offset = self._target(number)
        if not offset:
            return b""
        end = offset + 4 + size * int(struct.unpack_from("<I", self._data, offset)[0])
        if end > len(self._data):
            raise ValueError("a vector extends beyond the end of its feature")
        return self._data[offset + 4 : end]

    def tables(self, number: int) -> list[_Fields]:
        offset, data = self._target(number) + 4, self.bytes(number, 4)
        distances = struct.unpack(f"<{len(data) // 4}I", data)
        return [
            _Fields(self._data, offset + 4 * k + distance) for k, distance in enumerate(distances)
        ]


def read_flatgeobuf(
    file: Path, has_room: Callable[[int], bool]
) -> Iterator[tuple[JsonObject, bytes | None]]:
    """Yield the attributes of features, and their geometries as well-known binary.

    Parameters
    ----------
    has_room
        Whether a feature of this number of bytes may be read; if not, it is left out.

    Raises
    ------
    ValueError, struct.error
        when it is not a FlatGeobuf file without index, or its header has another feature count.
    """
    with open(file, "rb") as source:
        if source.read(8)[:7] != b"fgb\x03fgb":
            raise ValueError("not a FlatGeobuf file")
        header = _table(source, _length(source) or 0)
        if header.value(9, "H", 16):
            raise ValueError("it has an index, which this program does not write")
        columns = [(one.bytes(0).decode(), one.value(1, "B", 0)) for one in header.tables(7)]
        kind, count = header.value(2, "B", 0), 0
        if kind not in (LINE, LINES, POLYGONS):
            raise ValueError("it does not hold lines or polygons")
        while (length := _length(source)) is not None:
            count += 1
            if not has_room(length):
                source.seek(length, os.SEEK_CUR)
                continue
            feature = _table(source, length)
            yield _attributes(feature.bytes(1), columns), _shape(feature.table(0), kind)
        if count != header.value(8, "Q", 0):
            raise ValueError(f"it has {count:,} features, a different number than in its header")


def count_features(file: Path) -> int:
    """The number of features according to the header; 0 without a header."""
    with open(file, "rb") as source:
        source.seek(8)
        length = _length(source)
        return 0 if length is None else int(_table(source, length).value(8, "Q", 0))


def _length(source: BinaryIO) -> int | None:
    """The length of the next buffer; None at the end."""
    size = source.read(4)
    if len(size) in (1, 2, 3):
        raise ValueError("it ends in the middle of a feature")
    return int.from_bytes(size, "little") if size else None


def _table(source: BinaryIO, length: int) -> _Fields:
    """The root table of a buffer."""
    data = source.read(length)
    if len(data) < max(length, 4):
        raise ValueError("it ends in the middle of a feature")
    return _Fields(data, int.from_bytes(data[:4], "little"))


def _attributes(data: bytes, columns: list[tuple[str, int]]) -> JsonObject:
    attributes: JsonObject = {name: None for name, _ in columns}
    offset = 0
    while offset < len(data):
        name, kind = columns[int.from_bytes(data[offset : offset + 2], "little")]
        if kind == _TEXT:
            end = offset + 6 + int.from_bytes(data[offset + 2 : offset + 6], "little")
            attributes[name] = data[offset + 6 : end].decode()
        else:
            end = offset + 2 + struct.calcsize(_FORMS[kind])
            attributes[name] = struct.unpack("<" + _FORMS[kind], data[offset + 2 : end])[0]
        offset = end
    return attributes


def _shape(geometry: _Fields | None, kind: int) -> bytes | None:
    if geometry is None:
        return None
    if kind == POLYGONS:
        parts = [_shape(part, POLYGON) or b"" for part in geometry.tables(7)]
        return struct.pack("<BII", 1, kind, len(parts)) + b"".join(parts)
    xy = geometry.bytes(1, 8)
    if kind == LINE:
        return struct.pack("<BII", 1, LINE, len(xy) // 16) + xy
    data = geometry.bytes(0, 4)
    ends = struct.unpack(f"<{len(data) // 4}I", data) or (len(xy) // 16,)
    wkb = struct.pack("<BII", 1, kind, len(ends))
    for begin, end in zip((0, *ends[:-1]), ends, strict=True):
        head = ("<BII", 1, LINE) if kind == LINES else ("<I",)
        wkb += struct.pack(*head, end - begin) + xy[16 * begin : 16 * end]
    return wkb
