"""Reproject positions: the only module that transforms coordinates."""

from __future__ import annotations

import numpy as np
from rasterio import warp
from rasterio._err import CPLE_BaseError
from rasterio.crs import CRS

from ..errors import ReprojectionError
from .crs import crs_name

WGS84 = CRS.from_epsg(4326)

_FARTHEST = 1e12
"""Beyond any map. PROJ reduces longitudes turn by turn, so larger ones would take for ever."""


def reprojected(xy: np.ndarray, crs: CRS, target: CRS) -> np.ndarray:
    """Return positions in another coordinate system.

    Parameters
    ----------
    xy
        float64 of shape (n, 2): x or longitude first, whatever the axis order of the systems.

    Raises
    ------
    ReprojectionError
        when a position cannot be reprojected; a caller that knows its file adds it (`name_file`).
    """
    if (transformed := _transformed(xy, crs, target)) is not None:
        return transformed
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
    """Return positions in longitude and latitude, for GeoJSON.

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
    """Return positions in another coordinate system; None if one of them cannot be reprojected."""
    if not (np.abs(xy) < _FARTHEST).all():
        return None
    try:
        # rasterio iterates over the numbers, which is faster with a memoryview than with an array.
        transformed = np.stack(warp.transform(crs, target, xy[:, 0].data, xy[:, 1].data), axis=1)
    except CPLE_BaseError:
        return None
    # After some errors, GDAL no longer raises and returns infinity.
    return transformed if np.isfinite(transformed).all() else None
