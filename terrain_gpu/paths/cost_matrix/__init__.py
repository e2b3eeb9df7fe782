"""Costs and paths between many sources and many targets: the tool `ComputeCostMatrix`.

`lanes`, `tile` and `block` relax eight sources together, with a vector of distances in each cell;
`relax` does so for the blocks of a raster, until the targets are final. `walk` and `trace` follow
the paths. `operation` plans the batches, `solve` runs and stores them, and `run` does both on the
requested device. `table` writes the results; `pipeline` runs the tool. See
docs/design/shortest-paths.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ... import arguments
from ...arguments import CostName, PathConnectivity, Wrap, counting, limits_of_costs
from ...facts import Settings
from ...plurals import counted
from ...tool import (
    InputLayer,
    PathLike,
    PlacesLike,
    Tool,
    file,
    of_arrays,
    option,
    places,
    tool,
)
from ..cost import options as path
from ..cost.options import LayerLike, VerticalFactor
from ..cost.rules import Cost


@tool
class ComputeCostMatrix(Tool):
    """Compute the least cost from each of many sources to each of many targets, as a table: source,
    target, cost, length and climb of the path.

    Every cost is that of a search from this source alone (compute-sssp), bit for bit. A source or
    target consists of all cells with one id, such as those of a line, polygon or zone; the cost is
    that of its best cell, and two of them may share a cell. Unreachable pairs have empty fields;
    with {nearest} or a cost limit they have no row.

    Returns
    -------
    CostMatrix
        Rows by source, then by target, in the order of features in a file, otherwise of ids. Cost:
        int64 for integer costs, otherwise float64. Length: map units, or metres for a geographic
        CRS. Climb: the sum of all rises along the path, in units of the elevations; masked if the
        raster holds frictions.

    Raises
    ------
    ClusterError
        when the cluster has no workers or is lost; finished batches are kept for `resume`.
    InputError
        for unknown models, sources or targets outside or on nodata, negative frictions, and files
        that exist.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, or there is another unfinished run.
    VerificationError
        when the proof finds a violation.
    OutputError
        when the disk is full; finished batches are kept for `resume`.

    Notes
    -----
    Label correcting as in `shortest_paths`, eight sources at a time, with a vector of distances in
    each cell, until the targets are final; docs/design/shortest-paths.md.

    Examples
    --------
    >>> import numpy as np
    >>> heights = np.array([[0, 2, 9], [0, 1, 3]], np.int16)
    >>> found = cost_matrix(heights, [(0, 0), (0, 2)], [(1, 1), (1, 2)])
    >>> found.columns()["cost"].tolist()
    [1, 3, 8, 6]
    """

    sources: PlacesLike = places(
        form="matrix sources",
        help="Sources: the points, lines and polygons of a vector file (FILE:LAYER for one layer "
        "of several), or the zones of an aligned raster, whose cells hold an id, 0 or nodata.",
        python="As for `shortest_paths`; their start costs are added.",
    )
    targets: PlacesLike | None = places(
        default=None,
        form="matrix targets",
        help="Targets: a file like that of {sources}.  [default: each source with all others]",
        python="In the same form. Without targets, each source is also the target of all others.",
    )
    cost: Cost | CostName | str | None = path.cost()
    friction: LayerLike | None = path.friction()
    barriers: LayerLike | None = path.barriers()
    parameters: Mapping[str, float] | None = path.parameters()
    reverse: bool = path.reverse(
        python="Compute costs from the target to the source, for costs that depend on direction."
    )
    max_slope: float | None = path.max_slope()
    vertical_factor: VerticalFactor | None = path.vertical_factor()
    corner_cutting: bool = path.corner_cutting()
    connectivity: PathConnectivity = path.connectivity()
    wrap: Wrap = path.wrap()
    nearest: int | None = option(
        default=None,
        metavar="K",
        check=counting,
        help="Only the K targets of least cost of each source.",
        python="Only this number of targets for each source, those of least cost; ties go to lower "
        "ids.",
    )
    max_cost: float | Mapping[int, float] | None = option(
        default=None,
        form="cost limits",
        check=limits_of_costs,
        help="Only pairs of at most this cost.",
        python="Only pairs of at most this cost: one number, or one for each source by its id; "
        "other sources have no limit.",
    )
    output: PathLike | None = file(
        default=None,
        kind="table",
        form="file of -o",
        metavar="TABLE.csv|.parquet",
        help="The table to write.",
        python="File for the table, .csv or .parquet; when None, it is kept in memory.",
    )
    paths: PathLike | None = file(
        default=None,
        kind="lines",
        form="paths to write",
        metavar="PATHS.gpkg|.parquet|.geojson|.fgb",
        help="Also write the least-cost paths as lines.",
        python="Also write the paths as lines from source to target, with their from, to, cost, "
        "length and climb: .gpkg, .parquet, .fgb or .geojson.",
    )
    cell_size: float | tuple[float, float] = of_arrays(
        default=(1.0, 1.0),
        check=arguments.check,
        help="For arrays: width and height of a cell, or one number for both.",
    )
    nodata: float | int | None = of_arrays(
        default=None,
        check=arguments.check,
        help="For arrays: value of absent cells, in addition to NaN and infinities.",
    )
    layer: str = path.layer()

    command, function = "cost-matrix", "cost_matrix"
    first = "data"
    positional = ("targets",)
    group = "Cost distance and paths"
    short = "Tabulate least costs from many sources to many targets"
    examples = """
    terrain-gpu cost-matrix dem.zarr --sources villages.gpkg \\
        --targets clinics.gpkg --cost tobler -o seconds.csv
    terrain-gpu cost-matrix dem.zarr --sources huts.gpkg --nearest 3 \\
        --cost tobler -o near.csv --path trails.gpkg
    """
    operation = ".solve:MatrixRun"
    runs = arrays = ".pipeline:run"
    how = (
        *("memory_limit", "threads", "backend", "device", "gpu_memory_limit", "client"),
        *("verify", "resume", "overwrite", "progress"),
    )
    kept = "finished sources are kept"
    result = "CostMatrix"

    def inputs(self) -> tuple[InputLayer, ...]:
        return InputLayer(self.layer), *path.rasters(self)

    @classmethod
    def planned(cls, asked: Settings) -> ComputeCostMatrix:
        return cls([])

    @staticmethod
    def refuse_file(name: str, file: PathLike, *, overwrite: bool) -> None:
        from .table import checked_paths, checked_table

        check = checked_table if name == "output" else checked_paths
        check(file, overwrite=overwrite)

    @staticmethod
    def summary(result: Any) -> str:
        found = result.report.result
        return (
            f"{counted(found['sources'], 'source')}, {counted(found['targets'], 'target')}"
            + (f", {counted(result.unreached, 'pair without a path')}" if result.unreached else "")
            + (", across the seam of 360 degrees" if found["wrap"] else "")
        )

    @staticmethod
    def contents(result: Any) -> dict[str, str]:
        found = result.report.result
        rows = {"output": counted(result.rows, "row")}
        return rows | ({"paths": counted(found["paths"], "path")} if "paths" in found else {})
