"""Proof that a layer is the filled surface of a DEM: `verify_fill`, `verify_epsilon`.

Given the outlets, the level of a cell is the minimum, over all paths to an outlet, of the highest
elevation on the path. Levels are right exactly if

1. the level of an outlet is its elevation;
2. the level of every other cell is the higher of its elevation and the level of the cell that it
   drains to, and directions have no loops, so that each level is attained on a path to an outlet;
3. no neighbour offers a lower level: the level is at most the higher of the cell's elevation and
   the level of any neighbour that drains.

Cells that reach no outlet keep their values.

With epsilon, the level of a cell that is not an outlet is the higher of its elevation and the next
float above the lowest level among its neighbours. That neighbour is strictly lower, so descending
paths have no loops and end at outlets, and there is only one solution. One pass over all cells is
the whole proof.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ...engine.plan import StreamPlan
from ...engine.proof import Limits, Read, RunRecord, check_blocks, plan_proof, wrong
from ...facts import Findings
from ...grid import Block, BlockGrid
from ...grid.neighbours import COL_STEP, ROW_STEP
from ...store import Layer, TileStore
from ...store.readable import Readable, Typed
from ..common.code_values import NOWHERE, OUTLET
from ..common.codes import end_ways, open_directions
from ..common.proof_kernels import check_levels
from ..common.proof_paths import PATHS_BYTES, BlockFlow, BlockPaths, FlowPaths, paths_bytes
from ..depressions.proof import verify_stored_depressions
from ..forest.source import open_forest

_WHAT = (
    "",
    "the level of an outlet must be its elevation",
    "must be the higher of the cell's elevation and the level of the cell that it drains to",
    "a neighbour offers a lower level",
    "a cell that reaches no outlet must keep its value",
)


def verify_fill(
    codes: Readable, heights: Readable, levels: Readable, connectivity: int, limits: Limits
) -> Findings:
    """Check the level of every cell.

    Parameters
    ----------
    codes, heights, levels
        Layers of directions, elevations and filled elevations.
    connectivity
        Number of neighbours that water can flow to, 8 or 4.

    Returns
    -------
    dict
        "cells", the number of cells that drain.

    Raises
    ------
    VerificationError
        If a level is wrong; the first fault found is reported.
    PlanError
        If the memory limit is too small.
    StoreError
        If a layer is damaged.
    """
    blocks: BlockGrid = codes.blocks
    plans = plan_fill(blocks, codes, heights, levels, limits)
    paths = FlowPaths(codes, blocks, plans[0])
    cells = 0

    def add(at: Block, summary: tuple[int, BlockFlow]) -> None:
        nonlocal cells
        cells += summary[0]
        paths.add(summary[1])

    first, second = _reads(codes, heights, levels)
    check_blocks(plans[0], blocks, first, partial(_look, paths.of), add, limits)
    paths.join()
    check = partial(_check, paths.of, levels, connectivity)
    check_blocks(plans[1], blocks, second, check, lambda at, _: None, limits)
    return {"cells": cells}


def _look(paths: BlockPaths, at: Block, data: list[np.ndarray]) -> tuple[int, BlockFlow]:
    """Return the number of cells of a block that drain, and its flow paths."""
    target, order = paths.within(at, data[0])
    return len(order), paths.look(at, data[0], target, order)[1]


def _check(
    paths: BlockPaths, levels: Readable, connectivity: int, at: Block, data: list[np.ndarray]
) -> None:
    """Check the levels of a block."""
    codes, z, stored = data
    paths.within(at, codes)  # ends flow paths, in place, as in the first pass
    fault, cell = check_levels(codes, z, stored, connectivity)
    if fault:
        r0, _, c0, c1 = paths.blocks.window(*at)
        row, col = divmod(cell, c1 - c0)
        problem = f"level {stored[row + 1, col + 1]!s}: {_WHAT[fault]}"
        wrong(levels, problem, "level", r0 + row, c0 + col)


def plan_fill(
    blocks: BlockGrid, codes: Readable, heights: Readable, levels: Typed, limits: Limits
) -> list[StreamPlan]:
    """Plan both passes; the layers need not exist yet."""
    worker, held = blocks.largest(1) * PATHS_BYTES, paths_bytes(blocks)
    return [
        plan_proof(blocks, reads, limits, worker=worker, held=held, measures=False)
        for reads in _reads(codes, heights, levels)
    ]


def verify_epsilon(
    codes: Readable, heights: Readable, levels: Readable, connectivity: int, limits: Limits
) -> Findings:
    """Check the level of every cell of a DEM filled with epsilon; see `verify_fill`."""
    cells = 0

    def add(at: Block, count: int) -> None:
        nonlocal cells
        cells += count

    reads = [Read(codes, 1), Read(heights), Read(levels, 1)]
    plan = plan_epsilon(codes, heights, levels, limits)
    check = partial(_check_rising, codes, heights.nodata, levels, connectivity)
    check_blocks(plan, codes.blocks, reads, check, add, limits)
    return {"cells": cells}


def _check_rising(
    codes: Readable,
    nodata: float | int | None,
    levels: Readable,
    connectivity: int,
    at: Block,
    data: list[np.ndarray],
) -> int:
    """Check the levels of a block; return the number of cells that drain."""
    directions, z, stored = data
    r0, _, c0, _ = window = codes.blocks.window(*at)
    end_ways(codes, codes.grid, window, directions)
    drains = directions != NOWHERE
    right = _rising(directions, z, np.where(drains, stored, np.inf), nodata, connectivity)
    inner = stored[1:-1, 1:-1]
    differ = (inner != right) & ~(np.isnan(inner) & np.isnan(right))
    for row, col in np.argwhere(differ)[:1].tolist():
        problem = f"level {inner[row, col]!s} should be {right[row, col]!s}"
        wrong(levels, problem, "level", r0 + row, c0 + col)
    return int(drains[1:-1, 1:-1].sum())


def _rising(
    codes: np.ndarray,
    heights: np.ndarray,
    levels: np.ndarray,
    nodata: float | int | None,
    connectivity: int,
) -> np.ndarray:
    """Return the levels that follow from those of the neighbours.

    `levels` are infinite for cells that do not drain.
    """
    (rows, cols), top = heights.shape, heights.dtype.type(np.inf)
    levels = levels.astype(heights.dtype)
    least = np.full((rows, cols), top)
    for k in range(0, 8, 8 // connectivity):
        down, right = 1 + ROW_STEP[k], 1 + COL_STEP[k]
        np.minimum(least, levels[down : down + rows, right : right + cols], out=least)
    above = np.nextafter(least, top)
    if nodata is not None:
        above = np.where(above == nodata, np.nextafter(above, top), above)
    inner = codes[1:-1, 1:-1]
    return np.where((inner == OUTLET) | (inner == NOWHERE), heights, np.maximum(heights, above))


def plan_epsilon(codes: Readable, heights: Readable, levels: Typed, limits: Limits) -> StreamPlan:
    """Plan the pass; the layer of levels need not exist yet."""
    blocks: BlockGrid = codes.blocks
    reads = [Read(codes, 1), Read(heights), Read(levels, 1)]
    worker = blocks.largest(1) * (8 + 7 * heights.dtype.itemsize)
    return plan_proof(blocks, reads, limits, worker=worker, measures=False)


def verify_stored_fill(store: TileStore, layer: Layer, limits: Limits) -> Findings:
    """Check a layer that `fill` made, with the settings recorded with it."""
    recorded = RunRecord(store, layer)
    if "keep_depth" in recorded.settings:
        return verify_stored_depressions(store, layer, limits)
    heights = recorded.input(recorded.get("fill_of", str))
    codes = recorded.input(recorded.get("directions", str))
    open_directions(store, codes.name)
    if layer.dtype != heights.dtype or layer.blocks != codes.blocks:
        raise recorded.damaged("data_type", layer.dtype.name)
    verify = verify_epsilon if recorded.settings.get("epsilon") is True else verify_fill
    return verify(codes, heights, layer, open_forest(store).connectivity, limits)


def _reads(codes: Readable, heights: Readable, levels: Typed) -> list[list[Read]]:
    return [[Read(codes, 1)], [Read(codes, 1), Read(heights, 1), Read(levels, 1)]]
