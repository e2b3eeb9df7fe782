"""Positions in another coordinate system: the one place that transforms coordinates."""

from __future__ import annotations

import numpy as np
from rasterio import warp
from rasterio._err import CPLE_BaseError
from rasterio.crs import CRS

from ..errors import ReprojectionError
from .crs import crs_name

WGS84 = CRS.from_epsg(4326)

_FARTHEST = 1e12
"""No map reaches as far. PROJ brings longitudes back turn by turn, so that it hardly ever ends."""


def reprojected(xy: np.ndarray, crs: CRS, target: CRS) -> np.ndarray:
    """Positions in another coordinate system.

    Parameters
    ----------
    xy
        float64 of shape (n, 2): x or longitude first, whatever the axes of the systems.

    Raises
    ------
    ReprojectionError
        when a position has none there; whoever knows its file names it (`name_file`).
    """
    if (found := _transformed(xy, crs, target)) is not None:
        return found
    good, bad = 0, len(xy)  # GDAL does not say which one fails
    while bad - good > 1:
        middle = (good + bad) // 2
        if _transformed(xy[good:middle], crs, target) is None:
            bad = middle
        else:
            good = middle
    x, y = xy[good].tolist()
    raise ReprojectionError(
        f"the position ({x!r}, {y!r}) in {crs_name(crs)} cannot be reprojected to "
        f"{crs_name(target)}",
        good,
    )


def to_lonlat(xy: np.ndarray, crs: CRS) -> np.ndarray:
    """Positions in longitude and latitude, for GeoJSON.

    Raises
    ------
    ReprojectionError
        as `reprojected`.
    """
    try:
        return reprojected(xy, crs, WGS84)
    except ReprojectionError as error:
        x, y = xy[error.number].tolist()
        raise ReprojectionError(
            f"the position ({x!r}, {y!r}) in {crs_name(crs)} cannot be reprojected to longitude "
            "and latitude, which GeoJSON needs; write a GeoPackage (.gpkg)",
            error.number,
        ) from None


def _transformed(xy: np.ndarray, crs: CRS, target: CRS) -> np.ndarray | None:
    """Positions in another coordinate system; None if one of them has none there."""
    if not (np.abs(xy) < _FARTHEST).all():
        return None
    try:
        # rasterio looks at each number, which a memoryview gives faster than an array.
        found = np.stack(warp.transform(crs, target, xy[:, 0].data, xy[:, 1].data), axis=1)
    except CPLE_BaseError:
        return None
    # After some errors GDAL raises no more, and returns infinity.
    return found if np.isfinite(found).all() else None
