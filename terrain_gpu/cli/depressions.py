"""terrain-gpu depressions: the hierarchy of depressions."""

from __future__ import annotations

from typing import Any

import click

from ..plurals import counted
from .options import directions_option

NAME = "depressions"
NEEDS = "depressions"
PROVEN = True
WRITES = "into", "conditioned"
MODULES = (
    "spanning_tree.operation",
    "hydrology.depressions.operation",
    "hydrology.fill.operation",
    "hydrology.flow_direction.operation",
)
HELP = """Find the depressions of STORE, or of a raster (then give -o or --table): how deep they
are, what they hold, and into which others they spill.

A depression is what lies around a pit below the height at which water leaves it, for a deeper
depression or an outlet. The layer has the number of the smallest one that each cell lies in; the
table has all of them. Outlets are those of the flow directions, which are computed if they are not
there.

\b
terrain-gpu depressions dem.zarr --min-depth 1 --table depressions.csv
terrain-gpu depressions dem.zarr --min-volume 500 --conditioned conditioned
terrain-gpu depressions dem.tif -o depressions.tif --table depressions.gpkg
"""
OPTIONS = [
    directions_option,
    *(
        click.option(
            f"--min-{what}",
            type=click.FloatRange(min=0),
            default=0.0,
            metavar="NUMBER",
            help=f"Leave out depressions of less {what}, in {unit}.",
        )
        for what, unit in (
            ("depth", "units of the heights"),
            ("area", "square map units (square metres in a geographic CRS)"),
            ("volume", "units of area times those of the heights"),
        )
    ),
    click.option(
        "--table",
        metavar="FILE",
        help="Also write a table of the depressions, with pits, spills, parents, areas and "
        "volumes: .csv, .parquet, .geojson, .gpkg or .fgb.",
    ),
    click.option(
        "--into",
        default="depressions",
        show_default=True,
        metavar="NAME",
        help="Layer to write the numbers to.",
    ),
    click.option(
        "--conditioned",
        metavar="NAME",
        help="Also write a layer of heights in which the depressions that are left out are filled.",
    ),
]


def run(store: Any, **settings: Any) -> Any:
    from ..hydrology.depressions.operation import depressions

    return depressions(store, **settings)


def tell(found: Any) -> str:
    from .operations import over_heights

    count, deepest = found.found["depressions"], found.found["deepest"]
    text = counted(count, "depression") + f", depth up to {deepest:g}" * (count > 0)
    return text + over_heights(found)
