"""Proof of averages over divided flow of heights above streams and distances: `verify_averages`.

The value of a cell follows from those of the cells that it drains to, which the layers hold in
full. Each value is computed again from these and compared bit for bit. Elevations fall along every
flow path, and where they do not, directions have no loops, so there is only one solution. One pass
over the cells and their neighbours is the whole proof. Other proofs show that the elevations are
filled and that the directions belong to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...engine.plan import StreamPlan
from ...engine.proof import Limits, Read, RunRecord, check_blocks, plan_proof, wrong
from ...facts import Findings
from ...grid import Block, BlockGrid, GridSpec
from ...store import Layer
from ...store.readable import Readable, Typed
from ..common.code_values import NODATA, NOWHERE
from ..common.codes import open_directions
from ..common.height_above import KINDS, AboveRule
from ..divided_flow.division import geometry
from ..divided_flow.proof_kernels import average


def verify_averages(
    layers: Sequence[Readable],
    rule: AboveRule,
    results: Findings,
    blocks: BlockGrid,
    limits: Limits,
) -> Findings:
    """Check every cell.

    Parameters
    ----------
    layers
        Filled elevations, directions, elevations, and streams if there are any.
    rule
        The arithmetic.
    results
        The layers to check, by kind: "height", "distance".
    blocks
        The blocks of these layers.

    Returns
    -------
    dict
        "cells", the number of valid cells.

    Raises
    ------
    VerificationError
        If a cell is wrong; the first one found is reported.
    PlanError
        If the memory limit is too small.
    StoreError
        If a layer is damaged.
    """
    cells = 0

    def add(at: Block, count: int) -> None:
        nonlocal cells
        cells += count

    checker = _AverageChecker(rule, dict(results), blocks, layers[0].grid, len(layers))
    plan = plan_averages(layers, results.values(), blocks, limits)
    reads = _reads(layers, results.values())
    check_blocks(plan, blocks, reads, checker.check, add, limits)
    return {"cells": cells}


def plan_averages(
    layers: Sequence[Typed], results: Iterable[Typed], blocks: BlockGrid, limits: Limits
) -> StreamPlan:
    """Plan the pass; the layers to check need not exist yet."""
    worker, held = blocks.largest(1) * 40, 128 * blocks.rows
    return plan_proof(blocks, _reads(layers, results), limits, worker=worker, held=held)


def verify_stored_averages(
    recorded: RunRecord, streams: tuple[Layer | None, float | None], limits: Limits
) -> Findings:
    """Check a layer with `verify_averages` and the settings recorded with it."""
    layer = recorded.layer
    names = [recorded.get(key, str) for key in ("filled", "directions", "hand_of")]
    filled, codes, heights = map(recorded.input, names)
    open_directions(recorded.store, codes.name)
    if recorded.settings["method"] != "dinf":
        raise recorded.damaged("method", recorded.settings["method"])
    rule = AboveRule(heights, *streams, divided=True)
    kind = str(layer.info.get("holds"))
    if kind not in KINDS or layer.dtype != rule.dtype:
        raise recorded.damaged("holds", kind)
    layers = [filled, codes, *rule.inputs]
    blocks = max((one.blocks for one in layers), key=lambda one: one.block)
    if layer.blocks != blocks:
        raise recorded.damaged("block_size", layer.block_size)
    return verify_averages(layers, rule, {kind: layer}, blocks, limits)


def _reads(layers: Sequence[Typed], results: Iterable[Typed]) -> list[Read]:
    return [Read(layer, 1) for layer in (*layers, *results)]


@dataclass(frozen=True)
class _AverageChecker:
    """Checks blocks; can be sent to workers. `given` is the number of layers before the results."""

    rule: AboveRule
    results: Findings
    blocks: BlockGrid
    grid: GridSpec
    given: int

    @cached_property
    def lengths(self) -> np.ndarray:
        return geometry(self.grid)[0]

    def check(self, at: Block, data: list[np.ndarray]) -> int:
        """Check a block; return its number of valid cells."""
        filled, codes, heights, *streams = data[: self.given]
        r0, r1, c0, _ = self.blocks.window(*at)
        levels = self.rule.height(heights)
        stops = np.zeros(codes.shape, bool)
        if streams:
            stops = self.rule.is_stream(streams[0]) & (codes != NOWHERE)
        right = np.empty((codes.shape[0] - 2, codes.shape[1] - 2))
        for (kind, layer), stored in zip(self.results.items(), data[self.given :], strict=True):
            average(
                filled, codes, levels, stops, not streams, stored, kind == "height",
                self.lengths[:, r0:r1], right
            )  # fmt: skip
            inner = stored[1:-1, 1:-1]
            faults = np.argwhere(right.view(np.int64) != inner.view(np.int64))
            for row, col in faults[:1].tolist():
                problem = f"{kind} {inner[row, col]!s} should be {right[row, col]!s}"
                wrong(layer, problem, kind, r0 + row, c0 + col)
        return int(np.count_nonzero(right != NODATA))
