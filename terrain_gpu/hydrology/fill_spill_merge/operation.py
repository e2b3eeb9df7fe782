"""Where the water of a rain comes to rest: `fill_spill_merge`."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...arguments import LayerCompression, checked
from ...engine.machine import Machine
from ...engine.operation import (
    Operation,
    OutputLayer,
    Phase,
    SolvedBlock,
    State,
    refuse_without_table,
)
from ...engine.plan import PER_ROW, Growing, StreamPlan, fit_blocks, layer_bytes
from ...engine.proof import Limits, RunRecord
from ...engine.run import Here, Result, Run, run
from ...errors import StoreError
from ...grid import Block, BlockGrid, units
from ...grid.lengths import Measured, area_units
from ...io.labelled import StoreLike, opened_store, takes_dataarrays
from ...progress import Progress, silent
from ...spanning_tree.weights import Weight
from ..common.codes import DIRECTIONS, open_directions
from ..common.relative import base_of
from ..completing import completed
from ..depressions.block import WORK_BYTES
from ..forest.block import Work, read_forest, work_bytes
from ..forest.source import Forest, open_drained
from . import kernels
from .block import BlockCatchments
from .pools import ROW_BYTES, AllPools
from .proof import plan_water, verify_water
from .rain import Rain

LAYER = "water"
_TREE = Phase("catchments", joined="tree")
_ROOMS = Phase("rooms", joined="settle")
_LEVELS = Phase("levels", joined="levels", counted=False)


@dataclass(frozen=True)
class FillSpillMerge(Operation):
    """The operation; fields are parameters of `fill_spill_merge`."""

    store: str
    rain: float | str
    directions: str = DIRECTIONS
    into: str = LAYER
    table: str | None = None

    command = "fill-spill-merge"
    mark = "water_of"
    halo = 1

    @property
    def phases(self) -> tuple[Phase, ...]:
        write = Phase("water", writes=True, joined="table" if self.table else "")
        return _TREE, _ROOMS, write

    @cached_property
    def forest(self) -> Forest:
        return open_drained(self.store, self.command, ("flow",))

    @property
    def inputs(self) -> tuple[str, ...]:
        layers = self.forest.cells.name, self.forest.edges.name, self.directions
        return (*layers, self.rain) if isinstance(self.rain, str) else layers

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        kind, unit = np.dtype(np.float32), units.in_unit(units.unit_of(self.layers[0]))
        return (OutputLayer(self.into, kind, math.nan, "depths of water", described=unit),)

    @property
    def measures(self) -> tuple[Measured, ...]:
        return ("areas",)

    def settings(self) -> dict[str, Any]:
        return {
            "water_of": self.layers[0].name,
            "rain": self.rain,
            "directions": self.directions,
            "table": self.table is not None,
        }

    def refuse_finished(self) -> None:
        refuse_without_table(self)

    def plan(self, machine: Machine) -> StreamPlan:
        rain = [self.layers[3].dtype.itemsize] if isinstance(self.rain, str) else []
        return plan_fill_spill_merge(self.blocks, self.layers[0].dtype, rain, machine=machine)

    def new_work(self) -> Work:
        return Work(self.blocks)

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        planned = planned_pools(self.blocks)
        return AllPools(self, Growing(plan, planned, planned))

    def execute(self, run: Run) -> dict[str, Any]:
        state = self.begin(run.plan, run.spill)
        assert isinstance(state, AllPools)
        run.map(_TREE, state)
        run.map(_ROOMS, state)
        while len(state.waiting):
            run.map(_LEVELS, state)
        run.map(self.phases[-1], state)
        if self.table is not None:
            self._write_table(state)
        return state.found()

    def _write_table(self, state: AllPools) -> None:
        from ...io.tables import write_table  # brings GDAL
        from .table import columns

        assert self.table is not None
        base = base_of(self.layers[0])
        write_table(Path(self.table), columns(state, self.grid, self.scale, base), self.grid)

    # -- rain and volumes -------------------------------------------------------------------------

    @cached_property
    def units(self) -> tuple[np.ndarray, float]:
        """Area of a cell in each row as an integer number of units, and the unit."""
        return area_units(self.grid)

    @cached_property
    def water(self) -> Rain:
        return Rain(self.grid, self.layers[3] if isinstance(self.rain, str) else self.rain)

    @property
    def scale(self) -> float:
        """Units of water in a unit of volume."""
        return self.water.scale

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        given: Any,
        work: Any,
    ) -> SolvedBlock:
        window = self.blocks.window(*at)
        block = read_forest(self.forest, window, cells[0], cells[1], work)
        sets = BlockCatchments(block, cells[2][1:-1, 1:-1], 0.0)
        valid = block.valid[1:-1, 1:-1]
        if given is None:
            depths = cells[3][1:-1, 1:-1] if isinstance(self.rain, str) else None
            return SolvedBlock(known=sets.catchments(self.water.of(window, valid, depths)))
        pool = sets.pools(given)
        if not phase.writes:
            sums = np.zeros((len(given.ids), 3), np.int64)
            raster = window[0], self.units[0], self.water.areas
            kernels.fill_below(sets.heights, pool, given.levels, *raster, given.scales, sums)
            some = np.flatnonzero(sums[:, 0])
            return SolvedBlock(known=(given.ids[some], sums[some]))
        out[0][...] = np.where(valid, np.float32(0), np.float32(np.nan))
        kernels.depths(sets.heights, pool, given.levels, out[0].reshape(-1))
        row = np.nonzero(out[0] > 0)[0] + window[0]
        units = np.rint(out[0][out[0] > 0] * (self.water.areas[row] * self.scale))
        stands = len(row), int(self.units[0][row].sum()), int(units.astype(np.int64).sum())
        return SolvedBlock(tuple(out), known=stands)

    # -- the proof ------------------------------------------------------------------------------

    def plan_verify(self, machine: Machine) -> None:
        plan_water(self.layers[0], self.outputs[0], self.water, Limits(machine))

    def verify(self, run: Run, found: dict[str, Any]) -> dict[str, Any]:
        heights, depths = self.layers[0], run.layer(self.into)
        how = self.forest.connectivity, self.water, found, run.proof_limits
        verify_water(heights, depths, *how)
        return {"verified_cells": self.grid.cells}


def planned_pools(blocks: BlockGrid) -> int:
    """Return the bytes that are planned for the pools."""
    return 2 * blocks.line_cells * ROW_BYTES


def plan_fill_spill_merge(
    blocks: BlockGrid,
    dtype: np.dtype,
    rain: list[int],
    *,
    machine: Machine,
) -> StreamPlan:
    """Plan `fill_spill_merge` of heights of a type; `rain` are the bytes per cell of its layer.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    rows, cols, ring = blocks.rows, blocks.cols, blocks.largest(1)
    read, known = [dtype.itemsize, 1, 1, *rain], planned_pools(blocks)
    key = Weight("flow", dtype).key_dtype
    return fit_blocks(
        blocks,
        dtype.name,
        "to find where water rests on",
        buffer=ring * (sum(read) + 4),
        worker=work_bytes(blocks, dtype, key) + ring * (WORK_BYTES + 16),
        scratch=blocks.largest(1, tiled=True) * (sum(read) + 8),
        common=PER_ROW * rows,
        held=known,
        joined=known,
        passes=3,
        bytes_read=3 * sum(layer_bytes(rows, cols, size, blocks.block) for size in read),
        bytes_written=layer_bytes(rows, cols, 4, blocks.block),
        machine=machine,
    )


@takes_dataarrays
@checked()
@completed(reads=("directions",), writes=("into",))
def fill_spill_merge(
    store: StoreLike,
    *,
    rain: float | str,
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
    """Find where the water of a rain comes to rest: how deep it stands at each cell.

    Water runs down the steepest way to the pit of its catchment. Depressions fill; what one cannot
    hold spills over the lowest edge around it into the catchment beyond. Where that depression is
    full, too, both are one, and fill up to the next edge. What reaches an outlet leaves.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray. "mst" and "flow_direction" are computed if
        they are missing.
    rain
        Depth of the water that falls, in units of the heights: a number, or the name of a layer,
        of which cells without a value get none. Evaporation and seepage are to be subtracted.
    directions
        Layer of flow directions that `flow_direction` made; its outlets hold.
    into
        Layer to write: the depth of the water, float32; 0 where it is dry, NaN without a height.
    table
        Also write the depressions: .csv, .parquet, .geojson, .gpkg or .fgb. Columns are id, parent,
        row, col, x, y, height and spill_height as of `depressions`, and "inflow", the water that
        fell or ran into it, "water", what stands below the spill, both with all depressions within,
        and "level", the height of the surface at the pit. Depressions that no outlet drains come
        last; their spill_height is infinite.
    memory_limit
        Limit on the peak resident set of the process in bytes; a quarter of RAM when None. Each
        catchment of a block takes about 260 bytes.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify in one more pass that the water rests, and that none is lost.
    compress
        Compression of the layers, as `convert_dataset` has it; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells of three passes.

    Returns
    -------
    Result
        Its layer is named `into`. `found` has the volumes "rain", "water", which stands, "outflow",
        and "on_cells", the water by the depths as written; numbers of "depressions", of those
        "with_water" at the pit and "full" up to the spill, and of "wet_cells"; their "area", and
        the "deepest" depth.

    Raises
    ------
    InputError
        when a name cannot be used, or a depth of rain is negative or infinite.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged or has no such layers, the tree is not of weight "flow", the
        heights or the tree have changed since, or the layer exists already.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    R. Barnes, K. L. Callaghan, A. D. Wickert (2021, Earth Surface Dynamics 9), Computing water flow
    through complex landscapes, part 3: Fill-Spill-Merge. Volumes are whole numbers of units, 2^-61
    of the most that can fall, so none is lost and blocks do not matter. Levels are found by
    Newton's iteration, which ends: volumes are convex and piecewise linear.

    Examples
    --------
    >>> found = fill_spill_merge("dem.zarr", rain=0.02, table="water.csv")
    """
    opened = opened_store(store)
    codes = open_directions(opened, directions)
    if "outlets" not in (codes.info.get("settings") or {}):
        raise StoreError(
            f"{codes.path}: not made by flow-direction; fill-spill-merge needs its outlets"
        )
    forest = open_drained(opened, "fill-spill-merge", ("flow",))
    if "flats" not in codes.info["settings"]:
        for name in forest.identity:
            RunRecord(opened, codes).input(name)
    table = None if table is None else os.path.abspath(table)
    result = run(
        FillSpillMerge(str(opened.path), rain, directions, into, table),
        memory_limit=memory_limit,
        threads=threads,
        verify=verify,
        compress=compress,
        resume=resume,
        overwrite=overwrite,
        place=Here(progress),
        client=client,
    )
    if table is not None:
        result.report.result["table"] = table
    return result
