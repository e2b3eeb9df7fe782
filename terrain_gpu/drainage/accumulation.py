"""How much drains through each cell of the spanning forest, streamed: `accumulate`.

1. *Outlines*: every block is read once and contracted to the cells with edges to other blocks.
2. *Skeleton*: the outlines are joined in memory, and drain.
3. *Drain*: every block is read again, with what flows in and out of it known, and written.
"""

from __future__ import annotations

import hashlib
import logging
import os
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arguments import checked
from ..engine.plan import StreamPlan, layer_bytes
from ..errors import InputError, StoreError
from ..grid import Block, BlockGrid
from ..grid.lengths import area_units
from ..io.places import Places, PlacesLike, as_places, refuse_nodata
from ..progress import Progress, silent
from ..report import Report
from ..store import Layer, LayerWriter, TileStore, create_layer
from .block import BlockForest
from .drain import VERTEX_BYTES, drain, outline, solve
from .skeleton import Outline, Skeleton
from .source import Forest, open_forest
from .stream import ForestBlocks, plan_blocks

log = logging.getLogger(__name__)

LAYER = "accumulation"
NOWHERE = 255
"""Code of cells that drain to no outlet."""


@dataclass
class Accumulation:
    """What drains through each cell.

    Attributes
    ----------
    layer
        int64 cells or float64 areas; 0 where no outlet is reached, and at cells without a value.
    directions
        uint8 D8 codes towards the outlet (E 1, SE 2, ... NE 128), 0 at outlets, 255 where none is
        reached; None unless asked for.
    outlets, reached
        How many there are, and cells that drain to them.
    report
        The run's `Report`.
    """

    layer: Layer
    directions: Layer | None
    outlets: int
    reached: int
    report: Report


def plan_accumulation(
    rows: int,
    cols: int,
    dtype: np.dtype,
    block: int,
    *,
    directions: bool = False,
    memory_limit: int | str | None = None,
    threads: int | None = None,
) -> StreamPlan:
    """The plan of `accumulate` for a layer of such a shape, type and block size.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    return plan_blocks(
        BlockGrid(rows, cols, block),
        dtype,
        "accumulate",
        vertex=VERTEX_BYTES,
        results=9,
        written=sum(layer_bytes(rows, cols, size, block) for size in (8, 1)[: 1 + directions]),
        memory_limit=memory_limit,
        threads=threads,
    )


@checked()
def accumulate(
    store: str | os.PathLike[str] | TileStore,
    outlets: PlacesLike | None = None,
    *,
    areas: bool = False,
    into: str = LAYER,
    directions: str | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Accumulation:
    """Root the spanning forest at outlets, and sum what drains through each cell.

    Every cell drains along the forest to one outlet. Where a tree has several, it is cut between
    any two of them at the heaviest edge of their path, as if water rose from all outlets at once:
    the minimum spanning forest relative to the outlets.

    Parameters
    ----------
    store
        A store with the layer "mst".
    outlets
        Cells, given as the sources of `shortest_paths`; those of trees without one drain nowhere.
        When None, the cells at the raster's edge and beside cells without a value.
    areas
        Sum areas (map units squared; square metres in a geographic CRS) instead of cells.
    into, directions
        Layers that receive the sums and, unless it is None, where each cell drains to.
    memory_limit
        Bound on the peak resident set of the process, bytes; a quarter of RAM when None.
    threads
        Threads; all processors when None.
    resume
        Go on with an unfinished run.
    overwrite
        Replace an existing result, at the end.
    progress
        Called with the cells just handled, and the cells of both passes.

    Raises
    ------
    InputError
        when the memory limit is too small, an outlet has no value, or a result would replace what
        it is computed from.
    StoreError
        when there is no spanning forest, it has another weight than "max" or is damaged, or there
        is a result already.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.

    Notes
    -----
    J. Cousty, G. Bertrand, L. Najman, M. Couprie (2009), Watershed cuts: minimum spanning forests
    and the drop of water principle; IEEE TPAMI 31(8). Sums are of integers, so that they do not
    depend on blocks, see `area_units`.
    """
    report = Report("accumulate")
    forest = open_forest(store)
    if forest.weight.name != "max":
        raise StoreError(
            f"{forest.edges.path}: a spanning forest of the weight {forest.weight.name}; water "
            "drains along that of the weight max: compute it (compute-mst --weight max --overwrite)"
        )
    if outlets is not None:
        outlets = as_places(forest.cells.grid, outlets, "outlets")
        if not len(outlets):
            raise InputError("there is no outlet; give one, or None for the raster's edge")
        refuse_nodata(outlets, forest.cells)
        outlets = outlets.one_per_cell("outlets")
    names = [into] if directions is None else [into, directions]
    if len({*names, forest.cells.name, forest.edges.name}) < len(names) + 2:
        raise InputError(
            f"{forest.store.path}: the results {' and '.join(map(repr, names))} and the layers "
            f"{forest.cells.name!r} and {forest.edges.name!r} need names of their own"
        )
    for name, what in zip(names, ("sums", "drainage directions"), strict=False):
        forest.store.refuse_foreign(name, "outlets", what, what)
    grid, block = forest.cells.grid, forest.cells.block_size
    plan = plan_accumulation(
        *grid.shape,
        forest.cells.dtype,
        block,
        directions=directions is not None,
        memory_limit=memory_limit,
        threads=threads,
    )
    for line in plan.describe().splitlines():
        log.info("%s", line)
    problem = {
        "outlets": "border" if outlets is None else _digest(outlets),
        "areas": areas,
        "of": forest.identity,
    }
    kinds = ((np.float64 if areas else np.int64, 0), (np.uint8, NOWHERE))
    with report.measured(), ExitStack() as stack:
        writers = [
            stack.enter_context(
                create_layer(
                    forest.store.path,
                    name,
                    grid,
                    dtype,
                    nodata=nodata,
                    block_size=block,
                    settings=problem,
                    overwrite=overwrite,
                    resume=resume,
                )
            )
            for name, (dtype, nodata) in zip(names, kinds, strict=False)
        ]
        resumed = sum(int(writer.done.sum()) for writer in writers)
        if not all(writer.finished for writer in writers):
            rows = area_units(grid) if areas else (np.ones(grid.rows, np.int64), 1.0)
            found = _run(forest, outlets, plan, writers, rows, progress, report)
        else:
            found = writers[0].info["result"]
        with report.phase("commit"):
            encodings: tuple[dict[str, str], ...] = ({}, {"encoding": "esri-d8-downstream"})
            layers = [
                writer.commit({"result": found, **encoding})
                for writer, encoding in zip(writers, encodings, strict=False)
            ]
    reached = layers[0].info["valid_cells"]
    report.settings = {**problem, "into": into, "directions": directions, "plan": plan.as_dict()}
    report.cells, report.valid_cells = grid.cells, found["cells"]
    report.result = {
        **found,
        "reached": reached,
        "store": str(forest.store.path),
        "layers": names,
        "blocks_resumed": resumed,
    }
    codes = None if directions is None else layers[1]
    return Accumulation(layers[0], codes, found["outlets"], reached, report)


def _digest(outlets: Places) -> str:
    return hashlib.sha256(np.ascontiguousarray(outlets.places).tobytes()).hexdigest()


def outlets_in(block: BlockForest, given: Places | None) -> np.ndarray:
    """Outlets in a block, int32: given ones, else the cells at the border of the data."""
    r0, r1, c0, c1 = block.window
    if given is None:
        valid = block.valid
        across = valid[:, :-2] & valid[:, 1:-1] & valid[:, 2:]
        inner = across[:-2] & across[1:-1] & across[2:]
        return np.flatnonzero(valid[1:-1, 1:-1] & ~inner).astype(np.int32)
    first, last = np.searchsorted(given.rows, [r0, r1])
    rows, cols = given.rows[first:last], given.cols[first:last]
    here = (cols >= c0) & (cols < c1)
    return ((rows[here] - r0) * block.width + cols[here] - c0).astype(np.int32)


def _run(
    forest: Forest,
    given: Places | None,
    plan: StreamPlan,
    writers: list[LayerWriter],
    rows: tuple[np.ndarray, float],
    progress: Progress,
    report: Report,
) -> dict[str, Any]:
    """All phases; `rows` are the value of each row's cells, and its unit."""
    units, unit = rows
    kind = writers[0].dtype
    blocks = ForestBlocks(forest, plan, kind, np.uint8)
    skeleton = Skeleton(VERTEX_BYTES, plan.memory_limit)
    found = {"cells": 0, "outlets": 0}

    def prepared(block: BlockForest) -> tuple[np.ndarray, np.ndarray]:
        values = block.valid[1:-1, 1:-1] * units[block.window[0] : block.window[1], None]
        return outlets_in(block, given), values

    def outlined(at: Block, block: BlockForest, *_: Any) -> tuple[Outline, int, int]:
        outlets, values = prepared(block)
        return outline(block, outlets, values), len(block.order), len(outlets)

    def add(at: Block, result: tuple[Outline, int, int]) -> None:
        skeleton.add(result[0])
        found["cells"] += result[1]
        found["outlets"] += result[2]

    def drained(
        at: Block, block: BlockForest, sums: np.ndarray, codes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        sums, codes = sums[: block.size], codes[: block.size]
        total = drain(block, *prepared(block), flows, at, codes)
        if kind.kind == "f":
            np.multiply(total, unit, out=sums)
        else:
            sums[:] = total
        shape = block.window[1] - block.window[0], block.width
        return sums.reshape(shape), codes.reshape(shape)

    def write(at: Block, result: tuple[np.ndarray, np.ndarray]) -> None:
        for writer, data in zip(writers, result, strict=False):
            if not writer.done[at]:
                writer.write_block(*at, data)

    everything = blocks.blocks.ids
    total = 2 * forest.cells.grid.cells
    with report.phase("outlines"):
        blocks.stream(everything(), outlined, add, progress, total)
    with report.phase("skeleton"):
        flows = solve(skeleton.join(), blocks.blocks)
    left = (at for at in everything() if not all(writer.done[at] for writer in writers))
    with report.phase("drain"):
        blocks.stream(left, drained, write, progress, total)
    return found
