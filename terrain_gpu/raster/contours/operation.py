"""Contours of a layer: lines, or the areas between breaks."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...arguments import checked, exactly_one, real, refused, wrong
from ...engine.run import Here, run
from ...errors import ArgumentError
from ...io.frames import FeatureResult, draws
from ...io.labelled import StoreLike, opened_store, takes_dataarrays
from ...io.lines import checked_target, refuse_too_fine
from ...progress import Progress, silent
from ...report import Report
from ..drawing.levels import ContourLevels
from .bands import ContourPolygons
from .lines import ContourLines


@dataclass(repr=False)
class Contours(FeatureResult):
    """Contours written to a file.

    Attributes
    ----------
    path
        The file.
    features
        Number of lines; of areas, each a MultiPolygon.
    levels
        Number of levels or breaks that have some.
    report
        The run's `Report`.
    """

    path: Path
    features: int
    levels: int
    report: Report


@takes_dataarrays
@draws("path")
@checked(exactly_one("breaks", "interval"))
def contours(
    store: StoreLike,
    path: str | os.PathLike[str] | None = None,
    *,
    layer: str = "elevation",
    breaks: Sequence[float] | None = None,
    interval: float | None = None,
    base: float = 0.0,
    polygons: bool = False,
    cumulative: bool = False,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Contours:
    """Write contour lines of a layer, or the areas between breaks: isochrones of a distance layer.

    *Lines* are interpolated linearly between the centres of four cells (marching squares). In a
    saddle, the mean of the four decides. A line has the higher ground on its left, ends at the
    raster's edge and at cells without a value, and has the attribute `level`.

    *Polygons* follow the edges of cells exactly, and are valid: one MultiPolygon for each band
    lower < value <= upper, with the attributes

    - lower, upper: its bounds; the lowest band of `breaks` has no lower one,
    - cells: the number of cells,
    - area: in square metres on the ellipsoid for a geographic CRS, else in square map units.

    The file does not depend on block size, memory limit or threads.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray.
    path
        A .gpkg (layer "contours"), .parquet or .fgb file, in the CRS of the raster; or a
        .geojson or .json file, in longitude and latitude; see `write_paths`. None for a temporary
        file, which `Contours.to_geodataframe` reads.
    layer
        Any layer, such as "distance". Values are compared as float64.
    breaks
        Levels in units of the layer. With `polygons`, values above the last one are left out; the
        last one may be infinite.
    interval, base
        Instead of breaks: levels at base + k * interval, for all whole k.
    polygons
        Write areas instead of lines.
    cumulative
        Each area contains all values up to its break, so areas overlap; only with `breaks`.
    memory_limit
        Limit on the peak resident set of the process in bytes; a quarter of RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Read the file back, and prove in another pass over the cells that it holds these lines or
        areas, and no others, before it appears.
    overwrite
        Replace an existing file, once the new one is complete.
    progress
        Called with the cells just done and all cells.

    Raises
    ------
    InputError
        when breaks are not ascending, both or neither of breaks and interval are given, the
        interval is too small for the values, or the file cannot be written there.
    PlanError
        when the memory limit is too small, for so many contours or for one of them.
    StoreError
        when the layer is missing or damaged.
    OutputError
        when the file cannot be written.
    VerificationError
        when the file is wrong.

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
    assert path is not None
    target = checked_target(path, overwrite=overwrite)
    opened = opened_store(store)
    levels = _breaks(breaks, polygons=polygons)
    if cumulative and not (polygons and levels):
        raise ArgumentError("{cumulative} areas need {polygons} and {breaks}: give both")
    if not math.isfinite(base := float(base)):
        raise refused("base", f" {base} is not a finite number")
    refuse_too_fine(path, opened.grid)
    opened.layer(layer)
    what = (str(opened.path), layer, str(path), ContourLevels(levels, interval or 0.0, base))
    operation = ContourPolygons(*what, cumulative) if polygons else ContourLines(*what)
    result = run(
        operation,
        memory_limit=memory_limit,
        threads=threads,
        overwrite=overwrite,
        verify=verify,
        place=Here(progress),
        client=client,
    )
    report, found = result.report, result.found
    report.result = {**report.result, "output": str(path)}
    for key in ("layers", "blocks_resumed"):
        del report.result[key]
    if polygons:
        report.valid_cells = found["cells"]
        return Contours(target, found["labels"], found["labels"], report)
    return Contours(target, found["lines"], found["levels"], report)


def _breaks(values: Any, *, polygons: bool) -> tuple[float, ...]:
    """Check breaks: ascending numbers, of which the last may be infinite for polygons."""
    if values is None:
        return ()
    if isinstance(values, str | bytes) or not np.iterable(values):
        raise wrong("breaks", values, "a list of numbers")
    found = tuple(float(real("breaks", one)) for one in values)
    if not found:
        raise ArgumentError("{breaks} are empty; give at least one number")
    for one in found if not polygons else found[:-1]:
        if not math.isfinite(one):
            raise refused("breaks", f": {one} is not a finite number")
    for one, other in itertools.pairwise(found):
        if not one < other:
            raise refused("breaks", f": {other:g} follows {one:g}; give them in ascending order")
    if math.isnan(found[-1]) or found[-1] == -math.inf:
        raise refused("breaks", f": {found[-1]} is not a number that values can reach")
    return found
