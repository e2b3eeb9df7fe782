"""Cost distances of a store or of arrays: `shortest_paths`."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar, get_args

import numpy as np

from ..arguments import (
    Backend,
    Connectivity,
    Cost,
    PathMethod,
    checked,
    one_of,
    raster_or_layer,
    raster_or_store,
    word,
)
from ..cells import is_nodata
from ..cuda.backend import Gpu, Placement, choose, find_gpu
from ..engine.arrays import ArrayLayer, fitting_block
from ..engine.plan import CUDA_BASELINE, NO_LIMIT, limit_of
from ..engine.run import run, run_in_memory
from ..errors import InputError, StoreError
from ..grid import BlockGrid, GridSpec
from ..grid.lengths import other_unit
from ..io.places import Places, PlacesLike, as_places, refuse_nodata
from ..progress import Progress, silent
from ..report import Report
from ..store import Layer, TileStore
from ..store.run import begun_dtype
from .costs import MODELS, friction_beside
from .cpu.relax import GUARDS, Overflow
from .index import Index, index_settings
from .index import build_index as build_distance_index
from .problem import LAYERS, CostDistance
from .result import ShortestPaths

log = logging.getLogger(__name__)

GPU_METHODS = ("relax-array", "tournament")
METHODS = get_args(PathMethod)

Solved = TypeVar("Solved")


@checked(
    data=raster_or_store,
    cost=one_of(MODELS),
    friction=raster_or_layer,
    barriers=raster_or_layer,
    method=word(PathMethod),
)
def shortest_paths(
    data: np.ndarray | str | os.PathLike[str] | TileStore,
    sources: PlacesLike,
    *,
    cost: Cost = "absdiff",
    friction: str | np.ndarray | None = None,
    barriers: str | np.ndarray | None = None,
    parameters: dict[str, float] | None = None,
    connectivity: Connectivity = 8,
    corner_cutting: bool = True,
    reverse: bool = False,
    source_edge: bool = False,
    max_cost: float | None = None,
    targets: PlacesLike | None = None,
    stop_at_targets: bool = False,
    backlink: bool = False,
    allocation: bool = False,
    cell_size: float | tuple[float, float] = (1.0, 1.0),
    nodata: float | int | None = None,
    layer: str = "elevation",
    memory_limit: int | str | None = None,
    threads: int | None = None,
    block_size: int | None = None,
    method: PathMethod = "relax",
    build_index: bool = False,
    backend: Backend = "auto",
    device: int = 0,
    gpu_memory_limit: int | str | None = None,
    verify: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> ShortestPaths:
    """Least cost of reaching every cell from the nearest source.

    The distances are those of Dijkstra's algorithm, bit for bit, whatever blocks, memory limit and
    threads: sums run from the source outward in float64, or in integers.

    Parameters
    ----------
    data
        A store, its path, or a 2-D array (or nested lists).
    sources
        Sequence or array of (row, col) or (row, col, start cost), or `Places` (see
        `io.places`).
    cost
        "absdiff", "friction", "surface", "tobler", "langmuir" or "minimax"; see `paths.costs`.
    friction
        Layer of the store, or array, of frictions >= 0. The model "friction" needs it; where the
        raster itself holds frictions, name it again: its layer, or the same array.
    barriers
        Layer or array; cells with a value other than 0 are absent.
    parameters
        Of the model, e.g. ``{"lam": 0.5}`` for langmuir.
    connectivity
        8 or 4.
    corner_cutting
        False forbids diagonal steps between two absent cells.
    reverse
        Cost of going to the source, where directions differ.
    source_edge
        Take the raster's edge and the rim of nodata as sources too, with id 2**32 - 1.
    max_cost
        Cells farther than this count as unreached.
    targets, stop_at_targets
        Given as `sources` are. Stop where the farthest one is reached: cells farther away count
        as unreached.
    backlink, allocation
        Compute these too.
    cell_size
        For arrays: width and height of a cell, or one number for both. A store has its grid.
    nodata
        For arrays: value of absent cells, besides NaN and infinities.
    layer
        Layer of the store to read.
    memory_limit
        Bound on the peak resident set of the process, bytes or "2GB"; a quarter of RAM when None.
        For arrays: the same without what the caller holds, results included; no bound when None.
    threads
        Threads; all processors when None.
    block_size
        For arrays: side of a block. A store's layer has its own.
    method
        "relax", "dijkstra": the way, not the result, which is the same bits. "index": distances
        from the store's distance index (`build_index`); the same bits for integer costs and
        minimax, else within 1e-12 of them, relative. Where that is not enough, for backlinks,
        allocation and `verify` of other costs, cells are relaxed instead, with a warning.
        "relax-array", "tournament": the classical ways on a GPU, for a raster that fits its
        memory; the same bits, slower.
    build_index
        Use an index, and build it before where it is missing or stale.
    backend
        "cpu", "cuda", or "auto": CUDA where it works and the raster fits, else the CPU. The result
        is the same bits.
    device, gpu_memory_limit
        Which GPU, and a bound on its memory in bytes; nine tenths of what is free when None.
    verify
        Prove the result in another pass over the cells.
    resume
        Go on with an unfinished run.
    overwrite
        Replace existing results, at the end.
    progress
        Called with the cells just done and those to do in all.

    Raises
    ------
    InputError
        for unknown models, sources outside or on nodata, negative frictions.
    StoreError
        when the store is damaged, or has a result already.
    OutputError
        when the disk is full.

    Notes
    -----
    Label correcting by blocks and tiles in the order of their least pending distance, of which the
    distances of E. W. Dijkstra's algorithm are the fixed point; docs/design/shortest-paths.md.
    """
    if stop_at_targets and targets is None:
        raise InputError("stop_at_targets needs targets")
    over_arrays = isinstance(data, np.ndarray)
    method = _method(method, over_arrays, build_index=build_index)
    friction = friction_beside(cost, data if over_arrays else layer, friction)
    if isinstance(data, np.ndarray):
        path = ""
        inputs: list[Any] = _arrays((data, friction, barriers), nodata, cell_size, block_size)
    else:
        if nodata is not None or block_size is not None or cell_size != (1.0, 1.0):
            raise InputError("nodata, block_size and cell_size are for arrays")
        store = TileStore.open(data)
        path, inputs = str(store.path), _layers(store, (layer, friction, barriers))
    heights = inputs[0]
    names = [None if found is None else found.name for found in inputs]
    begin, ends = _places(heights, sources, targets)
    if not len(begin) and not source_edge:
        raise InputError("there is no source; give one")
    problem = CostDistance(
        path,
        heights.name,
        friction=names[1],
        barriers=names[2],
        cost=cost,
        parameters=parameters or {},
        connectivity=connectivity,
        corner_cutting=corner_cutting,
        reverse=reverse,
        sources=begin,
        source_edge=source_edge,
        max_cost=_max_cost(max_cost, MODELS[cost].least),
        targets=ends,
        stop_at_targets=stop_at_targets,
        names=LAYERS[: 3 if allocation else 1 + backlink],
        method=method,
        verified=verify,
    ).over([found for found in inputs if found is not None])
    _check_start_costs(problem)
    limit = limit_of(NO_LIMIT if memory_limit is None and not path else memory_limit)
    where = backend, device, gpu_memory_limit
    gpu = _gpu(method, limit, heights.block_size, *where)
    place = Placement(gpu, progress, passes=2 + verify)
    if over_arrays:
        return _over_arrays(problem, limit, threads, place)
    again = {"resume": resume, "overwrite": overwrite}
    return _over_store(problem, limit, threads, place, where, build=build_index, **again)


def _over_arrays(
    problem: CostDistance, limit: int, threads: int | None, place: Placement
) -> ShortestPaths:
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
    limit: int,
    threads: int | None,
    place: Placement,
    where: tuple[Any, ...],
    *,
    build: bool,
    resume: bool,
    overwrite: bool,
) -> ShortestPaths:
    report, built = Report(problem.command), None
    if problem.model.kind.metric and (unit := other_unit(problem.grid)):
        log.warning(
            "cost %s means metres, and takes lengths for such that are in %s", problem.cost, unit
        )
    with report.measured():
        if problem.method == "index":
            how = dict(zip(("backend", "device", "gpu_memory_limit"), where, strict=True))
            how |= {"memory_limit": limit, "threads": threads}
            problem, built = _indexed(problem, report, place, build=build, **how)
        if built is not None and built["backend"] == "cuda":
            limit -= CUDA_BASELINE  # which building the index has left in this process
        begun = begun_dtype(problem.store, "distance", problem.fingerprint()) if resume else None
        if (problem.dtype, begun) == (np.uint32, "uint64"):
            problem = replace(problem, wide=True)

        def solve(problem: CostDistance, again: bool) -> dict[str, Layer]:
            # What is there again has 32 bits, and is of this run or the one it resumed.
            return run(
                problem,
                memory_limit=limit,
                threads=threads,
                resume=resume and not again,
                overwrite=overwrite or again,
                verify=problem.verified,
                place=place,
                report=report,
            ).layers

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
    report.valid_cells = report.result.pop("valid_cells", 0)
    found = report.result["reached"], report, arrays, problem.blocks, problem.lengths
    return ShortestPaths(layers, problem.grid, *found)


def _wide_enough(
    problem: CostDistance, solve: Callable[[CostDistance, bool], Solved], place: Placement
) -> Solved:
    """The result of a run; of a second one, which is told so, where 32 bits overflow."""
    before = place.progress.seen
    with suppress(Overflow):
        return solve(problem, False)
    # Not in a handler: its error would hold all that the first run had in memory.
    if problem.dtype.itemsize < 8:
        log.warning("distances do not fit 32 bits; starting again with 64")
        place.progress.restart(before)
        with suppress(Overflow):
            return solve(replace(problem, wide=True).over(problem.layers), True)
    raise InputError(f"{problem.heights.name}: distances exceed 64 bits; convert to float64")


def _indexed(
    problem: CostDistance, report: Report, place: Placement, *, build: bool, **how: Any
) -> tuple[CostDistance, dict[str, Any] | None]:
    """The problem on the store's index, and what there is to say of that if it is built now."""
    if not problem.exact and (problem.verified or len(problem.names) > 1):
        log.warning(
            "distances of real costs from an index are not exact to the last bit, as "
            "backlinks, allocation and verify need them: cells are relaxed instead"
        )
        return replace(problem, method="relax"), None
    store = TileStore.open(problem.store)
    settings = index_settings(problem.model, problem.steps, problem.rasters)
    found = None
    try:
        found = Index.open(store, problem.blocks)
    except StoreError:
        if not build:
            raise
    lacks = found.difference(settings) if found else "there is none"
    if not lacks:
        return replace(problem, indexed=True), None
    if not build:
        raise StoreError(
            f"{store.path}: no distance index for this: {lacks}; build one with --build-index, "
            "or leave out --method index"
        )
    place.progress.count += 1
    friction = problem.friction
    if problem.model.needs_friction and friction is None:
        friction = problem.layer
    with report.phase("index"):
        made = build_distance_index(
            store,
            layer=problem.layer,
            friction=friction,
            barriers=problem.barriers,
            **problem.steps,
            overwrite=True,
            progress=place.progress,
            **how,
        )
    told = {"backend": made.settings["backend"], "seconds": made.seconds["total"]}
    return replace(problem, indexed=True, built=True), made.result | told


def _max_cost(max_cost: float | None, least: float) -> float | None:
    if max_cost is not None and not max_cost >= least:
        raise InputError(f"max_cost {max_cost} is not a number of at least 0")
    return None if max_cost == math.inf else max_cost


def _method(method: PathMethod, over_arrays: bool, *, build_index: bool) -> PathMethod:
    """What is asked for, with an index that is to be built."""
    if build_index and method not in ("relax", "index"):
        raise InputError(f"an index is for method 'index', not {method!r}")
    if build_index:
        method = "index"
    if method == "index" and over_arrays:
        raise InputError("method 'index' is for stores: an array has no distance index")
    return method


def _gpu(
    method: str,
    memory_limit: int | None,
    block_size: int,
    backend: str,
    device: int,
    gpu_memory_limit: int | str | None,
) -> Gpu | None:
    """The GPU that a method is to run on, if any."""
    if method in GPU_METHODS:
        chosen, reason = choose("auto" if backend == "cuda" else backend, device)
        if chosen == "cuda":
            return Gpu.of(device, gpu_memory_limit, wanted=True)
        raise InputError(
            f"method {method!r} runs on a GPU only ({reason or 'not on backend cpu'}); "
            "use --method relax, or --backend cuda where there is one"
        )
    if backend == "cuda" and method != "relax":
        raise InputError(f"method {method!r} runs on the CPU only; use relax, or backend cpu")
    if method != "relax":
        return None
    return find_gpu(backend, device, gpu_memory_limit, memory_limit, block_size)


def _arrays(
    arrays: tuple[Any, ...],
    nodata: Any,
    cell_size: float | tuple[float, float],
    block_size: int | None,
) -> list[ArrayLayer | None]:
    """Heights, frictions and barriers in the guise of layers."""
    width, height = cell_size if isinstance(cell_size, tuple) else (cell_size, cell_size)
    rows, cols = shape = arrays[0].shape
    grid = GridSpec(rows, cols, transform=(width, 0.0, 0.0, 0.0, -height, 0.0))
    blocks = BlockGrid(rows, cols, block_size or fitting_block(rows, cols))
    found: list[ArrayLayer | None] = []
    for data, name in zip(arrays, ("data", "friction", "barriers"), strict=True):
        if data is None:
            found.append(None)
            continue
        if not isinstance(data, np.ndarray) or data.shape != shape:
            raise InputError(f"{name} must be an array of shape {shape}, as the heights")
        own = data.view(np.uint8) if data.dtype == bool else data
        found.append(ArrayLayer(own, blocks, grid, nodata if name == "data" else None, name))
    return found


def _layers(store: TileStore, names: tuple[Any, ...]) -> list[Layer | None]:
    """Heights, frictions and barriers of a store."""
    for name in names:
        if not (name is None or isinstance(name, str)):
            raise InputError("friction and barriers of a store are names of its layers")
        if name in LAYERS:
            raise InputError(f"layer {name!r} is a result; name a layer of heights or frictions")
    return [None if name is None else store.layer(name) for name in names]


def _places(
    heights: Layer | ArrayLayer, sources: PlacesLike, targets: PlacesLike | None
) -> tuple[Places, Places | None]:
    """Where paths begin and end, on cells with a value."""
    begin = as_places(heights.grid, sources, "sources")
    end = None if targets is None else as_places(heights.grid, targets, "targets")
    for points, what in ((begin, "sources"), (end, "targets")):
        if points is None or not len(points):
            continue
        if isinstance(heights, Layer):
            refuse_nodata(points, heights)
            continue
        void = is_nodata(heights.data[points.rows, points.cols], heights.nodata)
        if void.any():
            k = int(np.argmax(void))
            raise InputError(
                f"{void.sum()} of the {what} are nodata, the first at row {points.rows[k]}, "
                f"column {points.cols[k]}; move them to cells with a value"
            )
    return begin.one_per_cell("sources"), end and end.one_per_cell()


def _check_start_costs(problem: CostDistance) -> None:
    costs = problem.sources.costs
    if not problem.model.kind.bottleneck and (costs < 0).any():  # which may be a height
        raise InputError("sources: a start cost is not a finite number from 0 on")
    if problem.model.is_integer(problem.heights.dtype):
        if (costs % 1).any():
            raise InputError(
                f"start cost {costs[costs % 1 != 0][0]}: distances are integers here, "
                "start costs must be as well"
            )
        if (most := costs.max(initial=0)) > GUARDS[8]:
            raise InputError(f"start cost {most:g} is beyond 2**62")


__all__ = ["ShortestPaths", "shortest_paths"]
