"""The grid of a raster: its shape and georeferencing."""

from __future__ import annotations

import math
import os
import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np

from ..arguments import described, numbers, real, refused, text, whole
from ..described import Described
from ..errors import ArgumentError, InputError
from ..facts import JsonObject
from .tiling import Window, clip, is_empty

MAX_SIDE = 2**31 - 1
"""Largest number of rows or columns: the limit of GDAL, and of a Morton code in an int64."""


def wkt_name(wkt: str) -> str:
    """The name of a coordinate system in its WKT, or the start of the WKT if it has no name."""
    named = re.match(r'\s*\w+\["(?!unknown"|unnamed")([^"]+)"', wkt)
    return named[1] if named else shorten(wkt.replace(",", ", "), 60, placeholder=" ...")


@dataclass(frozen=True, repr=False)
class GridSpec(Described):
    """Shape and georeferencing of a raster.

    Parameters
    ----------
    rows, cols
        Numbers of cells, each 1 .. 2**31 - 1. The global id of a cell is ``row * cols + col``
        (int64).
    transform
        Affine (a, b, c, d, e, f) in rasterio's order: x = a col + b row + c, y = d col + e row + f,
        for the upper left corner of a cell; units of the CRS. b and d must be 0: rotated rasters
        are not supported. An ``affine.Affine`` is accepted as well.
    crs_wkt
        Coordinate reference system as WKT2, or "" if unknown.
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

    def facts_shown(self) -> JsonObject:
        facts = {"rows": self.rows, "cols": self.cols, "transform": self.transform}
        return {**facts, "crs": self.crs_code or self.crs_wkt}

    def __post_init__(self) -> None:
        for name in ("rows", "cols"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        if not (0 < self.rows <= MAX_SIDE and 0 < self.cols <= MAX_SIDE):
            raise InputError(
                f"a raster of {self.rows} x {self.cols} cells: each side must be 1 .. {MAX_SIDE}"
            )
        for name in ("crs_wkt", "crs_code"):
            if name == "crs_wkt" or self.crs_code is not None:
                text(name, getattr(self, name))
        object.__setattr__(self, "transform", _six(self.transform))
        a, b, _, d, e, _ = self.transform
        if not all(math.isfinite(v) for v in self.transform) or a == 0 or e == 0:
            raise InputError(f"the affine transform {self.transform} is not invertible")
        if not all(math.isfinite(v) for v in self.bounds):
            raise InputError(
                f"the corners of the affine transform {self.transform} overflow; correct it"
            )
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
    def is_geographic(self) -> bool:
        """Whether coordinates are longitudes and latitudes."""
        return "GEOGCRS[" in self.crs_wkt and "PROJCRS[" not in self.crs_wkt

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """(west, south, east, north) of the outer cell edges, in units of the CRS."""
        a, _, c, _, e, f = self.transform
        x1, y1 = c + a * self.cols, f + e * self.rows
        return min(c, x1), min(f, y1), max(c, x1), max(f, y1)

    @property
    def crs_name(self) -> str:
        """The code of the coordinate system, or its name if it has no code; "" without a CRS."""
        return self.crs_code or wkt_name(self.crs_wkt)

    def x_centres(self) -> np.ndarray:
        """Return the x coordinates of column centres, float64, length cols."""
        return self.centres("x", 0, self.cols)

    def y_centres(self) -> np.ndarray:
        """Return the y coordinates of row centres, float64, length rows."""
        return self.centres("y", 0, self.rows)

    def centres(self, axis: str, start: int, stop: int) -> np.ndarray:
        """Return the centres of columns ("x") or rows ("y") start to stop - 1, float64."""
        a, _, c, _, e, f = self.transform
        corner, step = (c, a) if axis == "x" else (f, e)
        positions = np.arange(start, stop, dtype=np.float64)
        positions += 0.5
        positions *= step
        positions += corner
        return positions

    def window_of(self, bounds: tuple[float, float, float, float]) -> Window:
        """Return the window of cells that (west, south, east, north) touches, within the raster.

        A bound within a millionth of a cell of a grid line is on that line.

        Raises
        ------
        InputError
            when the bounds are empty or do not touch the raster.
        """
        bounds = numbers("bounds", bounds, 4, "four numbers: WEST SOUTH EAST NORTH")  # type: ignore
        west, south, east, north = bounds
        if not all(math.isfinite(v) for v in bounds) or not (west < east and south < north):
            raise ArgumentError(f"{{bounds}} {bounds} are empty; give WEST SOUTH EAST NORTH")
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
            raise ArgumentError(
                f"{{bounds}} {bounds} do not touch the raster, which covers {self.bounds}"
            )
        return window

    def crop(self, window: Window) -> GridSpec:
        """Return the grid of a sub-window."""
        r0, r1, c0, c1 = window
        a, b, c, d, e, f = self.transform
        return replace(
            self, rows=r1 - r0, cols=c1 - c0, transform=(a, b, c + a * c0, d, e, f + e * r0)
        )

    def same_place(self, other: GridSpec) -> bool:
        """Return whether shapes are equal and corners agree within a thousandth of a cell."""
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

    def warp_command(self, path: str | os.PathLike[str]) -> str | None:
        """Return the command that warps a raster to this grid; None if gdalwarp cannot.

        gdalwarp writes rasters whose columns run eastwards and whose rows run southwards.
        """
        a, _, _, _, e, _ = self.transform
        if a < 0 or e > 0:
            return None
        crs = ["-t_srs", self.crs_code or self.crs_wkt] if self.crs_wkt else []
        edges = [repr(float(bound)) for bound in self.bounds]
        source = Path(path)
        fitted = source.with_name(f"{source.stem}_fitted.tif")
        size = [str(self.cols), str(self.rows)]
        words = ["gdalwarp", *crs, "-te", *edges, "-ts", *size, str(source), str(fitted)]
        return shlex.join(words)


def _six(transform: Any) -> tuple[float, ...]:
    """Check a transform and return its six coefficients; an `Affine` also yields 0, 0, 1."""
    try:
        numbers_found = tuple(real("transform", value) for value in transform)
    except (TypeError, InputError):
        numbers_found = ()
    if len(numbers_found) == 9 and numbers_found[6:] == (0, 0, 1):
        numbers_found = numbers_found[:6]
    if len(numbers_found) != 6:
        given = str(transform) if isinstance(transform, tuple | list) else described(transform)
        raise refused(
            "transform", " {value}: give six numbers (a, b, c, d, e, f)", value=given[:80]
        )
    return numbers_found


def cell_centres(grid: GridSpec, cells: np.ndarray) -> np.ndarray:
    """Return the centres (x, y) of cells (row, col), both of shape (n, 2); float64, CRS units."""
    a, _, c, _, e, f = grid.transform
    return np.stack((c + a * (cells[:, 1] + 0.5), f + e * (cells[:, 0] + 0.5)), axis=1)
