"""A layer back into a raster file: `export_layer`."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .. import cells
from ..arguments import FileCompression, FloatType, checked, word
from ..engine.plan import SourceShape, StreamPlan, plan_stream
from ..engine.schedule import stream
from ..errors import InputError
from ..grid import GridSpec, Window, clip, is_empty
from ..grid.neighbours import FORWARD_EDGES, symmetric
from ..progress import Progress, silent
from ..report import Report
from ..store import Layer, TileStore
from ..store.file_writer import writable_file
from .gdal import gdal_environment
from .geotiff import OutputProfile, RasterOutput

log = logging.getLogger(__name__)


@checked(compress=word(FileCompression), dtype=word(FloatType))
def export_layer(  # noqa: PLR0913 - keyword-only
    store: str | os.PathLike[str] | TileStore,
    path: str | os.PathLike[str],
    *,
    layer: str = "elevation",
    bounds: tuple[float, float, float, float] | None = None,
    cog: bool = False,
    compress: FileCompression | None = None,
    dtype: FloatType | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Report:
    """Write a layer as GeoTIFF, cell for cell, streaming.

    Parameters
    ----------
    path
        The file; it appears only when whole.
    bounds
        (west, south, east, north) in the store's CRS: cells touched by them; all when None.
    cog
        Cloud-optimised GeoTIFF with overviews (averaged for real cells, nearest for integers).
    compress
        "none", "deflate", "lzw" or "zstd"; None means none for GeoTIFF and deflate for COG.
    dtype
        "float32" or "float64": convert the cells, to the nearest such number, and nodata to NaN.
        None keeps the cells as they are.
    memory_limit, threads, progress
        As for `convert_dataset`.
    overwrite
        Replace an existing file, at the end.

    Returns
    -------
    Report
        ``result`` holds path, rows, cols, dtype, nodata and file_bytes.

    Raises
    ------
    StoreError
        when store or layer are missing or damaged.
    InputError
        when the file exists, `bounds` miss the raster, or a value is beyond `dtype`.
    OutputError
        when it cannot be written.
    """
    report = Report("export")
    opened = store if isinstance(store, TileStore) else TileStore.open(store)
    source = opened.layer(layer)
    kind = np.dtype(dtype or source.dtype)
    nodata = source.nodata if kind == source.dtype else math.nan
    target = checked_target(path, overwrite=overwrite)
    window = _window(opened, source, bounds)
    grid, size = source.grid.crop(window), source.block_size
    plan = _plan(source, grid, kind, memory_limit, threads)
    for line in plan.describe().splitlines():
        log.info("%s", line)
    profile = OutputProfile(compress or ("deflate" if cog else "none"), cog)
    valid = 0

    def read(part: Window, buffer: np.ndarray) -> np.ndarray:
        shape = part[1] - part[0], part[3] - part[2]
        if source.info.get("encoding") == FORWARD_EDGES:
            return symmetric(source.read_ring(part))
        return source.read_window(*part, out=buffer[: shape[0], : shape[1]])

    def write(part: Window, data: np.ndarray) -> None:
        nonlocal valid
        valid += cells.stats(data, source.nodata).valid
        row, col = window[0], window[2]
        if kind != data.dtype:
            data = _converted(data, kind, source, part)
        output.write((part[0] - row, part[1] - row, part[2] - col, part[3] - col), data)

    with (
        gdal_environment(),
        report.measured(),
        RasterOutput(target, grid, kind, nodata, profile, source.attributes, source.path) as output,
    ):
        with report.phase("export"):
            stream(
                _parts(source, window),
                read,
                write,
                buffers=[np.empty((size, size), source.dtype) for _ in range(plan.buffers)],
                readers=plan.readers,
                ordered=True,  # so that equal runs write equal bytes
                done=lambda part: progress((part[1] - part[0]) * (part[3] - part[2]), grid.cells),
            )
        with report.phase("commit"):
            output.commit()
    report.cells, report.valid_cells = grid.cells, valid
    report.settings = {
        "layer": layer,
        "bounds": list(bounds) if bounds else None,
        "cog": cog,
        "compress": profile.compress,
        "dtype": dtype,
        "plan": plan.as_dict(),
    }
    report.result = {
        "path": str(path),
        "rows": grid.rows,
        "cols": grid.cols,
        "dtype": kind.name,
        "nodata": cells.to_json(nodata),
        "file_bytes": target.stat().st_size,
    }
    return report


def _window(
    store: TileStore, source: Layer, bounds: tuple[float, float, float, float] | None
) -> Window:
    """Cells of a layer that bounds touch."""
    try:
        return source.grid.window_of(bounds) if bounds else source.grid.window
    except InputError as error:
        raise InputError(f"{store.path}: {error}") from None


def _plan(
    source: Layer,
    grid: GridSpec,
    kind: np.dtype,
    memory_limit: int | str | None,
    threads: int | None,
) -> StreamPlan:
    """Plan an export of a grid, its cells of type `kind`."""
    item, size = source.dtype.itemsize, source.block_size
    return plan_stream(
        grid.rows,
        grid.cols,
        max(source.dtype, kind, key=lambda one: one.itemsize),
        SourceShape((size, size), item, source.info.get("stored_bytes") or 0, extra=1),
        memory_limit=memory_limit,
        threads=threads,
        block_size=size,
    )


def checked_target(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """The absolute path of a GeoTIFF that may be written.

    Raises
    ------
    InputError
        when it exists, has no folder, or is not called .tif.
    OutputError
        when its folder cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() not in (".tif", ".tiff"):
        raise InputError(f"{path}: name the output .tif; GeoTIFF is what export writes")
    return writable_file(path, overwrite=overwrite)


def _converted(data: np.ndarray, kind: np.dtype, source: Layer, part: Window) -> np.ndarray:
    """Cells as floats of another type, NaN where they have no value."""
    void = cells.is_nodata(data, source.nodata)
    with np.errstate(over="ignore"):
        found = data.astype(kind)
    found[void] = np.nan
    beyond = np.isinf(found)
    if beyond.any():
        row, col = np.argwhere(beyond)[0]
        raise InputError(
            f"{source.path}: {data[row, col]} at row {part[0] + row}, column {part[2] + col} is "
            f"beyond {kind.name}; write float64"
        )
    return found


def _parts(source: Layer, window: Window) -> Iterator[Window]:
    """The parts of `window` block by block, row by row."""
    down, across = source.blocks.shape
    for i in range(down):
        for j in range(across):
            part = clip(window, source.block_window(i, j))
            if not is_empty(part):
                yield part
