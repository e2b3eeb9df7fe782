"""D8 flow directions: the tool `FlowDirection`.

`operation` follows the spanning forest, and `gradient` drains the flats of filled elevations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...arguments import DepressionsMethod, FlatsMethod, cells_away, height
from ...facts import Findings, Settings
from ...plurals import counted
from ...tool import (
    InputLayer,
    PlacesLike,
    Tool,
    late_rule,
    made_by,
    option,
    places,
    reads,
    tool,
    writes,
)
from ..common.outlet_options import added_outlets, outlets

if TYPE_CHECKING:
    from ...engine.run import Result

LAYER = "flow_direction"


@tool
class FlowDirection(Tool):
    """Compute the D8 flow direction of every cell.

    Every cell drains to its steepest lower neighbour. Flats drain along the spanning tree,
    depressions are carved at their lowest passes: all flow paths end at outlets. By default, these
    are cells on the raster's edge, or next to voids that reach it, that have no lower neighbour or
    over which a depression spills. Codes: E 1, SE 2, S 4, SW 8, W 16, NW 32, N 64, NE 128; 0 at
    outlets, 255 (nodata) where none is reached.

    With {depressions} fill, depressions are filled instead, and flats drain towards lower and away
    from higher cells (Barnes 2014). With breach, channels are cut first, as `breach` does; what is
    left is carved, or filled with {flats} gradient. Layers that this needs (mst, filled, breached,
    burned) are computed if they are missing. Those of other elevations or settings are rejected,
    unless the run may overwrite them.

    Returns
    -------
    Result
        Its `layers` are named {into}: uint8. `found` has the numbers of valid "cells" and of
        "outlets". The report's `valid_cells` drain.

    Raises
    ------
    InputError
        when a name, the outlets or the streams cannot be used, elevations were filled for other
        outlets, or flats cannot drain so in such depressions.
    StoreError
        when the weight of the spanning forest is not "flow", or there are no such filled
        elevations; when elevations were breached and should not be, or the other way round; when a
        layer is damaged, or the result exists already.

    Notes
    -----
    The minimum spanning forest relative to the outlets (J. Cousty and others 2009, Watershed cuts),
    of edges ordered by their higher end, then the steeper first. Gradients in flats: R. Barnes,
    C. Lehman, D. Mulla (2014), An efficient assignment of drainage direction over flat surfaces in
    raster digital elevation models; Computers & Geosciences 62. They are computed on the CPU.

    Examples
    --------
    >>> codes = flow_direction("dem.zarr").layers["flow_direction"]

    Depressions breached where 5 m suffice, and the others carved:

    >>> flow_direction("dem.zarr", depressions="breach", max_depth=5, overwrite=True)
    """

    outlets: PlacesLike | str | None = outlets(
        python='"low_edge": of the cells at the raster\'s edge and next to voids (nodata cells, '
        "joined over eight neighbours) that reach it, those without a lower neighbour, and "
        "those over which a depression spills; the others drain to their steepest lower neighbour. "
        '"low_border": also of the cells next to inner voids. "edge" and "border": all of these '
        "cells, also where the ground falls inwards. Or cells, in the forms that `shortest_paths` "
        "accepts as sources. With gradients, those for which the elevations were filled. None: "
        '"low_edge".',
    )
    add_outlets: PlacesLike | None = added_outlets()
    depressions: DepressionsMethod | None = option(
        default=None,
        help="How water leaves depressions. carve: along the spanning tree, over their lowest "
        "passes. fill: across the surface of filled elevations. breach: through channels.  "
        "[default: fill with {flats} gradient, else carve]",
    )
    flats: FlatsMethod | None = option(
        default=None,
        help="How flats drain: along the spanning tree, or by gradients of filled elevations.  "
        "[default: gradient with {depressions} fill, else tree]",
    )
    max_distance: int | None = option(
        default=None,
        metavar="CELLS",
        check=cells_away,
        help="With breach: the largest distance of a channel from its pit, in rows and columns.  "
        "[default: 50]",
    )
    max_depth: float | None = option(
        default=None,
        metavar="HEIGHT",
        check=height,
        help="With breach: the deepest cut.  [default: no limit]",
    )
    burn: PlacesLike | None = places(
        default=None,
        form="streams",
        help="Lower the elevations that the lines and polygons of a vector file touch, or the "
        "cells of an aligned raster, first.",
        python="Streams to burn first: cells whose elevations are lowered, as for `burn`.",
    )
    burn_depth: float | None = option(
        default=None,
        metavar="HEIGHT",
        check=height,
        help="By how much {burn} lowers them.",
    )
    layer: str | None = reads(
        default=None,
        help="Layer of elevations. The spanning tree must have been computed from these, or from "
        "what is burned and breached from them.  [default: elevation, or else the layer that the "
        "tree was computed from]",
    )
    filled: str = reads(
        default="filled", help="Layer of filled elevations for gradients, for the same outlets."
    )
    into: str = writes(default=LAYER, help="Layer to write the directions to.")

    command, function, accessor = "flow-direction", "flow_direction", "flow_direction"
    positional = ("outlets",)
    group = "Hydrology"
    short = "Compute D8 flow directions"
    style = "directions"
    examples = """
    terrain-gpu flow-direction dem.zarr
    terrain-gpu flow-direction dem.tif -o directions.tif
    terrain-gpu flow-direction dem.zarr --depressions fill --into filled_way
    terrain-gpu flow-direction dem.zarr --depressions breach --max-depth 5
    terrain-gpu flow-direction dem.zarr --burn rivers.gpkg --burn-depth 10
    """
    operation = ".operation:operation_of"
    gpu = "one"
    rules = (late_rule("hydrology.flow_direction.operation:refuse_arguments"),)
    provides = "..conditioning:provide"
    needs = ("compute-mst", "burn", "breach")
    mark = "flats"
    replaces = "outlets"  # which those along the tree record, too
    proof = ".proof:verify_stored_gradient"
    modules = ("hydrology.fill.operation",)

    def inputs(self) -> tuple[InputLayer, ...]:
        if self.flats == "gradient" or self.depressions == "fill":
            filled = InputLayer(self.filled, made_by=made_by("fill"))
            return filled, InputLayer("flow_direction_tree", "uint8")
        return InputLayer("elevation"), InputLayer("mst", "uint8")

    @classmethod
    def planned(cls, options: Settings) -> FlowDirection:
        return cls(flats=options["flats"])

    @staticmethod
    def summary(result: Result) -> str:
        from ..forest.source import over_heights

        totals, reached = result.found, result.report.valid_cells
        text = f"{counted(reached, 'cell drains', 'cells drain')} to "
        text += counted(totals["outlets"], "outlet")
        if (cells := totals["cells"]) > reached:
            text += f", {counted(cells - reached, 'reaches none', 'reach none')}"
        return text + over_heights(result)

    @staticmethod
    def proven(totals: Findings) -> str:
        reached, ends = totals["reached"], totals["outlets"]
        return f"{counted(reached, 'cell drains', 'cells drain')} to {counted(ends, 'outlet')}"
