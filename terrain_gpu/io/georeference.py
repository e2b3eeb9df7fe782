"""What a raster file says about its place, other than by an affine transform and a CRS."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.sax.saxutils import unescape

import numpy as np

from ..errors import InputError

IDENTITY = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
"""The transform of a raster that has none."""

_EVEN = 1e-3
"""Latitudes are evenly spaced when they are within this fraction of a cell of even ones."""


def refuse_located_otherwise(data: Any, path: str) -> None:
    """Refuse a dataset of rasterio whose cells lie where its affine transform does not say.

    Raises
    ------
    InputError
        that names the command to warp it with.
    """
    _refuse_uneven(data, path)
    if not data.transform.is_identity:  # GDAL, too, prefers it to all others
        return
    curved = data.tags(ns="GEOLOCATION")
    mappings = [value for key, value in data.tags().items() if key.endswith("#grid_mapping_name")]
    if data.gcps[0]:
        raise InputError(f"{path}: georeferenced only by control points; warp it first (gdalwarp)")
    if data.rpcs:
        raise InputError(
            f"{path}: georeferenced only by rational polynomials (RPCs); orthorectify it first "
            "(gdalwarp -rpc -to RPC_DEM=dem.tif)"
        )
    if curved:
        raise InputError(
            f"{path}: georeferenced only by arrays of coordinates ({curved.get('X_DATASET', 'x')} "
            f"and {curved.get('Y_DATASET', 'y')}), a longitude and a latitude for every cell; warp "
            "it to a regular grid first (gdalwarp -geoloc)"
        )
    if mappings:
        raise InputError(
            f"{path}: GDAL cannot place its grid ({mappings[0]}); interpolate it to longitudes and "
            "latitudes first (cdo remapbil), or open it with xarray and write its coordinate "
            "system (.rio.write_crs)"
        )


def _refuse_uneven(data: Any, path: str) -> None:
    """Refuse latitudes to which GDAL's transform fits only roughly, as of Gaussian grids."""
    told = data.tags(ns="GEOLOCATION2").get("Y_VALUES", "").strip("{}")
    if not told:
        return
    right = np.sort(np.array(told.split(","), np.float64))
    _, _, _, _, e, f = tuple(data.transform)[:6]
    off = np.abs(np.sort(f + e * (np.arange(data.height) + 0.5)) - right).max() / abs(e)
    if off > _EVEN:
        raise InputError(
            f"{path}: its latitudes are not evenly spaced, up to {off:.2g} cells from even ones; "
            "interpolate it to even ones first (cdo remapbil, or .interp of xarray)"
        )


def remark(data: Any) -> str:
    """What to tell about a dataset of rasterio that does not say all of its place, or ""."""
    if data.crs:
        # GDAL makes a local system of a GeoTIFF's code that PROJ does not know.
        local = re.match(r'(?:LOCAL_CS|ENGCRS)\["([^"]*)"', data.crs.to_wkt())
        name = f"its coordinate system {local[1]!r}" if local else ""
        return name and (
            f"{name} is a local one, which PROJ cannot relate to others; assign the right one if "
            "that is not meant (gdal_edit.py -a_srs)"
        )
    if text := _unread_crs(data):
        return (
            f"its coordinate system cannot be read, and is ignored: {text!r}; correct it "
            "(gdal_edit.py -a_srs), or give it with --crs of convert-dataset"
        )
    if data.transform.is_identity:
        return (
            "has no georeference: cells are taken as 1 x 1, without a coordinate system, with row "
            "0 at y = 0; assign one if lengths matter (gdal_edit.py -a_srs -a_ullr)"
        )
    return ""


def _unread_crs(data: Any) -> str:
    """The start of a coordinate system that is beside a raster or in its header, but not read."""
    if (text := data.tags(ns="ERS").get("PROJ", "RAW")) != "RAW":
        return str(text)
    for name in map(Path, data.files):
        kind = name.suffix.lower()
        if kind not in (".prj", ".xml", ".vrt") or not name.is_file():
            continue
        text = name.read_text("utf-8", "replace")
        if kind != ".prj":
            told = re.search(r"<SRS\b[^>]*>([^<]*)</SRS>", text)
            text = unescape(told[1], {"&quot;": '"'}) if told else ""
        if text := " ".join(text.split())[:60]:
            return text
    return ""
