"""Networks of least-cost paths between places: the tool `LeastCostNetwork`.

Links of a spanning tree, and of areas that touch, follow from one search from all places:
`crossings` finds the cheapest steps between their areas, and chooses links; `operation`
streams it and writes the paths. `matrix` gets links from a cost matrix instead, for all pairs or
the nearest ones. `files` writes them, and `pipeline` runs the tool. See
docs/design/shortest-paths.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...arguments import CostName, NetworkPairs, PathConnectivity, Wrap, check, counting
from ...errors import ArgumentError
from ...facts import Settings
from ...plurals import counted
from ...tool import (
    InputLayer,
    PathLike,
    PlacesLike,
    Tool,
    file,
    option,
    places,
    tool,
    writes,
)
from ..cost import options as path
from ..cost.options import LayerLike, VerticalFactor
from ..cost.rules import Cost


def _refuse_pairs(settings: Settings) -> None:
    """Reject two options for choosing pairs."""
    if settings["nearest"] is not None and settings["pairs"] != "mst":
        raise ArgumentError(
            "{nearest} cannot be combined with {pairs} {value}; leave out one of them",
            value=settings["pairs"],
        )


@tool
class LeastCostNetwork(Tool):
    """Join places by least-cost paths, and write the paths as lines with the attributes from, to,
    cost, length and climb.

    A place consists of all cells with one id, such as those of a line, polygon or zone. Its area is
    all cells to which no other place is nearer by cost.

    A spanning tree, and links of places whose areas touch, take one search from all places. Costs
    must be the same both ways for these, not for {pairs} all or {nearest}, which take a search for
    each place.

    Returns
    -------
    CostNetwork
        It is not an error if links do not connect all places: `parts` is the number of parts, and a
        warning reports it. Lines go from `from` to `to`, sorted by ids; if costs are the same in
        both directions, `from` is the lower id, except with {nearest}. Length: map units, or metres
        for a geographic CRS. Climb: the sum of all rises along the path, in units of the
        elevations; null if the raster holds frictions.

    Raises
    ------
    InputError
        for unknown models, places outside or on nodata, fewer than two places, start costs, costs
        that depend on direction with "mst" and "delaunay", and files that exist.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged or already has such layers.
    OutputError
        when the disk is full. Finished blocks, or sources, are kept for `resume`.
    ClusterError
        when the cluster has no workers or is lost. Finished work is kept for `resume`.
    VerificationError
        when a result is wrong.

    Notes
    -----
    For {pairs} "all" and {nearest}, one GPU, or the CPUs of workers, solve eight places at a time,
    as for `cost_matrix`; with a `client` the file must be in a folder that all hosts share.

    K. Mehlhorn (1988), A faster approximation algorithm for the Steiner problem in graphs: a
    spanning tree over areas that touch is one over all pairs. B. H. McRae, D. M. Kavanagh (2011),
    Linkage Mapper, for cost-weighted adjacency; D. A. White, S. B. Barber (2012), From everywhere
    to everywhere, for all pairs.

    Examples
    --------
    >>> found = least_cost_network("dem.zarr", [(9, 9), (90, 70), (40, 80)], "roads.gpkg")
    >>> found.links, found.parts
    (2, 1)
    """

    places: PlacesLike = places(
        form="network places",
        help="Places: the points, lines and polygons of a vector file (FILE:LAYER for one layer of "
        "several), or the zones of an aligned raster, whose cells hold an id, 0 or nodata.",
        python="In the same form as the sources of `shortest_paths`; at least two, without start "
        "costs. Two places may share a cell: they are linked there.",
    )
    pairs: NetworkPairs = option(
        default="mst",
        help="Which places to join. mst: the spanning tree of least cost. delaunay: places whose "
        "areas of least cost touch. all: each with all others.",
        python='Which places to join. "mst": the minimum spanning tree over the costs between all '
        'pairs of places. "delaunay": any two places whose areas touch (cost-weighted adjacency), '
        "by the cheapest path that stays in these two areas; one through the area of a third place "
        'may be cheaper. "all": each with all others ("from everywhere to everywhere").',
    )
    nearest: int | None = option(
        default=None,
        metavar="K",
        check=counting,
        help="Join each place with the K others of least cost, in place of {pairs}.",
    )
    cost: Cost | CostName | str | None = path.cost()
    friction: LayerLike | None = path.friction()
    barriers: LayerLike | None = path.barriers()
    parameters: Mapping[str, float] | None = path.parameters()
    reverse: bool = path.reverse(python="Compute cost and climb from `to` to `from`.")
    max_slope: float | None = path.max_slope()
    vertical_factor: VerticalFactor | None = path.vertical_factor()
    corner_cutting: bool = path.corner_cutting()
    connectivity: PathConnectivity = path.connectivity()
    wrap: Wrap = path.wrap()
    max_cost: float | None = option(
        default=None,
        form="cost limit",
        check=check,
        help="Only links of at most this cost.",
    )
    output: PathLike | None = file(
        default=None,
        kind="features",
        form="file of -o",
        metavar="NETWORK.gpkg|.parquet|.geojson|.fgb",
        help="The lines to write.",
        python='File for the lines: .gpkg (layer "network"), .parquet, .fgb or .geojson. None for '
        "a temporary file, which `CostNetwork.to_geodataframe` reads.",
    )
    table: PathLike | None = file(
        default=None,
        kind="table",
        metavar="TABLE.csv|.parquet",
        help="Also write from, to, cost, length and climb.",
        python="Also write the attributes as a table, .csv or .parquet.",
    )
    layer: str = path.layer()
    into: str = writes(
        default="nearest",
        help="Layer of the least cost from a place. Backlinks and ids of places go to "
        "NAME_backlink and NAME_allocation. {pairs} all and {nearest} write no layers.",
        python="Layer of the distances from the nearest place, with its backlinks and allocation: "
        '"nearest", "nearest_backlink" and "nearest_allocation". With {max_cost}, cells farther '
        "than half of it are unreached (with minimax, farther than all of it). {pairs} all and "
        "{nearest} write no layers.",
    )

    command, function = "least-cost-network", "least_cost_network"
    accessor = "least_cost_network"
    positional = ("output",)
    group = "Cost distance and paths"
    short = "Join places by least-cost paths"
    examples = """
    terrain-gpu least-cost-network dem.tif --sources towns.gpkg --cost surface \\
        -o roads.gpkg
    terrain-gpu least-cost-network dem.zarr --sources parks.gpkg --id-field name \\
        --pairs delaunay --cost friction --friction resistance -o linkages.gpkg
    """
    operation = ".operation:PlaceNetwork"
    gpu = "several"
    runs = ".pipeline:run"
    how = (
        *("memory_limit", "threads", "backend", "device", "gpu_memory_limit", "client"),
        *("verify", "resume", "overwrite", "progress"),
    )
    kept = "finished work is kept"
    result = "CostNetwork"
    rules = (_refuse_pairs,)
    modules = ("paths.cost_distance.operation", "paths.least_cost_network.matrix")

    def inputs(self) -> tuple[InputLayer, ...]:
        return InputLayer(self.layer), *path.rasters(self)

    @classmethod
    def planned(cls, asked: Settings) -> LeastCostNetwork:
        return cls([])

    @staticmethod
    def refuse_file(name: str, file: PathLike, *, overwrite: bool) -> None:
        from ...io.lines import checked_target
        from ..cost_matrix.table import checked_table

        check = checked_target if name == "output" else checked_table
        check(file, overwrite=overwrite)

    @staticmethod
    def summary(result: Any) -> str:
        parts = "" if result.parts == 1 else f" in {counted(result.parts, 'part')}"
        return f"{counted(result.places, 'place')}{parts}, {counted(result.links, 'link')}" + (
            ", across the seam of 360 degrees" if result.report.result["wrap"] else ""
        )
