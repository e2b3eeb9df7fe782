"""Flow accumulation: the tool `FlowAccumulation`; `divided` over several directions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...arguments import FlowMethod, UpstreamStatistic, positive
from ...facts import Findings
from ...plurals import counted
from ...tool import InputLayer, Tool, late_rule, made_by, option, reads, tool, writes

if TYPE_CHECKING:
    from ...engine.run import Result

LAYER = "flow_accumulation"


@tool
class FlowAccumulation(Tool):
    """Count the cells, or sum the areas or weights, that drain through each cell.

    Follows flow directions. Cells that do not drain are nodata.

    With {method}, cells divide what drains through them: between two neighbours by the steepest
    descent over triangular facets (dinf), or among all lower ones by slopes (mfd), and the lengths
    of contours (quinn). Elevations are filled first; cells without lower neighbours, and those
    under water, follow the flow directions.

    Returns
    -------
    Result
        Its `layers` are named {into}. Cells are uint32 (int64 for rasters of 2^32 cells or more,
        and with {exclude_self}), areas float64; nodata is 0, or -1 with {exclude_self}. Sums and
        means of weights: float64, nodata NaN. Extremes: the type and nodata value of the weights;
        cells that do not drain keep their values. Edge cells: int32 (int64 for rasters of 2^31
        cells or more), nodata is -1. With weights, `found` has "without_weight", the number of
        cells that drain but have none.

    Raises
    ------
    InputError
        when a name cannot be used, options exclude each other, or a weight is infinite.
    StoreError
        when the store is damaged, lacks a layer or already has one of the results, or the flow
        directions form a loop.

    Notes
    -----
    Sums are sums of integers, so they do not depend on the blocks; see `area_units`. Weights are
    rounded to a power of two, 2^-62 to 2^-60 of the largest size of a weight times the number N of
    cells of the raster. So a sum of n weights errs by at most n N 2^-61 of the largest, in addition
    to the rounding to float64. Integers of which N times the largest is below 2^62 are summed
    exactly.

    Where cells divide what drains through them, sums are float64. Units are a power of two, 2^-50
    to 2^-49 of the largest sum possible, and a cell rounds what each neighbour receives to whole
    units; the neighbour with the largest part gets what remains, so nothing is lost. Powers and
    angles do not depend on the machine.

    D-infinity: D. Tarboton 1997, Water Resources Research 33. Multiple flow directions: T. Freeman
    1991, Computers & Geosciences 17; P. Quinn and others 1991, Hydrological Processes 5.

    Examples
    --------
    >>> result = flow_accumulation("dem.zarr", areas=True)
    >>> areas = result.layers["flow_accumulation"].read_window(0, 100, 0, 100)
    """

    directions: str = reads(
        default="flow_direction",
        help="Layer of D8 flow directions, uint8: E 1, SE 2, S 4, SW 8, W 16, NW 32, N 64, NE 128; "
        "0 at outlets, 255 (or the layer's nodata) at cells that do not drain. Methods other "
        "than d8 need directions made by flow-direction.",
    )
    method: FlowMethod = option(
        default="d8", help="How a cell divides its flow among its neighbours."
    )
    exponent: float | None = option(
        default=None,
        metavar="P",
        check=positive,
        help="Exponent of the slope when flow is divided.  [default: 1.1 for mfd, 1 for quinn]",
    )
    filled: str = reads(
        default="filled",
        help="Layer of filled elevations, with the same outlets, for methods other than d8.",
    )
    areas: bool = option(
        default=False,
        help="Sum areas instead of cells, in square map units (square metres in a geographic CRS); "
        "or weights times areas.",
    )
    exclude_self: bool = option(
        default=False,
        help="Exclude the cell itself: 0 at cells into which nothing drains. Not for extremes "
        "and below.",
    )
    weights: str | None = reads(
        default=None,
        help="Layer of values to sum instead of cells, such as rain or runoff; they may be "
        "negative. Nodata cells count nothing.",
    )
    statistic: UpstreamStatistic = option(
        default="sum",
        help="Statistic of {weights} over the cells upstream and the cell itself. The minimum of "
        "elevations is the carved DEM. below: the usual accumulation, but only at and downstream "
        "of cells whose weight is neither 0 nor nodata, and 0 elsewhere.",
    )
    edge_cells: bool = option(
        default=False,
        help="Instead, count the cells upstream that lie on the edge of the data and drain "
        "inwards. Where there are any, water may come in from beyond the edge, and sums may be too "
        "small. Only for d8, without {weights}, {areas} and {exclude_self}.",
    )
    into: str | None = writes(
        default=None,
        help="Layer to write to.  [default: flow_accumulation, upstream_STATISTIC of weights, or "
        "upstream_edge_cells]",
    )

    command, function, accessor = "flow-accumulation", "flow_accumulation", "flow_accumulation"
    group = "Hydrology"
    short = "Count or sum what drains through each cell"
    style = "accumulation"
    examples = """
    terrain-gpu flow-accumulation dem.zarr --areas
    terrain-gpu flow-accumulation dem.zarr --weights rain --statistic mean
    terrain-gpu flow-accumulation dem.zarr --edge-cells
    terrain-gpu flow-accumulation dem.tif -o accumulation.tif
    terrain-gpu flow-accumulation dem.tif --method dinf --areas -o areas.tif
    """
    operation = ".operation:accumulation"
    planner = ".operation:plan_sums_of"
    gpu = "one"
    rules = (late_rule("hydrology.flow_accumulation.operation:refuse_arguments"),)
    needs = ("flow-direction", "fill")
    mark = "accumulation_of"
    proof = ".proof:verify_stored"

    def inputs(self) -> tuple[InputLayer, ...]:
        codes = InputLayer(self.directions, "uint8", made_by=made_by("flow-direction"))
        heights = InputLayer(self.filled, made_by=made_by("fill", directions=self.directions))
        weights = () if self.weights is None else (InputLayer(self.weights, option="weights"),)
        return (codes, *weights) if self.method == "d8" else (heights, codes, *weights)

    @staticmethod
    def summary(result: Result) -> str:
        without = result.found.get("without_weight")
        note = f", {without:,} that drain without a weight" if without else ""
        return Tool.summary(result) + note

    @staticmethod
    def proven(totals: Findings) -> str:
        return counted(totals["cells"], "cell that drains", "cells that drain")
