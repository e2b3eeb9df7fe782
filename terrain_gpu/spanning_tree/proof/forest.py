"""Verify that a layer of forward edges is the minimum spanning forest: `verify_forest`.

The proof shares only the cells' operands with the programs that compute forests. It reduces the
graph of the raster, part by part, to a small one that is joined with those of other parts, by three
steps. Each is right because the order of edges is total:

- *Pick*. The least edge that leaves a set of cells is in the minimum spanning forest, if all edges
  that leave the set are seen (the cut property). Its ends become one vertex, which changes nothing
  for other edges. The layer must have it.
- *Drop*. An edge that is the largest of a cycle is not in the minimum spanning forest (the cycle
  property), nor needed to decide which others are. The layer must not have it.
- *Contract*. Of an unbranched path whose inner vertices have no other edges, only the largest edge
  can still be dropped, and a dead end is in the forest. The layer must have all others.

Every edge of the grid is picked, dropped or contracted in the end. So the layer is accepted if and
only if it is the minimum spanning forest, whatever the parts are and in whatever order they join.

*Tiles* (`tiles`) pick by Boruvka's rounds in compiled code, where cells with neighbours in other
tiles never pick; each leaves a forest between these cells. *Squares* of tiles (`checker`) are
joined by the edges between them: Kruskal's algorithm drops all but a forest, which is contracted to
its skeleton between the cells on the square's border. Squares are joined in pairs, blocks likewise.
So memory is O(border), although every edge of the raster is checked and every cell is read once.

Where a tile is wrong, Kruskal's algorithm alone processes its square (`kernels`), and names edges.
On a GPU, regions are like tiles, see `gpu`. `pieces` holds the data structures.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...arguments import Devices
from ...cuda.backend import Gpu, Placement, find_gpu
from ...engine.machine import COMPILED_BASELINE, CUDA_BASELINE, MB, NO_LIMIT, Machine
from ...engine.plan import PER_ROW, StreamPlan, format_size, require
from ...engine.proof import Limits, check_blocks, plan_threads
from ...engine.schedule import stream
from ...errors import InputError, PlanError, VerificationError
from ...facts import Findings
from ...grid import MAX_BLOCK, Block, BlockGrid, GridSpec, ceil_div
from ...progress import Progress, silent
from ...store import Layer
from ...store.readable import Readable
from ..weights import Weight
from .blocks import ArrayBlocks, Blocks
from .checker import SPAN, UNIT, ForestChecker, Joiner
from .pieces import CheckedPiece, ForestTally

if TYPE_CHECKING:
    from ...engine.cluster import Cluster

log = logging.getLogger(__name__)

_SLACK = 8 * MB
"""Memory of a thread in addition to its square: that of a tile, and what is returned late."""


def verify_forest(
    source: Layer,
    forest: Layer,
    *,
    weight: str,
    connectivity: int,
    expected: Findings,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: str = "cpu",
    device: Devices = 0,
    gpu_memory_limit: int | None = None,
    gpu: Gpu | None = None,
    progress: Progress = silent,
    cluster: Cluster | None = None,
) -> Findings:
    """Check that a layer is the minimum spanning forest of another, edge by edge, in one pass.

    Parameters
    ----------
    source
        The cells.
    forest
        uint8, the forward edges: bit 0 E, 1 SW, 2 S, 3 SE at the lower endpoint.
    weight, connectivity
        See `minimum_spanning_tree`.
    expected
        The recorded "edges", "components" and "total_weight".
    memory_limit
        Limit on the peak resident set of the process in bytes; a quarter of RAM when None.
    threads
        Number of threads; when None, one per processor.
    backend
        "cpu", "cuda", or "auto": the GPU if it works and its memory holds a block, else the CPU.
        The CPU locates errors in either case.
    device, gpu_memory_limit
        As for `minimum_spanning_tree`.
    gpu
        The GPUs, if already known; replaces the previous three.
    progress
        Called with the cells just checked and the number of all cells; with a negative number
        before cells are checked again.
    cluster
        Its workers check the blocks, on CPUs.

    Returns
    -------
    dict
        "edges", "components", "total_weight" as recomputed; "checked_edges", the number of edges of
        the grid; "all_edges", True (not a sample); and "backend", "cpu" or "cuda".

    Raises
    ------
    VerificationError
        for the first violation found: the property, row and column, and the edges involved.
    InputError
        when the layers' grids or types do not match, a memory limit is too small, or "cuda" does
        not work.
    StoreError
        when a shard is damaged.
    """
    if forest.grid.shape != source.grid.shape or forest.block_size != source.block_size:
        raise InputError(
            f"{forest.path}: {forest.grid.shape} cells in blocks of {forest.block_size}, but "
            f"{source.path} has {source.grid.shape} in blocks of {source.block_size}"
        )
    if forest.dtype != np.uint8:
        raise InputError(
            f"{forest.path}: cells of type {forest.dtype.name} are not edges; name a uint8 layer"
        )
    model = Weight.on(source.grid, weight, source.dtype)
    checker = ForestChecker(source.blocks, model, source.nodata, connectivity, UNIT)
    settings = _How(Machine.of(memory_limit, threads), backend, device, gpu_memory_limit, gpu)
    try:
        if cluster is not None:
            limits = Limits(settings.machine, progress, cluster)
            return _prove_in_workers(source, forest, checker, expected, limits)
        return _prove(source, forest, checker, expected, settings, progress)
    except VerificationError as error:
        error.args = (f"{forest.path}: {error}; compute it again with --overwrite",)
        raise


def verify_arrays(
    data: np.ndarray,
    nodata: float | int | None,
    forward: np.ndarray,
    weight: str,
    connectivity: int,
    *,
    expected: Findings | None = None,
    block_size: int = 1024,
    unit: int = UNIT,
    memory_limit: int = NO_LIMIT,
    held: int = 0,
    backend: str = "cpu",
    device: Devices = 0,
    gpu_memory_limit: int | None = None,
    gpu: Gpu | None = None,
    progress: Progress = silent,
) -> Findings:
    """Run `verify_forest` on arrays: cells and forward edges of the same shape.

    Parameters
    ----------
    block_size, unit
        Sides of the blocks and of the pieces they are cut into; any positive `unit` works.
    memory_limit, held
        Limit on memory, and the part of it already in use, in bytes.
    """
    if data.ndim != 2 or not data.size or forward.shape != data.shape:
        raise InputError(
            f"edges of shape {forward.shape} do not match cells of shape {data.shape}; give two "
            "2-D arrays of one shape"
        )
    if forward.dtype != np.uint8:
        raise InputError(f"an array of {forward.dtype.name} does not hold edges; give uint8")
    cells, edges = ArrayBlocks(data, nodata, block_size), ArrayBlocks(forward, 0, block_size)
    model = Weight.on(GridSpec(*data.shape), weight, data.dtype)
    checker = ForestChecker(cells.blocks, model, nodata, connectivity, unit)
    settings = _How(Machine.of(memory_limit, 1), backend, device, gpu_memory_limit, gpu, held)
    return _prove(cells, edges, checker, expected, settings, progress)


class _How(NamedTuple):
    """What the proof may use, and the backend."""

    machine: Machine
    backend: str
    device: Devices
    gpu_memory_limit: int | None
    gpu: Gpu | None
    held: int = 0


def _prove(
    cells: Blocks,
    edges: Blocks,
    checker: ForestChecker,
    expected: Findings | None,
    settings: _How,
    progress: Progress,
) -> Findings:
    """Verify on the GPU, or on the CPU."""

    def pool(limit: int, cuda: int = 0) -> tuple[int, int]:
        held = settings.held + PER_ROW * cells.blocks.rows * checker.weight.slopes
        return _pool(
            cells, checker.weight, replace(settings.machine, memory_limit=limit), held, cuda
        )

    def room() -> tuple[int, int]:
        if checker.weight.two_words:
            raise PlanError("flow over cells of 64 bits has no kernels for GPUs; use --backend cpu")
        # The CPU must be able to locate errors.
        return pool(settings.machine.memory_limit, CUDA_BASELINE)

    doing = "verifying "
    gpu = settings.gpu or find_gpu(
        settings.backend,
        settings.device,
        settings.gpu_memory_limit,
        settings.machine.memory_limit,
        0,
        fits=room,
        doing=doing,
    )
    placement = Placement(gpu, progress, doing)

    def prove(gpu: Gpu | None) -> Findings:
        if gpu is not None:
            return _prove_on_gpu(
                cells, edges, checker, expected, settings, gpu, room(), placement.progress
            )
        workers = pool(settings.machine.memory_limit - placement.held)
        totals = _verify(cells, edges, checker, expected, workers, placement.progress)
        return {**totals, "backend": "cpu"}

    return placement.run(prove)


def _prove_on_gpu(
    cells: Blocks,
    edges: Blocks,
    checker: ForestChecker,
    expected: Findings | None,
    settings: _How,
    gpu: Gpu,
    pool: tuple[int, int],
    progress: Progress,
) -> Findings:
    from . import gpu as verify_gpu

    sums = verify_gpu.prove(
        cells,
        edges,
        checker,
        gpu=gpu,
        memory_limit=settings.machine.memory_limit,
        held=settings.held + _joins(min(checker.rows, checker.cols), checker.weight),
        threads=settings.machine.threads,
        progress=progress,
    )
    if sums is None:
        log.info("the forest is wrong; the CPU locates the error")
        _verify(cells, edges, checker, None, pool, silent)
        raise AssertionError("a bug: the GPU rejects a forest that the CPU accepts")
    return {**checker.result(ForestTally(*sums), expected), "backend": "cuda"}


def _prove_in_workers(
    cells: Layer,
    edges: Layer,
    checker: ForestChecker,
    expected: Findings,
    limits: Limits,
) -> Findings:
    """Check squares of blocks in workers, and join them here."""
    assert limits.cluster is not None
    plan = plan_workers(cells, checker.weight, limits.cluster, limits)
    regions = BlockGrid(cells.grid.rows, cells.grid.cols, plan.unit_rows)
    joiner, tally = Joiner(checker, regions.shape), ForestTally()

    def add(at: Block, part: tuple[CheckedPiece, ForestTally]) -> None:
        tally.merge(part[1])
        joiner.add(*at, part[0], tally)

    check_blocks(
        plan, regions, [], partial(_check_region, checker, cells, edges, regions), add, limits
    )
    return {**_result(checker, tally, expected), "backend": "cpu"}


def _check_region(
    checker: ForestChecker, cells: Layer, edges: Layer, regions: BlockGrid, at: Block, _: object
) -> tuple[CheckedPiece, ForestTally]:
    """Check the blocks of a region, and join them."""
    blocks, tally = cells.blocks, ForestTally()
    r0, r1, c0, c1 = regions.window(*at)
    first, shape = (
        (r0 // blocks.block, c0 // blocks.block),
        BlockGrid(r1 - r0, c1 - c0, blocks.block).shape,
    )
    joiner = Joiner(checker, shape)
    for i, j in np.ndindex(shape):
        block = first[0] + i, first[1] + j
        piece, block_tally = checker.block(
            blocks.window(*block), cells.read_block(*block), edges.read_block(*block)
        )
        tally.merge(block_tally)
        joiner.add(i, j, piece, tally)
    assert joiner.whole is not None
    return joiner.whole, tally


def plan_workers(cells: Readable, weight: Weight, cluster: Cluster, limits: Limits) -> StreamPlan:
    """How squares of blocks go through workers: as large as leaves several for each.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    blocks: BlockGrid = cells.blocks
    side = next(
        side
        for side in (4, 2, 1)
        if side * blocks.block <= MAX_BLOCK
        if BlockGrid(blocks.rows, blocks.cols, side * blocks.block).count >= 8 * cluster.slots
        or side == 1
    )
    one = _square(blocks, weight) + 2 * blocks.largest() * (cells.dtype.itemsize + 1)
    one += _joins(min(blocks.rows, blocks.cols, 2 * side * blocks.block), weight)
    plan = plan_threads(blocks, cells.dtype.name, cluster.threads, one, limits)
    memory = plan.memory - cluster.threads * one + _joins(min(blocks.rows, blocks.cols), weight)
    memory = max(plan.memory, memory)
    require(memory, plan.memory_limit, f"to verify {blocks.rows} x {blocks.cols} cells in workers")
    side *= blocks.block
    return replace(plan, memory=memory, unit_rows=side, unit_cols=side)


def _square(blocks: BlockGrid, weight: Weight) -> int:
    """Bytes of a thread that checks a square: operands, weights, numbers, masks, and lists."""
    side = min(SPAN * UNIT, blocks.block)
    cells = min(side, blocks.rows) * min(side, blocks.cols)
    return cells * (weight.operand_dtype.itemsize + weight.key_dtype.itemsize + 24) + _SLACK


def _joins(side: int, weight: Weight) -> int:
    """Bytes of the largest join of pieces of this side.

    Two pieces keep 2 edges per border cell, on 3 sides if the shorter side of the raster is little
    longer than theirs, and 3 more edges per cell join them.
    """
    return 24 * side * (3 * weight.key_dtype.itemsize + 96)


def _result(checker: ForestChecker, tally: ForestTally, expected: Findings | None) -> Findings:
    """The findings of all pieces."""
    if tally.missing >= 0:
        raise checker.violation(
            "spanning", tally.missing, "joins two trees: the forest lacks an edge between them"
        )
    assert not tally.refused, "a bug: tiles are rejected, but no edge of them is wrong"
    return checker.result(tally, expected)


def _verify(
    cells: Blocks,
    edges: Blocks,
    checker: ForestChecker,
    expected: Findings | None,
    pool: tuple[int, int],
    progress: Progress,
) -> Findings:
    """Stream all blocks through `checker`; `pool` is the number of workers and of buffers."""
    blocks = cells.blocks
    side = min(blocks.block, blocks.rows), min(blocks.block, blocks.cols)
    joiner, tally = Joiner(checker, blocks.shape), ForestTally()
    Buffer = tuple[np.ndarray, np.ndarray]

    def read(at: Block, buffer: Buffer) -> Buffer:
        return cells.read_block(*at, out=buffer[0]), edges.read_block(*at, out=buffer[1])

    def check(at: Block, buffer: Buffer) -> tuple[CheckedPiece, ForestTally]:
        return checker.block(blocks.window(*at), *buffer)

    def join(at: Block, result: tuple[CheckedPiece, ForestTally]) -> None:
        tally.merge(result[1])
        joiner.add(*at, result[0], tally)

    def finished(at: Block) -> None:
        r0, r1, c0, c1 = blocks.window(*at)
        progress((r1 - r0) * (c1 - c0), blocks.rows * blocks.cols)

    stream(
        blocks.ids(),
        read,
        join,
        compute=check,
        buffers=[(np.empty(side, cells.dtype), np.empty(side, np.uint8)) for _ in range(pool[1])],
        workers=pool[0],
        done=finished,
    )
    return _result(checker, tally, expected)


def _pool(
    source: Blocks, weight: Weight, machine: Machine, held: int = 0, cuda: int = 0
) -> tuple[int, int]:
    """Return how many workers and buffers fit the limit in addition to `held` and `cuda` bytes."""
    blocks = source.blocks
    block = blocks.largest() * (source.dtype.itemsize + 1)
    joins = _joins(min(blocks.rows, blocks.cols), weight)
    square, limit = _square(blocks, weight), machine.memory_limit
    for workers in range(min(machine.threads, blocks.count), 0, -1):
        for buffers in (min(workers + 1, blocks.count), workers):
            # One more block: the reader's encoded input.
            memory = workers * square + (buffers + 1) * block + joins
            memory += COMPILED_BASELINE + held + cuda
            if memory <= limit:
                return workers, buffers
    raise PlanError(
        f"a memory limit of {format_size(limit)} is too small to verify {blocks.rows} x "
        f"{blocks.cols} cells of {source.dtype.name} in blocks of {blocks.block}"
        f"{' on a GPU' if cuda else ''}; give at least {ceil_div(memory, MB)} MB"
    )
