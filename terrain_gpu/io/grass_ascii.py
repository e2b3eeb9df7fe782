"""Read GRASS ASCII rasters in one forward pass.

GDAL has a driver for them, but it reads the null marker ``*`` as 0 and degrees such as
``84:24:49W`` as 84: wrong cells at wrong coordinates, without an error. So the text is parsed here.
The format is described in the GRASS manual, r.in.ascii.
"""

from __future__ import annotations

import math
import mmap
import re
import threading

import numpy as np

from ..errors import InputError
from ..grid import GridSpec, Window
from ..plurals import counted

_FIELDS = ("north", "south", "east", "west", "rows", "cols")
_TYPES = {"int": np.int32, "float": np.float32, "double": np.float64}
_CHUNK, _HEAD = 1 << 17, 1 << 16
DEFAULT_NULL = -9999


def is_grass_ascii(path: str) -> bool:
    """Whether the file starts with a GRASS ASCII header."""
    try:
        with open(path, "rb") as file:
            start = file.read(64).lstrip().lower()
    except OSError:
        return False
    return start.startswith(tuple(f"{field}:".encode() for field in _FIELDS))


class GrassAscii:
    """A GRASS ASCII raster.

    Attributes
    ----------
    grid
        `GridSpec` without a CRS, which the format does not store.
    dtype
        int32, float32 or float64, from the ``type:`` header. Without one, float32 if a decimal
        point or exponent occurs, and int32 otherwise.
    nodata
        The value of null cells: the number of the ``null:`` header, or else -9999.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        header, self._start = _read_header(path)
        try:
            rows, cols = _count(header, "rows"), _count(header, "cols")
            north, south = _coordinate(header["north"]), _coordinate(header["south"])
            east, west = _coordinate(header["east"]), _coordinate(header["west"])
            self._null = header.get("null", "*")
            self.nodata = DEFAULT_NULL if self._null == "*" else float(self._null)
            self.dtype = np.dtype(
                _TYPES[header["type"]] if "type" in header else _sniff(path, self._start)
            )
        except KeyError as error:
            raise InputError(
                f"{path}: GRASS ASCII header: {error} is missing or unknown; it needs "
                "north, south, east, west, rows, cols"
            ) from None
        except ValueError as error:
            raise InputError(f"{path}: GRASS ASCII header: {error}") from None
        if not (north > south and east > west):
            raise InputError(
                f"{path}: GRASS ASCII header describes an empty area: north {north}, south "
                f"{south}, east {east}, west {west}"
            )
        if rows < 1 or cols < 1:
            raise InputError(
                f"{path}: GRASS ASCII header has {counted(rows, 'row')} and "
                f"{counted(cols, 'column')}"
            )
        transform = ((east - west) / cols, 0.0, west, 0.0, -(north - south) / rows, north)
        try:
            self.grid = GridSpec(rows, cols, transform)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        self._lock = threading.Lock()
        self._rewind()

    def _rewind(self) -> None:
        self._file = open(self.path, "rb")  # noqa: SIM115 - lives as long as the reader
        self._file.seek(self._start)
        self._row = 0
        self._count = 0
        self._rest = b""
        self._values = np.empty(0)

    def read(self, window: Window, out: np.ndarray) -> None:
        """Read a window. Windows in forward order take one pass; going back restarts at the top."""
        row0, row1, col0, col1 = window
        with self._lock:
            if row0 < self._row:
                self._file.close()
                self._rewind()
            try:
                while self._row < row0:
                    self._next_row()
                for k in range(row1 - row0):
                    self._store(self._next_row()[col0:col1], out[k], row0 + k, col0)
            except InputError:  # the error was within a row: the next read restarts at the top
                self._file.close()
                self._rewind()
                raise

    def close(self) -> None:
        self._file.close()

    def _next_row(self) -> np.ndarray:
        """The next row as float64 (exact for every int32), with NaN for null."""
        rows, cols = self.grid.shape
        parts = []
        missing = cols
        while missing:
            if not self._values.size:
                self._values = self._next_values()
                if not self._values.size:
                    raise InputError(
                        f"{self.path}: ends in row {self._row} of {rows}; the file is truncated"
                    )
            parts.append(self._values[:missing])
            self._values = self._values[missing:]
            missing -= parts[-1].size
        self._row += 1
        if self._row == rows and (self._values.size or self._next_values().size):
            raise InputError(
                f"{self.path}: has more values than {rows} x {cols}; correct its header"
            )
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _next_values(self) -> np.ndarray:
        """Values of the next chunk of text, cut at white space; empty at the end of the file."""
        tokens: list[bytes] = []
        pieces = [self._rest]
        while not tokens:
            piece = self._file.read(_CHUNK)
            cut = max(piece.rfind(blank) for blank in (b" ", b"\n", b"\t", b"\r")) + 1
            if piece and not cut and sum(map(len, pieces)) < _HEAD:  # longer words are not numbers
                pieces.append(piece)
                continue
            cut = cut or len(piece)
            tokens = b"".join((*pieces, piece[:cut])).split()
            pieces = [piece[cut:]]
            if not piece:
                break
        self._rest = b"".join(pieces)
        null = self._null.encode()
        try:
            if any(b"_" in t for t in tokens):  # float() would accept 1_000
                raise ValueError
            numbers = (math.nan if t in (null, b"*") else float(t) for t in tokens)
            values = np.fromiter(numbers, np.float64, len(tokens))
        except ValueError:
            wrong = (k for k, t in enumerate(tokens) if not _is_number(t) and t not in (null, b"*"))
            k = next(wrong, 0)
            word = tokens[k][:40].decode("latin-1")
            row, col = divmod(self._count + k, self.grid.cols)
            raise InputError(
                f"{self.path}: near row {row}, column {col}: {word!r} is not a number"
            ) from None
        self._count += len(tokens)
        return values

    def _store(self, values: np.ndarray, out: np.ndarray, row: int, col0: int) -> None:
        null = np.isnan(values)
        if self.dtype.kind == "i":
            values = np.where(null, self.nodata, values)
            bad = (values != np.rint(values)) | (np.abs(values) > np.iinfo(np.int32).max)
            if bad.any():
                col = int(np.argmax(bad))
                raise InputError(
                    f"{self.path}: row {row}, column {col0 + col}: {values[col]} is not a 32-bit "
                    "integer, the type in the header; correct its 'type:'"
                )
            out[...] = values
        else:
            values = np.where(null, self.nodata, values)
            bad = np.abs(values) > np.finfo(self.dtype).max
            bad &= np.isfinite(values)
            if bad.any():
                col = int(np.argmax(bad))
                raise InputError(
                    f"{self.path}: row {row}, column {col0 + col}: {values[col]} does not fit "
                    f"{self.dtype.name}; add 'type: double' to its header"
                )
            out[...] = values


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return b"_" not in text


def _read_header(path: str) -> tuple[dict[str, str], int]:
    header: dict[str, str] = {}
    start = 0
    with open(path, "rb") as file:
        lines = file.read(_HEAD).splitlines(keepends=True)  # lines may end in CR only
    for line in lines:
        key, colon, value = line.decode("latin-1").partition(":")
        if not colon or not key.strip().isalpha():
            break
        header[key.strip().lower()] = value.strip()
        start += len(line)
    return header, start


def _count(header: dict[str, str], field: str) -> int:
    try:
        return int(header[field])
    except ValueError:
        raise ValueError(f"{field} is {header[field]!r}, not a whole number") from None


_PART = r"(\d+(?:\.\d*)?)"
_DEGREES = re.compile(rf"([+-]?){_PART}(?::{_PART})?(?::{_PART})?\s*([NSEW]?)", re.IGNORECASE)


def _coordinate(text: str) -> float:
    """Parse a number, or degrees:minutes:seconds with a sign or with N, S, E or W."""
    match = _DEGREES.fullmatch(text)
    try:
        if match is None:
            value = float(text)
            if math.isfinite(value):
                return value
        else:
            sign, degrees, minutes, seconds, side = match.groups()
            rest = float(minutes or 0), float(seconds or 0)
            if max(rest) < 60 and not (sign and side):
                value = float(degrees) + rest[0] / 60 + rest[1] / 3600
                return -value if (sign or side.upper()) in ("-", "S", "W") else value
    except ValueError:
        pass
    raise ValueError(f"{text!r} is not a coordinate")


def _sniff(path: str, start: int) -> type:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as text:
        real = any(text.find(mark, start) >= 0 for mark in (b".", b"e", b"E", b"n"))
    return np.float32 if real else np.int32
