"""Lengths of steps between neighbouring cells, and areas of cells, on the map or the ellipsoid."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from ..errors import InputError
from . import GridSpec
from .crs import grid_crs
from .neighbours import COL_STEP_16, DIRECTIONS, ROW_STEP_16
from .spec import wkt_name

log = logging.getLogger(__name__)

Measured = Literal["lengths", "areas", "slopes", "directions"]
"""Quantities that a projection may distort; Mercator's preserves directions of descent."""

_WRONG: dict[Measured, str] = {
    "lengths": "lengths are up to {0:.3g} times too long",
    "areas": "areas are up to {1:.3g} times too large",
    "slopes": "slopes are up to {0:.3g} times too gentle",
}

_NUMBER = r",\s*([^,\]]+)"
_ELLIPSOID = re.compile(
    rf'ELLIPSOID\["(?:[^"]|"")*"{_NUMBER}{_NUMBER},\s*LENGTHUNIT\["[^"]*"{_NUMBER}'
)
"""Semi-major axis, inverse flattening (0 for a sphere) and metres per unit, in WKT2."""

_ROWS = 1 << 14
"""Number of rows measured at a time, so that temporary arrays are small."""

_NODES, _WEIGHTS = (v.tolist() for v in np.polynomial.legendre.leggauss(8))


def step_lengths(grid: GridSpec, connectivity: int = 8) -> np.ndarray:
    """Return the lengths of the steps from each row towards E, SW, S and SE.

    In a geographic CRS, metres on its ellipsoid: the arc of the parallel along a row, the arc of
    the meridian between two rows, and for diagonals the hypotenuse of both, with the parallel at
    the middle latitude. Otherwise, map units by the affine transform; without one, cells are 1 x 1.

    Parameters
    ----------
    grid
        Shape, transform and CRS of the raster.
    connectivity
        With 16, also the knight's moves towards ESE, SSE, SSW and WSW.

    Returns
    -------
    numpy.ndarray, float64, shape (4, rows), or (8, rows) with knight's moves
        For row r: E along r, and SW, S, SE from r to r + 1, even for the last row; then ESE and WSW
        from r to r + 1, and SSE, SSW from r to r + 2.

    Raises
    ------
    InputError
        for row centres beyond a pole, and for a CRS whose latitudes are not on an ellipsoid
        (rotated pole).

    Notes
    -----
    Radii of curvature: Snyder (1987), Map Projections: A Working Manual, eq. 4-18 and 4-20. The
    meridian arc is computed by Gauss-Legendre quadrature, exact to rounding for steps up to a
    quadrant.
    """
    count = 8 if connectivity == 16 else 4
    if geographic := _geographic(grid):
        _refuse_beyond_pole(grid, *geographic[:2])
        lengths = np.empty((count, grid.rows))
        for rows in _some_rows(grid):
            lengths[:, rows] = _on_ellipsoid(grid, rows, *geographic[1:], knights=count == 8)
        return lengths
    a, b, _, d, e, _ = grid.transform
    moves = [*DIRECTIONS, *zip(ROW_STEP_16[8:12].tolist(), COL_STEP_16[8:12].tolist(), strict=True)]
    moves = moves[:count]
    steps = [math.hypot(a * dc + b * dr, d * dc + e * dr) for dr, dc in moves]
    return np.repeat(np.array(steps)[:, None], grid.rows, axis=1)


def refuse_without_lengths(grid: GridSpec) -> None:
    """Reject a grid that `step_lengths` rejects, without computing the lengths."""
    if units := _geographic(grid):
        _refuse_beyond_pole(grid, *units[:2])


def whole_lengths(grid: GridSpec, lengths: np.ndarray) -> tuple[np.ndarray, float]:
    """Convert step lengths to int64 in a unit that is a power of two, so that no path overflows.

    Parameters
    ----------
    lengths
        See `step_lengths`.
    """
    unit = 2.0 ** (math.frexp(float(lengths.max()) * grid.cells)[1] - 61)
    whole = np.empty(lengths.shape, np.int64)
    for rows in _some_rows(grid):
        whole[:, rows] = np.rint(lengths[:, rows] / unit)
    return whole, unit


def other_unit(grid: GridSpec) -> str | None:
    """Return the unit of `step_lengths` unless it is known to be the metre; else None."""
    if not grid.crs_wkt:
        return "an unknown unit"
    crs = grid_crs(grid)
    unit, factor = crs.units_factor
    return None if crs.is_geographic or factor == 1 else unit


def length_unit(grid: GridSpec) -> str:
    """Return the unit of `step_lengths` for messages, such as m; without a CRS, map units."""
    if not grid.crs_wkt:
        return "map units"
    return other_unit(grid) or "m"


def mercator_stretch(grid: GridSpec) -> float | None:
    """Return the largest factor by which Mercator's projection stretches lengths in a raster.

    Includes Web Mercator. None in other projections, in which lengths are nearly true.
    """
    if grid.transform is None or not re.search(
        r'"(Popular Visualisation Pseudo Mercator|Mercator)', grid.crs_wkt or ""
    ):
        return None
    _, _, _, _, height, top = grid.transform
    farthest = max(abs(top), abs(top + height * grid.rows))
    return math.cosh(farthest / 6378137.0)


def looks_like_degrees(grid: GridSpec) -> bool:
    """Whether a raster has no CRS, and its bounds and cell size could be in degrees."""
    if grid.crs_wkt or grid.transform is None:
        return False
    width, _, west, _, height, north = grid.transform
    xs, ys = (west, west + width * grid.cols), (north, north + height * grid.rows)
    inside = max(map(abs, xs)) <= 180 and max(map(abs, ys)) <= 90
    return inside and max(abs(width), abs(height)) < 0.5


def warn_of_mercator(grid: GridSpec, measured: Sequence[Measured]) -> None:
    """Warn if Mercator's projection, or a missing CRS, distorts quantities in a raster."""
    if measured and looks_like_degrees(grid):
        log.warning(
            "the raster has no coordinate system, and its bounds look like degrees, which %s treat "
            "as plain map units; if so, set it: convert-dataset --crs EPSG:4326",
            " and ".join(measured),
        )
    wrong = [_WRONG[one] for one in measured if one in _WRONG]
    if wrong and (stretch := mercator_stretch(grid)):
        log.warning(
            "in Mercator's projection, %s; reproject the raster, for example to UTM",
            ", ".join(one.format(stretch, stretch**2) for one in wrong),
        )


def metres_per_unit(grid: GridSpec) -> float:
    """Return the unit of `step_lengths` in metres; 1 without a CRS."""
    if not grid.crs_wkt:
        return 1.0
    crs = grid_crs(grid)
    return 1.0 if crs.is_geographic else float(crs.units_factor[1])


def cell_areas(grid: GridSpec) -> np.ndarray:
    """Return the area of a cell in each row.

    In a geographic CRS, square metres on its ellipsoid; parts of cells beyond a pole are not
    included. Otherwise, square map units by the affine transform; 1 without one.

    Returns
    -------
    numpy.ndarray, float64, shape (rows,)

    Raises
    ------
    InputError
        as `step_lengths`.

    Notes
    -----
    The product of both radii of curvature (Snyder 1987, eq. 4-18 and 4-20) is integrated over the
    cell by Gauss-Legendre quadrature.
    """
    units = _geographic(grid)
    a, _, _, _, e, f = grid.transform
    if units is None:
        return np.full(grid.rows, abs(a * e))
    unit, radians, axis, flattening = units
    _refuse_beyond_pole(grid, unit, radians)
    areas = np.empty(grid.rows)
    for rows in _some_rows(grid):
        edges = (f + e * np.arange(rows.start, rows.stop + 1)) * radians
        areas[rows] = _areas_between(edges, e * radians, axis, flattening) * abs(a * radians)
    return areas


def _areas_between(edges: np.ndarray, down: float, axis: float, flattening: float) -> np.ndarray:
    """Areas between latitudes `down` apart, per radian of longitude."""
    inside = np.clip(edges, -math.pi / 2, math.pi / 2)
    # Subtracting two latitudes loses digits: do so only where the pole cuts a cell.
    cut = np.diff(edges - inside) != 0
    lat, height = inside[:-1], np.where(cut, np.diff(inside), down)
    e2 = flattening * (2 - flattening)
    total = np.zeros(len(lat))
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        at = lat + height * (1 + node) / 2
        total += weight / 2 * np.cos(at) / (1 - e2 * np.sin(at) ** 2) ** 2
    return total * np.abs(height) * axis**2 * (1 - e2)


def _some_rows(grid: GridSpec) -> Iterator[slice]:
    for row in range(0, grid.rows, _ROWS):
        yield slice(row, min(row + _ROWS, grid.rows))


def area_units(grid: GridSpec) -> tuple[np.ndarray, float]:
    """Return the area of a cell in each row as an integer number of units, and the unit.

    Sums of integers do not depend on their order, so summed areas do not depend on blocks or
    threads. The unit is such that the area of the raster is about 2**62 units.

    Returns
    -------
    units, unit
        int64, shape (rows,); and float, in square metres in a geographic CRS, else square map
        units.

    Raises
    ------
    InputError
        when the CRS has no ellipsoid, see `cell_areas`.
    """
    areas = cell_areas(grid)
    if (areas == areas[0]).all():
        return np.ones(grid.rows, np.int64), float(areas[0])
    unit = 2.0 ** (math.frexp(math.fsum(areas) * grid.cols)[1] - 62)
    areas /= unit
    return np.rint(areas, out=areas).astype(np.int64), unit


def _geographic(grid: GridSpec) -> tuple[str, float, float, float] | None:
    """Return the angular unit, its size in radians, the semi-major axis and the flattening.

    None if the CRS is not geographic.
    """
    if not grid.crs_wkt:
        return None
    crs = grid_crs(grid)
    if not crs.is_geographic:
        return None
    return (*crs.units_factor, *_ellipsoid(crs.to_wkt(version="WKT2_2019")))


def _ellipsoid(wkt: str) -> tuple[float, float]:
    """Return the semi-major axis in metres and the flattening."""
    match = _ELLIPSOID.search(wkt)
    if match is None or "BASEGEO" in wkt:
        raise InputError(
            f"the latitudes of {wkt_name(wkt)!r} are not on an ellipsoid; "
            "warp the raster to a plain geographic or a projected CRS first (gdalwarp -t_srs)"
        )
    axis, inverse, metres = map(float, match.groups())
    if not (0 < axis * metres < math.inf and (inverse == 0 or inverse > 1)):
        raise InputError(
            f"the ellipsoid of {wkt_name(wkt)!r} is impossible: semi-major axis {axis}, inverse "
            f"flattening {inverse}; assign the correct CRS to the raster (rio edit-info --crs)"
        )
    return axis * metres, 1 / inverse if inverse else 0.0


def _refuse_beyond_pole(grid: GridSpec, unit: str, radians: float) -> None:
    pole = math.pi / 2 / radians
    for row in (0, grid.rows - 1):
        y = float(grid.centres("y", row, row + 1)[0])
        if abs(y) > pole + 1e-6 * abs(grid.transform[4]):  # as on the pole in window_of
            raise InputError(
                f"row {row} is at latitude {y:.12g} {unit}, beyond the pole; "
                "crop the raster, or correct its transform or CRS"
            )


def _on_ellipsoid(
    grid: GridSpec, rows: slice, radians: float, axis: float, flattening: float, *, knights: bool
) -> np.ndarray:
    y = grid.centres("y", rows.start, rows.stop)
    across, down = grid.transform[0] * radians, grid.transform[4] * radians
    lat = np.clip(y * radians, -math.pi / 2, math.pi / 2)
    e2 = flattening * (2 - flattening)

    def parallel(at: np.ndarray) -> np.ndarray:
        """Return the arc of the parallel over the width of a column: N cos(lat) dlon."""
        return np.abs(axis * np.cos(at) / np.sqrt(1 - e2 * np.sin(at) ** 2) * across)

    def arc(lat: np.ndarray) -> np.ndarray:
        """Return the arc of the meridian over the height of a row, from these latitudes."""
        length = np.zeros(len(lat))
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            at = lat + down * (1 + node) / 2
            length += weight / 2 * axis * (1 - e2) / (1 - e2 * np.sin(at) ** 2) ** 1.5
        return length * abs(down)

    meridian, middle = arc(lat), parallel(lat + down / 2)
    diagonal = np.hypot(meridian, middle)
    steps = [parallel(lat), diagonal, meridian, diagonal]
    if knights:
        flat = np.hypot(meridian, 2 * middle)
        steep = np.hypot(meridian + arc(lat + down), parallel(lat + down))
        steps += [flat, steep, steep, flat]
    return np.stack(steps)
