"""Cost distances, backlinks and allocation of a raster: the tool `FindShortestPaths`.

`operation` streams the blocks, `inputs` checks what is given, and `pipeline` runs the tool over a
store or arrays. `result` holds what it finds. See docs/design/shortest-paths.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from ... import arguments
from ...arguments import CostName, PathConnectivity, PathMethod, PathMetric, Wrap, counting
from ...facts import Settings
from ...tool import InputLayer, PlacesLike, Tool, of_arrays, option, places, tool, writes
from ..cost import options as path
from ..cost.options import LayerLike, VerticalFactor
from ..cost.rules import Cost


@tool
class FindShortestPaths(Tool):
    """Compute the least cost from sources to each cell.

    The distances equal those of Dijkstra's algorithm: the same bits for every block size, memory
    limit and number of threads. Costs are summed from the source outwards, in float64 or in
    integers. Backlinks and allocation go to the layers of these names. With {into}, a store holds
    several results.

    Returns
    -------
    ShortestPaths
        Distances, and the backlinks and allocation that are asked for, as layers of the store, or
        as arrays of the kind of the input.

    Raises
    ------
    ClusterError
        when the cluster has no workers or is lost.
    InputError
        for unknown models, errors in a formula, sources outside or on nodata, negative
        frictions or costs.
    StoreError
        when the store is damaged or already has such a result.
    OutputError
        when the disk is full.

    Notes
    -----
    Label correcting by blocks and tiles in the order of their least pending distance; its fixed
    point is the result of E. W. Dijkstra's algorithm. See docs/design/shortest-paths.md.
    """

    sources: PlacesLike = places(
        form="path sources",
        help="Start at the points, lines and polygons of a vector file (FILE:LAYER for one layer "
        "of several), or at the cells of an aligned raster that are neither 0 nor nodata.",
        python="Sequence or array of (row, col) or (row, col, start cost), or `Places` (see "
        "`io.places`).",
    )
    source_edge: bool = option(
        default=False,
        help="Also start at all cells on the raster's edge or beside nodata.",
        python="Use the edge of the raster and the cells next to nodata as sources as well, with "
        "id 2**32 - 1.",
    )
    cost: Cost | CostName | str | None = path.cost()
    friction: LayerLike | None = path.friction()
    barriers: LayerLike | None = path.barriers()
    parameters: Mapping[str, float] | None = path.parameters()
    reverse: bool = path.reverse()
    max_slope: float | None = path.max_slope()
    vertical_factor: VerticalFactor | None = path.vertical_factor()
    corner_cutting: bool = path.corner_cutting()
    connectivity: PathConnectivity = path.connectivity()
    metric: PathMetric = path.metric()
    wrap: Wrap = path.wrap()
    max_cost: float | None = option(
        default=None,
        form="cost limit",
        check=arguments.check,
        help="Leave cells with a higher cost unreached.",
    )
    targets: PlacesLike | None = places(
        default=None,
        form="path targets",
        help="Ends of paths: a file like that of {sources}.",
        python="In the same form as {sources}, for {stop_at_targets}.",
    )
    stop_at_targets: bool = option(
        default=False,
        help="Leave cells farther than the farthest target unreached.",
        python="Stop once the farthest target has been reached; cells farther away are unreached.",
    )
    backlink: bool = option(
        default=False,
        form="backlink codes",
        help="Also compute each cell's step back towards its source, and write the D8 codes (E 1, "
        "SE 2, ... NE 128; 0 source, 255 unreached).",
        python="Also compute each cell's step back towards its source, for paths.",
    )
    allocation: bool = option(
        default=False,
        form="allocation ids",
        help="Also compute the source that each cell is reached from, and write the ids.",
        python="Also compute the source that each cell is reached from.",
    )
    cell_size: float | tuple[float, float] = of_arrays(
        default=(1.0, 1.0),
        check=arguments.check,
        help="For arrays: width and height of a cell, or one number for both. A store has its own "
        "grid.",
    )
    nodata: float | int | None = of_arrays(
        default=None,
        check=arguments.check,
        help="For arrays: value of absent cells, in addition to NaN and infinities.",
    )
    layer: str = path.layer()
    into: str = writes(
        default="distance",
        help="Layer to write the distances to. Backlinks and allocation then go to NAME_backlink "
        "and NAME_allocation.",
        python="Layer of the store to write the distances to. Backlinks and allocation go to "
        '"backlink" and "allocation"; with another name, such as "walk", to "walk_backlink" and '
        '"walk_allocation".',
    )
    block_size: int | None = of_arrays(
        default=None,
        check=counting,
        help="For arrays: side of a block. A layer of a store has its own.",
    )
    method: PathMethod = option(
        default="relax",
        help="Algorithm: relax blocks in order, use the distance index, or run Dijkstra's "
        "algorithm inside blocks; on a GPU also the classical methods, with an array of changed "
        "cells or with one tournament tree per block. All give the same result; index within 1e-12 "
        "for real costs.",
        python='"relax", "dijkstra": two algorithms with the same result, bit for bit. "index": '
        "distances from the distance index of the store (`build_index`); the same bits for integer "
        "costs and minimax, otherwise within a relative error of 1e-12. If that is not enough, for "
        "backlinks, allocation and `verify` of other costs, cells are relaxed instead, with a "
        'warning. "relax-array", "tournament": the classical algorithms on a GPU, for a raster '
        "that fits its memory; the same bits, slower. Workers of a cluster do not use the index.",
    )
    build_index: bool = option(
        default=False,
        help="Use the distance index; build it first if it is missing or stale.",
    )

    command, function, accessor = "compute-sssp", "shortest_paths", "cost_distance"
    group = "Cost distance and paths"
    short = "Compute cost distance and least-cost paths"
    title = "Cost distance"
    style = "distance"
    first = "data"
    examples = """
    compute-sssp dem.zarr --source -84.2,36.5 --cost tobler
    compute-sssp dem.tif --sources huts.gpkg --cost friction \\
        --friction land.tif --barriers rivers.gpkg --no-corner-cutting -o d.tif
    compute-sssp dem.zarr --source-edge --cost minimax -o filled.tif
    """
    operation = ".operation:CostDistance"
    gpu = "several"
    runs = arrays = ".pipeline:run"
    how = (
        *("memory_limit", "threads", "backend", "device", "gpu_memory_limit", "client"),
        *("verify", "compress", "resume", "overwrite", "progress"),
    )
    program = True
    result = "ShortestPaths"
    mark = "cost"

    def inputs(self) -> tuple[InputLayer, ...]:
        return InputLayer(self.layer), *path.rasters(self)

    @classmethod
    def planned(cls, asked: Settings) -> FindShortestPaths:
        return cls([])
