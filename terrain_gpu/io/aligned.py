"""Check that a raster is on the grid of another one."""

from __future__ import annotations

import os
from dataclasses import replace

from ..errors import InputError
from ..grid import GridSpec
from ..grid.crs import same_crs
from .covered import bounds
from .gdal import gdal_environment
from .mosaic import Mosaic


def must_align(grid: GridSpec, path: str) -> None:
    """Check that a raster file is on this grid.

    Raises
    ------
    InputError
        when it is not; the message contains the command that warps it to the grid.
    """
    with gdal_environment(), Mosaic([path]) as raster:
        must_match(grid, raster, path)


def must_match(grid: GridSpec, raster: Mosaic, path: str | os.PathLike[str]) -> None:
    """Check an open raster in the same way as `must_align`."""
    other = raster.grid
    if other.shape != grid.shape:
        differs = f"has {other.rows} x {other.cols} cells, not {grid.rows} x {grid.cols}"
    elif not same_crs(grid.crs_wkt, other.crs_wkt):
        differs = f"is in {other.crs_code or 'another CRS'}, not {grid.crs_code or 'the same CRS'}"
    elif grid.same_place(other):
        return
    elif _north_up(grid).same_place(_north_up(other)):
        differs = "has its rows or columns in the opposite order"
    else:
        differs = f"covers {bounds(other)}, not {bounds(grid)}"
    command = grid.warp_command(path)
    if command is None:
        raise InputError(
            f"{path}: {differs}; the rows of the raster run northwards, or its columns westwards: "
            "warp the raster with gdalwarp first, which writes the usual order, then warp this one "
            "to its grid"
        )
    if raster.nodata is None and not _covers(other, grid):
        differs += ", and cells that it does not cover become 0 (use -dstnodata for another value)"
    raise InputError(f"{path}: {differs}; warp it to the grid of the raster first: {command}")


def _covers(one: GridSpec, other: GridSpec) -> bool:
    """Whether a grid certainly covers all of another one."""
    west, south, east, north = one.bounds
    west2, south2, east2, north2 = other.bounds
    inside = west <= west2 and south <= south2 and east >= east2 and north >= north2
    return inside and same_crs(one.crs_wkt, other.crs_wkt)


def _north_up(grid: GridSpec) -> GridSpec:
    """The grid of the same extent whose rows run southwards and columns eastwards."""
    a, _, _, _, e, _ = grid.transform
    west, _, _, north = grid.bounds
    return replace(grid, transform=(abs(a), 0.0, west, 0.0, -abs(e), north))
