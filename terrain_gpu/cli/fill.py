"""terrain-gpu fill: fill depressions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..plurals import counted
from .options import directions_option
from .places import inner_voids_option, outlet_options, outlets_of

if TYPE_CHECKING:
    from ..store import TileStore

NAME = "fill"
PROVEN = ON_GPU = True
MODULES = (
    "spanning_tree.operation",
    "hydrology.fill.operation",
    "hydrology.depressions.operation",
    "hydrology.flow_direction.operation",
)
HELP = """Fill the depressions of STORE, or of a raster (then give -o).

Every cell is raised to the level at which water leaves it for an outlet. By default, outlets are
those of the flow directions, which are computed if they are not there: the raster's edge, and the
coast of voids that reach it. Directions to other outlets need another name, but no other tree.

With --epsilon, each cell is raised until a neighbour is strictly lower, by steps of floats. With
--keep-deeper-than or --keep-larger-than, such depressions stay, as closed lakes do; with both,
those that are deeper and larger.

\b
terrain-gpu fill dem.zarr
terrain-gpu fill dem.tif --epsilon -o filled.tif
terrain-gpu fill dem.tif --keep-deeper-than 5 --keep-larger-than 1km2 -o f.tif
terrain-gpu fill dem.zarr --outlets lakes.gpkg --directions to_lakes --into f
"""
OPTIONS = [
    click.option(
        "--epsilon",
        is_flag=True,
        help="Raise cells until a neighbour is strictly lower; only floats.",
    ),
    click.option(
        "--keep-deeper-than",
        type=click.FloatRange(min=0),
        metavar="DEPTH",
        help="Keep depressions that are deeper, in units of the heights.",
    ),
    click.option(
        "--keep-larger-than",
        metavar="AREA|N",
        help="Keep depressions that are larger than an area such as 5km2, 300ha or 90000m2, or a "
        "number of cells.",
    ),
    *outlet_options,
    inner_voids_option,
    directions_option,
    click.option(
        "--into",
        default="filled",
        show_default=True,
        metavar="NAME",
        help="Layer to write the filled heights to.",
    ),
]


def provide(
    store: TileStore, show: Any, how: dict[str, Any], settings: dict[str, Any]
) -> dict[str, float]:
    from ..hydrology import needs

    given = {**settings, "outlets": outlets_of(store, dict(settings))}
    return needs.fill(store, show, how, given)


def run(store: TileStore, **settings: Any) -> Any:
    from ..hydrology.fill.operation import fill

    ends = "outlet", "outlet_rowcol", "outlets", "inner_voids", "add_outlets", "force_outward"
    for name in ends:
        del settings[name]  # those of the directions
    return fill(store, **settings)


def tell(found: Any) -> str:
    from ..hydrology.forest.source import over_heights
    from .operations import cells_with_a_value

    own, text = found.found, cells_with_a_value(found)
    if "depressions" in own:
        count = own["depressions"]
        text += f", {counted(count, 'depression')} kept"
        text += f", depth up to {own['deepest']:g}" * (count > 0)
    if "raised_above_fill" in own:
        count, most = own["raised_above_fill"], own["largest_rise"]
        text += f", {count:,} above plain fill" + f" by up to {most:.3g}" * (count > 0)
    return text + over_heights(found)
