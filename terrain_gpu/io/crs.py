"""Coordinate systems of rasters, and their names."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rasterio.crs import CRS
from rasterio.errors import CRSError

from ..grid import GridSpec

_OWN_ID = re.compile(r',ID\["[^"]*",[^\[\]]*\]\]$')
"""The id of a CRS itself, at the end of its WKT2."""


def placed(grid: GridSpec, crs: CRS) -> GridSpec:
    """A grid in a coordinate system."""
    code, wkt = crs_code(crs), crs.to_wkt(version="WKT2_2019")
    if code is None:
        # GDAL would go by an id that is not that of the rest.
        wkt = _OWN_ID.sub("]", wkt)
    return replace(grid, crs_wkt=wkt, crs_code=code)


def crs_name(crs: Any) -> str:
    """Short name of a rasterio CRS for messages."""
    return crs_code(crs) or crs.to_wkt()[:60] if crs else "none"


def crs_code(crs: CRS) -> str | None:
    """The code of a CRS, such as "EPSG:32633"; None where none is known that means the same.

    PROJ also offers those of similar ones: for UTM on another datum that of some country's.
    """
    found = crs.to_authority()
    for authority, code in ([found] if found else []) + [("OGC", "CRS84")]:
        with suppress(CRSError):
            if CRS.from_authority(authority, code) == crs:
                return f"{authority}:{code}"
    return None


def same_crs(wkt: str, other: str) -> bool:
    """Whether two WKT texts mean one coordinate system; an unknown one fits every other."""
    if not wkt or not other or wkt == other:
        return True
    try:
        return CRS.from_wkt(wkt) == CRS.from_wkt(other)
    except CRSError:
        return False
