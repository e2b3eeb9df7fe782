"""terrain-gpu label-components: connected components of the cells that meet a condition."""

from __future__ import annotations

from typing import Any

import click

from ..plurals import counted
from . import options

NAME = "label-components"
PROVEN = True
MODULES = ("raster.label_components.operation",)
HELP = """Label the connected components of the cells of STORE, or of a raster, that meet a
condition.

Labels count from 1, in row-major order of each component's first cell; all other cells are 0. They
are the same for every block size, memory limit and number of threads. A comparison with a nodata
cell is never true. The cells of a raster are the layer "elevation".

\b
terrain-gpu label-components dem.zarr --where "elevation > 0" --table land.csv
terrain-gpu label-components dem.tif --where "nodata(elevation)" -o voids.tif
"""
OPTIONS = [
    click.option(
        "--where",
        required=True,
        metavar="CONDITION",
        help='Condition on layers of the store, such as "elevation > 0", "0 < elevation <= 100 '
        'and not (slope > 30)" or "nodata(elevation)".',
    ),
    options.connectivity_option,
    click.option(
        "--into",
        default="components",
        show_default=True,
        metavar="NAME",
        help="Layer to write the labels to.",
    ),
    click.option(
        "--table",
        metavar="FILE",
        help="Also write a table of the components' cell counts, areas and bounding boxes: .csv, "
        ".parquet, .geojson, .gpkg or .fgb.",
    ),
]


def run(store: Any, **settings: Any) -> Any:
    from ..raster.label_components import label_components

    return label_components(store, **settings)


def tell(found: Any) -> str:
    return f"{counted(found.count, 'component')} of {counted(found.cells, 'cell')} in all"
