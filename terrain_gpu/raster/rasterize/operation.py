"""Write features of vector files to a layer, such as rivers as barriers: `FeatureCells`."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...arguments import refused
from ...cells import exact, fits
from ...engine.machine import Machine
from ...engine.operation import Operation, OutputLayer, Phase, SolvedBlock, State
from ...engine.plan import StreamPlan, fit_blocks, layer_bytes
from ...engine.proof import Limits
from ...engine.run import Run
from ...errors import ArgumentError, InputError
from ...facts import Findings, Settings
from ...grid import Block, BlockGrid, cells_in
from ...io.places import Places, as_places
from ...io.settling import Ground
from ...store import Layer, TileStore
from . import Rasterize
from .changes import Changes, changes
from .proof import plan_rasterized_proof, verify_rasterized

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FeatureCells(Operation):
    """The operation.

    Attributes
    ----------
    digest
        Digest of cells and values.
    like A layer with the block size of the result. onto
        The layer whose values other cells keep; None for zeros.
    real
        Whether the result is float64 rather than uint8 if there is no `onto`.
    cells, values
        int64, sorted ids of cells; and float64, their values, NaN for nodata.
    """

    store: str
    digest: str
    like: str
    onto: str | None
    into: str
    real: bool = False
    cells: np.ndarray = field(
        default_factory=lambda: np.empty(0, np.int64), compare=False, repr=False
    )
    values: np.ndarray = field(default_factory=lambda: np.empty(0), compare=False, repr=False)

    command, mark = Rasterize.command, Rasterize.mark
    phases = (Phase("rasterize", writes=True),)
    messages = (Changes,)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.onto or self.like,)

    @property
    def source(self) -> Layer | None:
        return None if self.onto is None else self.layers[0]

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        source = self.source
        dtype, nodata = np.dtype("<f8" if self.real else "u1"), None
        if source is not None:
            dtype, nodata = source.dtype, source.nodata
        return (OutputLayer(self.into, dtype, nodata, "rasterized features"),)

    def identity(self) -> dict[str, str]:
        return {} if self.onto is None else super().identity()

    def settings(self) -> Settings:
        return {"features": self.digest, "onto": self.onto}

    def plan(self, machine: Machine) -> StreamPlan:
        return plan_rasterize(
            self.blocks,
            self.layers[0].dtype,
            self.outputs[0].dtype,
            onto=self.onto is not None,
            cells=len(self.cells),
            machine=machine,
        )

    def read(self, at: Block, buffer: list[np.ndarray]) -> list[np.ndarray]:
        if self.onto is not None:
            return super().read(at, buffer)
        r0, r1, c0, c1 = self.window(at)
        shape = r1 - r0, c1 - c0
        return [flat[: shape[0] * shape[1]].reshape(shape) for flat in buffer]

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        return _Changed(len(self.cells))

    def covered(self, at: Block) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of the given cells in a block, and their new values."""
        inside = cells_in(self.blocks.window(*at), self.cells, self.grid.cols)
        values, output = self.values[inside], self.outputs[0]
        if (void := np.isnan(values)).any():
            values = np.where(void, 0 if output.nodata is None else output.nodata, values)
        return self.cells[inside], values.astype(output.dtype)

    def changes(self, at: Block, before: np.ndarray) -> Changes:
        """Return the changes in a block."""
        (r0, _, c0, _), (ids, values) = self.blocks.window(*at), self.covered(at)
        row, col = np.divmod(ids, self.grid.cols)
        return changes(ids, before[row - r0, col - c0].astype(values.dtype), values)

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        context: object,
        work: object,
    ) -> SolvedBlock:
        (r0, _, c0, _), (ids, values) = self.blocks.window(*at), self.covered(at)
        row, col = np.divmod(ids, self.grid.cols)
        out[0][...] = 0 if self.onto is None else cells[0]
        changes = self.changes(at, out[0])
        out[0][row - r0, col - c0] = values
        return SolvedBlock(tuple(out), changes)

    def plan_verify(self, machine: Machine) -> None:
        limits = Limits(machine)
        plan_rasterized_proof(self.blocks, self.source, self.outputs[0], limits)

    def verify(self, run: Run, totals: Findings) -> Findings:
        expected = Changes(totals["changed"], int(totals["digest"], 16))
        layer = run.layer(self.into)
        proven = verify_rasterized(self.source, layer, expected, run.proof_limits)
        return {"verified_cells": proven["changed"]}


def plan_rasterize(
    blocks: BlockGrid,
    kind: np.dtype,
    target: np.dtype,
    *,
    onto: bool,
    cells: int = 0,
    machine: Machine,
) -> StreamPlan:
    """Plan `rasterize` from a layer of type `kind` to one of type `target`.

    Parameters
    ----------
    onto
        Whether the layer is read, because other cells keep its values.

    Raises
    ------
    PlanError
        If the memory limit is too small.
    """
    size, cell_bytes = blocks.largest(), kind.itemsize + target.itemsize
    whole = layer_bytes(blocks.rows, blocks.cols, target.itemsize, blocks.block)
    return fit_blocks(
        blocks,
        target.name,
        "to rasterize features into",
        buffer=size * cell_bytes,
        worker=40 * min(cells, size),
        scratch=blocks.largest(tiled=True) * cell_bytes,
        compiled=False,
        held=16 * cells,
        bytes_read=whole if onto else 0,
        bytes_written=whole,
        machine=machine,
    )


class _Changed(State):
    """The changes in all blocks."""

    again = True

    def __init__(self, covered: int) -> None:
        self._covered, self._changes = covered, Changes()

    def add(self, phase: Phase, at: Block, message: Changes) -> None:
        self._changes = self._changes.plus(message)

    def found(self) -> Findings:
        changed, digest = self._changes
        return {"covered": self._covered, "changed": changed, "digest": f"{digest:016x}"}


def rasterized(store: TileStore | None, tool: Rasterize) -> FeatureCells:
    """Return the operation, after checking that its layer can hold the values.

    Raises
    ------
    InputError
    """
    value, onto = tool.value, tool.onto
    if store is None:
        return FeatureCells("", "", tool.layer, onto, tool.into)
    features = as_places(store.grid, tool.features, "features")
    if not len(features):
        raise refused("features", ": have no cells; give at least one")
    source = None if onto is None else store.layer(onto)
    ids, values = _last(features, store.grid.cols)
    if value is not None:
        if not isinstance(value, str) and not exact(value, values.dtype):
            raise refused("value", f" {value}: give a number that float64 holds exactly")
        values = np.full(len(ids), np.nan if value == "nodata" else value, np.float64)
        if value == "nodata" and (source is None or source.nodata is None):
            raise ArgumentError("{value} nodata: give {onto}, a layer that has a nodata value")
    elif source is None and not values.any():
        log.warning(
            "features: without value, cells receive the start costs, which are all 0, like "
            "other cells; give value=1, or read a field with from_vector(cost_field=...)"
        )
    real = not all(fits(one, np.dtype(np.uint8)) for one in np.unique(values).tolist())
    if source is not None:
        for one in np.unique(values[~np.isnan(values)]).tolist():
            if value is None and source.dtype.kind != "f" and one >= 2**53:
                raise refused(
                    "features",
                    f": value {one:.15g}: fields are read as float64, which does not hold all "
                    "integers from 2^53 on; give smaller values, or features of one value and "
                    "{value}",
                )
            if not fits(one, source.dtype) or source.dtype.type(one) == source.nodata:
                raise InputError(
                    f"value {one:.15g}: {source.path} is {source.dtype.name} with nodata "
                    f"{source.nodata}, which cannot hold it as a valid value"
                )
    digest = hashlib.sha256(ids.astype("<i8").tobytes() + values.astype("<f8").tobytes())
    settings = digest.hexdigest(), tool.layer, onto, tool.into, real
    return FeatureCells(str(store.path), *settings, cells=ids, values=values)


def open_corner(features: Places, heights: Layer) -> tuple[int, int] | None:
    """Return the first cell that touches one of the next row only at a corner; None if none does.

    Paths may pass there, since both other cells at the corner are valid.
    """
    ground, width = Ground([heights]), heights.grid.cols + 2  # no cell is beside one of another row
    keys = np.unique(features.rows * width + features.cols + 1)

    def marked(cells: np.ndarray) -> np.ndarray:
        return np.isin(cells, keys)

    below = keys + width
    touching = np.zeros(len(keys), bool)
    for side in (-1, 1):
        open_ = marked(below + side) & ~marked(below) & ~marked(keys + side)
        if open_.any():
            rows, cols = np.divmod(keys[open_], width)
            slips = ground.usable(rows + 1, cols - 1) & ground.usable(rows, cols - 1 + side)
            touching[open_] |= slips
    if not touching.any():
        return None
    row, col = divmod(int(keys[touching.argmax()]), width)
    return row, col - 1


def _last(features: Places, cols: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted ids of the cells, and in each the cost of the last feature given there."""
    ids = features.rows * cols + features.cols
    ordinals = np.zeros(len(ids), np.int64) if features.given is None else features.given
    order = np.lexsort((ordinals, ids))
    ids, costs = ids[order], features.costs[order]
    last = np.append(np.diff(ids) != 0, True)
    return ids[last], costs[last]
