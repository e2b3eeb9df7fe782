"""terrain-gpu accumulate: drainage accumulation along the spanning forest."""

from __future__ import annotations

from typing import Any

import click

from ..plurals import counted
from .places import outlet_options, outlets_of

NAME = "accumulate"
NEEDS = "accumulate"
PROVEN = True
MODULES = "spanning_tree.operation", "hydrology.accumulate.operation"
WRITES = "into", "directions"
HELP = """Sum the cells or areas that drain through each cell of STORE, or of a raster, along its
spanning forest.

The forest (compute-mst; of weight flow, if it has to be computed) is rooted at the outlets: by
default, those cells on the raster's edge or beside nodata that have no lower neighbour or over
which a depression spills (with weight max, all of them). The heaviest edge between two outlets is
the divide. Each cell of the result is the sum over all cells upstream, itself included; 0 if no
outlet is reached.

\b
terrain-gpu accumulate dem.zarr
terrain-gpu accumulate dem.tif --outlets gauges.gpkg --areas -o upstream.tif
"""
OPTIONS = [
    *outlet_options,
    click.option(
        "--areas",
        is_flag=True,
        help="Sum areas instead of cells, in square map units (square metres in a geographic CRS).",
    ),
    click.option(
        "--into",
        default="accumulation",
        show_default=True,
        metavar="NAME",
        help="Layer to write the sums to.",
    ),
    click.option(
        "--directions",
        metavar="NAME",
        help="Also write this layer: D8 codes of the downstream steps (E 1, SE 2, ... NE 128; 0 "
        "outlet, 255 no outlet reached).",
    ),
]


def provide(
    store: Any, show: Any, how: dict[str, Any], settings: dict[str, Any]
) -> dict[str, float]:
    from ..hydrology import needs

    given = dict(settings)
    outlets, added = outlets_of(store, given, inner_voids=True) or (None, None)
    given |= {"outlets": outlets, "add_outlets": added}
    return needs.accumulate(store, show, how, given)


def run(store: Any, **settings: Any) -> Any:
    from ..hydrology.accumulate.operation import accumulate

    ends = outlets_of(store, settings, inner_voids=True)
    outlets, added = ends or (None, None)
    return accumulate(store, outlets, add_outlets=added, **settings)


def tell(found: Any) -> str:
    missing = found.report.valid_cells - found.reached
    return (
        f"{counted(found.reached, 'cell drains', 'cells drain')} to "
        f"{counted(found.outlets, 'outlet')}"
        + (f", {counted(missing, 'reaches none', 'reach none')}" if missing else "")
    )
