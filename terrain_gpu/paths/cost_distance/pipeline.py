"""Compute cost distances in a store or in arrays: `shortest_paths`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar, get_args

import numpy as np

from ...arguments import (
    Backend,
    CostName,
    Devices,
    LayerCompression,
    PathConnectivity,
    PathMethod,
    PathMetric,
    Wrap,
    checked,
    devices,
    raster_or_layer,
    raster_or_store,
    word,
)
from ...cuda.backend import Placement
from ...cuda.device import numbers
from ...engine.compression import refuse_for_arrays
from ...engine.machine import CUDA_BASELINE, NO_LIMIT, limit_of
from ...engine.run import run, run_in_memory
from ...errors import InputError
from ...io.labelled import LayerLike, RasterLike, takes_dataarrays
from ...io.places import PlacesLike
from ...progress import Progress, silent
from ...report import Report
from ...store import Layer
from ...store.run import begun_dtype
from ..cost.graph import warn_about_lengths
from ..cost.models import cost_text, row_of
from ..cost.resolve import VerticalFactor, stated_cost
from ..cost.rules import Cost
from ..cost.wrap import joining
from ..relax.relaxation import Overflow
from .inputs import (
    check_start_costs,
    gpu_of_method,
    limit_of_costs,
    method_with_index,
    opened_inputs,
    places_on,
    with_index,
)
from .operation import LAYERS, CostDistance
from .result import ShortestPaths, of_its_kind

log = logging.getLogger(__name__)

METHODS = get_args(PathMethod)

Solved = TypeVar("Solved")


@of_its_kind
@takes_dataarrays
@checked(
    data=raster_or_store,
    device=devices,
    cost=cost_text,
    friction=raster_or_layer,
    barriers=raster_or_layer,
    connectivity=word(PathConnectivity),
    method=word(PathMethod),
    metric=word(PathMetric),
    wrap=word(Wrap),
)
def shortest_paths(
    data: RasterLike,
    sources: PlacesLike,
    *,
    cost: Cost | CostName | str | None = None,
    friction: LayerLike | None = None,
    barriers: LayerLike | None = None,
    parameters: dict[str, float] | None = None,
    connectivity: PathConnectivity = 8,
    metric: PathMetric = "steps",
    corner_cutting: bool = True,
    reverse: bool = False,
    max_slope: float | None = None,
    vertical_factor: VerticalFactor | None = None,
    wrap: Wrap = "auto",
    source_edge: bool = False,
    max_cost: float | None = None,
    targets: PlacesLike | None = None,
    stop_at_targets: bool = False,
    backlink: bool = False,
    allocation: bool = False,
    cell_size: float | tuple[float, float] = (1.0, 1.0),
    nodata: float | int | None = None,
    layer: str = "elevation",
    into: str = LAYERS[0],
    memory_limit: int | str | None = None,
    threads: int | None = None,
    block_size: int | None = None,
    method: PathMethod = "relax",
    build_index: bool = False,
    backend: Backend = "auto",
    device: Devices = 0,
    gpu_memory_limit: int | str | None = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
    client: Any = None,
) -> ShortestPaths:
    """Compute the least cost of reaching every cell from the nearest source.

    The distances are those of Dijkstra's algorithm, bit for bit, for any block size, memory limit
    and number of threads: costs are summed from the source outwards, in float64 or in integers.

    Parameters
    ----------
    data
        A store or a raster (a path), a DataArray, or a 2-D array (or nested lists).
    sources
        Sequence or array of (row, col) or (row, col, start cost), or `Places` (see `io.places`).
    cost
        "absdiff", "friction", "surface", "tobler", "langmuir" or "minimax"; see
        `paths.cost.models`. Or one of `paths.cost.formula.presets`, such as "herzog". Or a formula,
        such as ``"length * exp(abs(slope))"``; see `paths.cost.formula.tree` for its syntax.
        Or a `Cost`, which also has other rules of steps.
        A step whose cost is NaN or infinite does not exist. A formula may name one layer of the
        store, instead of `friction`.
        When None: "friction" if frictions are given, otherwise "absdiff".
    friction
        Layer of the store, or array, of frictions >= 0. The model "friction" needs it; if the
        raster itself holds frictions, name its layer, or pass the same array, here as well.
    barriers
        Layer or array; cells with a value other than 0 are absent.
    parameters
        Parameters of the model, such as ``{"lam": 0.5}`` for langmuir; for a formula, values of
        names in it.
    connectivity
        8 or 4; or 16, with knight's moves, which pass through the middle of the edge between two
        cells and cost as much as two steps of half the length. With 16, distances are float64, and
        the method must be "relax".
    metric
        "steps": paths go from neighbour to neighbour. "continuous": paths go in any direction, by
        the eikonal equation ``|grad T| = friction``, see `paths.cost.continuous`; this needs cost
        "friction", frictions above 0, method "relax" and `connectivity` 8, and computes only
        distances.
    corner_cutting
        False forbids diagonal steps between two absent cells.
    reverse
        Compute the cost of going to the source, for costs that depend on direction.
    max_slope
        Slope dz / length, up or down, above which a step does not exist; distances are then
        float64.
    vertical_factor
        Factors of the cost of steps by their angle of slope, negative downhill: a text file of
        angles in degrees and factors, or a sequence of such pairs. Between them, factors are
        interpolated; a step at an angle outside the table does not exist. For formulas and all
        models except langmuir and minimax.
    wrap
        Whether the last column is joined to the first one, so that paths cross this seam. "auto":
        if the CRS is geographic and the columns span 360 degrees, within a hundredth of a column.
        "yes" raises an error for a raster that is projected or whose sides are more than half a
        column apart; an array has no CRS and is joined. Paths never cross a pole.
    source_edge
        Use the edge of the raster and the cells next to nodata as sources as well, with id
        2**32 - 1.
    max_cost
        Cells farther than this are unreached.
    targets, stop_at_targets
        In the same form as `sources`. The search stops once the farthest target has been reached;
        cells farther away are unreached.
    backlink, allocation
        Compute these results as well.
    cell_size
        For arrays: width and height of a cell, or one number for both. A store has its own grid.
    nodata
        For arrays: value of absent cells, in addition to NaN and infinities.
    layer
        Layer of the store to read.
    into
        Layer of the store to write the distances to. Backlinks and allocation go to "backlink" and
        "allocation"; with another name, such as "walk", to "walk_backlink" and "walk_allocation".
    memory_limit
        Limit on the peak resident set size of the process, bytes or "2GB"; a quarter of RAM when
        None. For arrays: without memory held by the caller, including results; no limit when None.
    threads
        Number of threads; all processors when None.
    block_size
        For arrays: side of a block. A layer of a store has its own.
    method
        "relax", "dijkstra": two algorithms with the same result, bit for bit. "index": distances
        from the distance index of the store (`build_index`); the same bits for integer costs and
        minimax, otherwise within a relative error of 1e-12. If that is not enough, for backlinks,
        allocation and `verify` of other costs, cells are relaxed instead, with a warning.
        "relax-array", "tournament": the classical algorithms on a GPU, for a raster that fits its
        memory; the same bits, slower.
    build_index
        Use an index, and build it first if it is missing or stale.
    backend
        "cpu", "cuda", or "auto": CUDA if it works and the raster fits, otherwise the CPU. The
        result is the same, bit for bit.
    device
        Number of the GPU; or numbers of several, or "all", which share a raster that is too large
        for one.
    gpu_memory_limit
        Limit on the memory of each GPU in bytes; nine tenths of the free memory when None.
    verify
        Prove the result in another pass over the cells.
    compress
        Compression of the layers, as for `convert_dataset`; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace existing results once the new ones are complete.
    progress
        Called with the number of cells just done, and the total.
    client
        A `distributed.Client` whose workers relax the blocks of a store; when None, this process
        does. With method "relax", each worker computes on the first GPU that it sees if `backend`
        is "cuda", or if it is "auto" and all workers announce the resource GPU; `device` is
        ignored. Workers do not use the distance index.

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
    over_arrays, of_arrays = isinstance(data, np.ndarray), (nodata, cell_size, block_size)
    method = method_with_index(method, over_arrays, build_index=build_index)
    own = data if over_arrays else layer, friction, parameters, vertical_factor
    cost, parameters, friction, stated = stated_cost(data, cost, *own)
    path, inputs = opened_inputs(data, (layer, friction, barriers), of_arrays, into)
    heights, names = inputs[0], [None if found is None else found.name for found in inputs]
    joined = joining(heights.grid, wrap, path, connectivity, method)
    begin, ends = places_on(inputs, sources, targets, needed=stop_at_targets)
    problem = CostDistance(
        path,
        heights.name,
        friction=names[1],
        barriers=names[2],
        cost=cost,
        parameters=parameters,
        connectivity=connectivity,
        corner_cutting=corner_cutting,
        reverse=reverse,
        max_slope=max_slope,
        metric=metric,
        stated=stated,
        sources=begin,
        source_edge=source_edge,
        max_cost=limit_of_costs(max_cost, row_of(cost).least),
        targets=ends,
        stop_at_targets=stop_at_targets,
        names=LAYERS[: 3 if allocation else 1 + backlink],
        into=into,
        method=method,
        verified=verify,
        wrap=joined,
    ).over([found for found in inputs if found is not None])
    check_start_costs(problem)
    limit: Any = limit_of(NO_LIMIT if memory_limit is None and not path else memory_limit)
    where = backend, device, gpu_memory_limit
    client, place = _placed(problem, (limit, memory_limit), where, client, progress)
    if over_arrays:
        return _over_arrays(problem, limit, threads, place, compress)
    again = {"build": build_index, "resume": resume, "overwrite": overwrite, "client": client}
    return _over_store(problem, memory_limit, threads, place, (*where, compress), **again)


def _placed(
    problem: CostDistance,
    limits: tuple[Any, Any],
    where: tuple[Backend, Devices, Any],
    client: Any,
    progress: Progress,
) -> tuple[Any, Placement]:
    """Where to compute, with the cluster of a client. `limits`: of this process, and as given."""
    client, gpu = gpu_of_method(problem, limits[client is not None], *where, client)
    return client, Placement(gpu, progress, passes=2 + problem.verified)


def _over_arrays(
    problem: CostDistance,
    limit: int,
    threads: int | None,
    place: Placement,
    compress: LayerCompression | None,
) -> ShortestPaths:
    refuse_for_arrays(compress)
    report = Report(problem.command)

    def solve(problem: CostDistance, again: bool) -> dict[str, np.ndarray]:
        return run_in_memory(
            problem,
            memory_limit=limit,
            threads=threads,
            verify=problem.verified,
            place=place,
            report=report,
        )[0]

    with report.measured():
        arrays = _wide_enough(problem, solve, place)
    return _result(problem, report, {}, arrays)


def _over_store(
    problem: CostDistance,
    limit: Any,
    threads: int | None,
    place: Placement,
    where: tuple[Any, ...],
    *,
    build: bool,
    resume: bool,
    overwrite: bool,
    client: Any,
) -> ShortestPaths:
    if client is None:  # its default is of what all processes have
        limit = limit_of(limit)
    report, built = Report(problem.command), None
    with report.measured():
        if problem.method == "index":
            how = dict(zip(("backend", "device", "gpu_memory_limit"), where[:3], strict=True))
            how["device"] = numbers(how["device"])[0]
            how |= {"memory_limit": limit, "threads": threads}
            problem, built = with_index(problem, report, place, build=build, **how)
        if built is None:  # else the index was built with these warnings
            warn_about_lengths(problem)
        if built is not None and built["backend"] == "cuda":
            limit -= CUDA_BASELINE  # which this process keeps after building the index
        begun = begun_dtype(problem.store, problem.into, problem.fingerprint()) if resume else None
        if (problem.dtype, begun) == (np.uint32, "uint64"):
            problem = replace(problem, wide=True)

        def solve(problem: CostDistance, again: bool) -> dict[str, Layer]:
            # An existing result has 32 bits, and is of this run or the one that it resumed.
            made = run(
                problem,
                memory_limit=limit,
                threads=threads,
                resume=resume and not again,
                overwrite=overwrite or again,
                verify=problem.verified,
                compress=where[3],
                place=place,
                client=client,
                report=report,
            ).layers
            return {name: made[problem.named[name]] for name in problem.names}

        layers = _wide_enough(problem, solve, place)
    if "index_bytes" in report.result:
        report.result["index_built"] = built
    return _result(problem, report, layers, {})


def _result(
    problem: CostDistance,
    report: Report,
    layers: dict[str, Layer],
    arrays: dict[str, np.ndarray],
) -> ShortestPaths:
    report.settings["method"] = problem.method
    report.result |= {"wrap": problem.wrap, "unit": problem.unit}
    valid = report.result.pop("valid_cells", None)
    # An earlier run counted them if this one found its layers finished.
    report.valid_cells = problem.layers[0].info["valid_cells"] if valid is None else valid
    found = report.result["reached"], report, arrays, problem.blocks, problem.lengths
    return ShortestPaths(layers, problem.grid, *found)


def _wide_enough(
    problem: CostDistance, solve: Callable[[CostDistance, bool], Solved], place: Placement
) -> Solved:
    """Return the result of a run; if 32 bits overflow, of a second run with 64 bits."""
    before = place.progress.seen
    with suppress(Overflow):
        return solve(problem, False)
    # Outside the handler: its traceback would keep the arrays of the first run alive.
    if problem.dtype.itemsize < 8:
        log.warning("distances do not fit into 32 bits; starting again with 64 bits")
        place.progress.restart(before)
        with suppress(Overflow):
            return solve(replace(problem, wide=True).over(problem.layers), True)
    raise InputError(
        f"{problem.heights.name}: distances exceed 64 bits; convert the raster to float64"
    )


__all__ = ["ShortestPaths", "shortest_paths"]
