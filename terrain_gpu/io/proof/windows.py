"""Compare rasters and layers window by window: the common part of both proofs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rasterio.errors import RasterioError
from rasterio.windows import Window as GdalWindow

from ...engine.machine import BASELINE, COMPILED_BASELINE
from ...engine.plan import StreamPlan
from ...engine.plan_stream import SourceShape, plan_stream
from ...engine.proof import Limits
from ...engine.schedule import stream
from ...errors import InputError
from ...grid import BlockGrid, GridSpec, Window
from ...store.readable import Readable
from ..gdal import GdalInput, gdal_thread

if TYPE_CHECKING:
    from ...cells import Stats

_PIECE = 1 << 16
"""Number of cells compared at a time, so that temporary arrays stay small."""

_TEMPORARIES = 96 * _PIECE
"""Bytes of these temporary arrays."""


def plan_windows(
    grid: GridSpec,
    dtype: np.dtype,
    layer: np.dtype,
    block: int,
    limits: Limits,
    libraries: int = 0,
    **raster: Any,
) -> StreamPlan:
    """Plan how windows of a raster and of a layer stream.

    Parameters
    ----------
    grid, dtype
        The grid to compare, and the type of the raster's cells.
    layer, block
        Type and block size of the layer.
    libraries, raster
        Properties of the raster, see `SourceShape`.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    # Reading some cells of a shard may read all of it.
    work = BlockGrid(*grid.shape, block).largest(tiled=True) * layer.itemsize + _TEMPORARIES
    # `terrain-gpu verify` has loaded the proofs of other layers by now.
    libraries += (COMPILED_BASELINE - BASELINE) * limits.machine.has("numba")
    size = dtype.itemsize + layer.itemsize
    shape = SourceShape(itemsize=size, work=work, libraries=libraries, **raster)
    with limits.planning() as machine:
        return plan_stream(*grid.shape, dtype, shape, machine=machine)


class _WindowChecks(NamedTuple):
    """The check of each window; see `engine.proof.Checks`."""

    cells: int
    dtype: np.dtype
    layer: Readable
    check: Callable[[Window, np.ndarray, np.ndarray], Any]

    def new_buffer(self) -> list[np.ndarray]:
        return [np.empty(self.cells, self.dtype), np.empty(self.cells, self.layer.dtype)]

    def read(self, window: Window, buffer: list[np.ndarray]) -> list[np.ndarray]:
        """Return two arrays of the window's shape, which the check fills."""
        r0, r1, c0, c1 = window
        return [flat[: (r1 - r0) * (c1 - c0)].reshape(r1 - r0, c1 - c0) for flat in buffer]

    def of(self, window: Window, data: list[np.ndarray]) -> list[Stats] | None:
        with gdal_thread():
            return self.check(window, *data)


def check_windows(
    plan: StreamPlan,
    dtype: np.dtype,
    layer: Readable,
    check: Callable[[Window, np.ndarray, np.ndarray], Any],
    add: Callable[[Any], None],
    limits: Limits,
) -> None:
    """Call `check` for every window, with arrays for both, and `add` with each result.

    `check` runs in several threads, or in workers, so it must be picklable; `add` in one thread.
    """
    checks = _WindowChecks(plan.unit_rows * plan.unit_cols, dtype, layer, check)
    cluster = limits.cluster

    def done(window: Window) -> None:
        r0, r1, c0, c1 = window
        limits.progress((r1 - r0) * (c1 - c0), plan.rows * plan.cols)

    if cluster is not None:
        with closing(cluster.check(plan, checks, ((one, []) for one in plan.units()))) as results:
            for window, result in results:
                add(result)
                done(window)
        return
    stream(
        plan.units(),
        lambda window, buffer: checks.of(window, checks.read(window, buffer)),
        lambda _, result: add(result),
        buffers=[checks.new_buffer() for _ in range(plan.buffers)],
        readers=plan.readers,
        done=done,
    )


def pieces(rows: int, cols: int) -> Iterator[tuple[slice, slice]]:
    """Divide an array of this shape into small pieces."""
    wide = min(cols, _PIECE)
    tall = max(_PIECE // wide, 1)
    for row in range(0, rows, tall):
        for col in range(0, cols, wide):
            yield slice(row, row + tall), slice(col, col + wide)


def read_cells(raster: GdalInput, window: Window, out: np.ndarray) -> None:
    """Read a window as GDAL returns it, ignoring any mask.

    Raises
    ------
    InputError
        when the file is damaged there.
    """
    _read(raster, "read", window, out)


def read_mask(raster: GdalInput, window: Window) -> np.ndarray:
    """GDAL's mask of a window, uint8, 0 for nodata."""
    return _read(raster, "read_masks", window)


def _read(raster: GdalInput, method: str, window: Window, *out: np.ndarray) -> np.ndarray:
    r0, r1, c0, c1 = window
    try:
        read = getattr(raster.dataset(), method)
        frame = GdalWindow(c0, r0, c1 - c0, r1 - r0)
        return read(raster.band, window=frame, **({"out": out[0]} if out else {}))
    except RasterioError as error:
        raise InputError(
            f"{raster.path}: rows {r0} to {r1 - 1} cannot be read: {error.__cause__ or error}"
        ) from None


def equals(cells: np.ndarray, value: float | int | None) -> np.ndarray:
    """Where cells have this value; NaN equals NaN, and nothing equals None."""
    if value is None:
        return np.zeros(cells.shape, bool)
    return np.isnan(cells) if math.isnan(value) else cells == value


def near(cells: np.ndarray, value: float | int | None) -> np.ndarray:
    """Like `equals`, with the tolerance of GDAL's comparison with a nodata value."""
    same = equals(cells, value)
    if value is None or cells.dtype.kind != "f" or math.isnan(value):
        return same
    if math.isinf(value):  # also the largest numbers, whose text overflows
        largest = np.abs(cells) / np.finfo(cells.dtype).max
        return (largest >= 1 - 2.0**-20) & (np.sign(cells) == np.sign(value))
    with np.errstate(over="ignore", invalid="ignore"):
        apart, both = cells - cells.dtype.type(value), cells + cells.dtype.type(value)
        return same | (np.abs(apart) < np.abs(both) * 2.0**-22)


def same_value(one: float | int | None, other: float | int | None) -> bool:
    """Whether two values are equal; NaN equals NaN, and None equals None."""
    if one is None or other is None:
        return one is other
    return one == other or (math.isnan(one) and math.isnan(other))


def differ(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Where cells of the same type differ in a bit."""
    word = f"u{one.itemsize}"
    return np.ascontiguousarray(one).view(word) != np.ascontiguousarray(other).view(word)
