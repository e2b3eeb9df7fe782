"""Flow accumulation along given directions: `flow_accumulation`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...arguments import checked
from ...engine.operation import OutputLayer, State
from ...engine.plan import StreamPlan
from ...engine.proof import Limits
from ...engine.run import Here, Result, Run, run
from ...progress import Progress, silent
from ...store import TileStore
from ..codes import DIRECTIONS, open_directions
from ..verify.sums import SumRule, plan_sums, verify_sums
from .block import FlowBlock
from .entries import Inflows
from .kernels import TAKE, pass_on
from .operation import AlongFlow

LAYER = "flow_accumulation"


@dataclass(frozen=True)
class FlowAccumulation(AlongFlow):
    """The operation; fields are parameters of `flow_accumulation`."""

    store: str
    directions: str = DIRECTIONS
    areas: bool = False
    exclude_self: bool = False
    into: str = LAYER

    command = "flow-accumulation"
    mark = "accumulation_of"
    proof_passes = 2
    worker_bytes = 8

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        dtype = np.dtype(np.float64 if self.areas else np.int64)
        return (OutputLayer(self.into, dtype, self.rule.nodata, "flow accumulation"),)

    def settings(self) -> dict[str, Any]:
        return {
            "accumulation_of": self.directions,
            "areas": self.areas,
            "exclude_self": self.exclude_self,
        }

    @cached_property
    def rule(self) -> SumRule:
        return SumRule.of(self.grid, self.areas, self.exclude_self)

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        return Inflows(self.layers[0].path, self.blocks, plan.memory_limit)

    def ways(self, block: FlowBlock, cells: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        into = block.entries()
        sums = self._drained(block)
        sums[1:-1, 1:-1] = 0
        leaving = np.flatnonzero(sums)
        left = block.globally(leaving), sums.ravel()[leaving]
        exits = block.follow(into, sums.ravel(), TAKE, sums.ravel())
        return block.globally(into), block.globally(exits), *left

    def finish(
        self, block: FlowBlock, cells: list[np.ndarray], given: Any, out: list[np.ndarray]
    ) -> None:
        sums = self._drained(block, given)[1:-1, 1:-1]
        self.rule.write(sums, block.window, block.codes[1:-1, 1:-1], out[0])

    def _drained(self, block: FlowBlock, inflow: Any = None) -> np.ndarray:
        """What drains through each cell; of the ring, what drains there."""
        flat = block.work.sums[: block.size]
        sums = flat.reshape(block.codes.shape)
        sums[...] = 0
        sums[1:-1, 1:-1] = self.rule.own(block.window, block.codes[1:-1, 1:-1])
        if inflow is not None:
            ids, amounts = inflow
            flat[block.locally(ids)] += amounts
        waiting = block.work.waiting[: block.size]
        block.refuse_circle(pass_on(block.codes, block.after, waiting, flat))
        return sums

    def plan_verify(self, memory_limit: int, threads: int | None) -> None:
        plan_sums(self.blocks, self.layers[0], self.outputs[0], Limits(memory_limit, threads))

    def verify(self, run: Run, found: dict[str, Any]) -> dict[str, Any]:
        verify_sums(self.layers[0], run.layer(self.into), self.rule, run.proof_limits)
        return {"verified_cells": self.grid.cells}


@checked()
def flow_accumulation(  # noqa: PLR0913 - keyword-only
    store: str | os.PathLike[str] | TileStore,
    *,
    directions: str = DIRECTIONS,
    areas: bool = False,
    exclude_self: bool = False,
    into: str = LAYER,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Result:
    """Count the cells, or sum the areas, that drain through each cell along D8 directions.

    Parameters
    ----------
    store
        A store, or its path.
    directions
        Layer of flow directions, uint8: E 1, SE 2, S 4, SW 8, W 16, NW 32, N 64, NE 128; 0 at
        outlets, 255 (or the layer's nodata) at cells that do not drain. Ways also end where the
        next cell does not drain, or lies outside the raster.
    areas
        Sum areas (map units squared, or square metres for a geographic CRS) instead of cells.
    exclude_self
        Leave out the cell itself: 0 at cells into which nothing drains.
    into
        Layer to write: int64 cells or float64 areas. Cells that do not drain are nodata: 0, or -1
        with `exclude_self`.
    memory_limit
        Limit on the peak resident set of the process in bytes; a quarter of RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells of both passes.

    Returns
    -------
    Result
        Its `layers` are named `into`.

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

    Notes
    -----
    Sums are sums of integers, so they do not depend on the blocks; see `area_units`.

    Examples
    --------
    >>> found = flow_accumulation("dem.zarr", areas=True)
    >>> areas = found.layers["flow_accumulation"].read_window(0, 100, 0, 100)
    """
    opened = store if isinstance(store, TileStore) else TileStore.open(store)
    open_directions(opened, directions)
    operation = FlowAccumulation(str(opened.path), directions, areas, exclude_self, into)
    return run(
        operation,
        memory_limit=memory_limit,
        threads=threads,
        resume=resume,
        overwrite=overwrite,
        verify=verify,
        place=Here(progress),
        client=client,
    )
