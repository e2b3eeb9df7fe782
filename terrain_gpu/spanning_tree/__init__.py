"""The minimum spanning forest of a raster, block by block: the tool `MinimumSpanningTree`.

`tile` finds the forest of 64 x 64 cells in cache, `block` joins the tiles of a block, `merge` joins
blocks four at a time, and `operation` runs all of it. Every level runs Boruvka's
algorithm and freezes the vertices that have edges outside; see docs/design/spanning-trees.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..arguments import Connectivity, TreeMethod, TreeWeight, counting, real
from ..facts import Findings
from ..plurals import counted
from ..tool import InputLayer, Tool, of_arrays, option, reads, tool

if TYPE_CHECKING:
    from .operation import SpanningTree

LAYER = "mst"


@tool
class MinimumSpanningTree(Tool):
    """Compute the minimum spanning forest of a raster as a grid graph.

    Edges join neighbouring cells; cells that are nodata, NaN or infinite have none, so there is one
    tree for each connected part. Edges are ordered by weight, id of the lower endpoint and
    direction, so the forest is unique: the same bits for every block size, memory limit and number
    of threads. It becomes the layer "mst". A raster of it holds D8 codes: E 1, SE 2, ... NE 128.

    Returns
    -------
    SpanningTree
        Over a store, with the layer "mst".

    Raises
    ------
    InputError
        for unknown weights, connectivity or types, limits that are too small, and "cuda" if it
        does not work.

    Notes
    -----
    Boruvka's algorithm with frozen boundary components; docs/design/spanning-trees.md.
    """

    weight: TreeWeight = option(
        default="max",
        help="Weight of an edge. max: the higher of its two cells, so that paths in the tree cross "
        "the lowest passes. absdiff: their absolute difference. flow: as max, but among edges "
        "of equal weight the steeper comes first, so that the tree of a cell follows its steepest "
        "descent; over cells of 64 bits by the method contract, on the CPU.",
    )
    connectivity: Connectivity = option(
        default=8, help="Neighbours per cell: 8 includes the diagonal ones."
    )
    method: TreeMethod = option(
        default="frozen",
        help="Algorithm; both give the same bits. frozen: Boruvka's with frozen components. "
        "contract: the classical contraction, kept as a reference; it runs on a GPU only if the "
        "backend is cuda.",
    )
    nodata: float | int | None = of_arrays(
        default=None,
        check=real,
        help="For arrays: value of absent cells. A store's layer has its own.",
    )
    layer: str = reads(default="elevation", help="Layer of the store.")
    block_size: int | None = of_arrays(
        default=None,
        check=counting,
        help="For arrays: side of a block. A store's layer has its own.",
    )

    command, function, accessor = "compute-mst", "minimum_spanning_tree", "spanning_tree"
    group = "Terrain"
    short = "Compute the minimum spanning forest"
    title = "Minimum spanning tree"
    examples = """
    compute-mst dem.zarr
    compute-mst dem.tif -o edges.tif --weight absdiff --memory-limit 2GB --verify
    """
    operation = ".operation:SpanningForest"
    first = "data"
    arrays = ".operation:over_array"
    gpu = "several"
    program = True
    result = "SpanningTree"
    mark = "weight"
    proof = ".proof.stored:verify_stored_forest"

    def inputs(self) -> tuple[InputLayer, ...]:
        return (InputLayer(self.layer),)

    @staticmethod
    def refuse_output(output: str | None) -> None:
        from ..io.export import refuse_tree  # brings GDAL

        refuse_tree(output)

    @staticmethod
    def summary(result: SpanningTree) -> str:
        return (
            f"{counted(result.edge_count, 'edge')}, {counted(result.components, 'component')}, "
            f"total weight {result.total_weight}"
        )

    @staticmethod
    def proven(totals: Findings) -> str:
        return (
            f"{counted(totals['edges'], 'edge')} against {totals['checked_edges']:,} of the grid"
            + (", on the GPU" if totals["backend"] == "cuda" else "")
        )
