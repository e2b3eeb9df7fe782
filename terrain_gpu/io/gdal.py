"""Read one band of a raster file with GDAL."""

from __future__ import annotations

import errno
import logging
import math
import os
import re
import shlex
import threading
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
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
from ..engine.plan import GDAL_CACHE
from ..errors import InputError, without_secrets
from ..grid import GridSpec, Window
from ..store.client import endpoint_url
from ..store.providers import gdal_settings
from .crs import placed
from .georeference import refuse_located_otherwise, remark

log = logging.getLogger(__name__)

_GDAL = {
    # GDAL's shortcut for whole PNG files silently reads garbage from truncated ones.
    "GDAL_PNG_WHOLE_IMAGE_OPTIM": "NO",
}

_NETWORK = {
    # Of servers that fail for a moment, or stop sending.
    "GDAL_HTTP_MAX_RETRY": "5",
    "GDAL_HTTP_RETRY_DELAY": "0.5",
    "GDAL_HTTP_CONNECTTIMEOUT": "30",
    "GDAL_HTTP_LOW_SPEED_LIMIT": "1",
    "GDAL_HTTP_LOW_SPEED_TIME": "60",
}
"""Unless the environment says otherwise."""

OPEN_FILES = 32
"""Number of datasets that a thread keeps open."""

TerrainErrors = (InputError, RasterioError)
ENCODING_TAG = "FLOW_DIRECTION_ENCODING"
"""Tag of a band of flow directions."""

GDAL_ERRORS = (RasterioError, CPLE_BaseError, OSError)


@contextmanager
def gdal_environment() -> Iterator[None]:
    """Run GDAL with a small block cache, which counts as memory, and exceptions, not stderr."""
    with warnings.catch_warnings(), rasterio.Env(GDAL_CACHEMAX=GDAL_CACHE, **_settings()):
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        yield


def bound_cache() -> None:
    """Bound GDAL's block cache for the rest of the process, not only in an environment."""
    set_gdal_config("GDAL_CACHEMAX", GDAL_CACHE)


def gdal_thread() -> Any:
    """GDAL's environment in a thread of a run; without one, it prints its warnings to stderr."""
    return rasterio.Env(**_settings())


def _settings() -> dict[str, str]:
    usual = {name: value for name, value in _NETWORK.items() if name not in os.environ}
    return {**_GDAL, **usual, **_endpoint(), **gdal_settings()}


def _endpoint() -> dict[str, str]:
    """GDAL options for the endpoint that other programs take from AWS_ENDPOINT_URL."""
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
    """One band of a raster; every thread opens a handle of its own.

    A thread keeps only a few handles open: a mosaic may have more files than a process may open.
    """

    def __init__(self, path: str, band: int | None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._opened: set[Any] = set()
        self._options: dict[str, Any] = {}
        data = self.dataset()
        try:
            self._describe(data, band)
        except CRSError as error:
            self.close()
            raise InputError(f"{path}: cannot parse its coordinate system: {error}") from None
        except TerrainErrors:
            self.close()
            raise

    def _describe(self, data: Any, band: int | None) -> None:
        path = self.path
        if data.count == 0 and _is_zarr(path):
            raise InputError(_ZARR.format(path))
        if data.count == 0:
            names = ", ".join(data.subdatasets[:5]) or "none"
            raise InputError(f"{path}: has no raster band itself; name a subdataset: {names}")
        if band is None and data.count > 1 and data.colorinterp[1].name != "alpha":
            raise InputError(
                f"{path}: has {data.count} bands; choose one with --band of convert-dataset "
                f"(convert-dataset {shlex.quote(str(path))} dem.zarr --band 1), or take it out "
                "(gdal_translate -b 1)"
            )
        self.band = band or 1
        if not 1 <= self.band <= data.count:
            raise InputError(f"{path}: has no band {self.band}; its last is band {data.count}")
        self.driver = data.driver
        if data.driver == "AAIGrid" and data.dtypes[0] == "int32" and (wider := _wider(path)):
            self._options = {"DATATYPE": wider}
            self.close()
            data = self.dataset()
        k = self.band - 1
        if "complex" in data.dtypes[k]:
            raise InputError(
                f"{path}: its cells are complex numbers; write their real parts or absolute values "
                "to another raster first (in a VRT, the pixel functions real and mod)"
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
        self.nodata = _nodata(nodata, self.dtype, path)
        self.chunk = data.block_shapes[k]
        self.decoding = self._decoding(data, k)
        self.units = data.units[k] or ""
        self.scale, self.offset = data.scales[k], data.offsets[k]
        self.encoding = data.tags(self.band).get(ENCODING_TAG) or None
        self.masked = (
            MaskFlags.per_dataset in data.mask_flag_enums[k]
            and MaskFlags.nodata not in data.mask_flag_enums[k]
        )
        self.files = self._local(data)

    def _decoding(self, data: Any, k: int) -> int:
        """Bytes that a thread needs to decode a chunk, including other bands stored in it."""
        how = data.tags(ns="IMAGE_STRUCTURE")
        if data.driver == "GTiff" and "COMPRESSION" not in how:
            return 0
        bands = data.count if how.get("INTERLEAVE") == "PIXEL" else 1
        decoded = math.prod(self.chunk) * bands * np.dtype(data.dtypes[k]).itemsize
        return decoded + min(decoded, sum(map(os.path.getsize, self._local(data))))

    @staticmethod
    def _local(data: Any) -> list[str]:
        return [f for f in data.files if os.path.isfile(f)]

    def dataset(self) -> Any:
        """The thread's own handle, of rasterio.

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
        with gdal_thread():
            self._read(window, out)

    def _read(self, window: Window, out: np.ndarray) -> None:
        row0, row1, col0, col1 = window
        frame = GdalWindow(col0, row0, col1 - col0, row1 - row0)
        try:
            # GDAL writes native words, which are the layer's little-endian dtype on all platforms.
            self.dataset().read(self.band, window=frame, out=out)
            if self.masked:
                mask = self.dataset().read_masks(self.band, window=frame)
                out[mask == 0] = self.nodata
        except RasterioError as error:
            reason = error.__cause__ or error
            cause = "the file is truncated or damaged"
            if self.driver == "VRT":
                cause = "a file or a pixel function that this VRT names cannot be used"
            raise InputError(
                f"{self.path}: rows {row0} to {row1 - 1} cannot be read; {cause}: {reason}"
            ) from None

    def close(self) -> None:
        _handles.open.pop(self, None)
        for data in tuple(self._opened):
            self._close(data)


_PIECE = 1 << 22
_REAL, _LARGE = re.compile(rb"[.eEnN]"), re.compile(rb"[0-9]{10}")


def _wider(path: str) -> str | None:
    """The float type for an ESRI ASCII grid that GDAL wrongly takes for int32; None if it is right.

    As int32, GDAL would wrap large numbers and read "nan" as 0; old versions also truncate
    fractions that occur far from the start of the file.
    """
    real = large = False
    with open(path, "rb") as file:
        start = 0
        # Header lines start with a word; a line that starts with "nan" is a row of cells.
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


_ZARR = "{}: a Zarr group, not a raster; terrain-gpu export writes a layer of a store as a raster"


def _is_zarr(path: str) -> bool:
    return os.path.exists(os.path.join(path, "zarr.json"))


def _plain(path: str) -> str:
    """Make GDAL read an existing file as a file, even if its name looks like a connection.

    In Google's and Azure's storage, rasterio would replace the settings by those that it finds.
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
    # The rest of a server's answer may contain the id of a key.
    said = re.search(r"<Code>(\w+)</Code>", str(error))
    return f"{path}: not a raster that GDAL can read: {said[1] if said else error}"


def _grid(data: Any, path: str) -> GridSpec:
    refuse_located_otherwise(data, path)
    try:
        grid = GridSpec(data.height, data.width, tuple(data.transform)[:6])
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return placed(grid, data.crs) if data.crs else grid


def _exact_nodata(data: Any, k: int) -> int | float | None:
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


def _nodata(value: float | int | None, dtype: np.dtype, path: str) -> float | int | None:
    if value is None:
        return None
    if not cells.fits(value, dtype):
        # GDAL's drivers keep such values. No cell can have this value, so no cell is nodata.
        log.warning(
            "%s: nodata value %s does not fit %s and is ignored",
            without_secrets(path),
            value,
            dtype.name,
        )
        return None
    return cells.as_scalar(value, dtype)
