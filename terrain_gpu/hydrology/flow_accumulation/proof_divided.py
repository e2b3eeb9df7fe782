"""Proof of flow accumulation over several directions: `verify_division`.

Every cell divides what drains through it among lower neighbours, or where there are none gives all
to the one its direction leads to. Sums are right exactly when in every cell its own amount and what
it receives from its neighbours are its sum: heights fall along every way, and directions lead round
in no circle where they do not, so there is only one solution. Sums are below 2^51 units, of which
float64 tells the exact number. One pass over the cells with those around them is the whole proof;
that heights are filled, and that directions belong to them, have proofs of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...engine.plan import StreamPlan
from ...engine.proof import Limits, Read, RunRecord, check_blocks, plan_proof, wrong, wrong_totals
from ...grid import Block, BlockGrid, GridSpec, Window
from ...store import Layer, TileStore
from ..common.code_values import NOWHERE
from ..common.codes import open_directions
from ..common.weights import Rule, rule_of
from ..divided_flow.division import EXPONENTS, METHODS, geometry
from ..divided_flow.proof_kernels import receive

_MOST = 1 << 51
"""More units than any cell has."""


def verify_division(
    layers: Sequence[Any],
    sums: Any,
    blocks: BlockGrid,
    rule: Rule,
    how: tuple[int, float],
    limits: Limits,
    recorded: Mapping[str, Any],
) -> dict[str, Any]:
    """Check the balance of every cell.

    Parameters
    ----------
    layers
        Filled heights, directions, and weights if there are any.
    sums
        The layer to check, float64.
    blocks
        Its blocks.
    how
        The method and the exponent.
    recorded
        The findings; with weights, the recorded "without_weight".

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
    cells = without = 0

    def add(at: Block, found: tuple[int, int]) -> None:
        nonlocal cells, without
        cells, without = cells + found[0], without + found[1]

    checker = _DivisionChecker(layers[0].grid, sums, blocks, rule, how)
    plan = plan_division(layers, sums, blocks, limits)
    reads = _reads(layers, sums)
    check_blocks(plan, blocks, reads, checker.check, add, limits)
    if rule.weights is not None:
        what = "cells without a weight"
        wrong_totals(sums, what, without, recorded.get("without_weight"))
    return {"cells": cells}


def plan_division(
    layers: Sequence[Any], sums: Any, blocks: BlockGrid, limits: Limits
) -> StreamPlan:
    """How the pass streams; the layer of sums need not exist yet."""
    worker = blocks.largest(2) * (64 if len(layers) < 3 else 104)
    held = 128 * blocks.rows
    return plan_proof(blocks, _reads(layers, sums), limits, worker=worker, held=held)


def verify_stored_division(store: TileStore, layer: Layer, limits: Limits) -> dict[str, Any]:
    """`verify_division` of a layer, from what is recorded with it."""
    recorded = RunRecord(store, layer)
    heights = recorded.input(recorded.get("filled", str))
    codes = recorded.input(recorded.get("accumulation_of", str))
    open_directions(store, codes.name)
    method, exponent = recorded.get("method", str), 1.0
    if method not in METHODS:
        raise recorded.damaged("method", method)
    if method in EXPONENTS:
        exponent = recorded.get("exponent", float)
    layers, weights = [heights, codes], None
    if "weights" in recorded.settings:
        weights = recorded.input(recorded.get("weights", str))
        layers.append(weights)
    areas, exclude_self = recorded.get("areas", bool), recorded.get("exclude_self", bool)
    rule = rule_of(layer.grid, weights, "sum", areas, exclude_self, divided=True)
    blocks = max((one.blocks for one in layers), key=lambda one: one.block)
    if layer.dtype != rule.dtype or layer.blocks != blocks:
        raise recorded.damaged("data_type", layer.dtype.name)
    how = METHODS[method], exponent
    return verify_division(layers, layer, blocks, rule, how, limits, recorded.result)


def _reads(layers: Sequence[Any], sums: Any) -> list[Read]:
    return [
        Read(sums, 1),
        *(Read(layer, rings) for layer, rings in zip(layers, (2, 2, 1), strict=False)),
    ]


@dataclass(frozen=True)
class _DivisionChecker:
    """Checks blocks; can be sent to workers. Attributes: see `verify_division`."""

    grid: GridSpec
    sums: Any
    blocks: BlockGrid
    rule: Any
    how: tuple[int, float]

    @cached_property
    def geometry(self) -> tuple[np.ndarray, np.ndarray]:
        return geometry(self.grid)

    @property
    def unit(self) -> float:
        found: float = self.rule.unit if self.rule.weights is None else self.rule.units[1]
        return found

    def check(self, at: Block, data: list[np.ndarray]) -> tuple[int, int]:
        """Check a block; return how many cells drain, and how many of these have no weight."""
        found, heights, codes, *weights = data
        r0, _r1, c0, _c1 = window = self.blocks.window(*at)
        known, own = self._own(window, codes[1:-1, 1:-1], weights)
        with np.errstate(invalid="ignore", over="ignore"):
            units = np.rint(found / self.unit)
            units[~(np.abs(units) < _MOST)] = 0  # told by the comparison below
        through = units.astype(np.int64)
        if self.rule.exclude_self:
            through += own
        through[codes[1:-1, 1:-1] == NOWHERE] = 0
        inflow = np.empty_like(through)
        receive(heights, codes, through, *self.geometry, r0 - 1, self.how, inflow)
        inner, cells = np.s_[1:-1, 1:-1], codes[2:-2, 2:-2]
        right = np.empty(cells.shape)
        one: Any = weights[0][inner] if weights else None
        self.rule.write(window, cells, one, [(inflow + own)[inner]], right)
        faults = np.argwhere(right.view(np.int64) != found[inner].view(np.int64))
        for row, col in faults[:1].tolist():
            value = found[row + 1, col + 1]
            what = f"sum {value} where {right[row, col]} drains through the cell"
            wrong(self.sums, what, "sum", r0 + row, c0 + col)
        count = int(np.count_nonzero(cells != NOWHERE))
        return count, count - int(np.count_nonzero(known[inner]))

    def _own(
        self, window: Window, codes: np.ndarray, weights: list[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Which cells of a block and of the ring around it count, and what each contributes."""
        r0, r1, c0, c1 = window
        rows, cols = self.blocks.rows, self.blocks.cols
        inside = max(r0 - 1, 0), min(r1 + 1, rows), max(c0 - 1, 0), min(c1 + 1, cols)
        part = np.s_[
            inside[0] - r0 + 1 : inside[1] - r0 + 1, inside[2] - c0 + 1 : inside[3] - c0 + 1
        ]
        known, own = np.zeros(codes.shape, bool), np.zeros(codes.shape, np.int64)
        given: Any = weights[0][part] if weights else None
        known[part], (own[part],) = self.rule.own(inside, codes[part], given)
        return known, own
