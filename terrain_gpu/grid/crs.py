"""The coordinate system of a grid, and whether two coordinate systems are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .spec import GridSpec, wkt_name

if TYPE_CHECKING:
    from rasterio.crs import CRS


_NO_MEANING = {"$schema", "id", "ids", "scope", "area", "bbox", "usages", "remarks"}
"""Members of PROJJSON that are not part of the definition of a system."""


def grid_crs(grid: GridSpec) -> CRS:
    """Read the coordinate system of a grid that has one.

    Raises
    ------
    InputError
        when its WKT cannot be read.
    """
    from rasterio.crs import CRS  # imported lazily, for start-up time
    from rasterio.errors import CRSError

    try:
        return CRS.from_wkt(grid.crs_wkt)
    except CRSError as error:
        raise InputError(
            f"the raster's coordinate system {wkt_name(grid.crs_wkt)!r} cannot be read: {error}; "
            "convert the raster again with --crs"
        ) from None


def same_crs(wkt: str, other: str) -> bool:
    """Whether two WKT texts are the same coordinate system; an empty one matches any other."""
    if not wkt or not other or wkt == other:
        return True
    from rasterio.crs import CRS
    from rasterio.errors import CRSError

    try:
        return equal(CRS.from_wkt(wkt), CRS.from_wkt(other))
    except CRSError:
        return False


def equal(one: CRS | None, other: CRS | None) -> bool:
    """Whether two coordinate systems are the same for rasters, which have x or longitude first.

    rasterio's own comparison includes axis order, which ESRI files and GeoTIFF do not record.
    """
    if not one or not other:
        return not one and not other
    if one == other:
        return True
    from rasterio.crs import CRS
    from rasterio.errors import CRSError

    try:
        first, second = (_meaning(crs.to_dict(projjson=True)) for crs in (one, other))
        return first == second or bool(CRS.from_dict(first) == CRS.from_dict(second))
    except CRSError:
        return False


def _meaning(value: Any) -> Any:
    """PROJJSON without ids, remarks and axis names, and with east before north."""
    if isinstance(value, list):
        return [_meaning(one) for one in value]
    if not isinstance(value, dict):
        return value
    members = {key: _meaning(one) for key, one in value.items() if key not in _NO_MEANING}
    if axes := members.get("axis"):
        if [axis["direction"] for axis in axes[:2]] == ["north", "east"]:
            axes[:2] = axes[1::-1]
        for axis in axes:
            axis |= {"name": axis["direction"], "abbreviation": ""}
    return members
