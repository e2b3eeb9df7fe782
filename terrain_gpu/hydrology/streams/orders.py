"""Orders of channels as a raster: `StreamOrders`.

1. *Pieces* and links, see `operation`.
2. *Streams*: each block is read again, and the order of each link is written to its cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...engine.machine import Machine
from ...engine.operation import OutputLayer, Phase, SolvedBlock
from ...engine.plan import StreamPlan
from ...engine.proof import Limits
from ...engine.run import Run
from ...errors import InputError
from ...grid import Block, BlockGrid, GridSpec
from ...grid.lengths import Measured
from ..common.sums import count_dtype
from .base import TRACE, ChannelState, OnChannels, most_pieces, plan_blocks
from .links import PIECE
from .pieces import paint
from .proof import plan_orders, verify_orders

LAYER = "streams"
ORDERS = ("strahler", "shreve", "horton", "hack", "topological", "link")


def order_dtype(order: str, grid: GridSpec) -> np.dtype:
    """The data type of an order, which suffices for every network in a raster of this shape."""
    # Strahler, Horton and Hack orders grow with the logarithm of the cells.
    if order in ("strahler", "horton", "hack"):
        return np.dtype(np.uint8)
    return np.dtype("<u4" if grid.cells < 2**32 else "<i8")


def plan_streams(
    rows: int,
    cols: int,
    block: int,
    *,
    threshold: int = 1,
    order: str = "strahler",
    machine: Machine,
) -> StreamPlan:
    """Plan `streams`, over numbers of cells, for layers of this shape and block size.

    Parameters
    ----------
    threshold
        Least number of cells that a channel drains.
    order
        Which order is written.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    dtypes = np.dtype(np.uint8), count_dtype(rows * cols)
    blocks = BlockGrid(rows, cols, block)
    pieces = PIECE.itemsize * most_pieces(blocks, threshold)
    written = [order_dtype(order, GridSpec(rows, cols))]
    return plan_blocks(blocks, dtypes, written, pieces=pieces, machine=machine)


@dataclass(frozen=True)
class StreamOrders(OnChannels):
    """The operation: `kind` of order, for channels with at least `least`; else as `streams`."""

    store: str
    directions: str
    accumulation: str
    least: int | float
    kind: str = "strahler"
    into: str = LAYER

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

    def settings(self) -> dict[str, Any]:
        return {
            "streams_of": self.directions,
            "accumulation": self.accumulation,
            "least": self.least,
            "order": self.kind,
        }

    def begin(self, plan: StreamPlan, spill: Path) -> OrderState:
        return OrderState(self, plan, spill)

    def finish(
        self, at: Block, cells: list[np.ndarray], out: list[np.ndarray], given: Any
    ) -> SolvedBlock:
        r0, _, c0, c1 = self.blocks.window(*at)
        ids, values = given
        starts = (ids // self.grid.cols - r0) * (c1 - c0) + ids % self.grid.cols - c0
        paint(cells[0], starts, values, out[0])
        return SolvedBlock(tuple(out))

    def plan_verify(self, machine: Machine) -> None:
        codes, sums = self.layers
        plan_orders(codes, sums, self.outputs[0], self.kind, Limits(machine))

    def verify(self, run: Run, found: dict[str, Any]) -> dict[str, Any]:
        codes, sums = self.layers
        streams, settings = run.layer(self.into), (self.least, self.kind)
        verify_orders(codes, sums, streams, settings, found, run.proof_limits, run.folder)
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
                "which true sums never reach; sum along the directions again "
                "(terrain-gpu flow-accumulation)"
            )
