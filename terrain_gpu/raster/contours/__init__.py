"""Contour lines, and areas between levels: the tool `DrawContours`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...arguments import exactly_one, positive, real, refused, wrong
from ...errors import ArgumentError
from ...facts import Settings
from ...plurals import counted
from ...tool import InputLayer, PathLike, Tool, drawing, option, reads, tool

if TYPE_CHECKING:
    from .lines import Contours


def _breaks(name: str, value: object) -> tuple[float, ...]:
    """Ascending numbers, of which the last may be infinite."""
    if isinstance(value, str | bytes) or not np.iterable(value):
        raise wrong(name, value, "a list of numbers")
    found = tuple(float(real(name, one)) for one in value)
    if not found:
        raise ArgumentError("{breaks} are empty; give at least one number")
    for one in found[:-1] if found[-1] == math.inf else found:
        if not math.isfinite(one):
            raise refused(name, f": {one} is not a finite number")
    for one, other in itertools.pairwise(found):
        if not one < other:
            raise refused(name, f": {other:g} follows {one:g}; give them in ascending order")
    return found


def _finite(name: str, value: object) -> float:
    if not math.isfinite(found := float(real(name, value))):
        raise refused(name, f" {found} is not a finite number")
    return found


def _levels(settings: Settings) -> None:
    """Refuse what only areas may have, or areas between breaks."""
    areas, breaks = settings["polygons"], settings["breaks"]
    if breaks is not None and not areas and _breaks("breaks", breaks)[-1] == math.inf:
        raise refused("breaks", ": inf is not a finite number")
    if settings["cumulative"] and not (areas and breaks is not None):
        raise ArgumentError("{cumulative} areas need {polygons} and {breaks}: give both")


@tool
class DrawContours(Tool):
    """Write contour lines of a layer, or the areas between breaks.

    Lines are interpolated linearly between the centres of four cells (marching squares); in a
    saddle, the mean of the four decides. They have the higher ground on their left, end at the edge
    of the raster and at nodata, and have the attribute level.

    Areas ({polygons}) follow the edges of cells exactly, and are valid: one MultiPolygon for each
    band lower < value <= upper, with the attributes lower, upper, cells (their number) and area (in
    square metres on the ellipsoid in a geographic CRS, else in square map units). With {breaks},
    the lowest band has no lower bound. Areas of a layer of distances are isochrones.

    The file does not depend on block size, memory limit or threads.

    Returns
    -------
    Contours
        With the path of the file, the number of features, and of levels or breaks that have some.

    Raises
    ------
    InputError
        when breaks are not ascending, both or neither of breaks and interval are given, the
        interval is too small for the values, or the file cannot be written there.

    Notes
    -----
    W. E. Lorensen, H. E. Cline (1987), Marching cubes, SIGGRAPH '87, in two dimensions.

    Examples
    --------
    >>> contours("dem.zarr", "contours.gpkg", interval=10).features
    >>> frame = contours("dem.zarr", interval=10).to_geodataframe()
    >>> hours = [3600, 7200, 10800]
    >>> contours("dem.zarr", "hours.gpkg", layer="distance", breaks=hours, polygons=True)
    """

    path: PathLike | None = drawing(
        layer="contours", metavar="CONTOURS.gpkg|.geojson|.parquet|.fgb"
    )
    layer: str = reads(
        default="elevation",
        help='Any layer, such as "distance". Values are compared as 64-bit floats.',
    )
    breaks: Sequence[float] | None = option(
        default=None,
        metavar="A,B,...",
        check=_breaks,
        help="Levels in units of the layer, ascending. {polygons} leave out values above the last "
        "one, which may be infinite (inf).",
    )
    interval: float | None = option(
        default=None,
        metavar="D",
        check=positive,
        help="Instead of {breaks}: levels at {base} + k * {interval}, for all whole k.",
    )
    base: float = option(
        default=0.0, metavar="BASE", check=_finite, help="One of the levels of {interval}."
    )
    polygons: bool = option(
        default=False,
        help="Write the areas lower < value <= upper instead of lines, along the edges of cells.",
    )
    cumulative: bool = option(
        default=False,
        help="Each area contains all values up to its break, so areas overlap; with {polygons} and "
        "{breaks}.",
    )

    command = function = accessor = "contours"
    positional = ("path",)
    group = "Terrain"
    short = "Write contour lines, or areas between breaks"
    examples = """
    terrain-gpu contours dem.zarr contours.gpkg --interval 10
    terrain-gpu contours dem.zarr hours.gpkg --layer distance --polygons \\
        --breaks 3600,7200
    """
    operation = ".operation:contours_of"
    result = "Contours"
    rules = (exactly_one("breaks", "interval"), _levels)

    def inputs(self) -> tuple[InputLayer, ...]:
        return (InputLayer(self.layer),)

    @classmethod
    def planned(cls, asked: Settings) -> DrawContours:
        file = "contours.gpkg"
        if count := asked["cumulative"]:
            return cls(file, breaks=range(count), polygons=True, cumulative=True)
        return cls(file, interval=1.0, polygons=asked["polygons"])

    @staticmethod
    def summary(result: Contours) -> str:
        count, levels = result.features, result.levels
        if "levels" not in result.report.result:  # areas
            return counted(count, "area")
        return f"{counted(count, 'line')} of {counted(levels, 'level')}"
