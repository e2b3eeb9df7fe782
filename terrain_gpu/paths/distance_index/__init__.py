"""The distance index: precomputed distances between the rim cells of every tile.

A tile of 64 x 64 cells has 252 rim cells. For every tile, the index holds the distances between
them along paths within the tile (half of them if costs are symmetric), and the costs of steps into
them from other tiles. From these, the distances of all rim cells can be computed for any sources,
without reading cells. It is phase 1 of docs/design/shortest-paths.md. The files form a Zarr array,
see `Index`.

`BuildIndex` is the tool, run by `build`. `tile` has the kernels and `files` the index on disk.
`operation` builds it, on a GPU with `gpu`, with larger squares by `levels`, through `writer`.
`stored` verifies the index of a store. `solve` computes distances from the index, `search` those of
pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...arguments import Connectivity, CostName, IndexMethod, IndexTile, levels_above
from ...tool import InputLayer, Tool, option, tool
from ..cost import options as path
from ..cost.options import VerticalFactor
from ..cost.rules import Cost

if TYPE_CHECKING:
    from ...report import Report


@tool
class BuildIndex(Tool):
    """Build the distance index of a store.

    It holds the distances between the rim cells of every tile, for one cost: about 1 byte per cell
    for integer costs, 6 to 20 for others. Least costs between pairs of places and distances from
    sources are then found from it, by `query-index` and by the method "index" of `compute-sssp`. A
    build that was interrupted continues where it stopped. An existing index for the same layers and
    costs is kept.

    Returns
    -------
    Report
        ``result`` holds "bytes", "bytes_per_cell", "blocks_resumed" and "built".

    Raises
    ------
    InputError
        when the cost model is unknown, heights are 64-bit integers, tiles or the squares of a level
        are larger than the blocks of the store, or CUDA is requested and does not work.
    PlanError
        when a limit is too small.
    StoreError
        when there is an index for other costs, or with other tiles or levels, or another run is
        building one.
    OutputError
        when the disk is full.
    VerificationError
        when an entry is wrong; a new index is then discarded.
    """

    cost: Cost | CostName | str | None = path.cost()
    friction: str | None = path.friction(arrays=False)
    barriers: str | None = path.barriers(arrays=False)
    parameters: Mapping[str, float] | None = path.parameters()
    reverse: bool = path.reverse()
    max_slope: float | None = path.max_slope()
    vertical_factor: VerticalFactor | None = path.vertical_factor()
    corner_cutting: bool = path.corner_cutting()
    connectivity: Connectivity = option(
        default=8, help="Neighbours per cell: 8 includes the diagonal ones."
    )
    layer: str = path.layer()
    tile: IndexTile = option(
        default=64,
        help="Side of the tiles, in cells. Larger ones take longer to build, less to search.",
    )
    levels: int = option(
        default=0,
        check=levels_above,
        help="Levels above the tiles: squares of 2, 4, 8, ... tiles on a side, none larger than a "
        "block of the store. With integer costs and minimax, queries between distant places then "
        "take a half to a sixth of the time; the index is larger.",
    )
    method: IndexMethod = option(
        default="relax",
        help="How distances inside tiles are computed; the files are the same. For comparison, on "
        "a GPU: relax-array (sweeps with an updating array) or tournament (Dijkstra, a tournament "
        "tree for each tile).",
    )

    command, function = "build-index", "build_index"
    first = "data"
    group = "Cost distance and paths"
    short = "Build an index for queries of least costs"
    examples = """
    terrain-gpu build-index dem.zarr --cost tobler
    terrain-gpu query-index dem.zarr --from -84.2,36.5 --to -84.1,36.6
    """
    operation = ".operation:DistanceIndex"
    runs = ".build:build"
    how = (
        *("memory_limit", "threads", "backend", "device", "gpu_memory_limit", "client"),
        *("verify", "overwrite", "progress"),
    )
    program = True
    result = "Report"

    def inputs(self) -> tuple[InputLayer, ...]:
        return InputLayer(self.layer), *path.rasters(self)

    @staticmethod
    def summary(result: Report) -> str:
        from ...engine.plan import format_size

        found = result.result
        return (
            f"distance index, {format_size(found['bytes'])}, {found['bytes_per_cell']} bytes per "
            "cell" + ("" if found["built"] else ", already built")
        )
