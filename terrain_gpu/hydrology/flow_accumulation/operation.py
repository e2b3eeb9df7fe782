"""Accumulate flow along given directions, as an operation: `FlowSums`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...engine.machine import Machine
from ...engine.operation import OutputLayer, State
from ...engine.plan import PER_ROW, StreamPlan
from ...engine.proof import Limits
from ...engine.run import Run
from ...errors import ArgumentError
from ...facts import Findings, Settings
from ...grid import BlockGrid
from ...grid.lengths import Measured
from ...running import refuse_cuda
from ...store import TileStore
from ..along_flow.block import FlowBlock
from ..along_flow.entries import Inflows
from ..along_flow.kernels import TAKE, take_in
from ..along_flow.operation import AlongFlow, plan_flow
from ..along_flow.rim_kernels import filled_at
from ..common.code_values import NOWHERE
from ..common.codes import DIRECTIONS, open_directions
from ..common.sums import EDGE_LAYER, EdgeRule, SumRule, count_dtype, edge_dtype
from ..common.weights import Rule, WeightRule, described_sums, refuse_rule, rule_of
from ..divided_flow.division import EXPONENTS
from ..divided_flow.surface import open_surface
from . import LAYER, FlowAccumulation
from .divided import MultipleFlow, plan_for
from .proof import plan_sums, verify_sums


@dataclass(frozen=True)
class FlowSums(AlongFlow):
    """Sums along D8 directions. The fields are options of `FlowAccumulation`."""

    store: str
    directions: str = DIRECTIONS
    areas: bool = False
    exclude_self: bool = False
    into: str = LAYER
    weights: str | None = None
    statistic: str = "sum"
    edge_cells: bool = False

    command = FlowAccumulation.command
    mark = FlowAccumulation.mark
    proof_passes = 2

    @property
    def worker_bytes(self) -> int:
        plain = isinstance(self.rule, SumRule)
        return 8 if plain else 40 + 24 * self.rule.columns

    @property
    def entry_more(self) -> int:  # type: ignore[override]
        return 32 * (self.rule.columns - 1)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.directions,) if self.weights is None else (self.directions, self.weights)

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        like = self.rule.dtype, self.rule.nodata, "flow accumulation"
        weights = None if self.weights is None else self.layers[1]
        described = described_sums(self.grid, weights, self.statistic, self.areas)
        return (OutputLayer(self.into, *like, described=described),)

    @property
    def row_bytes(self) -> int:
        return PER_ROW if self.areas or self.weights is not None else 16

    @property
    def measures(self) -> tuple[Measured, ...]:
        return ("areas",) if self.areas else ()

    def settings(self) -> Settings:
        if self.edge_cells:
            return {"accumulation_of": self.directions, "edge_cells": True}
        weighted = {"weights": self.weights, "statistic": self.statistic}
        return {
            "accumulation_of": self.directions,
            "areas": self.areas,
            "exclude_self": self.exclude_self,
            **(weighted if self.weights is not None else {}),
        }

    @cached_property
    def rule(self) -> Rule:
        if self.edge_cells:
            return EdgeRule.of(self.grid)
        weights = None if self.weights is None else self.layers[1]
        return rule_of(self.grid, weights, self.statistic, self.areas, self.exclude_self)

    @property
    def only_on_cpu(self) -> str | None:
        return _only_on_cpu("d8", self.weights, self.edge_cells)

    def plan(self, machine: Machine) -> StreamPlan:
        if machine.gpu is None:
            return super().plan(machine)
        from ..along_flow.gpu import plan_along

        return plan_along(self, machine)

    def execute(self, run: Run) -> Findings:
        if run.gpu is None:
            return super().execute(run)
        from ..along_flow.gpu import accumulate

        return accumulate(self, run)

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        return Inflows(self, plan, self.rule)

    def trace(self, block: FlowBlock, cells: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        without, drained = self._drained(block, cells)
        into, ring = block.entries, block.ring
        outflow = np.array([sums.ravel()[ring] for sums in drained], np.int64)
        leaving = filled_at(outflow, self.rule.empty)
        exits = block.follow(into, TAKE, drained[0])
        ids = block.globally(into), block.globally(exits)
        return *ids, block.globally(ring[leaving]), outflow[:, leaving], without

    def finish(
        self,
        block: FlowBlock,
        cells: list[np.ndarray],
        context: tuple[np.ndarray, ...],
        out: list[np.ndarray],
    ) -> None:
        _, drained = self._drained(block, cells, context)
        values = [one[1:-1, 1:-1] for one in drained]
        self.rule.write(block.window, *self._inner(block, cells), values, out[0])

    def _drained(
        self,
        block: FlowBlock,
        cells: list[np.ndarray],
        inflow: tuple[np.ndarray, ...] | None = None,
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return counts, and what drains through each cell of the block and into its ring.

        The counts are the number of cells without a weight, and those of `WeightRule.few_units`.
        `inflow` is what enters the block from others.
        """
        rule, (codes, weights) = self.rule, self._inner(block, cells)
        weighted, columns = rule.own(block.window, codes, weights)
        drained = []
        for k, contributions in enumerate(columns):
            sums = np.empty(block.codes.shape, np.int64) if k else block.array(rule.sums_dtype)
            block.fill_ring(sums, rule.empty)
            sums[1:-1, 1:-1] = contributions
            if inflow is not None:
                take_in(sums, block.locally(inflow[0]), inflow[1 + k], rule.adds)
            block.pass_on(sums, rule.adds)
            drained.append(sums)
        counts = np.zeros(3, np.int64)
        if rule.weights is not None and inflow is None:
            counts[0] = np.count_nonzero(codes != NOWHERE) - np.count_nonzero(weighted)
            if isinstance(rule, WeightRule):
                counts[1:] = rule.few_units(weights, weighted, columns[0])
        return counts, drained

    def _inner(self, block: FlowBlock, cells: list[np.ndarray]) -> tuple[np.ndarray, Any]:
        """Return the directions of the block without its ring, and its weights or edge cells."""
        weights = block.edge if self.edge_cells else cells[0][1:-1, 1:-1] if cells else None
        return block.codes[1:-1, 1:-1], weights

    def plan_verify(self, machine: Machine) -> None:
        limits = Limits(machine)
        plan_sums(self.blocks, self.layers[0], self.outputs[0], limits, self.rule)

    def verify(self, run: Run, totals: Findings) -> Findings:
        result = run.layer(self.into)
        verify_sums(self.layers[0], result, self.rule, run.proof_limits, totals)
        return {"verified_cells": self.grid.cells}


def plan_sums_of(
    tool: FlowAccumulation, blocks: BlockGrid, types: list[np.dtype], machine: Machine
) -> StreamPlan:
    """Plan a tool whose sums have a data type that depends on the weights."""
    weights = types[-1] if tool.weights is not None else None
    if tool.method != "d8":
        return plan_for(blocks, types[0], weights=weights, machine=machine)
    areas, exclude_self, statistic = tool.areas, tool.exclude_self, tool.statistic
    edge_cells = tool.edge_cells
    written, cells = count_dtype(blocks.rows * blocks.cols), blocks.rows * blocks.cols
    if edge_cells:
        written = edge_dtype(cells)
    elif weights is not None and statistic in ("max", "min"):
        written = weights
    elif areas or exclude_self or (weights is not None and statistic != "below"):
        written = np.dtype(np.int64)  # or float64
    plain, columns = weights is None and not edge_cells, 1 + (statistic in ("mean", "below"))
    return plan_flow(
        blocks,
        FlowAccumulation.command,
        [1] if weights is None else [1, weights.itemsize],
        [written.itemsize],
        worker=8 if plain else 40 + 24 * columns,
        entry_more=32 * (columns - 1),
        row_bytes=PER_ROW if areas or weights is not None else 16,
        machine=machine,
    )


def refuse_arguments(settings: Settings) -> None:
    """Reject arguments of `flow_accumulation` that contradict each other.

    Raises
    ------
    InputError
        If they do.
    """
    method, exponent, statistic = (settings[key] for key in ("method", "exponent", "statistic"))
    weights, edge_cells = settings["weights"], settings["edge_cells"]
    if exponent is not None and method not in EXPONENTS:
        raise ArgumentError(
            "{exponent} {value} cannot be used with {method}, which takes no power of slopes",
            value=exponent,
            method=method,
        )
    combined = weights is not None or settings["areas"] or settings["exclude_self"]
    if edge_cells and (method != "d8" or statistic != "sum" or combined):
        raise ArgumentError(
            "{edge_cells} counts cells along D8 directions; it cannot be combined with another "
            "{method}, {weights}, a {statistic}, {areas} or {exclude_self}"
        )
    refuse_cuda(settings.get("backend"), _only_on_cpu(method, weights, edge_cells))
    if method != "d8" and statistic != "sum":
        raise ArgumentError(
            "{statistic} {value} needs {method} d8; other methods only sum", value=repr(statistic)
        )
    refuse_rule(weights, statistic, settings["areas"], settings["exclude_self"])


def _only_on_cpu(method: str, weights: str | None, edge_cells: bool) -> str | None:
    """Return words for what runs only on the CPU, or None; see `placed`."""
    if method != "d8":
        return f"method {method} runs"
    if edge_cells:
        return "counts of edge cells run"
    return None if weights is None else "sums of weights run"


def accumulation(store: TileStore | None, tool: FlowAccumulation) -> FlowSums | MultipleFlow:
    """Return the operation of a tool, along D8 directions or over divided flow."""
    path, into = "" if store is None else str(store.path), tool.into
    if into is None:
        into = LAYER if tool.weights is None else f"upstream_{tool.statistic}"
        into = EDGE_LAYER if tool.edge_cells else into
    if tool.method == "d8":
        if store is not None:
            open_directions(store, tool.directions)
        counted = tool.areas, tool.exclude_self, into, tool.weights, tool.statistic
        return FlowSums(path, tool.directions, *counted, tool.edge_cells)
    if store is not None:
        open_surface(store, tool.filled, tool.directions)
    exponent = tool.exponent
    if exponent is None:
        exponent = EXPONENTS.get(tool.method, 1.0)
    along = tool.method, exponent, tool.filled, tool.directions
    return MultipleFlow(path, *along, tool.areas, tool.exclude_self, into, tool.weights)
