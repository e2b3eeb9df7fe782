"""terrain-gpu watershed: what drains to pour points."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from ..plurals import counted
from .options import directions_option
from .places import field_of, naming, not_negative, place_options, places

if TYPE_CHECKING:
    from ..store import TileStore

NAME = "watershed"
PROVEN = True
MODULES = (
    "spanning_tree.operation",
    "hydrology.flow_accumulation.operation",
    "hydrology.watershed.operation",
    "hydrology.flow_direction.operation",
)
HELP = """Label the watersheds of STORE, or of a raster (then give -o): every cell with the pour
point that its flow reaches first.

Labels are 1, 2, ... in the order of the points, or the ids of the file. Cells that reach no pour
point are 0. Flow directions, and the accumulation for --snap, are computed if they are not there.

\b
terrain-gpu watershed dem.zarr --pour-points gauges.gpkg --snap 200
terrain-gpu watershed dem.zarr --links links
terrain-gpu watershed dem.tif --pour-point 470300,5501200 -o watershed.tif
"""
OPTIONS = [
    *place_options(
        "--pour-point",
        "A pour point in the raster's CRS. Repeatable.",
        "A pour point: a cell; rows and columns count from 0. Repeatable.",
        "Pour points at the points, lines and polygons of a vector file (FILE:LAYER for one layer "
        "of several), or at the cells of an aligned raster that are neither 0 nor nodata.",
    ),
    click.option(
        "--links",
        metavar="NAME",
        help="Instead: label each cell with the first nonzero value on its flow path in this "
        "layer, such as the links of streams (streams --order link).",
    ),
    click.option(
        "--snap",
        type=float,
        metavar="RADIUS",
        callback=not_negative,
        help="Move each pour point to the cell with the largest accumulation within this "
        "distance: map units, metres in a geographic CRS.",
    ),
    click.option(
        "--snap-area",
        metavar="N|AREA|FIELD",
        help="Instead, move each to the cell within --snap whose accumulation differs least from "
        "this: a number of cells such as 1000, or an area such as 5km2; or from its own, a field "
        "of --pour-points in cells, or with its unit, such as AREA:km2.",
    ),
    click.option(
        "--accumulation",
        default="flow_accumulation",
        show_default=True,
        metavar="NAME",
        help="Layer of flow accumulation, for --snap.",
    ),
    directions_option,
    click.option(
        "--into",
        default="watershed",
        show_default=True,
        metavar="NAME",
        help="Layer to write the labels to.",
    ),
    click.option(
        "--table",
        metavar="FILE",
        help="Also write a table of the pour points or links, with cell counts, areas and the next "
        "one downstream: .csv, .parquet, .geojson, .gpkg or .fgb.",
    ),
]


def provide(
    store: TileStore, show: Any, how: dict[str, Any], settings: dict[str, Any]
) -> dict[str, float]:
    from ..hydrology import needs
    from ..hydrology.common.codes import open_links
    from ..hydrology.watershed.pour_points import naming_nearest

    points, cells = settings.pop("pour_point"), settings.pop("pour_point_rowcol")
    file, links = settings["pour_points"], settings["links"]
    if links is not None:  # what cannot be is refused before hours of work for it
        open_links(store, links)
    else:
        limit = settings["memory_limit"]
        with naming_nearest(store, settings["directions"]):
            found = places(store.grid, "--pour-point", points, cells, file, limit)
        settings["pour_points"] = found
    area = settings["snap_area"]
    if area is not None and (form := re.fullmatch(r"([^\W\d][^:]*)(?::(km2|ha|m2))?", area)):
        if file is None:
            raise click.UsageError(
                f"--snap-area {area}: a field needs --pour-points; give a number of cells, or an "
                "area such as 5km2"
            )
        with naming("--snap-area"):
            each = field_of(file, form[1], settings["memory_limit"])
        unit = form[2] or ""
        settings["snap_area"] = {key: f"{value!r}{unit}" for key, value in each.items()}
    return needs.watershed(store, show, how, settings)


def run(store: TileStore, **settings: Any) -> Any:
    from ..hydrology.watershed.operation import watershed

    return watershed(store, **settings)


def tell(found: Any) -> str:
    cells, count = found.report.valid_cells, found.found.get("pour_points")
    ends = "links" if count is None else counted(count, "pour point", "pour points")
    return f"{counted(cells, 'cell drains', 'cells drain')} to {ends}"
