"""Compute terrain indices from slopes and catchment areas, as an operation: `Indices`."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ...engine.machine import Machine
from ...engine.operation import OutputLayer, Phase, SolvedBlock, State
from ...engine.plan import PER_ROW, StreamPlan, fit_blocks, layer_bytes
from ...engine.proof import Limits
from ...engine.run import Run
from ...engine.tools import ToolOperation
from ...facts import Findings, Settings
from ...grid import Block
from ...grid.lengths import Measured
from . import TerrainIndices
from .kernels import indices
from .proof import plan_indices_proof, verify_indices
from .rule import DTYPE, KINDS, NODATA, IndexRule, check_inputs

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Indices(ToolOperation):
    """The operation. It computes the indices for which a layer name is given."""

    asked: TerrainIndices

    @property
    def phases(self) -> tuple[Phase, ...]:
        return (Phase("indices", writes=True),)

    @property
    def names(self) -> dict[str, str]:
        """The names of the output layers, by kind."""
        each = {kind: getattr(self.asked, kind) for kind in KINDS}
        return {kind: name for kind, name in each.items() if name is not None}

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        return tuple(
            OutputLayer(name, DTYPE, NODATA, "terrain indices", {"holds": kind})
            for kind, name in self.names.items()
        )

    @property
    def measures(self) -> tuple[Measured, ...]:
        return ("slopes",)

    def settings(self) -> Settings:
        return {
            "indices_of": self.asked.slope,
            "accumulation": self.asked.accumulation,
            "min_slope": self.asked.min_slope,
            "indices": list(self.names),
        }

    @cached_property
    def rule(self) -> IndexRule:
        slopes, sums = self.layers
        return IndexRule(slopes, sums, self.asked.min_slope)

    def plan(self, machine: Machine) -> StreamPlan:
        (rows, cols), blocks = self.grid.shape, self.blocks
        types = [layer.dtype for layer in self.layers]
        outputs = len(self.names)
        read, written = sum(dtype.itemsize for dtype in types), DTYPE.itemsize * outputs
        return fit_blocks(
            blocks,
            ", ".join(dtype.name for dtype in types),
            "for terrain-indices of",
            buffer=blocks.largest() * (read + written),
            worker=8 * blocks.largest(),
            scratch=blocks.largest(tiled=True) * (read + 2 * written),
            common=PER_ROW * rows,
            bytes_read=sum(layer_bytes(rows, cols, one.itemsize, blocks.block) for one in types),
            bytes_written=layer_bytes(rows, cols, DTYPE.itemsize, blocks.block) * outputs,
            machine=machine,
        )

    def examine(self) -> None:
        check_inputs(*self.layers)
        if not self.grid.crs_wkt:
            log.warning(
                "%s: no CRS, so map units are assumed to be metres; if they are not, convert with "
                "--crs",
                self.store,
            )

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        # Compile in the main thread, which Ctrl-C can stop.
        cells = [np.zeros((1, 1), layer.dtype) for layer in self.layers]
        out = [np.zeros((1, 1), DTYPE)] * 3
        indices(cells[0], np.ones((1, 1), bool), cells[1], np.ones(1), 1.0, *out)
        return State()

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        context: object,
        work: object,
    ) -> SolvedBlock:
        slopes, sums = cells
        window = self.blocks.window(*at)
        absent = self.rule.absent(window, slopes, sums)
        per_width = self.rule.per_width[window[0] : window[1]]
        arrays = dict(zip(self.names, out, strict=True))
        results = [arrays.get(kind, np.empty((0, 0), DTYPE)) for kind in KINDS]
        indices(slopes, absent, sums, per_width, self.rule.least_tangent, *results)
        return SolvedBlock(tuple(out))

    def plan_verify(self, machine: Machine) -> None:
        plan_indices_proof(self.rule, self.outputs, Limits(machine))

    def verify(self, run: Run, totals: Findings) -> Findings:
        results = {kind: run.layer(name) for kind, name in self.names.items()}
        verify_indices(self.rule, results, run.proof_limits)
        return {"verified_cells": self.grid.cells}
