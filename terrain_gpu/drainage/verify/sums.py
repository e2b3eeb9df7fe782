"""Proof that sums are what drains through each cell along a layer of directions: `verify_sums`.

All sums are added again, as whole numbers, and compared bit for bit. In one pass over the
directions, each block gets to know the sums of its own cells where flow leaves it, and where the
flow that enters it goes. The flow is then followed from block to block, and each block is added up
a second time, with what enters it. That directions lead round in no circle is proven by the way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine.plan import StreamPlan
from ...engine.proof import Limits, Read, RunRecord, check_blocks, plan_proof, wrong
from ...grid import Block, BlockGrid
from ...store import Layer, TileStore
from ..codes import open_directions
from ..sums import SumRule
from .kernels import add_up
from .ways import ORDER_BYTES, BlockFlow, FlowWays, ways_bytes


def verify_sums(codes: Any, sums: Any, rule: SumRule, limits: Limits) -> dict[str, Any]:
    """Check the sum of every cell.

    Parameters
    ----------
    codes
        The layer of directions, uint8.
    sums
        The layer of sums, of the rule's dtype.

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
    checker = _SumsChecker(codes, sums, rule, limits)
    checker.run(limits)
    return {"cells": checker.cells}


def plan_sums(blocks: BlockGrid, codes: Any, sums: Any, limits: Limits) -> list[StreamPlan]:
    """How both passes stream; the layers need not exist yet."""
    worker, held = (blocks.block + 2) ** 2 * ORDER_BYTES, 2 * ways_bytes(blocks)
    return [
        plan_proof(blocks, reads, limits, worker=worker, held=held) for reads in _reads(codes, sums)
    ]


def verify_stored_sums(store: TileStore, layer: Layer, limits: Limits) -> dict[str, Any]:
    """`verify_sums` of a layer, from what is recorded with it."""
    recorded = RunRecord(store, layer)
    codes = recorded.input(recorded.get("accumulation_of", str))
    open_directions(store, codes.name)
    rule = SumRule.of(layer.grid, recorded.get("areas", bool), recorded.get("exclude_self", bool))
    if layer.dtype != rule.dtype or layer.blocks != codes.blocks:
        raise recorded.damaged("data_type", layer.dtype.name)
    return verify_sums(codes, layer, rule, limits)


def _reads(codes: Any, sums: Any) -> list[list[Read]]:
    return [[Read(codes, 1)], [Read(codes, 1), Read(sums)]]


class _SumsChecker:
    def __init__(self, codes: Any, sums: Any, rule: SumRule, limits: Limits) -> None:
        self.codes, self.layer, self.rule = codes, sums, rule
        self.blocks: BlockGrid = codes.blocks
        self.plans = plan_sums(self.blocks, codes, sums, limits)
        self.ways = FlowWays(codes, self.blocks, self.plans[0])
        self.cells = 0
        self._sums: list[np.ndarray] = []
        self._into = self._amounts = np.empty(0, np.int64)

    def run(self, limits: Limits) -> None:
        first, second = _reads(self.codes, self.layer)
        blocks, progress = self.blocks, limits.progress
        check_blocks(self.plans[0], blocks, first, self._look, self._add, progress)
        self._join()
        check_blocks(self.plans[1], blocks, second, self._check, lambda at, _: None, progress)

    def _look(self, at: Block, data: list[np.ndarray]) -> tuple[int, np.ndarray, BlockFlow]:
        """Look at a block, from any thread; what `_add` is told."""
        (codes,) = data
        target, order = self.ways.within(at, codes)
        sums = self.rule.own(self.blocks.window(*at), codes[1:-1, 1:-1]).ravel()
        add_up(target, order, sums)
        leaving, ways = self.ways.look(at, codes, target, order)
        return len(order), sums[leaving], ways

    def _add(self, at: Block, found: tuple[int, np.ndarray, BlockFlow]) -> None:
        cells, sums, ways = found
        self.cells += cells
        self._sums.append(sums)
        self.ways.add(ways)

    def _join(self) -> None:
        self.ways.join()
        sums = np.concatenate(self._sums)
        self._sums.clear()
        add_up(self.ways.following, self.ways.order, sums)
        order = np.argsort(self.ways.target)
        self._into, self._amounts = self.ways.target[order], sums[order]

    def _check(self, at: Block, data: list[np.ndarray]) -> None:
        codes, found = data
        r0, r1, c0, c1 = window = self.blocks.window(*at)
        target, order = self.ways.within(at, codes)
        own = codes[1:-1, 1:-1]
        sums = self.rule.own(window, own).ravel()
        starts = np.arange(r0, r1) * self.blocks.cols
        ends = np.searchsorted(self._into, (starts + c0, starts + c1)).T.tolist()
        for row, (first, last) in enumerate(ends):
            if first < last:
                into = self._into[first:last] - starts[row] - c0 + row * (c1 - c0)
                np.add.at(sums, into, self._amounts[first:last])
        add_up(target, order, sums)
        right = np.empty_like(found)
        self.rule.write(sums.reshape(found.shape), window, own, right)
        faults = np.argwhere(right.view(np.int64) != found.view(np.int64))
        if len(faults):
            row, col = faults[0].tolist()
            what = f"sum {found[row, col]} where {right[row, col]} drains through the cell"
            wrong(self.layer, what, "sum", r0 + row, c0 + col)
