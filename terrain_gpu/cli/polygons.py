"""terrain-gpu polygons: the areas of equal labels as polygons."""

from __future__ import annotations

import logging
from typing import Any

import click

from ..plurals import counted
from .places import names_of, naming

log = logging.getLogger(__name__)

NAME = "polygons"
PROVEN = True
MODULES = ("raster.polygons.operation",)
FILE = "POLYGONS.gpkg|.geojson|.parquet|.fgb"
HELP = """Write the areas of equal labels of a layer of STORE, or of a raster, as polygons.

Each label becomes one MultiPolygon along the edges of its cells, with the attributes label, cells
and area (square metres in a geographic CRS, else square map units).

\b
terrain-gpu polygons dem.zarr basins.gpkg --layer basins
terrain-gpu polygons landcover.tif landcover.gpkg
terrain-gpu polygons dem.zarr areas.gpkg --layer nearest_allocation \\
    --names towns.gpkg --id-field name
"""
READS = ("names",)
OPTIONS = [
    click.option(
        "--layer",
        metavar="NAME",
        help="Layer of labels: basins, watersheds, components, or any other whole numbers.  "
        "[default: the only layer]",
    ),
    click.option(
        "--names",
        metavar="FILE",
        help="Also write the attribute name: what features of this vector file are called "
        "(FILE:LAYER for one layer of several), of which the labels are the ids. For layers of "
        "--sources FILE with --id-field.",
    ),
    click.option("--id-field", metavar="FIELD", help="Field of --names with these names."),
]


def refuse(settings: dict[str, Any]) -> None:
    """Refuse a file of names without its field, and the reverse."""
    if (settings["names"] is None) != (settings["id_field"] is None):
        raise click.UsageError("--names FILE and --id-field FIELD belong together: give both")


def run(
    store: Any,
    output: str,
    layer: str | None,
    names: str | None,
    id_field: str | None,
    **settings: Any,
) -> Any:
    from ..raster.polygons.operation import polygons

    if layer is None:
        if len(store.layers) != 1:
            there = ", ".join(store.layers) or "none"
            raise click.UsageError(f"which layer? --layer names one; there are: {there}")
        (layer,) = store.layers
    called = None
    if names is not None and id_field is not None:
        with naming("--names"):
            called = names_of(store.grid, names, id_field, settings["memory_limit"])
    found = polygons(store, output, layer=layer, names=called, **settings)
    if "unnamed" in found.report.result:
        log.warning(
            "%s: %d of %d labels of %s have no name, the first of them %d; give the file of the "
            "places that the layer was computed from",
            names,
            found.report.result["unnamed"],
            found.labels,
            layer,
            found.report.result["first_unnamed"],
        )
    return found


def tell(found: Any) -> str:
    return (
        f"{counted(found.labels, 'label')}, {counted(found.polygons, 'polygon')} of "
        f"{counted(found.cells, 'cell')}"
    )
