"""Check the description of a raster file in proofs."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ...errors import VerificationError
from ...grid import GridSpec
from ...grid.crs import same_crs
from ...store import Layer
from ...store.objects import AnyPath
from ..crs import crs_name
from ..gdal import GdalInput
from .windows import same_value

_VERTICAL_UNIT = re.compile(r'VERTCRS\[.*?LENGTHUNIT\["([^"]*)"')


def refused(path: AnyPath, fault: str, check: str) -> VerificationError:
    return VerificationError(f"{path}: {fault}; export it again", check)


def check_header(
    path: AnyPath,
    file: GdalInput,
    layer: Layer,
    grid: GridSpec,
    dtype: np.dtype,
    nodata: float | int | None,
) -> None:
    """Check that the description of a file is that of the cells."""
    units = layer.attributes.get("units") or ""
    if not units and _VERTICAL_UNIT.findall(grid.crs_wkt) == [file.units]:
        units = file.units  # GDAL reports this for a band without units
    facts: list[tuple[str, Any, Any]] = [
        ("shape", file.grid.shape, grid.shape),
        ("type", file.dtype.name, dtype.name),
        ("transform", file.grid.transform, grid.transform),
        ("units", file.units, units),
        ("scale", file.scale, layer.attributes.get("scale_factor", 1.0)),
        ("offset", file.offset, layer.attributes.get("add_offset", 0.0)),
    ]
    for name, actual, right in facts:
        if actual != right:
            is_, should = (one if one != "" else "none" for one in (actual, right))
            raise refused(path, f"its {name}: {is_}, not {should}", name)
    if not same_value(file.nodata, nodata):
        raise refused(path, f"its nodata value is {file.nodata}, not {nodata}", "nodata")
    if bool(file.crs) != bool(grid.crs_wkt) or not same_crs(file.grid.crs_wkt, grid.crs_wkt):
        is_in, belongs = crs_name(file.crs), grid.crs_name or "none"
        raise refused(path, f"its coordinate system is {is_in}, not {belongs}", "crs")
