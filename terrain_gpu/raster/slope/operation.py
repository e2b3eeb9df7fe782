"""Slope and aspect of a layer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ...cells import is_nodata
from ...engine.machine import Machine
from ...engine.operation import OutputLayer, Phase, SolvedBlock, State
from ...engine.plan import PER_ROW, StreamPlan, fit_blocks, layer_bytes
from ...engine.proof import Limits
from ...engine.run import Run
from ...engine.tools import ToolOperation
from ...facts import Findings, Settings
from ...grid import Block, units
from ...grid.lengths import Measured, step_lengths
from . import Slope
from .kernels import horn
from .proof import KINDS, plan_slopes, verify_slopes

NODATA = -9999.0


@dataclass(frozen=True)
class Slopes(ToolOperation):
    """Slope and aspect of a layer."""

    asked: Slope

    halo = 1

    @property
    def phases(self) -> tuple[Phase, ...]:
        return (Phase("slope", writes=True),)

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        names = [name for name in (self.asked.into, self.asked.aspect) if name is not None]
        kinds = zip(names, KINDS, strict=False)
        return tuple(
            OutputLayer(
                *(name, np.dtype("<f4"), NODATA, f"{kind}s", {"holds": kind}),
                described=units.in_unit("degree"),
            )
            for name, kind in kinds
        )

    @property
    def measures(self) -> tuple[Measured, ...]:
        return ("slopes",)

    def settings(self) -> Settings:
        recorded = {"slope_of": self.asked.layer, "aspect": self.asked.aspect is not None}
        # Omitted if it is 1, as in stores of earlier versions.
        return recorded if self.rise == 1 else {**recorded, "rise": self.rise}

    @cached_property
    def rise(self) -> float:
        """See `units.rise_of`."""
        return units.rise_of(self.layers[0])

    def plan(self, machine: Machine) -> StreamPlan:
        (rows, cols), blocks = self.grid.shape, self.blocks
        (dtype,) = (layer.dtype for layer in self.layers)
        results = 4 * len(self.outputs)
        ring = blocks.largest(1)
        return fit_blocks(
            blocks,
            dtype.name,
            "for the slope of",
            buffer=ring * dtype.itemsize + blocks.largest() * results,
            worker=2 * ring,
            scratch=blocks.largest(tiled=True) * (dtype.itemsize + 2 * results),
            common=PER_ROW * rows,
            bytes_read=layer_bytes(rows, cols, dtype.itemsize, blocks.block),
            bytes_written=layer_bytes(rows, cols, 4, blocks.block) * len(self.outputs),
            machine=machine,
        )

    @cached_property
    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Per row, the length of two steps to the next column, and of two rows centred on the row.

        Negative where columns count westwards, or rows northwards.
        """
        steps = step_lengths(self.grid)
        down = np.concatenate((steps[2, :1], steps[2, :-1])) + steps[2]
        a, _, _, _, e, _ = self.grid.transform
        # In units of elevation.
        return math.copysign(2, a) * steps[0] / self.rise, math.copysign(1, -e) * down / self.rise

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        one, none = np.zeros((3, 3), self.layers[0].dtype), np.zeros((3, 3), bool)
        out = np.zeros((1, 1), np.float32)
        # Compile in the main thread, which Ctrl-C can stop.
        horn(one, none, np.ones(1), np.ones(1), NODATA, out, out)
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
        (heights,) = cells
        r0, r1, c0, c1 = self.blocks.window(*at)
        absent = is_nodata(heights, self.layers[0].nodata)
        grid = self.grid
        # Outside the raster, the margin holds fill values, which are not cells.
        absent[:1] |= r0 == 0
        absent[-1:] |= r1 == grid.rows
        absent[:, :1] |= c0 == 0
        absent[:, -1:] |= c1 == grid.cols
        across, down = (steps[r0:r1] for steps in self.lengths)
        aspects = out[1] if len(out) > 1 else np.empty((0, 0), np.float32)
        horn(heights, absent, across, down, NODATA, out[0], aspects)
        return SolvedBlock(tuple(out))

    def plan_verify(self, machine: Machine) -> None:
        plan_slopes(self.layers[0], self.outputs, Limits(machine))

    def verify(self, run: Run, totals: Findings) -> Findings:
        results = {
            kind: run.layer(output.name) for kind, output in zip(KINDS, self.outputs, strict=False)
        }
        verify_slopes(self.layers[0], results, run.proof_limits, self.rise)
        return {"verified_cells": self.grid.cells}
