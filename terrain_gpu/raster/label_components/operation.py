"""Components of a whole raster, streamed: `ComponentLabels`.

1. *Survey*: read and label each block; store the components at its rim, and count where its other
   components begin.
2. *Join*: join components across the borders between blocks, and number them.
3. *Label*: read and label each block again, and write it with its final labels.

Labelling twice is cheaper than storing labels in between, which are larger than the cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...compiled import known_types, tell_compiling
from ...engine.machine import Machine
from ...engine.operation import OutputLayer, Phase, SolvedBlock, State
from ...engine.plan import StreamPlan, fit_blocks, layer_bytes, other_blocks
from ...engine.proof import Limits
from ...engine.run import Result, Run
from ...engine.tools import ToolOperation
from ...facts import Findings, Settings
from ...grid import MIN_BLOCK, Block, BlockGrid, Window
from ...grid.lengths import Measured
from ...primitives.grid_components import label_block, most_labels
from ...report import Report
from ...store import Layer, TileStore
from ...store.labels import Layered
from ...tokens import named_store
from . import LabelComponents
from .block import CELLS, MEASURES, count_firsts, measure, number, rename, rim_slots
from .expression import Expression
from .joins import Joins, joins_bytes
from .proof import plan_labels, verify_labels

if TYPE_CHECKING:
    from .rows import Rows

_STRIP = 1 << 16
"""Number of cells for which a condition is evaluated at a time; temporaries stay in the cache."""


def label_dtype(rows: int, cols: int, connectivity: int) -> np.dtype:
    """Return the type of labels: uint32, which all GIS read, if it always suffices; else int64."""
    return np.dtype(
        np.uint32 if _most(rows, cols, connectivity == 8) < 2**32 else np.int64
    ).newbyteorder("<")


def _most(rows: int, cols: int, diagonal: bool) -> int:
    """Return the largest possible number of components in a raster of this shape."""
    return int(most_labels(rows, cols, diagonal))


def plan_components(
    rows: int,
    cols: int,
    dtypes: Sequence[np.dtype],
    block: int,
    *,
    connectivity: int = 8,
    table: bool = True,
    source_bytes: int | None = None,
    machine: Machine,
) -> StreamPlan:
    """Plan a labelling, for the largest possible number of components.

    Parameters
    ----------
    dtypes
        Data types of the layers in the condition.
    block
        The block size of the layers.
    table
        Whether to measure components for a table.
    source_bytes
        Size of the layers' shards; None assumes uncompressed shards without nodata.

    Raises
    ------
    PlanError
        If the memory limit is too small.
    """
    blocks = BlockGrid(rows, cols, block)
    cells = blocks.largest()
    label = label_dtype(rows, cols, connectivity).itemsize
    itemsizes = [dtype.itemsize for dtype in dtypes]
    most = _most(min(block, rows), min(block, cols), connectivity == 8)
    buffer = cells * (sum(itemsizes) + label)
    if table:  # the measures, until they are written to the table
        buffer += most * (8 * MEASURES + 12)
    # Mask, labels and temporaries of the condition; per component, two numbers in the block, the
    # measures, the final label, and temporaries for the table.
    work = cells * (1 + 4) + 32 * _STRIP * len(dtypes) + most * (4 + 4 + 8 * MEASURES + 8 + 20)
    held = joins_bytes(blocks, measured=table)
    if source_bytes is None:
        source_bytes = sum(layer_bytes(rows, cols, size, block) for size in itemsizes)
    return fit_blocks(
        blocks,
        ", ".join(dtype.name for dtype in dtypes),
        "for the components of",
        buffer=buffer,
        worker=work,
        scratch=blocks.largest(tiled=True) * (sum(itemsizes) + 2 * label),
        common=16 * rows,
        held=held,
        advice=other_blocks("smaller" if work > held else "larger", block),
        passes=2,
        bytes_read=2 * source_bytes,
        bytes_written=layer_bytes(rows, cols, label, block),
        machine=machine,
    )


@dataclass
class _Labelled:
    """A block labelled on its own, with the measures and rim slots of its components."""

    labels: np.ndarray
    measures: np.ndarray
    slots: np.ndarray
    at_rim: int


def _labelled(
    mask: np.ndarray,
    labels: np.ndarray,
    window: Window,
    width: int,
    units: np.ndarray,
    diagonal: bool,
) -> _Labelled:
    """Label the block of `window` into `labels` and measure it; the raster has `width` columns."""
    count = label_block(mask, diagonal, labels)
    measures = np.empty((count + 1, MEASURES), np.int64)
    slots = np.empty(count + 1, np.int32)
    measure(labels, window[0], window[2], width, units, measures)
    return _Labelled(labels, measures, slots, rim_slots(labels, slots))


def _surveyed(
    block: _Labelled, window: Window
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    """Return the arguments of `Joins.add` for a block."""
    labels, slots = block.labels, block.slots
    firsts = np.empty(len(labels), np.int64)
    left = np.empty(block.at_rim, np.int64)
    count_firsts(block.measures, slots, window[0], firsts, left)
    sides = [slots[line] for line in (labels[0], labels[-1], labels[:, 0], labels[:, -1])]
    return sides, firsts, left, block.measures[slots >= 0]


def _compile(dtype: np.dtype) -> None:
    """Load or compile the kernels for a type of labels in the main thread (Ctrl-C works there)."""
    if not known_types(measure):
        tell_compiling(measure, "components")
    blocks = BlockGrid(MIN_BLOCK + 1, 1, MIN_BLOCK)
    joins = Joins(blocks, diagonal=True, measured=True)
    for at in blocks.ids():
        window = blocks.window(*at)
        mask = np.ones((window[1] - window[0], 1), bool)
        labels = np.empty(mask.shape, np.int32)
        block = _labelled(mask, labels, window, 1, np.ones(len(mask), np.int64), True)
        joins.add(at, *_surveyed(block, window))
    joins.number()
    starts, at_rim, _, _ = joins.of(at)
    final = np.empty(2, np.int64)
    number(block.measures, block.slots, window[0], starts, at_rim, final)
    rename(labels, final, np.empty(labels.shape, dtype))


@dataclass(repr=False)
class Components(Layered):
    """Connected components of a condition.

    Attributes
    ----------
    layer
        The store's layer of labels: 1, 2, ... in row-major order of the components' first cells;
        0 outside.
    count
        Number of components.
    cells
        Number of cells inside.
    report
        The run's `Report`.
    """

    layer: Layer
    count: int
    cells: int
    report: Report

    @property
    def layers(self) -> dict[str, Layer]:
        """The layer by its name."""
        return {self.layer.path.name: self.layer}

    def labels(self) -> np.ndarray:
        """Return all labels in memory."""
        return self.layer.read_window(*self.layer.grid.window)


@dataclass(frozen=True)
class ComponentLabels(ToolOperation):
    """The operation."""

    asked: LabelComponents

    @property
    def phases(self) -> tuple[Phase, ...]:
        label = Phase("label", writes=True, joined="table" if self.asked.table else "")
        return Phase("survey", joined="join"), label

    @cached_property
    def condition(self) -> Expression:
        with named_store(self.store):
            return Expression(self.asked.where, TileStore.open(self.store).layers)

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self.condition.layers)

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        kind = label_dtype(self.grid.rows, self.grid.cols, self.asked.connectivity)
        return (OutputLayer(self.asked.into, kind, 0, "components"),)

    @property
    def measures(self) -> tuple[Measured, ...]:
        return () if self.asked.table is None else ("areas",)

    def settings(self) -> Settings:
        return {
            "where": self.asked.where,
            "connectivity": self.asked.connectivity,
            "table": self.asked.table is not None,
            "layer": ", ".join(self.inputs),
        }

    def plan(self, machine: Machine) -> StreamPlan:
        return plan_components(
            self.grid.rows,
            self.grid.cols,
            [layer.dtype for layer in self.layers],
            self.blocks.block,
            connectivity=self.asked.connectivity,
            table=self.asked.table is not None,
            source_bytes=sum(layer.info.get("stored_bytes") or 0 for layer in self.layers),
            machine=machine,
        )

    @cached_property
    def units(self) -> tuple[np.ndarray, float]:
        """The area of a cell in each row, as an integer number of units; and the unit."""
        if self.asked.table is None:
            return np.ones(self.grid.rows, np.int64), 1.0
        from ...grid.lengths import area_units

        return area_units(self.grid)

    def new_work(self) -> tuple[np.ndarray, np.ndarray]:
        cells = self.blocks.largest()
        return np.empty(cells, bool), np.empty(cells, np.int32)

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        _compile(self.outputs[0].dtype)
        return _Across(self, spill)

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        context: Any,
        work: tuple[np.ndarray, np.ndarray],
    ) -> SolvedBlock:
        window = self.blocks.window(*at)
        rows, cols = window[1] - window[0], window[3] - window[2]
        # Contiguous in every shape, so that kernels are compiled only once.
        mask, labels = (flat[: rows * cols].reshape(rows, cols) for flat in work)
        layers = list(zip(self.inputs, cells, self.layers, strict=True))
        step = max(_STRIP // cols, 1)
        for row in range(0, rows, step):
            part = slice(row, row + step)
            mask[part] = self.condition.holds(
                {name: (data[part], layer.nodata) for name, data, layer in layers}
            )
        units = self.units[0][window[0] : window[1]]
        diagonal = self.asked.connectivity == 8
        block = _labelled(mask, labels, window, self.blocks.cols, units, diagonal)
        if not phase.writes:
            inside = int(block.measures[1:, CELLS].sum())
            return SolvedBlock(known=(inside, *_surveyed(block, window)))
        starts, at_rim, _, _ = context
        numbers = np.empty(len(block.slots), np.int64)
        number(block.measures, block.slots, window[0], starts, at_rim, numbers)
        rename(block.labels, numbers, out[0])
        rows_of = None if self.asked.table is None else (block.measures, block.slots, numbers)
        return SolvedBlock(tuple(out), rows_of)

    def plan_verify(self, machine: Machine) -> None:
        limits = Limits(machine)
        plan_labels(self.blocks, self.outputs[0], self.layers, limits)

    def verify(self, run: Run, totals: Findings) -> Findings:
        sources = dict(zip(self.inputs, self.layers, strict=True))
        labels, connectivity = run.layer(self.asked.into), self.asked.connectivity
        verify_labels(self.condition, sources, labels, connectivity, totals, run.proof_limits)
        return {"verified_cells": self.grid.cells}

    def result(self, result: Result) -> Components:
        report, (layer,) = result.report, result.layers.values()
        report.valid_cells = result.found["cells"]
        del report.result["layers"]
        report.result["layer"] = self.asked.into
        return Components(layer, result.found["components"], result.found["cells"], report)


class _Across(State):
    """Joins components across the borders between blocks, and collects the rows of the table."""

    def __init__(self, operation: ComponentLabels, spill: Path) -> None:
        self._operation, self._spill = operation, spill
        measured = operation.asked.table is not None
        # Rows that a killed run has written are not reused, since a power cut may have lost some.
        self.again = measured
        diagonal = operation.asked.connectivity == 8
        self._joins = Joins(operation.blocks, diagonal=diagonal, measured=measured)
        self._rows: Rows | None = None
        self._cells = 0

    def given(self, phase: Phase, at: Block) -> tuple[np.ndarray, ...] | None:
        return self._joins.of(at) if phase.writes else None

    def add(self, phase: Phase, at: Block, message: Any) -> None:
        if not phase.writes:
            inside, *rim = message
            self._cells += inside
            self._joins.add(at, *rim)
        elif self._rows is not None:
            measures, slots, numbers = message
            _, _, begins, whole = self._joins.of(at)
            self._rows.put(measures, slots, begins, whole, numbers)

    def join(self, phase: Phase) -> None:
        operation = self._operation
        if operation.asked.table is None:
            self._joins.number()
            return
        from ...io.tables import write_table
        from .rows import Rows

        if self._rows is not None:
            columns = self._rows.columns(operation.grid, operation.units[1])
            write_table(Path(operation.asked.table), columns, operation.grid)
            return
        self._joins.number()
        self._spill.mkdir(exist_ok=True)
        self._rows = Rows(self._spill / "rows", self._joins.count)

    def found(self) -> Findings:
        return {"components": self._joins.count, "cells": self._cells}

    def close(self) -> None:
        if self._rows is not None:
            self._rows.close()
