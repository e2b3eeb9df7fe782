"""Write channels as a raster of orders, as an operation: `StreamOrders`; lines may follow.

1. *Pieces* and links: see `base`.
2. *Streams*: read each block again, and write the order of each link to its cells.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...engine.machine import Machine
from ...engine.operation import OutputLayer, Phase, SolvedBlock
from ...engine.plan import StreamPlan
from ...engine.proof import Limits
from ...engine.run import Run
from ...errors import InputError
from ...facts import Findings, Settings
from ...grid import Block, GridSpec
from ...grid.lengths import Measured
from ...io.frames import FeatureResult
from ...report import Report
from ...store import Layer, TileStore
from ...store.labels import Layered
from ..common.sums import EDGE_LAYER, open_edge_cells
from . import LAYER, FindStreams
from .base import TRACE, ChannelState, OnChannels
from .inputs import open_channels
from .lines import StreamLines
from .pieces import paint
from .proof import plan_orders, verify_orders

if TYPE_CHECKING:
    from ...engine.run import Result


def order_dtype(order: str, grid: GridSpec) -> np.dtype:
    """Return a data type that holds an order of any network in a raster of this shape."""
    # Strahler, Horton and Hack orders grow with the logarithm of the cells.
    if order in ("strahler", "horton", "hack"):
        return np.dtype(np.uint8)
    return np.dtype("<u4" if grid.cells < 2**32 else "<i8")


@dataclass(repr=False)
class Streams(Layered, FeatureResult):
    """The result of `streams`.

    Attributes
    ----------
    layer
        The order of each channel cell; 0 elsewhere.
    links, heads, outlets, cells
        Number of links, of links without inflow from others, of links that flow into no other, and
        of channel cells.
    length
        Total length of all links, in map units, or in metres for a geographic CRS.
    report
        The run's `Report`.
    """

    layer: Layer
    links: int
    heads: int
    outlets: int
    cells: int
    length: float
    report: Report

    @property
    def layers(self) -> dict[str, Layer]:
        return {self.layer.name: self.layer}

    def _drawn(self) -> Path | None:
        path = self.report.result.get("lines")
        return None if path is None else Path(path)


@dataclass(frozen=True)
class StreamOrders(OnChannels):
    """The operation.

    `least` is the smallest sum of a channel cell, `kind` the order, and `after` an operation to run
    next, which writes lines.
    """

    store: str
    directions: str
    accumulation: str
    least: int | float
    kind: str = "strahler"
    into: str = LAYER
    after: StreamLines | None = None

    command = "streams"
    mark = "streams_of"

    @property
    def phases(self) -> tuple[Phase, ...]:
        return TRACE, Phase("streams", writes=True)

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.directions, self.accumulation

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        return (OutputLayer(self.into, order_dtype(self.kind, self.grid), 0, "streams"),)

    @property
    def measures(self) -> tuple[Measured, ...]:
        return ("lengths",)

    def settings(self) -> Settings:
        return {
            "streams_of": self.directions,
            "accumulation": self.accumulation,
            "least": self.least,
            "order": self.kind,
        }

    def result(self, result: Result) -> Streams:
        report = result.report
        if self.after is not None:
            drawn = self.after
            report.settings |= {"heights": drawn.layer, "edge_cells": drawn.edge_cells}
        names = "links", "heads", "outlets", "cells", "length"
        totals = {name: result.found[name] for name in names}
        return Streams(result.layers[self.into], **totals, report=report)

    def begin(self, plan: StreamPlan, spill: Path) -> OrderState:
        return OrderState(self, plan, spill)

    def finish(
        self,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        context: tuple[np.ndarray, np.ndarray],
    ) -> SolvedBlock:
        r0, _, c0, c1 = self.blocks.window(*at)
        ids, values = context
        starts = (ids // self.grid.cols - r0) * (c1 - c0) + ids % self.grid.cols - c0
        paint(cells[0], starts, values, out[0])
        return SolvedBlock(tuple(out))

    def plan_verify(self, machine: Machine) -> None:
        codes, sums = self.layers
        plan_orders(codes, sums, self.outputs[0], self.kind, Limits(machine))

    def verify(self, run: Run, totals: Findings) -> Findings:
        codes, sums = self.layers
        streams, settings = run.layer(self.into), (self.least, self.kind)
        verify_orders(codes, sums, streams, settings, totals, run.proof_limits, run.folder)
        return {"verified_cells": self.grid.cells}


class OrderState(ChannelState):
    """The orders of pieces."""

    _operation: StreamOrders

    def given(self, phase: Phase, at: Block) -> Any:
        if phase == TRACE:
            return super().given(phase, at)
        rows, links = self.links.span(at), self.links
        values = self.paged.copy(links.link_table.rows[self._column][rows])
        return self.paged.copy(links.pieces.first[rows]), values.astype(self._dtype)

    @property
    def _column(self) -> str:
        kind = self._operation.kind
        return "number" if kind == "link" else kind

    @property
    def _dtype(self) -> np.dtype:
        return self._operation.outputs[0].dtype

    def join(self, phase: Phase) -> None:
        super().join(phase)
        if phase != TRACE:
            return
        operation = self._operation
        if operation.kind == "link":
            for _ in self.links.number():
                pass
        most = self.links.spread(self._column)
        if most > np.iinfo(self._dtype).max:
            raise InputError(
                f"{operation.layers[1].path}: the {operation.kind} order of a link is {most:,}, "
                "which correct sums cannot cause; sum along the directions again "
                "(terrain-gpu flow-accumulation)"
            )


def operation_of(store: TileStore | None, tool: FindStreams) -> StreamOrders:
    """Return the operation after checking the layers; `store` is None when only planning."""
    least: Any = tool.threshold
    if store is not None:
        layers = tool.directions, tool.accumulation
        codes, _, least = open_channels(store, *layers, tool.threshold)
        if tool.edge_cells:
            open_edge_cells(store, EDGE_LAYER, codes)
        if tool.lines is not None:
            store.layer(tool.heights)
    named = "" if store is None else str(store.path), tool.directions, tool.accumulation, least
    drawn = None
    if tool.lines is not None:
        drawn = StreamLines(*named, os.fspath(tool.lines), tool.heights, tool.edge_cells)
    return StreamOrders(*named, tool.order, tool.into, drawn)
