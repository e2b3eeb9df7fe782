"""The coordinate system of a grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import InputError
from .spec import GridSpec

if TYPE_CHECKING:
    from rasterio.crs import CRS


def grid_crs(grid: GridSpec) -> CRS:
    """Read the coordinate system of a grid that has one.

    Raises
    ------
    InputError
        when its WKT cannot be read.
    """
    from rasterio.crs import CRS  # imported lazily: start-up time counts
    from rasterio.errors import CRSError

    try:
        return CRS.from_wkt(grid.crs_wkt)
    except CRSError as error:
        raise InputError(
            f"the raster's coordinate system {grid.crs_wkt[:60]!r} cannot be read: {error}; "
            "convert the raster again with --crs"
        ) from None
