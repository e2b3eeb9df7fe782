"""terrain-gpu burn: burn streams into a DEM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..plurals import counted
from .places import from_file, naming

if TYPE_CHECKING:
    from ..store import TileStore

NAME = "burn"
PROVEN = True
MODULES = ("hydrology.burn.operation",)
READS = ("streams",)
HELP = """Burn streams into the heights of STORE, or of a raster (then give -o).

Every cell that a stream touches is lowered by a depth; other cells keep their heights. Then water
follows known streams where the DEM hides them. The result is a layer of heights like any other.

\b
terrain-gpu burn dem.tif --streams rivers.gpkg --depth 10 -o burned.tif
terrain-gpu flow-direction dem.zarr --burn rivers.gpkg --burn-depth 10
"""
OPTIONS = [
    click.option(
        "--streams",
        metavar="FILE",
        required=True,
        help="Lines, polygons and points of a vector file (FILE:LAYER for one layer of several), "
        "or the cells of an aligned raster that are neither 0 nor nodata.",
    ),
    click.option(
        "--depth",
        type=float,
        required=True,
        metavar="HEIGHT",
        help="By how much cells are lowered, in the unit of the heights.",
    ),
    click.option(
        "--layer", default="elevation", show_default=True, metavar="NAME", help="Layer of heights."
    ),
    click.option(
        "--into",
        default="burned",
        show_default=True,
        metavar="NAME",
        help="Layer to write the burned heights to.",
    ),
]


def provide(
    store: TileStore, show: Any, how: dict[str, Any], settings: dict[str, Any]
) -> dict[str, float]:
    return {}


def run(store: TileStore, streams: str, **settings: Any) -> Any:
    from ..hydrology.burn.operation import burn

    with naming("--streams"):
        cells = from_file(
            store.grid, streams, settings["memory_limit"], "streams", all_touched=True
        )
    return burn(store, cells, **settings)


def tell(found: Any) -> str:
    return f"{counted(found.found['burned'], 'cell')} lowered"
