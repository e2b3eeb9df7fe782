"""terrain-gpu hand: height above the nearest drainage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click

from ..arguments import HandMethod
from .options import directions_option

if TYPE_CHECKING:
    from ..store import TileStore

NAME = "hand"
NEEDS = "hand"
PROVEN = True
MODULES = (
    "spanning_tree.operation",
    "hydrology.flow_accumulation.operation",
    "hydrology.hand.operation",
    "hydrology.flow_direction.operation",
)
WRITES = "into", "distance"
HELP = """Compute heights above the nearest drainage (HAND) of the cells of STORE, or of a raster
(then give -o): the height of a cell less that of the first stream cell on its flow path.

Streams are the cells whose flow accumulation reaches --threshold, the cells of another layer
(--streams), or only the outlets (--to-outlets). Flow directions and accumulation are computed if
they are not there. Cells whose flow path reaches no stream are nodata (-9999).

With --method dinf, flow divides between two neighbours (D-infinity), and heights and distances are
averages over all flow paths. Heights are filled first (fill); flats follow the directions.

\b
terrain-gpu hand dem.zarr --threshold 1000 --distance distance_to_stream
terrain-gpu hand dem.zarr --to-outlets --into relief --distance flow_length
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
        "--to-outlets",
        is_flag=True,
        help="Instead: only the outlets are streams, where flow paths end; --distance is the "
        "downstream flow length then.",
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
        help="Also write this layer: the length of the flow path to the stream.",
    ),
    click.option(
        "--method",
        type=click.Choice(get_args(HandMethod)),
        default="d8",
        show_default=True,
        help="d8: along the flow directions. dinf: averages over D-infinity flow paths.",
    ),
    click.option(
        "--filled",
        default="filled",
        show_default=True,
        metavar="NAME",
        help="Layer of filled heights for dinf, for the same outlets.",
    ),
]


def run(store: TileStore, **settings: Any) -> Any:
    from ..hydrology.hand.operation import hand

    return hand(store, **settings)
