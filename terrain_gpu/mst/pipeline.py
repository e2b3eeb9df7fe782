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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..cells import layer_dtype, to_json
from ..d8 import FORWARD_EDGES, symmetric
from ..errors import CellError, InputError
from ..executor import stream
from ..grid import TILE, BlockGrid
from ..planner import StreamPlan, layer_bytes, plan_forest
from ..progress import Progress, silent
from ..report import Report
from ..store import DEFAULT_BLOCK, Layer, LayerWriter, TileStore, create_layer
from ..store.writer import output_errors
from ..weights import Weight
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
from .verify import verify_arrays, verify_forest

log = logging.getLogger(__name__)

LAYER = "mst"
PATCHERS = 4
"""Threads that patch blocks: they wait for the disk."""

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


def minimum_spanning_tree(
    data: np.ndarray | str | os.PathLike[str] | TileStore,
    *,
    weight: str = "max",
    connectivity: int = 8,
    method: str = "frozen",
    nodata: float | int | None = None,
    layer: str = "elevation",
    memory_limit: int | None = None,
    threads: int | None = None,
    block_size: int | None = None,
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
        A store, its path, or a 2-D array.
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
        Bound on the peak resident set of the process, bytes; a quarter of RAM when None.
    threads
        Threads; all processors when None.
    block_size
        For arrays: side of a block. A store's layer has its own.
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
        for unknown weights, connectivity or types, and limits that are too small.
    StoreError
        when the store is damaged, or has a result already.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.

    Notes
    -----
    Boruvka's algorithm with frozen boundary components; docs/design.md, "Spanning trees".
    """
    if connectivity not in (4, 8):
        raise InputError(f"connectivity {connectivity} is not 8 or 4")
    if method not in METHODS:
        raise InputError(f"method {method!r} is not known; use {' or '.join(METHODS)}")
    report = Report("compute-mst")
    options = {"weight": weight, "connectivity": connectivity, "method": method}
    if isinstance(data, np.ndarray):
        return _of_array(data, nodata, block_size, threads, options, verify, progress, report)
    if nodata is not None or block_size is not None:
        raise InputError("nodata and block_size are for arrays; a store's layer has its own")
    store = data if isinstance(data, TileStore) else TileStore.open(data)
    if layer == LAYER:
        raise InputError(f"{store.path}: layer {layer!r} is the result; name the layer of heights")
    return _of_store(
        store.layer(layer),
        memory_limit,
        threads,
        options,
        verify,
        resume,
        overwrite,
        progress,
        report,
    )


def _solver(
    shape: tuple[int, int], dtype: np.dtype, nodata: Any, block: int, options: dict[str, Any]
) -> Solver:
    if shape[0] * shape[1] > MOST_CELLS:
        raise InputError(f"{shape[0]} x {shape[1]} cells are more than {MOST_CELLS}")
    weight = Weight(options["weight"], dtype)
    diagonal, method = options["connectivity"] == 8, METHODS[options["method"]]
    solver = Solver(shape, block, weight, nodata, diagonal, method)
    if not solver.compiled():
        log.warning("compiling kernels for %s cells; this happens once", dtype.name)
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
    memory_limit: int | None = None,
    threads: int | None = None,
) -> StreamPlan:
    """The plan of the spanning tree of a layer that need not exist yet.

    Parameters
    ----------
    source_bytes
        Size of the layer's shards; of uncompressed ones without nodata when None.
    """
    kind = Weight(weight, dtype)
    key, module = kind.key_dtype, METHODS[method]
    if source_bytes is None:
        source_bytes = layer_bytes(rows, cols, dtype.itemsize, block_size)
    return plan_forest(
        rows,
        cols,
        dtype,
        block_size,
        # Operands and their temporary, validity, and what the method works in.
        work=block_size**2 * (2 * key.itemsize + 2 + module.work_per_cell(key)),
        levels=(rows + cols) * module.levels_per_side(key),
        spill=spill_bytes(BlockGrid(rows, cols, block_size), kind, module),
        source_bytes=source_bytes,
        memory_limit=memory_limit,
        threads=threads,
    )


def _of_store(
    source: Layer,
    memory_limit: int | None,
    threads: int | None,
    options: dict[str, Any],
    verify: bool,
    resume: bool,
    overwrite: bool,
    progress: Progress,
    report: Report,
) -> SpanningTree:
    grid, block = source.grid, source.block_size
    plan = plan_spanning_tree(
        grid.rows,
        grid.cols,
        source.dtype,
        block,
        weight=options["weight"],
        method=options["method"],
        source_bytes=source.info.get("stored_bytes"),
        memory_limit=memory_limit,
        threads=threads,
    )
    for line in plan.describe().splitlines():
        log.info("%s", line)
    settings = {"layer": source.name, **options}
    # What the source holds, so that a run over other cells is not resumed.
    facts = ("sources", "settings", "stored_bytes", "valid_cells", "min", "max")
    identity = {key: source.info.get(key) for key in facts}
    with (
        report.measured(),
        create_layer(
            source.path.parent,
            LAYER,
            grid,
            np.uint8,
            block_size=block,
            settings={**settings, "of": identity},
            overwrite=overwrite,
            resume=resume,
        ) as writer,
    ):
        resumed = int(writer.done.sum())
        passes = int(not writer.finished) + int(verify)

        def advance(cells: int, total: int) -> None:
            progress(cells, passes * total)

        if writer.finished:
            found = writer.info["result"]
        else:
            solver = _solver(grid.shape, source.dtype, source.nodata, block, options)
            with output_errors(writer.spill):
                totals, patches = _stream_forest(source, solver, writer, plan, advance, report)
            found = _result(solver.weight, totals, patches.count)
        if verify:
            store = source.path.parent
            with report.phase("verify"):
                checked = verify_forest(
                    source,
                    TileStore.open(store).layer(LAYER) if writer.finished else writer,
                    weight=options["weight"],
                    connectivity=options["connectivity"],
                    expected=found,
                    memory_limit=memory_limit,
                    threads=threads,
                    progress=advance,
                )
        with report.phase("commit"):
            layer = writer.commit({"encoding": FORWARD_EDGES, "result": found})
    report.settings = {**settings, "plan": plan.as_dict()}
    report.cells, report.valid_cells = grid.cells, found["vertices"]
    report.result = {**found, "store": str(source.path.parent), "layer": LAYER}
    report.result["blocks_resumed"] = resumed
    if verify:
        report.result["verified_edges"] = checked["checked_edges"]
    return _tree(report, layer)


def _stream_forest(
    source: Layer,
    solver: Solver,
    writer: LayerWriter,
    plan: StreamPlan,
    progress: Progress,
    report: Report,
) -> tuple[Totals, Patches]:
    """All phases, into `writer`."""
    spill = DiskSpill(writer.spill / "solved", solver.weight)
    with report.phase("blocks"):
        try:
            _solve_blocks(source, solver, writer.write_block, writer.done, spill, plan, progress)
        except CellError as error:
            writer.keep = False
            raise CellError(f"{source.path}: {error}") from error
    totals, patches = Totals(), Patches(writer.blocks, plan.cols, writer.spill / "patches")
    with report.phase("levels"):
        join_levels(writer.blocks, solver, spill, totals, patches.add)
    with report.phase("patches"):
        stream(
            patches.by_block(),
            lambda patch, _: patch,
            lambda _, patch: writer.patch_block(*patch),
            buffers=[None] * PATCHERS,
            writers=PATCHERS,
        )
    return totals, patches


def _of_array(
    data: np.ndarray,
    nodata: float | int | None,
    block_size: int | None,
    threads: int | None,
    options: dict[str, Any],
    verify: bool,
    progress: Progress,
    report: Report,
) -> SpanningTree:
    if data.ndim != 2 or not data.size:
        raise InputError(f"an array of shape {data.shape} is no raster; give two dimensions")
    dtype = layer_dtype(data.dtype)
    if block_size is None:
        block_size = min(DEFAULT_BLOCK, max(TILE, 1 << (max(data.shape) - 1).bit_length()))
    rows, cols = data.shape
    blocks = BlockGrid(rows, cols, block_size)
    plan = plan_spanning_tree(
        rows,
        cols,
        dtype,
        blocks.block,
        weight=options["weight"],
        method=options["method"],
        source_bytes=data.nbytes,
        memory_limit=2**62,  # the array is in memory already; the rest is small beside it
        threads=threads,
    )
    forward = np.zeros(data.shape, np.uint8)

    class InMemory:
        @staticmethod
        def read_block(i: int, j: int, out: np.ndarray) -> np.ndarray:
            r0, r1, c0, c1 = blocks.window(i, j)
            result = out[: r1 - r0, : c1 - c0]
            result[...] = data[r0:r1, c0:c1]
            return result

    source = InMemory()
    source.blocks, source.dtype = blocks, dtype  # type: ignore[attr-defined]

    def write(i: int, j: int, mask: np.ndarray) -> None:
        r0, r1, c0, c1 = blocks.window(i, j)
        forward[r0:r1, c0:c1] = mask

    with report.measured():
        solver = _solver(data.shape, dtype, nodata, blocks.block, options)
        spill, totals, patches = MemorySpill(), Totals(), Patches(blocks, data.shape[1], None)
        with report.phase("blocks"):
            _solve_blocks(
                source, solver, write, np.zeros(blocks.shape, bool), spill, plan, progress
            )
        with report.phase("levels"):
            join_levels(blocks, solver, spill, totals, patches.add)
        with report.phase("patches"):
            for i, j, row, col, bits in patches.by_block():
                r0, r1, c0, c1 = blocks.window(i, j)
                np.bitwise_or.at(forward[r0:r1, c0:c1], (row, col), bits)
    found = _result(solver.weight, totals, patches.count)
    if verify:
        with report.phase("verify"):
            verify_arrays(data, nodata, forward, options["weight"], options["connectivity"])
    report.settings = {**options, "plan": plan.as_dict()}
    report.cells, report.valid_cells, report.result = data.size, found["vertices"], found
    return _tree(report, None, forward)


def _solve_blocks(
    source: Any,
    solver: Solver,
    write: Callable[[int, int, np.ndarray], Any],
    done: np.ndarray,
    spill: Spill,
    plan: StreamPlan,
    progress: Progress,
) -> None:
    """Phase 1."""
    block = source.blocks.block
    Block = tuple[int, int]
    Buffer = tuple[np.ndarray, np.ndarray]

    def read(at: Block, buffer: Buffer) -> Buffer:
        data = source.read_block(*at, out=buffer[0])
        # Contiguous for every shape, so that the kernels are compiled once.
        return data, buffer[1][: data.size].reshape(data.shape)

    def solve(at: Block, buffer: Buffer) -> tuple[Solved, np.ndarray]:
        data, mask = buffer
        return solver.solve(source.blocks.window(*at), data, mask), mask

    def save(at: Block, result: tuple[Solved, np.ndarray]) -> None:
        # The spill first: a block that counts as written must be found there.
        spill.save(*at, result[0])
        write(*at, result[1])

    def finished(*blocks: Block) -> None:
        windows = [source.blocks.window(*at) for at in blocks]
        area = sum((r1 - r0) * (c1 - c0) for r0, r1, c0, c1 in windows)
        progress(area, plan.rows * plan.cols)

    if done.any():
        finished(*(at for at in source.blocks.ids() if done[at]))
    stream(
        (at for at in source.blocks.ids() if not done[at]),
        read,
        save,
        compute=solve,
        buffers=[
            (np.empty((block, block), source.dtype), np.empty(block * block, np.uint8))
            for _ in range(plan.buffers)
        ],
        readers=plan.readers,
        workers=plan.workers,
        writers=plan.writers,
        done=finished,
    )


def _result(weight: Weight, totals: Totals, patched: int) -> dict[str, Any]:
    return {
        "edges": totals.edges,
        "components": totals.vertices - totals.edges,
        "total_weight": to_json(weight.rounded(totals.exact)),
        "vertices": totals.vertices,
        "patched_edges": patched,
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
