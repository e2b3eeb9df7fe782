"""Read lines from their file as cells: `read_lines`."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ...engine.machine import NO_LIMIT
from ...engine.plan import Excess, format_size
from ...errors import ReprojectionError, TerrainError, VerificationError
from ...facts import JsonObject
from ...grid import Block, BlockGrid, GridSpec, cell_centres
from ...grid.crs import grid_crs
from ...grid.neighbours import COL_STEP_16, ROW_STEP_16
from ..features import lines_across
from ..flatgeobuf import FLATGEOBUF
from ..geojson import listed
from ..lines import PARQUET, geojson_line, geojson_lines, import_parquet, is_geopackage
from ..reprojection import WGS84, reprojected
from ..vectors import GEOPACKAGE
from .flatgeobuf import count_features, read_flatgeobuf

_BATCH = 1 << 16
_ROWS = 1 << 10
"""Number of rows of GeoParquet converted to Python objects at a time."""
_ENVELOPES = (0, 32, 48, 48, 64)
"""Size in bytes of the envelope in the header of a GeoPackage geometry, by envelope type."""
PARSED, COLUMNAR = 18, 4
"""Bytes in memory for each byte of a line in its file (measured: 10 for GeoPackage, 17 for
GeoJSON), and for each byte of a row group of GeoParquet before that."""

_PART = np.dtype([("before", "<i8"), ("first", "<i8"), ("count", "<i8")])
"""A part of the records of a block: the previous part or -1, its first record, and their number."""

Line = tuple[JsonObject, Any, np.ndarray]
"""Attributes, geometry as GeoJSON or well-known binary, and positions."""


class FileRoom:
    """The memory for the features of a file, one after the other, see `Excess`.

    Parameters
    ----------
    excess
        Records how much memory is missing.
    planned
        Bytes of a feature that the plan counts.
    purpose
        Words for a feature in the message, before its size.
    """

    def __init__(self, excess: Excess, purpose: str, planned: int = 0) -> None:
        self.excess, self._what, self._planned = excess, purpose, planned

    def has(self, size: int) -> bool:
        """Whether a feature of this number of bytes fits in memory; if not, it is left out."""
        purpose = f"{self._what} of {format_size(size)}"
        return self.excess.has_room(max(size - self._planned, 0), purpose)

    def refuse(self) -> None:
        """Raise an error, once all features are read, if the limit was too small for one."""
        self.excess.refuse()


NO_LIMITS = FileRoom(Excess(0, NO_LIMIT), "for a feature")


class LineFile(NamedTuple):
    """A file of lines.

    Attributes
    ----------
    file, path
        Its current path, and its final path, for messages.
    grid
        The grid of the raster that it belongs to.
    layer, fields
        The name of its layer, and the names of its attributes.
    gaps
        Whether lines may have no geometry.
    wraps
        Whether the raster goes around the Earth, so that lines may be cut at its sides.
    """

    file: Path
    path: Path
    grid: GridSpec
    layer: str
    fields: tuple[str, ...]
    gaps: bool = False
    wraps: bool = False

    @property
    def lonlat(self) -> bool:
        """Whether its positions are in longitude and latitude, whatever the raster's CRS is."""
        return not self.is_binary and bool(self.grid.crs_wkt)

    @property
    def is_binary(self) -> bool:
        """Whether it is not GeoJSON."""
        return self.file.suffix.lower() in (GEOPACKAGE, PARQUET, FLATGEOBUF)


class Batch(NamedTuple):
    """Some lines of a file.

    Attributes
    ----------
    number
        Number of the first line, counted from 1.
    attributes
        Attributes of each line.
    cells
        int64, the ids of the cells of all lines.
    starts
        int64 (n + 1,): where each line starts in `cells`, and the total.
    """

    number: int
    attributes: list[JsonObject]
    cells: np.ndarray
    starts: np.ndarray

    def without_repeats(self) -> Batch:
        """The same lines with one cell where a line of one cell repeats its position."""
        counts, first = np.diff(self.starts), self.starts[:-1]
        second = self.cells[np.minimum(first + 1, len(self.cells) - 1)]
        again = (counts == 2) & (self.cells[first] == second)
        keep = np.ones(len(self.cells), bool)
        keep[first[again] + 1] = False
        starts = np.append(0, np.cumsum(counts - again))
        return self._replace(cells=self.cells[keep], starts=starts)

    def steps(self, path: Path, cols: int, *, wraps: bool = False, ways: int = 8) -> np.ndarray:
        """The direction of the next cell of the line, for each cell; `ways` at the end.

        Parameters
        ----------
        wraps
            Whether the last column is next to the first one.
        ways
            Number of neighbours, 8 or 16.

        Raises
        ------
        VerificationError
            when successive cells of a line are not neighbours.
        """
        row, col = np.divmod(self.cells, cols)
        down, right, reach = np.diff(row), np.diff(col), ways // 8
        right = (right + reach) % cols - reach if wraps else right
        near = (np.abs(down) <= reach) & (np.abs(right) <= reach)
        between = np.ones(max(len(row) - 1, 0), bool)
        ends = self.starts[1:-1]
        between[ends[(ends > 0) & (ends < len(row))] - 1] = False
        table = np.full((2 * reach + 1, 2 * reach + 1), ways, np.uint8)
        table[ROW_STEP_16[:ways] + reach, COL_STEP_16[:ways] + reach] = np.arange(ways)
        step = table[np.where(near, down, 0) + reach, np.where(near, right, 0) + reach]
        apart = np.flatnonzero(between & (step == ways))
        if len(apart):
            line = int(np.searchsorted(self.starts, apart[0], side="right")) - 1
            wrong_line(path, self.number + line, "successive cells are not neighbours")
        end = np.full(min(len(row), 1), ways)
        return np.append(np.where(between, step, ways), end).astype(np.uint8)


def wrong_line(
    path: Path, number: int, why: str, check: str = "line", *, what: str = "line"
) -> NoReturn:
    """Raise `VerificationError` for a line, or another feature, of a file."""
    raise VerificationError(
        f"{path}: {what} {number:,}: {why}; write it again with --overwrite", check
    )


def read_lines(of: LineFile, room: FileRoom) -> Iterator[Batch]:
    """Yield the lines of a file in batches of about 65 536 cells; no line is split.

    Raises
    ------
    VerificationError
        when positions are not exactly the centres of cells of the raster.
    """
    number, gathered = 1, 0
    held: list[Line] = []
    for line in _rows(of, room):
        held.append(line)
        # An attribute takes no more memory than a cell.
        gathered += len(line[2]) + len(of.fields)
        if gathered > _BATCH:
            yield _located(of, number, held)
            number, gathered, held = number + len(held), 0, []
    if held:
        yield _located(of, number, held)


def read_positions(of: LineFile, room: FileRoom) -> Iterator[tuple[JsonObject, np.ndarray]]:
    """Yield the attributes of each line of a file, and its positions as they are in the file.

    Raises
    ------
    VerificationError
        when a line is not cut exactly where it crosses the antimeridian.
    """
    for number, (attributes, geometry, xy) in enumerate(_rows(of, room), 1):
        if of.lonlat and listed(geojson_line(xy, cut=True)) != geometry:
            wrong_line(of.path, number, "is not cut correctly at the antimeridian")
        yield attributes, xy


def projected(grid: GridSpec, lonlat: np.ndarray) -> np.ndarray:
    """Longitudes and latitudes in the raster's CRS.

    Rasters may extend past 180 degrees, or from 0 to 360: positions beyond their sides are moved
    inside by whole turns around the Earth.
    """
    crs, (a, _, c, *_) = grid_crs(grid), grid.transform
    xy = reprojected(lonlat, WGS84, crs)
    west, east = sorted((c, c + a * grid.cols))
    # Longitudes have nine decimals: corners of cells may seem to lie beyond a side.
    slack = min((1e-9 if crs.is_geographic else 0.01) / crs.units_factor[1], abs(a) / 2)
    west, east = west - slack, east + slack
    beyond = (xy[:, 0] < west) | (xy[:, 0] > east)
    if not beyond.any():
        return xy
    if crs.is_geographic:
        turn = 2 * math.pi / crs.units_factor[1]
    else:
        # Along a parallel, x grows evenly except for one jump, in one of three quarters.
        quarters = np.repeat(lonlat[beyond], 4, axis=0)
        quarters[:, 0] += np.tile((0.0, 90.0, 180.0, 270.0), len(quarters) // 4)
        try:
            x = reprojected(quarters, WGS84, crs)[:, 0].reshape(-1, 4)
        except ReprojectionError:  # not a projection around the Earth
            return xy
        with np.errstate(all="ignore"):
            turn = 4 * np.median(np.diff(x), axis=1)
    with np.errstate(all="ignore"):
        xy[beyond, 0] = west + (xy[beyond, 0] - west) % turn
    return xy


def _located(of: LineFile, number: int, held: list[Line]) -> Batch:
    """Find the cells at positions, and check that the positions are their centres."""
    attributes, geometries, lines = zip(*held, strict=True)
    starts, grid = np.cumsum([0, *map(len, lines)]), of.grid
    xy = np.concatenate(lines)
    if of.lonlat and len(xy):
        try:
            xy = projected(grid, xy)
        except ReprojectionError as error:
            line = int(np.searchsorted(starts, error.number, side="right")) - 1
            wrong_line(of.path, number + line, "positions are not the centres of cells")
    a, _, c, _, e, f = grid.transform
    with np.errstate(all="ignore"):
        col, row = ((xy - (c, f)) / (a, e)).T - 0.5
        inside = (row > -0.5) & (row < grid.rows - 0.5) & (col > -0.5) & (col < grid.cols - 0.5)
    places = np.rint(np.where(inside, (row, col), 0)).astype(np.int64).T
    with_geometry = [k for k, line in enumerate(lines) if len(line)]
    centres = np.split(cell_centres(grid, places), starts[1:-1])
    if of.lonlat:
        right = geojson_lines([centres[k] for k in with_geometry], grid_crs(grid))
        same = [listed(one) == geometries[k] for k, one in zip(with_geometry, right, strict=True)]
    elif of.wraps:
        shape = lines_across(grid)
        same = [shape.wkb(centres[k]) == geometries[k] for k in with_geometry]
    else:
        same = [centres[k].tobytes() == lines[k].tobytes() for k in with_geometry]
    for k, good in zip(with_geometry, same, strict=True):
        if not (good and inside[starts[k] : starts[k + 1]].all()):
            wrong_line(of.path, number + k, "positions are not the centres of cells")
    return Batch(number, list(attributes), places[:, 0] * grid.cols + places[:, 1], starts)


def _rows(of: LineFile, room: FileRoom) -> Iterator[Line]:
    return (_binary if of.is_binary else _geojson)(of, room)


def _geojson(of: LineFile, room: FileRoom) -> Iterator[Line]:
    crs = bool(of.grid.crs_wkt)
    for number, text in geojson_rows(of, room):
        attributes, geometry = parsed(of, number, text)
        several = False
        try:
            if geometry is None and of.gaps:
                positions = [np.empty((0, 2))]
            else:
                parts = geometry["coordinates"]
                several = geometry["type"] == "MultiLineString"
                if not several:
                    parts = [parts]
                positions = [np.array(part, np.float64).reshape(-1, 2) for part in parts]
        except (ValueError, KeyError, TypeError):
            wrong_line(of.path, number, "cannot be read")
        if several and not crs:
            wrong_line(of.path, number, "is not written as this program does")
        xy = np.concatenate(_joined(positions))
        _refuse_short(of, number, geometry, xy)
        yield attributes, geometry if crs else None, xy


def _parsed_bytes(text: str) -> int:
    return PARSED * len(text)


def geojson_rows(
    of: LineFile, room: FileRoom, size: Callable[[str], int] = _parsed_bytes
) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each feature of a GeoJSON file, see `parsed`.

    `size` returns the bytes in memory for a text.
    """
    frame, number, expects_more, crs = [], 0, True, bool(of.grid.crs_wkt)
    with open(of.file, encoding="utf-8") as text:
        for line in text:
            if not line.startswith('{"type": "Feature",'):
                frame.append(line.rstrip("\n"))
                continue
            number += 1
            expects_more, expected = line.endswith(",\n"), expects_more
            if not expected or len(frame) < 2:
                wrong_line(of.path, number, "is not written as this program does")
            if room.has(size(line)):
                yield number, line.rstrip(",\n")
    room.refuse()
    head = ['{"type": "FeatureCollection",', *([] if crs else ['"crs": null,']), '"features": [']
    if frame != [*head, "]}"] or (number and expects_more):
        what = "the file around the lines is not written as this program does"
        wrong_line(of.path, number, what)


def parsed(of: LineFile, number: int, text: str) -> tuple[JsonObject, Any]:
    """The attributes and the geometry of a feature of a GeoJSON file."""
    try:
        feature = json.loads(text)
        return feature["properties"], feature["geometry"]
    except (ValueError, KeyError, TypeError):
        wrong_line(of.path, number, "cannot be read")


def _refuse_short(of: LineFile, number: int, geometry: Any, xy: np.ndarray) -> None:
    if geometry is not None and len(xy) < 2:
        wrong_line(of.path, number, "has fewer than two cells")


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn the errors of libraries that cannot read a file into a `VerificationError`."""
    try:
        yield
    except TerrainError:
        raise
    except (sqlite3.Error, struct.error, ValueError, TypeError, IndexError, KeyError) as error:
        raise VerificationError(
            f"{path}: cannot be read back ({error}); write it again with --overwrite", "line"
        ) from error


def _database(file: Path) -> closing[sqlite3.Connection]:
    """Open a GeoPackage read-only; without the mode, SQLite would create a missing file."""
    address = f"{file.absolute().as_uri()}?immutable=1&mode=ro"
    return closing(sqlite3.connect(address, uri=True))


def read_geopackage(
    file: Path, path: Path, layer: str, fields: tuple[str, ...]
) -> Iterator[tuple[Any, ...]]:
    """Yield the geometry and fields of each row of a layer, without GDAL, which wrote it."""
    names = ", ".join(f'"{name}"' for name in fields)
    with _database(file) as base, readable(path):
        ((column,),) = base.execute(
            "SELECT column_name FROM gpkg_geometry_columns WHERE table_name = ?", (layer,)
        )
        # SQLite has no NaN; infinities are ordinary numbers.
        yield from base.execute(f'SELECT "{column}", {names} FROM "{layer}" ORDER BY rowid')


def fields_of(file: Path, layer: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The attributes of `names` that a GeoPackage has; for other files, all."""
    if not is_geopackage(file):
        return names
    with _database(file) as base, readable(file):
        rows = base.execute("SELECT name FROM pragma_table_info(?)", (layer,)).fetchall()
    existing = {name for (name,) in rows}
    return tuple(name for name in names if name in existing)


def attribute_rows(of: LineFile, room: FileRoom) -> Iterator[JsonObject]:
    """Yield the attributes of each feature of a file in any of the formats."""
    with readable(of.path):
        if of.is_binary:
            yield from (attributes for attributes, _ in binary_rows(of, room))
        else:
            yield from (parsed(of, *one)[0] for one in geojson_rows(of, room))


def count_lines(of: LineFile) -> int:
    """The number of features according to a file, for progress; 0 if the file is damaged."""
    with suppress(VerificationError, OSError), readable(of.path):
        if is_geopackage(of.file):
            with _database(of.file) as base:
                ((count,),) = base.execute(f'SELECT count(*) FROM "{of.layer}"')
        elif not of.is_binary:
            with open(of.file, "rb") as text:
                count = sum(line.startswith(b'{"type": "Feature",') for line in text)
        elif of.file.suffix.lower() == FLATGEOBUF:
            count = count_features(of.file)
        else:
            count = import_parquet(of.path)[1].read_metadata(of.file).num_rows
        return int(count)
    return 0


def attributes_of(file: Path, grid: GridSpec) -> set[str]:
    """Names of the attributes of a vector file; none if it is empty, or cannot be read."""
    with suppress(VerificationError, OSError, sqlite3.Error):
        if not is_geopackage(file):
            of = LineFile(file, file, grid, "", ())
            return set(next(attribute_rows(of, NO_LIMITS), ()))
        with _database(file) as base:
            names = base.execute(
                "SELECT name FROM gpkg_geometry_columns, pragma_table_info(table_name) "
                "WHERE NOT pk AND name <> column_name"
            )
            return {name for (name,) in names}
    return set()


def in_parts(of: LineFile) -> bool:
    """Whether the geometries of a binary file are lines in parts, judged by the first one."""
    if not of.is_binary:
        return False
    with readable(of.path):
        first = next((wkb for _, wkb in binary_rows(of, NO_LIMITS) if wkb), b"")
    return first[1:5] == b"\x05\x00\x00\x00"


def well_known(blob: bytes) -> bytes:
    """The well-known binary in a geometry of a GeoPackage; empty for other bytes."""
    return blob[8 + _ENVELOPES[blob[3] >> 1 & 7] :] if blob[:2] == b"GP" else b""


def _positions(of: LineFile, number: int, wkb: bytes) -> np.ndarray:
    """The positions of the cells of a line, without the end points added by a cut."""
    if not of.wraps:
        return _positions_of_one(of, number, wkb)
    if wkb[:5] != b"\x01\x05\x00\x00\x00":
        wrong_line(of.path, number, "is not a line in parts")
    parts, first = [], 9
    while first < len(wkb):
        last = first + 9 + 16 * int.from_bytes(wkb[first + 5 : first + 9], "little")
        parts.append(_positions_of_one(of, number, wkb[first:last]))
        first = last
    return np.concatenate(_joined(parts or [np.empty((0, 2))]))


def _joined(parts: list[np.ndarray]) -> list[np.ndarray]:
    """The parts of a line without the end points added by a cut."""
    for k in range(len(parts) - 1):
        parts[k], parts[k + 1] = parts[k][:-1], parts[k + 1][1:]
    return parts


def _positions_of_one(of: LineFile, number: int, wkb: bytes) -> np.ndarray:
    if wkb[:5] != b"\x01\x02\x00\x00\x00" or (len(wkb) - 9) % 16:
        wrong_line(of.path, number, "is not a line")
    xy = np.frombuffer(wkb, "<f8", offset=9).reshape(-1, 2)
    if int.from_bytes(wkb[5:9], "little") != len(xy):
        wrong_line(of.path, number, "is not a line")
    _refuse_short(of, number, wkb, xy)
    return xy


def binary_rows(
    of: LineFile, room: FileRoom, parsed: int = PARSED
) -> Iterator[tuple[JsonObject, bytes | None]]:
    """Yield the attributes and the well-known binary of each feature of a binary file.

    `parsed` are bytes in memory for each of its bytes.
    """
    if is_geopackage(of.file):
        for blob, *values in read_geopackage(of.file, of.path, of.layer, of.fields):
            if room.has(parsed * len(blob or b"")):
                attributes = dict(zip(of.fields, values, strict=True))
                yield attributes, None if blob is None else well_known(blob)
    elif of.file.suffix.lower() == FLATGEOBUF:
        yield from read_flatgeobuf(of.file, lambda size: room.has(parsed * size))
    else:
        yield from _parquet(of, room, parsed)
    room.refuse()


def _binary(of: LineFile, room: FileRoom) -> Iterator[Line]:
    with readable(of.path):
        for number, (attributes, wkb) in enumerate(binary_rows(of, room), 1):
            if wkb is None and of.gaps:
                yield attributes, None, np.empty((0, 2))
                continue
            blob = wkb or b""
            yield attributes, blob, _positions(of, number, blob)


def _parquet(
    of: LineFile, room: FileRoom, parsed: int
) -> Iterator[tuple[JsonObject, bytes | None]]:
    pyarrow, parquet = import_parquet(of.path)
    try:
        with parquet.ParquetFile(of.file) as source:
            for group in range(source.num_row_groups):
                if not room.has(COLUMNAR * source.metadata.row_group(group).total_byte_size):
                    continue
                rows = source.iter_batches(_ROWS, row_groups=[group], use_threads=False)
                for row in (row for some in rows for row in some.to_pylist()):
                    wkb = row.pop("geometry")
                    if room.has(parsed * len(wkb or b"")):
                        yield row, wkb
    except pyarrow.ArrowException as error:
        raise VerificationError(
            f"{of.path}: cannot be read back ({error}); write it again with --overwrite", "line"
        ) from error


class BlockRecords:
    """Records of the cells of lines on disk, batch by batch; each batch is sorted by block.

    A batch has a part for each block that it touches. The parts of a block are linked from the last
    to the first, on disk as well: memory holds 8 bytes for each block.

    Parameters
    ----------
    files
        Descriptors of the files for the records and for the links.

    Attributes
    ----------
    total
        Number of records.
    """

    def __init__(self, files: tuple[int, int], kind: np.dtype, blocks: BlockGrid) -> None:
        self._file, self._chains = files
        self.kind, self.blocks = kind, blocks
        self._last = np.full(blocks.count, -1)
        self.total = self._parts = 0

    def order(self, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The order in which records of cells are stored, and the number of their blocks."""
        row, col = np.divmod(cells, self.blocks.cols)
        owner = row // self.blocks.block * self.blocks.shape[1] + col // self.blocks.block
        order = np.argsort(owner, kind="stable")
        return order, owner[order]

    def put(self, records: np.ndarray) -> None:
        """Store the records of a batch, which have a field "cell"."""
        order, owner = self.order(records["cell"])
        write_records(self._file, records[order], self.total)
        block, first, count = np.unique(owner, return_index=True, return_counts=True)
        parts = np.empty(len(block), _PART)
        parts["before"], parts["first"], parts["count"] = self._last[block], first, count
        parts["first"] += self.total
        write_records(self._chains, parts, self._parts)
        self._last[block] = self._parts + np.arange(len(block))
        self.total, self._parts = self.total + len(records), self._parts + len(block)

    def parts(self, block: Block) -> list[tuple[int, int]]:
        """The parts of a block: the number of the first record, and the number of records."""
        parts, part = [], int(self._last[block[0] * self.blocks.shape[1] + block[1]])
        while part >= 0:
            part, first, count = read_records(self._chains, _PART, part, 1)[0].tolist()
            parts.append((first, count))
        return parts[::-1]

    def of(self, block: Block) -> np.ndarray:
        """The records of a block."""
        parts = (read_records(self._file, self.kind, *part) for part in self.parts(block))
        return np.concatenate([np.empty(0, self.kind), *parts])

    def some(self, block: Block, most: int) -> Iterator[np.ndarray]:
        """Yield the records of a block, at most `most` at a time."""
        for first, count in self.parts(block):
            for k in range(0, count, most):
                yield read_records(self._file, self.kind, first + k, min(most, count - k))


def write_records(file: int, data: np.ndarray, first: int) -> None:
    """Write records from the number `first` onwards."""
    view = memoryview(data.tobytes())
    offset = first * data.itemsize
    while view:
        done = os.pwrite(file, view, offset)
        view, offset = view[done:], offset + done


def read_records(file: int, kind: np.dtype, first: int, count: int) -> np.ndarray:
    data = os.pread(file, count * kind.itemsize, first * kind.itemsize)
    return np.frombuffer(data, kind)


def same_value(value: Any, right: float | int | str) -> bool:
    """Whether an attribute has the right type and the same bits; None is accepted for NaN."""
    if type(right) is not float:
        return type(value) is type(right) and value == right
    if math.isnan(right):
        return value is None or (type(value) is float and math.isnan(value))
    return (
        type(value) is float
        and value == right
        and math.copysign(1, value) == math.copysign(1, right)
    )


def check_attributes(
    path: Path,
    number: int,
    actual: JsonObject,
    right: dict[str, float | int | str],
    *,
    of: str = "line",
) -> None:
    """Compare the attributes of a line, or another feature, of a file.

    Raises
    ------
    VerificationError
    """
    for name, value in right.items():
        if name not in actual or not same_value(actual[name], value):
            why = f"{name} is {actual.get(name)!r} instead of {value!r}"
            wrong_line(path, number, why, "attribute", what=of)
    if actual.keys() != right.keys():
        wrong_line(path, number, "has other attributes", "attribute", what=of)
