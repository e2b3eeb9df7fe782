"""Fill depressions along flow directions: `fill`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...arguments import Backend, LayerCompression, checked
from ...engine.machine import Machine
from ...engine.operation import Operation, OutputLayer, State
from ...engine.plan import StreamPlan
from ...engine.proof import Limits, RunRecord
from ...engine.run import Result, Run, run
from ...errors import ArgumentError, StoreError
from ...grid import units
from ...io.labelled import StoreLike, opened_store, takes_dataarrays
from ...progress import Progress, silent
from ...store import Layer, TileStore
from ..along_flow.block import FlowBlock
from ..along_flow.entries import Beyond
from ..along_flow.kernels import MAX
from ..along_flow.operation import AlongFlow
from ..common.backend import placed, refuse_cuda
from ..common.codes import DIRECTIONS, open_directions
from ..common.relative import base_of
from ..completing import completed
from ..depressions.filling import FillAround
from ..forest.source import open_forest
from ..streams.inputs import area_of
from .epsilon import EpsilonFill
from .proof import plan_fill, verify_fill

LAYER = "filled"


@dataclass(frozen=True)
class Fill(AlongFlow):
    """The operation; fields are parameters of `fill`, and the layer of heights."""

    store: str
    layer: str = "elevation"
    directions: str = DIRECTIONS
    into: str = LAYER

    command = "fill"
    mark = "fill_of"
    proof_passes = 2

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.directions, self.layer

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        heights = self.layers[1]
        like = heights.dtype, heights.nodata, "filled heights"
        return (OutputLayer(self.into, *like, described=units.same_quantity(heights)),)

    def settings(self) -> dict[str, Any]:
        return {"fill_of": self.layer, "directions": self.directions}

    def plan(self, machine: Machine) -> StreamPlan:
        if machine.gpu is None:
            return super().plan(machine)
        from ..along_flow.gpu import plan_along

        return plan_along(self, machine)

    def execute(self, run: Run) -> dict[str, Any]:
        if run.gpu is None:
            return super().execute(run)
        from ..along_flow.gpu import raise_levels

        return raise_levels(self, run)

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        return Beyond(self, plan, MAX)

    def ways(self, block: FlowBlock, cells: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        levels, into = cells[0], block.entries
        least = -np.inf if levels.dtype.kind == "f" else np.iinfo(levels.dtype).min
        levels.ravel()[block.ring] = least
        exits = block.follow(into, MAX, levels)
        return block.globally(into), block.globally(exits), levels.ravel()[into]

    def finish(
        self, block: FlowBlock, cells: list[np.ndarray], given: Any, out: list[np.ndarray]
    ) -> None:
        levels, (ids, around) = cells[0], given
        levels.ravel()[block.locally(ids)] = around
        block.follow_all(MAX, levels)
        out[0][...] = levels[1:-1, 1:-1]

    def plan_verify(self, machine: Machine) -> None:
        limits = Limits(machine)
        codes, heights = self.layers
        plan_fill(self.blocks, codes, heights, self.outputs[0], limits)

    def verify(self, run: Run, found: dict[str, Any]) -> dict[str, Any]:
        codes, heights = self.layers
        connectivity = open_forest(self.store).connectivity
        verify_fill(codes, heights, run.layer(self.into), connectivity, run.proof_limits)
        return {"verified_cells": self.grid.cells}


def _given(kept: tuple[Any, ...]) -> bool:
    return any(one is not None for one in kept)


def only_on_cpu(epsilon: bool, kept: tuple[Any, ...]) -> str | None:
    """Return what of this runs on the CPU alone, see `placed`."""
    if epsilon:
        return "epsilon runs"
    return "keeping depressions runs" if _given(kept) else None


def refuse_arguments(settings: Mapping[str, Any]) -> None:
    """Refuse arguments of `fill` that contradict each other.

    Raises
    ------
    InputError
    """
    kept = settings["keep_deeper_than"], settings["keep_larger_than"]
    if settings["epsilon"] and _given(kept):
        more = "keep_larger_than" if kept[0] is None else "keep_deeper_than"
        raise ArgumentError(
            f"{{epsilon}} leaves no depression, and {{{more}}} keeps some; leave one of both out"
        )
    refuse_cuda(settings["backend"], only_on_cpu(settings["epsilon"], kept))


@takes_dataarrays
@checked(refuse_arguments)
@completed(reads=("directions",), writes=("into",))
def fill(
    store: StoreLike,
    *,
    directions: str = DIRECTIONS,
    into: str = LAYER,
    epsilon: bool = False,
    keep_deeper_than: float | None = None,
    keep_larger_than: str | float | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: Backend = "auto",
    device: int = 0,
    gpu_memory_limit: int | str | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Result:
    """Fill depressions: raise every cell to the level at which water leaves it for an outlet.

    With `epsilon`, ways to outlets fall strictly: the level of a cell is the higher of its height
    and the next float above the least level beside it. Cells that need not be raised keep their
    heights.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray. "mst" and "flow_direction" are computed if
        they are missing.
    directions
        Layer of flow directions that `flow_direction` made; its outlets hold.
    into
        Layer to write, of the type of the heights, with the nodata value of these. Cells that
        reach no outlet keep their heights.
    epsilon
        Raise cells so that each has a strictly lower neighbour; only floats.
    keep_deeper_than
        Keep the depressions whose depth, from pit to spill, is greater, in units of the heights.
    keep_larger_than
        Keep the depressions whose area below the spill is greater: "5km2", "300ha", "90000m2", or a
        number of cells. With both, keep those that are deeper and larger.
    memory_limit
        Limit on the peak resident set of the process in bytes; a quarter of RAM when None.
    threads
        Number of threads; all processors when None.
    backend
        "cuda", "cpu", or "auto": CUDA if it works and the raster fits its memory; without
        `epsilon` and kept depressions. The results have the same bits.
    device
        Number of the GPU.
    gpu_memory_limit
        Limit on the GPU memory in bytes; nine tenths of the free memory when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in two more passes over the cells; one with `epsilon`, three with
        `keep_larger_than`.
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
        Its `layers` are named `into`. `found` has, with `epsilon`, the number of cells
        "raised_above_fill", above the levels without it, and the "largest_rise" above these. With
        depressions to keep, it has their number "depressions", the "deepest" depth, and the "area"
        and "volume" of all together.

    Raises
    ------
    InputError
        when a name, a limit or `epsilon` with one cannot be used, or with `epsilon` heights are
        integers, or would exceed the largest float.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged or has no such directions, the heights or the spanning forest
        have changed since, or the layer exists already.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    The result of priority-flood (R. Barnes, C. Lehman, D. Mulla 2014, Computers & Geosciences 62).
    The way to an outlet along the spanning forest has the lowest highest cell, which is the level.
    `epsilon` is their Priority-Flood+Epsilon. Depressions to keep are those of `depressions`, with
    thresholds.

    Examples
    --------
    >>> filled = fill("dem.zarr").layers["filled"]
    """
    kept = keep_deeper_than, keep_larger_than
    opened = opened_store(store)
    codes = open_directions(opened, directions)
    if "outlets" not in (codes.info.get("settings") or {}):
        raise StoreError(
            f"{codes.path}: not made by flow-direction; levels need ways over the lowest passes"
        )
    if "flats" in codes.info["settings"]:
        raise StoreError(
            f"{codes.path}: made from filled heights (flow-direction --flats gradient); these are "
            "levels already"
        )
    recorded, forest = RunRecord(opened, codes), open_forest(opened)
    for name in forest.identity:
        recorded.input(name)
    operation: Operation
    if epsilon:
        refuse_epsilon(forest.cells)
        operation = EpsilonFill(str(opened.path), forest.cells.name, directions, into)
    elif _given(kept):
        operation = _filling_around(opened, forest.cells, directions, into, *kept)
    else:
        operation = Fill(str(opened.path), forest.cells.name, directions, into)
    where = (
        backend,
        device,
        gpu_memory_limit,
        memory_limit,
        client,
        progress,
        only_on_cpu(epsilon, kept),
    )
    return run(
        operation,
        memory_limit=memory_limit,
        threads=threads,
        compress=compress,
        resume=resume,
        overwrite=overwrite,
        verify=verify,
        place=placed(operation.blocks.block, *where),
        client=client,
    )


def refuse_epsilon(heights: Layer) -> None:
    """Refuse `epsilon` for integers."""
    if heights.dtype.kind != "f":
        name = "float32" if np.can_cast(heights.dtype, np.float32) else "float64"
        raise ArgumentError(
            "{path}: heights are {dtype}, and {epsilon} raises by steps of floats; make them "
            "{name} first (gdal_translate -ot {kind}, or astype)",
            path=heights.path,
            dtype=heights.dtype.name,
            name=name,
            kind=name.title(),
        )


def _filling_around(
    store: TileStore, heights: Layer, directions: str, into: str, depth: float | None, area: Any
) -> Operation:
    base_of(heights)  # it refuses what is too large
    least = None if area is None else area_of(area, heights, "keep_larger_than")
    return FillAround.keeping(str(store.path), directions, into, depth, least)
