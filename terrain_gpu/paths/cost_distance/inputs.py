"""Check the arguments of `shortest_paths`: layers, sources, targets, costs, and the device."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...arguments import Devices, PathMethod, is_demanded, refused
from ...cuda.backend import Gpu, Placement, find_gpu, gpu_for
from ...cuda.workers import cluster_on_gpus
from ...engine.arrays import ArrayLayer, fitting_block
from ...engine.machine import limit_of
from ...errors import ArgumentError, InputError, StoreError, plain
from ...facts import Settings
from ...grid import BlockGrid, GridSpec
from ...io.labelled import RasterLike, opened_store
from ...io.places import Places, PlacesLike, as_places
from ...io.settling import Ground, refuse_unusable
from ...plurals import counted
from ...report import Report
from ...store import Layer, TileStore
from ..cost.models import CostModel, Friction
from ..distance_index import BuildIndex
from ..distance_index.build import build as build_index_of
from ..distance_index.files import Index, index_settings
from ..relax.relaxation import GUARDS
from .operation import LAYERS, CostDistance

log = logging.getLogger(__name__)

GPU_METHODS = ("relax-array", "tournament")


def array_layers(
    arrays: tuple[Any, ...],
    nodata: float | int | None,
    cell_size: float | tuple[float, float],
    block_size: int | None,
) -> list[ArrayLayer | None]:
    """Wrap arrays of elevations, frictions and barriers as layers."""
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
            raise refused(
                name, " must be an array of shape {shape}, like the elevations", shape=shape
            )
        own = data.view(np.uint8) if data.dtype == bool else data
        found.append(ArrayLayer(own, blocks, grid, nodata if name == "data" else None, name))
    return found


def store_layers(store: TileStore, names: tuple[Any, ...]) -> list[Layer | None]:
    """Open the layers of elevations, frictions and barriers of a store."""
    for name in names:
        if not (name is None or isinstance(name, str)):
            raise ArgumentError(
                "for a store, {friction} and {barriers} must be names of its layers; create_layer "
                "makes a layer of an array, and convert_dataset makes one of a raster"
            )
        if name in LAYERS:
            raise InputError(f"layer {name!r} is a result; name a layer of elevations or frictions")
    return [None if name is None else store.layer(name) for name in names]


def opened_inputs(
    data: RasterLike,
    names: tuple[Any, Any, Any],
    of_arrays: tuple[Any, Any, int | None],
    into: str,
) -> tuple[str, list[Any]]:
    """The path of a store, "" for arrays, and the layers of elevations, frictions and barriers.

    Parameters
    ----------
    names
        Layers of elevations, frictions and barriers; the last two may be arrays.
    of_arrays
        nodata, cell_size and block_size, which a store has itself.
    """
    if isinstance(data, np.ndarray):
        if into != LAYERS[0]:
            raise ArgumentError("{into} names a layer of a store; leave it out for arrays")
        return "", array_layers((data, *names[1:]), *of_arrays)
    if into in LAYERS[1:]:
        raise ArgumentError(
            "{into} {value}: this layer holds other results; choose another name",
            value=repr(into),
        )
    store = opened_store(data)
    return str(store.path), list(store_layers(store, names))


def valid_places(inputs: Sequence[Any], given: PlacesLike, what: str) -> Places:
    """Convert and check sources or targets, which must be on cells that paths can use.

    Parameters
    ----------
    inputs
        The layers of elevations, frictions and barriers; the last two may be None.
    """
    heights, friction, barriers = inputs
    found = as_places(heights.grid, given, what)
    needed = [heights] if friction in (None, heights) else [heights, friction]
    ground = Ground(needed, [] if barriers is None else [barriers])
    if len(found):
        refuse_unusable(found, ground, snapped=isinstance(heights, Layer))
    return found


def refuse_start_costs(given: Places, what: str) -> None:
    """Reject start costs, such as those in a field called cost, for paths with two ends."""
    if not given.costs.any():
        return
    k = int(given.costs.argmax())
    raise refused(
        what,
        ": {place} has a start cost of {cost}, which cannot be used for paths between places; "
        "leave it out{rename}",
        place=given.called(k),
        cost=f"{given.costs[k]:g}",
        rename=f", or rename the field cost of {given.file}" if given.file else "",
    )


def refuse_shared(begin: Places, end: Places) -> None:
    """Reject cells that are both source and target."""
    shared = np.intersect1d(*(one.rows << 32 | one.cols for one in (begin, end)))
    if len(shared):
        count = counted(len(shared), "cell")
        row, col = divmod(int(shared[0]), 2**32)
        raise ArgumentError(
            "{sources} and {targets} share {count}, such as row {row}, column {col}; for a "
            "corridor they must be different, so leave shared cells out of one of them; for "
            "corridors among all sources, give {pairs} in place of {targets}",
            count=count,
            row=row,
            col=col,
        )


def places_on(
    inputs: Sequence[Any], sources: PlacesLike, targets: PlacesLike | None, *, needed: bool
) -> tuple[Places, Places | None]:
    """Convert and check sources and targets, see `valid_places`.

    `needed`: whether the search stops at targets.
    """
    if needed and targets is None:
        raise ArgumentError("{stop_at_targets} needs {targets}")
    begin = valid_places(inputs, sources, "sources")
    end = None if targets is None else valid_places(inputs, targets, "targets")
    # Names need not be sent to workers with every block.
    return begin.one_per_cell("sources").bare(), end and end.one_per_cell().bare()


def check_start_costs(problem: Any) -> None:
    """Check the start costs of the sources of a `CostDistance` or `MatrixProblem`."""
    costs = problem.sources.costs
    if not len(costs) and not problem.source_edge:
        raise ArgumentError("{sources}: give at least one")
    if not problem.model.kind.bottleneck and (costs < 0).any():  # with minimax, it is an elevation
        k = int(np.argmax(costs < 0))
        raise refused(
            "sources",
            f": the start cost {costs[k]:g} at row {problem.sources.rows[k]}, column "
            f"{problem.sources.cols[k]} is negative; give 0 or more",
        )
    if problem.model.is_integer(problem.heights.dtype):
        if (costs % 1).any():
            raise InputError(
                f"start cost {costs[costs % 1 != 0][0]}: must be an integer, because the distances "
                "are integers"
            )
        if (most := costs.max(initial=0)) > GUARDS[8]:
            raise InputError(f"start cost {most:g} exceeds 2**62; use a smaller one")


def check_metric(problem: CostDistance) -> None:
    """Reject options that the continuous metric does not support."""
    if problem.metric == "steps":
        return
    refuse_with_continuous(
        problem.model,
        problem.connectivity,
        alone=len(problem.names) == 1,
        also=(
            (problem.max_slope is not None, "{max_slope}", "no limit of slope"),
            (problem.method != "relax", f"{{method}} {problem.method!r}", "{method} relax"),
        ),
    )


def refuse_with_continuous(
    model: CostModel,
    connectivity: int,
    *,
    alone: bool,
    also: Iterable[tuple[bool, str, str]] = (),
) -> None:
    """Reject costs and neighbours that the continuous metric does not support.

    Parameters
    ----------
    alone
        Whether only distances are computed.
    also
        Further options to reject: whether the option is set, its text, and what to use instead; see
        `ArgumentError`.
    """
    cost = f"{{cost}} {plain(repr(model.name))}"
    for wrong, what, remedy in (
        (not isinstance(model.kernel, Friction), cost, "{cost} friction"),
        (connectivity != 8, f"{{connectivity}} {connectivity}", "{connectivity} 8"),
        (not alone, "backlinks, allocation, ties or paths", "distances alone"),
        *also,
    ):
        if wrong:
            raise ArgumentError(
                f"the continuous {{metric}} does not support {what}: use {remedy}, or {{metric}} "
                "steps"
            )


def limit_of_costs(max_cost: float | None, least: float) -> float | None:
    if max_cost is not None and not max_cost >= least:
        raise ArgumentError(
            "{max_cost} {value} is not a number of at least {least}",
            value=max_cost,
            least=f"{least:g}",
        )
    return None if max_cost == math.inf else max_cost


def method_with_index(method: PathMethod, over_arrays: bool, *, build_index: bool) -> PathMethod:
    """The method to use: "index" if an index is to be built."""
    if build_index and method not in ("relax", "index"):
        raise ArgumentError(
            "{build_index} needs {method} index and cannot be combined with {method} {other}",
            other=method,
        )
    if build_index:
        method = "index"
    if method == "index" and over_arrays:
        raise ArgumentError("{method} 'index' needs a store; arrays have no distance index")
    return method


def gpu_of_method(
    problem: CostDistance,
    memory_limit: int | str | None,
    backend: str,
    device: Devices,
    gpu_memory_limit: int | str | None,
    client: Any,
) -> tuple[Any, Gpu | None]:
    """The client or its cluster, and the GPU that a method runs on; None for the CPU."""
    method, heights = problem.method, problem.layers[0]
    check_metric(problem)
    if problem.connectivity == 16 and method != "relax":
        raise ArgumentError(
            "{method} {value} supports 4 or 8 neighbours; use {method} relax, or {connectivity} 8",
            value=repr(method),
        )
    if client is not None:
        on_gpus = backend == "cuda" and is_demanded("backend")
        if method in GPU_METHODS or (on_gpus and method == "dijkstra"):
            raise ArgumentError(
                "workers of a cluster do not support {method} {value} on GPUs; use {method} relax, "
                "or leave out {client}",
                value=repr(method),
            )
        if method == "index":
            raise ArgumentError(
                "a cluster does not use the distance index; leave out {client}, or the index "
                "({method} index, {build_index})"
            )
        if method != "relax":
            backend = "cpu"
        how = backend, gpu_memory_limit, memory_limit, heights.block_size
        return cluster_on_gpus(client, problem, *how)
    limit = limit_of(memory_limit)
    return None, _own_gpu_of_method(problem, limit, backend, device, gpu_memory_limit)


def _own_gpu_of_method(
    problem: CostDistance,
    memory_limit: int | None,
    backend: str,
    device: Devices,
    gpu_memory_limit: int | str | None,
) -> Gpu | None:
    """The GPU of this process that a method runs on."""
    method, heights = problem.method, problem.layers[0]
    if method in GPU_METHODS:
        return gpu_for(method, backend, device, gpu_memory_limit)
    if backend == "cuda" and method != "relax" and is_demanded("backend"):
        raise ArgumentError(
            "{method} {value} runs only on the CPU; use relax, or {backend} cpu", value=repr(method)
        )
    if method != "relax":
        return None
    return find_gpu(backend, device, gpu_memory_limit, memory_limit, heights.block_size)


def with_index(
    problem: CostDistance, report: Report, place: Placement, *, build: bool, **how: Any
) -> tuple[CostDistance, Settings | None]:
    """The problem with the index of the store; also a report of the index if it was just built."""
    if not problem.exact and (problem.verified or len(problem.names) > 1):
        log.warning(
            "the index is not used: backlinks, allocation and verify need distances that are exact "
            "to the last bit, which distances of real costs from an index are not"
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
            f"{store.path}: no distance index for these costs: {lacks}; build one with "
            "--build-index, or leave out --method index"
        )
    place.progress.count += 1
    friction = problem.friction
    if problem.model.needs_friction and friction is None:
        friction = problem.layer
    with report.phase("index"):
        asked = BuildIndex(
            layer=problem.layer,
            friction=friction,
            barriers=problem.barriers,
            **{key: value for key, value in problem.steps.items() if key != "metres"},
        )
        made = build_index_of(
            asked,
            store,
            overwrite=True,
            progress=place.progress,
            **how,
        )
    told = {"backend": made.settings["backend"], "seconds": made.seconds["total"]}
    return replace(problem, indexed=True, built=True), made.result | told
