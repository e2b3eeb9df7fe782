"""Read one or several rasters as one."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from rasterio.errors import CRSError

from .. import cells
from ..errors import ArgumentError, CellError, InputError
from ..facts import JsonObject
from ..grid import GridSpec, Window, clip, is_empty
from ..grid.crs import equal
from .crs import crs_name, placed, read_crs
from .inputs import SEQUENTIAL, open_input
from .layer_input import LayerInput

_PIECE = 1 << 16
"""Number of cells compared at a time."""

ALIGNMENT = 1e-3
"""Grids are aligned when they agree within this fraction of a cell."""


class Mosaic:
    """One or several aligned rasters of the same type and CRS, read as one.

    Where inputs overlap, the first one in `paths` that is not nodata is used.

    Parameters
    ----------
    paths
        Files that GDAL or `GrassAscii` can read.
    band
        Band of multi-band files.
    nodata
        The nodata value of the mosaic. Cells with this value become nodata, and nodata cells of
        the inputs are set to it.
    bounds
        (west, south, east, north): keeps the cells they touch; all when None.
    crs
        Coordinate system of inputs that do not name one.

    Raises
    ------
    InputError
        when inputs do not match; names both files.
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
                self.inputs.append(open_input(path, band))
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
        """Assign a coordinate system to the inputs that do not name one."""
        try:
            crs = read_crs(text)
        except CRSError:
            raise ArgumentError(
                "{crs} {value} is not a coordinate system; give a code such as EPSG:32611, or WKT",
                value=repr(text),
            ) from None
        for one in self.inputs:
            if one.crs and not equal(one.crs, crs):
                raise InputError(
                    f"{one.path}: is in {crs_name(one.crs)}, not in {crs_name(crs)}; leave out "
                    "--crs, or warp the raster first (gdalwarp)"
                )
            if not one.crs:
                one.crs, one.grid = crs, placed(one.grid, crs)

    def _fit_together(self, nodata: float | int | None) -> None:
        first = self.inputs[0]
        self.dtype = first.dtype
        self.crs = first.crs
        for other in self.inputs[1:]:
            _must_match(first, other)
        declared = [one.nodata for one in self.inputs if one.nodata is not None]
        if nodata is not None:
            nodata = cells.as_scalar(nodata, self.dtype, f"{first.path}: nodata value")
        self._stated = nodata is not None
        self.nodata = nodata if nodata is not None else (declared[0] if declared else None)
        for one in self.inputs:
            if one.masked:
                if self.nodata is None:
                    self.nodata = _unlikely(one)
                one.nodata, one.stated = self.nodata, self._stated
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
                "choose a value for the gaps with --nodata of convert-dataset"
            )

    def _crop(self, bounds: tuple[float, float, float, float] | None) -> None:
        if bounds is None:
            return
        try:
            window = self.grid.window_of(bounds)
        except InputError as error:
            error.reword(lambda text: f"{self.inputs[0].path}: {text}")
            raise
        self.grid = self.grid.crop(window)
        self._places = [
            (p[0] - window[0], p[1] - window[0], p[2] - window[2], p[3] - window[2])
            for p in self._places
        ]

    def read(self, window: Window, out: np.ndarray) -> None:
        """Read a window of the mosaic into `out`, an array of its shape and of `dtype`."""
        rectangle = self._places[0]
        if len(self.inputs) == 1:
            self.inputs[0].read(_shift(window, rectangle), out)
            self._recode(out, self.inputs[0], _shift(window, rectangle))
            return
        if self.nodata is not None:
            out[...] = self.nodata
        for raster, rectangle in zip(reversed(self.inputs), reversed(self._places), strict=True):
            part = clip(window, rectangle)
            if is_empty(part):
                continue
            piece = np.empty((part[1] - part[0], part[3] - part[2]), self.dtype)
            raster.read(_shift(part, rectangle), piece)
            self._recode(piece, raster, _shift(part, rectangle))
            target = out[
                part[0] - window[0] : part[1] - window[0], part[2] - window[2] : part[3] - window[2]
            ]
            if self.nodata is None:
                target[...] = piece
            else:
                np.copyto(target, piece, where=~_equals(piece, self.nodata))

    def _recode(self, data: np.ndarray, one: Any, window: Window) -> None:
        """Set the nodata cells in a window of an input to the nodata value of the mosaic.

        Raises
        ------
        CellError
            when a valid cell has the nodata value of another input and would become nodata.
        """
        target, nodata = self.nodata, one.nodata
        if target is None or one.masked:
            return
        same = nodata is not None and _same(nodata, target)
        if same and (self.dtype.kind != "f" or math.isnan(target)):
            return
        tall = max(_PIECE // data.shape[1], 1)
        for k in range(0, len(data), tall):  # temporaries stay small
            part = data[k : k + tall]
            void = np.zeros(part.shape, bool) if nodata is None else cells.near(part, nodata)
            if self._stated:
                void |= cells.near(part, target)
            elif not same and (wrong := (part == target) & ~void).any():
                row, col = np.unravel_index(np.argmax(wrong), wrong.shape)
                other = next(other.path for other in self.inputs if other.nodata == target)
                raise CellError(
                    f"{one.path}: row {window[0] + k + row}, column {window[2] + col}: value "
                    f"{target} would become nodata, as it is in {other}; choose another nodata "
                    f"value with --nodata, or use --nodata {target} if it means nodata in all of "
                    "them"
                )
            part[void & (part != target)] = target  # -0.0 stays

    def take_lost(self) -> int:
        """Number of cells read since the last call that are valid by a mask but became nodata."""
        return sum(one.take_lost() for one in self.inputs if one.masked)

    def cell_name(self, row: int, col: int) -> str:
        """The name of a cell of the mosaic in messages: its file, and row and column in it."""
        name = ""
        for raster, rectangle in zip(self.inputs, self._places, strict=True):
            part = _shift((row, row + 1, col, col + 1), rectangle)
            if clip(part, raster.grid.window) == part:
                name = name or f"{raster.path}: row {part[0]}, column {part[2]}"
                cell = np.empty((1, 1), self.dtype)
                raster.read(part, cell)
                if raster.nodata is None or not _same(cell.item(), raster.nodata):
                    return f"{raster.path}: row {part[0]}, column {part[2]}"
        return name

    # -- for the planner and the report ------------------------------------------------------

    @property
    def chunk(self) -> tuple[int, int]:
        """Rows and columns that are decoded together; the largest of all inputs."""
        return max(i.chunk[0] for i in self.inputs), max(i.chunk[1] for i in self.inputs)

    @property
    def decoding(self) -> int:
        """Bytes that each thread needs to decode a chunk."""
        return max(i.decoding for i in self.inputs)

    @property
    def sequential(self) -> bool:
        """Whether an input is in a text format, which one thread must read forwards."""
        return any(i.driver in SEQUENTIAL for i in self.inputs)

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(f for i in self.inputs for f in i.files))

    @property
    def source_bytes(self) -> int:
        return sum(os.path.getsize(f) for f in self.files)

    @property
    def attributes(self) -> JsonObject:
        """CF attributes of the cells: units, scale and offset, if the input has them."""
        first = self.inputs[0]
        if isinstance(first, LayerInput):
            return first.described
        attributes: JsonObject = {}
        if first.units:
            attributes["units"] = first.units
        if (first.scale, first.offset) != (1.0, 0.0):
            attributes |= {"scale_factor": first.scale, "add_offset": first.offset}
        return attributes

    def fingerprint(self) -> list[list[Any]]:
        """What a resumed run compares: path, size and time of each file, digest of each layer."""
        files = [[f, os.stat(f).st_size, os.stat(f).st_mtime_ns] for f in self.files]
        layers = [one for one in self.inputs if isinstance(one, LayerInput)]
        return files + [["", 0, one.layer.identity] for one in layers]


def _must_match(first: Any, other: Any) -> None:
    pair = f"{first.path} and {other.path}"
    if first.dtype != other.dtype:
        raise InputError(
            f"{pair}: cells are {first.dtype.name} and {other.dtype.name}; convert one of them to "
            "the type of the other first (gdal_translate -ot)"
        )
    if not equal(first.crs, other.crs):
        raise InputError(
            f"{pair}: coordinate systems differ ({crs_name(first.crs)} and {crs_name(other.crs)}); "
            "warp one to the other first (gdalwarp)"
        )
    if (first.scale, first.offset) != (other.scale, other.offset):
        raise InputError(
            f"{pair}: scale or offset differ; apply them to the cells first "
            "(gdal_translate -unscale)"
        )
    a, _, c, _, e, f = first.grid.transform
    a2, _, c2, _, e2, f2 = other.grid.transform
    if abs(a - a2) * other.grid.cols > ALIGNMENT * abs(a) or abs(
        e - e2
    ) * other.grid.rows > ALIGNMENT * abs(e):
        raise InputError(
            f"{pair}: cell sizes differ ({a} x {e} and {a2} x {e2}); "
            "resample one to the cell size of the other first (gdalwarp -tr -tap)"
        )
    shift = (c2 - c) / a, (f2 - f) / e
    if any(abs(s - round(s)) > ALIGNMENT for s in shift):
        raise InputError(
            f"{pair}: cells are not aligned (shifted by {shift[0]:z.4f} columns and "
            f"{shift[1]:z.4f} rows); warp one to the grid of the other first (gdalwarp -tap)"
        )


def _unlikely(masked: Any) -> float | int:
    """A nodata value for a masked raster: NaN, or an integer that cells are unlikely to have."""
    if masked.dtype.kind == "f":
        return math.nan
    info = np.iinfo(masked.dtype)
    ends = (int(info.min), int(info.max)) if info.min else (int(info.max), int(info.max) - 1)
    return ends[masked.outranked == ends[0]]


def _has_gaps(places: Sequence[Window], grid: GridSpec) -> bool:
    """Whether the rectangles leave cells of the grid uncovered."""
    rows = np.unique([r for p in places for r in p[:2]])
    cols = np.unique([c for p in places for c in p[2:]])
    covered = np.zeros((len(rows) - 1, len(cols) - 1), bool)
    for r0, r1, c0, c1 in places:
        r, c = np.searchsorted(rows, (r0, r1)), np.searchsorted(cols, (c0, c1))
        covered[r[0] : r[1], c[0] : c[1]] = True
    return not covered.all()


def _shift(window: Window, rectangle: Window) -> Window:
    return (
        window[0] - rectangle[0],
        window[1] - rectangle[0],
        window[2] - rectangle[2],
        window[3] - rectangle[2],
    )


def _same(a: float | int, b: float | int) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def _equals(data: np.ndarray, value: float | int) -> np.ndarray:
    return np.isnan(data) if math.isnan(value) else data == value
