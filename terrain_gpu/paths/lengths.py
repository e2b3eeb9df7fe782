"""Lengths of the steps between neighbouring cells, on the map or on the CRS's ellipsoid."""

from __future__ import annotations

import math
import re

import numpy as np

from ..errors import InputError
from ..grid import GridSpec
from ..weights import DIRECTIONS

_NUMBER = r",\s*([^,\]]+)"
_ELLIPSOID = re.compile(
    rf'ELLIPSOID\["(?:[^"]|"")*"{_NUMBER}{_NUMBER},\s*LENGTHUNIT\["[^"]*"{_NUMBER}'
)
"""Semi-major axis, inverse flattening (0 for a sphere) and metres per unit, in WKT2."""

_NODES, _WEIGHTS = (v.tolist() for v in np.polynomial.legendre.leggauss(8))


def step_lengths(grid: GridSpec) -> np.ndarray:
    """Length of the steps from each row, towards E, SW, S and SE.

    In a geographic CRS, metres on its ellipsoid: the arc of the parallel along a row, the arc of
    the meridian between two rows, and for diagonals the hypotenuse of both, the parallel taken at
    the middle latitude. Otherwise, map units from the affine transform; cells of 1 x 1 without one.

    Parameters
    ----------
    grid
        Shape, transform and CRS of the raster.

    Returns
    -------
    numpy.ndarray, float64, shape (4, rows)
        Row r holds E along r, and SW, S, SE from r to r + 1, also for the last row.

    Raises
    ------
    InputError
        for row centres beyond a pole, and for a CRS without an ellipsoid of its own (rotated pole).

    Notes
    -----
    Radii of curvature as in Snyder (1987), Map Projections: A Working Manual, eq. 4-18 and 4-20;
    the meridian arc by Gauss-Legendre quadrature, exact to rounding for steps up to a quadrant.
    """
    if grid.crs_wkt:
        from rasterio.crs import CRS  # only here: start-up time counts
        from rasterio.errors import CRSError

        try:
            crs = CRS.from_wkt(grid.crs_wkt)
        except CRSError as error:
            raise InputError(
                f"the coordinate system {grid.crs_wkt[:60]!r} cannot be read: {error}"
            ) from None
        if crs.is_geographic:
            unit, radians = crs.units_factor
            axis, flattening = _ellipsoid(crs.to_wkt(version="WKT2_2019"))
            return _on_ellipsoid(grid, unit, radians, axis, flattening)
    a, b, _, d, e, _ = grid.transform
    steps = [math.hypot(a * dc + b * dr, d * dc + e * dr) for dr, dc in DIRECTIONS]
    return np.repeat(np.array(steps)[:, None], grid.rows, axis=1)


def _ellipsoid(wkt: str) -> tuple[float, float]:
    """Semi-major axis in metres and flattening."""
    found = _ELLIPSOID.search(wkt)
    if found is None or "BASEGEO" in wkt:
        raise InputError(
            f"{wkt[:60]!r} gives latitudes on no ellipsoid; "
            "warp the raster to a plain geographic or a projected CRS first (gdalwarp -t_srs)"
        )
    axis, inverse, metres = map(float, found.groups())
    if not (0 < axis * metres < math.inf and (inverse == 0 or inverse > 1)):
        raise InputError(
            f"the ellipsoid of {wkt[:60]!r} is impossible: semi-major axis {axis}, inverse "
            f"flattening {inverse}; give the raster its right CRS (rio edit-info --crs)"
        )
    return axis * metres, 1 / inverse if inverse else 0.0


def _on_ellipsoid(
    grid: GridSpec, unit: str, radians: float, axis: float, flattening: float
) -> np.ndarray:
    y = grid.y_centres()
    across, down = grid.transform[0] * radians, grid.transform[4] * radians
    pole = math.pi / 2 / radians
    for row in (0, grid.rows - 1):
        if abs(y[row]) > pole + 1e-6 * abs(grid.transform[4]):  # as on the pole in window_of
            raise InputError(
                f"row {row} lies at latitude {y[row]:.12g} {unit}, beyond the pole; "
                "crop the raster, or correct its transform or CRS"
            )
    lat = np.clip(y * radians, -math.pi / 2, math.pi / 2)
    e2 = flattening * (2 - flattening)

    def parallel(at: np.ndarray) -> np.ndarray:
        """Arc of a column's width; N cos(lat) dlon."""
        return np.abs(axis * np.cos(at) / np.sqrt(1 - e2 * np.sin(at) ** 2) * across)

    meridian = np.zeros(grid.rows)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        at = lat + down * (1 + node) / 2
        meridian += weight / 2 * axis * (1 - e2) / (1 - e2 * np.sin(at) ** 2) ** 1.5
    meridian *= abs(down)
    diagonal = np.hypot(meridian, parallel(lat + down / 2))
    return np.stack([parallel(lat), diagonal, meridian, diagonal])
