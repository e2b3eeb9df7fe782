"""Rasters into a store: `convert_dataset`."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import arguments, cells
from ..arguments import LayerCompression, checked, word
from ..engine import plan as planner
from ..engine.plan import SourceShape, StreamPlan, format_size, plan_stream
from ..engine.schedule import stream
from ..errors import CellError, InputError, StoreError
from ..grid import GridSpec, Window
from ..progress import Progress, silent
from ..report import Report, return_large_arrays
from ..store import Layer, LayerWriter, TileStore, create_layer, unfinished_block_size
from ..store.checksums import checksum
from ..store.objects import has_store, is_url, named
from ..store.swap import refuse_inside
from .crs import crs_name, same_crs
from .gdal import gdal_environment
from .mosaic import Mosaic

log = logging.getLogger(__name__)

ROUNDED = np.dtype("<i4")
ROUNDED_NODATA = -(2**31)


@checked(store=arguments.path, compress=word(LayerCompression))
def convert_dataset(  # noqa: PLR0913 - keyword-only
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    store: str | os.PathLike[str],
    *,
    layer: str = "elevation",
    band: int | None = None,
    block_size: int | None = None,
    round_cells: bool = False,
    clamp_min: float | None = None,
    nodata: float | int | None = None,
    bounds: tuple[float, float, float, float] | None = None,
    crs: str | None = None,
    compress: LayerCompression | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Report:
    """Convert one raster, or several aligned ones as a mosaic, into a layer of a store.

    Cells keep their type and bits unless `round_cells`, `clamp_min` or `nodata` ask otherwise; a
    value that would not fit is an error that names its row and column.

    Parameters
    ----------
    inputs
        One raster or several, of GDAL's formats or GRASS ASCII. Where they overlap the first wins.
    store
        The store, made when absent. Further layers must match its grid.
    layer
        Name of the layer.
    band
        Band of multi-band files.
    block_size
        Side of a block in cells; the planner chooses when None.
    round_cells
        Round real cells to the nearest integer, ties to even, and store int32.
    clamp_min
        Raise lower values to this one, after rounding.
    nodata
        Cells of this value have none; the inputs' own nodata cells take it.
    bounds
        (west, south, east, north) in the raster's CRS: cells touched by them.
    crs
        Coordinate system of inputs that name none, such as ASCII grids: "EPSG:32611", WKT or a PROJ
        string. Nothing is reprojected.
    compress
        None or "zstd".
    memory_limit
        Bound on the peak resident set of the process, bytes; a quarter of RAM when None.
    threads
        Threads of each stage; all processors when None.
    resume
        Go on with an unfinished run; a finished one is left as it is.
    overwrite
        Replace an existing layer.
    progress
        Called with the cells just written and the cells in all.

    Returns
    -------
    Report
        ``result`` holds store, layer, rows, cols, dtype, nodata, block_size, stored_bytes and
        raw_bytes.

    Raises
    ------
    InputError
        for inputs that cannot be read, do not fit together or hold a value that does not fit.
    StoreError
        when the layer exists or the store has another grid.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    """
    report = Report("convert-dataset")
    several = [inputs] if isinstance(inputs, str | os.PathLike) else inputs
    paths = [os.fspath(one) for one in several]
    with (
        gdal_environment(),
        Mosaic(paths, band=band, nodata=nodata, bounds=bounds, crs=crs) as mosaic,
    ):
        recode = Recode.of(mosaic, round_cells=round_cells, clamp_min=clamp_min, nodata=nodata)
        grid, block_size = _fit_store(named(store), layer, mosaic, block_size, resume=resume)
        shape = _source_shape(mosaic, recode)
        limits: dict[str, Any] = {"memory_limit": memory_limit, "threads": threads}
        plan = plan_stream(*grid.shape, recode.dtype, shape, block_size=block_size, **limits)
        if mosaic.decoding and planner.whole_process:
            return_large_arrays()
        for line in plan.describe().splitlines():
            log.info("%s", line)
        settings = {
            "inputs": mosaic.fingerprint(),
            "band": band,
            "round": round_cells,
            "clamp_min": cells.to_json(clamp_min),
            "bounds": list(bounds) if bounds else None,
            "crs": crs,
        }
        with (
            report.measured(),
            create_layer(
                store,
                layer,
                grid,
                recode.dtype,
                nodata=recode.nodata,
                block_size=plan.block_size,
                compress=compress,
                attributes=mosaic.attributes,
                settings=settings,
                overwrite=overwrite,
                resume=resume,
                origin=paths[0],
            ) as writer,
        ):
            resumed = int(writer.done.sum())
            with report.phase("convert"), _Checksums(mosaic.files) as sums:
                if not writer.finished:
                    with _explained(writer):
                        _stream_cells(mosaic, recode, writer, plan, progress)
                sources = [] if writer.finished else sums.result()
            with report.phase("commit"):
                written = writer.commit({"sources": sources} if sources else None)
    report.cells, report.valid_cells = grid.cells, written.info["valid_cells"]
    report.settings = {**settings, "compress": compress, "plan": plan.as_dict()}
    report.result = {
        "store": str(store),
        "layer": layer,
        **_described(written, grid),
        "blocks_resumed": resumed,
    }
    if compress is None:
        _warn_of_padding(store, report.result["stored_bytes"], report.result["raw_bytes"])
    return report


def _warn_of_padding(store: str | os.PathLike[str], stored: int, raw: int) -> None:
    if stored > max(8 * raw, 10**8):
        log.warning(
            "%s: tiles of 64 x 64 cells take %s for %s of cells; --compress zstd makes them small",
            store,
            format_size(stored),
            format_size(raw),
        )


def _described(written: Layer, grid: GridSpec) -> dict[str, Any]:
    """A layer in the report."""
    return {
        "rows": grid.rows,
        "cols": grid.cols,
        "dtype": written.dtype.name,
        "nodata": cells.to_json(written.nodata),
        "block_size": written.block_size,
        "stored_bytes": written.info["stored_bytes"],
        "raw_bytes": grid.cells * written.dtype.itemsize,
    }


@contextmanager
def _explained(writer: LayerWriter) -> Iterator[None]:
    """Say what becomes of the finished blocks when an input fails half way."""
    try:
        yield
    except CellError:
        writer.keep = False
        raise
    except InputError as error:
        if not writer.any_written():
            raise
        raise InputError(
            f"{error}; finished blocks are kept: --resume goes on, --overwrite starts again"
        ) from error


def _cell_name(row: int, col: int) -> str:
    return f"row {row}, column {col}"


@dataclass(frozen=True)
class Recode:
    """What happens to each cell between raster and store."""

    source: np.dtype
    dtype: np.dtype
    source_nodata: float | int | None
    nodata: float | int | None
    round_cells: bool
    clamp_min: float | int | None
    cell_name: Callable[[int, int], str] = _cell_name

    @classmethod
    def of(
        cls,
        mosaic: Mosaic,
        *,
        round_cells: bool,
        clamp_min: float | None,
        nodata: float | int | None,
    ) -> Recode:
        """The recoding for a mosaic.

        Raises
        ------
        InputError
            when nodata or clamp value do not fit the resulting cells.
        """
        name = mosaic.inputs[0].path
        dtype, out = mosaic.dtype, mosaic.nodata
        round_cells = round_cells and dtype.kind == "f"
        if round_cells:
            dtype = ROUNDED
            if nodata is not None:
                out = cells.as_scalar(nodata, dtype, f"{name}: --nodata")
            elif out is None or not cells.fits(out, dtype):
                out = ROUNDED_NODATA
            else:
                out = cells.as_scalar(out, dtype)
        if clamp_min is not None:
            clamp_min = cells.as_scalar(clamp_min, dtype, f"{name}: --clamp-min")
            if not math.isfinite(clamp_min):
                raise InputError(f"{name}: --clamp-min {clamp_min} must be a finite number")
        return cls(
            mosaic.dtype, dtype, mosaic.nodata, out, round_cells, clamp_min, mosaic.cell_name
        )

    @property
    def changes(self) -> bool:
        """Whether any cell can change."""
        return self.round_cells or self.clamp_min is not None

    def __call__(self, data: np.ndarray, row0: int, col0: int) -> np.ndarray:
        """Recode a block whose first cell is (row0, col0).

        Raises
        ------
        CellError
            naming row and column of a value that does not fit or would become nodata.
        """
        if not self.changes:
            return data
        empty = np.zeros(data.shape, bool)
        if data.dtype.kind == "f":
            empty |= ~np.isfinite(data)
        if self.source_nodata is not None:
            empty |= data == self.source_nodata
        values = np.rint(data) if self.round_cells else data
        if self.clamp_min is not None:
            least = values.dtype.type(self.clamp_min)
            # np.maximum takes 0.0 or -0.0 of the two as its vector registers happen to.
            values = np.where(values < least, least, values)
        if self.round_cells:
            info = np.iinfo(self.dtype)
            # Not "> info.max", which as float32 is one more.
            wrong = ~empty & ((values < info.min) | (values >= info.max + 1))
            self._refuse(
                wrong,
                data,
                row0,
                col0,
                f"does not fit {self.dtype.name}; leave out --round",
            )
        if self.nodata is not None:
            wrong = ~empty & (values == self.nodata)
            self._refuse(
                wrong,
                data,
                row0,
                col0,
                f"would become the nodata value {self.nodata}; choose another with --nodata",
            )
        result = np.where(empty, values.dtype.type(0), values).astype(self.dtype)
        result[empty] = data[empty] if self.nodata is None else self.nodata
        return result

    def _refuse(
        self, wrong: np.ndarray, data: np.ndarray, row0: int, col0: int, reason: str
    ) -> None:
        if wrong.any():
            row, col = np.unravel_index(np.argmax(wrong), wrong.shape)
            where = self.cell_name(row0 + int(row), col0 + int(col))
            raise CellError(f"{where}: value {data[row, col]!s} {reason}")


def _fit_store(
    store: Path, layer: str, mosaic: Mosaic, block_size: int | None, *, resume: bool
) -> tuple[GridSpec, int | None]:
    """The grid in the words of an existing store, and the block size its layers or run have."""
    grid = mosaic.grid
    _check_place(store)
    if resume and block_size is None:
        block_size = unfinished_block_size(store, layer)
    if not has_store(store):
        return grid, block_size
    there = TileStore.open(store)
    others = [name for name in there.layers if name != layer]
    if grid.same_place(there.grid):
        if same_crs(grid.crs_wkt, there.grid.crs_wkt):
            grid = replace(there.grid)
        elif others:
            raise InputError(
                f"{mosaic.inputs[0].path} and {store}: coordinate systems differ "
                f"({crs_name(mosaic.crs)} and {there.grid.crs_code or there.grid.crs_wkt[:60]})"
            )
        if block_size is None and others:
            block_size = there.layer(others[0]).block_size
    return grid, block_size


def _check_place(store: Path) -> None:
    """Refuse what can never become a store, before anything is written."""
    if is_url(store):
        refuse_inside(store)
        return
    if store.is_file():
        raise StoreError(f"{store}: is a file; the last argument names the store, a folder")
    if store.is_symlink() and not store.exists():
        raise StoreError(f"{store}: is a link to nowhere; remove it")
    if store.is_dir() and not (store / "zarr.json").is_file():
        raise StoreError(f"{store}: is a folder, but not a store; name a folder that is not there")
    if not store.absolute().parent.is_dir():
        raise InputError(f"{store}: its folder {store.parent} does not exist; make it first")
    refuse_inside(store)


def _source_shape(mosaic: Mosaic, recode: Recode) -> SourceShape:
    return SourceShape(
        chunk=mosaic.chunk,
        itemsize=max(recode.source.itemsize, recode.dtype.itemsize),
        source_bytes=mosaic.source_bytes,
        also_read=mosaic.source_bytes,
        sequential=mosaic.sequential,
        extra=int(len(mosaic.inputs) > 1),
        decoding=mosaic.decoding,
    )


def _stream_cells(
    mosaic: Mosaic, recode: Recode, writer: LayerWriter, plan: StreamPlan, progress: Progress
) -> None:
    def todo(unit: Window) -> list[tuple[int, int]]:
        return [block for block in plan.blocks_of(unit) if not writer.done[block]]

    def read(unit: Window, buffer: np.ndarray) -> np.ndarray:
        data = buffer[: (unit[1] - unit[0]) * (unit[3] - unit[2])]
        data = data.reshape(unit[1] - unit[0], unit[3] - unit[2])
        mosaic.read(unit, data)
        return data

    def write(unit: Window, data: np.ndarray) -> None:
        for i, j in todo(unit):
            r0, r1, c0, c1 = writer.block_window(i, j)
            part = data[r0 - unit[0] : r1 - unit[0], c0 - unit[2] : c1 - unit[2]]
            writer.write_block(i, j, recode(part, r0, c0))

    def area(unit: Window) -> int:
        return (unit[1] - unit[0]) * (unit[3] - unit[2])

    def finished(unit: Window) -> None:
        progress(area(unit), plan.rows * plan.cols)

    if before := sum(area(unit) for unit in plan.units() if not todo(unit)):
        progress(before, plan.rows * plan.cols)

    size = plan.unit_rows * plan.unit_cols
    stream(
        (unit for unit in plan.units() if todo(unit)),
        read,
        write,
        buffers=[np.empty(size, recode.source) for _ in range(plan.buffers)],
        readers=plan.readers,
        writers=plan.writers,
        done=finished,
    )


class _Checksums:
    """CRC-32C of the source files, computed beside the conversion."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = files
        self._stop = threading.Event()
        self._found: list[dict[str, Any]] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Checksums:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            for path in self._files:
                try:
                    crc = checksum(path, self._stop)
                    size = os.path.getsize(path)
                except OSError as error:
                    raise InputError(f"{path}: cannot be read: {error.strerror}") from error
                if self._stop.is_set():  # it may be of a part
                    return
                self._found.append({"path": path, "bytes": size, "crc32c": crc})
        except BaseException as error:  # it belongs to the caller's thread
            self._error = error

    def result(self) -> list[dict[str, Any]]:
        """Path, size and checksum of every file, when all are done."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._found


def plan_for_shape(
    rows: int,
    cols: int,
    dtype: np.dtype,
    *,
    memory_limit: int | None = None,
    threads: int | None = None,
    block_size: int | None = None,
) -> StreamPlan:
    """The plan of converting a tiled raster that need not exist yet."""
    source = SourceShape((256, 256), dtype.itemsize, rows * cols * dtype.itemsize)
    return plan_stream(
        rows,
        cols,
        dtype,
        source,
        memory_limit=memory_limit,
        threads=threads,
        block_size=block_size,
    )
