"""Proof that a layer is the filled surface of heights: `verify_fill`.

With the outlets as they are, the level of a cell is the least, over all ways to an outlet, of the
highest cell on the way. Levels are right exactly when

1. an outlet's level is its height;
2. every other cell's level is the higher of its height and the level of the cell it drains to, and
   directions lead round in no circle: then each level is attained along the way to an outlet;
3. no neighbour offers less: the level is at most the higher of the cell's height and the level of
   any neighbour that drains.

Cells that reach no outlet keep their values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine.plan import StreamPlan
from ...engine.proof import Limits, Read, RunRecord, check_blocks, plan_proof, wrong
from ...grid import Block, BlockGrid
from ...store import Layer, TileStore
from ..codes import open_directions
from ..source import open_forest
from .kernels import check_levels
from .ways import ORDER_BYTES, BlockFlow, FlowWays, ways_bytes

_WHAT = (
    "",
    "an outlet's level is its height",
    "not the higher of the cell's height and the level of the cell that it drains to",
    "a neighbour offers a lower level",
    "a cell that reaches no outlet keeps its value",
)


def verify_fill(
    codes: Any, heights: Any, levels: Any, connectivity: int, limits: Limits
) -> dict[str, Any]:
    """Check the level of every cell.

    Parameters
    ----------
    codes, heights, levels
        Layers of directions, heights and filled heights.
    connectivity
        8 or 4: which neighbours water reaches.

    Returns
    -------
    dict
        "cells", those that drain.

    Raises
    ------
    VerificationError
        at the first wrong cell found.
    PlanError
        when the memory limit is too small.
    StoreError
        when a layer is damaged.
    """
    blocks: BlockGrid = codes.blocks
    plans = plan_fill(blocks, codes, heights, levels, limits)
    ways = FlowWays(codes, blocks, plans[0])
    cells = 0

    def look(at: Block, data: list[np.ndarray]) -> tuple[int, BlockFlow]:
        target, order = ways.within(at, data[0])
        return len(order), ways.look(at, data[0], target, order)[1]

    def add(at: Block, found: tuple[int, BlockFlow]) -> None:
        nonlocal cells
        cells += found[0]
        ways.add(found[1])

    def check(at: Block, data: list[np.ndarray]) -> None:
        own, z, found = data
        ways.within(at, own)  # ends ways as above
        fault, cell = check_levels(own, z, found, connectivity)
        if fault:
            r0, _, c0, c1 = blocks.window(*at)
            row, col = divmod(cell, c1 - c0)
            what = f"level {found[row + 1, col + 1]!s}: {_WHAT[fault]}"
            wrong(levels, what, "level", r0 + row, c0 + col)

    first, second = _reads(codes, heights, levels)
    check_blocks(plans[0], blocks, first, look, add, limits.progress)
    ways.join()
    check_blocks(plans[1], blocks, second, check, lambda at, _: None, limits.progress)
    return {"cells": cells}


def plan_fill(
    blocks: BlockGrid, codes: Any, heights: Any, levels: Any, limits: Limits
) -> list[StreamPlan]:
    """How both passes stream; the layers need not exist yet."""
    worker, held = (blocks.block + 2) ** 2 * ORDER_BYTES, ways_bytes(blocks)
    return [
        plan_proof(blocks, reads, limits, worker=worker, held=held)
        for reads in _reads(codes, heights, levels)
    ]


def verify_stored_fill(store: TileStore, layer: Layer, limits: Limits) -> dict[str, Any]:
    """`verify_fill` of a layer, from what is recorded with it."""
    recorded = RunRecord(store, layer)
    heights = recorded.input(recorded.get("fill_of", str))
    codes = recorded.input(recorded.get("directions", str))
    open_directions(store, codes.name)
    if layer.dtype != heights.dtype or layer.blocks != codes.blocks:
        raise recorded.damaged("data_type", layer.dtype.name)
    return verify_fill(codes, heights, layer, open_forest(store).connectivity, limits)


def _reads(codes: Any, heights: Any, levels: Any) -> list[list[Read]]:
    return [[Read(codes, 1)], [Read(codes, 1), Read(heights, 1), Read(levels, 1)]]
