"""The grid of a raster: shape, georeferencing, tiles and blocks. It does not access files."""

from .spec import MAX_SIDE, GridSpec, cell_centres, wkt_name
from .tiling import (
    MAX_BLOCK,
    MIN_BLOCK,
    TILE,
    Block,
    BlockGrid,
    RegionGrid,
    Window,
    ceil_div,
    cells_in,
    clip,
    is_empty,
    round_up,
    z_rank_table,
)

__all__ = [
    "MAX_BLOCK",
    "MAX_SIDE",
    "MIN_BLOCK",
    "TILE",
    "Block",
    "BlockGrid",
    "GridSpec",
    "RegionGrid",
    "Window",
    "ceil_div",
    "cell_centres",
    "cells_in",
    "clip",
    "is_empty",
    "round_up",
    "wkt_name",
    "z_rank_table",
]
