"""Least-cost breaching as an operation: `BreachedHeights`.

After the pits are found (`base`), each block is read with enough rings around it to be computed on
its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...cells import differences
from ...engine.machine import Machine
from ...engine.operation import OutputLayer, Phase, SolvedBlock, State
from ...engine.plan import StreamPlan
from ...engine.proof import Limits
from ...engine.run import Run
from ...facts import Findings
from ...grid import Block, units
from ...grid.lengths import Measured
from .base import BreachState, PitSearch, compile_kernels
from .kernels import breach_all, new_search
from .lines import BreachLines
from .proof import plan_breach_proof, verify_breach

if TYPE_CHECKING:
    from ...engine.operation import Operation
    from .pits import BlockFiles


@dataclass(frozen=True)
class BreachedHeights(PitSearch):
    """The operation; `after` draws its channels, if there is a file for them."""

    @property
    def after(self) -> Operation | None:  # type: ignore[override]
        if self.asked.lines is None:
            return None
        return BreachLines(self.store, self.asked)

    @property
    def halo(self) -> int:  # type: ignore[override]
        return 2 * self.reach

    @property
    def phases(self) -> tuple[Phase, ...]:
        return (*super().phases, Phase("breach", writes=True))

    @property
    def proof_passes(self) -> int:  # type: ignore[override]
        return 2 + self.has_voids

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        heights = self.layers[0]
        like = heights.dtype, heights.nodata, "breached heights"
        return (OutputLayer(self.asked.into, *like, described=units.same_quantity(heights)),)

    @property
    def measures(self) -> tuple[Measured, ...]:
        return ("areas",)

    def plan(self, machine: Machine) -> StreamPlan:
        return self._plan(machine)

    def new_work(self) -> tuple[np.ndarray, ...]:
        return new_search(self.reach)

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        compile_kernels(self.layers[0].dtype, self.rule)
        files = self.files(spill)
        files.folder.mkdir(parents=True, exist_ok=True)
        return BreachState(self, files)

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        context: Any,
        work: tuple[np.ndarray, ...],
    ) -> SolvedBlock:
        if phase.writes:
            return self._breached(at, cells[0], out[0], context, work)
        return super().solve(phase, at, cells, out, context, work)

    def _breached(
        self,
        at: Block,
        heights: np.ndarray,
        out: np.ndarray,
        context: tuple[BlockFiles, np.ndarray],
        work: tuple[np.ndarray, ...],
    ) -> SolvedBlock:
        ring, rule, r0 = self.halo, self.rule, self.blocks.window(*at)[0]
        kinds = self.kinds(at, heights, context)
        before = heights[ring:-ring, ring:-ring]
        out[...] = before
        limits = rule.reach, rule.per_unit, rule.deepest
        pits, breached = breach_all(heights, kinds, *limits, work, out)
        lowered = np.flatnonzero((out < before).any(axis=1))
        cells, cut, volume = 0, 0.0, 0
        for row in lowered.tolist():
            where = out[row] < before[row]
            high, low = before[row][where], out[row][where]
            cells += len(high)
            with np.errstate(over="ignore"):  # of cuts that no float holds
                cut = max(cut, float(differences(high, low).max()))
            volume += int(rule.units(high, low).sum()) * int(self.areas[0][r0 + row])
        counts = {"pits": pits, "breached": breached, "lowered": cells, "cut": cut}
        return SolvedBlock((out,), {**counts, "volume": volume})

    def keep(self, phase: Phase, at: Block, message: Any, folder: Path | None) -> Any:
        assert folder is not None
        if phase.name == "pits":
            pits, outlets, rim = message
            self.files(folder).save_marks(at, pits, outlets)
            return rim
        return message

    def plan_verify(self, machine: Machine) -> None:
        limits = Limits(machine)
        plan_breach_proof(self.layers[0], self.outputs[0], self.rule, limits, voids=self.has_voids)

    def verify(self, run: Run, totals: Findings) -> Findings:
        layers = self.layers[0], run.layer(self.asked.into)
        verify_breach(*layers, self.rule, self.outlets, totals, run.proof_limits)
        return {"verified_cells": self.grid.cells}
