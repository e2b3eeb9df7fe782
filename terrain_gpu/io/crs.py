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
    """Attach a coordinate system to a grid."""
    code, wkt = crs_code(crs), crs.to_wkt(version="WKT2_2019")
    if code is None:
        # The id contradicts the rest of the WKT, and GDAL would trust the id.
        wkt = _OWN_ID.sub("]", wkt)
    return replace(grid, crs_wkt=wkt, crs_code=code)


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
    found = crs.to_authority()
    for authority, code in ([found] if found else []) + [("OGC", "CRS84")]:
        with suppress(CRSError):
            if CRS.from_authority(authority, code) == crs:
                return f"{authority}:{code}"
    return None


def same_crs(wkt: str, other: str) -> bool:
    """Whether two WKT texts mean the same coordinate system; an empty one matches any other."""
    if not wkt or not other or wkt == other:
        return True
    try:
        return CRS.from_wkt(wkt) == CRS.from_wkt(other)
    except CRSError:
        return False
