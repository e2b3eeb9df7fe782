"""Label drainage basins along flow directions, as an operation: `BasinLabels`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...engine.machine import Machine
from ...engine.operation import OutputLayer, Phase, State
from ...engine.plan import Excess, StreamPlan
from ...engine.proof import Limits
from ...engine.run import Run
from ...engine.tools import ToolOperation
from ...facts import Findings, Settings
from ...grid import Block, BlockGrid
from ...plurals import counted
from ...tool import PathLike
from ..along_flow.basin_table import BasinRows, band_bytes, bands, figures
from ..along_flow.block import FlowBlock
from ..along_flow.entries import Beyond
from ..along_flow.kernels import TAKE, number_outlets
from ..along_flow.labels import FlowLabels
from ..common.codes import label_dtype
from . import Basins
from .proof import plan_basins, verify_basins

_FIGURES, _SOME = 48, 16
"""Bytes per basin for the table; one basin is planned for per `_SOME` cells of a block."""


@dataclass(frozen=True)
class BasinLabels(ToolOperation, FlowLabels):
    """The operation."""

    asked: Basins

    @property
    def table(self) -> PathLike | None:  # type: ignore[override]
        return self.asked.table

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        return (OutputLayer(self.asked.into, label_dtype(self.grid), 0, "basins"),)

    @property
    def worker_bytes(self) -> int:
        return worker_bytes(self.blocks, table=self.table is not None)

    @property
    def held_bytes(self) -> int:
        return 3 * 8 * self.blocks.rows * self.blocks.shape[1]

    def settings(self) -> Settings:
        return {"basins_of": self.asked.directions, "table": self.table is not None}

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        return _Numbers(self, plan, spill)

    def trace(self, block: FlowBlock, cells: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        into, outlets = block.entries, block.outlets
        r0, r1, c0, _ = block.window
        slots = np.arange(r0, r1) * self.blocks.shape[1] + c0 // self.blocks.block
        labels = block.array(np.int64)
        number_outlets(block.codes, slots * self.blocks.block, labels)
        exits = block.follow(into, TAKE, labels)
        labels_of_entries = labels.ravel()[into]
        return block.globally(into), block.globally(exits), labels_of_entries, outlets.sum(axis=1)

    def finish(
        self,
        block: FlowBlock,
        cells: list[np.ndarray],
        context: tuple[np.ndarray, np.ndarray, np.ndarray],
        out: list[np.ndarray],
    ) -> list[tuple[np.ndarray, np.ndarray]] | None:
        firsts, ids, around = context
        numbers = block.array(out[0].dtype)
        number_outlets(block.codes, firsts, numbers)
        numbers.ravel()[block.locally(ids)] = around
        block.follow_all(TAKE, numbers)
        out[0][...] = numbers[1:-1, 1:-1]
        if self.table is None:
            return None
        (r0, _, c0, _), areas = block.window, self.units[0]
        edge, outlets = block.edge, block.outlets
        return [
            figures(
                out[0][rows], edge[rows], outlets[rows], areas[r0:][rows], (r0 + rows.start, c0)
            )
            for rows in bands(out[0].shape)
        ]

    def plan_verify(self, machine: Machine) -> None:
        plan_basins(self.layers[0], self.outputs[0], Limits(machine))

    def verify(self, run: Run, totals: Findings) -> Findings:
        verify_basins(self.layers[0], run.layer(self.asked.into), totals, run.proof_limits)
        return {"verified_cells": self.grid.cells}


def worker_bytes(blocks: BlockGrid, *, table: bool) -> int:
    """Return the bytes per cell that a worker needs beyond `FlowWork`."""
    beside, each = (6 + 2 * _FIGURES // _SOME, 120) if table else (1, 40)
    return band_bytes(blocks, beside, each)


class _Numbers(Beyond):
    """The basin of each entry.

    The outlets in a row of a block first get provisional numbers, counted up from the index of that
    row among the rows of all blocks times the block size. Once all rows are counted, they get their
    final numbers.
    """

    def __init__(self, operation: BasinLabels, plan: StreamPlan, spill: Path) -> None:
        blocks = operation.blocks
        super().__init__(operation, plan, TAKE)
        self._operation, self._spill = operation, spill
        advice = ", or convert with a smaller --block-size"
        self._beyond = Excess.of(plan, self._layer.path, advice, per="buffers")
        # A killed run has added blocks to the table without recording which.
        self.again = operation.table is not None
        self._rows: BasinRows | None = None
        self._firsts = np.zeros((blocks.rows, blocks.shape[1]), np.int64)
        self.basins = 0

    def add(self, phase: Phase, at: Block, message: Any) -> None:
        if message is None:
            return
        if phase.writes:
            assert self._rows is not None
            for figures_of_rows in message:
                self._rows.add(*figures_of_rows)
            return
        r0, r1, _, _ = self._blocks.window(*at)
        self._firsts[r0:r1, at[1]] = message[-1]
        if self._operation.table is not None:
            outlets, planned = int(message[-1].sum()), self._blocks.largest(1) // _SOME
            extra = max(outlets - planned, 0) * _FIGURES
            self._beyond.has_room(extra, f"for a table of {counted(outlets, 'basin')} in a block")
        super().add(phase, at, message[:-1])

    def join(self, phase: Phase) -> None:
        operation = self._operation
        if phase.writes:
            from ...io.tables import write_table  # brings GDAL

            assert self._rows is not None
            assert operation.table is not None
            columns = self._rows.columns(operation.grid, operation.units[1])
            write_table(Path(operation.table), columns, operation.grid)
            return
        self._beyond.refuse()
        super().join(phase)
        counts = self._firsts.ravel()
        self.basins = int(counts.sum())
        counts[:] = np.cumsum(counts) - counts + 1
        (labels,) = self._values
        slots, ranks = np.divmod(labels, self._blocks.block)
        self._values = [counts[slots] + ranks]
        if operation.table is not None:
            self._spill.mkdir(exist_ok=True)
            self._rows = BasinRows(self._spill / "rows", self.basins)

    def given(self, phase: Phase, at: Block) -> tuple[np.ndarray, ...] | None:
        """Return the first number of each row, the entries around the block, and their basins."""
        around = super().given(phase, at)
        if around is None:
            return None
        r0, r1, _, _ = self._blocks.window(*at)
        return self._firsts[r0:r1, at[1]].copy(), *around

    def found(self) -> Findings:
        return {"basins": self.basins}

    def close(self) -> None:
        if self._rows is not None:
            self._rows.close()
