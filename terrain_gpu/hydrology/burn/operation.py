"""Burn streams into a DEM, as an operation: `Burned`."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...arguments import refused
from ...cells import is_nodata
from ...engine.machine import Machine
from ...engine.operation import Operation, OutputLayer, Phase, SolvedBlock, State
from ...engine.plan import StreamPlan, fit_blocks, layer_bytes
from ...engine.proof import Limits
from ...engine.run import Run
from ...errors import InputError
from ...facts import Findings, Settings
from ...grid import Block, cells_in, units
from ...io.places import as_places, values_at
from ...store import TileStore
from . import LAYER, Burn
from .proof import plan_burn_proof, verify_burn

log = logging.getLogger(__name__)

CELL_BYTES = 48
"""Bytes per cell that is lowered in a block."""


@dataclass(frozen=True)
class Burned(Operation):
    """The operation.

    Attributes
    ----------
    depth
        The amount by which cells are lowered; an int if elevations are integers.
    digest
        Digest of the cells.
    layer, into
        Layers of elevations, before and after.
    cells
        int64, sorted ids of the cells to lower; all are valid.
    """

    store: str
    depth: float
    digest: str
    layer: str = "elevation"
    into: str = LAYER
    cells: np.ndarray = field(
        default_factory=lambda: np.empty(0, np.int64), compare=False, repr=False
    )

    command = Burn.command
    mark = Burn.mark
    phases = (Phase("burn", writes=True),)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.layer,)

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        heights = self.layers[0]
        like = heights.dtype, heights.nodata, "burned heights"
        return (OutputLayer(self.into, *like, described=units.same_quantity(heights)),)

    def settings(self) -> Settings:
        return {"burn_of": self.layer, "depth": self.depth, "streams": self.digest}

    def plan(self, machine: Machine) -> StreamPlan:
        (layer,), blocks, cells = self.layers, self.blocks, len(self.cells)
        size, tiled, width = blocks.largest(), blocks.largest(tiled=True), layer.dtype.itemsize
        whole = layer_bytes(*self.grid.shape, width, blocks.block)
        return fit_blocks(
            blocks,
            layer.dtype.name,
            "to burn streams into",
            buffer=2 * size * width,
            worker=CELL_BYTES * min(cells, size),
            scratch=2 * tiled * width,
            held=8 * cells,
            bytes_read=whole,
            bytes_written=whole,
            machine=machine,
        )

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        return _CellsLowered(len(self.cells))

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        context: object,
        work: object,
    ) -> SolvedBlock:
        window, cols = self.blocks.window(*at), self.grid.cols
        row, col = np.divmod(self.cells[cells_in(window, self.cells, cols)], cols)
        where = row - window[0], col - window[2]
        out[0][...] = cells[0]
        before = cells[0][where]
        lowered, bad = _lowered(before, self.depth, self.layers[0].nodata)
        if bad.any():
            k = int(np.argmax(bad))
            raise InputError(
                f"{self.layers[0].path}: row {row[k]}, column {col[k]}: elevation "
                f"{before[k]} cannot be lowered by {self.depth}: the result is nodata, out of the "
                f"range of {before.dtype.name}, or rounds to the same number; give another depth, "
                "or convert the raster to a wider type"
            )
        out[0][where] = lowered
        return SolvedBlock(tuple(out))

    def plan_verify(self, machine: Machine) -> None:
        limits = Limits(machine)
        plan_burn_proof(self.layers[0], self.outputs[0], len(self.cells), limits)

    def verify(self, run: Run, totals: Findings) -> Findings:
        layers = self.layers[0], run.layer(self.into)
        verify_burn(*layers, self.depth, self.digest, totals, run.proof_limits)
        return {"verified_cells": self.grid.cells}


class _CellsLowered(State):
    """The number of cells to lower, which is known in advance."""

    def __init__(self, burned: int) -> None:
        self._burned = burned

    def found(self) -> Findings:
        return {"burned": self._burned}


def _lowered(
    heights: np.ndarray, depth: float, nodata: float | int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the elevations minus the depth, and the mask of cells where that is impossible."""
    dtype = heights.dtype
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            lowered = (heights.astype(np.float64) - depth).astype(dtype)
        return lowered, is_nodata(lowered, nodata) | (lowered == heights)
    unsigned, bits = np.dtype(f"u{dtype.itemsize}"), 8 * dtype.itemsize
    if depth >= 1 << bits:
        return heights, np.ones(heights.shape, bool)
    words, least = heights.view(unsigned), np.iinfo(dtype).min % (1 << bits)
    # Unsigned words wrap around, so they hold every difference.
    room = words - unsigned.type(least)
    lowered = (words - unsigned.type(depth)).view(dtype)
    return lowered, is_nodata(lowered, nodata) | (room < unsigned.type(depth))


def digest_of(cells: np.ndarray) -> str:
    """Return the digest of sorted ids."""
    return hashlib.sha256(cells.astype("<i8").tobytes()).hexdigest()


def burned(
    store: TileStore | None, tool: Burn, streams: str = "streams", called: str = "depth"
) -> Burned:
    """Return the operation after checking the streams; `store` is None when only planning.

    `streams` and `called` are the names of the arguments for streams and depth in messages.
    """
    if store is None:
        return Burned("", tool.depth, "", tool.layer, tool.into)
    heights, depth = store.layer(tool.layer), tool.depth
    if heights.dtype.kind != "f" and depth % 1:
        raise refused(
            called,
            " {depth}: the elevations are {dtype}; give a whole number",
            depth=depth,
            dtype=heights.dtype.name,
        )
    stream_cells = as_places(store.grid, tool.streams, streams).one_per_cell()
    if not len(stream_cells):
        raise refused(streams, ": has no cells; give at least one")
    absent = is_nodata(values_at(heights, stream_cells.rows, stream_cells.cols), heights.nodata)
    cells = (stream_cells.rows * store.grid.cols + stream_cells.cols)[~absent]
    if not len(cells):
        heights.refuse_if_empty()
        raise InputError(
            f"{heights.path}: all cells of the streams are nodata; give streams elsewhere"
        )
    if absent.any():
        log.info("%d of %d cells of the streams are nodata", absent.sum(), len(absent))
    whole = float(depth) if heights.dtype.kind == "f" else int(depth)
    return Burned(str(store.path), whole, digest_of(cells), tool.layer, tool.into, cells)
