"""Height above the nearest drainage: the tool `Hand`; `divided` over several directions."""

from __future__ import annotations

from ...arguments import HandMethod, amount, exactly_one, is_area
from ...facts import Findings, Settings
from ...plurals import counted
from ...tool import COUNTS, InputLayer, Tool, made_by, option, reads, tool, writes

LAYER = "hand"


@tool
class Hand(Tool):
    """Compute the height above the nearest drainage (HAND): above the stream a cell drains to.

    That is the elevation of a cell minus that of the first stream cell on its flow path. Streams
    are the cells whose flow accumulation reaches {threshold}, the cells of another layer
    ({streams}), or only the outlets ({to_outlets}). Cells whose flow path reaches no stream are
    nodata (-9999).

    With {method} dinf, flow divides between two neighbours (D-infinity), and heights and distances
    are averages over all flow paths. Elevations are filled first; flats follow the directions.

    Returns
    -------
    Result
        Its `layers` are named {into} and {distance}.

    Raises
    ------
    InputError
        when a name cannot be used, or there is not exactly one of {threshold}, {streams} and
        {to_outlets}.
    StoreError
        when directions form a loop without a stream.

    Notes
    -----
    A. D. Nobre and others (2011), Journal of Hydrology 404. Lengths are summed as integers of a
    unit of about 2^-61 of the longest possible path, so they do not depend on the blocks.

    With "dinf", a stream has 0, and any other cell the average, over the cells that it drains to,
    of their values and the step there: the difference of elevations, or the length. That is the
    vertical drop and the horizontal distance of TauDEM's D-Infinity Distance Down (average), with
    its rule for edges: nodata where any part of the flow meets no stream, or a nodata cell. A cell
    that drains to one other, in flats and under water, follows the directions. See
    `flow_accumulation` for how cells divide.

    Examples
    --------
    >>> result = hand("dem.zarr", threshold=1000, distance="distance_to_stream")
    >>> heights = result.layers["hand"].read_window(0, 100, 0, 100)
    """

    threshold: float | str | None = option(
        default=None,
        metavar="N|AREA",
        check=amount,
        help="Cells are streams where the accumulation is at least this: a number of cells such as "
        "1000, or an area such as 5km2, 300ha or 90000m2.",
    )
    streams: str | None = reads(
        default=None, help="Instead: cells are streams where this layer is neither 0 nor nodata."
    )
    to_outlets: bool = option(
        default=False,
        help="Instead: only the outlets are streams, where flow paths end; {distance} is the "
        "downstream flow length then.",
    )
    accumulation: str = reads(
        default="flow_accumulation", help="Layer of flow accumulation, for {threshold}."
    )
    directions: str = reads(default="flow_direction", help="Layer of D8 flow directions.")
    layer: str = reads(default="elevation", help="Layer of elevations.")
    into: str = writes(
        default=LAYER,
        help="Layer to write the heights above streams to: float32; float64 with dinf, and for "
        "elevations of float64 or of integers of 32 or more bits.",
    )
    distance: str | None = writes(
        default=None,
        help="Also write this layer: the length of the flow path to the stream, float64, in map "
        "units (metres in a geographic CRS).",
    )
    method: HandMethod = option(
        default="d8",
        help="d8: along the flow directions. dinf: averages over D-infinity flow paths.",
    )
    filled: str = reads(
        default="filled",
        help="Layer of filled elevations for dinf, with the outlets of the directions.",
    )

    command = function = accessor = "hand"
    positional = ("threshold",)
    group = "Hydrology"
    short = "Compute the height above the nearest drainage (HAND)"
    title = "Height above nearest drainage"
    style = "distance"
    examples = """
    terrain-gpu hand dem.zarr --threshold 1000 --distance distance_to_stream
    terrain-gpu hand dem.zarr --to-outlets --into relief --distance flow_length
    terrain-gpu hand dem.tif --threshold 1000 -o hand.tif
    """
    operation = ".operation:operation_of"
    refuses = ".operation:refuse"
    needs = ("flow-accumulation", "flow-direction", "fill")
    rules = (exactly_one("threshold", "streams", "to_outlets"),)
    mark = "hand_of"
    proof = ".proof:verify_stored_above"

    def inputs(self) -> tuple[InputLayer, ...]:
        codes = InputLayer(self.directions, "uint8", made_by=made_by("flow-direction"))
        layers: tuple[InputLayer, ...] = codes, InputLayer(self.layer)
        if self.threshold is not None:
            areas = is_area(self.threshold)
            sums = made_by("flow-accumulation", directions=self.directions, areas=areas)
            layers = *layers, InputLayer(self.accumulation, COUNTS, made_by=sums)
        elif self.streams is not None:
            layers = *layers, InputLayer(self.streams, COUNTS)
        if self.method == "d8":
            return layers
        filled = InputLayer(self.filled, made_by=made_by("fill", directions=self.directions))
        return filled, *layers

    @classmethod
    def planned(cls, options: Settings) -> Hand:
        return cls(threshold=1000, distance="distance", method=options["method"] or "d8")

    @staticmethod
    def proven(totals: Findings) -> str:
        return counted(totals["cells"], "cell above a stream")
