"""Sums along the spanning forest: the tool `TreeAccumulation`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts import Findings
from ...plurals import counted
from ...tool import InputLayer, PlacesLike, Tool, option, tool, writes
from ..common.outlet_options import added_outlets, outlets
from ..common.tree import TREE

if TYPE_CHECKING:
    from .operation import Accumulation

LAYER = "accumulation"


@tool
class TreeAccumulation(Tool):
    """Count the cells, or sum the areas, that drain through each cell along the spanning forest.

    The forest (compute-mst; of weight flow, if it has to be computed) is rooted at the outlets. By
    default, these are the cells on the raster's edge or next to nodata that have no lower neighbour
    or over which a depression spills; with weight max, whose edges have no slopes, all cells there.
    Every cell drains along the forest to one outlet. A tree with several outlets is cut between any
    two of them at the heaviest edge of the path that joins them, which is the divide, as if water
    rose from all outlets at once. Trees without an outlet drain nowhere.

    Each cell of the result is the sum over all cells upstream, itself included; 0 if no outlet is
    reached, and at nodata cells.

    Returns
    -------
    Accumulation
        Its `layer` has the sums: cells as uint32 (int64 for rasters of 2^32 cells or more), areas
        as float64. Its `directions` are None unless they are written.

    Raises
    ------
    InputError
        when an outlet is nodata, a result would replace one of its own inputs, or `verify` is
        set without {directions}.
    StoreError
        when the weight of the spanning forest is "absdiff", or has no slopes for these outlets; or
        it is out of date.

    Notes
    -----
    The result is the minimum spanning forest relative to the outlets: J. Cousty, G. Bertrand, L.
    Najman, M. Couprie (2009), Watershed cuts: minimum spanning forests and the drop of water
    principle; IEEE TPAMI 31(8). Sums are sums of integers, so they do not depend on the blocks; see
    `area_units`.

    Examples
    --------
    >>> result = accumulate("dem.zarr", areas=True)
    >>> areas = result.layer.read_window(0, 100, 0, 100)
    """

    outlets: PlacesLike | str | None = outlets(
        form="border outlets",
        python="Cells, in the forms that `shortest_paths` accepts as sources, or a name, as for "
        '`flow_direction`. None: "low_border", or "border" for a spanning forest of weight "max", '
        "whose edges have no slopes.",
    )
    add_outlets: PlacesLike | None = added_outlets(form="added border outlets")
    areas: bool = option(
        default=False,
        help="Sum areas instead of cells, in square map units (square metres in a geographic CRS).",
    )
    into: str = writes(default=LAYER, help="Layer to write the sums to.")
    directions: str | None = writes(
        default=None,
        help="Also write this layer: D8 codes of the downstream steps, uint8 (E 1, SE 2, ... NE "
        "128; 0 outlet, 255 no outlet reached). The sums are verified along these.",
    )

    command = function = accessor = "accumulate"
    positional = ("outlets",)
    group = "Hydrology"
    short = "Count or sum what drains along the spanning forest"
    style = "accumulation"
    result = "Accumulation"
    examples = """
    terrain-gpu accumulate dem.zarr
    terrain-gpu accumulate dem.tif --outlets gauges.gpkg --areas -o upstream.tif
    """
    operation = ".operation:operation_of"
    planner = ".operation:plan_asked"
    refuses = ".operation:refuse"
    needs = ("compute-mst",)
    mark = "outlets"
    proof = ".proof:verify_stored_drainage"

    def inputs(self) -> tuple[InputLayer, ...]:
        return InputLayer("elevation"), TREE

    @staticmethod
    def summary(result: Accumulation) -> str:
        missing = result.report.valid_cells - result.reached
        return TreeAccumulation.proven({"reached": result.reached, "outlets": result.outlets}) + (
            f", {counted(missing, 'reaches none', 'reach none')}" if missing else ""
        )

    @staticmethod
    def proven(totals: Findings) -> str:
        return (
            f"{counted(totals['reached'], 'cell drains', 'cells drain')} to "
            f"{counted(totals['outlets'], 'outlet')}"
        )
