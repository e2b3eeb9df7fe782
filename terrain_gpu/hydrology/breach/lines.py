"""Write the channels out of pits as lines, as an operation: `BreachLines`.

1. *Voids* and *pits*: as for `BreachedHeights`.
2. *Ways*: each block finds the channels out of its pits, and stores their steps and figures in a
   file.
3. *Writing*: pits are written in row-major order, from the files of one row of blocks at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...engine.machine import MB, Machine
from ...engine.operation import OutputFile, Phase, SolvedBlock
from ...engine.plan import Excess, StreamPlan
from ...engine.run import Run
from ...facts import Findings
from ...grid import Block, cell_centres
from ...grid.lengths import Measured, step_lengths, whole_lengths
from ...grid.neighbours import COL_STEP, ROW_STEP
from ...io.features import Feature, Fields, library_bytes
from ...io.lines import tell_without_crs
from ...plurals import counted
from ..forest.features import write_lines
from .base import BreachState, PitSearch, compile_kernels
from .kernels import new_search, trace_way
from .kinds import PIT
from .pits import BlockFiles

LAYER = "breach_lines"
"""Name of the layer in a GeoPackage."""

FIELDS: Fields = {
    **dict.fromkeys(("pit", "end", "cells"), np.int64),
    **dict.fromkeys(("length", "cost", "largest_cut", "height", "end_height"), np.float64),
}
_WAYS = Phase("ways")
_WAY = np.dtype(
    [
        ("pit", np.int64),
        ("end", np.int64),
        ("steps", np.int64),
        ("length", np.int64),
        ("cost", np.int64),
        ("cut", np.float64),
        ("height", np.float64),
        ("end_height", np.float64),
    ]
)
_STEPS, _LINES = 1 << 16, 1 << 13
"""Lines are written in batches of this number of steps or lines, whatever the blocks."""
_STEP_BYTES = 120
"""Bytes per step while it is written."""
_WRITING = 40 * MB


@dataclass(frozen=True)
class BreachLines(PitSearch):
    """The operation."""

    mark = ""
    proof_passes = 0
    solved_by_workers = False

    @property
    def path(self) -> str:
        """The path of the file to write."""
        assert self.asked.lines is not None
        return os.fspath(self.asked.lines)

    @property
    def halo(self) -> int:  # type: ignore[override]
        return self.reach

    @property
    def phases(self) -> tuple[Phase, ...]:
        return (*super().phases, _WAYS)

    @property
    def outputs(self) -> tuple[OutputFile, ...]:
        return (OutputFile(self.path),)

    @property
    def measures(self) -> tuple[Measured, ...]:
        return ("lengths",)

    def plan(self, machine: Machine) -> StreamPlan:
        return self._plan(machine, _WRITING + library_bytes(self.path))

    @cached_property
    def lengths(self) -> tuple[np.ndarray, float]:
        return whole_lengths(self.grid, step_lengths(self.grid))

    def new_work(self) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        return new_search(self.reach), np.empty((2 * self.reach + 1) ** 2, np.uint8)

    def execute(self, run: Run) -> Findings:
        (writer,) = run.writers.values()
        compile_kernels(self.layers[0].dtype, self.rule)
        files = self.files(run.spill)
        files.folder.mkdir(parents=True, exist_ok=True)
        state = BreachLineState(self, files, run.plan)
        for phase in self.phases:
            run.map(phase, state)
        with run.report.phase("write"), writer.errors():
            tell_without_crs(self.path, self.grid)
            totals = write_lines(writer.part, state.batches(), self.grid, LAYER, FIELDS)
            return {**totals, "length": state.length * self.lengths[1]}

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        context: Any,
        work: tuple[tuple[np.ndarray, ...], np.ndarray],
    ) -> SolvedBlock:
        if phase != _WAYS:
            return super().solve(phase, at, cells, out, context, work)
        (heights,), (search, steps), files = cells, work, context[0]
        ring, rule, cols = self.halo, self.rule, self.grid.cols
        r0, r1, c0, _ = self.blocks.window(*at)
        kinds = self.kinds(at, heights, context)
        row, col = np.nonzero(kinds[ring:-ring, ring:-ring] == PIT)
        channels = np.zeros(len(row), _WAY)
        limits = rule.reach, rule.per_unit, rule.deepest
        options = limits, search, self.lengths[0], r0 - ring
        with open(files.channels(at), "wb") as file:
            for k, (r, c) in enumerate(
                zip((row + ring).tolist(), (col + ring).tolist(), strict=True)
            ):
                count, cost, cut, length, y, x = trace_way(heights, kinds, r, c, *options, steps)
                if count:
                    file.write(steps[:count].data)
                    pit, end = ((r0 - ring + i) * cols + c0 - ring + j for i, j in ((r, c), (y, x)))
                    z, end_z = heights[r, c], heights[y, x]
                    channels[k] = pit, end, count, length, cost, cut, z, end_z
            breached = channels["steps"] > 0
            file.write(channels[breached].data)
        size = r1 - r0
        lines = np.bincount(row[breached], minlength=size)
        total = np.bincount(row, channels["steps"], size).astype(np.int64)
        return SolvedBlock(known=(lines, total))


class BreachLineState(BreachState):
    """The pits, then the number of lines that begin in each row of each block, and their steps.

    Attributes
    ----------
    length
        Total length of the lines written so far, in units.
    """

    def __init__(self, operation: BreachLines, files: BlockFiles, plan: StreamPlan) -> None:
        super().__init__(operation, files)
        self._lines, self._plan, self.length = operation, plan, 0
        self._counts: dict[Block, tuple[np.ndarray, np.ndarray]] = {}

    def add(self, phase: Phase, at: Block, message: Any) -> None:
        if phase == _WAYS:
            self._counts[at] = message
            return
        if phase.name == "pits":
            pits, outlets, message = message  # the rest is for the base class
            self._files.save_marks(at, pits, outlets)
        super().add(phase, at, message)

    def _refuse_long_rows(self) -> None:
        """Reject a memory limit that is too small for the lines that begin in a row."""
        down, across = self._lines.blocks.shape
        size = max(
            int(np.sum([self._counts[i, j][1] for j in range(across)], axis=0).max())
            for i in range(down)
        )
        excess, extra = Excess.of(self._plan), max(size - _STEPS, 0) * _STEP_BYTES
        excess.has_room(extra, f"for a row of lines of {counted(size, 'cell')}")
        excess.refuse()

    def batches(self) -> Iterator[list[Feature]]:
        """Yield batches of lines. They do not depend on the blocks."""
        batch: list[Feature] = []
        cells = 0
        for features in self.features():
            for one in features:
                batch.append(one)
                cells += one[1]["cells"]
                if len(batch) >= _LINES or cells >= _STEPS:
                    yield batch
                    batch, cells = [], 0
        if batch:
            yield batch

    def features(self) -> Iterator[list[Feature]]:
        """Yield lines in the order of their pits, a few rows at a time."""
        down, across = self._lines.blocks.shape
        self._refuse_long_rows()
        for i in range(down):
            # For each block, where the lines of each row begin, and their steps.
            counts = [self._counts[i, j] for j in range(across)]
            lines, steps = (
                np.stack([np.concatenate(([0], np.cumsum(one[of]))) for one in counts])
                for of in (0, 1)
            )
            ends, rows = (lines.sum(axis=0), steps.sum(axis=0)), lines.shape[1] - 1
            first = 0
            while first < rows:
                most = [
                    int(np.searchsorted(end, end[first] + size, side="right")) - 1
                    for end, size in zip(ends, (_LINES, _STEPS), strict=True)
                ]
                last = max(min(*most, rows), first + 1)
                parts = [
                    self._read((i, j), lines[j, [first, last, -1]], steps[j, [first, last, -1]])
                    for j in range(across)
                    if lines[j, first] < lines[j, last]
                ]
                if parts:
                    yield self._batch(parts)
                first = last

    def _read(
        self, at: Block, lines: np.ndarray, steps: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Read lines of a block from its file: their figures, and all their steps."""
        first, last, _ = lines.tolist()
        begin, end, total = steps.tolist()
        with open(self._files.channels(at), "rb") as file:
            file.seek(begin)
            all_steps = np.frombuffer(file.read(end - begin), np.uint8)
            file.seek(total + first * _WAY.itemsize)
            channels = np.frombuffer(file.read((last - first) * _WAY.itemsize), _WAY)
        return channels, all_steps

    def _batch(self, parts: list[tuple[np.ndarray, np.ndarray]]) -> list[Feature]:
        operation = self._lines
        channels, steps = (np.concatenate(several) for several in zip(*parts, strict=True))
        count = channels["steps"]
        self.length += int(channels["length"].sum())
        start = np.cumsum(count) - count
        # A line has one more cell than steps.
        line = np.repeat(np.arange(len(channels)), count + 1)
        along = np.arange(len(steps) + len(channels)) - line
        positions = []
        corners = np.divmod(channels["pit"], operation.grid.cols)
        for corner, step in zip(corners, (ROW_STEP, COL_STEP), strict=True):
            path = np.concatenate(([0], np.cumsum(step[steps])))
            positions.append(path[along] + (corner - path[start])[line])
        xy = cell_centres(operation.grid, np.stack(positions, axis=1))
        values = (
            channels["pit"],
            channels["end"],
            count + 1,
            channels["length"] * operation.lengths[1],
            channels["cost"] / operation.rule.per_unit,
            channels["cut"],
            channels["height"] + 0.0,  # turns -0.0 into 0.0
            channels["end_height"] + 0.0,
        )
        rows = zip(*(value.tolist() for value in values), strict=True)
        pieces = zip(
            np.split(xy, (start + np.arange(len(channels)))[1:]), channels["pit"], rows, strict=True
        )
        ordered = sorted(pieces, key=lambda one: int(one[1]))
        return [(line, dict(zip(FIELDS, row, strict=True))) for line, _, row in ordered]
