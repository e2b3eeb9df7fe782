"""Proof that sums are what drains through each cell along a layer of directions: `verify_sums`.

All sums are added up again, as whole numbers, and compared bit for bit; means and extremes of
weights are found again in the same way. In a first pass, each block finds the sums of its own cells
where flow leaves it, and where the flow that enters it goes. The flow is then followed from block
to block, and a second pass adds up each block with its inflow. This also proves that directions
have no loops.
"""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

import numpy as np

from ...arguments import UpstreamStatistic
from ...engine.plan import StreamPlan
from ...engine.proof import (
    Limits,
    Read,
    RunRecord,
    around,
    check_blocks,
    plan_proof,
    wrong,
    wrong_totals,
)
from ...facts import Findings
from ...grid import Block, BlockGrid, GridSpec
from ...store import Layer, TileStore
from ...store.readable import Readable, Typed
from ..common.code_values import NOWHERE
from ..common.codes import open_directions
from ..common.proof_kernels import add_up, carry_down
from ..common.proof_paths import (
    ORDER_BYTES,
    BlockFlow,
    BlockPaths,
    FlowPaths,
    entering,
    paths_bytes,
)
from ..common.sums import EdgeRule, SumRule
from ..common.weights import Rule, rule_of


def verify_sums(
    codes: Readable, sums: Readable, rule: Rule, limits: Limits, recorded: Findings | None = None
) -> Findings:
    """Check the sum of every cell, or the mean or extreme.

    Parameters
    ----------
    codes
        The layer of directions, uint8.
    sums
        The layer of sums, of the rule's dtype.
    recorded
        The recorded totals; with weights, the number of cells "without_weight".

    Returns
    -------
    dict
        "cells", the number of cells that drain.

    Raises
    ------
    VerificationError
        If a cell or the total is wrong; the first fault found is reported.
    PlanError
        If the memory limit is too small.
    StoreError
        If a layer is damaged.
    """
    checker = _SumsChecker(codes, sums, rule, limits)
    checker.run(limits)
    if rule.weights is not None and recorded is not None:
        name = "without_weight"
        wrong_totals(sums, "cells without a weight", checker.without, recorded.get(name))
    return {"cells": checker.cells}


def plan_sums(
    blocks: BlockGrid, codes: Readable, sums: Typed, limits: Limits, rule: Rule | None = None
) -> list[StreamPlan]:
    """Plan both passes; the layers need not exist yet. No rule means sums of cells or areas."""
    weights = None if rule is None else rule.weights
    extra = 0 if rule is None or isinstance(rule, SumRule) else 32 + 24 * rule.columns
    worker, held = blocks.largest(1) * (ORDER_BYTES + extra), 2 * paths_bytes(blocks)
    return [
        plan_proof(blocks, reads, limits, worker=worker, held=held)
        for reads in _reads(codes, sums, weights)
    ]


def verify_stored(store: TileStore, layer: Layer, limits: Limits) -> Findings:
    """Check a layer of sums, along D8 directions or of divided flow, by its recorded settings."""
    if "method" in RunRecord(store, layer).settings:
        from .proof_divided import verify_stored_division

        return verify_stored_division(store, layer, limits)
    return verify_stored_sums(store, layer, limits)


def verify_stored_sums(store: TileStore, layer: Layer, limits: Limits) -> Findings:
    """Check a layer with `verify_sums` and the settings recorded with it."""
    recorded = RunRecord(store, layer)
    codes = recorded.input(recorded.get("accumulation_of", str))
    open_directions(store, codes.name)
    rule = _recorded_rule(layer.grid, recorded)
    if layer.dtype != rule.dtype or layer.blocks != _blocks(codes, rule):
        raise recorded.damaged("data_type", layer.dtype.name)
    return verify_sums(codes, layer, rule, limits, recorded.result)


def _recorded_rule(grid: GridSpec, recorded: RunRecord) -> Rule:
    if "edge_cells" in recorded.settings:
        return EdgeRule.of(grid)
    weights, statistic = None, "sum"
    if "weights" in recorded.settings:
        weights = recorded.input(recorded.get("weights", str))
        statistic = recorded.get("statistic", str)
        if statistic not in get_args(UpstreamStatistic):
            raise recorded.damaged("statistic", statistic)
    areas, exclude_self = (recorded.get(key, bool) for key in ("areas", "exclude_self"))
    return rule_of(grid, weights, statistic, areas, exclude_self)


def _blocks(codes: Readable, rule: Rule) -> BlockGrid:
    layers = [codes] if rule.weights is None else [codes, rule.weights]
    largest: BlockGrid = max((layer.blocks for layer in layers), key=lambda one: one.block)
    return largest


def _reads(codes: Readable, sums: Typed, weights: Typed | None) -> list[list[Read]]:
    inputs = [Read(codes, 1)] if weights is None else [Read(codes, 1), Read(weights)]
    return [inputs, [*inputs, Read(sums)]]


class _BlockSums(NamedTuple):
    """Adds up blocks; can be sent to workers."""

    paths: BlockPaths
    rule: Rule
    sums: Readable

    @property
    def add_up(self) -> Any:
        return add_up if self.rule.adds else carry_down

    def own(
        self, at: Block, codes: np.ndarray, target: np.ndarray, weight_cells: list[np.ndarray]
    ) -> tuple[Any, ...]:
        """Return the weights of a block, the mask of cells that count, and their contributions."""
        weights: Any = None if self.rule.weights is None else weight_cells[0]
        if isinstance(self.rule, EdgeRule):  # next to what does not drain, and the path continues
            at_edge = around(codes == NOWHERE)
            weights = at_edge & ((target >= 0) | (target == -2)).reshape(at_edge.shape)
        weighted, columns = self.rule.own(self.paths.blocks.window(*at), codes[1:-1, 1:-1], weights)
        return (
            weights,
            weighted,
            [np.require(contributions.ravel(), requirements="W") for contributions in columns],
        )

    def look(
        self, at: Block, data: list[np.ndarray]
    ) -> tuple[int, int, list[np.ndarray], BlockFlow]:
        """Return the numbers of cells that drain and without weight, outflows, and flow paths."""
        codes, *weight_cells = data
        target, order = self.paths.within(at, codes)
        _, weighted, columns = self.own(at, codes, target, weight_cells)
        for sums in columns:
            self.add_up(target, order, sums)
        leaving, flow = self.paths.look(at, codes, target, order)
        without = len(order) - int(np.count_nonzero(weighted))
        return len(order), without, [sums[leaving] for sums in columns], flow

    def check(
        self, at: Block, data: list[np.ndarray], inflow: tuple[np.ndarray, list[np.ndarray]]
    ) -> None:
        """Check a block, given the cells where flow enters, and the amounts."""
        codes, *weight_cells, stored = data
        into, amounts = inflow
        window = self.paths.blocks.window(*at)
        target, order = self.paths.within(at, codes)
        weights, _, columns = self.own(at, codes, target, weight_cells)
        join = np.add if self.rule.adds else np.maximum
        for sums, brought in zip(columns, amounts, strict=True):
            join.at(sums, into, brought)
            self.add_up(target, order, sums)
        right = np.empty_like(stored)
        values = [sums.reshape(stored.shape) for sums in columns]
        self.rule.write(window, codes[1:-1, 1:-1], weights, values, right)
        bits = f"u{right.itemsize}"
        faults = np.argwhere(right.view(bits) != stored.view(bits))
        for row, col in faults[:1].tolist():
            problem = f"sum {stored[row, col]} where {right[row, col]} drains through the cell"
            wrong(self.sums, problem, "sum", window[0] + row, window[2] + col)


class _SumsChecker:
    def __init__(self, codes: Readable, sums: Readable, rule: Rule, limits: Limits) -> None:
        self.codes, self.layer, self.rule = codes, sums, rule
        self.blocks = _blocks(codes, rule)
        self.plans = plan_sums(self.blocks, codes, sums, limits, rule)
        self.paths = FlowPaths(codes, self.blocks, self.plans[0])
        self.of = _BlockSums(self.paths.of, rule, sums)
        self.cells = self.without = 0
        self._sums: list[list[np.ndarray]] = []
        self._into, self._amounts = np.empty(0, np.int64), [np.empty(0, np.int64)]

    def run(self, limits: Limits) -> None:
        first, second = _reads(self.codes, self.layer, self.rule.weights)
        check_blocks(self.plans[0], self.blocks, first, self.of.look, self._add, limits)
        self._join()
        check_blocks(
            self.plans[1], self.blocks, second, self.of.check, _nothing, limits, given=self._given
        )

    def _add(self, at: Block, summary: tuple[int, int, list[np.ndarray], BlockFlow]) -> None:
        cells, without, sums, flow = summary
        self.cells += cells
        self.without += without
        self._sums.append(sums)
        self.paths.add(flow)

    def _join(self) -> None:
        self.paths.join()
        columns = [np.concatenate(parts) for parts in zip(*self._sums, strict=True)]
        self._sums.clear()
        for sums in columns:
            self.of.add_up(self.paths.following, self.paths.order, sums)
        order = np.argsort(self.paths.target)
        self._into, self._amounts = self.paths.target[order], [sums[order] for sums in columns]

    def _given(self, at: Block) -> tuple[np.ndarray, list[np.ndarray]]:
        which, into = entering(self.blocks, at, self._into)
        return into, [amounts[which] for amounts in self._amounts]


def _nothing(at: Block, _summary: None) -> None:
    """Blocks return nothing."""
