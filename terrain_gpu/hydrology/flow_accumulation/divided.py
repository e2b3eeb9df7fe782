"""Accumulate flow over several directions, as an operation: `MultipleFlow`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...engine.machine import Machine
from ...engine.operation import OutputLayer
from ...engine.plan import StreamPlan
from ...engine.proof import Limits
from ...engine.run import Run
from ...facts import Findings, Settings
from ...grid import Block, BlockGrid
from ...grid.lengths import Measured
from ..common.weights import Rule, WeightRule, described_sums, rule_of
from ..divided_flow.base import DividedFlow, DivisionWork, FlowRims, plan_divided
from ..divided_flow.division import EXPONENTS, METHODS
from ..divided_flow.kernels import UNKNOWN, count_inflows, pass_on
from ..divided_flow.visits import INNER, Flow, KeptCells
from .proof_divided import plan_division, verify_division


@dataclass(frozen=True)
class MultipleFlow(DividedFlow):
    """The operation. The fields are parameters of `flow_accumulation`."""

    store: str
    method: str = "mfd"
    exponent: float = 1.1
    filled: str = "filled"
    directions: str = "flow_direction"
    areas: bool = False
    exclude_self: bool = False
    into: str = "flow_accumulation"
    weights: str | None = None

    command = "flow-accumulation"
    mark = "accumulation_of"
    kept = KeptCells(np.dtype(np.int64), UNKNOWN)

    @property
    def inputs(self) -> tuple[str, ...]:
        weights = () if self.weights is None else (self.weights,)
        return self.filled, self.directions, *weights

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        like = self.rule.dtype, self.rule.nodata, "flow accumulation"
        weights = None if self.weights is None else self.layers[2]
        described = described_sums(self.grid, weights, "sum", self.areas)
        return (OutputLayer(self.into, *like, described=described),)

    @property
    def measures(self) -> tuple[Measured, ...]:
        return ("areas",) if self.areas else ()

    def settings(self) -> Settings:
        return {
            "accumulation_of": self.directions,
            "method": self.method,
            **({"exponent": self.exponent} if self.method in EXPONENTS else {}),
            "filled": self.filled,
            "areas": self.areas,
            "exclude_self": self.exclude_self,
            **({"weights": self.weights} if self.weights is not None else {}),
        }

    @cached_property
    def rule(self) -> Rule:
        weights = None if self.weights is None else self.layers[2]
        return rule_of(self.grid, weights, "sum", self.areas, self.exclude_self, divided=True)

    @property
    def only_on_cpu(self) -> str | None:
        return f"method {self.method} runs"

    @property
    def division(self) -> tuple[int, float]:
        return METHODS[self.method], self.exponent

    @property
    def working(self) -> int:
        return _working(self.weights is not None)

    def findings(self, state: FlowRims) -> Findings:
        return {} if self.weights is None else {"without_weight": int(state.counts[..., 0].sum())}

    def refuse_found(self, state: FlowRims) -> None:
        if isinstance(self.rule, WeightRule):
            self.rule.refuse_lost(*state.counts[..., 1:].sum(axis=(0, 1)).tolist())

    # -- a block --------------------------------------------------------------------------------

    def start(self, at: Block, flow: Flow, unheld: list[np.ndarray]) -> tuple[int, np.ndarray]:
        weights: Any = unheld[0][INNER] if unheld else None
        weighted, (contributions,) = self.rule.own(
            self.blocks.window(*at), flow.codes[INNER], weights
        )
        flow.values[:] = 0
        flow.inner(flow.values)[...] = contributions
        row0 = self.blocks.window(*at)[0]
        cells = count_inflows(*flow.cells, *self.geometry, row0, self.division, flow.waiting)
        counts = np.array([cells - np.count_nonzero(weighted), 0, 0])
        if isinstance(self.rule, WeightRule):
            counts[1:] = self.rule.few_units(weights, weighted, contributions)
        return cells, counts

    def advance(self, at: Block, flow: Flow, first: bool, work: DivisionWork) -> int:
        row0 = self.blocks.window(*at)[0]
        done: int = pass_on(
            *flow.cells, *self.geometry, row0, self.division, flow.waiting, flow.values,
            first, work.stack, work.crossed
        )  # fmt: skip
        return done

    def finish(
        self, at: Block, flow: Flow, unheld: list[np.ndarray], out: list[np.ndarray]
    ) -> None:
        weights: Any = unheld[0][INNER] if unheld else None
        window, codes = self.blocks.window(*at), flow.codes[INNER]
        self.rule.write(window, codes, weights, [flow.inner(flow.values)], out[0])

    # -- the proof ------------------------------------------------------------------------------

    def plan_verify(self, machine: Machine) -> None:
        plan_division(self.layers, self.outputs[0], self.blocks, Limits(machine))

    def verify(self, run: Run, totals: Findings) -> Findings:
        result, limits = run.layer(self.into), run.proof_limits
        verify_division(self.layers, result, self.blocks, self.rule, self.division, limits, totals)
        return {"verified_cells": self.grid.cells}


def plan_for(
    blocks: BlockGrid, heights: np.dtype, *, weights: np.dtype | None = None, machine: Machine
) -> StreamPlan:
    """Plan sums of cells, areas or weights, given the data types of elevations and weights."""
    read = [heights, np.dtype(np.uint8), *([] if weights is None else [weights])]
    options: Settings = {"working": _working(weights is not None), "machine": machine}
    return plan_divided(blocks, MultipleFlow.command, read, 1, MultipleFlow.kept, **options)


def _working(weighted: bool) -> int:
    """Return the bytes per cell that a worker and the rule need for a block."""
    return 60 if weighted else 26
