"""Features of vector files as a layer: the tool `Rasterize`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...arguments import real_or_word
from ...facts import Findings, Settings
from ...plurals import counted
from ...tool import InputLayer, PlacesLike, Tool, option, places, reads, tool, writes

if TYPE_CHECKING:
    from ...engine.run import Result

LAYER = "rasterized"


@tool
class Rasterize(Tool):
    """Write the cells of features into a layer, such as rivers as barriers.

    Every cell that a line or polygon touches gets a value; where features share a cell, the last
    one counts. Where a line passes exactly through a corner, diagonal steps of paths cross it,
    unless cutting corners is forbidden.

    Returns
    -------
    Result
        Its layer is named {into}; `found` has the number of cells "covered", how many of them are
        "changed", and their "digest".

    Raises
    ------
    InputError
        when a name, the features or a value cannot be used, or the type of {onto} does not hold a
        value.

    Notes
    -----
    A line covers every cell that it touches (J. Amanatides and A. Woo, "A fast voxel traversal
    algorithm for ray tracing", Eurographics 1987).

    Examples
    --------
    >>> from terrain_gpu.io.places import from_vector
    >>> grid = TileStore.open("dem.zarr").grid
    >>> rivers = from_vector(grid, "rivers.gpkg", all_touched=True, fields=False)
    >>> rasterize("dem.zarr", rivers, value=1, into="rivers")
    >>> shortest_paths("dem.zarr", [(0, 0)], barriers="rivers", corner_cutting=False)
    """

    features: PlacesLike = places(
        form="valued features",
        help="Lines, polygons and points of a vector file (FILE:LAYER for one layer of several), "
        "or the cells of an aligned raster that are neither 0 nor nodata.",
        python="Cells, in the forms that `shortest_paths` accepts as sources; "
        "``io.places.from_vector`` with `all_touched` finds those of lines and polygons, and with "
        "`cost_field` their values.",
    )
    value: float | str | None = option(
        default=None,
        metavar="VALUE|nodata",
        check=real_or_word("nodata"),
        help="What their cells become: a number, or nodata for none. By default 1 for a file "
        "without a field of values; in Python, the start costs of the features.",
    )
    onto: str | None = reads(
        default=None,
        help="Layer whose cells are kept elsewhere, and whose type and nodata value the result "
        "has. By default, other cells are 0, and the type is uint8 if that holds all values, else "
        "float64.",
    )
    into: str = writes(default=LAYER, help="Layer to write.")
    layer: str = reads(
        default="elevation", help="Layer whose blocks the result has, without {onto}."
    )

    command = function = accessor = "rasterize"
    group = "Cells and areas"
    short = "Write features into a layer"
    examples = """
    terrain-gpu rasterize dem.zarr --features rivers.gpkg --into rivers
    compute-sssp dem.zarr --source 1,2 --barriers rivers --no-corner-cutting
    terrain-gpu rasterize dem.zarr --features roads.gpkg --value 0.3 \\
        --onto friction --into faster
    """
    operation = ".operation:rasterized"
    mark = "features"
    proof = ".proof:verify_stored_rasterized"

    def inputs(self) -> tuple[InputLayer, ...]:
        return (InputLayer(self.onto or self.layer),)

    @classmethod
    def planned(cls, options: Settings) -> Rasterize:
        return cls((), onto="elevation")

    @staticmethod
    def summary(result: Result) -> str:
        return f"{counted(result.found['covered'], 'cell')} covered"

    @staticmethod
    def proven(totals: Findings) -> str:
        return counted(totals["changed"], "cell that features change")
