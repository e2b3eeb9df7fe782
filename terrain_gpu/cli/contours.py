"""terrain-gpu contours: lines of equal values, or the areas between breaks."""

from __future__ import annotations

from typing import Any

import click

from ..plurals import counted
from . import options


class Breaks(click.ParamType):
    """Numbers, such as 600,1200,1800."""

    name = "breaks"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[float, ...]:
        try:
            return tuple(map(float, value.split(",")))
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers such as 600,1200,1800", param, ctx)


NAME = "contours"
PROVEN = True
MODULES = ("raster.contours.operation",)
FILE = "CONTOURS.gpkg|.geojson|.parquet|.fgb"
HELP = """Write contour lines of a layer of STORE, or of a raster; or the areas between breaks.

Lines are interpolated between the centres of cells, have the higher ground on their left, and
the attribute level. Areas (--polygons) follow the edges of cells exactly; with the attributes
lower, upper, cells and area (square metres in a geographic CRS, else square map units). Of a
layer of distances, they are isochrones.

\b
terrain-gpu contours dem.zarr contours.gpkg --interval 10
terrain-gpu contours dem.zarr hours.gpkg --layer distance --polygons \\
    --breaks 3600,7200
"""
OPTIONS = [
    options.layer_option,
    click.option(
        "--breaks",
        type=Breaks(),
        metavar="A,B,...",
        help="Levels in units of the layer, ascending. The last of --polygons may be inf.",
    ),
    click.option(
        "--interval", type=float, metavar="D", help="Levels at BASE + k * D for all whole k."
    ),
    click.option(
        "--base", type=float, default=0.0, show_default=True, metavar="BASE", help="See --interval."
    ),
    click.option(
        "--polygons",
        is_flag=True,
        help="Write the areas lower < value <= upper instead of lines, along the edges of cells.",
    ),
    click.option(
        "--cumulative",
        is_flag=True,
        help="Each area contains all values up to its break; with --polygons and --breaks.",
    ),
]


def run(store: Any, output: str, **settings: Any) -> Any:
    from ..raster.contours.operation import contours

    return contours(store, output, **settings)


def tell(found: Any) -> str:
    count, levels = found.features, found.levels
    if "levels" not in found.report.result:  # areas
        return counted(count, "area")
    return f"{counted(count, 'line')} of {counted(levels, 'level')}"
