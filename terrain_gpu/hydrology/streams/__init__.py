"""Channels, the cells through which enough drains, as links with orders: the tool `FindStreams`.

`inputs` opens directions and sums, `pieces` traces channels within a block, and `links` joins the
pieces of all blocks and orders them. `orders` writes orders as a raster and `lines` links as
lines, both on `base`; `operation` has the result, and combines the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...arguments import StreamOrder, amount, is_area
from ...errors import ArgumentError
from ...facts import Findings, Settings
from ...plurals import counted
from ...tool import (
    COUNTS,
    SIGNED_COUNTS,
    InputLayer,
    PathLike,
    Tool,
    file,
    made_by,
    option,
    reads,
    tool,
    writes,
)

if TYPE_CHECKING:
    from .operation import Streams

LAYER = "streams"


def _refuse_edge_cells(settings: Settings) -> None:
    if settings["edge_cells"] and settings["lines"] is None:
        raise ArgumentError("{edge_cells} is an attribute of lines; also give {lines}")


@tool
class FindStreams(Tool):
    """Find streams: the cells through which at least a threshold drains, with a stream order.

    Streams consist of links. A link begins at a head, into which no stream flows, or at a junction,
    into which several do. It ends at the next junction or at an outlet. A junction's own cell
    belongs to the link that begins there. The layer holds the {order} of each stream cell, 0
    elsewhere.

    Returns
    -------
    Streams
        Its `layer` has the orders: uint8 for strahler, horton and hack; else uint32, or int64 for
        rasters of 2^32 cells or more.

    Raises
    ------
    InputError
        when the threshold is not positive, cannot be converted to the unit of the sums, or leaves
        no stream; when the file of lines cannot be written there, or {edge_cells} lacks one.
    StoreError
        when sums, or counts of edge cells, belong to other directions, or these form a loop.

    Notes
    -----
    The orders of a link are

    - strahler (Strahler 1957): 1 at heads; at a junction, one more than the greatest order that
      flows in, if several links have it, else that;
    - shreve (Shreve 1966): the number of heads upstream;
    - horton (Horton 1945): as strahler, but a stream keeps its order up to its head. At a junction
      it continues along the link of the greatest Strahler order; of several, the main one;
    - hack (Hack 1957, Gravelius): 1 along main links from an outlet up to a head; one more than the
      link that it flows into on others;
    - topological: the number of links down to the outlet, itself included;
    - link: its number, 1, 2, ... in row-major order of first cells.

    The main one of several links that flow together has the largest sum at its lower end; of equal
    ones, the one whose last cell comes first in row-major order. Nothing depends on block size,
    memory limit or threads.

    The line of a link leads from its first cell to the next junction or the outlet. A link of one
    cell, an outlet at which links end, has none. Its attributes are

    - id: its number; downstream: the link that it flows into, 0 at outlets; outlet: the last link
      downstream;
    - start, end: ids (row * columns + column) of the cells at which its line begins and ends;
      cells: the number of its own cells, without the next junction;
    - length: of the line, in map units, or in metres for a geographic CRS; sinuosity: length by the
      straight distance between its ends; drop, slope: the difference of their elevations, and this
      by the length;
    - accumulation: the sum at its last cell;
    - edge_cells, if wanted: how many cells on the edge of the data (at the raster's edge or next to
      nodata) drain inwards and through its last cell; 0 where the sum is complete;
    - strahler, shreve, horton, hack, topological: its orders;
    - pfafstetter: its code after Verdin and Verdin (1999), as text; equal links of the networks of
      different outlets have equal codes.

    A junction has its id, its kind ("head", "junction" where links meet, or "outlet"), the number
    of links upstream that end there, the link downstream that begins there (0 at outlets) and the
    elevation of its cell.

    Examples
    --------
    >>> result = streams("dem.zarr", "5km2")
    >>> orders = result.layer.read_window(0, 100, 0, 100)
    """

    threshold: float | str = option(
        metavar="N|AREA",
        check=amount,
        help="Cells are streams where the accumulation is at least this: a number of cells such as "
        "1000, or an area such as 5km2, 300ha or 90000m2; for sums of other quantities, a number "
        "in their unit.",
    )
    directions: str = reads(default="flow_direction", help="Layer of flow directions.")
    accumulation: str = reads(
        default="flow_accumulation",
        help="Layer of flow accumulation along these directions, in cells or areas.",
    )
    order: StreamOrder = option(
        default="strahler", metavar="ORDER", help="Stream order to write: strahler, shreve, "
        "horton, hack, topological, or link (the number of the link).",
    )  # fmt: skip
    into: str = writes(default=LAYER, help="Layer to write the orders to.")
    lines: PathLike | None = file(
        default=None,
        kind="lines",
        help="Also write the links as lines, with their lengths, slopes, orders and Pfafstetter "
        'codes: .geojson, .json, .parquet, .fgb, or .gpkg (layer "streams"; layer "junctions" has '
        "the cells where links begin, and the outlets).",
    )
    heights: str = reads(
        default="elevation",
        help="Layer of elevations, for the drop and the slope of lines.",
        formerly="layer",
    )
    edge_cells: bool = option(
        default=False,
        help="Give lines the attribute edge_cells: how many cells on the edge of the data drain "
        "inwards and through them. Where there are any, water may come in from beyond the edge.",
    )

    command = function = accessor = "streams"
    group = "Hydrology"
    short = "Find streams, their orders and their lines"
    result = "Streams"
    examples = """
    terrain-gpu streams dem.zarr --threshold 1000
    terrain-gpu streams dem.zarr --threshold 5km2 --lines streams.gpkg
    terrain-gpu streams dem.zarr --threshold 900 --lines s.gpkg --edge-cells
    terrain-gpu streams dem.tif --threshold 1000 -o streams.tif
    """
    operation = ".operation:operation_of"
    refuses = ".inputs:refuse_channels"
    needs = ("flow-accumulation", "flow-direction")
    rules = (_refuse_edge_cells,)
    mark = "streams_of"
    proof = ".proof:verify_stored_orders"

    def inputs(self) -> tuple[InputLayer, ...]:
        codes = InputLayer(self.directions, "uint8", made_by=made_by("flow-direction"))
        sums = made_by(
            "flow-accumulation", directions=self.directions, areas=is_area(self.threshold)
        )
        layers = codes, InputLayer(self.accumulation, COUNTS, made_by=sums)
        if self.lines is None:
            return layers
        edge = made_by("flow-accumulation", directions=self.directions, edge_cells=True)
        counts = InputLayer("upstream_edge_cells", SIGNED_COUNTS, made_by=edge)
        return (*layers, InputLayer(self.heights), *([counts] if self.edge_cells else []))

    @classmethod
    def planned(cls, options: Settings) -> FindStreams:
        return cls(
            options["threshold"] or 1000,
            order=options["order"] or "strahler",
            lines="streams.gpkg" if options["lines"] else None,
            edge_cells=options["edge_cells"],
        )

    @staticmethod
    def summary(result: Streams) -> str:
        from ...grid.lengths import length_unit

        unit = length_unit(result.layer.grid)
        return (
            f"{counted(result.links, 'link')} of {counted(result.cells, 'cell')}, length "
            f"{result.length:.10g} {unit}, from {counted(result.heads, 'head')} to "
            f"{counted(result.outlets, 'outlet')}"
        )

    @staticmethod
    def proven(totals: Findings) -> str:
        return counted(totals["links"], "link")
