"""Drainage basins along flow directions: `basins`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...arguments import LayerCompression, checked
from ...engine.machine import Machine
from ...engine.operation import OutputLayer, Phase, State
from ...engine.plan import StreamPlan
from ...engine.proof import Limits
from ...engine.run import Here, Result, Run, run
from ...grid import Block
from ...io.labelled import StoreLike, opened_store, takes_dataarrays
from ...progress import Progress, silent
from ..along_flow.basin_table import BasinRows, figures
from ..along_flow.block import FlowBlock
from ..along_flow.entries import Beyond
from ..along_flow.kernels import TAKE
from ..along_flow.labels import FlowLabels, labelled
from ..common.codes import DIRECTIONS, label_dtype, open_directions
from ..completing import completed
from .proof import plan_basins, verify_basins

LAYER = "basins"


@dataclass(frozen=True)
class Basins(FlowLabels):
    """The operation; fields are parameters of `basins`."""

    store: str
    directions: str = DIRECTIONS
    into: str = LAYER
    table: str | None = None

    command = "basins"
    mark = "basins_of"

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        return (OutputLayer(self.into, label_dtype(self.grid), 0, "basins"),)

    @property
    def held_bytes(self) -> int:
        return 3 * 8 * self.blocks.rows * self.blocks.shape[1]

    def settings(self) -> dict[str, Any]:
        return {"basins_of": self.directions, "table": self.table is not None}

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        return _Numbers(self, plan.memory_limit, spill)

    def ways(self, block: FlowBlock, cells: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        into, outlets = block.entries, block.outlets
        r0, r1, c0, _ = block.window
        slots = np.arange(r0, r1) * self.blocks.shape[1] + c0 // self.blocks.block
        labels = _numbered(block, outlets, slots * self.blocks.block, np.int64)
        exits = block.follow(into, TAKE, labels)
        own = labels.ravel()[into]
        return block.globally(into), block.globally(exits), own, outlets.sum(axis=1)

    def finish(
        self, block: FlowBlock, cells: list[np.ndarray], given: Any, out: list[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray] | None:
        firsts, ids, around = given
        outlets = block.outlets
        found = _numbered(block, outlets, firsts, out[0].dtype)
        found.ravel()[block.locally(ids)] = around
        block.follow_all(TAKE, found)
        out[0][...] = found[1:-1, 1:-1]
        if self.table is None:
            return None
        return figures(block, out[0], outlets, self.units[0])

    def plan_verify(self, machine: Machine) -> None:
        plan_basins(self.layers[0], self.outputs[0], Limits(machine))

    def verify(self, run: Run, found: dict[str, Any]) -> dict[str, Any]:
        verify_basins(self.layers[0], run.layer(self.into), found, run.proof_limits)
        return {"verified_cells": self.grid.cells}


def _numbered(
    block: FlowBlock, outlets: np.ndarray, firsts: np.ndarray, dtype: np.dtype | type
) -> np.ndarray:
    """Numbers of outlets, see `labelled`; `firsts` are those of the first ones of each row."""
    cells, counts = np.flatnonzero(outlets), outlets.sum(axis=1)
    before = firsts - (np.cumsum(counts) - counts)
    return labelled(block, cells, np.arange(len(cells)) + np.repeat(before, counts), dtype)


class _Numbers(Beyond):
    """The basin of each entry.

    The outlets of a row of a block get provisional numbers: those of the row of the block times the
    side of a block, and on. Once all rows are counted, each gets its final number.
    """

    def __init__(self, operation: Basins, memory_limit: int, spill: Path) -> None:
        blocks = operation.blocks
        super().__init__(operation.layers[0], blocks, memory_limit, TAKE)
        self._operation, self._spill = operation, spill
        # A killed run has added some blocks to the table, but not noted which.
        self.again = operation.table is not None
        self._rows: BasinRows | None = None
        self._firsts = np.zeros((blocks.rows, blocks.shape[1]), np.int64)
        self.basins = 0

    def add(self, phase: Phase, at: Block, known: tuple[np.ndarray, ...] | None) -> None:
        if known is None:
            return
        if phase.writes:
            assert self._rows is not None
            self._rows.add(*known)
            return
        r0, r1, _, _ = self._blocks.window(*at)
        self._firsts[r0:r1, at[1]] = known[-1]
        super().add(phase, at, known[:-1])

    def join(self, phase: Phase) -> None:
        operation = self._operation
        if phase.writes:
            from ...raster.label_components.table import write_table  # brings GDAL

            assert self._rows is not None
            assert operation.table is not None
            columns = self._rows.columns(operation.grid, operation.units[1])
            write_table(Path(operation.table), columns, operation.grid)
            return
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
        """Return the first number of each row; the entries around the block and their basins."""
        around = super().given(phase, at)
        if around is None:
            return None
        r0, r1, _, _ = self._blocks.window(*at)
        return self._firsts[r0:r1, at[1]].copy(), *around

    def found(self) -> dict[str, Any]:
        return {"basins": self.basins}

    def close(self) -> None:
        if self._rows is not None:
            self._rows.close()


@takes_dataarrays
@checked()
@completed(reads=("directions",), writes=("into",))
def basins(
    store: StoreLike,
    *,
    directions: str = DIRECTIONS,
    into: str = LAYER,
    table: str | os.PathLike[str] | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Result:
    """Label drainage basins: each cell with the number of the outlet that it drains to.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray. "mst" and "flow_direction" are computed if
        they are missing.
    directions
        Layer of flow directions, see `flow_accumulation`. Outlets are the cells where ways end.
    into
        Layer to write: 1, 2, ... in row-major order of the outlets; 0, the nodata value, at cells
        that do not drain. uint32; int64 for rasters of 2**32 or more cells.
    table
        Also write a table of the basins to .csv, .parquet, .geojson, .gpkg or .fgb: basin, row,
        col, x and y of the outlet, cells, area (in square metres on the ellipsoid for a geographic
        CRS, else in square map units), edge_cells (those on the edge of the data that drain
        inwards; if there are any, the basin may extend beyond the data).
    memory_limit
        Limit on the peak resident set of the process in bytes; a quarter of RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the labels in two more passes over the cells; the table is not verified.
    compress
        Compression of the layers, as `convert_dataset` has it; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells of both passes.

    Returns
    -------
    Result
        Its `layers` are named `into`; `found` has the number of "basins".

    Raises
    ------
    InputError
        when a name cannot be used.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged or has no such directions, when they lead round in a circle, or
        when the layer exists already.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Examples
    --------
    >>> labels = basins("dem.zarr").layers["basins"].read_window(0, 100, 0, 100)
    """
    opened = opened_store(store)
    open_directions(opened, directions)
    if table is not None:
        from ...raster.label_components.table import checked_table  # brings GDAL

        target = checked_table(table, overwrite=overwrite)
    operation = Basins(str(opened.path), directions, into, None if table is None else str(target))
    result = run(
        operation,
        memory_limit=memory_limit,
        threads=threads,
        compress=compress,
        resume=resume,
        overwrite=overwrite,
        verify=verify,
        place=Here(progress),
        client=client,
    )
    if table is not None:
        result.report.result["table"] = os.fspath(table)
    return result
