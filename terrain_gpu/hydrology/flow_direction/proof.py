"""Proof that directions descend a filled DEM, and follow gradients in its flats: `verify_gradient`.

The outlets are cells of code 0 in the directions along which the DEM was filled. A cell *drains* if
a neighbour is lower or it is an outlet; other cells are flat. Directions are right exactly if

1. an outlet has code 0, and a cell that reaches no outlet has code 255;
2. any other cell with a lower neighbour drains to the steepest one; on a tie, to the first in the
   order of edges;
3. a flat cell drains to an equally high neighbour that drains or, if there is none, to the one with
   the smallest 2 t - a; on a tie, to one in its row or column, then to the first clockwise from W.

Here t is the number of hops to a cell that drains, and a is the number of hops from a cell next to
a higher one, plus 1. They are the only numbers that are one more than the smallest among the
neighbours in the flat. The proof finds them by sweeps over the cells of a block until nothing
changes, and over the blocks until nothing changes at their rims. Some neighbour has a t smaller by
one and an a smaller by at most one, so 2 t - a decreases along every flow path: there are no loops.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...engine.plan import StreamPlan
from ...engine.proof import (
    Limits,
    Read,
    RunRecord,
    border_ids,
    check_blocks,
    known_of,
    plan_proof,
    wrong,
    wrong_totals,
)
from ...facts import Findings
from ...grid import Block, BlockGrid
from ...grid.lengths import step_lengths
from ...store import Layer, TileStore
from ...store.readable import Readable, Typed
from ..common.code_values import NOWHERE, OUTLET
from ..common.codes import end_ways, hops_dtype, open_directions
from .proof_kernels import check_directions, classify, settle, touching

_WHAT = (
    "",
    "the cell reaches no outlet",
    "the cell is an outlet",
    "not the steepest lower neighbour",
    "the cell is in a flat that does not drain",
    "not the neighbour that is nearest to the end of the flat and farthest from higher cells",
)

_RIM_BYTES = 100
"""Bytes per cell at a rim next to a cell of the same elevation in another block."""


def verify_gradient(
    heights: Readable, along: Readable, codes: Readable, expected: Findings, limits: Limits
) -> Findings:
    """Check the direction of every cell.

    Parameters
    ----------
    heights, along
        Layers of filled elevations, and of the directions along which they were filled.
    codes
        The layer of directions to check, uint8.
    expected
        The recorded number of "outlets".

    Returns
    -------
    dict
        The number of cells that drain, "reached", and of "outlets".

    Raises
    ------
    VerificationError
        If a direction or the total is wrong; the first fault found is reported.
    PlanError
        If the memory limit is too small.
    StoreError
        If a layer is damaged.
    """
    checker = _GradientChecker(heights, along, codes)
    checker.run(plan_gradient(heights, along, codes, limits), limits)
    wrong_totals(codes, "outlets", checker.outlets, expected.get("outlets"))
    return {"reached": checker.reached, "outlets": checker.outlets}


def plan_gradient(heights: Readable, along: Typed, codes: Typed, limits: Limits) -> StreamPlan:
    """Plan the passes; the layer of codes need not exist yet."""
    blocks = heights.blocks
    down, across = blocks.shape
    # Planned: a third of the cells at rims are next to a cell of the same elevation.
    held = _RIM_BYTES * 2 * (down * blocks.cols + across * blocks.rows) // 3
    worker = blocks.largest(1) * (2 * hops_dtype(blocks).itemsize + 16)
    reads = [Read(heights, 1), Read(along, 1), Read(codes)]
    return plan_proof(blocks, reads, limits, worker=worker, held=held)


def verify_stored_gradient(store: TileStore, layer: Layer, limits: Limits) -> Findings:
    """Check a layer with `verify_gradient` and the settings recorded with it."""
    recorded = RunRecord(store, layer)
    heights = recorded.input(recorded.get("filled", str))
    along = recorded.input(recorded.get("along", str))
    open_directions(store, along.name)
    if layer.dtype != np.uint8 or layer.blocks != heights.blocks:
        raise recorded.damaged("data_type", layer.dtype.name)
    return verify_gradient(heights, along, layer, recorded.result, limits)


_Hops = tuple[np.ndarray, np.ndarray]
"""Sorted ids of cells around a block, and their hop distances."""


@dataclass(frozen=True)
class _BlockFlats:
    """Checks blocks, given the hop distances around them; can be sent to workers."""

    heights: Readable
    along: Readable
    codes: Readable

    @property
    def dtype(self) -> np.dtype:
        return hops_dtype(self.heights.blocks)

    @property
    def unknown(self) -> int:
        return int(np.iinfo(self.dtype).max)

    @cached_property
    def per_length(self) -> np.ndarray:
        reciprocals: np.ndarray = 1 / step_lengths(self.heights.grid)
        return reciprocals

    def _settled(
        self, at: Block, data: list[np.ndarray], hops_around: _Hops
    ) -> tuple[np.ndarray, ...]:
        """Return, for a block and its ring, the mask of cells that drain, and t and a."""
        heights, along = data[:2]
        end_ways(self.along, self.heights.grid, self.heights.blocks.window(*at), along)
        drains = np.zeros(heights.shape, bool)
        hops = np.full((2, *heights.shape), self.unknown, self.dtype)
        ring = np.ones(heights.shape, bool)
        ring[1:-1, 1:-1] = False
        where = np.flatnonzero(ring & (along != NOWHERE))
        known_ids, hops_known = hops_around
        ids = self._globally(at, where, heights.shape[1], 1)
        if len(known_ids):
            at_known = np.minimum(np.searchsorted(known_ids, ids), len(known_ids) - 1)
            met = known_ids[at_known] == ids
            hops.reshape(2, -1)[:, where[met]] = hops_known[:, at_known[met]]
        flats = np.empty(heights.size, np.int32)
        flats = flats[: classify(heights, along, drains, flats, *hops)]
        settle(heights, along, flats, *hops)
        return drains, *hops

    def _globally(self, at: Block, cells: np.ndarray, cols: int, halo: int) -> np.ndarray:
        """Return the ids in the raster of cells of a block."""
        r0, _, c0, _ = self.heights.blocks.window(*at)
        row, col = np.divmod(cells.astype(np.int64), cols)
        return (r0 + row - halo) * self.heights.blocks.cols + c0 + col - halo

    def look(self, at: Block, data: list[np.ndarray], hops_around: _Hops) -> tuple[np.ndarray, ...]:
        """Return the rim cells next to cells of the same elevation, and their hop distances."""
        _, low, high = self._settled(at, data, hops_around)
        cells = np.empty(2 * sum(low.shape), np.int32)
        cells = np.unique(cells[: touching(data[0], data[1], cells)])
        ids = self._globally(at, cells, low.shape[1], 1)
        return ids, low.ravel()[cells], high.ravel()[cells]

    def check(self, at: Block, data: list[np.ndarray], hops_around: _Hops) -> tuple[int, int]:
        """Check a block; return the numbers of cells that drain, and of outlets."""
        heights, along, codes = data
        drains, low, high = self._settled(at, data, hops_around)
        r0, _, c0, _ = self.heights.blocks.window(*at)
        fault, cell = check_directions(
            heights, along, codes, self.per_length[:, max(r0 - 1, 0) :], int(r0 > 0),
            drains, low, high
        )  # fmt: skip
        if fault:
            row, col = divmod(cell, codes.shape[1])
            problem = f"direction {codes[row, col]}: {_WHAT[fault]}"
            wrong(self.codes, problem, "direction", r0 + row, c0 + col)
        return int((codes != NOWHERE).sum()), int((codes == OUTLET).sum())


class _GradientChecker:
    """The passes of the proof. For attributes, see `verify_gradient`."""

    def __init__(self, heights: Readable, along: Readable, codes: Readable) -> None:
        self.heights, self.along, self.codes = heights, along, codes
        self.blocks: BlockGrid = heights.blocks
        self.of = _BlockFlats(heights, along, codes)
        self.reached = self.outlets = 0
        # Cells at rims next to a cell of the same elevation in another block.
        self._parts: list[tuple[np.ndarray, ...]] = []
        self._ids = np.empty(0, np.int64)
        self._hops = np.empty((2, 0), self.of.dtype)
        self._changed = np.empty(0, bool)

    def run(self, plan: StreamPlan, limits: Limits) -> None:
        blocks = self.blocks
        reads = [Read(self.heights, 1), Read(self.along, 1)]
        look = self.of.look
        check_blocks(plan, blocks, reads, look, self._add, limits, given=self._given)
        if self._parts:
            ids, *hops = (np.concatenate(one) for one in zip(*self._parts, strict=True))
            order = np.argsort(ids)
            self._ids, self._hops = ids[order], np.stack(hops)[:, order]
        self._parts.clear()
        self._changed = np.ones(len(self._ids), bool)
        while self._changed.any():
            again = self._near_changes()
            self._changed[:] = False
            quietly, given = limits.quietly(), self._given
            check_blocks(plan, blocks, reads, look, self._update, quietly, only=again, given=given)
        reads.append(Read(self.codes))
        check_blocks(plan, blocks, reads, self.of.check, self._count, limits, given=self._given)

    def _given(self, at: Block) -> _Hops:
        ids, where = known_of(border_ids(self.blocks, at, inside=False), self._ids)
        return ids, self._hops[:, where]

    def _add(self, at: Block, rim_hops: tuple[np.ndarray, ...]) -> None:
        if len(rim_hops[0]):
            self._parts.append(rim_hops)

    def _update(self, at: Block, rim_hops: tuple[np.ndarray, ...]) -> None:
        ids, *hops = rim_hops
        where = np.searchsorted(self._ids, ids)
        self._changed[where] |= (self._hops[:, where] != hops).any(axis=0)
        self._hops[:, where] = hops

    def _near_changes(self) -> list[Block]:
        """Return the blocks with cells next to changed cells of other blocks."""
        blocks, marked = self.blocks, np.zeros(self.blocks.shape, bool)
        row, col = np.divmod(self._ids[self._changed], blocks.cols)
        for down in (-1, 0, 1):
            for right in (-1, 0, 1):
                r, c = row + down, col + right
                inside = (r >= 0) & (r < blocks.rows) & (c >= 0) & (c < blocks.cols)
                i, j = r[inside] // blocks.block, c[inside] // blocks.block
                other = (i != row[inside] // blocks.block) | (j != col[inside] // blocks.block)
                marked[i[other], j[other]] = True
        return [(i, j) for i, j in np.argwhere(marked).tolist()]

    def _count(self, at: Block, counts: tuple[int, int]) -> None:
        self.reached += counts[0]
        self.outlets += counts[1]
