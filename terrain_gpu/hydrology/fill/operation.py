"""Fill depressions along flow directions: `PlainFill`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...engine.machine import Machine
from ...engine.operation import Operation, OutputLayer, State
from ...engine.plan import StreamPlan
from ...engine.proof import Limits, RunRecord
from ...engine.run import Run
from ...errors import ArgumentError, InputError, StoreError
from ...facts import Findings, Settings
from ...grid import units
from ...running import refuse_cuda
from ...spanning_tree import LAYER as TREE
from ...store import Layer, TileStore
from ..along_flow.block import FlowBlock
from ..along_flow.entries import Beyond
from ..along_flow.kernels import MAX
from ..along_flow.operation import AlongFlow
from ..common.codes import DIRECTIONS, open_directions
from ..common.outlets import Asked, Outlets, named_outlets
from ..common.relative import base_of
from ..depressions.filling import FillAround
from ..forest.source import heights_in, open_forest, refuse_wide
from ..streams.inputs import area_of
from . import LAYER, Fill
from .epsilon import EpsilonFill
from .proof import plan_fill, verify_fill


@dataclass(frozen=True)
class PlainFill(AlongFlow):
    """The operation: fill each depression to the level where water leaves. Fields are layers."""

    store: str
    layer: str = "elevation"
    directions: str = DIRECTIONS
    into: str = LAYER

    command = Fill.command
    mark = Fill.mark
    proof_passes = 2

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.directions, self.layer

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        heights = self.layers[1]
        like = heights.dtype, heights.nodata, "filled heights"
        return (OutputLayer(self.into, *like, described=units.same_quantity(heights)),)

    def settings(self) -> Settings:
        return {"fill_of": self.layer, "directions": self.directions}

    def plan(self, machine: Machine) -> StreamPlan:
        if machine.gpu is None:
            return super().plan(machine)
        from ..along_flow.gpu import plan_along

        return plan_along(self, machine)

    def execute(self, run: Run) -> Findings:
        if run.gpu is None:
            return super().execute(run)
        from ..along_flow.gpu import raise_levels

        return raise_levels(self, run)

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        return Beyond(self, plan, MAX)

    def trace(self, block: FlowBlock, cells: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        levels, into = cells[0], block.entries
        least = -np.inf if levels.dtype.kind == "f" else np.iinfo(levels.dtype).min
        block.fill_ring(levels, least)
        exits = block.follow(into, MAX, levels)
        return block.globally(into), block.globally(exits), levels.ravel()[into]

    def finish(
        self,
        block: FlowBlock,
        cells: list[np.ndarray],
        context: tuple[np.ndarray, np.ndarray],
        out: list[np.ndarray],
    ) -> None:
        levels, (ids, around) = cells[0], context
        levels.ravel()[block.locally(ids)] = around
        block.follow_all(MAX, levels)
        out[0][...] = levels[1:-1, 1:-1]

    def plan_verify(self, machine: Machine) -> None:
        limits = Limits(machine)
        codes, heights = self.layers
        plan_fill(self.blocks, codes, heights, self.outputs[0], limits)

    def verify(self, run: Run, totals: Findings) -> Findings:
        codes, heights = self.layers
        connectivity = open_forest(self.store).connectivity
        verify_fill(codes, heights, run.layer(self.into), connectivity, run.proof_limits)
        return {"verified_cells": self.grid.cells}


def refuse_arguments(settings: Settings) -> None:
    """Reject arguments of `fill` that contradict each other.

    Raises
    ------
    InputError
        If `epsilon` is combined with keeping depressions, or either with a GPU.
    """
    names = "keep_deeper_than", "keep_larger_than"
    keeping = [name for name in names if settings[name] is not None]
    if settings["epsilon"] and keeping:
        raise ArgumentError(
            f"{{epsilon}} fills every depression; it cannot be combined with {{{keeping[0]}}}"
        )
    kind = EpsilonFill if settings["epsilon"] else FillAround if keeping else None
    refuse_cuda(settings.get("backend"), kind and kind.only_on_cpu)


def refuse(tool: Fill, store: TileStore) -> None:
    """Reject what cannot be filled, before missing directions are computed."""
    has_directions = tool.directions in store
    if tool.epsilon and not has_directions:
        refuse_epsilon(heights_in(store))
    refuse_wide(tool, store)
    if tool.ends:
        ends = Asked.of(tool.outlets, tool.add_outlets)
        if TREE not in store:
            Outlets.of(heights_in(store), *ends)
        if has_directions:
            refuse_other_outlets(store, tool.directions, ends)


def refuse_other_outlets(store: TileStore, name: str, requested: Asked) -> None:
    """Reject a layer of flow directions with other outlets than those asked for.

    Raises
    ------
    InputError
        If its outlets differ.
    """
    codes = open_directions(store, name)
    theirs = (codes.info.get("settings") or {}).get("outlets")
    if theirs != Outlets.of(open_forest(store).cells, *requested).digest:
        raise InputError(
            f"{codes.path}: these directions have {named_outlets(theirs)}, not those asked for; "
            "give another name (--directions), and directions to the outlets asked for are "
            "computed along the same tree"
        )


def operation_of(store: TileStore | None, tool: Fill) -> Operation:
    """Return the operation after checking the layers; `store` is None when only planning."""
    heights = None if store is None else _checked_heights(store, tool.directions)
    path = "" if store is None else str(store.path)
    if tool.keeps:
        area = None
        if heights is not None:
            base_of(heights)  # raises an error if the integers span too wide a range
            if tool.keep_larger_than is not None:
                area = area_of(tool.keep_larger_than, heights, "keep_larger_than")
        return FillAround.keeping(path, tool.directions, tool.into, tool.keep_deeper_than, area)
    if tool.epsilon and heights is not None:
        refuse_epsilon(heights)
    kind = EpsilonFill if tool.epsilon else PlainFill
    return kind(path, heights.name if heights else "elevation", tool.directions, tool.into)


def _checked_heights(store: TileStore, directions: str) -> Layer:
    """Return the elevation layer of the spanning forest, after checking the directions."""
    codes = open_directions(store, directions)
    if "outlets" not in (codes.info.get("settings") or {}):
        raise StoreError(
            f"{codes.path}: not made by flow-direction, so its flow paths need not cross the "
            "lowest passes; fill needs directions that do"
        )
    if "flats" in codes.info["settings"]:
        raise StoreError(
            f"{codes.path}: these directions were computed on a filled DEM (flow-direction --flats "
            "gradient), so there is nothing left to fill"
        )
    recorded, forest = RunRecord(store, codes), open_forest(store)
    for name in forest.identity:
        recorded.input(name)
    return forest.cells


def refuse_epsilon(heights: Layer) -> None:
    """Reject `epsilon` for integers."""
    if heights.dtype.kind != "f":
        name = "float32" if np.can_cast(heights.dtype, np.float32) else "float64"
        raise ArgumentError(
            "{path}: elevations are {dtype}, but {epsilon} raises cells by the smallest step of a "
            "float; convert them to {name} first (gdal_translate -ot {kind}, or astype)",
            path=heights.path,
            dtype=heights.dtype.name,
            name=name,
            kind=name.title(),
        )
