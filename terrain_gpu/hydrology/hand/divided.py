"""Heights above streams and distances to them, averaged over D-infinity flow: `DinfHand`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...engine.machine import Machine
from ...engine.operation import OutputLayer
from ...engine.proof import Limits
from ...engine.run import Run
from ...facts import Findings, Settings
from ...grid import Block
from ...grid.lengths import Measured
from ..common.code_values import NOWHERE
from ..common.codes import DIRECTIONS
from ..common.height_above import KINDS, AboveRule, streams_settings
from ..divided_flow.base import DividedFlow, DivisionWork
from ..divided_flow.division import DINF
from ..divided_flow.visits import Flow, KeptCells
from .divided_kernels import UNKNOWN, find_donors, pass_up
from .proof_divided import plan_averages, verify_averages


@dataclass(frozen=True)
class DinfHand(DividedFlow):
    """The operation. Fields as for `StreamsAbove`; `filled` is the layer of filled elevations."""

    store: str
    threshold: float | None = None
    streams: str | None = "flow_accumulation"
    layer: str = "elevation"
    directions: str = DIRECTIONS
    into: str = "hand"
    distance: str | None = None
    filled: str = "filled"

    command = "hand"
    mark = "hand_of"
    held = 3
    working = 24

    @property
    def inputs(self) -> tuple[str, ...]:
        streams = () if self.streams is None else (self.streams,)
        return self.filled, self.directions, self.layer, *streams

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        return self.rule.outputs(self.into, self.distance)

    @property
    def measures(self) -> tuple[Measured, ...]:
        return () if self.distance is None else ("lengths",)

    def settings(self) -> Settings:
        return {
            "hand_of": self.layer,
            "directions": self.directions,
            "method": "dinf",
            "filled": self.filled,
            **streams_settings(self.streams, self.threshold),
            "distance": self.distance is not None,
        }

    @cached_property
    def rule(self) -> AboveRule:
        _, _, heights, *streams = self.layers
        return AboveRule(heights, streams[0] if streams else None, self.threshold, divided=True)

    @property
    def division(self) -> tuple[int, float]:
        return DINF, 1.0

    @property
    def kept(self) -> KeptCells:
        return _kept(len(self.outputs))

    def hold(self, cells: list[np.ndarray]) -> list[np.ndarray]:
        filled, codes, heights = cells
        return [filled, codes, self.rule.height(heights)]

    # -- a block --------------------------------------------------------------------------------

    def start(self, at: Block, flow: Flow, unheld: list[np.ndarray]) -> tuple[int, np.ndarray]:
        stops = np.zeros(flow.codes.shape, bool)
        if unheld:
            stops = self.rule.is_stream(unheld[0]) & (flow.codes != NOWHERE)
        row0 = self.blocks.window(*at)[0]
        cells: int = find_donors(
            *flow.cells,
            *self.geometry,
            row0,
            self.division,
            stops,
            not unheld,
            *flow.marks,
            flow.values,
        )
        return cells, np.zeros(3, np.int64)

    def advance(self, at: Block, flow: Flow, first: bool, work: DivisionWork) -> int:
        row0 = self.blocks.window(*at)[0]
        done: int = pass_up(
            *flow.cells, *self.geometry, row0, self.division, *flow.marks, flow.values,
            first, work.stack, work.crossed
        )  # fmt: skip
        return done

    def finish(
        self, at: Block, flow: Flow, unheld: list[np.ndarray], out: list[np.ndarray]
    ) -> None:
        values = flow.inner(flow.values)
        for column, cells in enumerate(out):
            cells[...] = values[..., column]

    # -- the proof ------------------------------------------------------------------------------

    def plan_verify(self, machine: Machine) -> None:
        limits = Limits(machine)
        plan_averages(self.layers, self.outputs, self.blocks, limits)

    def verify(self, run: Run, totals: Findings) -> Findings:
        results = dict(zip(KINDS, (run.layer(one.name) for one in self.outputs), strict=False))
        verify_averages(self.layers, self.rule, results, self.blocks, run.proof_limits)
        return {"verified_cells": self.grid.cells}


def _kept(columns: int) -> KeptCells:
    """Return what is kept of a cell for this number of averages."""
    return KeptCells(np.dtype((np.float64, (columns,))), UNKNOWN, marks=2)
