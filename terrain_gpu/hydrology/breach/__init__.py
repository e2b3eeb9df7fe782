"""Breach depressions: the tool `Breach`.

`rule` says how cuts are measured, `pits` finds pits, `kernels` the channels, `operation` runs both,
and `lines` draws the channels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...arguments import cells_away, height
from ...facts import Findings, Settings
from ...plurals import counted
from ...tool import InputLayer, PathLike, Tool, file, option, reads, tool, writes

if TYPE_CHECKING:
    from ...engine.run import Result

LAYER = "breached"


@tool
class Breach(Tool):
    """Breach depressions: cut a channel from each pit along the least-cost path to a lower cell.

    A pit is a cell, or a flat, without a lower neighbour and without an outlet. Outlets are the
    cells at the raster's edge and next to voids that reach it. The path leads from the pit (the
    first cell of a flat) to a lower cell or an outlet, and all higher cells on it are lowered to
    the elevation of the pit. It is the one with the least sum of cuts (Lindsay 2016); of several,
    one with the fewest steps. Pits that no channel within the limits reaches remain: fill them
    afterwards.

    Returns
    -------
    Result
        Its `layers` are named {into}: of the type of the elevations, with their nodata value.
        `found` has the numbers of "pits", of those "breached" and of cells "lowered", the
        "deepest_cut", and the "volume" of all cuts: elevations times areas, which are in square
        metres in a geographic CRS.

    Raises
    ------
    InputError
        when a name, the distance or the depth cannot be used, or lines cannot be written there.

    Notes
    -----
    All paths are found on the elevations as they are; where they meet, the lowest cut counts.

    A line leads from a pit to the end of its path, in the order of pits, row by row. Its attributes
    are pit and end, ids (row * columns + column) of these cells; the number of its cells; its
    length, in map units, or in metres for a geographic CRS; cost, the sum of all cuts below the
    elevations as they were, and the largest cut; height and end_height, those of the pit and,
    before it is cut, of the end. With a client, this process draws the lines.

    J. B. Lindsay (2016), Efficient hybrid breaching-filling sink removal methods for flow path
    enforcement in digital elevation models; Hydrological Processes 30. J. B. Lindsay and K. Dhun
    (2015), Modelling surface drainage patterns in altered landscapes using LiDAR; International
    Journal of Geographical Information Science 29.

    Examples
    --------
    >>> breach("dem.zarr", max_depth=5)
    >>> minimum_spanning_tree("dem.zarr", weight="flow", layer="breached")
    """

    max_distance: int = option(
        default=50,
        metavar="CELLS",
        check=cells_away,
        help="Largest distance of a path from its pit, in rows and columns.",
    )
    max_depth: float | None = option(
        default=None,
        metavar="HEIGHT",
        check=height,
        help="The deepest cut, in the unit of the elevations. Other pits remain.  [default: no "
        "limit]",
    )
    inner_voids: bool = option(default=False, help="Cells next to inner voids are also outlets.")
    layer: str = reads(default="elevation", help="Layer of elevations.")
    into: str = writes(default=LAYER, help="Layer to write the breached elevations to.")
    lines: PathLike | None = file(
        default=None,
        kind="lines",
        help="Also write the paths as lines: .gpkg (layer breach_lines), .geojson, .parquet or "
        ".fgb, with pit, end, cost, largest cut and elevations.",
    )

    command = function = accessor = "breach"
    group = "Hydrology"
    short = "Cut channels through the rims of depressions"
    examples = """
    terrain-gpu breach dem.tif -o breached.tif
    terrain-gpu breach dem.zarr --max-depth 5 --lines cuts.gpkg
    compute-mst dem.zarr --layer breached --weight flow
    """
    operation = ".operation:BreachedHeights"
    mark = "breach_of"
    proof = ".proof:verify_stored_breach"

    def inputs(self) -> tuple[InputLayer, ...]:
        return (InputLayer(self.layer),)

    @classmethod
    def planned(cls, options: Settings) -> Breach:
        lines = "cuts.gpkg" if options["lines"] else None
        return cls(max_distance=options["max_distance"] or 50, lines=lines)

    @staticmethod
    def summary(result: Result) -> str:
        totals = result.found
        remaining = totals["pits"] - totals["breached"]
        return (
            f"{totals['breached']:,} of {totals['pits']:,} pits breached, {remaining:,} left; "
            f"{counted(totals['lowered'], 'cell')} lowered, by at most "
            f"{float(totals['deepest_cut']):.10g}"
        )

    @staticmethod
    def proven(totals: Findings) -> str:
        return f"{counted(totals['breached'], 'pit')} breached"
