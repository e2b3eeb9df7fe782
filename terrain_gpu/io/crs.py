"""Coordinate systems of rasters: their codes, and whether two mean the same."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rasterio.crs import CRS
from rasterio.errors import CRSError

from ..grid import GridSpec
from ..grid.crs import grid_crs

_OWN_ID = re.compile(r',ID\["[^"]*",[^\[\]]*\]\]$')
"""The id of a CRS itself, at the end of its WKT2."""

_EPSG = {"OGC:CRS84": "EPSG:4326", "OGC:CRS83": "EPSG:4269", "OGC:CRS27": "EPSG:4267"}
"""Codes of systems that differ only in the order of axes."""

_NO_MEANING = {"$schema", "id", "ids", "scope", "area", "bbox", "usages", "remarks"}
"""What PROJJSON says about a system beside its definition."""


def placed(grid: GridSpec, crs: CRS) -> GridSpec:
    """Attach a coordinate system to a grid, with its code if it has one."""
    code, wkt = crs_code(crs), _wkt(crs)
    if code is None:
        # The id contradicts the rest of the WKT, and GDAL would trust the id.
        wkt = _OWN_ID.sub("]", wkt)
    elif (coded := CRS.from_user_input(code)) != crs:  # such as that of an Esri .prj
        wkt = _wkt(coded)
    return replace(grid, crs_wkt=wkt, crs_code=code)


def coded_crs(grid: GridSpec) -> CRS:
    """The coordinate system of a grid, by its code if it has one.

    WKT2 omits the ids of the parts of a compound system that has one itself, and GDAL's GeoTIFF
    driver would then write another vertical datum.
    """
    crs = grid_crs(grid)
    with suppress(CRSError):
        if grid.crs_code and equal(coded := read_crs(grid.crs_code), crs):
            return coded
    return crs


def read_crs(text: Any) -> CRS:
    """Read a coordinate system from a code, WKT or PROJ text.

    Raises
    ------
    CRSError
        for whatever is none; rasterio raises other errors for some.
    """
    try:
        return CRS.from_user_input(text)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise CRSError(str(error)) from None


def crs_name(crs: Any) -> str:
    """Short name of a rasterio CRS for messages."""
    return crs_code(crs) or crs.to_wkt()[:60] if crs else "none"


def crs_code(crs: CRS) -> str | None:
    """The code of a CRS, such as "EPSG:32633", or None if no code means exactly this CRS.

    PROJ also offers the codes of similar systems, such as a national one for UTM on another datum.
    """
    with suppress(CRSError):
        if found := crs.to_authority():
            code = ":".join(found)
            code = _EPSG.get(code, code)
            return code if equal(CRS.from_user_input(code), crs) else None
    return None


def same_crs(wkt: str, other: str) -> bool:
    """Whether two WKT texts mean the same coordinate system; an empty one matches any other."""
    if not wkt or not other or wkt == other:
        return True
    try:
        return equal(CRS.from_wkt(wkt), CRS.from_wkt(other))
    except CRSError:
        return False


def equal(one: CRS | None, other: CRS | None) -> bool:
    """Whether two coordinate systems mean the same to rasters, which have x or longitude first.

    rasterio's own comparison also compares the order of axes, which files of ESRI and GeoTIFF
    do not record.
    """
    if not one or not other:
        return not one and not other
    if one == other:
        return True
    try:
        first, second = (_meaning(crs.to_dict(projjson=True)) for crs in (one, other))
        return first == second or bool(CRS.from_dict(first) == CRS.from_dict(second))
    except CRSError:
        return False


def _meaning(value: Any) -> Any:
    """PROJJSON without ids, remarks and names of axes, and with east before north."""
    if isinstance(value, list):
        return [_meaning(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {key: _meaning(one) for key, one in value.items() if key not in _NO_MEANING}
    if axes := found.get("axis"):
        if [axis["direction"] for axis in axes[:2]] == ["north", "east"]:
            axes[:2] = axes[1::-1]
        for axis in axes:
            axis |= {"name": axis["direction"], "abbreviation": ""}
    return found


def _wkt(crs: CRS) -> str:
    return str(crs.to_wkt(version="WKT2_2019"))
