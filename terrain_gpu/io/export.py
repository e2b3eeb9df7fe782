"""Export a layer to a raster file or to another store: `export_layer`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from .. import cells
from ..arguments import FileCompression, FloatType, FlowEncoding, checked, word
from ..arguments import store as a_store
from ..engine.machine import Machine
from ..engine.run import Here, run
from ..errors import ArgumentError, InputError, OutputError
from ..facts import Settings
from ..grid import GridSpec
from ..grid.neighbours import DEGREES, FORWARD_EDGES
from ..progress import Progress, silent
from ..report import Report
from ..store import Layer, TileStore
from ..store.file_writer import writable_file
from ..store.objects import has_store, is_url, named
from ..store.outputs import complete_file
from .convert import check_place, convert_dataset
from .encodings import KNIGHTS_TOO, has_knights, warn_of_encoding
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
def export_layer(
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
    """Write a layer to a GeoTIFF, or to another store, cell for cell, block by block.

    Parameters
    ----------
    store
        A store, or its path; or a layer, such as those in the `layers` of a result.
    path
        The file; it appears only when complete. A path that ends in .zarr is a store, a Zarr v3
        group; if it does not exist, it is created with this layer alone.
    layer
        Name of the layer; ignored when `store` is a layer.
    bounds
        (west, south, east, north) in the store's CRS; writes the cells they touch. All when None.
    cog
        Cloud-optimised GeoTIFF with overviews: averages for real cells, nearest cells for integers
        and for codes, labels and aspects.
    compress
        "none", "deflate", "lzw" or "zstd"; None means none for GeoTIFF and deflate for COG. For a
        store, "none" or "zstd".
    dtype
        "float32" or "float64": convert cells to the nearest number of this type, and nodata to
        NaN. None keeps the cells as they are.
    encoding
        For a layer of flow directions, the encoding of the file: "esri" (also when None), "grass",
        "taudem", "whitebox", "saga", "ldd"; or "nextxy": two bands of int32, the column and the row
        of the next cell. For backlinks also "esri-backlink", 1 to 8 clockwise from E; and in int16
        "esri-degrees", azimuths, and "r.cost", degrees counterclockwise from E. With 16 neighbours
        only "r.cost", in float32. It is recorded in the tag FLOW_DIRECTION_ENCODING of the first
        band.
    memory_limit, threads, progress
        As for `convert_dataset`.
    verify
        Read the file again and compare every cell with the layer, before it appears.
    overwrite
        Replace an existing file, once the new one is complete; in a store, the layer.

    Returns
    -------
    Report
        ``result`` holds path, rows, cols, dtype, nodata and file_bytes (for a store, of its tiles),
        and with `verify` verified_cells.

    Raises
    ------
    StoreError
        when the store or the layer is missing or damaged.
    InputError
        when the file exists, `bounds` are outside the raster, or a value exceeds the range of
        `dtype`.
    OutputError
        when the file cannot be written.
    VerificationError
        when the proof fails; nothing is written or replaced then.
    """
    if isinstance(store, Layer):
        layer, store = store.name, store.path.parent
    opened = store if isinstance(store, TileStore) else TileStore.open(store)
    source = opened.layer(layer)
    target = checked_target(path, overwrite=overwrite)
    if encoding not in (None, "esri") and not source.info.get("encoding"):
        warn_of_encoding(str(source.path))
    if is_store(path):
        form: Settings = {"cog": cog, "compress": compress, "dtype": dtype}
        form["encoding"] = None if encoding == "esri" else encoding
        options: Settings = {
            "bounds": bounds,
            "memory_limit": memory_limit,
            "threads": threads,
        }
        options |= {"verify": verify, "overwrite": overwrite, "progress": progress}
        return _to_store(source, target, path, form, options)
    compress = compress or ("deflate" if cog else "none")
    if encoding == "esri":
        encoding = None
    if encoding and source.dtype != np.uint8:
        raise ArgumentError(
            "{store}: layer {name} does not hold flow directions, so {encoding} cannot be used",
            store=opened.path,
            name=repr(layer),
        )
    if encoding and has_knights(source) and encoding != KNIGHTS_TOO:
        raise ArgumentError(
            "{store}: layer {name} has steps to 16 neighbours, for which {encoding} {value} has no "
            f"values; use {KNIGHTS_TOO!r}, or leave out {{encoding}}",
            store=opened.path,
            name=repr(layer),
            value=repr(encoding),
        )
    if encoding in (NEXTXY, *DEGREES) and dtype:
        raise ArgumentError(
            "{encoding} {value} has its own type; it cannot be combined with {dtype}",
            value=repr(encoding),
        )
    operation = Export(str(opened.path), str(target), layer, bounds, cog, compress, dtype, encoding)
    with gdal_environment():
        result = run(
            operation.within(Machine.of(memory_limit, threads)),
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
        "file_bytes": complete_file(target).stat().st_size,
        **report.verified,
    }
    return report


def _to_store(
    source: Layer,
    target: Path,
    path: str | os.PathLike[str],
    form: Settings,
    options: Settings,
) -> Report:
    """Write a layer to another store; a new store has this layer alone."""
    refuse_form(path, form)
    if source.info.get("encoding") == FORWARD_EDGES:
        refuse_tree(path)
    source_store = str(source.path.parent)
    if str(target) == source_store or (
        os.path.exists(target) and os.path.samefile(target, source_store)
    ):
        raise InputError(f"{path}: is the store that layer {source.name!r} is in; name another one")
    refuse_other_grid(path, Export(source_store, str(target), source.name, options["bounds"]).grid)
    compress = None if form["compress"] == "none" else form["compress"]
    # All layers of a store have the same block size; one that is replaced does not count.
    beside = has_store(target) and set(TileStore.open(target).layers) - {source.name}
    report = convert_dataset(
        source,
        str(target),
        layer=source.name,
        block_size=None if beside else source.block_size,
        compress=compress,
        resume=not options["overwrite"],
        **options,
    )
    names = ("rows", "cols", "dtype", "nodata", "verified_cells")
    result = {name: report.result[name] for name in names if name in report.result}
    report.command, stored = "export", report.result["stored_bytes"]
    report.result = {"path": str(path), **result, "file_bytes": stored}
    return report


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether an output with this name is a store."""
    return Path(path).suffix.lower() == ".zarr"


def refuse_form(path: str | os.PathLike[str], form: Settings) -> None:
    """Reject options for a store that apply only to GeoTIFF.

    Raises
    ------
    InputError
        naming the first of them.
    """
    if not is_store(path):
        return
    for name, value in form.items():
        if value and (name != "compress" or value not in ("none", "zstd")):
            said = "cog" if name == "cog" else f"{name} {value}"
            raise InputError(
                f"{path}: {said} applies only to GeoTIFF; leave it out, or name the file .tif"
            )


def refuse_tree(path: str | os.PathLike[str] | None) -> None:
    """Reject a store for a spanning tree, which means nothing without the record of its run."""
    if path and is_store(path):
        raise InputError(
            f"{path}: a tree is written as D8 codes to a GeoTIFF; name the file .tif, or keep the "
            f"store of the raster with --store {path}"
        )


def refuse_other_grid(path: str | os.PathLike[str], grid: GridSpec) -> None:
    """Reject an existing store with another grid, before the work starts."""
    if is_store(path) and has_store(named(path)):
        existing = TileStore.open(path).grid
        if not existing.same_place(grid):
            raise InputError(
                f"{path}: is a store with another grid, of {existing.rows} x {existing.cols} "
                "cells; name another store, or remove this one first"
            )


def checked_target(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Check that a GeoTIFF or a store can be written at this path; return its absolute path.

    Raises
    ------
    InputError
        when it exists, its folder does not exist, or its name does not end in .tif, .tiff or .zarr.
    OutputError
        when its folder cannot be written.
    """
    if is_store(path):
        target = named(path)
        check_place(target)
        if has_store(target) and not overwrite:
            raise InputError(f"{path}: exists; --overwrite puts the layer into it")
        if is_url(target):
            return target
        target = target.absolute()
        exists = target.exists()
        if not os.access(target if exists else target.parent, os.W_OK):
            raise OutputError(f"{path}: {'' if exists else 'its folder '}is not writable")
        return target
    path = Path(path)
    if path.suffix.lower() not in (".tif", ".tiff"):
        raise InputError(
            f"{path}: the name of the output must end in .tif (GeoTIFF) or .zarr (store)"
        )
    return writable_file(path, overwrite=overwrite)
