"""terrain-gpu streams: channels with orders, from flow directions and accumulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click

from ..arguments import StreamOrder
from ..plurals import counted
from .options import directions_option

if TYPE_CHECKING:
    from ..store import TileStore

ORDERS = get_args(StreamOrder)

NAME = "streams"
NEEDS = "streams"
PROVEN = True
MODULES = (
    "spanning_tree.operation",
    "hydrology.flow_accumulation.operation",
    "hydrology.flow_direction.operation",
    "hydrology.streams.orders",
    "hydrology.streams.lines",
)
HELP = """Find the channels of STORE, or of a raster (then give -o or --lines): the cells through
which at least a threshold drains.

Channels are divided into links, from heads and junctions to the next junction or outlet. The layer
holds the order of each channel cell, 0 elsewhere. Flow directions and accumulation are computed if
they are not there.

\b
terrain-gpu streams dem.zarr --threshold 1000
terrain-gpu streams dem.zarr --threshold 5km2 --lines streams.gpkg
terrain-gpu streams dem.zarr --threshold 900 --lines s.gpkg --edge-cells
"""
OPTIONS = [
    click.option(
        "--threshold",
        required=True,
        metavar="N|AREA",
        help="Cells are channels where the accumulation is at least this: a number of cells such "
        "as 1000, or an area such as 5km2, 300ha or 90000m2.",
    ),
    directions_option,
    click.option(
        "--accumulation",
        default="flow_accumulation",
        show_default=True,
        metavar="NAME",
        help="Layer of flow accumulation, in cells or areas.",
    ),
    click.option(
        "--order",
        type=click.Choice(ORDERS),
        metavar="ORDER",
        default="strahler",
        show_default=True,
        help=f"Stream order to write: {', '.join(ORDERS)} (the number of the link).",
    ),
    click.option(
        "--into",
        default="streams",
        show_default=True,
        metavar="NAME",
        help="Layer to write the orders to.",
    ),
    click.option(
        "--lines",
        metavar="LINES.geojson|.gpkg|.parquet|.fgb",
        help="Also write the links as lines, with their lengths, slopes, orders and "
        "Pfafstetter codes; .gpkg gets a layer of junctions, too.",
    ),
    click.option(
        "--layer",
        default="elevation",
        show_default=True,
        metavar="NAME",
        help="Layer of elevations, for the slopes of lines.",
    ),
    click.option(
        "--edge-cells",
        is_flag=True,
        help="Give lines the attribute edge_cells: how many cells on the edge of the data drain "
        "inwards and through them. Where there are any, water may come in from beyond the edge.",
    ),
]


def run(store: TileStore, **settings: Any) -> Any:
    from ..hydrology.streams.operation import streams

    return streams(store, **settings)


def tell(found: Any) -> str:
    from ..grid.lengths import length_unit

    unit = length_unit(found.layer.grid)
    return (
        f"{counted(found.links, 'link')} of {counted(found.cells, 'cell')}, length "
        f"{found.length:.10g} {unit}, from {counted(found.heads, 'head')} to "
        f"{counted(found.outlets, 'outlet')}"
    )
