"""terrain-gpu basins: drainage basins."""

from __future__ import annotations

from typing import Any

import click

from ..plurals import counted
from .flow_accumulation import directions_option

NAME = "basins"
NEEDS = "basins"
PROVEN = True
MODULES = (
    "spanning_tree.operation",
    "hydrology.basins.operation",
    "hydrology.flow_direction.operation",
)
HELP = """Label the drainage basins of STORE, or of a raster (then give -o): every cell with the
number of the outlet that it drains to.

Outlets count from 1, in row-major order. They are those of the flow directions, which are computed
if they are not there: the raster's edge, and the coast of voids that reach it. Other outlets need
other directions (flow-direction --outlets). Cells that do not drain are 0.

\b
terrain-gpu basins dem.zarr --table basins.csv
terrain-gpu basins dem.tif -o basins.tif
"""
OPTIONS = [
    directions_option,
    click.option(
        "--into",
        default="basins",
        show_default=True,
        metavar="NAME",
        help="Layer to write the labels to.",
    ),
    click.option(
        "--table",
        metavar="FILE",
        help="Also write a table of the outlets, with cell counts and areas: .csv, .parquet, "
        ".geojson, .gpkg or .fgb.",
    ),
]


def run(store: Any, **settings: Any) -> Any:
    from ..hydrology.basins.operation import basins

    return basins(store, **settings)


def tell(found: Any) -> str:
    count, cells = found.found["basins"], found.report.valid_cells
    return f"{counted(count, 'basin')} of {counted(cells, 'cell')} in all"
