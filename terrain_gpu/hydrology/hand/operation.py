"""Compute heights above the nearest drainage along flow directions: `StreamsAbove`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ...engine.machine import Machine
from ...engine.operation import OutputLayer, State
from ...engine.plan import StreamPlan
from ...engine.proof import Limits
from ...engine.run import Run
from ...facts import Findings, Settings
from ...grid.lengths import Measured
from ...store import TileStore
from ..along_flow.block import FlowBlock
from ..along_flow.entries import Beyond
from ..along_flow.kernels import ADD, TAKE, step_lengths_to
from ..along_flow.operation import AlongFlow
from ..common.code_values import NOWHERE, OUTLET
from ..common.codes import DIRECTIONS, open_directions
from ..common.height_above import KINDS, NEVER, AboveRule, streams_settings
from ..common.relative import base_of
from ..divided_flow.surface import open_surface
from ..flow_accumulation import LAYER as ACCUMULATION
from ..streams.inputs import open_channels, refuse_channels
from . import LAYER, Hand
from .divided import DinfHand
from .proof import plan_above, verify_above


def refuse(tool: Hand, store: TileStore) -> None:
    """Reject elevations or streams that cannot be used, before missing layers are computed.

    Raises
    ------
    InputError
        If integer elevations span too wide a range, or the threshold leaves no channel.
    StoreError
        If the layer of sums holds something else.
    """
    if tool.layer in store:
        base_of(store.layer(tool.layer))
    if tool.threshold is not None:
        refuse_channels(tool, store)


@dataclass(frozen=True)
class StreamsAbove(AlongFlow):
    """The operation. The fields are options of `Hand`, except `threshold` and `streams`.

    Attributes
    ----------
    threshold
        The smallest value of a stream cell, in the unit of `streams`; None for all but 0.
    streams
        The layer of streams, or of sums; None for the outlets.
    """

    store: str
    threshold: float | None = None
    streams: str | None = ACCUMULATION
    layer: str = "elevation"
    directions: str = DIRECTIONS
    into: str = LAYER
    distance: str | None = None

    command = "hand"
    mark = "hand_of"
    proof_passes = 2

    @property
    def worker_bytes(self) -> int:
        return 20 + 2 * self.rule.exact.itemsize

    @property
    def inputs(self) -> tuple[str, ...]:
        names = self.directions, self.layer
        return names if self.streams is None else (*names, self.streams)

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        return self.rule.outputs(self.into, self.distance)

    @property
    def measures(self) -> tuple[Measured, ...]:
        return () if self.distance is None else ("lengths",)

    def settings(self) -> Settings:
        return {
            "hand_of": self.layer,
            "directions": self.directions,
            **streams_settings(self.streams, self.threshold),
            "distance": self.distance is not None,
        }

    @cached_property
    def rule(self) -> AboveRule:
        _, heights, *streams = self.layers
        return AboveRule(heights, streams[0] if streams else None, self.threshold)

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        hows = (TAKE,) if self.distance is None else (TAKE, ADD)
        return Beyond(self, plan, *hows)

    def trace(self, block: FlowBlock, cells: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        block, columns = self._own(block, self.rule.height(cells[0]), cells[1:])
        into = block.entries
        for rule, values in columns:
            exits = block.follow(into, rule, values)
        ids = block.globally(into), block.globally(exits)
        return *ids, *(values.ravel()[into] for _, values in columns)

    def finish(
        self,
        block: FlowBlock,
        cells: list[np.ndarray],
        context: tuple[np.ndarray, ...],
        out: list[np.ndarray],
    ) -> None:
        heights = self.rule.height(cells[0])
        block, columns = self._own(block, heights, cells[1:])
        ring = block.locally(context[0])
        for (rule, values), around in zip(columns, context[1:], strict=True):
            values.ravel()[ring] = around
            block.follow_all(rule, values)
        streams, *lengths = (values[1:-1, 1:-1] for _, values in columns)
        self.rule.write_heights(heights[1:-1, 1:-1], streams, out[0])
        if lengths:
            self.rule.write_distances(lengths[0], out[1])

    def _own(
        self, block: FlowBlock, heights: np.ndarray, streams: list[np.ndarray]
    ) -> tuple[FlowBlock, list[tuple[int, np.ndarray]]]:
        """Return the block with flow paths that end at streams, and the values to follow.

        These are the elevations of streams and, if distances are needed, the lengths of steps; each
        comes after how it combines along a path.
        """
        stops = block.codes == OUTLET
        if streams:
            stops = self.rule.is_stream(streams[0]) & (block.codes != NOWHERE)
        stopped = block.stopped(stops)
        met = np.where(stops, heights, heights.dtype.type(np.nan))
        block.fill_ring(met, np.nan)
        columns = [(TAKE, met)]
        if self.distance is not None:
            lengths = block.array(np.int64)
            lengths[...] = np.where(stops, 0, NEVER)
            block.fill_ring(lengths, 0)
            step_lengths_to(stopped.codes, block.window[0], self.rule.lengths[0], lengths)
            columns.append((ADD, lengths))
        return stopped, columns

    def plan_verify(self, machine: Machine) -> None:
        plan_above(self.layers[0], self.rule, self.outputs, Limits(machine))

    def verify(self, run: Run, totals: Findings) -> Findings:
        results = dict(zip(KINDS, (run.layer(one.name) for one in self.outputs), strict=False))
        verify_above(self.layers[0], self.rule, results, run.proof_limits)
        return {"verified_cells": self.grid.cells}


def operation_of(store: TileStore | None, tool: Hand) -> StreamsAbove | DinfHand:
    """Return the operation after checking the layers; `store` is None when only planning."""
    streams = tool.streams if tool.threshold is None else tool.accumulation
    least = None
    if store is not None:
        if tool.threshold is not None:
            named = tool.directions, tool.accumulation, tool.threshold
            *_, least = open_channels(store, *named)
        open_directions(store, tool.directions)
        if tool.method != "d8":
            open_surface(store, tool.filled, tool.directions)
    path, threshold = (
        "" if store is None else str(store.path),
        None if least is None else float(least),
    )
    options = path, threshold, streams, tool.layer, tool.directions, tool.into, tool.distance
    return StreamsAbove(*options) if tool.method == "d8" else DinfHand(*options, tool.filled)
