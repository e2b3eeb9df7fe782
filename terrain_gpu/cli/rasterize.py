"""terrain-gpu rasterize: features of a vector file as a layer."""

from __future__ import annotations

from typing import Any

import click

from ..plurals import counted
from .places import from_file, naming
from .tools import NumberOrText

NAME = "rasterize"
PROVEN = True
MODULES = ("raster.rasterize.operation",)
READS = ("features",)
HELP = """Write the features of a vector file into a layer of STORE, such as rivers as barriers.

Every cell that a line or polygon touches gets a value; where features share a cell, the last one
in the file counts. With --no-corner-cutting, paths do not slip through a line anywhere.

\b
terrain-gpu rasterize dem.zarr --features rivers.gpkg --into rivers
compute-sssp dem.zarr --source 1,2 --barriers rivers --no-corner-cutting
terrain-gpu rasterize dem.zarr --features roads.gpkg --value 0.3 \\
    --onto friction --into faster
"""
OPTIONS = [
    click.option(
        "--features",
        metavar="FILE",
        required=True,
        help="Lines, polygons and points of a vector file (FILE:LAYER for one layer of several), "
        "or the cells of an aligned raster that are neither 0 nor nodata.",
    ),
    click.option(
        "--value",
        type=NumberOrText(),
        metavar="VALUE|nodata",
        help="What their cells become.  [default: 1]",
    ),
    click.option("--field", metavar="FIELD", help="Field with the value of each, 0 or more."),
    click.option(
        "--onto",
        metavar="LAYER",
        help="Layer whose other cells and type are kept.  [default: 0 elsewhere]",
    ),
    click.option(
        "--into", default="rasterized", show_default=True, metavar="NAME", help="Layer to write."
    ),
    click.option(
        "--layer",
        default="elevation",
        show_default=True,
        metavar="NAME",
        help="Layer whose blocks the result has, without --onto.",
    ),
]


def refuse(settings: dict[str, Any]) -> None:
    if settings["value"] is not None and settings["field"] is not None:
        raise click.UsageError("--value and --field both say what cells become: give one")


def run(store: Any, features: str, field: str | None, **settings: Any) -> Any:
    from ..raster.rasterize.operation import rasterize

    if settings["value"] is None and field is None:
        settings["value"] = 1
    with naming("--features"):
        own = {"cost_field": field}
        cells = from_file(
            store.grid, features, settings["memory_limit"], "features", all_touched=True, fields=own
        )
    return rasterize(store, cells, **settings)


def tell(found: Any) -> str:
    return f"{counted(found.found['covered'], 'cell')} covered"
