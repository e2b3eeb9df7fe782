"""terrain-gpu breach: breach depressions along least-cost ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..plurals import counted
from .places import inner_voids_option

if TYPE_CHECKING:
    from ..store import TileStore

NAME = "breach"
PROVEN = True
MODULES = ("hydrology.breach.operation",)
HELP = """Breach the depressions of STORE, or of a raster (then give -o).

From each pit, a channel is cut at the height of the pit to a lower cell or an outlet, along the
path whose cuts have the least sum (Lindsay 2016). Outlets are the cells at the raster's edge and
beside voids that reach it. Pits that no channel within the limits reaches remain: fill them
afterwards.

\b
terrain-gpu breach dem.tif -o breached.tif
terrain-gpu breach dem.zarr --max-depth 5 --lines cuts.gpkg
compute-mst dem.zarr --layer breached --weight flow
"""
OPTIONS = [
    click.option(
        "--max-distance",
        type=click.IntRange(1, 10_000),
        default=50,
        show_default=True,
        metavar="CELLS",
        help="How many rows and columns a way may lead away from its pit.",
    ),
    click.option(
        "--max-depth",
        type=float,
        metavar="HEIGHT",
        help="The deepest cut, in the unit of the heights.  [default: no limit]",
    ),
    inner_voids_option,
    click.option(
        "--layer", default="elevation", show_default=True, metavar="NAME", help="Layer of heights."
    ),
    click.option(
        "--into",
        default="breached",
        show_default=True,
        metavar="NAME",
        help="Layer to write the breached heights to.",
    ),
    click.option(
        "--lines",
        metavar="FILE",
        help="Also write the ways as lines: .gpkg, .geojson, .parquet or .fgb, with pit, end, "
        "cost, largest cut and heights.",
    ),
]


def provide(
    store: TileStore, show: Any, how: dict[str, Any], settings: dict[str, Any]
) -> dict[str, float]:
    return {}


def run(store: TileStore, **settings: Any) -> Any:
    from ..hydrology.breach.operation import breach

    return breach(store, **settings)


def tell(found: Any) -> str:
    own = found.found
    left = own["pits"] - own["breached"]
    return (
        f"{own['breached']:,} of {own['pits']:,} pits breached, {left:,} left; "
        f"{counted(own['lowered'], 'cell')} lowered, by at most {float(own['deepest_cut']):.10g}"
    )
