"""Write GeoTIFFs, including cloud-optimised ones, which appear only when complete."""

from __future__ import annotations

import errno
import logging
import math
import os
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import google_crc32c
import numpy as np
import rasterio
import rasterio.shutil
from rasterio.windows import Window as GdalWindow

from ..engine.machine import GDAL_CACHE, MB
from ..engine.plan import format_size
from ..errors import InputError, OutputError, TerrainError
from ..facts import JsonObject, Settings
from ..grid import BlockGrid, GridSpec, Window, ceil_div, clip, round_up
from ..grid.crs import equal
from ..store.file_writer import FileWriter
from ..store.outputs import NOTHING, free_space, output_error
from .crs import coded_crs, crs_name
from .gdal import ENCODING_TAG, GDAL_ERRORS

log = logging.getLogger(__name__)

OUTPUT_TILE = 256
SMALLEST_TILE = 16
"""Sides of tiles in TIFF are multiples of this."""
OVERVIEWS_TILE = 512
"""The default of GDAL's COG driver, whose tiles are square."""
THIN = 128
"""If a raster has a side of up to this number of cells, tiles of a COG are no wider than it."""
LONGEST_STRIP = 32 * MB
"""A strip must fit into GDAL's block cache; the compressor holds a compressed one as well."""

CODEC_BYTES = {"none": 0, "deflate": 3 * MB, "lzw": 3 * MB, "zstd": 22 * MB}
"""Memory of GDAL's compressors for each thread; measured on up to 64 threads."""
OVERVIEWS, OVERVIEWS_THREAD = 100 * MB, 28 * MB
"""Memory of GDAL's COG driver: first thread and each further one, without its block cache."""
TILE_BYTES = 64
"""Memory for each tile of a COG: offsets of it and of the tiles of overviews."""


@dataclass(frozen=True)
class OutputProfile:
    """How a raster file is written.

    Attributes
    ----------
    compress
        "none", "deflate", "lzw" or "zstd".
    cog
        Cloud-optimised GeoTIFF with overviews.
    threads
        Number of threads that compress.
    bands
        Number of bands; if there are several, they are the first axis of the data written.
    """

    compress: str = "none"
    cog: bool = False
    threads: int = 1
    bands: int = 1

    @property
    def plain(self) -> OutputProfile:
        """Profile of the file that is written first: a COG is copied from an uncompressed one."""
        return OutputProfile(threads=self.threads, bands=self.bands) if self.cog else self

    @property
    def writing(self) -> int:
        """Bytes that GDAL needs in addition to its block cache while cells are written."""
        return self.threads * CODEC_BYTES[self.plain.compress]

    def copying(self, shape: tuple[int, int]) -> int:
        """Bytes that GDAL needs in addition to its block cache to make overviews."""
        tiles = math.prod(ceil_div(side, overviews_tile(shape)) for side in shape)
        threads = OVERVIEWS + (self.threads - 1) * OVERVIEWS_THREAD
        return self.cog * (threads + TILE_BYTES * tiles)

    def creation_options(self, dtype: np.dtype) -> Settings:
        options: Settings = {"compress": self.compress, "num_threads": self.threads}
        if self.compress != "none":
            options["predictor"] = 3 if dtype.kind == "f" else 2
        return options

    def layout(self, shape: tuple[int, int], itemsize: int) -> Settings:
        """Tiles no larger than the raster; strips if it is thinner than the smallest tile."""
        rows, cols = shape
        row = cols * self.bands * itemsize
        longest = LONGEST_STRIP if self.compress == "none" else MB
        if min(shape) < SMALLEST_TILE and row <= longest:
            return {"tiled": False, "blockysize": min(rows, max(1, OUTPUT_TILE**2 // row))}
        height, width = (min(OUTPUT_TILE, round_up(side, SMALLEST_TILE)) for side in shape)
        return {"tiled": True, "blockxsize": width, "blockysize": height}


def overviews_tile(shape: tuple[int, int]) -> int:
    """The side of the tiles of a COG."""
    thin = min(shape) <= THIN and max(shape) > OVERVIEWS_TILE
    return round_up(min(shape), SMALLEST_TILE) if thin else OVERVIEWS_TILE


class RasterOutput(FileWriter):
    """A GeoTIFF that appears under its name only when complete.

    Use it as a context manager. Without `commit`, nothing of the file remains.

    Parameters
    ----------
    path
        Absolute path.
    grid, dtype, nodata
        Grid, cell type and nodata value of the file.
    profile
        Compression, and whether the file is cloud-optimised.
    attributes
        CF attributes of the cells: units, scale and offset; the encoding of flow directions; and
        whether they are coded, see `store.manage.is_coded`.
    origin
        Origin of the cells, for messages.
    blocks, part
        The blocks of the source layer, and the window of the layer to write.
    """

    def __init__(
        self,
        path: Path,
        grid: GridSpec,
        dtype: np.dtype,
        nodata: float | int | None,
        profile: OutputProfile,
        attributes: JsonObject,
        origin: str | os.PathLike[str],
        blocks: BlockGrid,
        part: Window,
    ) -> None:
        super().__init__(path, blocks.shape)
        self.profile = profile
        self._blocks, self._part = blocks, part
        self._dtype = dtype
        self._overviews_tile = overviews_tile(grid.shape)
        # GDAL adds levels until one fits into a tile, and holds the cells of a row of its tiles.
        levels = math.ceil(math.log2(max(grid.shape) / OVERVIEWS_TILE))
        thin = self._overviews_tile < OVERVIEWS_TILE
        self._levels = {"overview_count": levels} if thin else {}
        # Integers may be classes.
        average = dtype.kind == "f" and not attributes.get("coded")
        self._overviews = "average" if average else "nearest"
        self._written = array("q")
        """Window and checksum of every write, five numbers each."""
        options = profile.plain.creation_options(dtype)
        layout = profile.plain.layout(grid.shape, dtype.itemsize)
        height, width = layout["blockysize"], layout.get("blockxsize", grid.cols)
        tiles = ceil_div(grid.rows, height) * ceil_div(grid.cols, width)
        self._left = tiles * profile.bands * (height * width * dtype.itemsize + 16) + (1 << 12)
        if profile.cog or profile.compress == "none":
            self._check_space(self._left)
        self._data: Any = None
        self._grid, self._crs = grid, None
        self._parts = [self.output.folder / name for name in ("a.tif", "b.tif")]
        # Tiles of nodata are written as well: GDAL 3.10 copies files without some of their tiles
        # into compressed strips with arbitrary cells.
        options |= layout | {"bigtiff": "if_safer"}
        try:
            self._crs = coded_crs(grid) if grid.crs_wkt else None
            location = {"crs": self._crs, "transform": rasterio.Affine(*grid.transform)}
            if isinstance(nodata, int) and abs(nodata) > 2**53:
                self._data = _create_exact(self._parts[0], grid, dtype, nodata, location, options)
            else:
                self._data = rasterio.open(
                    self._parts[0],
                    "w",
                    driver="GTiff",
                    height=grid.rows,
                    width=grid.cols,
                    count=profile.bands,
                    dtype=dtype.name,
                    nodata=nodata,
                    **location,
                    **options,
                )
            if attributes.get("encoding"):
                self._data.update_tags(1, **{ENCODING_TAG: attributes["encoding"]})
            if attributes.get("units"):
                self._data.units = [str(attributes["units"])]
            if "scale_factor" in attributes or "add_offset" in attributes:
                self._data.scales = [float(attributes.get("scale_factor", 1.0))]
                self._data.offsets = [float(attributes.get("add_offset", 0.0))]
        except BaseException as error:
            self.__exit__()
            if isinstance(error, InputError):
                raise InputError(f"{origin}: {error}") from None
            if isinstance(error, UnicodeError):
                raise InputError(
                    f"{path}: its name is not UTF-8, which GDAL requires; choose another"
                ) from None
            if isinstance(error, ValueError | TypeError):
                raise InputError(f"{origin}: invalid units, scale or offset: {error}") from None
            if isinstance(error, GDAL_ERRORS):
                raise output_error(self.path, error) from None
            raise

    @property
    def part(self) -> Path:
        """The path of the file that is published."""
        return self._parts[self.profile.cog]

    def __enter__(self) -> RasterOutput:
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            if self._data is not None:
                self._data.close()
        except GDAL_ERRORS:
            log.debug("%s: abandoned", self.path)
        finally:
            super().__exit__(*exc)

    def write_block(self, i: int, j: int, data: np.ndarray) -> None:
        """Write the part of a block that belongs to the file; call from one thread at a time."""
        top, _, left, _ = self._part
        row0, row1, col0, col1 = clip(self._part, self._blocks.window(i, j))
        self.write((row0 - top, row1 - top, col0 - left, col1 - left), data)

    def write(self, window: Window, data: np.ndarray) -> None:
        """Write a window; call from one thread at a time."""
        row0, row1, col0, col1 = window
        # Check before GDAL does: it reports a full disk on stderr, and possibly only on close.
        self._check_space(min(self._left, GDAL_CACHE))
        self._left -= data.nbytes
        try:
            frame = GdalWindow(col0, row0, col1 - col0, row1 - row0)
            self._data.write(data, None if data.ndim == 3 else 1, window=frame)
            self._written.extend((*window, _crc(data)))
        except GDAL_ERRORS as error:
            raise output_error(self.path, error) from None

    def finish(self) -> None:
        """Complete the file at `part`, with overviews if it is a COG, and read it back."""
        try:
            self._data.close()
            if self.profile.cog:
                rasterio.shutil.copy(
                    self._parts[0],
                    self.part,
                    driver="COG",
                    blocksize=self._overviews_tile,
                    **self.profile.creation_options(self._dtype) | {"predictor": "yes"},
                    overview_resampling=self._overviews,
                    **self._levels,
                    bigtiff="if_safer",
                )
            self._keep_crs(self.part)
            self._check(self.part)
        except TerrainError:
            raise
        except GDAL_ERRORS as error:
            raise output_error(self.path, error) from None

    def _keep_crs(self, path: Path) -> None:
        """Write a coordinate system that GeoTIFF cannot hold into a sidecar, as GDAL does.

        GDAL does so itself for some systems; from others it drops a part without a message.
        """
        side = Path(f"{path}.aux.xml")
        for last in (False, True):
            with rasterio.open(path) as data:
                if equal(data.crs, self._crs):
                    break
            if last:
                raise OutputError(
                    f"{self.path}: neither GeoTIFF nor GDAL's sidecar can hold its coordinate "
                    f"system ({crs_name(self._crs)}); export the layer to a store (.zarr), or warp "
                    f"it first (gdalwarp); {NOTHING}"
                )
            side.write_text(f"<PAMDataset><SRS>{escape(self._grid.crs_wkt)}</SRS></PAMDataset>")
        if side.exists():
            log.warning(
                "%s: GeoTIFF cannot hold its coordinate system (%s), so it is in %s.aux.xml; keep "
                "both files together",
                self.path,
                crs_name(self._crs),
                self.path.name,
            )

    def _check(self, path: Path) -> None:
        """Read everything back: on a full disk, GDAL may silently leave holes in the file."""
        with rasterio.open(path, num_threads=self.profile.threads) as data:
            levels = len(data.overviews(1))
            for k in range(0, len(self._written), 5):
                row0, row1, col0, col1, crc = self._written[k : k + 5]
                crc_read = 0
                for row in range(row0, row1, OUTPUT_TILE):
                    size = col1 - col0, min(OUTPUT_TILE, row1 - row)
                    crc_read = _crc(data.read(window=GdalWindow(col0, row, *size)), crc_read)
                if crc_read != crc:
                    raise OSError(errno.EIO, "data read back differ from those written", str(path))
        for level in range(levels):
            with rasterio.open(path, overview_level=level) as data:
                for _, window in data.block_windows(1):
                    data.read(window=window)

    def _check_space(self, needed: int) -> None:
        free = free_space(self.path)
        if free < needed:
            raise OutputError(
                f"{self.path}: no space left on the disk: {format_size(needed)} needed, "
                f"{format_size(free)} free; {NOTHING}"
            )


def _create_exact(
    path: Path,
    grid: GridSpec,
    dtype: np.dtype,
    nodata: int,
    location: JsonObject,
    options: Settings,
) -> Any:
    """Create a GeoTIFF with a nodata value that rasterio cannot set, as it is not a double."""
    template = (
        f'<VRTDataset rasterXSize="{grid.cols}" rasterYSize="{grid.rows}">'
        f'<VRTRasterBand dataType="{dtype.name.replace("ui", "UI").replace("i", "I")}" band="1">'
        f"<NoDataValue>{nodata}</NoDataValue></VRTRasterBand></VRTDataset>"
    )
    rasterio.shutil.copy(template, path, driver="GTiff", **options | {"sparse_ok": True})
    data = rasterio.open(path, "r+", num_threads=options["num_threads"])
    data.transform = location["transform"]
    if location["crs"]:
        data.crs = location["crs"]
    return data


def _crc(data: np.ndarray, crc: int = 0) -> int:
    """CRC-32C of the cells, row by row, without copying all of them at once."""
    for k in range(0, data.shape[-2], OUTPUT_TILE):
        part = data[..., k : k + OUTPUT_TILE, :]
        if data.dtype.kind == "f":
            # GDAL omits blocks that equal a nodata value of 0, so -0.0 may be read back as 0.0.
            part = np.where(part == 0, data.dtype.type(0), part)
        crc = google_crc32c.extend(crc, part.tobytes())
    return crc
