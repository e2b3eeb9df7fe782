"""Convert rasters into a layer of a store: `convert_dataset`."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import arguments, cells
from ..arguments import FlowEncoding, LayerCompression, RoundedType, checked, refused, word
from ..engine.machine import Machine
from ..engine.plan import StreamPlan, format_size
from ..engine.plan_stream import SourceShape, plan_stream
from ..engine.run import Here, run
from ..errors import InputError, StoreError, without_secrets
from ..facts import JsonObject, Settings
from ..grid import GridSpec
from ..progress import Progress, silent
from ..report import Report
from ..store import Layer, TileStore, unfinished_block_size
from ..store.objects import is_url, named
from ..store.swap import refuse_inside
from .array_input import ArrayInput
from .convert_problem import Convert
from .crs import text_of
from .encodings import warn_of_tags
from .gdal import gdal_environment
from .georeference import IDENTITY
from .inputs import SEQUENTIAL

if TYPE_CHECKING:
    import xarray

log = logging.getLogger(__name__)


@checked(store=arguments.path, encoding=word(FlowEncoding), dtype=word(RoundedType))
def convert_dataset(
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | xarray.DataArray | Layer,
    store: str | os.PathLike[str],
    *,
    layer: str = "elevation",
    band: int | None = None,
    block_size: int | None = None,
    round_cells: bool = False,
    dtype: RoundedType | None = None,
    clamp_min: float | None = None,
    nodata: float | int | None = None,
    bounds: tuple[float, float, float, float] | None = None,
    crs: str | None = None,
    encoding: FlowEncoding | None = None,
    compress: LayerCompression | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Report:
    """Convert one raster, or several aligned ones as a mosaic, into a layer of a store.

    Cells keep their type and bits unless `round_cells`, `clamp_min` or `nodata` change them. A
    value that would not fit raises an error that names its row and column.

    Parameters
    ----------
    inputs
        One or more rasters, in a format of GDAL or in GRASS ASCII. Where they overlap, the first
        one wins. Or a DataArray, in memory or lazy, whose coordinates, CRS and nodata value are
        used; it is read block by block. Or a layer of another store.
    store
        The store (a folder of tiles in Zarr format); created if it does not exist. Additional
        layers must match its grid.
    layer
        Name of the layer.
    band
        Band of multi-band files.
    block_size
        Side of a block in cells; chosen by the planner when None.
    round_cells
        Round real cells to the nearest integer, ties to even, and store int32.
    dtype
        With `round_cells`: store this type instead of int32, also for integer rasters: "int16",
        "uint16" or "int32".
    clamp_min
        Raise smaller values to this one, after rounding.
    nodata
        The nodata value of the layer. Cells with this value become nodata, and nodata cells of the
        inputs are set to it.
    bounds
        (west, south, east, north) in the raster's CRS; converts the cells they touch.
    crs
        Coordinate system of inputs that do not name one, such as ASCII grids: "EPSG:32611", WKT or
        a PROJ string, or a file with one of these, such as a .prj. Nothing is reprojected.
    encoding
        The encoding of flow directions made by another program: "esri", "grass", "taudem",
        "whitebox", "saga", "ldd", "esri-backlink", "esri-degrees" or "r.cost". The layer gets D8
        codes, uint8, 255 for no direction. When None, the encoding is read from the tag
        FLOW_DIRECTION_ENCODING, which `export_layer` writes; without that tag, cells are not
        recoded.
    compress
        None or "none"; "blosc-lz4", "blosc-zstd" or "zstd" for every tile; "auto": "blosc-lz4",
        or none where the disk is faster than the compressor. The report says which.
    memory_limit
        Limit on the peak resident set size of the process, in bytes; a quarter of RAM when None.
    threads
        Threads of each stage; one per processor when None.
    client
        A ``distributed.Client``: its workers convert the blocks, and `memory_limit` applies to each
        worker. They must see the inputs, which must not be in text formats. When None, this
        process does the work.
    verify
        Read the inputs again and compare every cell with the layer, before it appears.
    resume
        Continue an unfinished run; a finished one is left as it is.
    overwrite
        Replace an existing layer.
    progress
        Called with the number of cells just written, and the total.

    Returns
    -------
    Report
        ``result`` holds store, layer, rows, cols, dtype, nodata, block_size, stored_bytes and
        raw_bytes; with `verify` verified_cells, and "encoding" if flow directions were recoded.

    Raises
    ------
    InputError
        when inputs cannot be read or do not match each other, or when they contain a value that
        does not fit the type or is not a direction in their encoding.
    StoreError
        when the layer exists, or the grid of the store is different.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; nothing is written or replaced then.
    """
    paths: tuple[Any, ...] = tuple(inputs)  # type: ignore[arg-type] # `checked` made a list of them
    limits: Settings = {"memory_limit": memory_limit, "threads": threads}
    problem = Convert(
        str(store),
        paths,
        layer,
        block_size,
        band=band,
        round_cells=round_cells,
        dtype=dtype,
        clamp_min=clamp_min,
        nodata=nodata,
        bounds=bounds,
        crs=None if crs is None else text_of(crs),
        encoding=encoding,
    )
    with gdal_environment(), problem.mosaic:
        check_place(named(store))
        names = [one.path for one in problem.mosaic.inputs]
        warn_of_tags(problem.mosaic.inputs, encoding)
        _warn_of_values_and_places(problem)
        _refuse_arrays(problem, resume=resume, verify=verify, client=client)
        if client is None:
            planned = partial(Convert.plan, machine=Machine.of(**limits))
        else:
            from ..engine.cluster import Cluster  # start-up time counts

            _refuse_text(problem)
            client = Cluster(client, problem.shared)
            planned = partial(client.plan, machine=Machine.of(client.limit(memory_limit)))
        operation = problem.sized(_block_size(problem, resume=resume), planned)
        location = Here(progress)
        result = run(
            operation,
            **limits,
            resume=resume,
            overwrite=overwrite,
            verify=verify,
            compress=compress,
            place=location,
            client=client,
        )
    report, written = result.report, result.layers[layer]
    plan = report.settings.pop("plan")
    report.settings |= {"compress": written.compress, "plan": plan}
    report.result = {
        "store": str(store),
        "layer": layer,
        **_described(written, operation.grid),
        "blocks_resumed": report.result["blocks_resumed"],
        **report.verified,
    }
    if problem.directions is not None:
        report.result["encoding"] = problem.directions
    others = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    written.warn_if_empty(names[0] + others)
    if written.compress is None:
        _warn_of_padding(store, report.result["stored_bytes"], report.result["raw_bytes"])
    return report


def _refuse_arrays(problem: Convert, **wanted: Any) -> None:
    """Reject options that need files when the input is a DataArray."""
    for name, value in wanted.items():
        if value and problem.mosaic.inputs[0].driver == ArrayInput.driver:
            raise refused(
                name,
                f" reads files again, which {{data}} does not have; leave out {{{name}}}",
                data=problem.mosaic.inputs[0].path,
            )


def _refuse_text(problem: Convert) -> None:
    """Reject inputs that every worker would have to read from the beginning."""
    for one in problem.mosaic.inputs:
        if one.driver in SEQUENTIAL:
            raise InputError(
                f"{one.path}: a text format must be read from beginning to end by one process; "
                "convert without a cluster, or make it a GeoTIFF first"
            )


def _warn_of_values_and_places(problem: Convert) -> None:
    attributes = problem.mosaic.attributes
    factor, offset = attributes.get("scale_factor", 1.0), attributes.get("add_offset", 0.0)
    if (factor, offset) != (1.0, 0.0):
        log.warning(
            "%s: its values are stored as cells with scale %s and offset %s, which computations "
            "ignore: slopes, intervals, depths and costs are in units of cells. To compute with "
            "values, unscale the raster first (gdal_translate -unscale -ot Float64), or make "
            "another layer with terrain-gpu calc",
            without_secrets(problem.mosaic.inputs[0].path),
            factor,
            offset,
        )
    unsaid = [one for one in problem.mosaic.inputs if getattr(one, "remark", "")]
    if unsaid and (not problem.crs or unsaid[0].grid.transform == IDENTITY):
        others = f" (and {len(unsaid) - 1} more)" if len(unsaid) > 1 else ""
        log.warning("%s%s: %s", without_secrets(unsaid[0].path), others, unsaid[0].remark)


def _warn_of_padding(store: str | os.PathLike[str], stored: int, raw: int) -> None:
    if stored > max(8 * raw, 10**8):
        log.warning(
            "%s: takes %s on disk for %s of cells, because it is padded to tiles of 64 x 64 cells; "
            "--compress auto avoids this",
            store,
            format_size(stored),
            format_size(raw),
        )


def _described(written: Layer, grid: GridSpec) -> JsonObject:
    """Describe a layer for the report."""
    return {
        "rows": grid.rows,
        "cols": grid.cols,
        "dtype": written.dtype.name,
        "nodata": cells.to_json(written.nodata),
        "block_size": written.block_size,
        "stored_bytes": written.info["stored_bytes"],
        "raw_bytes": grid.cells * written.dtype.itemsize,
    }


def _block_size(problem: Convert, *, resume: bool) -> int | None:
    """The given block size, or else that of the run to resume or of the store's other layers."""
    if problem.block_size is None and resume:
        begun = unfinished_block_size(problem.store, problem.layer)
        if begun is not None:
            return begun
    if problem.block_size is None and problem.others:
        return TileStore.open(problem.store).layer(problem.others[0]).block_size
    return problem.block_size


def check_place(store: Path) -> None:
    """Reject a path that cannot become a store, before anything is written."""
    if is_url(store):
        refuse_inside(store)
        return
    if store.is_file():
        raise StoreError(f"{store}: is a file; the last argument must name the store, a folder")
    if store.is_symlink() and not store.exists():
        raise StoreError(f"{store}: is a broken link; remove it")
    if store.is_dir() and not (store / "zarr.json").is_file():
        raise StoreError(f"{store}: is a folder, but not a store; name one that does not exist yet")
    if not store.absolute().parent.is_dir():
        raise InputError(f"{store}: its folder {store.parent} does not exist; make it first")
    refuse_inside(store)


def plan_for_shape(
    rows: int,
    cols: int,
    dtype: np.dtype,
    *,
    machine: Machine,
    block_size: int | None = None,
    source: np.dtype | None = None,
) -> StreamPlan:
    """Plan the conversion of a tiled raster of this shape; the raster need not exist.

    `source` is the type of its cells, if not that of the layer.
    """
    source = dtype if source is None else source
    itemsize = max(source.itemsize, dtype.itemsize)
    shape = SourceShape((256, 256), itemsize, rows * cols * source.itemsize)
    return plan_stream(
        rows,
        cols,
        dtype,
        shape,
        machine=machine,
        block_size=block_size,
    )
