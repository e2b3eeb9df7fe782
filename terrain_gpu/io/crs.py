"""Coordinate systems of rasters: their codes, and whether two mean the same."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rasterio.crs import CRS
from rasterio.errors import CRSError

from ..errors import InputError
from ..grid import GridSpec, wkt_name
from ..grid.crs import equal, grid_crs
from .small_files import read_small

_OWN_ID = re.compile(r',ID\["[^"]*",[^\[\]]*\]\]$')
"""The id of a CRS itself, at the end of its WKT2."""

_FETCHED = re.compile(r"(esri::)?(/vsi|https?://(?!(www\.)?opengis\.net/def/crs))", re.I)
_FILE = re.compile(r"^esri::", re.I)

_EPSG = {"OGC:CRS84": "EPSG:4326", "OGC:CRS83": "EPSG:4269", "OGC:CRS27": "EPSG:4267"}
"""Codes of systems that differ only in axis order."""


def placed(grid: GridSpec, crs: CRS) -> GridSpec:
    """Attach a coordinate system to a grid, with its code if it has one."""
    code, wkt = crs_code(crs), _wkt(crs)
    if code is None:
        # The id contradicts the rest of the WKT, and GDAL would trust the id.
        wkt = _OWN_ID.sub("]", wkt)
    elif (coded := CRS.from_user_input(code)) != crs:  # for example from an Esri .prj
        wkt = _wkt(coded)
    return replace(grid, crs_wkt=wkt, crs_code=code)


def coded_crs(grid: GridSpec) -> CRS:
    """The coordinate system of a grid, by its code if it has one.

    WKT2 omits the ids of the parts of a compound system that has an id itself, and GDAL's GeoTIFF
    driver would then write another vertical datum.
    """
    crs = grid_crs(grid)
    with suppress(CRSError):
        if grid.crs_code and equal(coded := read_crs(grid.crs_code), crs):
            return coded
    return crs


def text_of(crs: str) -> str:
    """The text of --crs, or the content of the file that it names, such as a .prj.

    Raises
    ------
    InputError
        when the file cannot be read.
    """
    if not os.path.lexists(crs):
        return crs
    try:
        return read_small(crs).strip()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(
            f"--crs {crs}: cannot be read as a file with a coordinate system: {reason}"
        ) from None


def read_crs(text: Any) -> CRS:
    """Read a coordinate system from a code, WKT or PROJ text.

    GDAL would also read the file or fetch the URL that a text names, even a text in a GeoJSON file.

    Raises
    ------
    CRSError
        when the text is not a coordinate system; for some texts rasterio raises other errors.
    """
    if isinstance(text, str) and (_FETCHED.match(text) or os.path.lexists(_FILE.sub("", text))):
        raise CRSError("it names a file or a URL")
    try:
        return CRS.from_user_input(text)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise CRSError(str(error)) from None


def crs_name(crs: Any) -> str:
    """Short name of a rasterio CRS for messages."""
    return crs_code(crs) or wkt_name(crs.to_wkt()) if crs else "none"


def crs_code(crs: CRS) -> str | None:
    """The code of a CRS, such as "EPSG:32633", or None if no code means exactly this CRS.

    PROJ also offers the codes of similar systems, such as a national one for UTM on another datum.
    """
    codes = list[str]()
    with suppress(CRSError):
        if authority := crs.to_authority():
            codes.append(_EPSG.get(":".join(authority), ":".join(authority)))
        # An Esri .prj in degrees differs in axis order, which lowers PROJ's confidence.
        if epsg := crs.to_epsg(confidence_threshold=0):
            codes.insert(not codes or codes[0].startswith("EPSG:"), f"EPSG:{epsg}")
    for code in codes:
        with suppress(CRSError):
            if equal(CRS.from_user_input(code), crs):
                return code
    return None


def _wkt(crs: CRS) -> str:
    return str(crs.to_wkt(version="WKT2_2019"))
