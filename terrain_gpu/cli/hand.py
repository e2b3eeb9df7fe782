"""terrain-gpu hand: height above the nearest drainage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .flow_accumulation import directions_option, is_area

if TYPE_CHECKING:
    from ..store import TileStore

NAME = "hand"
PROVEN = True
MODULES = "mst.problem", "drainage.flow", "drainage.directions"
WRITES = "into", "distance"
HELP = """Compute heights above the nearest drainage (HAND) of the cells of STORE, or of a raster
(then give -o): the height of a cell less that of the first stream cell on its way.

Streams are the cells whose flow accumulation reaches --threshold, or the cells of another layer
(--streams). Flow directions and accumulation are computed if they are not there. Cells whose way
meets no stream are nodata (-9999).

\b
terrain-gpu hand dem.zarr --threshold 1000 --distance distance_to_stream
terrain-gpu hand dem.tif --threshold 1000 -o hand.tif
"""
OPTIONS = [
    click.option(
        "--threshold",
        metavar="N|AREA",
        help="Cells are streams where the accumulation is at least this: a number of cells such as "
        "1000, or an area such as 5km2, 300ha or 90000m2.",
    ),
    click.option(
        "--streams",
        metavar="NAME",
        help="Instead: cells are streams where this layer is neither 0 nor nodata.",
    ),
    click.option(
        "--accumulation",
        default="flow_accumulation",
        show_default=True,
        metavar="NAME",
        help="Layer of flow accumulation.",
    ),
    directions_option,
    click.option(
        "--layer", default="elevation", show_default=True, metavar="NAME", help="Layer of heights."
    ),
    click.option(
        "--into",
        default="hand",
        show_default=True,
        metavar="NAME",
        help="Layer to write to.",
    ),
    click.option(
        "--distance",
        metavar="NAME",
        help="Also write this layer: the length of the way to the stream.",
    ),
]


def provide(
    store: TileStore, show: Any, how: dict[str, Any], settings: dict[str, Any]
) -> dict[str, float]:
    from ..drainage.chain import provide_accumulation, provide_directions

    if (settings["threshold"] is None) == (settings["streams"] is None):
        raise click.UsageError("give --threshold or --streams")
    directions = settings["directions"]
    if settings["streams"] is not None:
        return provide_directions(store, directions, show, **how)
    areas = is_area(settings["threshold"])
    named = settings["accumulation"], directions
    return provide_accumulation(store, *named, show, areas=areas, **how)


def run(store: TileStore, **settings: Any) -> Any:
    from ..drainage.flow import hand

    return hand(store, **settings)
