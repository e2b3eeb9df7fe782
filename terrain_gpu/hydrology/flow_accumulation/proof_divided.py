"""Proof of flow accumulation over several directions: `verify_division`.

Every cell divides its flow among lower neighbours or, if there are none, passes all of it along its
direction. Sums are right exactly if the sum of every cell is its own amount plus what it receives
from its neighbours. Elevations fall along every flow path, and where they do not, directions have
no loops, so there is only one solution. Sums are below 2^51 units, which float64 holds exactly. One
pass over the cells and their neighbours is the whole proof. Other proofs show that the elevations
are filled and that the directions belong to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...engine.plan import StreamPlan
from ...engine.proof import Limits, Read, RunRecord, check_blocks, plan_proof, wrong, wrong_totals
from ...facts import Findings
from ...grid import Block, BlockGrid, GridSpec, Window
from ...store import Layer, TileStore
from ...store.readable import Readable, Typed
from ..common.code_values import NOWHERE
from ..common.codes import open_directions
from ..common.weights import Rule, rule_of
from ..divided_flow.division import EXPONENTS, METHODS, geometry
from ..divided_flow.proof_kernels import receive

_MOST = 1 << 51
"""More units than the sum of any cell."""


def verify_division(
    layers: Sequence[Readable],
    sums: Readable,
    blocks: BlockGrid,
    rule: Rule,
    method: tuple[int, float],
    limits: Limits,
    recorded: Findings,
) -> Findings:
    """Check the balance of every cell.

    Parameters
    ----------
    layers
        Filled elevations, directions, and weights if there are any.
    sums
        The layer to check, float64.
    blocks
        The blocks of the layers.
    rule
        The rule of the sums.
    method
        The method and the exponent.
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
    cells = without = 0

    def add(at: Block, counts: tuple[int, int]) -> None:
        nonlocal cells, without
        cells, without = cells + counts[0], without + counts[1]

    checker = _DivisionChecker(layers[0].grid, sums, blocks, rule, method)
    plan = plan_division(layers, sums, blocks, limits)
    reads = _reads(layers, sums)
    check_blocks(plan, blocks, reads, checker.check, add, limits)
    if rule.weights is not None:
        problem = "cells without a weight"
        wrong_totals(sums, problem, without, recorded.get("without_weight"))
    return {"cells": cells}


def plan_division(
    layers: Sequence[Typed], sums: Typed, blocks: BlockGrid, limits: Limits
) -> StreamPlan:
    """Plan the pass; the layer of sums need not exist yet."""
    worker = blocks.largest(2) * (64 if len(layers) < 3 else 104)
    held = 128 * blocks.rows
    return plan_proof(blocks, _reads(layers, sums), limits, worker=worker, held=held)


def verify_stored_division(store: TileStore, layer: Layer, limits: Limits) -> Findings:
    """Check a layer with `verify_division` and the settings recorded with it."""
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


def _reads(layers: Sequence[Typed], sums: Typed) -> list[Read]:
    return [
        Read(sums, 1),
        *(Read(layer, rings) for layer, rings in zip(layers, (2, 2, 1), strict=False)),
    ]


@dataclass(frozen=True)
class _DivisionChecker:
    """Checks blocks; can be sent to workers. For attributes, see `verify_division`."""

    grid: GridSpec
    sums: Readable
    blocks: BlockGrid
    rule: Any
    division: tuple[int, float]

    @cached_property
    def geometry(self) -> tuple[np.ndarray, np.ndarray]:
        return geometry(self.grid)

    @property
    def unit(self) -> float:
        unit: float = self.rule.unit if self.rule.weights is None else self.rule.units[1]
        return unit

    def check(self, at: Block, data: list[np.ndarray]) -> tuple[int, int]:
        """Check a block; return the number of cells that drain, and of those without a weight."""
        stored, heights, codes, *weights = data
        r0, _r1, c0, _c1 = window = self.blocks.window(*at)
        weighted, contributions = self._own(window, codes[1:-1, 1:-1], weights)
        with np.errstate(invalid="ignore", over="ignore"):
            units = np.rint(stored / self.unit)
            units[~(np.abs(units) < _MOST)] = 0  # the comparison below reports it
        through = units.astype(np.int64)
        if self.rule.exclude_self:
            through += contributions
        through[codes[1:-1, 1:-1] == NOWHERE] = 0
        inflow = np.empty_like(through)
        receive(heights, codes, through, *self.geometry, r0 - 1, self.division, inflow)
        inner, cells = np.s_[1:-1, 1:-1], codes[2:-2, 2:-2]
        right = np.empty(cells.shape)
        one: Any = weights[0][inner] if weights else None
        self.rule.write(window, cells, one, [(inflow + contributions)[inner]], right)
        faults = np.argwhere(right.view(np.int64) != stored[inner].view(np.int64))
        for row, col in faults[:1].tolist():
            value = stored[row + 1, col + 1]
            problem = f"sum {value} where {right[row, col]} drains through the cell"
            wrong(self.sums, problem, "sum", r0 + row, c0 + col)
        count = int(np.count_nonzero(cells != NOWHERE))
        return count, count - int(np.count_nonzero(weighted[inner]))

    def _own(
        self, window: Window, codes: np.ndarray, weights: list[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return, for a block and its ring, the mask of cells that count and contributions."""
        r0, r1, c0, c1 = window
        rows, cols = self.blocks.rows, self.blocks.cols
        inside = max(r0 - 1, 0), min(r1 + 1, rows), max(c0 - 1, 0), min(c1 + 1, cols)
        part = np.s_[
            inside[0] - r0 + 1 : inside[1] - r0 + 1, inside[2] - c0 + 1 : inside[3] - c0 + 1
        ]
        weighted, contributions = np.zeros(codes.shape, bool), np.zeros(codes.shape, np.int64)
        weights_inside: Any = weights[0][part] if weights else None
        weighted[part], (contributions[part],) = self.rule.own(inside, codes[part], weights_inside)
        return weighted, contributions
