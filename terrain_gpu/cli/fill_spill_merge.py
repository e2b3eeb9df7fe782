"""terrain-gpu fill-spill-merge: where the water of a rain comes to rest."""

from __future__ import annotations

from typing import Any

import click

from ..arguments import not_negative
from .options import directions_option

NAME = "fill-spill-merge"
PROVEN = True
READS = ("rain",)
MODULES = (
    "spanning_tree.operation",
    "hydrology.fill_spill_merge.operation",
    "hydrology.fill.operation",
    "hydrology.flow_direction.operation",
)
HELP = """Find how deep the water of a rain stands, once it rests, over STORE, or a raster (then
give -o): fill, spill, merge (Barnes, Callaghan and Wickert 2021).

Water runs down the steepest way. Depressions fill, and spill into the next one over the lowest edge
around them; two that are full become one. What reaches an outlet leaves. Outlets are those of the
flow directions, which are computed if they are not there.

\b
terrain-gpu fill-spill-merge dem.zarr --rain 0.02 --table water.csv
terrain-gpu fill-spill-merge dem.zarr --rain runoff
terrain-gpu fill-spill-merge dem.tif --rain runoff.tif -o water.tif
"""
OPTIONS = [
    click.option(
        "--rain",
        required=True,
        metavar="DEPTH|LAYER|RASTER",
        help="Depth of the water that falls, in units of the heights: a number, a layer, or a "
        "raster on the same grid.",
    ),
    directions_option,
    click.option(
        "--table",
        metavar="FILE",
        help="Also write a table of the depressions, with inflow, water and level: .csv, .parquet, "
        ".geojson, .gpkg or .fgb.",
    ),
    click.option(
        "--into",
        default="water",
        show_default=True,
        metavar="NAME",
        help="Layer to write the depths to.",
    ),
]


def provide(store: Any, show: Any, how: dict[str, Any], settings: dict[str, Any]) -> Any:
    """Make the rain a number or a layer, and compute the layers that are missing."""
    from ..hydrology import needs
    from .working import layer_of

    try:
        depth = float(settings["rain"])
    except ValueError:
        nor = "not a depth, such as 0.02, in units of the heights, and "
        settings["rain"] = layer_of("rain", store, settings, nor)
        store = type(store).open(store.path)
        store.layer(settings["rain"])  # before the work
    else:
        settings["rain"] = not_negative("rain", depth)
    return needs.fill_spill_merge(store, show, how, settings)


def run(store: Any, **settings: Any) -> Any:
    from ..hydrology.fill_spill_merge.operation import fill_spill_merge

    return fill_spill_merge(store, **settings)


def tell(found: Any) -> str:
    from ..grid.units import unit_of
    from ..hydrology.forest.source import over_heights

    share = found.found["water"] / (found.found["rain"] or 1)
    unit = unit_of(*found.layers.values())
    depth = f"{found.found['deepest']:.3g} {unit}".strip()
    return f"{share:.1%} of the rain stands, up to {depth} deep{over_heights(found)}"
