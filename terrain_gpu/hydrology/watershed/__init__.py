"""Watersheds of pour points or links: the tool `Watershed`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...arguments import amount, is_area
from ...errors import ArgumentError
from ...facts import Findings, Settings
from ...grid.distance import MAP_UNITS, in_unit
from ...plurals import counted
from ...tool import (
    COUNTS,
    InputLayer,
    PathLike,
    PlacesLike,
    Tool,
    file,
    made_by,
    option,
    places,
    reads,
    tool,
    writes,
)

if TYPE_CHECKING:
    from ...engine.run import Result

LAYER = "watershed"


def _areas(name: str, value: Any) -> Any:
    """An amount, or one for each of some ids."""
    if not isinstance(value, Mapping):
        return amount(name, value)
    return {key: amount(f"{{{name}}} of {key}", one) for key, one in value.items()}


def _refuse_others(settings: Settings) -> None:
    if settings["links"] is not None and settings["pour_points"] is not None:
        raise ArgumentError("{links} replaces {pour_points}: leave out one of them")
    if settings["links"] is None and settings["pour_points"] is None:
        raise ArgumentError("give {pour_points}, or {links}")
    if settings["links"] is not None and settings["snap"] is not None:
        raise ArgumentError("{snap} needs {pour_points}; leave it out for {links}")
    if settings["snap_area"] is not None and settings["snap"] is None:
        raise ArgumentError("{snap_area} needs {snap}, the search radius")


@tool
class Watershed(Tool):
    """Label watersheds: every cell with the pour point that its flow reaches first.

    Labels are 1, 2, ... in the order of the points, or the ids of a file. Several points in one
    cell have the lowest of their labels. Cells that reach no pour point are 0, the nodata value.

    Returns
    -------
    Result
        Its `layers` are named {into}: uint32, or of the type of {links}; and, with pour points,
        {into} and "_points": the points, so that watersheds can be proven. `found` has the number
        of "pour_points".

    Raises
    ------
    InputError
        when a name cannot be used, there is not exactly one of {pour_points} and {links}, or a pour
        point lies outside the raster, does not drain, or has nothing to snap to.
    StoreError
        when the store is damaged or lacks a layer, when directions form a loop without a pour
        point, or when the layer exists already.

    Examples
    --------
    >>> labels = watershed("dem.zarr", [(120, 40), (300, 200)], snap="200m").layers["watershed"]
    """

    pour_points: PlacesLike | None = places(
        default=None,
        form="pour points",
        help="Pour points at the points, lines and polygons of a vector file (FILE:LAYER for one "
        "layer of several), or at the cells of an aligned raster that are neither 0 nor nodata.",
        python="Cells, in the forms that `shortest_paths` accepts as sources. Their ids are the "
        "labels: 1, 2, ... in the given order, or those of a `Places`.",
    )
    links: str | None = reads(
        default=None,
        help="Instead: label each cell with the first value on its flow path in this layer of "
        "whole numbers that is neither 0 nor nodata, such as the links of streams (streams --order "
        "link).",
    )
    snap: float | str | None = option(
        default=None,
        metavar="DISTANCE",
        check=in_unit(MAP_UNITS),
        help="Move each pour point to the cell with the largest accumulation within this "
        "distance, such as 200m, or 3px for cells. Of equal ones to the nearest.",
    )
    snap_area: float | str | Mapping[int, float | str] | None = option(
        default=None,
        metavar="N|AREA|FIELD",
        check=_areas,
        form="area",
        python="Instead, move each to the cell within {snap} whose accumulation differs least from "
        'this: a number of cells, or an area such as "5km2"; or one for every id of the pour '
        "points.",
        help="Instead, move each to the cell within {snap} whose accumulation differs least from "
        "this: a number of cells such as 1000, or an area such as 5km2; or from its own, a field "
        "of {pour_points} in cells, or with its unit, such as AREA:km2.",
    )
    accumulation: str = reads(
        default="flow_accumulation", help="Layer of flow accumulation, for {snap}."
    )
    directions: str = reads(default="flow_direction", help="Layer of flow directions.")
    into: str = writes(default=LAYER, help="Layer to write the labels to.")
    table: PathLike | None = file(
        default=None,
        kind="table",
        help="Also write a table of the pour points or links, with cell counts, areas and the next "
        "one downstream: .csv, .parquet, .geojson, .gpkg or .fgb. It is not verified.",
    )

    command = function = accessor = "watershed"
    positional = ("pour_points",)
    group = "Hydrology"
    short = "Label the watersheds of pour points"
    style = "labels"
    examples = """
    terrain-gpu watershed dem.zarr --pour-points gauges.gpkg --snap 200m
    terrain-gpu watershed dem.zarr --links links
    terrain-gpu watershed dem.tif --pour-point 470300,5501200 -o watershed.tif
    """
    operation = ".operation:operation_of"
    refuses = ".operation:refuse"
    needs = ("flow-direction", "flow-accumulation")
    rules = (_refuse_others,)
    mark = "watershed_of"
    proof = ".proof:verify_stored_watershed"

    def inputs(self) -> tuple[InputLayer, ...]:
        codes = InputLayer(self.directions, "uint8", made_by=made_by("flow-direction"))
        if self.links is not None:
            return codes, InputLayer(
                self.links, option="links", made_by=made_by("streams --order link")
            )
        if self.snap is None:
            return (codes,)
        area = self.snap_area
        amounts = list(area.values()) if isinstance(area, Mapping) else [area]
        areas = any(one is not None and is_area(one) for one in amounts)
        sums = made_by("flow-accumulation", directions=self.directions, areas=areas)
        return codes, InputLayer(self.accumulation, COUNTS, made_by=sums)

    @classmethod
    def planned(cls, options: Settings) -> Watershed:
        points: Any = None if options["links"] else range(options["points"] or 0)
        return cls(points, options["links"], table="table" if options["table"] else None)

    @staticmethod
    def summary(result: Result) -> str:
        cells, count = result.report.valid_cells, result.found.get("pour_points")
        ends = "links" if count is None else counted(count, "pour point", "pour points")
        return f"{counted(cells, 'cell drains', 'cells drain')} to {ends}"

    @staticmethod
    def proven(totals: Findings) -> str:
        return f"{counted(totals['cells'], 'cell')} in watersheds"
