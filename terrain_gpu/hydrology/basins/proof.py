"""Proof that a layer labels drainage basins: `verify_basins`.

Labels are right exactly if

1. the outlets have the numbers 1, 2, ... in row-major order;
2. every other cell that drains has the label of the next one, and directions have no loops, so that
   each cell has the label of its outlet;
3. cells that do not drain have the label 0.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ...engine.plan import StreamPlan
from ...engine.proof import Limits, Read, RunRecord, check_blocks, plan_proof, wrong, wrong_totals
from ...facts import Findings
from ...grid import Block, BlockGrid
from ...store import Layer, TileStore
from ...store.readable import Readable, Typed
from ..common.codes import label_dtype, open_directions
from ..common.proof_kernels import check_labels
from ..common.proof_paths import PATHS_BYTES, BlockFlow, BlockPaths, FlowPaths, paths_bytes


def verify_basins(codes: Readable, labels: Readable, result: Findings, limits: Limits) -> Findings:
    """Check the label of every cell.

    Parameters
    ----------
    codes, labels
        Layers of directions and of labels.
    result
        The recorded totals: the number of "basins".

    Returns
    -------
    dict
        The number of "basins", and of "cells" that drain.

    Raises
    ------
    VerificationError
        If a label or the total is wrong; the first fault found is reported.
    PlanError
        If the memory limit is too small.
    StoreError
        If a layer is damaged.
    """
    blocks: BlockGrid = codes.blocks
    plans = plan_basins(codes, labels, limits)
    paths = FlowPaths(codes, blocks, plans[0])
    counts = np.zeros((blocks.rows, blocks.shape[1]), np.int64)
    cells = 0

    def add(at: Block, summary: tuple[int, np.ndarray, BlockFlow]) -> None:
        nonlocal cells
        cells += summary[0]
        r0, r1, _, _ = blocks.window(*at)
        counts[r0:r1, at[1]] = summary[1]
        paths.add(summary[2])

    def given(at: Block) -> np.ndarray:
        r0, r1, _, _ = blocks.window(*at)
        return firsts[r0:r1, at[1], None]

    def nothing(at: Block, _summary: None) -> None:
        """Blocks return nothing."""

    first, second = _reads(codes, labels)
    check_blocks(plans[0], blocks, first, partial(_look, paths.of), add, limits)
    paths.join()
    firsts = 1 + (np.cumsum(counts) - counts.ravel()).reshape(counts.shape)
    check = partial(_check, paths.of, labels)
    check_blocks(plans[1], blocks, second, check, nothing, limits, given=given)
    basins = int(counts.sum())
    wrong_totals(labels, "basins", basins, result.get("basins"))
    return {"basins": basins, "cells": cells}


def _look(
    paths: BlockPaths, at: Block, data: list[np.ndarray]
) -> tuple[int, np.ndarray, BlockFlow]:
    """Return the number of cells of a block that drain, its outlets per row, and its flow paths."""
    target, order = paths.within(at, data[0])
    r0, r1, _, _ = paths.blocks.window(*at)
    ends = (target == -1).reshape(r1 - r0, -1).sum(axis=1)
    return len(order), ends, paths.look(at, data[0], target, order)[1]


def _check(
    paths: BlockPaths, labels: Readable, at: Block, data: list[np.ndarray], firsts: np.ndarray
) -> None:
    """Check the labels of a block, given the number of the first outlet of each row."""
    codes, stored = data
    target, _ = paths.within(at, codes)
    r0, r1, c0, c1 = paths.blocks.window(*at)
    ends = (target == -1).reshape(r1 - r0, -1)
    numbers = np.cumsum(ends, axis=1)
    numbers += firsts - 1
    cell = check_labels(codes, target, stored, numbers.ravel())
    if cell >= 0:
        row, col = divmod(cell, c1 - c0)
        problem = f"label {stored[row + 1, col + 1]!s} is not that of the outlet"
        wrong(labels, problem, "label", r0 + row, c0 + col)


def plan_basins(codes: Readable, labels: Typed, limits: Limits) -> list[StreamPlan]:
    """Plan both passes; the layer of labels need not exist yet."""
    blocks = codes.blocks
    held = paths_bytes(blocks) + 4 * 8 * blocks.rows * blocks.shape[1]
    worker = blocks.largest(1) * (PATHS_BYTES + 8)
    return [
        plan_proof(blocks, reads, limits, worker=worker, held=held)
        for reads in _reads(codes, labels)
    ]


def verify_stored_basins(store: TileStore, layer: Layer, limits: Limits) -> Findings:
    """Check a layer with `verify_basins` and the settings recorded with it."""
    recorded = RunRecord(store, layer)
    codes = recorded.input(recorded.get("basins_of", str))
    open_directions(store, codes.name)
    if layer.dtype != label_dtype(layer.grid) or layer.blocks != codes.blocks:
        raise recorded.damaged("data_type", layer.dtype.name)
    return verify_basins(codes, layer, recorded.result, limits)


def _reads(codes: Readable, labels: Typed) -> list[list[Read]]:
    return [[Read(codes, 1)], [Read(codes, 1), Read(labels, 1)]]
