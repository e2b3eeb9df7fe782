"""Proof of averages over divided flow of heights above streams and distances: `verify_averages`.

The value of a cell follows from those of the cells that it drains to, which layers hold in full.
Each is computed again from these, and compared bit for bit. Heights fall along every way, and
directions lead round in no circle where they do not, so there is only one solution. One pass over
the cells with those around them is the whole proof; that heights are filled, and that directions
belong to them, have proofs of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...engine.plan import StreamPlan
from ...engine.proof import Limits, Read, RunRecord, check_blocks, plan_proof, wrong
from ...grid import Block, BlockGrid, GridSpec
from ...store import Layer
from ..common.code_values import NODATA, NOWHERE
from ..common.codes import open_directions
from ..common.height_above import KINDS, AboveRule
from ..divided_flow.division import geometry
from ..divided_flow.proof_kernels import average


def verify_averages(
    layers: Sequence[Any],
    rule: AboveRule,
    results: Mapping[str, Any],
    blocks: BlockGrid,
    limits: Limits,
) -> dict[str, Any]:
    """Check every cell.

    Parameters
    ----------
    layers
        Filled heights, directions, heights, and streams if there are any.
    results
        The layers to check, by kind: "height", "distance".
    blocks
        Their blocks.

    Returns
    -------
    dict
        "cells", those with a value.

    Raises
    ------
    VerificationError
        at the first wrong cell found.
    PlanError
        when the memory limit is too small.
    StoreError
        when a layer is damaged.
    """
    cells = 0

    def add(at: Block, found: int) -> None:
        nonlocal cells
        cells += found

    checker = _AverageChecker(rule, dict(results), blocks, layers[0].grid, len(layers))
    plan = plan_averages(layers, results.values(), blocks, limits)
    reads = _reads(layers, results.values())
    check_blocks(plan, blocks, reads, checker.check, add, limits)
    return {"cells": cells}


def plan_averages(
    layers: Sequence[Any], results: Iterable[Any], blocks: BlockGrid, limits: Limits
) -> StreamPlan:
    """How the pass streams; the results need not exist yet."""
    worker, held = blocks.largest(1) * 40, 128 * blocks.rows
    return plan_proof(blocks, _reads(layers, results), limits, worker=worker, held=held)


def verify_stored_averages(
    recorded: RunRecord, streams: tuple[Layer | None, float | None], limits: Limits
) -> dict[str, Any]:
    """`verify_averages` of a layer, from what is recorded with it."""
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


def _reads(layers: Sequence[Any], results: Iterable[Any]) -> list[Read]:
    return [Read(layer, 1) for layer in (*layers, *results)]


@dataclass(frozen=True)
class _AverageChecker:
    """Checks blocks; can be sent to workers. `given` layers are read before the results."""

    rule: AboveRule
    results: Mapping[str, Any]
    blocks: BlockGrid
    grid: GridSpec
    given: int

    @cached_property
    def lengths(self) -> np.ndarray:
        return geometry(self.grid)[0]

    def check(self, at: Block, data: list[np.ndarray]) -> int:
        """Check a block; return how many cells have a value."""
        filled, codes, heights, *streams = data[: self.given]
        r0, r1, c0, _ = self.blocks.window(*at)
        levels = self.rule.height(heights)
        stops = np.zeros(codes.shape, bool)
        if streams:
            stops = self.rule.is_stream(streams[0]) & (codes != NOWHERE)
        right = np.empty((codes.shape[0] - 2, codes.shape[1] - 2))
        for (kind, layer), found in zip(self.results.items(), data[self.given :], strict=True):
            average(
                filled, codes, levels, stops, not streams, found, kind == "height",
                self.lengths[:, r0:r1], right
            )  # fmt: skip
            inner = found[1:-1, 1:-1]
            faults = np.argwhere(right.view(np.int64) != inner.view(np.int64))
            for row, col in faults[:1].tolist():
                what = f"{kind} {inner[row, col]!s} where {right[row, col]!s} is right"
                wrong(layer, what, kind, r0 + row, c0 + col)
        return int(np.count_nonzero(right != NODATA))
