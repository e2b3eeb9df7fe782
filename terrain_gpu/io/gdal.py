"""Read one band of a raster file with GDAL."""

from __future__ import annotations

import errno
import logging
import math
import os
import re
import shlex
import struct
import threading
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

import numpy as np
import rasterio
import rasterio.shutil
from rasterio._env import set_gdal_config
from rasterio._err import CPLE_BaseError
from rasterio.enums import MaskFlags
from rasterio.errors import CRSError, NotGeoreferencedWarning, RasterioError
from rasterio.windows import Window as GdalWindow

from .. import cells
from ..engine.machine import GDAL_CACHE
from ..errors import CellError, InputError, without_secrets
from ..facts import Settings
from ..grid import GridSpec, Window
from ..store.client import endpoint_url
from ..store.providers import gdal_settings
from . import ascii_grid
from .crs import placed
from .georeference import refuse_located_otherwise, remark

if TYPE_CHECKING:
    from rasterio.io import DatasetReader

log = logging.getLogger(__name__)

_GDAL = {
    # GDAL's shortcut for whole PNG files silently reads garbage from truncated ones.
    "GDAL_PNG_WHOLE_IMAGE_OPTIM": "NO",
}

_NETWORK = {
    # For servers that fail briefly or stop sending.
    "GDAL_HTTP_MAX_RETRY": "5",
    "GDAL_HTTP_RETRY_DELAY": "0.5",
    "GDAL_HTTP_CONNECTTIMEOUT": "30",
    "GDAL_HTTP_LOW_SPEED_LIMIT": "1",
    "GDAL_HTTP_LOW_SPEED_TIME": "60",
}
"""Defaults that environment variables override."""

_GDAL_NODATA = 42113
"""Tag of the nodata value of a TIFF file, as text."""

_MASKED = 1 << 16
"""Number of cells masked at a time, so that temporary arrays stay small."""

OPEN_FILES = 32
"""Number of datasets that a thread keeps open."""

TerrainErrors = (InputError, RasterioError)
ENCODING_TAG = "FLOW_DIRECTION_ENCODING"
"""Tag of a band of flow directions."""

GDAL_ERRORS = (RasterioError, CPLE_BaseError, OSError)


@contextmanager
def gdal_environment() -> Iterator[None]:
    """Run GDAL with a small block cache, which counts as memory; errors raise, not print."""
    with warnings.catch_warnings(), rasterio.Env(GDAL_CACHEMAX=GDAL_CACHE, **_settings()):
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        yield


def bound_cache() -> None:
    """Limit GDAL's block cache for the rest of the process, not only in an environment."""
    set_gdal_config("GDAL_CACHEMAX", GDAL_CACHE)


def gdal_thread() -> Any:
    """GDAL's environment in a thread of a run; without one, GDAL prints warnings to stderr."""
    return rasterio.Env(**_settings())


def _settings() -> dict[str, str]:
    usual = {name: value for name, value in _NETWORK.items() if name not in os.environ}
    return {**_GDAL, **usual, **_endpoint(), **gdal_settings()}


def _endpoint() -> dict[str, str]:
    """GDAL options for the endpoint in AWS_ENDPOINT_URL, which other programs use."""
    url = urlsplit(endpoint_url())
    if not url.netloc or "AWS_S3_ENDPOINT" in os.environ:
        return {}
    secure = "YES" if url.scheme == "https" else "NO"
    return {
        "AWS_S3_ENDPOINT": url.netloc + url.path.rstrip("/"),
        "AWS_HTTPS": secure,
        "AWS_VIRTUAL_HOSTING": "FALSE",
    }


class _Handles(threading.local):
    """The datasets that a thread has open, least recently used first."""

    def __init__(self) -> None:
        self.open: OrderedDict[GdalInput, Any] = OrderedDict()


_handles = _Handles()


class GdalInput:
    """One band of a raster; every thread opens its own handle.

    A thread keeps only a few handles open: a mosaic may have more files than a process can open.

    Attributes
    ----------
    masked
        Whether a mask, and not the nodata value, decides which cells are valid. Masked cells are
        read as `nodata`, which the `Mosaic` chooses.
    outranked
        The nodata value of a masked file, which GDAL ignores.
    stated
        Whether the user chose `nodata`; valid cells with this value then become nodata.
    lost
        Number of such cells read so far.
    """

    outranked: float | int | None = None
    stated, lost = False, 0

    def __init__(self, path: str, band: int | None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._opened: set[Any] = set()
        self._options: Settings = {}
        data = self.dataset()
        try:
            self._describe(data, band)
        except CRSError as error:
            self.close()
            raise InputError(f"{path}: cannot parse its coordinate system: {error}") from None
        except TerrainErrors:
            self.close()
            raise

    def _describe(self, data: DatasetReader, band: int | None) -> None:
        path = self.path
        if data.count == 0 and _is_zarr(path):
            raise InputError(_ZARR.format(path))
        if data.count == 0:
            names = ", ".join(data.subdatasets[:5]) or "none"
            raise InputError(f"{path}: has no raster bands itself; name a subdataset: {names}")
        if band is None and data.count > 1 and data.colorinterp[1].name != "alpha":
            raise InputError(
                f"{path}: has {data.count} bands; choose one with --band of convert-dataset "
                f"(convert-dataset {shlex.quote(str(path))} dem.zarr --band 1), or extract it "
                "(gdal_translate -b 1)"
            )
        self.band = band or 1
        if not 1 <= self.band <= data.count:
            raise InputError(f"{path}: has no band {self.band}; its last band is {data.count}")
        self.driver = data.driver
        text_format = data.driver in (*ascii_grid.DRIVERS, "XYZ")
        if text_format and not os.path.isfile(path):
            log.warning(
                "%s: its text cannot be checked there; GDAL reads words and missing values as 0, "
                "and may drop fractions. Unpack or download it first",
                without_secrets(path),
            )
        elif data.driver == "XYZ":
            ascii_grid.check_points(path)
        elif text_format:
            text = ascii_grid.check_text(path, data.height, data.width)
            if data.dtypes[0] == "int32" and any(text):
                # As int32, GDAL would wrap large numbers, read "nan" as 0 and drop fractions.
                self._options = {"DATATYPE": "Float64" if text.large else "Float32"}
                self.close()
                data = self.dataset()
        k = self.band - 1
        if "complex" in data.dtypes[k]:
            raise InputError(
                f"{path}: its cells are complex numbers; write their real parts or absolute values "
                "to another raster first (in a VRT, with the pixel functions real and mod)"
            )
        try:
            self.dtype = cells.layer_dtype(data.dtypes[k])
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        self.crs = data.crs
        self.grid, self.remark = _grid(data, path), remark(data)
        nodata = data.nodatavals[k]
        if self.dtype.name in ("int64", "uint64"):
            nodata = _exact_nodata(data, k)
        self.nodata = _nodata(nodata, self.dtype, data)
        self.chunk = data.block_shapes[k]
        self.decoding = self._decoding(data, k)
        self.units = data.units[k] or ""
        self.scale, self.offset = data.scales[k], data.offsets[k]
        self.encoding = data.tags(self.band).get(ENCODING_TAG) or None
        # A mask of the band or dataset, alpha, or NODATA_VALUES: each outranks the nodata value.
        self.masked = data.mask_flag_enums[k] not in ([MaskFlags.all_valid], [MaskFlags.nodata])
        if self.masked:
            self.outranked, self.nodata = self.nodata, None
        self.files = self._local(data)

    def _decoding(self, data: DatasetReader, k: int) -> int:
        """Bytes that a thread needs to decode a chunk, including other bands stored in it."""
        structure = data.tags(ns="IMAGE_STRUCTURE")
        if data.driver == "GTiff" and "COMPRESSION" not in structure:
            return 0
        bands = data.count if structure.get("INTERLEAVE") == "PIXEL" else 1
        decoded = math.prod(self.chunk) * bands * np.dtype(data.dtypes[k]).itemsize
        return decoded + min(decoded, sum(map(os.path.getsize, self._local(data))))

    @staticmethod
    def _local(data: DatasetReader) -> list[str]:
        return [f for f in data.files if os.path.isfile(f)]

    def dataset(self) -> DatasetReader:
        """The rasterio dataset of the calling thread.

        Raises
        ------
        InputError
            when the file cannot be opened.
        """
        mine = _handles.open
        if self in mine:
            mine.move_to_end(self)
            return mine[self]
        while len(mine) >= OPEN_FILES:
            other, data = mine.popitem(last=False)
            other._close(data)
        try:
            data = mine[self] = rasterio.open(_plain(self.path), **self._options)
        except (RasterioError, ValueError) as error:  # ValueError: because of its name
            raise InputError(_not_readable(self.path, error)) from None
        with self._lock:
            self._opened.add(data)
        return data

    def _close(self, data: DatasetReader) -> None:
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
        with gdal_thread():
            self._read(window, out)

    def _read(self, window: Window, out: np.ndarray) -> None:
        row0, row1, col0, col1 = window
        frame = GdalWindow(col0, row0, col1 - col0, row1 - row0)
        try:
            # GDAL writes native byte order: little-endian, as in layers, on all platforms.
            self.dataset().read(self.band, window=frame, out=out)
            if self.masked:
                self._mask(window, out)
        except RasterioError as error:
            reason = error.__cause__ or error
            cause = "the file is truncated or damaged"
            if self.driver == "VRT":
                cause = "a file or a pixel function in this VRT cannot be used"
            raise InputError(
                f"{self.path}: rows {row0} to {row1 - 1} cannot be read; {cause}: {reason}"
            ) from None

    def _mask(self, window: Window, out: np.ndarray) -> None:
        """Set masked cells to the nodata value, some rows at a time.

        Raises
        ------
        CellError
            when a valid cell has that value and the user did not choose it.
        """
        assert self.nodata is not None
        row0, row1, col0, col1 = window
        tall = max(_MASKED // (col1 - col0), 1)
        for row in range(row0, row1, tall):
            part = out[row - row0 : row - row0 + tall]
            frame = GdalWindow(col0, row, col1 - col0, len(part))
            valid = self.dataset().read_masks(self.band, window=frame) != 0
            same = cells.near(part, self.nodata) if self.stated else part == self.nodata
            lost = valid & same
            if lost.any() and not self.stated:
                r, c = np.argwhere(lost)[0]
                raise CellError(
                    f"{self.path}: row {row + r}, column {col0 + c}: value {self.nodata} is valid "
                    "according to the mask, but would mean nodata in the layer; choose a value "
                    "that no valid cell has (--nodata of convert-dataset), or convert the raster "
                    "to a larger type first (gdal_translate -ot)"
                )
            with self._lock:
                self.lost += int(np.count_nonzero(lost))
            part[lost | ~valid] = self.nodata

    def take_lost(self) -> int:
        """Return `lost` and set it back to 0."""
        with self._lock:
            count, self.lost = self.lost, 0
        return count

    def close(self) -> None:
        _handles.open.pop(self, None)
        for data in tuple(self._opened):
            self._close(data)


_ZARR = "{}: a Zarr group, not a raster; terrain-gpu export writes a layer of a store as a raster"


def _is_zarr(path: str) -> bool:
    return os.path.exists(os.path.join(path, "zarr.json"))


def _plain(path: str) -> str:
    """Make GDAL read an existing file as a file, even if its name looks like a connection.

    For Google's and Azure's storage, rasterio would replace our settings by those that it finds.
    """
    syntax = ":" in path or path.startswith("<")
    if syntax and os.path.exists(path):
        return os.path.abspath(path)
    return re.sub("^(gs|az):/{1,2}", r"/vsi\1/", path)


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
        return f"{path}: its name is not UTF-8, which GDAL requires; rename it"
    # The rest of a server's response may contain the id of a key.
    said = re.search(r"<Code>(\w+)</Code>", str(error))
    return f"{path}: not a raster that GDAL can read: {said[1] if said else error}"


def _grid(data: DatasetReader, path: str) -> GridSpec:
    refuse_located_otherwise(data, path)
    try:
        grid = GridSpec(data.height, data.width, tuple(data.transform)[:6])
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return placed(grid, data.crs) if data.crs else grid


def _exact_nodata(data: DatasetReader, k: int) -> int | float | None:
    """Exact nodata value of band k + 1, which holds 64-bit integers.

    rasterio returns a double, which cannot represent all of them; GDAL's description of the dataset
    as a VRT contains the exact number.
    """
    from xml.etree import ElementTree  # rarely needed, and would slow down the start

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


def _nodata(value: float | int | None, dtype: np.dtype, data: DatasetReader) -> float | int | None:
    """The nodata value with which GDAL compares cells, as a value of the cell type."""
    if value is None:
        return None
    name, taken = without_secrets(data.name), value
    if dtype.kind == "f" and math.isinf(value):
        text = _nodata_text(data, value)
        log.warning(
            "%s: its nodata value is %s; cells with %s are nodata as well",
            name,
            f"{value}, to which GDAL also rounds numbers beyond float64"
            if text is None or "inf" in text.lower()
            else f"written as {text}, which GDAL reads as {value}",
            math.copysign(float(np.finfo(dtype).max), value),
        )
    elif dtype.kind != "f" and math.isfinite(value) and cells.fits(math.trunc(value), dtype):
        taken = math.trunc(value)
    if not cells.fits(taken, dtype):
        # GDAL's drivers keep such values; since no cell can have this value, no cell is nodata.
        text = _nodata_text(data, value) or str(value)
        log.warning("%s: nodata value %s does not fit %s and is ignored", name, text, dtype.name)
        return None
    if taken != value and not math.isnan(value):
        text = _nodata_text(data, value) or str(value)
        log.warning(
            "%s: nodata value %s does not fit %s and is read as %s", name, text, dtype.name, taken
        )
    return cells.as_scalar(taken, dtype)


def _nodata_text(data: DatasetReader, value: float) -> str | None:
    """The nodata value as text, for formats that store it as text; None if it is not found."""
    with suppress(OSError, ValueError, struct.error), open(data.name, "rb") as file:
        raw = None
        if data.driver == "GTiff":
            raw = _tiff_tag(file, _GDAL_NODATA)
        elif data.driver in ascii_grid.DRIVERS:
            raw = ascii_grid.stated_nodata(file)
        text = (raw or b"").strip(b"\0 ").decode("ascii")
        if text and float(text) == value:  # a sidecar may say otherwise
            return text
    return None


def _tiff_tag(file: BinaryIO, wanted: int) -> bytes | None:
    """The value of a text tag in the first image of a TIFF file."""
    start = file.read(16)
    order, big = "<" if start[:2] == b"II" else ">", start[2:4] in (b"+\0", b"\0+")
    number, count, entry = ("Q", "Q", "HHQ8s") if big else ("I", "H", "HHI4s")
    file.seek(struct.unpack_from(order + number, start, 8 if big else 4)[0])
    (tags,) = struct.unpack(order + count, file.read(struct.calcsize(order + count)))
    size = struct.calcsize(order + entry)
    entries = file.read(size * min(tags, 1 << 16))
    for tag, _, length, value in struct.iter_unpack(order + entry, entries):
        if tag == wanted:
            if length <= len(value):
                return bytes(value[:length])
            file.seek(struct.unpack(order + number, value)[0])
            return bytes(file.read(min(length, 64)))
    return None
