"""Shortest paths over a whole raster, streamed: `shortest_paths`.

1. *Boundary* (optional): a distance index, see `index`.
2. *Relax*: blocks in the order of their least pending distance, to convergence (`relax`).
3. *Finalise*: each block once, in parallel: distances, predecessors, allocation (`finalise`).
"""

from __future__ import annotations

import logging
import math
import os
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

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
    whole,
    word,
)
from ..cells import fits, is_nodata, layer_dtype
from ..compiled import tell_compiling
from ..cuda.backend import Gpu, Placement, choose, find_gpu
from ..cuda.device import free_staging
from ..engine.plan import CUDA_BASELINE, NO_LIMIT, StreamPlan, limit_of, plan_paths, threads_of
from ..engine.schedule import stream
from ..errors import InputError, StoreError
from ..grid import TILE, Block, BlockGrid, GridSpec, Window
from ..grid.lengths import other_unit, step_lengths
from ..io.places import Places, PlacesLike, as_places, refuse_nodata
from ..progress import Passes, Progress, silent
from ..report import Report, trim
from ..store import DEFAULT_BLOCK, Layer, TileStore, create_layer
from ..store.run import begun_dtype
from .costs import MODELS, CostModel, Hops, friction_beside
from .cpu.allocate import BacklinkForest
from .cpu.dijkstra import new_players
from .cpu.finalise import Flats, close_flats, predecessors
from .cpu.relax import GUARDS, Overflow, Relaxation
from .ground import EDGE, Raster, Terrain
from .index import FromIndex, Index, index_settings, rims_bytes
from .index import build_index as build_distance_index
from .steps import UNREACHED
from .trace import TracedPath, trace_path
from .verify import ring_of, threads_within, upper_limit, verify_paths

log = logging.getLogger(__name__)

LAYERS = ("distance", "backlink", "allocation")
GPU_METHODS = ("relax-array", "tournament")
METHODS = get_args(PathMethod)
CHECKPOINT = 60.0
"""Seconds between savings of what a killed run goes on from."""

PLACE_BYTES = 100
"""Memory for a source or a target."""

FEW_PLACES = 10_000
"""So many do not count: the least that is set aside has room for them."""

_ENCODINGS = {"backlink": {"encoding": "esri-d8-backlink"}}

_rehearsed: set[tuple[Any, ...]] = set()
"""What this process has loaded the kernels for."""


def unreached(dtype: np.dtype) -> float | int:
    """Value of unreached cells in distances: NaN, or the largest integer."""
    return math.nan if dtype.kind == "f" else int(np.iinfo(dtype).max)


@dataclass
class ShortestPaths:
    """Cost distances from sources.

    Attributes
    ----------
    layers
        Layers of the store by name: "distance", "backlink", "allocation" as far as asked for;
        empty for arrays.
    grid
        Of the raster.
    reached
        Cells that a source leads to.
    report
        The run's `Report`.
    """

    layers: dict[str, Layer]
    grid: GridSpec
    reached: int
    report: Report
    _arrays: dict[str, np.ndarray]
    _blocks: BlockGrid
    _lengths: np.ndarray

    def _whole(self, name: str) -> np.ndarray:
        if name in self._arrays:
            return self._arrays[name]
        if name not in self.layers:
            raise InputError(f"{name} was not asked for; compute with {name}=True")
        return self.layers[name].read_window(*self.grid.window)

    def distance(self) -> np.ndarray:
        """All distances in memory.

        uint32 or uint64 for integer costs, the largest value where unreached; float64 and NaN
        otherwise.
        """
        return self._whole("distance")

    def backlink(self) -> np.ndarray:
        """All D8 codes toward the predecessor in memory: uint8; 0 at sources, 255 unreached."""
        return self._whole("backlink")

    def allocation(self) -> np.ndarray:
        """The id of each cell's source in memory: uint32; 0 unreached."""
        return self._whole("allocation")

    def path(self, row: int, col: int) -> np.ndarray | None:
        """Cells (row, col) of the least-cost path from its source to a cell; None when unreached.

        int64, shape (n, 2). Needs ``backlink=True``.
        """
        row, col = (
            whole(name, at, 0, size - 1)
            for name, at, size in zip(("row", "col"), (row, col), self.grid.shape, strict=True)
        )
        if "backlink" in self._arrays:
            codes = self._arrays["backlink"]

            def read(i: int, j: int) -> np.ndarray:
                r0, r1, c0, c1 = self._blocks.window(i, j)
                return codes[r0:r1, c0:c1]

        elif "backlink" in self.layers:
            read = self.layers["backlink"].read_block
        else:
            raise InputError("paths need backlinks; compute with backlink=True")
        return trace_path(read, self._blocks, row, col)

    def paths(self, targets: PlacesLike, sources: PlacesLike) -> list[TracedPath]:
        """Least-cost paths to targets, those that are reached, with cost, length and source.

        Both are given as to `shortest_paths`. There is one for every cell and id of `targets`;
        those to targets in one cell share their cells.
        """
        targets = as_places(self.grid, targets, "targets")
        sources = as_places(self.grid, sources, "sources").one_per_cell()
        found: list[TracedPath] = []
        ids = {
            (r, c): i
            for r, c, i in zip(
                *(a.tolist() for a in (sources.rows, sources.cols, sources.ids)), strict=True
            )
        }
        last: TracedPath | None = None
        for row, col, name in zip(
            targets.rows.tolist(), targets.cols.tolist(), targets.ids.tolist(), strict=True
        ):
            if last is not None and tuple(last.cells[-1].tolist()) == (row, col):
                last = replace(last, target=name)
                found.append(last)
                continue
            cells = self.path(row, col)
            if cells is None:
                continue
            cost = self._at("distance", row, col)
            source = ids.get((int(cells[0, 0]), int(cells[0, 1])), EDGE)
            last = TracedPath(source, name, cost, self._length(cells), cells)
            found.append(last)
        return found

    def _at(self, name: str, row: int, col: int) -> float:
        if name in self._arrays:
            return self._arrays[name][row, col].item()
        return self.layers[name].read_window(row, row + 1, col, col + 1)[0, 0].item()

    def _length(self, cells: np.ndarray) -> float:
        step = np.diff(cells, axis=0)
        upper = np.minimum(cells[1:, 0], cells[:-1, 0])
        kind = np.where(
            step[:, 0] == 0,
            0,
            np.where(step[:, 1] == 0, 2, np.where(step[:, 0] == step[:, 1], 3, 1)),
        )
        return math.fsum(self._lengths[kind, upper].tolist())


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
    if max_cost is not None and not max_cost >= MODELS[cost].least:
        raise InputError(f"max_cost {max_cost} is not a number of at least 0")
    if max_cost == math.inf:
        max_cost = None
    if stop_at_targets and targets is None:
        raise InputError("stop_at_targets needs targets")
    if build_index and method not in ("relax", "index"):
        raise InputError(f"an index is for method 'index', not {method!r}")
    if build_index:
        method = "index"
    if method == "index" and isinstance(data, np.ndarray):
        raise InputError("method 'index' is for stores: an array has no distance index")
    friction = friction_beside(cost, data if isinstance(data, np.ndarray) else layer, friction)
    model = CostModel(cost, friction is not None, parameters or {})
    problem: dict[str, Any] = {
        "cost": cost,
        "parameters": model.parameters,
        "connectivity": connectivity,
        "corner_cutting": corner_cutting,
        "reverse": reverse,
        "source_edge": source_edge,
        "max_cost": max_cost,
    }
    report = Report("compute-sssp")
    if isinstance(data, np.ndarray):
        width, height = cell_size if isinstance(cell_size, tuple) else (cell_size, cell_size)
        rows, cols = data.shape
        grid = GridSpec(rows, cols, transform=(width, 0.0, 0.0, 0.0, -height, 0.0))
        fitting = min(DEFAULT_BLOCK, max(TILE, 1 << (max(rows, cols) - 1).bit_length()))
        blocks = BlockGrid(rows, cols, block_size or fitting)
        rasters = [
            None if a is None else _array(a, name, nodata if name == "data" else None, data.shape)
            for a, name in ((data, "data"), (friction, "friction"), (barriers, "barriers"))
        ]
        copied = 0
        for raster, own in zip(rasters, (data, friction, barriers), strict=True):
            found = None if raster is None else np.asarray(raster.data)
            if found is not None and not np.may_share_memory(found, np.asarray(own)):
                copied += found.nbytes
        source = None
    else:
        if nodata is not None or block_size is not None or cell_size != (1.0, 1.0):
            raise InputError("nodata, block_size and cell_size are for arrays")
        store = data if isinstance(data, TileStore) else TileStore.open(data)
        rasters = [None if n is None else _layer(store, n) for n in (layer, friction, barriers)]
        source = store.layer(layer)
        grid, blocks, copied = source.grid, source.blocks, 0
    heights = rasters[0]
    assert heights is not None
    sources = as_places(grid, sources, "sources")
    targets = None if targets is None else as_places(grid, targets, "targets")
    for points, what in ((sources, "sources"), (targets, "targets")):
        if points is not None and len(points):
            _refuse_absent(points, heights, what)
    if not model.kind.bottleneck and (sources.costs < 0).any():  # which may be a height
        raise InputError("sources: a start cost is not a finite number from 0 on")
    sources = sources.one_per_cell("sources")
    targets = targets and targets.one_per_cell()
    if not len(sources) and not source_edge:
        raise InputError("there is no source; give one")
    if model.is_integer(heights.dtype) and (sources.costs % 1).any():
        raise InputError(
            f"start cost {sources.costs[sources.costs % 1 != 0][0]}: distances are integers here, "
            "start costs must be as well"
        )
    lengths = step_lengths(grid)
    if source is not None and model.kind.metric and (unit := other_unit(grid)):
        log.warning("cost %s means metres, and takes lengths for such that are in %s", cost, unit)
    threads = threads_of(threads)
    dtype = model.distance_dtype(heights.dtype)
    if dtype.kind == "u" and len(sources):
        most = sources.costs.max()
        if most > GUARDS[8]:
            raise InputError(f"start cost {most:g} is beyond 2**62")
        if most > GUARDS[dtype.itemsize]:
            dtype = np.dtype(np.uint64)
    names = ["distance"] + ["backlink"] * (backlink or allocation) + ["allocation"] * allocation
    limit = limit_of(NO_LIMIT if memory_limit is None and source is None else memory_limit)
    gpu = _gpu(method, backend, device, gpu_memory_limit, limit, blocks.block)
    solve = _Solve(
        model,
        heights,
        rasters[1],
        rasters[2],
        blocks,
        lengths,
        sources,
        targets,
        problem,
        dtype,
        stop_at_targets,
        names,
        threads,
        verify,
        Placement(gpu, progress, passes=2 + verify),
        report,
        method,
        copied=copied,
    )
    with report.measured():
        if source is None:
            solve.make_plan(limit)
            return solve.in_memory(grid)
        if method == "index":
            how = {"backend": backend, "device": device, "gpu_memory_limit": gpu_memory_limit}
            solve.find_index(store, build=build_index, memory_limit=limit, **how)
        solve.make_plan(limit - solve.held_by_cuda)
        return solve.in_store(source, resume=resume, overwrite=overwrite)


def _gpu(
    method: str,
    backend: str,
    device: int,
    gpu_memory_limit: int | str | None,
    memory_limit: int | None,
    block_size: int,
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


def _array(data: Any, name: str, nodata: Any, shape: tuple[int, int]) -> Raster:
    if not isinstance(data, np.ndarray) or data.shape != shape:
        raise InputError(f"{name} must be an array of shape {shape}, as the heights")
    if data.dtype == bool:
        data = data.view(np.uint8)
    if nodata is not None and not fits(nodata, data.dtype):
        nodata = None  # no cell has it
    return Raster(data.astype(layer_dtype(data.dtype), copy=False), name, nodata)


def _layer(store: TileStore, name: str | np.ndarray) -> Raster:
    if not isinstance(name, str):
        raise InputError("friction and barriers of a store are names of its layers")
    if name in LAYERS:
        raise InputError(f"layer {name!r} is a result; name a layer of heights or frictions")
    found = store.layer(name)
    return Raster(found, str(found.path), found.nodata)


def _refuse_absent(points: Places, heights: Raster, what: str) -> None:
    if isinstance(heights.data, Layer):
        refuse_nodata(points, heights.data)
        return
    void = is_nodata(heights.data[points.rows, points.cols], heights.nodata)
    if void.any():
        k = int(np.argmax(void))
        raise InputError(
            f"{void.sum()} of the {what} are nodata, the first at row {points.rows[k]}, column "
            f"{points.cols[k]}; move them to cells with a value"
        )


@dataclass
class _Solve:
    """One run."""

    model: CostModel
    heights: Raster
    friction: Raster | None
    barriers: Raster | None
    blocks: BlockGrid
    lengths: np.ndarray
    sources: Places
    targets: Places | None
    problem: dict[str, Any]
    dtype: np.dtype
    stop_at_targets: bool
    names: list[str]
    threads: int
    verify: bool
    placement: Placement
    report: Report
    method: PathMethod = "relax"
    index: Index | None = None
    built: dict[str, Any] | None = None
    gpu_plan: StreamPlan | None = None
    copied: int = 0
    _told: int = 0
    _open: list[Relaxation] = field(default_factory=list)

    @property
    def progress(self) -> Passes:
        return self.placement.progress

    @property
    def options(self) -> tuple[bool, bool, bool]:
        p = self.problem
        return p["connectivity"] == 8, p["corner_cutting"], p["reverse"]

    def make_plan(self, memory_limit: int | None) -> None:
        """Decide how many fields stay in memory."""
        self.plan = plan_paths(
            self.blocks.rows,
            self.blocks.cols,
            self.heights.dtype,
            self.blocks.block,
            distance=self.dtype,
            friction=self.friction.dtype if self.friction is not None else None,
            barriers=self.barriers.dtype if self.barriers is not None else None,
            layers=self.names,
            beside=self._held() + self._needs(),
            memory_limit=memory_limit,
            threads=self.threads,
        )
        self.threads = self.plan.workers
        if self.index is not None:
            spare = self.plan.memory_limit - self.plan.memory
            self.index.capacity = self.threads + spare // self.index.file_bytes
        if self.verify:
            self._plan_verify(0)

    def _needs(self) -> int:
        """Bytes of what the method itself works in."""
        if self.index is not None:
            return rims_bytes(self.blocks, self.dtype) + self.threads * self.index.file_bytes
        if self.method == "dijkstra":
            return self.threads * new_players((self.blocks.block,) * 2).nbytes
        return 0

    def _held(self) -> int:
        """Bytes of sources and targets; of arrays, the results and what was copied."""
        places = len(self.sources) + len(self.targets or ())
        held = PLACE_BYTES * max(places - FEW_PLACES, 0)
        if isinstance(self.heights.data, np.ndarray):
            kinds = {"distance": self.dtype.itemsize, "backlink": 1, "allocation": 4}
            held += self.heights.data.size * sum(kinds[name] for name in self.names)
        return held + self.copied

    def _plan_verify(self, held: int) -> None:
        """How many threads verify, beside bytes that are held."""
        limit, held = self.plan.memory_limit, held + self._held()
        self.verifiers = threads_within(self.blocks, 8, limit, self.threads, held)

    def find_index(
        self, store: TileStore, *, build: bool, memory_limit: int | None, **where: Any
    ) -> None:
        """Open the distance index, built before where that is asked for and it is not there."""
        if not self.exact and (self.verify or len(self.names) > 1):
            log.warning(
                "distances of real costs from an index are not exact to the last bit, as "
                "backlinks, allocation and verify need them: cells are relaxed instead"
            )
            self.method = "relax"
            return
        rasters = {"layer": self.heights, "friction": self.friction, "barriers": self.barriers}
        settings = index_settings(self.model, self.problem, rasters)
        try:
            self.index = Index.open(store, self.blocks)
        except StoreError:
            if not build:
                raise
        lacks = self.index.difference(settings) if self.index else "there is none"
        if lacks and not build:
            raise StoreError(
                f"{store.path}: no distance index for this: {lacks}; build one with --build-index, "
                "or leave out --method index"
            )
        if lacks:
            self.progress.count += 1
            with self.report.phase("index"):
                named = {key: raster and Path(raster.name).name for key, raster in rasters.items()}
                if self.model.needs_friction and self.friction is None:
                    named["friction"] = named["layer"]
                same = ("connectivity", "corner_cutting", "reverse")
                how: dict[str, Any] = named | {key: self.problem[key] for key in same}
                how["cost"] = self.model.name
                found = build_distance_index(
                    store,
                    parameters=self.model.parameters,
                    memory_limit=memory_limit,
                    threads=self.threads,
                    overwrite=True,
                    progress=self.progress,
                    **how,
                    **where,
                )
            where_built = {"backend": found.settings["backend"], "seconds": found.seconds["total"]}
            self.built = found.result | where_built
            self.index = Index.open(store, self.blocks)

    @property
    def held_by_cuda(self) -> int:
        """Bytes that building the index has left in this process."""
        return CUDA_BASELINE if self.built and self.built["backend"] == "cuda" else 0

    @property
    def exact(self) -> bool:
        """Whether distances do not depend on the order in which costs are added."""
        return self.dtype.kind != "f" or self.model.kind.bottleneck

    def _widen(self) -> None:
        """Integer distances of 64 bits, of which fewer fit."""
        self.dtype = np.dtype(np.uint64)
        self.make_plan(self.plan.memory_limit)

    def _wide_enough(self, run: Callable[[bool], Any]) -> Any:
        """The result of a run; of a second one, which is told so, where 32 bits overflow."""
        again, before = False, self.progress.seen
        while True:
            with suppress(Overflow):
                return run(again)
            # Not in a handler: its error would hold all that the first run had in memory.
            if self.dtype.itemsize == 8:
                raise InputError(
                    f"{self.heights.name}: distances exceed 64 bits; convert to float64"
                )
            log.warning("distances do not fit 32 bits; starting again with 64")
            self._close()
            self.progress.restart(before)
            self._told = 0
            self._widen()
            again = True

    def _close(self) -> None:
        """Close all spills: an error may outlive the run, and open files keep their space."""
        with ExitStack() as closing:
            while self._open:
                closing.callback(self._open.pop().close)

    # -- where results go ------------------------------------------------------------------

    def in_memory(self, grid: GridSpec) -> ShortestPaths:
        """Over arrays."""
        arrays: dict[str, np.ndarray] = {}

        def write(name: str, at: Block, data: np.ndarray) -> None:
            if name not in arrays:
                arrays.setdefault(name, np.empty(grid.shape, data.dtype))  # of several threads
            r0, r1, c0, c1 = self.blocks.window(*at)
            arrays[name][r0:r1, c0:c1] = data

        def read(name: str, at: Block) -> np.ndarray:
            r0, r1, c0, c1 = self.blocks.window(*at)
            return arrays[name][r0:r1, c0:c1]

        with tempfile.TemporaryDirectory(prefix="terrain_gpu-") as folder:
            try:
                self._wide_enough(lambda _: self._run(Path(folder) / "fields", write, read))
            finally:
                self._close()
        if self.verify:
            self._verify(
                ring_of(arrays["distance"], unreached(self.dtype)),
                lambda name, w: arrays[name][w[0] : w[1], w[2] : w[3]],
            )
        return self._finished({}, grid, arrays)

    def in_store(self, source: Layer, *, resume: bool, overwrite: bool) -> ShortestPaths:
        """Over layers; the results appear when all are complete."""
        settings = {
            **self.problem,
            "layer": source.name,
            "friction": self.friction and Path(self.friction.name).name,
            "barriers": self.barriers and Path(self.barriers.name).name,
            "sources": _digest(self.sources),
            "targets": _digest(self.targets) if self.stop_at_targets else None,
        }
        layers = [r.data for r in (self.heights, self.friction, self.barriers) if r is not None]
        settings["of"] = {layer.name: layer.identity for layer in layers}  # type: ignore[union-attr]
        if self.index is not None and not self.exact:
            settings["method"] = "index"
        path = source.path.parent
        begun = begun_dtype(path, "distance", settings) if resume else None
        if (self.dtype, begun) == (np.uint32, "uint64"):
            self._widen()
        # Whatever is there the second time has 32 bits, and is of this run or the one it resumed.
        layers = self._wide_enough(
            lambda again: self._to_store(
                path, source.grid, settings, resume and not again, overwrite or again
            )
        )
        self.report.settings = settings
        self.report.result["store"] = str(path)
        self.report.result["layers"] = self.names
        return self._finished(layers, source.grid, {})

    def _to_store(
        self, path: Path, grid: GridSpec, settings: dict[str, Any], resume: bool, overwrite: bool
    ) -> dict[str, Layer]:
        kinds = {
            "distance": (self.dtype, unreached(self.dtype)),
            "backlink": (np.dtype(np.uint8), UNREACHED),
            "allocation": (np.dtype(np.uint32), 0),
        }
        with ExitStack() as stack:
            writers: dict[str, Any] = {}
            for name in self.names:
                dtype, nodata = kinds[name]
                writers[name] = stack.enter_context(
                    create_layer(
                        path,
                        name,
                        grid,
                        dtype,
                        nodata=nodata,
                        block_size=self.blocks.block,
                        settings=settings,
                        overwrite=overwrite,
                        resume=resume,
                    )
                )
            # A run killed between two commits left some finished.
            missing = [w for w in writers.values() if not w.finished]
            if missing:
                self._compute(missing[0], writers)
            else:
                self.found = dict(writers["distance"].info["result"])
                self.report.result = {**self.found, "blocks_resumed": self.blocks.count}
                self.progress.count = int(self.verify)
            if self.verify:
                self._verify(
                    writers["distance"].read_ring,
                    lambda name, window: writers[name].read_ring(window, halo=0),
                )
            with self.report.phase("commit"):
                layers: dict[str, Layer] = {}
                for name, writer in writers.items():
                    own = {
                        "result": self.found,
                        "start_costs": bool(self.sources.costs.any()),
                        **_ENCODINGS.get(name, {}),
                    }
                    if layers:  # links and ids say nothing beside other distances
                        own["beside"] = {"distance": layers["distance"].identity}
                    layers[name] = writer.commit(own)
                return layers

    def _compute(self, owner: Any, writers: dict[str, Any]) -> None:
        """The phases; fields are spilled beside the layer of `owner`."""

        def write(name: str, at: Block, data: np.ndarray) -> None:
            if not writers[name].finished:
                writers[name].write_block(*at, data)

        spill = owner.spill / "fields"
        try:
            self._run(
                spill,
                write,
                lambda name, at: writers[name].read_block(*at),
                Relaxation.save_all,
            )
        except Overflow:
            for writer in writers.values():
                writer.keep = False  # what was computed in 32 bits is of no use to anybody
            raise
        finally:
            owner.spilled = any(spill.parent.glob("*.saved"))
            self._close()

    def _finished(
        self, layers: dict[str, Layer], grid: GridSpec, arrays: dict[str, np.ndarray]
    ) -> ShortestPaths:
        how = {**self.problem, "method": self.method, **self.placement.settings()}
        plan = (self.gpu_plan or self.plan).as_dict()
        self.report.settings = {**how, **self.report.settings, "plan": plan}
        self.report.cells = grid.cells
        return ShortestPaths(
            layers, grid, self.found["reached"], self.report, arrays, self.blocks, self.lengths
        )

    # -- the phases ------------------------------------------------------------------------

    def _run(
        self,
        spill: Path,
        write: Callable[[str, Block, np.ndarray], Any],
        read: Callable[[str, Block], np.ndarray],
        stopped: Callable[[Relaxation], None] | None = None,
    ) -> None:
        begun = self.placement.gpu

        def run(gpu: Gpu | None) -> None:
            if gpu is not None:
                self._run_on_gpu(gpu, spill, write, read)
                return
            if begun is not None:
                self._leave_gpu(spill)
            self._run_on_cpu(spill, write, read, stopped)

        self.placement.run(run)

    def _leave_gpu(self, spill: Path) -> None:
        """Plan for the CPU beside CUDA; nothing that the GPU has spilled serves it."""
        self.gpu_plan, self.threads = None, self.plan.workers
        for left in (*spill.parent.glob("regions*"), *spill.parent.glob("hops*")):
            left.unlink()
        self.make_plan(self.plan.memory_limit - self.placement.held)

    def _run_on_cpu(
        self,
        spill: Path,
        write: Callable[[str, Block, np.ndarray], Any],
        read: Callable[[str, Block], np.ndarray],
        stopped: Callable[[Relaxation], None] | None,
    ) -> None:
        with self.report.phase("relax"):
            paths = self._relax(spill, stopped)
        try:
            with self.report.phase("finalise"):
                reached = self._finalise(paths, write)
        except BaseException as error:
            # An interrupt, which is no Exception: what there is serves the run that resumes.
            if stopped is not None and not isinstance(error, Exception):
                stopped(paths)
            raise
        paths.close()
        if "allocation" in self.names:
            with self.report.phase("allocation"):
                self._allocate(write, read)
        count = self.blocks.count
        tiles = math.prod(-(-n // TILE) for n in (self.blocks.rows, self.blocks.cols))
        visits = paths.visits
        # What the layers record does not depend on the way; the report also tells the way.
        self.found = {
            "reached": reached,
            "sources": len(self.sources),
            "distance_dtype": self.dtype.name,
        }
        self.report.result = {
            **self.found,
            "blocks_resumed": self.resumed,
            "block_visits_per_block": round(visits.blocks / count, 3),
            "tile_visits_per_tile": round(visits.tiles / tiles, 3),
            "row_passes_per_visit": round(visits.passes / max(visits.tiles, 1) / TILE, 3),
            "spilled_bytes": visits.spilled,
            "loaded_bytes": visits.loaded,
        }
        if self.index is not None:
            self.report.result["index_bytes"] = self.index.bytes
            self.report.result["index_built"] = self.built

    def _run_on_gpu(
        self,
        gpu: Gpu,
        spill: Path,
        write: Callable[[str, Block, np.ndarray], Any],
        read: Callable[[str, Block], np.ndarray],
    ) -> None:
        from .cuda.problem import Problem
        from .cuda.solve import solve

        self.ground = self._terrain()
        problem = Problem(
            self.ground,
            self.options,
            upper_limit(self.problem["max_cost"], self.dtype),
            self.targets if self.stop_at_targets else None,
            self.names,
            self.threads,
            gpu,
            None if isinstance(self.heights.data, np.ndarray) else self.plan.memory_limit,
            spill,
            self.method,
        )
        _, side = problem.plan()
        if self.verify:
            self._plan_verify(CUDA_BASELINE)
        self.threads = min(self.threads, problem.stagings)  # also of what the CPU does after
        region = side * self.blocks.block
        self.gpu_plan = replace(
            self.plan,
            unit_rows=min(region, self.blocks.rows),
            unit_cols=min(region, self.blocks.cols),
            buffers=problem.stagings,
            readers=problem.stagings,
            writers=problem.stagings,
            workers=1,
            memory=problem.host_memory,
        )
        cells = self.blocks.rows * self.blocks.cols
        done = solve(problem, self.report, lambda more: self.progress(more, cells), write, read)
        if self.verify:
            free_staging()
        self.report.valid_cells = done["valid"]
        self.found = {
            "reached": done["reached"],
            "sources": len(self.sources),
            "distance_dtype": self.dtype.name,
        }
        self.report.result = {
            **self.found,
            "blocks_resumed": done["blocks_resumed"],
            "regions": done["regions"],
            "region_visits": done["region_visits"],
            "blocks_read": done["blocks_read"],
            "gpu_memory_bytes": done["memory"],
            "tile_visits_per_tile": round(done["tile_visits"] / done["tiles"], 3),
            "waves": done["waves"],
        }

    def _terrain(self) -> Terrain:
        return Terrain(
            self.blocks,
            self.model,
            self.heights,
            self.friction,
            self.barriers,
            self.lengths,
            self.sources,
            self.dtype,
            edge=self.problem["source_edge"],
        )

    def _relax(self, spill: Path, stopped: Callable[[Relaxation], None] | None) -> Relaxation:
        """Phase 2."""
        self.ground = self._terrain()
        kind = Relaxation if self.index is None else partial(FromIndex, self.index)
        paths = kind(
            self.ground,
            self.model.kernel,
            self.options,
            self.dtype,
            upper_limit(self.problem["max_cost"], self.dtype),
            self.plan.buffers,
            spill,
            targets=self.targets if self.stop_at_targets else None,
            guarded=self.dtype.kind != "f",
            method=self.method,
        )
        self._open.append(paths)
        if not paths.compiled(*self.ground.types):
            tell_compiling(paths.operator, f"cost {self.model.name}")
            paths.compile(*self.ground.types)
        if isinstance(self.heights.data, Layer) and self.method in ("relax", "dijkstra"):
            self._rehearse()
        self.resumed = paths.restore()
        for at, key in self.ground.starts():
            paths.start(at, self.dtype.type(key))
        try:
            paths.run(self.threads, CHECKPOINT if stopped else math.inf, self._tick)
        except BaseException as error:
            # An interrupt, which is no Exception: what there is serves the run that resumes.
            if stopped is not None and not isinstance(error, Exception):
                stopped(paths)
            raise
        return paths

    def _rehearse(self) -> None:
        """Load or compile what all phases need, while there is little else in memory."""

        def tiny(raster: Raster | None) -> np.ndarray | None:
            return None if raster is None else np.zeros((2, 2), raster.dtype)

        p, heights = self.problem, np.zeros((2, 2), self.heights.dtype)
        others = (r and r.dtype for r in (self.friction, self.barriers))
        what = p["cost"], heights.dtype, *others, *self.names, self.method, self.verify
        if what in _rehearsed:
            return
        _rehearsed.add(what)
        own = self.model.needs_friction and self.friction is None
        shortest_paths(
            heights,
            [(0, 0)],
            cost=p["cost"],
            friction=heights if own else tiny(self.friction),
            barriers=tiny(self.barriers),
            parameters=p["parameters"],
            connectivity=p["connectivity"],
            corner_cutting=p["corner_cutting"],
            reverse=p["reverse"],
            backlink="backlink" in self.names,
            allocation="allocation" in self.names,
            threads=1,
            method=self.method,
            backend="cpu",
            verify=self.verify,
        )
        trim()

    def _size(self, at: Block) -> int:
        r0, r1, c0, c1 = self.blocks.window(*at)
        return (r1 - r0) * (c1 - c0)

    def _tick(self, seen: int) -> None:
        """Progress counts every cell twice: when it is first seen, and when it is final."""
        cells = self.blocks.rows * self.blocks.cols
        seen = min(seen, cells)
        self.progress(seen - self._told, cells)
        self._told = seen

    def _finalise(self, paths: Relaxation, write: Callable[[str, Block, np.ndarray], Any]) -> int:
        """Phase 3."""
        link = "backlink" in self.names
        reached, valid = np.zeros((2, *self.blocks.shape), np.int64)
        flats: Relaxation | None = None
        if link:
            flats = Relaxation(
                Flats(self.blocks, lambda at: self._steps(paths, at)[1]),
                Hops(),
                (True, True, False),
                np.dtype(np.uint32),
                2**31 - 1,
                self.plan.buffers,
                paths.spill.with_suffix(".flats"),
            )
            self._open.append(flats)

        def save(at: Block) -> None:
            window = self.blocks.window(*at)
            with paths.solved(at) as field:
                distances = paths.interior(window, field.distances).copy()
                valid[at] = np.count_nonzero(~paths.interior(window, field.absent))
                inside = distances <= paths.farthest
                if paths.farthest != paths.infinity:
                    distances[~inside] = paths.infinity
            inside = distances != paths.infinity
            reached[at] = np.count_nonzero(inside)
            distances[~inside] = unreached(self.dtype)
            write("distance", at, distances)
            if flats is None:
                return
            codes, flat, count = self._steps(paths, at)
            flats.offer(at, flat, count)
            if not count:
                write("backlink", at, _own(window, codes))

        cells = self.blocks.rows * self.blocks.cols
        self._tick(cells)
        self._each(self.blocks.ids(), save, lambda at: self.progress(self._size(at), cells))
        if flats is not None and flats.pending():
            uneven = flats.pending()
            flats.run(self.threads)

            def close(at: Block) -> None:
                codes, flat, _count = self._steps(paths, at)
                with flats.solved(at) as field:
                    lost = close_flats(flat, field.distances, codes)
                if lost:
                    raise AssertionError(f"block {at}: {lost} cells of flats lead nowhere")
                write("backlink", at, _own(self.blocks.window(*at), codes))

            self._each(uneven, close)
            paths.visits.add(spilled=flats.visits.spilled, loaded=flats.visits.loaded)
            flats.close()
        self.report.valid_cells = int(valid.sum())
        return int(reached.sum())

    def _each(
        self,
        blocks: Iterable[Block],
        work: Callable[[Block], None],
        done: Callable[[Block], None] | None = None,
    ) -> None:
        """Do something for every block, in threads."""
        pool = [None] * self.threads
        stream(
            blocks,
            lambda at, _: at,
            lambda at, _: work(at),
            buffers=pool,
            writers=self.threads,
            done=done,
        )

    def _steps(self, paths: Relaxation, at: Block) -> tuple[np.ndarray, np.ndarray, int]:
        """Predecessors of a block, the steps on its flats, and how many cells lie on these."""
        with paths.solved(at) as field:
            height, width = field.absent.shape[0] - 2, field.absent.shape[1] - 2
            distances = field.distances
            if paths.farthest != paths.infinity:
                distances = np.where(distances <= paths.farthest, distances, paths.infinity)
            codes = np.empty((height, width), np.uint8)
            flat = np.empty((height + 2, width + 2), np.uint8)
            work = np.empty((8, TILE, TILE), self.dtype)
            count = predecessors(
                self.model.kernel,
                field.heights,
                field.frictions,
                field.absent,
                field.lengths,
                self.options,
                distances,
                self.ground.seeds(at, field),
                work,
                codes,
                flat,
            )
        return codes, flat, int(count)

    def _allocate(
        self,
        write: Callable[[str, Block, np.ndarray], Any],
        read: Callable[[str, Block], np.ndarray],
    ) -> None:
        forest = BacklinkForest(self.blocks)
        self._each(
            self.blocks.ids(), lambda at: forest.add(at, read("backlink", at), *self._roots(at))
        )
        forest.resolve()

        def save(at: Block) -> None:
            write("allocation", at, forest.labels(at, read("backlink", at), *self._roots(at)))

        self._each(self.blocks.ids(), save)

    def _verify(
        self,
        read_ring: Callable[[Window], np.ndarray],
        read: Callable[[str, Window], np.ndarray],
    ) -> None:
        """Prove what was written, from the problem alone."""
        ground = self._terrain()
        farthest = upper_limit(self.problem["max_cost"], self.dtype)
        if self.stop_at_targets and self.targets is not None:
            at = zip(self.targets.rows.tolist(), self.targets.cols.tolist(), strict=True)
            ends = np.array([read("distance", (r, r + 1, c, c + 1))[0, 0] for r, c in at])
            if not is_nodata(ends, unreached(self.dtype)).any():
                farthest = min(farthest, ends.max())
        # What does not fit the GPU is proven on the CPU.
        gpu = self.placement.gpu and self.placement.gpu._replace(wanted=False)
        proof = Placement(gpu, doing="verifying ")
        if self.gpu_plan is None:  # nothing was left to compute
            proof.run(lambda gpu: self._plan_verify(CUDA_BASELINE if gpu else proof.held))
        links = (
            partial(read, name) if name in self.names else None
            for name in ("backlink", "allocation")
        )
        with self.report.phase("verify"):
            found = verify_paths(
                ground,
                self.model.kernel,
                self.options,
                self.dtype,
                read_ring,
                *links,
                farthest=farthest,
                threads=self.verifiers,
                gpu=proof.gpu,
                progress=self.progress,
            )
        self.report.result["verified_steps"] = found["checked_steps"]
        self.report.result["verified_on"] = found["backend"]

    def _roots(self, at: Block) -> tuple[np.ndarray, ...]:
        return self.ground.roots(at)


def _own(window: tuple[int, int, int, int], padded: np.ndarray) -> np.ndarray:
    """The raster's own cells of an array up to whole tiles."""
    return padded[: window[1] - window[0], : window[3] - window[2]]


def _digest(sources: Places | None) -> str | None:
    """What tells one set of sources from another."""
    if sources is None:
        return None
    import hashlib

    found = hashlib.sha256()
    for a in (sources.rows, sources.cols, sources.ids, sources.costs):
        found.update(np.ascontiguousarray(a).tobytes())
    return found.hexdigest()


__all__ = ["ShortestPaths", "shortest_paths"]
