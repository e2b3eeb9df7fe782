"""terrain-gpu slope: name, help and options."""

from __future__ import annotations

from typing import Any

import click

NAME = "slope"
WRITES = "into", "aspect"
PROVEN = True
MODULES = ("raster.slope.operation",)
HELP = """Compute the slope of every cell of STORE in degrees, by Horn's method.

Lengths are in map units; in a geographic CRS, in metres on the ellipsoid. Heights are converted to
the same unit if the layer or a vertical CRS names theirs; otherwise they must be in it. Cells on
the edge of the raster or next to nodata are nodata (-9999).

\b
terrain-gpu slope dem.zarr
terrain-gpu slope dem.zarr --aspect aspect -o slope.tif
"""
OPTIONS = [
    click.option(
        "--layer", default="elevation", show_default=True, metavar="NAME", help="Layer of heights."
    ),
    click.option(
        "--into",
        default="slope",
        show_default=True,
        metavar="NAME",
        help="Layer to write the slopes to.",
    ),
    click.option(
        "--aspect",
        metavar="NAME",
        help="Also write this layer: the downhill direction, in degrees clockwise from north.",
    ),
]


def run(store: str, **settings: Any) -> Any:
    from .operation import slope

    return slope(store, **settings)
