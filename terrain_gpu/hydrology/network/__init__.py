"""The spanning forest as a network of lines: the tool `ExtractNetwork`."""

from __future__ import annotations

from typing import Any

from ...arguments import at_least_one
from ...facts import Settings
from ...grid.distance import MAP_UNITS, in_unit
from ...plurals import counted
from ...tool import InputLayer, PathLike, PlacesLike, Tool, drawing, option, places, tool
from ..common.tree import TREE


@tool
class ExtractNetwork(Tool):
    """Write the main lines of the spanning forest as polylines.

    Dead ends shorter than {min_length} are removed. An edge of the forest belongs to the network
    when, on both of its sides, a path that begins with the edge is at least {min_length} long or
    leads to a kept point. Each remaining end is then extended along the longest path (along all of
    them, where several are equally long), unless it is a kept point. A tree without such an edge is
    dropped: none of its paths is twice as long as {min_length}. The output does not depend on block
    size, memory limit or threads.

    Every line connects two nodes. A node is a cell where three or more edges meet, an end, or a
    kept point. A line that uses both diagonals of a square of four cells is cut before the second
    one, so that no line crosses itself; its parts follow one another. The attributes of a line are
    start and end (row x columns + column of these cells, the smaller one first), weight (the sum of
    its edge weights), pass_height (the value of its highest cell), length (in map units, or in
    metres for a geographic CRS) and cells (their number).

    The forest is that of compute-mst; of weight flow, where it is missing.

    Returns
    -------
    Network
        With the path of the file, the numbers of lines and of cells on them, and the total length.

    Raises
    ------
    InputError
        when neither {min_length} nor {keep} is given, a kept point is nodata, or the file cannot be
        written there.

    Examples
    --------
    >>> network = extract_network("dem.zarr", "lines.gpkg", min_length="5km")
    >>> network.lines, network.length
    """

    path: PathLike | None = drawing(layer="network", metavar="LINES.geojson|.gpkg|.parquet|.fgb")
    min_length: float | str | None = option(
        default=None,
        metavar="LENGTH",
        check=in_unit(MAP_UNITS),
        help="Remove dead ends shorter than this, such as 5km. 0 removes nothing; without it, only "
        "kept points count.",
    )
    keep: PlacesLike | None = places(
        default=None,
        form="kept",
        help="Cells to keep and to end lines at: the points, lines and polygons of a vector file "
        "(FILE:LAYER for one layer of several), or the cells of an aligned raster that are neither "
        "0 nor nodata.",
        python="Cells that are never removed and at which lines end, in the forms that "
        "`shortest_paths` accepts as sources.",
    )

    command, function, accessor = "network", "extract_network", "network"
    positional = ("path",)
    group = "Hydrology"
    short = "Write the main lines of the spanning forest"
    title = "Spanning tree as lines"
    examples = """
    terrain-gpu network dem.zarr lines.gpkg --min-length 5km
    terrain-gpu network dem.zarr ways.geojson --keep huts.geojson
    """
    operation = ".operation:network_of"
    result = "Network"
    rules = (at_least_one("min_length", "keep"),)
    refuses = ".operation:refuse"
    needs = ("compute-mst",)

    def inputs(self) -> tuple[InputLayer, ...]:
        return InputLayer("elevation"), TREE

    @classmethod
    def planned(cls, options: Settings) -> ExtractNetwork:
        return cls("network.gpkg", min_length=0)

    @staticmethod
    def summary(result: Any) -> str:
        unit = result.report.result["length_unit"]
        return (
            f"{counted(result.lines, 'line')} over {counted(result.cells, 'cell')}, "
            f"length {result.length:.10g} {unit}"
        )
