"""terrain-gpu polygons: the areas of equal labels as polygons."""

from __future__ import annotations

from typing import Any

import click

NAME = "polygons"
PROVEN = False
MODULES = ("vectorize.polygon_problem",)
FILE = "POLYGONS.gpkg|.geojson|.parquet"
HELP = """Write the areas of equal labels of a layer of STORE, or of a raster, as polygons.

Each label becomes one MultiPolygon along the edges of its cells, with the attributes label, cells
and area (square metres in a geographic CRS, else square map units).

\b
terrain-gpu polygons dem.zarr basins.gpkg --layer basins
terrain-gpu polygons landcover.tif landcover.gpkg
"""
OPTIONS = [
    click.option(
        "--layer",
        metavar="NAME",
        help="Layer of labels: basins, watersheds, components, or any other whole numbers.  "
        "[default: the only layer]",
    ),
]


def run(store: Any, output: str, layer: str | None, **settings: Any) -> Any:
    from ..vectorize import polygons

    if layer is None:
        if len(store.layers) != 1:
            there = ", ".join(store.layers) or "none"
            raise click.UsageError(f"which layer? --layer names one; there are: {there}")
        (layer,) = store.layers
    return polygons(store, output, layer=layer, **settings)


def tell(found: Any) -> str:
    return (
        f"{found.labels:,} label{'s' * (found.labels != 1)}, "
        f"{found.polygons:,} polygon{'s' * (found.polygons != 1)} of {found.cells:,} cells"
    )
