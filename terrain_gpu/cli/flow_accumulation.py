"""terrain-gpu flow-accumulation: what drains through each cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click

from ..arguments import FlowMethod, UpstreamStatistic

if TYPE_CHECKING:
    from ..store import TileStore

NAME = "flow-accumulation"
NEEDS = "flow_accumulation"
PROVEN = ON_GPU = True
MODULES = (
    "spanning_tree.operation",
    "hydrology.flow_accumulation.operation",
    "hydrology.flow_direction.operation",
)
HELP = """Count the cells, or sum the areas, that drain through each cell of STORE, or of a raster
(then give -o); or sum a layer of weights, such as rain.

Follows the layer of flow directions, which is computed if it is not there (flow-direction). Cells
that do not drain are nodata.

With --method, cells divide what drains through them: between two neighbours by the steepest descent
(dinf, Tarboton 1997), or among all lower ones by slopes (mfd, Freeman 1991), and the lengths of
contours (quinn, Quinn 1991). Heights are filled first (fill); flats follow the directions.

\b
terrain-gpu flow-accumulation dem.zarr --areas
terrain-gpu flow-accumulation dem.zarr --weights rain --statistic mean
terrain-gpu flow-accumulation dem.zarr --edge-cells
terrain-gpu flow-accumulation dem.tif -o accumulation.tif
terrain-gpu flow-accumulation dem.tif --method dinf --areas -o areas.tif
"""

directions_option = click.option(
    "--directions",
    default="flow_direction",
    show_default=True,
    metavar="NAME",
    help="Layer of D8 flow directions.",
)

OPTIONS = [
    directions_option,
    click.option(
        "--method",
        type=click.Choice(get_args(FlowMethod)),
        default="d8",
        show_default=True,
        help="How a cell divides its flow among its neighbours.",
    ),
    click.option(
        "--exponent",
        type=float,
        metavar="P",
        help="Exponent of the slope when flow is divided.  [default: 1.1 for mfd, 1 for quinn]",
    ),
    click.option(
        "--filled",
        default="filled",
        show_default=True,
        metavar="NAME",
        help="Layer of filled heights for other methods than d8, for the same outlets.",
    ),
    click.option(
        "--areas",
        is_flag=True,
        help="Sum areas instead of cells, in square map units (square metres in a geographic CRS); "
        "or weights times areas.",
    ),
    click.option("--exclude-self", is_flag=True, help="Leave out the cell itself."),
    click.option("--weights", metavar="NAME", help="Layer of values to sum instead of cells."),
    click.option(
        "--statistic",
        type=click.Choice(get_args(UpstreamStatistic)),
        default="sum",
        show_default=True,
        help="Statistic of --weights over the cells upstream and the cell itself. below: the usual "
        "accumulation, but only at and downstream of cells whose weight is not 0.",
    ),
    click.option(
        "--edge-cells",
        is_flag=True,
        help="Instead, count the cells upstream that lie on the edge of the data and drain "
        "inwards. Where there are any, water may come in from beyond the edge.",
    ),
    click.option(
        "--into",
        metavar="NAME",
        help="Layer to write to.  [default: flow_accumulation, upstream_STATISTIC of weights, or "
        "upstream_edge_cells]",
    ),
]


def run(store: TileStore, **settings: Any) -> Any:
    from ..hydrology.flow_accumulation.operation import flow_accumulation

    return flow_accumulation(store, **settings)


def tell(found: Any) -> str:
    from .operations import cells_with_a_value

    without = found.found.get("without_weight")
    more = f", {without:,} that drain without a weight" if without else ""
    return cells_with_a_value(found) + more
