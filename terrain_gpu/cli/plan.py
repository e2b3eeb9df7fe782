"""terrain-gpu plan: predict memory, passes and bytes of a run without reading a cell."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any, get_args

import click
import numpy as np

from ..arguments import (
    FileCompression,
    FlowEncoding,
    FlowMethod,
    IndexTile,
    NetworkPairs,
    PathMetric,
    StreamOrder,
    UpstreamStatistic,
)
from ..engine.machine import Machine
from ..errors import InputError
from ..facts import Findings, Settings
from ..grid import MAX_SIDE, BlockGrid
from ..paths.cost.models import row_of
from ..spanning_tree.weights import WEIGHTS
from ..tool import as_option
from ..tools import TOOLS, tool_of
from . import options
from .path_forms import CostType, name_frictions
from .plan_paths import PlannedPaths
from .purposes import COMMANDS, PURPOSES, UNPLANNED
from .sections import program_command

if TYPE_CHECKING:
    from ..engine.plan import StreamPlan
    from .forecast_tasks import Plan

MOST_WORKERS = 10**6
PATHS = "sssp", "cost-matrix", "least-cost-network", "index", "corridor"
"""What takes a cost; a corridor, if it is one between places."""

METHODS = {
    "flow-accumulation": get_args(FlowMethod),
    "hand": ("d8", "dinf"),
    "sssp": ("relax", "index", "dijkstra"),
}
"""What takes a method, and which."""

NEEDS = {
    "weight": ("mst",),
    "cost": PATHS,
    "parameter": PATHS,
    "friction": PATHS,
    "barriers": PATHS,
    "points": ("cost-matrix", "least-cost-network", "watershed"),
    "targets": ("cost-matrix",),
    "pairs": ("least-cost-network",),
    "nearest": ("least-cost-network",),
    "backlink": ("sssp",),
    "allocation": ("sssp",),
    "connectivity": ("sssp", "cost-matrix", "least-cost-network", "corridor"),
    "metric": ("sssp", "corridor"),
    "tile": ("index",),
    "levels": ("index",),
    "flats": ("flow-direction",),
    "method": tuple(METHODS),
    "epsilon": ("fill",),
    "keep": ("fill",),
    "weights": ("flow-accumulation",),
    "statistic": ("flow-accumulation",),
    "areas": ("accumulate", "flow-accumulation"),
    "exclude_self": ("flow-accumulation",),
    "edge_cells": ("flow-accumulation", "streams"),
    "directions": ("accumulate",),
    "aspect": ("slope",),
    "polygons": ("contours",),
    "cumulative": ("contours",),
    "conditioned": ("depressions",),
    "rain": ("fill-spill-merge",),
    "table": ("basins", "watershed"),
    "links": ("watershed",),
    "order": ("streams",),
    "lines": ("streams", "breach", "cost-matrix"),
    "max_distance": ("breach",),
    "threshold": ("streams",),
    "source_dtype": ("convert",),
    "cog": ("export",),
    "compress": ("export",),
    "encoding": ("export",),
    "layers": ("calc", "corridor"),
}
"""Options, and what they say something about."""

NOT_MEASURED = {
    *("epsilon", "keep", "weights", "areas", "exclude_self", "edge_cells", "directions"),
    *("aspect", "polygons", "cumulative", "conditioned", "rain", "table", "links", "lines"),
    *("max_distance", "order"),
}
"""Options with which a run on a cluster is planned, but not predicted."""

NO_FORECAST = {
    "export": "it runs in the process that starts it, as without workers",
    "corridor": "add two of --for sssp, for the distances from both ends, and one of --for "
    "corridor --layers 2",
    "": "how often it visits blocks depends on the terrain; run it with --workers and --json on a "
    "part of the raster, whose report counts tasks and bytes",
}
"""Why there is no forecast, and what to do: of one operation, and of others."""


class Purpose(click.Choice[str]):
    """One of PURPOSES."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in UNPLANNED:
            self.fail(f"no plan of {value}: {UNPLANNED[value]}", param, ctx)
        return super().convert(value, param, ctx)


@program_command("plan", short_help="Predict memory, time and bytes of a run")
@click.argument("what", metavar="STORE|ROWSxCOLS")
@click.option(
    "--dtype", metavar="TYPE", help="Data type of the cells.  [default: the store's, else float32]"
)
@click.option(
    "--for",
    "purpose",
    type=Purpose(PURPOSES),
    default="convert",
    show_default=True,
    metavar="OPERATION",
    help=f"What to plan: {', '.join(PURPOSES)}.",
)
@options.layer_option
@click.option(
    "--block-size",
    type=click.IntRange(64, 8192),
    metavar="N",
    help="Side of a block in cells.  [default: planned]",
)
@click.option(
    "--weight",
    type=click.Choice(tuple(WEIGHTS)),
    help="Weight of the edges of a spanning tree.  [default: max]",
)
@click.option(
    "--cost",
    type=CostType(),
    help="Cost model of shortest paths, or a formula.  [default: friction with "
    "--friction, else absdiff]",
)
@click.option(
    "--parameter",
    type=options.Parameter(),
    metavar="NAME=VALUE",
    multiple=True,
    callback=options.named_parameters,
    help="A parameter of the cost model, or the value of a name in a formula. Repeatable.",
)
@click.option(
    "--friction",
    metavar="LAYER|TYPE",
    help="Shortest paths with frictions: a layer of the store, or its data type. Name --layer "
    "itself if that holds the frictions.",
)
@click.option(
    "--barriers",
    metavar="LAYER|TYPE",
    help="Shortest paths with barriers: a layer of the store, or its data type.",
)
@click.option("--backlink", is_flag=True, help="Shortest paths with backlinks.")
@click.option("--allocation", is_flag=True, help="Shortest paths with allocation.")
@click.option(
    "--connectivity",
    type=click.Choice(("8", "4", "16")),
    callback=lambda ctx, param, value: value and int(value),
    help="Shortest paths, networks, matrices and corridors: neighbours per cell.  [default: 8]",
)
@click.option(
    "--metric",
    type=click.Choice(get_args(PathMetric)),
    help="Shortest paths from neighbour to neighbour, or in any direction.  [default: steps]",
)
@click.option(
    "--points",
    type=click.IntRange(2, 2**31),
    metavar="N",
    help="Number of points: of a cost matrix, of a network between them, or of watersheds.",
)
@click.option(
    "--targets",
    type=click.IntRange(1, 2**31),
    metavar="N",
    help="A cost matrix to so many other points.  [default: to the points themselves]",
)
@click.option(
    "--pairs",
    type=click.Choice(get_args(NetworkPairs)),
    help="A network: which points are joined.  [default: mst]",
)
@click.option(
    "--nearest",
    type=click.IntRange(1, 2**31),
    metavar="K",
    help="A network: each point is joined with the K others of least cost, in place of --pairs.",
)
@click.option(
    "--tile",
    type=click.Choice([str(side) for side in get_args(IndexTile)]),
    callback=lambda ctx, param, value: None if value is None else int(value),
    help="Distance index: side of its tiles.  [default: 64]",
)
@click.option(
    "--levels",
    type=click.IntRange(0, 9),
    help="Distance index: levels above its tiles.  [default: 0]",
)
@click.option(
    "--flats",
    type=click.Choice(("tree", "gradient")),
    help="Flow directions: how they cross flats.  [default: tree]",
)
@click.option(
    "--method",
    type=click.Choice(list(dict.fromkeys(chain(*METHODS.values())))),
    help="Flow accumulation, or hand (dinf): how cells divide what drains. Shortest paths: relax, "
    "index (also of --build-index) or dijkstra.  [default: d8; relax]",
)
@click.option("--epsilon", is_flag=True, help="Fill without flats.")
@click.option("--keep", is_flag=True, help="Fill, but keep some depressions.")
@click.option(
    "--weights",
    metavar="LAYER|TYPE",
    help="Flow accumulation of weights: a layer of the store, or its data type.",
)
@click.option(
    "--statistic",
    type=click.Choice(get_args(UpstreamStatistic)),
    help="Flow accumulation of weights: what is computed.  [default: sum]",
)
@click.option("--areas", is_flag=True, help="Flow accumulation, or accumulate, of areas.")
@click.option("--exclude-self", is_flag=True, help="Flow accumulation without the cell itself.")
@click.option("--edge-cells", is_flag=True, help="Count cells on the edge, also for lines.")
@click.option("--directions", is_flag=True, help="Accumulate with a layer of directions.")
@click.option("--aspect", is_flag=True, help="Slopes with aspects.")
@click.option("--polygons", is_flag=True, help="Contours as polygons between breaks.")
@click.option(
    "--cumulative",
    type=click.IntRange(1, 10**6),
    metavar="N",
    help="Contours as cumulative polygons of this number of breaks.",
)
@click.option("--conditioned", is_flag=True, help="Depressions with a layer of filled heights.")
@click.option(
    "--rain",
    metavar="LAYER|TYPE",
    help="Water of a rain from a layer: one of the store, or its data type.",
)
@click.option("--table", is_flag=True, help="Basins or watersheds with a table.")
@click.option(
    "--links",
    metavar="LAYER|TYPE",
    help="Watersheds of links: a layer of the store, or its data type.",
)
@click.option(
    "--order",
    type=click.Choice(get_args(StreamOrder)),
    help="Streams: which order is written.  [default: strahler]",
)
@click.option(
    "--lines", is_flag=True, help="Streams, cuts or a cost matrix, also as lines in a GeoPackage."
)
@click.option(
    "--max-distance",
    type=click.IntRange(1, 10_000),
    metavar="CELLS",
    help="Breach: longest path that is cut.  [default: 50]",
)
@click.option(
    "--threshold",
    type=click.IntRange(1),
    metavar="N",
    help="Streams: how many cells a channel drains.  [default: 1000]",
)
@click.option(
    "--layers",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="How many layers calc reads, or a corridor without places, all of the same type.  "
    "[default: 1; a corridor between places]",
)
@click.option(
    "--source-dtype",
    metavar="TYPE",
    help="Convert: type of the raster's cells, where --round changes it.  [default: --dtype]",
)
@click.option("--cog", is_flag=True, help="Export: a cloud-optimised GeoTIFF.")
@click.option(
    "--compress",
    type=click.Choice(get_args(FileCompression)),
    help="Export: compression.  [default: none]",
)
@click.option(
    "--encoding",
    type=click.Choice(get_args(FlowEncoding)),
    metavar="ENCODING",
    help="Export: flow directions as another program has them.  [default: esri]",
)
@options.memory_limit_option
@options.threads_option
@click.option(
    "--workers",
    type=click.IntRange(1, MOST_WORKERS),
    metavar="N",
    help="Predict a run on a cluster of N workers with one thread each, too.",
)
@click.option(
    "--like",
    metavar="REPORT.json",
    help="Predict with what a smaller run with --workers has reported: how fast its cores were, "
    "how long writing lines or polygons took, and how often shortest paths visited blocks.",
)
@click.option(
    "--storage",
    type=options.Size(),
    metavar="SIZE",
    help="Transfer rate of the shared storage, for all workers together, such as 1GB per second.",
)
@options.json_option
@options.verbosity_options
def command(
    what: str,
    dtype: str | None,
    purpose: str,
    layer: str,
    block_size: int | None,
    memory_limit: int | None,
    threads: int | None,
    workers: int | None,
    json_target: str | None,
    **problem: Any,
) -> None:
    """Predict the memory, passes and bytes of a run, on a raster that need not exist yet."""
    from ..cells import layer_dtype
    from ..report import Report

    like, storage = problem.pop("like"), problem.pop("storage")
    _refuse(purpose, problem)
    if workers is not None and threads is not None:
        raise click.UsageError("--threads is of one process; leave it out beside --workers")
    if workers is None and (like or storage):
        raise click.UsageError("--like and --storage need --workers: give that too")
    shape = re.fullmatch(r"([0-9]{1,99})x([0-9]{1,99})", what)
    if not shape and "://" not in what and not os.path.exists(what):
        raise InputError(f"{what[:60]}: neither a store nor ROWSxCOLS such as 10000x20000")
    if shape:
        rows, cols = int(shape[1]), int(shape[2])
        if not (0 < rows <= MAX_SIDE and 0 < cols <= MAX_SIDE):
            raise InputError(f"{what}: a side must have 1 to {MAX_SIDE} cells")
    else:
        from ..store import TileStore

        store = TileStore.open(what)
        source = store.layer(layer)
        rows, cols = source.grid.shape
        dtype = dtype or source.dtype.name
        block_size = block_size or source.block_size
        if problem["cost"] is not None:
            stated = {**problem, "layer": layer}
            name_frictions(store, stated, problem["parameter"])
            problem |= {name: stated[name] for name in ("cost", "friction")}
    cells = layer_dtype(dtype or "float32")

    def also_read(name: str | None) -> np.dtype | None:
        """Return the data type of another layer."""
        if name is None:
            return None
        return layer_dtype(name) if shape else store.layer(name).dtype

    # By then a run has loaded what plans of layers from layers count.
    kernels = ["numba"] if purpose in PATHS and not problem["layers"] else []
    machine = Machine.of(memory_limit, threads if workers is None else 1)
    machine = machine.loading("rasterio", *kernels)
    report = Report("plan", cells=rows * cols, settings={"for": purpose})

    def planned(rows: int, cols: int, block_size: int | None, machine: Machine) -> Any:
        return _plan(purpose, rows, cols, cells, layer, block_size, also_read, problem, machine)

    problem["workers"] = workers
    with report.measured():
        if workers is None:
            plan = planned(rows, cols, block_size, machine)
            report.result, text = plan.as_dict(), plan.describe()
        else:
            plan, found, text = _forecast(
                purpose, planned, (rows, cols, block_size), machine, workers, like,
                _case(purpose, cells, layer, problem, storage),
            )  # fmt: skip
            report.result = {**plan.as_dict(), "cluster": found}
    options.write_json(report.to_json(), json_target)
    if json_target != "-":
        options.say(text)


def _refuse(purpose: str, problem: Settings) -> None:
    """Refuse options that say nothing about what is planned."""
    for name, value in problem.items():
        if value and purpose not in NEEDS[name]:
            needed = " or --for ".join(NEEDS[name])
            raise click.UsageError(f"{as_option(name)} needs --for {needed}: give that too")
    if purpose in ("cost-matrix", "least-cost-network") and problem["points"] is None:
        raise click.UsageError(f"--for {purpose} needs --points: the number of places")
    if (method := problem["method"]) is not None and method not in METHODS[purpose]:
        *others, last = METHODS[purpose]
        raise click.UsageError(
            f"--method {method}: {purpose} knows {', '.join(others)} and {last}; give one"
        )
    if problem["statistic"] and problem["weights"] is None:
        raise click.UsageError("--statistic is of --weights: give that too")
    if (command := COMMANDS.get(purpose, purpose)) in TOOLS:
        tool_of(command).planned(problem)


def _case(purpose: str, cells: np.dtype, layer: str, problem: Settings, storage: int | None) -> Any:
    """Return what a forecast depends on beside the plan; None for what has not been measured."""
    from .forecast_paths import usual_visits
    from .forecast_tasks import Case

    places = purpose == "corridor" and not problem["layers"]
    unmeasured = any(problem[name] for name in NOT_MEASURED)
    if places or unmeasured or problem["flats"] == "gradient" or _divides(problem):
        return None
    paths = PlannedPaths(purpose, cells, layer, problem)
    return Case(
        weight=problem["weight"] or "max",
        item=paths.model.distance_dtype(cells).itemsize,
        visits=usual_visits(
            paths.cost, paths.connectivity, paths.metric, batches=paths.pairs == "all"
        ),
        backlink=paths.backlink,
        storage=storage,
        layers=problem["layers"],
        connectivity=paths.connectivity,
        metric=paths.metric,
        allocation=paths.allocation,
        flats=not row_of(paths.cost).lengths,
        points=problem["points"] or 0,
        pairs=paths.pairs,
    )


def _divides(problem: Settings) -> bool:
    """Whether cells divide what drains through them, or paths are found by another method."""
    return problem["method"] not in (None, "d8", "relax")


def _forecast(
    purpose: str,
    planned: Callable[[int, int, int | None, Machine], Plan],
    raster: tuple[int, int, int | None],
    machine: Machine,
    workers: int,
    like: str | None,
    case: Any,
) -> tuple[Plan, Findings | None, str]:
    """Plan a run on a cluster and predict it, also in words; None without a forecast."""
    from .forecast import PASSES, described, forecast, learned

    if case is None or purpose not in PASSES:
        plan = planned(*raster, machine)
        why = NO_FORECAST.get(purpose, NO_FORECAST[""])
        return plan, None, f"{plan.describe()}\nworkers        no forecast of {purpose}: {why}"
    if like:
        case = learned(purpose, case, like)
    plan, found = forecast(purpose, planned, raster, machine, workers, case)
    return plan, found, f"{plan.describe()}\n{described(plan, found, case, purpose)}"


def _plan(
    purpose: str,
    rows: int,
    cols: int,
    cells: np.dtype,
    layer: str,
    block_size: int | None,
    also_read: Callable[[str | None], np.dtype | None],
    problem: Settings,
    machine: Machine,
) -> Plan:
    """Plan what `--for` names."""
    if purpose == "convert" or not block_size:
        from ..cells import layer_dtype
        from ..io.convert import plan_for_shape

        source = problem["source_dtype"]
        plan: StreamPlan = plan_for_shape(
            rows,
            cols,
            cells,
            block_size=block_size,
            source=None if source is None else layer_dtype(source),
            machine=machine,
        )
        block_size = plan.block_size
    if purpose in PATHS and not problem["layers"]:
        paths = PlannedPaths(purpose, cells, layer, problem, also_read)
        return paths.plan(rows, cols, block_size, machine=machine)
    if (command := COMMANDS.get(purpose, purpose)) in TOOLS:
        from ..running import plan_of

        blocks, asked = BlockGrid(rows, cols, block_size), tool_of(command).planned(problem)
        named = {one.option: problem[one.option] for one in asked.inputs() if one.option}
        types = {name: dtype for name in named if (dtype := also_read(named[name])) is not None}
        return plan_of(asked, blocks, cells, machine, types)
    if purpose == "export":
        return _plan_export(BlockGrid(rows, cols, block_size), cells, problem, machine)
    return plan


def _plan_export(blocks: BlockGrid, cells: np.dtype, problem: Any, machine: Machine) -> StreamPlan:
    """Plan the export of a whole layer to a file."""
    from ..engine.plan import layer_bytes
    from ..grid.neighbours import encoding_dtype
    from ..io.export_problem import plan_export, profile_within
    from ..io.geotiff import OutputProfile
    from ..io.nextxy import NEXTXY

    encoding, compress = problem["encoding"], problem["compress"] or "none"
    bands = 2 if encoding == NEXTXY else 1
    kind = encoding_dtype(encoding) if encoding and bands == 1 else cells
    stored = layer_bytes(blocks.rows, blocks.cols, cells.itemsize, blocks.block)

    def plan(profile: OutputProfile) -> StreamPlan:
        return plan_export(blocks, (cells, kind), profile, stored, machine)

    most = OutputProfile(compress, problem["cog"], machine.threads, bands)
    return plan(profile_within(most, plan))
