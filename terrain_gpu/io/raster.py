"""Rasters in and out. The only file that imports rasterio."""

from __future__ import annotations

import errno
import logging
import math
import os
import re
import threading
import warnings
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import google_crc32c
import numpy as np
import rasterio
import rasterio.shutil
from rasterio._err import CPLE_BaseError
from rasterio.crs import CRS
from rasterio.enums import MaskFlags
from rasterio.errors import CRSError, NotGeoreferencedWarning, RasterioError
from rasterio.windows import Window as GdalWindow

from .. import cells
from ..engine.plan import GDAL_CACHE, MB, format_size
from ..errors import InputError, OutputError, TerrainError
from ..grid import GridSpec, Window, ceil_div, clip, is_empty
from ..store.outputs import Output, free_space, output_error
from .grass_ascii import GrassAscii, is_grass_ascii

log = logging.getLogger(__name__)

_GDAL = {
    "GDAL_CACHEMAX": GDAL_CACHE // MB,
    # GDAL's shortcut for whole PNG files reads garbage from truncated ones, without a word.
    "GDAL_PNG_WHOLE_IMAGE_OPTIM": "NO",
}
OPEN_FILES = 32
"""Datasets that a thread keeps open."""

ALIGNMENT = 1e-3
"""Grids count as aligned when they agree within this part of a cell."""

_SEQUENTIAL = {"AAIGrid", "GRASSASCIIGrid", "XYZ", "ISG"}


@contextmanager
def gdal_environment() -> Iterator[None]:
    """GDAL with a small block cache, since its memory counts; exceptions instead of stderr."""
    with warnings.catch_warnings(), rasterio.Env(**_GDAL):
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        yield


class Input(Protocol):
    """One raster to read: `GdalInput` or `GrassAscii`."""

    path: str
    grid: GridSpec
    dtype: np.dtype
    nodata: float | int | None

    def read(self, window: Window, out: np.ndarray) -> None: ...

    def close(self) -> None: ...


class _Handles(threading.local):
    """The datasets that a thread has open, the least recently used first."""

    def __init__(self) -> None:
        self.open: OrderedDict[GdalInput, Any] = OrderedDict()


_handles = _Handles()


class GdalInput:
    """One band of a raster that GDAL reads; every thread has its own handle.

    A thread keeps few of them open, since a mosaic may have more files than a process may open.
    """

    def __init__(self, path: str, band: int | None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._opened: set[Any] = set()
        self._options: dict[str, Any] = {}
        data = self._handle()
        try:
            self._describe(data, band)
        except CRSError as error:
            self.close()
            raise InputError(f"{path}: its coordinate system is not understood: {error}") from None
        except TerrainErrors:
            self.close()
            raise

    def _describe(self, data: Any, band: int | None) -> None:
        path = self.path
        if data.count == 0 and _is_zarr(path):
            raise InputError(_ZARR.format(path))
        if data.count == 0:
            names = ", ".join(data.subdatasets[:5]) or "none"
            raise InputError(f"{path}: holds no raster band itself; name a subdataset: {names}")
        if band is None and data.count > 1 and data.colorinterp[1].name != "alpha":
            raise InputError(f"{path}: has {data.count} bands; choose one with --band")
        self.band = band or 1
        if not 1 <= self.band <= data.count:
            raise InputError(f"{path}: has no band {self.band}, only 1 .. {data.count}")
        self.driver = data.driver
        if data.driver == "AAIGrid" and data.dtypes[0] == "int32" and (wider := _wider(path)):
            self._options = {"DATATYPE": wider}
            self.close()
            data = self._handle()
        k = self.band - 1
        try:
            self.dtype = cells.layer_dtype(data.dtypes[k])
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        self.crs = data.crs
        self.grid = _grid(data, path)
        nodata = data.nodatavals[k]
        if self.dtype.name in ("int64", "uint64"):
            nodata = _exact_nodata(data, k)
        self.nodata = _nodata(nodata, self.dtype, path)
        self.chunk = data.block_shapes[k]
        self.decoding = self._decoding(data, k)
        self.units = data.units[k] or ""
        self.scale, self.offset = data.scales[k], data.offsets[k]
        self.masked = (
            MaskFlags.per_dataset in data.mask_flag_enums[k]
            and MaskFlags.nodata not in data.mask_flag_enums[k]
        )
        self.files = self._local(data)

    def _decoding(self, data: Any, k: int) -> int:
        """Bytes that a thread holds to decode a chunk, with all bands that lie in it."""
        how = data.tags(ns="IMAGE_STRUCTURE")
        if data.driver == "GTiff" and "COMPRESSION" not in how:
            return 0
        bands = data.count if how.get("INTERLEAVE") == "PIXEL" else 1
        decoded = math.prod(self.chunk) * bands * np.dtype(data.dtypes[k]).itemsize
        return decoded + min(decoded, sum(map(os.path.getsize, self._local(data))))

    @staticmethod
    def _local(data: Any) -> list[str]:
        return [f for f in data.files if os.path.isfile(f)]

    def _handle(self) -> Any:
        mine = _handles.open
        if self in mine:
            mine.move_to_end(self)
            return mine[self]
        while len(mine) >= OPEN_FILES:
            other, data = mine.popitem(last=False)
            other._close(data)
        try:
            data = mine[self] = rasterio.open(_plain(self.path), **self._options)
        except (RasterioError, UnicodeError) as error:
            raise InputError(_not_readable(self.path, error)) from None
        with self._lock:
            self._opened.add(data)
        return data

    def _close(self, data: Any) -> None:
        with self._lock:
            self._opened.discard(data)
        data.close()

    def read(self, window: Window, out: np.ndarray) -> None:
        """Read a window into `out`.

        Raises
        ------
        InputError
            when the file is truncated or damaged there.
        """
        # An environment of the thread's own sends GDAL's warnings to logging, not to stderr.
        with rasterio.Env(**_GDAL):
            self._read(window, out)

    def _read(self, window: Window, out: np.ndarray) -> None:
        row0, row1, col0, col1 = window
        frame = GdalWindow(col0, row0, col1 - col0, row1 - row0)
        try:
            # GDAL fills native little-endian words; the layer's dtype is the same on such machines.
            self._handle().read(self.band, window=frame, out=out)
            if self.masked:
                mask = self._handle().read_masks(self.band, window=frame)
                out[mask == 0] = self.nodata
        except RasterioError as error:
            reason = error.__cause__ or error
            raise InputError(
                f"{self.path}: rows {row0} to {row1 - 1} cannot be read, the file is truncated or "
                f"damaged: {reason}"
            ) from None

    def close(self) -> None:
        _handles.open.pop(self, None)
        for data in tuple(self._opened):
            self._close(data)


TerrainErrors = (InputError, RasterioError)
GDAL_ERRORS = (RasterioError, CPLE_BaseError, OSError)
OUTPUT_TILE = 256


_PIECE = 1 << 22
_REAL, _LARGE = re.compile(rb"[.eEnN]"), re.compile(rb"[0-9]{10}")


def _wider(path: str) -> str | None:
    """Type for the cells of an ESRI ASCII grid that GDAL takes for int32 although they do not fit.

    It would wrap large numbers, read "nan" as 0 and, if old, cut off a fraction far from the start.
    """
    real = large = False
    with open(path, "rb") as file:
        start = 0
        # Header lines start with a word, which "nan" is not.
        while re.match(rb"\s*(?!nan)[a-z]", line := file.readline(1 << 16), re.IGNORECASE):
            start += len(line)
        file.seek(start)
        tail = b""
        while piece := file.read(_PIECE):
            text = tail + piece
            real = real or bool(_REAL.search(text))
            large = large or bool(_LARGE.search(text))
            tail = text[-16:]
    return "Float64" if large else "Float32" if real else None


_ZARR = "{}: a Zarr group, not a raster; terrain-gpu export makes a raster of a store's layer"


def _is_zarr(path: str) -> bool:
    return os.path.exists(os.path.join(path, "zarr.json"))


def _plain(path: str) -> str:
    """A name that GDAL takes for that of a file, where there is one, and not for a connection."""
    syntax = ":" in path or path.startswith("<")
    return os.path.abspath(path) if syntax and os.path.exists(path) else path


def _not_readable(path: str, error: Exception) -> str:
    if not os.path.exists(path) and not path.startswith("/vsi") and ":" not in path:
        return f"{path}: no such file"
    if os.path.isdir(path):
        if _is_zarr(path):
            return _ZARR.format(path)
        return f"{path}: a folder, not a raster"
    if os.path.isfile(path) and not os.access(path, os.R_OK):
        return f"{path}: permission denied"
    if os.path.isfile(path) and os.path.getsize(path) == 0:
        return f"{path}: the file is empty"
    if os.strerror(errno.EMFILE) in str(error):
        return f"{path}: too many open files; raise the limit (ulimit -n)"
    if isinstance(error, UnicodeError):
        return f"{path}: its name is no UTF-8, which GDAL needs; rename it"
    return f"{path}: not a raster that GDAL can read: {error}"


def _grid(data: Any, path: str) -> GridSpec:
    transform = data.transform
    if transform.is_identity and data.gcps[0]:
        raise InputError(f"{path}: placed by control points only; warp it first (gdalwarp)")
    try:
        grid = GridSpec(data.height, data.width, tuple(transform)[:6])
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return _placed(grid, data.crs) if data.crs else grid


_OWN_ID = re.compile(r',ID\["[^"]*",[^\[\]]*\]\]$')
"""The id of a CRS itself, at the end of its WKT2."""


def _placed(grid: GridSpec, crs: CRS) -> GridSpec:
    """A grid in a coordinate system."""
    code, wkt = crs_code(crs), crs.to_wkt(version="WKT2_2019")
    if code is None:
        # GDAL would go by an id that is not that of the rest.
        wkt = _OWN_ID.sub("]", wkt)
    return replace(grid, crs_wkt=wkt, crs_code=code)


def _exact_nodata(data: Any, k: int) -> int | float | None:
    """Nodata value of band k + 1 of 64-bit integers.

    rasterio makes a double of it, which has no room for every such number; GDAL's description of
    the dataset as a VRT spells it out.
    """
    from xml.etree import ElementTree  # rarely needed, and start-up time counts

    name = f"/vsimem/terrain_gpu-{threading.get_ident()}.vrt"
    rasterio.shutil.copy(data, name, driver="VRT")
    try:
        with rasterio.open(name) as described:
            text = described.tags(ns="xml:VRT")["xml:VRT"]
    finally:
        rasterio.shutil.delete(name)
    value = ElementTree.fromstring(text).findall("VRTRasterBand")[k].findtext("NoDataValue")
    if value is None:
        return None
    return int(value) if value.lstrip("+-").isdigit() else float(value)


def _nodata(value: float | int | None, dtype: np.dtype, path: str) -> float | int | None:
    if value is None:
        return None
    if not cells.fits(value, dtype):
        # GDAL's drivers carry such values along; no cell can hold one, so no cell is nodata.
        log.warning("%s: nodata value %s does not fit %s and is ignored", path, value, dtype.name)
        return None
    return cells.as_scalar(value, dtype)


class Mosaic:
    """One or several aligned rasters of one kind, read as one.

    Where inputs overlap, the first named wins; where it has nodata, the next.

    Parameters
    ----------
    paths
        What GDAL or `GrassAscii` reads.
    band
        Band of multi-band files.
    nodata
        Cells of this value are nodata, and every input's own nodata cells take it.
    bounds
        (west, south, east, north): cells touched by them; all when None.

    Raises
    ------
    InputError
        naming both files when inputs do not fit each other.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        band: int | None = None,
        nodata: float | int | None = None,
        bounds: tuple[float, float, float, float] | None = None,
        crs: str | None = None,
    ) -> None:
        if not paths:
            raise InputError("no input raster given")
        self.inputs: list[Any] = []
        try:
            for path in paths:
                self.inputs.append(_open(path, band))
            if crs is not None:
                self._name(crs)
            self._fit_together(nodata)
            self._crop(bounds)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Mosaic:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        for one in self.inputs:
            one.close()

    def _name(self, text: str) -> None:
        """Give inputs that name no coordinate system this one."""
        try:
            crs = CRS.from_user_input(text)
        except CRSError:
            raise InputError(
                f"--crs {text!r} is no coordinate system; give a code such as EPSG:32611, or WKT"
            ) from None
        for one in self.inputs:
            if one.crs and one.crs != crs:
                raise InputError(
                    f"{one.path}: is in {crs_name(one.crs)}, not in {crs_name(crs)}; leave --crs "
                    "out, or warp it first (gdalwarp)"
                )
            if not one.crs:
                one.crs, one.grid = crs, _placed(one.grid, crs)

    def _fit_together(self, nodata: float | int | None) -> None:
        first = self.inputs[0]
        self.dtype = first.dtype
        self.crs = first.crs
        for other in self.inputs[1:]:
            _must_match(first, other)
        declared = [one.nodata for one in self.inputs if one.nodata is not None]
        if nodata is not None:
            nodata = cells.as_scalar(nodata, self.dtype, f"{first.path}: nodata value")
        self.nodata = nodata if nodata is not None else (declared[0] if declared else None)
        for one in self.inputs:
            if one.masked:
                if self.nodata is None:
                    raise InputError(
                        f"{one.path}: has a mask but no nodata value; choose one with --nodata"
                    )
                one.nodata = self.nodata
        a, _, c, _, e, f = first.grid.transform
        self._places: list[Window] = []
        for one in self.inputs:
            row = round((one.grid.transform[5] - f) / e)
            col = round((one.grid.transform[2] - c) / a)
            self._places.append((row, row + one.grid.rows, col, col + one.grid.cols))
        top = min(p[0] for p in self._places)
        left = min(p[2] for p in self._places)
        bottom = max(p[1] for p in self._places)
        right = max(p[3] for p in self._places)
        self._places = [(p[0] - top, p[1] - top, p[2] - left, p[3] - left) for p in self._places]
        self.grid = replace(first.grid.crop((top, bottom, left, right)))
        if self.nodata is None and _has_gaps(self._places, self.grid):
            raise InputError(
                f"{first.path} and the other inputs leave gaps between them; "
                "choose the value of the gaps with --nodata"
            )

    def _crop(self, bounds: tuple[float, float, float, float] | None) -> None:
        if bounds is None:
            return
        try:
            window = self.grid.window_of(bounds)
        except InputError as error:
            raise InputError(f"{self.inputs[0].path}: {error}") from None
        self.grid = self.grid.crop(window)
        self._places = [
            (p[0] - window[0], p[1] - window[0], p[2] - window[2], p[3] - window[2])
            for p in self._places
        ]

    def read(self, window: Window, out: np.ndarray) -> None:
        """Read a window of the mosaic into `out` (its shape, `self.dtype`), nodata as `nodata`."""
        place = self._places[0]
        if len(self.inputs) == 1:
            self.inputs[0].read(_shift(window, place), out)
            self._recode(out, self.inputs[0].nodata)
            return
        if self.nodata is not None:
            out[...] = self.nodata
        for one, place in zip(reversed(self.inputs), reversed(self._places), strict=True):
            part = clip(window, place)
            if is_empty(part):
                continue
            piece = np.empty((part[1] - part[0], part[3] - part[2]), self.dtype)
            one.read(_shift(part, place), piece)
            self._recode(piece, one.nodata)
            target = out[
                part[0] - window[0] : part[1] - window[0], part[2] - window[2] : part[3] - window[2]
            ]
            if self.nodata is None:
                target[...] = piece
            else:
                np.copyto(target, piece, where=~_equals(piece, self.nodata))

    def _recode(self, data: np.ndarray, own: float | int | None) -> None:
        if own is None or self.nodata is None or _same(own, self.nodata):
            return
        data[_equals(data, own)] = self.nodata

    def cell_name(self, row: int, col: int) -> str:
        """A cell of the mosaic in words: the file it comes from, and its place there."""
        name = ""
        for one, place in zip(self.inputs, self._places, strict=True):
            part = _shift((row, row + 1, col, col + 1), place)
            if clip(part, one.grid.window) == part:
                name = name or f"{one.path}: row {part[0]}, column {part[2]}"
                cell = np.empty((1, 1), self.dtype)
                one.read(part, cell)
                if one.nodata is None or not _same(cell.item(), one.nodata):
                    return f"{one.path}: row {part[0]}, column {part[2]}"
        return name

    # -- what the planner and the report want to know ---------------------------------------

    @property
    def chunk(self) -> tuple[int, int]:
        """Rows and columns that are decoded together, the largest among the inputs."""
        return max(i.chunk[0] for i in self.inputs), max(i.chunk[1] for i in self.inputs)

    @property
    def decoding(self) -> int:
        """Bytes that each thread holds to decode a chunk."""
        return max(i.decoding for i in self.inputs)

    @property
    def sequential(self) -> bool:
        """Text formats: reading goes forwards only, in one thread."""
        return any(i.driver in _SEQUENTIAL for i in self.inputs)

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(f for i in self.inputs for f in i.files))

    @property
    def source_bytes(self) -> int:
        return sum(os.path.getsize(f) for f in self.files)

    @property
    def attributes(self) -> dict[str, Any]:
        """CF attributes of the cells: units, and scale and offset where there are any."""
        first = self.inputs[0]
        found: dict[str, Any] = {}
        if first.units:
            found["units"] = first.units
        if (first.scale, first.offset) != (1.0, 0.0):
            found |= {"scale_factor": first.scale, "add_offset": first.offset}
        return found

    def fingerprint(self) -> list[list[Any]]:
        """Path, size and modification time of every source file: what a resumed run compares."""
        return [[f, os.stat(f).st_size, os.stat(f).st_mtime_ns] for f in self.files]


def _open(path: str, band: int | None) -> Any:
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise InputError(f"{path}: a pipe or device; save it as a file first")
    if is_grass_ascii(path):
        if band not in (None, 1):
            raise InputError(f"{path}: has no band {band}, only 1")
        try:
            grass = GrassAscii(path)
        except InputError as error:
            raise InputError(
                str(error) if str(error).startswith(path) else f"{path}: {error}"
            ) from None
        described: Any = grass
        described.crs, described.driver, described.files = None, "GRASSASCIIGrid", [path]
        described.chunk, described.masked = (1, grass.grid.cols), False
        described.decoding = 0
        described.units, described.scale, described.offset = "", 1.0, 0.0
        return described
    return GdalInput(path, band)


def _must_match(first: Any, other: Any) -> None:
    pair = f"{first.path} and {other.path}"
    if first.dtype != other.dtype:
        raise InputError(
            f"{pair}: cells are {first.dtype.name} and {other.dtype.name}; convert one of them to "
            "the type of the other first (gdal_translate -ot)"
        )
    if first.crs != other.crs:
        raise InputError(
            f"{pair}: coordinate systems differ ({crs_name(first.crs)} and {crs_name(other.crs)}); "
            "warp one to the other first (gdalwarp)"
        )
    if (first.scale, first.offset) != (other.scale, other.offset):
        raise InputError(f"{pair}: scale and offset of the cells differ; convert first")
    a, _, c, _, e, f = first.grid.transform
    a2, _, c2, _, e2, f2 = other.grid.transform
    if abs(a - a2) * other.grid.cols > ALIGNMENT * abs(a) or abs(
        e - e2
    ) * other.grid.rows > ALIGNMENT * abs(e):
        raise InputError(
            f"{pair}: cell sizes differ ({a} x {e} and {a2} x {e2}); "
            "resample one to the cells of the other first (gdalwarp -tr -tap)"
        )
    shift = (c2 - c) / a, (f2 - f) / e
    if any(abs(s - round(s)) > ALIGNMENT for s in shift):
        raise InputError(
            f"{pair}: cells are not aligned (shifted by {shift[0]:z.4f} columns and "
            f"{shift[1]:z.4f} rows); warp one to the grid of the other first (gdalwarp -tap)"
        )


def _has_gaps(places: Sequence[Window], grid: GridSpec) -> bool:
    """Whether the rectangles leave cells of the grid uncovered, on their own coordinates' grid."""
    rows = np.unique([r for p in places for r in p[:2]])
    cols = np.unique([c for p in places for c in p[2:]])
    covered = np.zeros((len(rows) - 1, len(cols) - 1), bool)
    for r0, r1, c0, c1 in places:
        r, c = np.searchsorted(rows, (r0, r1)), np.searchsorted(cols, (c0, c1))
        covered[r[0] : r[1], c[0] : c[1]] = True
    return not covered.all()


def _shift(window: Window, place: Window) -> Window:
    return (
        window[0] - place[0],
        window[1] - place[0],
        window[2] - place[2],
        window[3] - place[2],
    )


def _same(a: float | int, b: float | int) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def _equals(data: np.ndarray, value: float | int) -> np.ndarray:
    return np.isnan(data) if math.isnan(value) else data == value


def crs_name(crs: Any) -> str:
    """Short name of a rasterio CRS for messages."""
    return crs_code(crs) or crs.to_wkt()[:60] if crs else "none"


def crs_code(crs: CRS) -> str | None:
    """The code of a CRS, such as "EPSG:32633"; None where none is known that means the same.

    PROJ also offers those of similar ones: for UTM on another datum that of some country's.
    """
    found = crs.to_authority()
    for authority, code in ([found] if found else []) + [("OGC", "CRS84")]:
        with suppress(CRSError):
            if CRS.from_authority(authority, code) == crs:
                return f"{authority}:{code}"
    return None


def same_crs(wkt: str, other: str) -> bool:
    """Whether two WKT texts mean one coordinate system; an unknown one fits every other."""
    if not wkt or not other or wkt == other:
        return True
    try:
        return CRS.from_wkt(wkt) == CRS.from_wkt(other)
    except CRSError:
        return False


def checksum(path: str, stop: threading.Event | None = None) -> str:
    """CRC-32C of a file's bytes, as 8 hexadecimal digits."""
    crc = 0
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(1 << 22):
            crc = google_crc32c.extend(crc, piece)
            if stop is not None and stop.is_set():
                break
    return f"{crc:08x}"


# -- out -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class OutputProfile:
    """How a raster file is written.

    Attributes
    ----------
    compress
        "none", "deflate", "lzw" or "zstd".
    cog
        Cloud-optimised GeoTIFF with overviews.
    """

    compress: str = "none"
    cog: bool = False

    def creation_options(self, dtype: np.dtype) -> dict[str, Any]:
        options: dict[str, Any] = {"compress": self.compress, "num_threads": "all_cpus"}
        if self.compress != "none":
            options["predictor"] = 3 if dtype.kind == "f" else 2
        return options


class RasterOutput:
    """A GeoTIFF that appears under its name only when whole.

    Use as a context manager; without `commit` nothing of it stays.
    """

    def __init__(
        self,
        path: Path,
        grid: GridSpec,
        dtype: np.dtype,
        nodata: float | int | None,
        profile: OutputProfile,
        attributes: dict[str, Any],
        origin: str | os.PathLike[str] = "the layer",
    ) -> None:
        self.path = path
        self.profile = profile
        self._dtype = dtype
        self._written = array("q")
        """Window and checksum of every write."""
        options = (
            OutputProfile().creation_options(dtype)
            if profile.cog
            else (profile.creation_options(dtype))
        )
        side = OUTPUT_TILE
        tiles = ceil_div(grid.rows, side) * ceil_div(grid.cols, side)
        self._left = tiles * (side * side * dtype.itemsize + 16) + (1 << 12)
        if profile.cog or profile.compress == "none":
            self._check_space(self._left)
        self._data: Any = None
        self._output = Output(path)
        self._parts = [self._output.folder / name for name in ("a.tif", "b.tif")]
        options |= {
            "tiled": True, "blockxsize": side, "blockysize": side, "bigtiff": "if_safer"
        }  # fmt: skip
        try:
            place = {
                "crs": CRS.from_wkt(grid.crs_wkt) if grid.crs_wkt else None,
                "transform": rasterio.Affine(*grid.transform),
            }
            if isinstance(nodata, int) and abs(nodata) > 2**53:
                self._data = _create_exact(self._parts[0], grid, dtype, nodata, place, options)
            else:
                self._data = rasterio.open(
                    self._parts[0],
                    "w",
                    driver="GTiff",
                    height=grid.rows,
                    width=grid.cols,
                    count=1,
                    dtype=dtype.name,
                    nodata=nodata,
                    **place,
                    **options,
                )
            if attributes.get("units"):
                self._data.units = [str(attributes["units"])]
            if "scale_factor" in attributes or "add_offset" in attributes:
                self._data.scales = [float(attributes.get("scale_factor", 1.0))]
                self._data.offsets = [float(attributes.get("add_offset", 0.0))]
        except BaseException as error:
            self.__exit__()
            if isinstance(error, CRSError):
                raise InputError(f"{origin}: its CRS is no WKT: {error}") from None
            if isinstance(error, UnicodeError):
                raise InputError(f"{path}: its name is no UTF-8, which GDAL needs") from None
            if isinstance(error, ValueError | TypeError):
                raise InputError(f"{origin}: its units, scale or offset: {error}") from None
            if isinstance(error, GDAL_ERRORS):
                raise output_error(self.path, error) from None
            raise

    def __enter__(self) -> RasterOutput:
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            if self._data is not None:
                self._data.close()
        except GDAL_ERRORS:
            log.debug("%s: abandoned", self.path)
        finally:
            self._output.close()

    def write(self, window: Window, data: np.ndarray) -> None:
        """Write a window; from one thread at a time."""
        row0, row1, col0, col1 = window
        # Before GDAL finds out: it would say so on stderr, and as late as in close.
        self._check_space(min(self._left, GDAL_CACHE))
        self._left -= data.nbytes
        try:
            self._data.write(data, 1, window=GdalWindow(col0, row0, col1 - col0, row1 - row0))
            self._written.extend((*window, _crc(data)))
        except GDAL_ERRORS as error:
            raise output_error(self.path, error) from None

    def commit(self) -> None:
        """Finish the file (build the overviews of a COG) and move it to its name."""
        try:
            self._data.close()
            done = self._parts[0]
            if self.profile.cog:
                done = self._parts[1]
                rasterio.shutil.copy(
                    self._parts[0],
                    done,
                    driver="COG",
                    **self.profile.creation_options(self._dtype) | {"predictor": "yes"},
                    # Averages of codes and classes mean nothing: integers keep real values.
                    overview_resampling="average" if self._dtype.kind == "f" else "nearest",
                    bigtiff="if_safer",
                )
            self._check(done)
            self._output.publish(done)
        except TerrainError:
            raise
        except GDAL_ERRORS as error:
            raise output_error(self.path, error) from None

    def _check(self, path: Path) -> None:
        """Read everything back: on a full disk GDAL may leave holes, and closes without a word."""
        with rasterio.open(path, num_threads="all_cpus") as data:
            levels = len(data.overviews(1))
            for k in range(0, len(self._written), 5):
                row0, row1, col0, col1, crc = self._written[k : k + 5]
                found = 0
                for row in range(row0, row1, OUTPUT_TILE):
                    size = col1 - col0, min(OUTPUT_TILE, row1 - row)
                    found = _crc(data.read(1, window=GdalWindow(col0, row, *size)), found)
                if found != crc:
                    raise OSError(errno.EIO, "the file did not reach the disk whole", str(path))
        for level in range(levels):
            with rasterio.open(path, overview_level=level) as data:
                for _, window in data.block_windows(1):
                    data.read(1, window=window)

    def _check_space(self, needed: int) -> None:
        free = free_space(self.path)
        if free < needed:
            raise OutputError(
                f"{self.path}: no space left on the disk: {format_size(needed)} are needed and "
                f"{format_size(free)} free; nothing was replaced"
            )


def _create_exact(
    path: Path,
    grid: GridSpec,
    dtype: np.dtype,
    nodata: int,
    place: dict[str, Any],
    options: dict[str, Any],
) -> Any:
    """A GeoTIFF to fill whose nodata value rasterio, which makes a double of it, cannot set."""
    template = (
        f'<VRTDataset rasterXSize="{grid.cols}" rasterYSize="{grid.rows}">'
        f'<VRTRasterBand dataType="{dtype.name.replace("ui", "UI").replace("i", "I")}" band="1">'
        f"<NoDataValue>{nodata}</NoDataValue></VRTRasterBand></VRTDataset>"
    )
    rasterio.shutil.copy(template, path, driver="GTiff", sparse_ok=True, **options)
    data = rasterio.open(path, "r+", num_threads="all_cpus")
    data.transform = place["transform"]
    if place["crs"]:
        data.crs = place["crs"]
    return data


def _crc(data: np.ndarray, crc: int = 0) -> int:
    """CRC-32C of the cells, row by row, without a copy of them all."""
    for k in range(0, len(data), OUTPUT_TILE):
        part = data[k : k + OUTPUT_TILE]
        if data.dtype.kind == "f":
            # GDAL leaves out blocks that equal a nodata value of 0; then -0.0 comes back as 0.0.
            part = np.where(part == 0, data.dtype.type(0), part)
        crc = google_crc32c.extend(crc, part.tobytes())
    return crc
