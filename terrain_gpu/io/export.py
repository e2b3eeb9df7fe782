"""Export a layer to a raster file: `export_layer`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from .. import cells
from ..arguments import FileCompression, FloatType, FlowEncoding, checked, word
from ..arguments import store as a_store
from ..engine.run import Here, run
from ..errors import InputError
from ..grid.neighbours import DEGREES
from ..progress import Progress, silent
from ..report import Report
from ..store import Layer, TileStore
from ..store.file_writer import writable_file
from .encodings import KNIGHTS_TOO, has_knights
from .export_problem import Export
from .gdal import gdal_environment
from .nextxy import NEXTXY


def _store_or_layer(name: str, value: Any) -> Any:
    return value if isinstance(value, Layer) else a_store(name, value)


@checked(
    store=_store_or_layer,
    compress=word(FileCompression),
    dtype=word(FloatType),
    encoding=word(FlowEncoding),
)
def export_layer(  # noqa: PLR0913 - keyword-only
    store: str | os.PathLike[str] | TileStore | Layer,
    path: str | os.PathLike[str],
    *,
    layer: str = "elevation",
    bounds: tuple[float, float, float, float] | None = None,
    cog: bool = False,
    compress: FileCompression | None = None,
    dtype: FloatType | None = None,
    encoding: FlowEncoding | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    verify: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Report:
    """Write a layer to a GeoTIFF, cell for cell, block by block.

    Parameters
    ----------
    store
        A store, or its path; or a layer, as results have them in `layers`.
    path
        The file; it appears only when complete.
    layer
        Name of the layer; that of the layer given.
    bounds
        (west, south, east, north) in the store's CRS; writes the cells they touch. All when None.
    cog
        Cloud-optimised GeoTIFF with overviews (averaged for real cells, nearest for integers).
    compress
        "none", "deflate", "lzw" or "zstd"; None means none for GeoTIFF and deflate for COG.
    dtype
        "float32" or "float64": convert cells to the nearest number of this type, and nodata to
        NaN. None keeps the cells as they are.
    encoding
        For a layer of flow directions, the encoding of the file: "esri" (also when None), "grass",
        "taudem", "whitebox", "saga", "ldd"; or "nextxy": two bands of int32, the column and the row
        of the next cell. For backlinks also "esri-backlink", 1 to 8 clockwise from E; and in int16
        "esri-degrees", azimuths, and "r.cost", degrees counterclockwise from E. With 16 neighbours
        only "r.cost", in float32. The tag FLOW_DIRECTION_ENCODING of the first band names it.
    memory_limit, threads, progress
        As for `convert_dataset`.
    verify
        Read the file again and compare every cell with the layer, before it appears.
    overwrite
        Replace an existing file, once the new one is complete.

    Returns
    -------
    Report
        ``result`` holds path, rows, cols, dtype, nodata and file_bytes, and with `verify`
        verified_cells.

    Raises
    ------
    StoreError
        when the store or the layer is missing or damaged.
    InputError
        when the file exists, `bounds` miss the raster, or a value exceeds the range of `dtype`.
    OutputError
        when the file cannot be written.
    VerificationError
        when the proof fails; nothing is written or replaced then.
    """
    if isinstance(store, Layer):
        layer, store = store.name, store.path.parent
    opened = store if isinstance(store, TileStore) else TileStore.open(store)
    opened.layer(layer)
    target = checked_target(path, overwrite=overwrite)
    compress = compress or ("deflate" if cog else "none")
    if encoding == "esri":
        encoding = None
    if encoding and opened.layer(layer).dtype != np.uint8:
        raise InputError(
            f"{opened.path}: layer {layer!r} does not hold flow directions; leave out --encoding"
        )
    if encoding and has_knights(opened.layer(layer)) and encoding != KNIGHTS_TOO:
        raise InputError(
            f"{opened.path}: layer {layer!r} has steps to 16 neighbours, and encoding "
            f"{encoding!r} no values for them; take {KNIGHTS_TOO!r}, or leave out --encoding"
        )
    if encoding in (NEXTXY, *DEGREES) and dtype:
        raise InputError(f"encoding {encoding!r} has a type of its own; leave out the dtype")
    operation = Export(str(opened.path), str(target), layer, bounds, cog, compress, dtype, encoding)
    with gdal_environment():
        result = run(
            operation.within(memory_limit, threads),
            memory_limit=memory_limit,
            threads=threads,
            overwrite=overwrite,
            verify=verify,
            place=Here(progress),
        )
    report = result.report
    report.valid_cells = result.found["valid_cells"]
    report.result = {
        "path": str(path),
        "rows": operation.grid.rows,
        "cols": operation.grid.cols,
        "dtype": operation.kind.name,
        "nodata": cells.to_json(operation.nodata),
        "file_bytes": target.stat().st_size,
        **report.verified,
    }
    return report


def checked_target(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Check that a GeoTIFF may be written here; returns its absolute path.

    Raises
    ------
    InputError
        when it exists, its folder does not exist, or its name does not end in .tif or .tiff.
    OutputError
        when its folder cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() not in (".tif", ".tiff"):
        kept = f"; --store {path.name} keeps the store" if path.suffix == ".zarr" else ""
        raise InputError(f"{path}: name the output .tif; only GeoTIFF can be written{kept}")
    return writable_file(path, overwrite=overwrite)
