"""Whether the last column of a raster meets the first one: a raster around the Earth."""

from __future__ import annotations

import logging
import math

from ...arguments import Wrap
from ...errors import ArgumentError, InputError
from ...grid import GridSpec
from ...grid.crs import grid_crs
from ...plurals import counted

log = logging.getLogger(__name__)

LEAST = {4: 3, 8: 3, 16: 5}
"""Least number of columns for wrapping, by connectivity: else two neighbours are the same cell."""

_EXACT, _NEAR = 0.01, 0.5
"""Largest gap between the sides, in columns: with "auto", and with "yes"."""


def wraps(
    grid: GridSpec, wrap: Wrap, name: str, *, connectivity: int = 8, array: bool = False
) -> bool:
    """Whether to join the sides of a raster.

    Parameters
    ----------
    wrap
        "auto": if the CRS is geographic and the columns span 360 degrees, within a hundredth of a
        column. "yes": even within half a column, because cell sizes are often rounded.
    name
        Name of the raster in messages.
    array
        Whether the raster is an array, which has no CRS: "yes" is not checked.

    Raises
    ------
    InputError
        when `wrap` is "yes" and the sides do not meet.
    """
    if wrap == "no":
        return False
    tolerance, least = _EXACT if wrap == "auto" else _NEAR, LEAST[connectivity]
    lacks = _lacking(grid, tolerance, least, array=array and wrap == "yes")
    if lacks and wrap == "yes":
        raise InputError(f"{name}: the last column does not meet the first one: {lacks}")
    return not lacks


def _lacking(grid: GridSpec, tolerance: float, least: int, *, array: bool) -> str:
    """Return the reason why the sides of a raster do not meet; "" if they do."""
    if grid.cols < least:
        return (
            f"it has {counted(grid.cols, 'column')}, fewer than {least}; leave out wrap "
            "(--wrap yes)"
        )
    if array:
        return ""
    if not grid.crs_wkt:
        return "its coordinate system is unknown; assign one (rio edit-info --crs EPSG:4326)"
    try:
        crs = grid_crs(grid)
    except InputError as error:
        return str(error)
    if not crs.is_geographic:
        return (
            "its coordinates are projected; warp it to longitude and latitude "
            "(gdalwarp -t_srs EPSG:4326), or leave out wrap (--wrap yes)"
        )
    unit, radians = crs.units_factor
    width, whole = abs(grid.transform[0]), 2 * math.pi / radians
    span = width * grid.cols
    more = span - whole
    if abs(more) <= tolerance * width:
        return ""
    advice = (
        "the last column repeats the first one, so crop it (gdal_translate -srcwin)"
        if abs(more - width) <= _NEAR * width
        else "use a raster of the whole Earth, or leave out wrap (--wrap yes)"
    )
    return (
        f"its {counted(grid.cols, 'column spans', 'columns span')} {width * grid.cols:.12g} "
        f"{unit}s, not {whole:.12g}; {advice}"
    )


def tell_open(grid: GridSpec) -> None:
    """Warn if a command does not join the sides of a raster around the Earth."""
    if wraps(grid, "auto", ""):
        log.warning(
            "the columns span 360 degrees, but this command does not join the last one to the "
            "first: paths do not cross this seam (compute-sssp and cost-matrix do join them)"
        )


def joining(
    grid: GridSpec,
    wrap: Wrap,
    path: str,
    connectivity: int,
    method: str = "relax",
) -> bool:
    """Whether to join the sides of a raster, see `wraps`.

    Parameters
    ----------
    path
        Path of the store; "" for an array.

    Raises
    ------
    InputError
        when the method does not join them.
    """
    if not wraps(grid, wrap, path or "the array", connectivity=connectivity, array=not path):
        return False
    if method not in ("relax", "dijkstra"):
        raise ArgumentError(
            "{method} {value} cannot join the sides of a raster around the Earth; use {method} "
            "relax, or {wrap} no",
            value=repr(method),
        )
    return True
