"""Georeference of a raster file other than by an affine transform and a CRS."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import unescape

import numpy as np

from ..errors import InputError

if TYPE_CHECKING:
    from rasterio.io import DatasetReader

IDENTITY = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
"""The transform that GDAL reports for a raster without one."""

_EVEN = 1e-3
"""Latitudes are evenly spaced when they are within this fraction of a cell of even ones."""


def refuse_located_otherwise(data: DatasetReader, path: str) -> None:
    """Reject a rasterio dataset that is not georeferenced by an affine transform.

    Raises
    ------
    InputError
        with the command that warps it.
    """
    _refuse_uneven(data, path)
    if not data.transform.is_identity:  # GDAL also prefers it to the others
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
            f"{path}: georeferenced only by geolocation arrays ({curved.get('X_DATASET', 'x')} "
            f"and {curved.get('Y_DATASET', 'y')}), a longitude and a latitude for every cell; warp "
            "it to a regular grid first (gdalwarp -geoloc)"
        )
    if mappings:
        raise InputError(
            f"{path}: GDAL cannot georeference its grid ({mappings[0]}); interpolate it to "
            "longitudes and latitudes first (cdo remapbil), or open it with xarray and write its "
            "coordinate system (.rio.write_crs)"
        )


def _refuse_uneven(data: DatasetReader, path: str) -> None:
    """Reject latitudes that GDAL's transform fits only roughly, as in Gaussian grids."""
    listed = data.tags(ns="GEOLOCATION2").get("Y_VALUES", "").strip("{}")
    if not listed:
        return
    right = np.sort(np.array(listed.split(","), np.float64))
    _, _, _, _, e, f = tuple(data.transform)[:6]
    off = np.abs(np.sort(f + e * (np.arange(data.height) + 0.5)) - right).max() / abs(e)
    if off > _EVEN:
        raise InputError(
            f"{path}: its latitudes are not evenly spaced: they differ from even spacing by up to "
            f"{off:.2g} cells; interpolate it to even spacing first (cdo remapbil, or .interp of "
            "xarray)"
        )


def remark(data: DatasetReader) -> str:
    """The warning for a rasterio dataset whose georeference is incomplete, or ""."""
    if data.crs:
        # GDAL makes a local system of a GeoTIFF's code that PROJ does not know.
        local = re.match(r'(?:LOCAL_CS|ENGCRS)\["([^"]*)"', data.crs.to_wkt())
        name = f"its coordinate system {local[1]!r}" if local else ""
        return name and (
            f"{name} is a local one, which PROJ cannot relate to others; assign the right one if "
            "this is not intended (gdal_edit.py -a_srs)"
        )
    if text := _unread_crs(data):
        return (
            f"its coordinate system cannot be read and is ignored: {text!r}; correct it "
            "(gdal_edit.py -a_srs), or give it with --crs of convert-dataset"
        )
    if data.transform.is_identity:
        return (
            "has no georeference: cells are treated as 1 x 1 units, without a coordinate system, "
            "with row 0 at y = 0; assign one if lengths matter (gdal_edit.py -a_srs -a_ullr)"
        )
    return ""


def _unread_crs(data: DatasetReader) -> str:
    """The start of a coordinate system in a sidecar or header that GDAL did not read."""
    if (text := data.tags(ns="ERS").get("PROJ", "RAW")) != "RAW":
        return str(text)
    for name in map(Path, data.files):
        kind = name.suffix.lower()
        if kind not in (".prj", ".xml", ".vrt") or not name.is_file():
            continue
        text = name.read_text("utf-8", "replace")
        if kind != ".prj":
            match = re.search(r"<SRS\b[^>]*>([^<]*)</SRS>", text)
            text = unescape(match[1], {"&quot;": '"'}) if match else ""
        if text := " ".join(text.split())[:60]:
            return text
    return ""
