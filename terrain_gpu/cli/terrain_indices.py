"""terrain-gpu terrain-indices: wetness, stream power and the length-slope factor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..store import TileStore

NAME = "terrain-indices"
NEEDS = "terrain_indices"
PROVEN = True
MODULES = (
    "spanning_tree.operation",
    "hydrology.flow_accumulation.operation",
    "hydrology.flow_direction.operation",
    "hydrology.terrain_indices.operation",
    "raster.slope.operation",
)
WRITES = "twi", "spi", "ls"
HELP = """Compute topographic wetness (TWI), stream power (SPI) and the length-slope factor (LS) of
the cells of STORE, or of a raster (then give -o).

Slopes and flow accumulation (areas) are computed if they are not there. Cells without a slope, such
as those on the edge of the raster, are nodata (-9999).

\b
terrain-gpu terrain-indices dem.zarr --twi twi --spi spi --ls ls
terrain-gpu terrain-indices dem.tif --twi twi -o twi.tif
"""
OPTIONS = [
    click.option("--twi", metavar="NAME", help="Layer to write ln(a / tan b) to."),
    click.option("--spi", metavar="NAME", help="Layer to write a tan b to."),
    click.option(
        "--ls", metavar="NAME", help="Layer to write (a / 22.13)^0.4 (sin b / 0.0896)^1.3 to."
    ),
    click.option(
        "--slope",
        default="slope",
        show_default=True,
        metavar="NAME",
        help="Layer of slopes b, in degrees.",
    ),
    click.option(
        "--accumulation",
        default="flow_accumulation",
        show_default=True,
        metavar="NAME",
        help="Layer of flow accumulation; a is this by the width of a cell, in metres.",
    ),
    click.option(
        "--min-slope",
        type=float,
        default=0.1,
        show_default=True,
        metavar="DEGREES",
        help="Slope that TWI takes for flatter cells.",
    ),
]


def run(store: TileStore, **settings: Any) -> Any:
    from ..hydrology.terrain_indices.operation import terrain_indices

    return terrain_indices(store, **settings)
