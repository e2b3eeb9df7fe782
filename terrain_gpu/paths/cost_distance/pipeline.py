"""Run `FindShortestPaths`: cost distances in a store or in arrays."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ...arguments import (
    Backend,
    Devices,
    LayerCompression,
)
from ...cuda.backend import Placement
from ...cuda.device import numbers
from ...engine.compression import refuse_for_arrays
from ...engine.machine import CUDA_BASELINE, NO_LIMIT, limit_of
from ...engine.run import run as run_operation
from ...engine.run import run_in_memory
from ...errors import InputError
from ...io.labelled import RasterLike
from ...progress import Progress, silent
from ...report import Report
from ...store import Layer
from ...store.run import begun_dtype
from ..cost.graph import warn_about_lengths
from ..cost.models import row_of
from ..cost.resolve import stated_cost
from ..cost.wrap import joining
from ..relax.relaxation import Overflow
from . import FindShortestPaths
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
from .result import ShortestPaths

log = logging.getLogger(__name__)

Solved = TypeVar("Solved")


def run(
    asked: FindShortestPaths,
    data: RasterLike,
    *,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: Backend = "auto",
    device: Devices = 0,
    gpu_memory_limit: int | str | None = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
    client: Any = None,
) -> ShortestPaths[Any]:
    """Find the paths over a store or an array; the result is that of the public function."""
    over_arrays, of_arrays = (
        isinstance(data, np.ndarray),
        (asked.nodata, asked.cell_size, asked.block_size),
    )
    method = method_with_index(asked.method, over_arrays, build_index=asked.build_index)
    own = (
        data if over_arrays else asked.layer,
        asked.friction,
        asked.parameters,
        asked.vertical_factor,
    )
    cost, parameters, friction, stated = stated_cost(data, asked.cost, *own)
    rasters = asked.layer, friction, asked.barriers
    path, inputs = opened_inputs(data, rasters, of_arrays, asked.into)
    heights, names = inputs[0], [None if found is None else found.name for found in inputs]
    joined = joining(heights.grid, asked.wrap, path, asked.connectivity, method)
    begin, ends = places_on(inputs, asked.sources, asked.targets, needed=asked.stop_at_targets)
    problem = CostDistance(
        path,
        heights.name,
        friction=names[1],
        barriers=names[2],
        cost=cost,
        parameters=parameters,
        connectivity=asked.connectivity,
        corner_cutting=asked.corner_cutting,
        reverse=asked.reverse,
        max_slope=asked.max_slope,
        metric=asked.metric,
        stated=stated,
        sources=begin,
        source_edge=asked.source_edge,
        max_cost=limit_of_costs(asked.max_cost, row_of(cost).least),
        targets=ends,
        stop_at_targets=asked.stop_at_targets,
        names=LAYERS[: 3 if asked.allocation else 1 + asked.backlink],
        into=asked.into,
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
    again = {"build": asked.build_index, "resume": resume, "overwrite": overwrite, "client": client}
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
            made = run_operation(
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
