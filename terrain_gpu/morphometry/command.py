"""terrain-gpu slope: its options."""

from __future__ import annotations

from typing import Any

import click

NAME = "slope"
PROVEN = True
HELP = """Slope of every cell of STORE in degrees, by Horn's method, as the layer slope.

In a geographic CRS cells are measured on the ellipsoid, and heights are taken to be metres. Cells
at the edge of the raster and beside cells without a value have none (-9999).

\b
terrain-gpu slope dem.zarr
terrain-gpu slope dem.zarr --aspect aspect -o slope.tif
"""
OPTIONS = [
    click.option(
        "--layer", default="elevation", show_default=True, metavar="NAME", help="The heights."
    ),
    click.option(
        "--into",
        default="slope",
        show_default=True,
        metavar="NAME",
        help="Layer that receives the slopes.",
    ),
    click.option(
        "--aspect",
        metavar="NAME",
        help="Also make this layer: the direction that faces downhill, in degrees clockwise from "
        "north.",
    ),
]


def run(store: str, **settings: Any) -> Any:
    from .problem import slope

    return slope(store, **settings)
