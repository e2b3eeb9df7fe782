"""The spanning forest of a whole raster, streamed: `minimum_spanning_tree`.

1. *Blocks*: every block is read once, solved, and its final edges written; its border and
   candidates go to the spill.
2. *Levels*: regions are joined four at a time, depth first in Z-order, so that memory holds one
   border for each level; edges that become final inside a finished block go to patch lists.
3. *Patches*: finished blocks with such edges are patched in place, in order.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from ..arguments import (
    Backend,
    Connectivity,
    TreeMethod,
    TreeWeight,
    checked,
    one_of,
    raster_or_store,
    word,
)
from ..cells import fits, layer_dtype, to_json
from ..compiled import tell_compiling
from ..cuda.backend import Gpu, Placement, find_gpu
from ..engine.plan import (
    COMPILED_BASELINE,
    CUDA_BASELINE,
    NO_LIMIT,
    StreamPlan,
    layer_bytes,
    limit_of,
    plan_forest,
    threads_of,
)
from ..engine.schedule import missing, stream
from ..errors import CellError, InputError
from ..grid import TILE, Block, BlockGrid
from ..grid.neighbours import FORWARD_EDGES, symmetric
from ..progress import Progress, silent
from ..report import Report
from ..store import DEFAULT_BLOCK, Layer, LayerWriter, TileStore, create_layer
from ..store.files import output_errors
from ..store.tiles import split_bits, untile, z_view
from .levels import (
    METHODS,
    DiskSpill,
    MemorySpill,
    Patches,
    Solved,
    Solver,
    Spill,
    Totals,
    join_levels,
    spill_bytes,
)
from .verify.forest import verify_arrays, verify_forest
from .weights import WEIGHTS, Weight

log = logging.getLogger(__name__)

LAYER = "mst"
PATCHERS = 4
"""Threads that patch blocks at least: they wait for the disk."""

MOST_CELLS = 2**61
"""Edge ids, four for each cell, are int64."""


@dataclass
class SpanningTree:
    """A minimum spanning forest.

    Attributes
    ----------
    layer
        The store's layer of forward edges: bit k of a cell is its edge E, SW, S or SE; None for
        arrays.
    edge_count, components
        Edges of the forest, and its trees (a cell without neighbours is one).
    total_weight
        Sum of the edges' weights: exact for integers, correctly rounded for real cells.
    report
        The run's `Report`.
    """

    layer: Layer | None
    edge_count: int
    components: int
    total_weight: int | float
    report: Report
    _forward: np.ndarray | None = None

    def edges(self) -> np.ndarray:
        """The whole edge raster in memory: uint8, one bit for each edge at a cell.

        Bits are the D8 codes of ESRI: E 1, SE 2, S 4, SW 8, W 16, NW 32, N 64, NE 128. Cells
        without a value are 0.
        """
        if self._forward is not None:
            forward = self._forward
        elif self.layer is not None:
            forward = self.layer.read_window(*self.layer.grid.window)
        return symmetric(np.pad(forward, 1))


@checked(data=raster_or_store, weight=one_of(WEIGHTS), method=word(TreeMethod))
def minimum_spanning_tree(
    data: np.ndarray | str | os.PathLike[str] | TileStore,
    *,
    weight: TreeWeight = "max",
    connectivity: Connectivity = 8,
    method: TreeMethod = "frozen",
    nodata: float | int | None = None,
    layer: str = "elevation",
    memory_limit: int | str | None = None,
    threads: int | None = None,
    block_size: int | None = None,
    backend: Backend = "auto",
    device: int = 0,
    gpu_memory_limit: int | str | None = None,
    verify: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> SpanningTree:
    """Minimum spanning forest of a raster as a grid graph.

    Neighbouring cells are joined by an edge; nodata (and NaN or infinite) cells are absent, so the
    result is one tree for each connected part. Edges are ordered by (weight, id of the lower
    endpoint, direction), so the forest is unique: the same bits for every block size, memory limit
    and thread count.

    Parameters
    ----------
    data
        A store, its path, or a 2-D array (or nested lists).
    weight
        "max": the higher of the two cells, so that paths in the tree have the lowest passes;
        "absdiff": their absolute difference.
    connectivity
        8 or 4.
    method
        "frozen": Boruvka with frozen components. "contract": the classical contraction, kept as a
        reference. Both give the same bits.
    nodata
        For arrays: value of absent cells. A store's layer has its own.
    layer
        Layer of the store to read. The result is its layer "mst".
    memory_limit
        Bound on the peak resident set of the process, bytes or "2GB"; a quarter of RAM when None.
        For arrays: the same without what the caller holds, results included; no bound when None.
    threads
        Threads; all processors when None.
    block_size
        For arrays: side of a block. A store's layer has its own.
    backend
        "cuda", "cpu", or "auto": CUDA where it works. The bits are the same.
    device
        Number of the GPU.
    gpu_memory_limit
        Bound on the GPU memory used, bytes; nine tenths of what is free when None.
    verify
        Prove the result in another pass over the cells, see `verify`.
    resume
        Go on with an unfinished run.
    overwrite
        Replace an existing result, at the end.
    progress
        Called with the cells just solved, or verified, and the cells of all passes.

    Raises
    ------
    InputError
        for unknown weights, connectivity or types, limits that are too small, and "cuda" where it
        does not work.
    StoreError
        when the store is damaged, or has a result already.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.

    Notes
    -----
    Boruvka's algorithm with frozen boundary components; docs/design/spanning-trees.md.
    """
    report = Report("compute-mst")
    options = {"weight": weight, "connectivity": connectivity, "method": method}
    if backend == "cuda" and method != "frozen":
        raise InputError(
            f"method {method!r} runs on the CPU only; use method frozen, or backend cpu"
        )
    if method != "frozen":
        backend = "cpu"
    if isinstance(data, np.ndarray):
        limit = NO_LIMIT if memory_limit is None else limit_of(memory_limit)
        gpu = find_gpu(backend, device, gpu_memory_limit, limit, 0)
        return _of_array(
            data, nodata, block_size, limit, threads, options, gpu, verify, progress, report
        )
    if nodata is not None or block_size is not None:
        raise InputError("nodata and block_size are for arrays; a store's layer has its own")
    store = data if isinstance(data, TileStore) else TileStore.open(data)
    if layer == LAYER:
        raise InputError(f"{store.path}: layer {layer!r} is the result; name the layer of heights")
    source = store.layer(layer)
    gpu = find_gpu(backend, device, gpu_memory_limit, memory_limit, source.block_size)
    return _of_store(
        source,
        memory_limit,
        threads,
        options,
        gpu,
        verify,
        resume,
        overwrite,
        progress,
        report,
    )


def _verifies(gpu: Gpu | None) -> dict[str, Any]:
    """Where to verify: the CPU does when this GPU cannot hold the raster."""
    return {"gpu": gpu and gpu._replace(wanted=False)}


def _solver(
    source: Any,
    shape: tuple[int, int],
    nodata: Any,
    options: dict[str, Any],
    plan: StreamPlan,
    gpu: Gpu | None,
) -> Any:
    """A `Solver` of blocks, or a `GpuSolver` of regions."""
    if shape[0] * shape[1] > MOST_CELLS:
        raise InputError(f"{shape[0]} x {shape[1]} cells are more than {MOST_CELLS}")
    dtype, blocks = source.dtype, source.blocks
    weight = Weight(options["weight"], dtype)
    diagonal, method = options["connectivity"] == 8, METHODS[options["method"]]
    if gpu is not None:
        from .cuda.regions import GpuSolver

        return GpuSolver(blocks, plan.unit_rows, weight, nodata, diagonal, gpu)
    solver = Solver(shape, blocks.block, weight, nodata, diagonal, method)
    if not solver.compiled():
        tell_compiling(method.kernel, f"{dtype.name} cells")
        # In this thread, which Ctrl-C reaches: a worker would be waited for.
        one = Solver((1, 1), TILE, weight, None, diagonal, method)
        one.solve((0, 1, 0, 1), np.zeros((1, 1), dtype), np.zeros((1, 1), np.uint8))
    return solver


def plan_spanning_tree(
    rows: int,
    cols: int,
    dtype: np.dtype,
    block_size: int,
    *,
    weight: str = "max",
    method: str = "frozen",
    source_bytes: int | None = None,
    held: int | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    gpu: Gpu | None = None,
) -> StreamPlan:
    """The plan of the spanning tree of a layer that need not exist yet.

    Parameters
    ----------
    source_bytes
        Size of the layer's shards; of uncompressed ones without nodata when None.
    held
        For arrays: bytes held besides; what blocks leave for the levels stays in memory too.
    gpu
        Plan regions for this GPU; blocks for the CPU when None.
    """
    kind = Weight(weight, dtype)
    key, module = kind.key_dtype, METHODS[method]
    if source_bytes is None:
        source_bytes = layer_bytes(rows, cols, dtype.itemsize, block_size)
    spill = partial(spill_bytes, weight=kind, method=module)
    blocks = BlockGrid(rows, cols, block_size)
    beside = 0 if held is None else held + spill(blocks)
    if gpu is not None:
        from .cuda.plan import keeps_cells, plan_regions

        keeps_cells(dtype, gpu.device)
        return plan_regions(
            rows,
            cols,
            dtype,
            block_size,
            spill=spill,
            levels=(rows + cols) * module.levels_per_side(key),
            source_bytes=source_bytes,
            threads=threads_of(threads),
            memory_limit=limit_of(memory_limit) - beside,
            gpu_memory_limit=gpu.memory,
        )
    return plan_forest(
        rows,
        cols,
        dtype,
        block_size,
        # Operands and their temporary, validity, and what the method works in.
        work=block_size**2 * (2 * key.itemsize + 2 + module.work_per_cell(key)),
        levels=(rows + cols) * module.levels_per_side(key),
        spill=spill(blocks),
        source_bytes=source_bytes,
        beside=beside,
        memory_limit=memory_limit,
        threads=threads,
    )


def _of_store(
    source: Layer,
    memory_limit: int | str | None,
    threads: int | None,
    options: dict[str, Any],
    gpu: Gpu | None,
    verify: bool,
    resume: bool,
    overwrite: bool,
    progress: Progress,
    report: Report,
) -> SpanningTree:
    grid, limit = source.grid, limit_of(memory_limit)
    placement = Placement(gpu, progress)

    @cache
    def plan_on(gpu: Gpu | None) -> StreamPlan:
        plan = plan_spanning_tree(
            grid.rows,
            grid.cols,
            source.dtype,
            source.block_size,
            weight=options["weight"],
            method=options["method"],
            source_bytes=source.info.get("stored_bytes"),
            memory_limit=limit - placement.held,
            threads=threads,
            gpu=gpu,
        )
        for line in plan.describe().splitlines():
            log.info("%s", line)
        return plan

    placement.run(plan_on)
    settings = {"layer": source.name, **options}
    with (
        report.measured(),
        create_layer(
            source.path.parent,
            LAYER,
            grid,
            np.uint8,
            block_size=source.block_size,
            settings={**settings, "of": {source.name: source.identity}},
            overwrite=overwrite,
            resume=resume,
        ) as writer,
    ):
        resumed, patched = int(writer.done.sum()), 0
        advance = placement.progress
        advance.count = int(not writer.finished) + int(verify)

        def solve(gpu: Gpu | None) -> tuple[dict[str, Any], int]:
            plan = plan_on(gpu)
            solver = _solver(source, grid.shape, source.nodata, options, plan, gpu)
            with output_errors(writer.spill):
                totals, patches = _stream_forest(
                    source, solver, writer, plan, threads_of(threads), advance, report
                )
            return _result(solver.weight, totals), patches.count

        if writer.finished:
            found = writer.info["result"]
        else:
            found, patched = placement.run(solve)
        if verify:
            store = source.path.parent
            with report.phase("verify"):
                checked = verify_forest(
                    source,
                    TileStore.open(store).layer(LAYER) if writer.finished else writer,
                    weight=options["weight"],
                    connectivity=options["connectivity"],
                    expected=found,
                    memory_limit=limit - placement.held,
                    threads=threads,
                    progress=advance,
                    **_verifies(placement.gpu),
                )
        with report.phase("commit"):
            layer = writer.commit({"encoding": FORWARD_EDGES, "result": found})
    plan = plan_on(placement.gpu)
    report.settings = {**settings, **placement.settings(), "plan": plan.as_dict()}
    report.cells, report.valid_cells = grid.cells, found["vertices"]
    report.result = {**found, "store": str(source.path.parent), "layer": LAYER}
    # What the layer records does not depend on the way; the report also tells the way.
    report.result |= {"patched_edges": patched, "blocks_resumed": resumed}
    if verify:
        report.result["verified_edges"] = checked["checked_edges"]
        report.result["verified_on"] = checked["backend"]
    return _tree(report, layer)


def _stream_forest(
    source: Layer,
    solver: Any,
    writer: LayerWriter,
    plan: StreamPlan,
    threads: int,
    progress: Progress,
    report: Report,
) -> tuple[Totals, Patches]:
    """All phases, into `writer`."""
    regions = solver.regions
    own = writer.spill / f"solved-{regions.block}"
    for other in writer.spill.glob("solved-*"):
        if other != own:  # of a run with other regions, whose blocks are now written again
            shutil.rmtree(other)
    spill = DiskSpill(own, solver.weight)

    def there(at: Block) -> bool:
        return spill.has(*at) and all(writer.done[block] for block in solver.blocks_in(at))

    with report.phase("blocks"):
        try:
            _solve_all(source, solver, writer, there, spill, plan, progress)
        except CellError as error:
            writer.keep = False
            raise CellError(f"{source.path}: {error}") from error
    totals, patches = Totals(), Patches(writer.blocks, plan.cols, writer.spill / "patches")
    with report.phase("levels"):
        join_levels(regions, solver, spill, totals, patches.add)
    room = (
        plan.memory_limit - COMPILED_BASELINE - (0 if isinstance(solver, Solver) else CUDA_BASELINE)
    )
    # A block as it is read, with its bits, and as it is written.
    patchers = max(min(max(PATCHERS, threads), room // (3 * writer.block_size**2)), 1)
    with report.phase("patches"):
        stream(
            patches.by_block(),
            lambda patch, _: patch,
            lambda _, patch: writer.patch_block(*patch),
            buffers=[None] * patchers,
            writers=patchers,
        )
    return totals, patches


def _of_array(
    data: np.ndarray,
    nodata: float | int | None,
    block_size: int | None,
    memory_limit: int,
    threads: int | None,
    options: dict[str, Any],
    gpu: Gpu | None,
    verify: bool,
    progress: Progress,
    report: Report,
) -> SpanningTree:
    dtype = layer_dtype(data.dtype)
    if block_size is None:
        block_size = min(DEFAULT_BLOCK, max(TILE, 1 << (max(data.shape) - 1).bit_length()))
    rows, cols = data.shape
    if nodata is not None and not fits(nodata, dtype):
        nodata = None  # no cell has it
    blocks = BlockGrid(rows, cols, block_size)
    # The edges, and a copy in this machine's order of bytes.
    held = data.size + (0 if data.dtype == dtype else data.nbytes)
    placement = Placement(gpu, progress)

    @cache
    def plan_on(gpu: Gpu | None) -> StreamPlan:
        return plan_spanning_tree(
            rows,
            cols,
            dtype,
            block_size,
            weight=options["weight"],
            method=options["method"],
            source_bytes=data.nbytes,
            held=held,
            memory_limit=memory_limit - placement.held,
            threads=threads,
            gpu=gpu,
        )

    placement.run(plan_on)
    data = data.astype(dtype, copy=False)
    forward = np.zeros(data.shape, np.uint8)
    source = _ArrayLayer(data, blocks)
    target = _ArrayLayer(forward, blocks)

    def solve(gpu: Gpu | None) -> dict[str, Any]:
        plan = plan_on(gpu)
        solver = _solver(source, data.shape, nodata, options, plan, gpu)
        spill, totals, patches = MemorySpill(), Totals(), Patches(blocks, data.shape[1], None)
        with report.phase("blocks"):
            _solve_all(source, solver, target, lambda at: False, spill, plan, placement.progress)
        with report.phase("levels"):
            join_levels(solver.regions, solver, spill, totals, patches.add)
        with report.phase("patches"):
            for i, j, row, col, bits in patches.by_block():
                r0, r1, c0, c1 = blocks.window(i, j)
                np.bitwise_or.at(forward[r0:r1, c0:c1], (row, col), bits)
        return _result(solver.weight, totals)

    with report.measured():
        found = placement.run(solve)
    if verify:
        with report.phase("verify"):
            verify_arrays(
                data,
                nodata,
                forward,
                options["weight"],
                options["connectivity"],
                memory_limit=memory_limit - placement.held,
                held=held,
                **_verifies(placement.gpu),
            )
    plan = plan_on(placement.gpu)
    report.settings = {**options, **placement.settings(), "plan": plan.as_dict()}
    report.cells, report.valid_cells, report.result = data.size, found["vertices"], found
    return _tree(report, None, forward)


class _ArrayLayer:
    """An array read and written as a layer is."""

    def __init__(self, data: np.ndarray, blocks: BlockGrid) -> None:
        self.blocks, self.dtype = blocks, data.dtype
        self._data = data

    def _part(self, i: int, j: int) -> np.ndarray:
        r0, r1, c0, c1 = self.blocks.window(i, j)
        return self._data[r0:r1, c0:c1]

    def read_block(self, i: int, j: int, out: np.ndarray) -> np.ndarray:
        part = self._part(i, j)
        result = out[: part.shape[0], : part.shape[1]]
        result[...] = part
        return result

    def write_block(self, i: int, j: int, data: np.ndarray) -> None:
        self._part(i, j)[...] = data

    def read_tiles(self, i: int, j: int, out: np.ndarray) -> None:
        part = self._part(i, j)
        whole = np.zeros((self.blocks.block,) * 2, self.dtype)
        whole[: part.shape[0], : part.shape[1]] = part
        np.copyto(z_view(out), split_bits(whole))

    def write_tiles(self, i: int, j: int, tiles: np.ndarray) -> None:
        part = self._part(i, j)
        part[...] = untile(tiles)[: part.shape[0], : part.shape[1]]


def _solve_all(
    source: Any, solver: Any, target: Any, there: Callable[[Block], bool], *more: Any
) -> None:
    """Phase 1: every region that is not there already."""
    if isinstance(solver, Solver):
        _solve_blocks(source, solver, target, there, *more)
        return
    from .cuda.regions import solve_regions

    solve_regions(source, solver, target, there, *more)


def _solve_blocks(
    source: Any,
    solver: Solver,
    target: Any,
    there: Callable[[Block], bool],
    spill: Spill,
    plan: StreamPlan,
    progress: Progress,
) -> None:
    """Phase 1 on the CPU, where regions are blocks."""
    blocks = source.blocks
    Buffer = tuple[np.ndarray, np.ndarray]

    def read(at: Block, buffer: Buffer) -> Buffer:
        data = source.read_block(*at, out=buffer[0])
        # Contiguous for every shape, so that the kernels are compiled once.
        return data, buffer[1][: data.size].reshape(data.shape)

    def solve(at: Block, buffer: Buffer) -> tuple[Solved, np.ndarray]:
        data, mask = buffer
        return solver.solve(blocks.window(*at), data, mask), mask

    def save(at: Block, result: tuple[Solved, np.ndarray]) -> None:
        # The spill first: a block that counts as written must be found there.
        spill.save(*at, result[0])
        target.write_block(*at, result[1])

    def finished(at: Block) -> None:
        r0, r1, c0, c1 = blocks.window(*at)
        progress((r1 - r0) * (c1 - c0), plan.rows * plan.cols)

    stream(
        missing(blocks, there, finished),
        read,
        save,
        compute=solve,
        buffers=[
            (np.empty((blocks.block,) * 2, source.dtype), np.empty(blocks.block**2, np.uint8))
            for _ in range(plan.buffers)
        ],
        readers=plan.readers,
        workers=plan.workers,
        writers=plan.writers,
        done=finished,
    )


def _result(weight: Weight, totals: Totals) -> dict[str, Any]:
    return {
        "edges": totals.edges,
        "components": totals.vertices - totals.edges,
        "total_weight": to_json(weight.rounded(totals.exact)),
        "vertices": totals.vertices,
    }


def _tree(report: Report, layer: Layer | None, forward: np.ndarray | None = None) -> SpanningTree:
    found = report.result
    total = found["total_weight"]
    return SpanningTree(
        layer,
        found["edges"],
        found["components"],
        float(total) if isinstance(total, str) else total,
        report,
        forward,
    )
