"""The raster's frame: shape, place on Earth, and how it is cut into blocks. No file access here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import morton
from .arguments import described, numbers, real, text, whole
from .errors import InputError

TILE = 64
"""Side of a tile in cells: the inner Zarr chunk, and the unit of a GPU thread block."""

MIN_BLOCK = TILE
MAX_BLOCK = 8192
MAX_SIDE = 2**31 - 1
"""Most rows or columns: GDAL's own bound, and what a Morton code in an int64 can hold."""

Window = tuple[int, int, int, int]
"""Half-open cell range (row0, row1, col0, col1)."""


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def round_up(a: int, b: int) -> int:
    return ceil_div(a, b) * b


def clip(window: Window, to: Window) -> Window:
    """The part of `window` inside `to`; empty ranges come out with row1 <= row0 or col1 <= col0."""
    return (
        max(window[0], to[0]),
        min(window[1], to[1]),
        max(window[2], to[2]),
        min(window[3], to[3]),
    )


def is_empty(window: Window) -> bool:
    return window[1] <= window[0] or window[3] <= window[2]


@dataclass(frozen=True)
class GridSpec:
    """Shape and georeferencing of a raster.

    Parameters
    ----------
    rows, cols
        Cells, each 1 .. 2**31 - 1. The global id of a cell is ``row * cols + col`` (int64).
    transform
        Affine (a, b, c, d, e, f) in rasterio's order: x = a col + b row + c, y = d col + e row + f,
        for the upper left corner of a cell; units of the CRS. b and d are zero: rotated rasters are
        refused at the door. An ``affine.Affine`` will do.
    crs_wkt
        Coordinate reference system as WKT2, or "" when unknown.
    crs_code
        Authority code such as "EPSG:32633", or None.

    Raises
    ------
    InputError
        for an impossible shape or transform.
    """

    rows: int
    cols: int
    transform: tuple[float, float, float, float, float, float] = (1.0, 0.0, 0.0, 0.0, -1.0, 0.0)
    crs_wkt: str = ""
    crs_code: str | None = None

    def __post_init__(self) -> None:
        for name in ("rows", "cols"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        if not (0 < self.rows <= MAX_SIDE and 0 < self.cols <= MAX_SIDE):
            raise InputError(
                f"a raster of {self.rows} x {self.cols} cells is outside 1 .. {MAX_SIDE} on a side"
            )
        for name in ("crs_wkt", "crs_code"):
            if name == "crs_wkt" or self.crs_code is not None:
                text(name, getattr(self, name))
        object.__setattr__(self, "transform", _six(self.transform))
        a, b, _, d, e, _ = self.transform
        if not all(math.isfinite(v) for v in self.transform) or a == 0 or e == 0:
            raise InputError(f"the affine transform {self.transform} is not invertible")
        if not all(math.isfinite(v) for v in self.bounds):
            raise InputError(f"the affine transform {self.transform} leads beyond all numbers")
        if b != 0 or d != 0:
            raise InputError(
                f"the affine transform {self.transform} is rotated or sheared; "
                "warp the raster to a north-up grid first (gdalwarp)"
            )

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, self.cols

    @property
    def cells(self) -> int:
        return self.rows * self.cols

    @property
    def window(self) -> Window:
        return 0, self.rows, 0, self.cols

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """(west, south, east, north) of the outer cell edges, in units of the CRS."""
        a, _, c, _, e, f = self.transform
        x1, y1 = c + a * self.cols, f + e * self.rows
        return min(c, x1), min(f, y1), max(c, x1), max(f, y1)

    def x_centres(self) -> np.ndarray:
        """Column centres, float64, length cols."""
        a, _, c, _, _, _ = self.transform
        return c + a * (np.arange(self.cols) + 0.5)

    def y_centres(self) -> np.ndarray:
        """Row centres, float64, length rows."""
        _, _, _, _, e, f = self.transform
        return f + e * (np.arange(self.rows) + 0.5)

    def window_of(self, bounds: tuple[float, float, float, float]) -> Window:
        """Cells touched by (west, south, east, north), clipped to the raster.

        An edge within a millionth of a cell of a grid line counts as on it.

        Raises
        ------
        InputError
            when the bounds are empty or do not touch the raster.
        """
        bounds = numbers("bounds", bounds, 4, "four numbers: WEST SOUTH EAST NORTH")  # type: ignore
        west, south, east, north = bounds
        if not all(math.isfinite(v) for v in bounds) or not (west < east and south < north):
            raise InputError(f"bounds {bounds} are empty; give WEST SOUTH EAST NORTH")
        a, _, c, _, e, f = self.transform
        col = sorted(((west - c) / a, (east - c) / a))
        row = sorted(((north - f) / e, (south - f) / e))
        tiny = 1e-6
        window = clip(
            (
                math.floor(row[0] + tiny),
                math.ceil(row[1] - tiny),
                math.floor(col[0] + tiny),
                math.ceil(col[1] - tiny),
            ),
            self.window,
        )
        if is_empty(window):
            raise InputError(f"bounds {bounds} do not touch the raster, which covers {self.bounds}")
        return window

    def crop(self, window: Window) -> GridSpec:
        """The grid of a sub-window."""
        r0, r1, c0, c1 = window
        a, b, c, d, e, f = self.transform
        return replace(
            self, rows=r1 - r0, cols=c1 - c0, transform=(a, b, c + a * c0, d, e, f + e * r0)
        )

    def same_place(self, other: GridSpec) -> bool:
        """Same shape, and corners that agree within a thousandth of a cell."""
        a, _, c, _, e, f = self.transform
        a2, _, c2, _, e2, f2 = other.transform
        return self.shape == other.shape and all(
            abs(p - q) <= 1e-3 * abs(cell)
            for p, q, cell in (
                (c, c2, a),
                (f, f2, e),
                (c + a * self.cols, c2 + a2 * other.cols, a),
                (f + e * self.rows, f2 + e2 * other.rows, e),
            )
        )


def _six(transform: Any) -> tuple[float, ...]:
    """The coefficients of a transform; an `Affine` goes on with 0, 0, 1."""
    try:
        found = tuple(real("transform", value) for value in transform)
    except (TypeError, InputError):
        found = ()
    if len(found) == 9 and found[6:] == (0, 0, 1):
        found = found[:6]
    if len(found) != 6:
        given = str(transform) if isinstance(transform, tuple | list) else described(transform)
        raise InputError(f"the transform {given[:80]}: give six numbers (a, b, c, d, e, f)")
    return found


@dataclass(frozen=True)
class BlockGrid:
    """A raster of `rows` x `cols` cells cut into square blocks of side `block`."""

    rows: int
    cols: int
    block: int

    def __post_init__(self) -> None:
        b = self.block
        if b & (b - 1) or not MIN_BLOCK <= b <= MAX_BLOCK:
            raise InputError(
                f"block size {b} is not a power of two from {MIN_BLOCK} to {MAX_BLOCK}"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Blocks down and across."""
        return ceil_div(self.rows, self.block), ceil_div(self.cols, self.block)

    @property
    def count(self) -> int:
        down, across = self.shape
        return down * across

    def window(self, i: int, j: int) -> Window:
        """Cells of block (i, j), clipped to the raster."""
        b = self.block
        return clip((i * b, i * b + b, j * b, j * b + b), (0, self.rows, 0, self.cols))

    def ids(self) -> Iterator[tuple[int, int]]:
        """Every block (i, j), in Z-order."""
        down, across = self.shape
        # Quadrants on a stack instead of a sorted list: a trillion cells are a million blocks.
        side = 1 << max(down - 1, across - 1, 0).bit_length()
        stack = [(0, 0, side)]
        while stack:
            i, j, s = stack.pop()
            if i >= down or j >= across:
                continue
            if s == 1:
                yield i, j
                continue
            h = s // 2
            stack += [(i + h, j + h, h), (i + h, j, h), (i, j + h, h), (i, j, h)]

    def tiles_in(self, i: int, j: int) -> tuple[int, int]:
        """Tile rows and tile columns of block (i, j) that hold raster cells."""
        r0, r1, c0, c1 = self.window(i, j)
        return ceil_div(r1 - r0, TILE), ceil_div(c1 - c0, TILE)


def z_rank_table(block: int) -> np.ndarray:
    """Z-order rank of each tile of a block; int64, shape (block / TILE,) * 2."""
    return morton.z_ranks(block // TILE)


class RegionGrid(BlockGrid):
    """A grid of regions, which may be larger than any block."""

    def __post_init__(self) -> None:
        pass
