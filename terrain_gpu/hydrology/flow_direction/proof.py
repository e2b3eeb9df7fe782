"""Proof that directions descend a filled DEM, and follow gradients in its flats: `verify_gradient`.

The outlets are cells of code 0 in the directions along which the DEM was filled. A cell *drains* if
a neighbour is lower or it is an outlet; others are flat. Directions are right exactly when

1. an outlet has code 0, and a cell that reaches no outlet 255;
2. any other cell with a lower neighbour drains to the steepest one, the first in the order of
   edges;
3. a flat cell drains to an equally high neighbour that drains, or if there is none, to the one with
   the least 2 t - a; of several to one in its row or column, then to the first clockwise from W.

Here t is the number of hops to a cell that drains, and a that from a cell beside higher ones, which
has 1: the only numbers that are one more than the least of the neighbours in the flat. They are
found by sweeps over the cells of a block until nothing changes, and over the blocks until nothing
changes at their rims. Some neighbour has a t of one less and an a of at most one less, so 2 t - a
falls along every way: none leads round in a circle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

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
from ...grid import Block, BlockGrid
from ...grid.lengths import step_lengths
from ...store import Layer, TileStore
from ..common.code_values import NOWHERE, OUTLET
from ..common.codes import end_ways, hops_dtype, open_directions
from .proof_kernels import check_directions, classify, settle, touching

_WHAT = (
    "",
    "the cell reaches no outlet",
    "the cell is an outlet",
    "not the steepest lower neighbour",
    "a cell in a flat from which no way leads out",
    "not the neighbour that is nearest to the end of the flat and farthest from higher cells",
)

_RIM_BYTES = 100
"""Of a cell at a rim beside one of the same height."""


def verify_gradient(
    heights: Any, along: Any, codes: Any, expected: Mapping[str, Any], limits: Limits
) -> dict[str, Any]:
    """Check the direction of every cell.

    Parameters
    ----------
    heights, along
        Layers of filled heights, and of the directions along which they were filled.
    codes
        The layer of directions to check, uint8.
    expected
        The recorded "outlets".

    Returns
    -------
    dict
        "reached", the cells that drain, and "outlets".

    Raises
    ------
    VerificationError
        at the first wrong cell found.
    PlanError
        when the memory limit is too small.
    StoreError
        when a layer is damaged.
    """
    checker = _GradientChecker(heights, along, codes)
    checker.run(plan_gradient(heights, along, codes, limits), limits)
    wrong_totals(codes, "outlets", checker.outlets, expected.get("outlets"))
    return {"reached": checker.reached, "outlets": checker.outlets}


def plan_gradient(heights: Any, along: Any, codes: Any, limits: Limits) -> StreamPlan:
    """How blocks stream; the layer of codes need not exist yet."""
    blocks = heights.blocks
    down, across = blocks.shape
    # A third of the cells at rims lie beside one of the same height, planned.
    held = _RIM_BYTES * 2 * (down * blocks.cols + across * blocks.rows) // 3
    worker = blocks.largest(1) * (2 * hops_dtype(blocks).itemsize + 16)
    reads = [Read(heights, 1), Read(along, 1), Read(codes)]
    return plan_proof(blocks, reads, limits, worker=worker, held=held)


def verify_stored_gradient(store: TileStore, layer: Layer, limits: Limits) -> dict[str, Any]:
    """`verify_gradient` of a layer, from what is recorded with it."""
    recorded = RunRecord(store, layer)
    heights = recorded.input(recorded.get("filled", str))
    along = recorded.input(recorded.get("along", str))
    open_directions(store, along.name)
    if layer.dtype != np.uint8 or layer.blocks != heights.blocks:
        raise recorded.damaged("data_type", layer.dtype.name)
    return verify_gradient(heights, along, layer, recorded.result, limits)


_Hops = tuple[np.ndarray, np.ndarray]
"""Sorted ids of cells around a block, and their hops."""


@dataclass(frozen=True)
class _BlockFlats:
    """Looks at blocks, given hops around them; can be sent to workers."""

    heights: Any
    along: Any
    codes: Any

    @property
    def dtype(self) -> np.dtype:
        return hops_dtype(self.heights.blocks)

    @property
    def unknown(self) -> int:
        return int(np.iinfo(self.dtype).max)

    @cached_property
    def per_length(self) -> np.ndarray:
        found: np.ndarray = 1 / step_lengths(self.heights.grid)
        return found

    def _settled(self, at: Block, data: list[np.ndarray], given: _Hops) -> tuple[np.ndarray, ...]:
        """What is known of a block with one ring: whether cells drain, and their t and a."""
        heights, along = data[:2]
        end_ways(self.along, self.heights.grid, self.heights.blocks.window(*at), along)
        drains = np.zeros(heights.shape, bool)
        hops = np.full((2, *heights.shape), self.unknown, self.dtype)
        ring = np.ones(heights.shape, bool)
        ring[1:-1, 1:-1] = False
        where = np.flatnonzero(ring & (along != NOWHERE))
        known, hops_known = given
        ids = self._globally(at, where, heights.shape[1], 1)
        if len(known):
            at_known = np.minimum(np.searchsorted(known, ids), len(known) - 1)
            met = known[at_known] == ids
            hops.reshape(2, -1)[:, where[met]] = hops_known[:, at_known[met]]
        flats = np.empty(heights.size, np.int32)
        flats = flats[: classify(heights, along, drains, flats, *hops)]
        settle(heights, along, flats, *hops)
        return drains, *hops

    def _globally(self, at: Block, cells: np.ndarray, cols: int, halo: int) -> np.ndarray:
        """Ids of cells of a block."""
        r0, _, c0, _ = self.heights.blocks.window(*at)
        row, col = np.divmod(cells.astype(np.int64), cols)
        return (r0 + row - halo) * self.heights.blocks.cols + c0 + col - halo

    def look(self, at: Block, data: list[np.ndarray], given: _Hops) -> tuple[np.ndarray, ...]:
        """Look at a block: hops at the rim beside cells of the same height."""
        _, low, high = self._settled(at, data, given)
        own = np.empty(2 * sum(low.shape), np.int32)
        own = np.unique(own[: touching(data[0], data[1], own)])
        ids = self._globally(at, own, low.shape[1], 1)
        return ids, low.ravel()[own], high.ravel()[own]

    def check(self, at: Block, data: list[np.ndarray], given: _Hops) -> tuple[int, int]:
        """Check a block; return how many cells drain, and how many are outlets."""
        heights, along, codes = data
        drains, low, high = self._settled(at, data, given)
        r0, _, c0, _ = self.heights.blocks.window(*at)
        fault, cell = check_directions(
            heights, along, codes, self.per_length[:, max(r0 - 1, 0) :], int(r0 > 0),
            drains, low, high
        )  # fmt: skip
        if fault:
            row, col = divmod(cell, codes.shape[1])
            what = f"direction {codes[row, col]}: {_WHAT[fault]}"
            wrong(self.codes, what, "direction", r0 + row, c0 + col)
        return int((codes != NOWHERE).sum()), int((codes == OUTLET).sum())


class _GradientChecker:
    """Attributes: see `verify_gradient`."""

    def __init__(self, heights: Any, along: Any, codes: Any) -> None:
        self.heights, self.along, self.codes = heights, along, codes
        self.blocks: BlockGrid = heights.blocks
        self.of = _BlockFlats(heights, along, codes)
        self.reached = self.outlets = 0
        # Cells at rims beside one of the same height, in another block.
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
            again = self._beside_changed()
            self._changed[:] = False
            quietly, given = limits.quietly(), self._given
            check_blocks(plan, blocks, reads, look, self._update, quietly, only=again, given=given)
        reads.append(Read(self.codes))
        check_blocks(plan, blocks, reads, self.of.check, self._count, limits, given=self._given)

    def _given(self, at: Block) -> _Hops:
        ids, where = known_of(border_ids(self.blocks, at, inside=False), self._ids)
        return ids, self._hops[:, where]

    def _add(self, at: Block, found: tuple[np.ndarray, ...]) -> None:
        if len(found[0]):
            self._parts.append(found)

    def _update(self, at: Block, found: tuple[np.ndarray, ...]) -> None:
        ids, *hops = found
        where = np.searchsorted(self._ids, ids)
        self._changed[where] |= (self._hops[:, where] != hops).any(axis=0)
        self._hops[:, where] = hops

    def _beside_changed(self) -> list[Block]:
        """Blocks with cells beside those that have changed, of other blocks."""
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

    def _count(self, at: Block, found: tuple[int, int]) -> None:
        self.reached += found[0]
        self.outlets += found[1]
