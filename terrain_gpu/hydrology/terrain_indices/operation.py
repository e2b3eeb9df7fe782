"""Indices of terrain from slopes and catchment areas: `terrain_indices`."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...arguments import LayerCompression, at_least_one, checked, real, wrong
from ...engine.machine import Machine
from ...engine.operation import Operation, OutputLayer, Phase, SolvedBlock, State
from ...engine.plan import PER_ROW, StreamPlan, fit_blocks, layer_bytes
from ...engine.proof import Limits
from ...engine.run import Here, Result, Run, run
from ...grid import Block, BlockGrid
from ...grid.lengths import Measured
from ...io.labelled import StoreLike, opened_store, takes_dataarrays
from ...progress import Progress, silent
from ...raster.slope import LAYER as SLOPE
from ..completing import completed
from ..flow_accumulation.operation import LAYER as ACCUMULATION
from .kernels import indices
from .proof import plan_indices_proof, verify_indices
from .rule import DTYPE, KINDS, NODATA, IndexRule, check_inputs

log = logging.getLogger(__name__)

MIN_SLOPE = 0.1


@dataclass(frozen=True)
class TerrainIndices(Operation):
    """The operation; fields are parameters of `terrain_indices`."""

    store: str
    twi: str | None = None
    spi: str | None = None
    ls: str | None = None
    slope: str = SLOPE
    accumulation: str = ACCUMULATION
    min_slope: float = MIN_SLOPE

    command = "terrain-indices"
    mark = "indices_of"

    @property
    def phases(self) -> tuple[Phase, ...]:
        return (Phase("indices", writes=True),)

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.slope, self.accumulation

    @property
    def names(self) -> dict[str, str]:
        """Names of the outputs by kind."""
        each = {kind: getattr(self, kind) for kind in KINDS}
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

    def settings(self) -> dict[str, Any]:
        return {
            "indices_of": self.slope,
            "accumulation": self.accumulation,
            "min_slope": self.min_slope,
            "indices": list(self.names),
        }

    @cached_property
    def rule(self) -> IndexRule:
        slopes, sums = self.layers
        return IndexRule(slopes, sums, self.min_slope)

    def plan(self, machine: Machine) -> StreamPlan:
        rows, cols = self.grid.shape
        types = [layer.dtype for layer in self.layers]
        return plan_indices(
            rows,
            cols,
            self.blocks.block,
            types,
            len(self.names),
            machine=machine,
        )

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        # Compile in the main thread, which Ctrl-C stops.
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
        given: Any,
        work: Any,
    ) -> SolvedBlock:
        slopes, sums = cells
        window = self.blocks.window(*at)
        absent = self.rule.absent(window, slopes, sums)
        per_width = self.rule.per_width[window[0] : window[1]]
        asked = dict(zip(self.names, out, strict=True))
        wanted = [asked.get(kind, np.empty((0, 0), DTYPE)) for kind in KINDS]
        indices(slopes, absent, sums, per_width, self.rule.least_tangent, *wanted)
        return SolvedBlock(tuple(out))

    def plan_verify(self, machine: Machine) -> None:
        plan_indices_proof(self.rule, self.outputs, Limits(machine))

    def verify(self, run: Run, found: dict[str, Any]) -> dict[str, Any]:
        results = {kind: run.layer(name) for kind, name in self.names.items()}
        verify_indices(self.rule, results, run.proof_limits)
        return {"verified_cells": self.grid.cells}


def plan_indices(
    rows: int,
    cols: int,
    block: int,
    types: list[np.dtype],
    outputs: int,
    *,
    machine: Machine,
) -> StreamPlan:
    """Plan `terrain_indices` from layers of these types.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    read, written = sum(dtype.itemsize for dtype in types), DTYPE.itemsize * outputs
    blocks = BlockGrid(rows, cols, block)
    return fit_blocks(
        blocks,
        ", ".join(dtype.name for dtype in types),
        "for terrain-indices of",
        buffer=blocks.largest() * (read + written),
        worker=8 * blocks.largest(),
        scratch=blocks.largest(tiled=True) * (read + 2 * written),
        common=PER_ROW * rows,
        bytes_read=sum(layer_bytes(rows, cols, dtype.itemsize, block) for dtype in types),
        bytes_written=layer_bytes(rows, cols, DTYPE.itemsize, block) * outputs,
        machine=machine,
    )


def _steepness(name: str, value: Any) -> float:
    if not 0 < (found := float(real(name, value))) < 90:
        raise wrong(name, value, "degrees between 0 and 90")
    return found


@takes_dataarrays
@checked(at_least_one("twi", "spi", "ls"), min_slope=_steepness)
@completed(reads=("slope", "accumulation"), writes=("twi", "spi", "ls"))
def terrain_indices(
    store: StoreLike,
    *,
    twi: str | None = None,
    spi: str | None = None,
    ls: str | None = None,
    slope: str = SLOPE,
    accumulation: str = ACCUMULATION,
    min_slope: float = MIN_SLOPE,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Result:
    """Compute indices of terrain from the slope and the catchment area of every cell.

    With slope b, and specific catchment area a: the flow accumulation divided by the width of the
    cell, which is the square root of its area. Areas and widths are in metres where the CRS has
    another unit; without a CRS, map units count as metres.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray. "slope" and "flow_accumulation" (areas), and
        what these need, are computed if they are missing.
    twi
        Layer to write the topographic wetness index to: ln(a / tan b).
    spi
        Layer to write the stream power index to: a tan b.
    ls
        Layer to write the length-slope factor to: (a / 22.13)^0.4 (sin b / 0.0896)^1.3.
    slope
        Layer of slopes in degrees, see the function `slope`.
    accumulation
        Layer of flow accumulation: areas, or cells where all have the same area.
    min_slope
        Slope in degrees that the wetness index takes for cells that are flatter.
    memory_limit
        Limit on the peak resident set of the process in bytes; a quarter of RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    compress
        Compression of the layers, as `convert_dataset` has it; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells.

    Returns
    -------
    Result
        Its `layers` have the names given: float32, -9999, the nodata value, where there is no slope
        or no accumulation.

    Raises
    ------
    InputError
        when no index is asked for, a name cannot be used, cells are counted that differ in area, or
        a slope is not from 0 to 90.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks a layer, or already has such a layer.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    Beven and Kirkby (1979), Hydrological Sciences Bulletin 24 (TWI); Moore, Grayson and Ladson
    (1991), Hydrological Processes 5 (SPI); Moore and Burch (1986), Soil Science Society of America
    Journal 50 (LS).

    Examples
    --------
    >>> found = terrain_indices("dem.zarr", twi="twi", ls="ls")
    >>> wetness = found.layers["twi"].read_window(0, 100, 0, 100)
    """
    opened = opened_store(store)
    operation = TerrainIndices(str(opened.path), twi, spi, ls, slope, accumulation, min_slope)
    check_inputs(*operation.layers)
    if not opened.grid.crs_wkt:
        log.warning(
            "%s: no coordinate system, so map units are taken as metres; if they are others, "
            "convert with --crs",
            opened.path,
        )
    return run(
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
