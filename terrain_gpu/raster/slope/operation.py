"""Slope and aspect of a layer: `slope`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...arguments import LayerCompression, checked
from ...cells import is_nodata
from ...engine.machine import Machine
from ...engine.operation import Operation, OutputLayer, Phase, SolvedBlock, State
from ...engine.plan import PER_ROW, StreamPlan, fit_blocks, layer_bytes
from ...engine.proof import Limits
from ...engine.run import Here, Result, Run, run
from ...grid import Block, BlockGrid, units
from ...grid.lengths import Measured, step_lengths
from ...io.labelled import StoreLike, takes_dataarrays
from ...progress import Progress, silent
from ...store import TileStore
from .kernels import horn
from .proof import KINDS, plan_slopes, verify_slopes

LAYER = "slope"
NODATA = -9999.0


@dataclass(frozen=True)
class Slope(Operation):
    """Slope and aspect of a layer; fields are parameters of `slope`."""

    store: str
    layer: str = "elevation"
    into: str = LAYER
    aspect: str | None = None

    command = "slope"
    mark = "slope_of"
    halo = 1

    @property
    def phases(self) -> tuple[Phase, ...]:
        return (Phase("slope", writes=True),)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.layer,)

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        names = (self.into,) if self.aspect is None else (self.into, self.aspect)
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

    def settings(self) -> dict[str, Any]:
        found = {"slope_of": self.layer, "aspect": self.aspect is not None}
        # Left out where it is 1, as in stores that do not know it.
        return found if self.rise == 1 else {**found, "rise": self.rise}

    @cached_property
    def rise(self) -> float:
        """See `units.rise_of`."""
        return units.rise_of(self.layers[0])

    def plan(self, machine: Machine) -> StreamPlan:
        layer = self.layers[0]
        return plan_slope(
            layer.grid.rows,
            layer.grid.cols,
            layer.dtype,
            layer.block_size,
            aspect=self.aspect is not None,
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
        # In units of heights.
        return math.copysign(2, a) * steps[0] / self.rise, math.copysign(1, -e) * down / self.rise

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        one, none = np.zeros((3, 3), self.layers[0].dtype), np.zeros((3, 3), bool)
        out = np.zeros((1, 1), np.float32)
        # Compile in the main thread, which Ctrl-C stops.
        horn(one, none, np.ones(1), np.ones(1), NODATA, out, out)
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
        (heights,) = cells
        r0, r1, c0, c1 = self.blocks.window(*at)
        absent = is_nodata(heights, self.layers[0].nodata)
        grid = self.grid
        # Outside the raster the ring has fill values: no cells.
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

    def verify(self, run: Run, found: dict[str, Any]) -> dict[str, Any]:
        results = {
            kind: run.layer(output.name) for kind, output in zip(KINDS, self.outputs, strict=False)
        }
        verify_slopes(self.layers[0], results, run.proof_limits, self.rise)
        return {"verified_cells": self.grid.cells}


def plan_slope(
    rows: int,
    cols: int,
    dtype: np.dtype,
    block: int,
    *,
    aspect: bool = False,
    machine: Machine,
) -> StreamPlan:
    """Plan `slope` for a layer of this shape, type and block size.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    blocks, results = BlockGrid(rows, cols, block), 4 * (1 + aspect)
    ring = blocks.largest(1)
    return fit_blocks(
        blocks,
        dtype.name,
        "for the slope of",
        buffer=ring * dtype.itemsize + blocks.largest() * results,
        worker=2 * ring,
        scratch=blocks.largest(tiled=True) * (dtype.itemsize + 2 * results),
        common=PER_ROW * rows,
        bytes_read=layer_bytes(rows, cols, dtype.itemsize, block),
        bytes_written=layer_bytes(rows, cols, 4, block) * (1 + aspect),
        machine=machine,
    )


@takes_dataarrays
@checked()
def slope(
    store: StoreLike,
    *,
    layer: str = "elevation",
    into: str = LAYER,
    aspect: str | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Result:
    """Compute slope, and optionally aspect, of every cell from its eight neighbours.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray.
    layer
        Layer of heights. If it names their unit, they are converted to that of lengths: map units,
        or metres in a geographic CRS, whose cells are measured on the ellipsoid.
    into
        Layer to write the slopes to: float32, degrees from 0 to 90.
    aspect
        Layer to write the aspects to, or None: float32, the downhill direction in degrees clockwise
        from north. Level cells are nodata.
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
        Its `layers` are named `into` and `aspect`. Cells on the raster's edge, nodata cells and
        cells beside these are -9999, the nodata value.

    Raises
    ------
    InputError
        when a name cannot be used.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, or already has such a layer.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    B. K. P. Horn (1981), Hill shading and the reflectance map; Proceedings of the IEEE 69(1).

    Examples
    --------
    >>> found = slope("dem.zarr", aspect="aspect")
    >>> degrees = found.layers["slope"].read_window(0, 100, 0, 100)
    """
    operation = Slope(str(TileStore.open(store).path), layer, into, aspect)
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
