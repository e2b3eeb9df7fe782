"""Proof that a layer is the breached surface of a DEM: `verify_breach`.

Pits, outlets and the channel out of every pit are found again, by relaxing costs from a queue; then
every cell is compared bit for bit. Costs are whole numbers and channels have a strict order, so any
algorithm finds the same channels.

1. Voids are flooded, if it matters which of them reach the edge of the raster.
2. The pits and outlets of each block go to a temporary file. A low cell has no lower neighbour and
   is not an outlet. Where low cells touch across blocks, the proof finds out whether their flat
   drains.
3. The elevations around each block are breached again.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import product
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np

from ...cells import is_nodata
from ...engine.plan import StreamPlan
from ...engine.proof import (
    Limits,
    Read,
    RunRecord,
    around,
    check_blocks,
    plan_proof,
    wrong,
    wrong_totals,
)
from ...facts import Findings
from ...grid import Block, BlockGrid
from ...store import Layer, TileStore
from ...store.files import output_errors
from ...store.readable import Readable, Typed
from ...store.scratch import scratch_folder
from ..common.outlets import BORDER, EDGE, has_voids
from ..common.proof_void_kernels import spread
from ..common.proof_voids import VOID_BYTES, BlockVoids, Floods, flooded, floods_bytes, lists_of
from .kinds import NO_VALUE, OUTLET, PIT, PLAIN
from .proof_kernels import lower_again
from .rule import BreachRule

if TYPE_CHECKING:
    from ..common.proof_voids import _Rim

COUNTS = ("pits", "breached", "lowered")


def verify_breach(
    heights: Layer,
    lowered: Readable,
    rule: BreachRule,
    outlets: str,
    recorded: Findings,
    limits: Limits,
) -> Findings:
    """Check the elevation of every cell, and the recorded totals.

    Parameters
    ----------
    heights, lowered
        Layers of elevations, and of breached elevations.
    outlets
        "edge" or "border"; see `Outlets`.
    recorded
        The recorded totals; see Returns.

    Returns
    -------
    dict
        The number of "pits", of "breached" pits, and of "lowered" cells.

    Raises
    ------
    VerificationError
        If a cell or a total is wrong; the first fault found is reported.
    PlanError
        If the memory limit is too small.
    StoreError
        If a layer is damaged.
    """
    voids = has_voids(outlets, heights)
    plans = plan_breach_proof(heights, lowered, rule, limits, voids=voids)
    with ExitStack() as stack:
        folder = scratch_folder()
        with output_errors(folder):
            file = stack.enter_context(tempfile.TemporaryFile(dir=folder))
        proof = _BreachProof(
            heights, lowered, rule, file, Floods(heights.blocks) if voids else None
        )
        return proof.run(plans, recorded, limits)


def plan_breach_proof(
    heights: Layer, lowered: Typed, rule: BreachRule, limits: Limits, *, voids: bool
) -> list[StreamPlan]:
    """Plan the passes; the layer `lowered` need not exist yet."""
    blocks: BlockGrid = heights.blocks
    cells, ring = blocks.largest(1), blocks.largest(2 * rule.reach)
    # Low cells at rims need as much as voids, and their elevations.
    held = voids * floods_bytes(blocks) + 2 * floods_bytes(blocks)
    near = cells * (28 + heights.dtype.itemsize + VOID_BYTES)
    far = 4 * ring + cells * (24 + 2 * heights.dtype.itemsize) + rule.search_bytes
    return [
        plan_proof(blocks, [Read(heights, 1)], limits, worker=near, held=held),
        plan_proof(
            blocks, [Read(heights, 2 * rule.reach), Read(lowered)], limits, worker=far, held=held
        ),
    ]


def verify_stored_breach(store: TileStore, layer: Layer, limits: Limits) -> Findings:
    """Check a layer with `verify_breach` and the settings recorded with it."""
    recorded = RunRecord(store, layer)
    heights = recorded.input(recorded.get("breach_of", str))
    outlets, reach = recorded.get("outlets", str), recorded.get("max_distance", int)
    depth = recorded.settings.get("max_depth")
    if outlets not in (EDGE, BORDER):
        raise recorded.damaged("outlets", outlets)
    if not 1 <= reach <= 10_000:
        raise recorded.damaged("max_distance", reach)
    if depth is not None and (type(depth) is not float or not depth > 0):
        raise recorded.damaged("max_depth", depth)
    if layer.dtype != heights.dtype or layer.blocks != heights.blocks:
        raise recorded.damaged("data_type", layer.dtype.name)
    rule = BreachRule(heights, reach, depth)
    return verify_breach(heights, layer, rule, outlets, recorded.result, limits)


def ids_of(blocks: BlockGrid, at: Block, cells: np.ndarray) -> np.ndarray:
    """Return the ids in the raster of cells of a block."""
    r0, _, c0, c1 = blocks.window(*at)
    row, col = np.divmod(cells.astype(np.int64), c1 - c0)
    ids: np.ndarray = (r0 + row) * blocks.cols + c0 + col
    return ids


class _BlockBreach(NamedTuple):
    """Checks blocks; can be sent to workers."""

    heights: Layer
    lowered: Readable
    rule: BreachRule

    @property
    def blocks(self) -> BlockGrid:
        blocks: BlockGrid = self.heights.blocks
        return blocks

    def voids(self, at: Block, data: list[np.ndarray]) -> _Rim | None:
        """Find the voids of a block."""
        absent = ~self._valid(at, data[0], 1)[1:-1, 1:-1]
        return BlockVoids(self.blocks).look(at, np.ascontiguousarray(absent))

    def _valid(self, at: Block, cells: np.ndarray, halo: int) -> np.ndarray:
        r0, r1, c0, c1 = self.blocks.window(*at)
        rows, cols = np.arange(r0 - halo, r1 + halo), np.arange(c0 - halo, c1 + halo)
        inside = ((rows >= 0) & (rows < self.blocks.rows))[:, None] & (
            (cols >= 0) & (cols < self.blocks.cols)
        )
        valid: np.ndarray = inside & ~is_nodata(cells, self.heights.nodata)
        return valid

    def look(
        self, at: Block, data: list[np.ndarray], voids: BlockVoids | None = None
    ) -> tuple[np.ndarray, np.ndarray, _Low]:
        """Find the pits and outlets of a block, and low cells at its rim, given voids around."""
        z, valid = data[0], self._valid(at, data[0], 1)
        outer = ~valid if voids is None else voids.outside(at, ~valid)
        inner, z_inside = valid[1:-1, 1:-1], z[1:-1, 1:-1]
        outlets = inner & around(outer)
        low = inner & ~outlets
        for other, is_valid in zip(_shifted(z), _shifted(valid), strict=True):
            low &= ~(is_valid & (other < z_inside))
        draining = np.pad(inner & ~low, 1)
        leaks = np.zeros(low.shape, bool)
        for other, drains in zip(_shifted(z), _shifted(draining), strict=True):
            leaks |= low & drains & (other == z_inside)
        labels = flooded(low)
        count = int(labels.max()) + 1
        drained = np.zeros(count, bool)
        drained[labels[leaks.reshape(-1)]] = True
        first = np.zeros(count, np.int64)
        cells = np.flatnonzero(labels)[::-1]
        first[labels[cells]] = cells
        rim = np.zeros(low.shape, bool)
        rim[[0, -1]] = rim[:, [0, -1]] = True
        where = np.flatnonzero(rim & inner)
        at_rim = np.zeros(count, bool)
        at_rim[labels[where]] = True
        at_rim[0] = False
        names = np.cumsum(at_rim) * at_rim
        ids = ids_of(self.blocks, at, where), ids_of(self.blocks, at, first[at_rim])
        low_at_rim = _Low(ids[0], z_inside.reshape(-1)[where], names[labels[where]], ids[1],
                          drained[at_rim])  # fmt: skip
        within = ~drained & ~at_rim
        return first[1:][within[1:]], np.flatnonzero(outlets), low_at_rim

    def check(
        self, at: Block, data: list[np.ndarray], pits_and_outlets: tuple[np.ndarray, np.ndarray]
    ) -> tuple[int, int, int]:
        """Check a block, given its pits and outlets; return its counts."""
        heights, stored = data
        rule, ring = self.rule, 2 * self.rule.reach
        size = (ring + 1) ** 2
        numbers, cells = np.empty((2, size), np.int64), np.empty((2, size), np.int32)
        before = heights[ring:-ring, ring:-ring]
        right = before.copy()
        limits = rule.reach, rule.per_unit, rule.deepest
        kinds = np.where(self._valid(at, heights, ring), np.uint8(PLAIN), np.uint8(NO_VALUE))
        kinds.reshape(-1)[pits_and_outlets[0]] = PIT
        kinds.reshape(-1)[pits_and_outlets[1]] = OUTLET
        pits, breached = lower_again(heights, kinds, *limits, (*numbers, *cells), right)
        bits = f"u{right.itemsize}"
        differs = np.flatnonzero(right.view(bits) != stored.view(bits))
        if len(differs):
            r0, _, c0, _ = self.blocks.window(*at)
            row, col = divmod(int(differs[0]), right.shape[1])
            problem = f"elevation {stored[row, col]!s} should be {right[row, col]!s}"
            wrong(self.lowered, problem, "height", r0 + row, c0 + col)
        return pits, breached, int((right < before).sum())


class _BreachProof:
    """The passes of the proof."""

    def __init__(
        self,
        heights: Layer,
        lowered: Readable,
        rule: BreachRule,
        file: IO[bytes],
        floods: Floods | None,
    ) -> None:
        self._heights, self._lowered, self._rule = heights, lowered, rule
        self._floods, self._file = floods, file
        self._blocks: BlockGrid = heights.blocks
        self._marks: dict[Block, tuple[int, int, int]] = {}
        self._end = 0
        self._rims = LowCells(self._blocks)
        self._over_blocks = np.empty(0, np.int64)
        self._counts = dict.fromkeys(COUNTS, 0)

    def run(self, plans: list[StreamPlan], recorded: Findings, limits: Limits) -> Findings:
        heights, blocks, floods = self._heights, self._blocks, self._floods
        near, of = [Read(heights, 1)], _BlockBreach(heights, self._lowered, self._rule)
        if floods is not None:
            add = floods.add
            check_blocks(plans[0], blocks, near, of.voids, lambda _, voids: add(voids), limits)
            floods.join()
        voids_around = None if floods is None else floods.near
        check_blocks(plans[0], blocks, near, of.look, self._add, limits, given=voids_around)
        self._over_blocks = self._rims.pits()
        far = [Read(heights, 2 * self._rule.reach), Read(self._lowered)]
        check_blocks(plans[1], blocks, far, of.check, self._count, limits, given=self._given)
        for key in COUNTS:
            wrong_totals(self._lowered, key, self._counts[key], recorded.get(key))
        return self._counts

    def _add(self, at: Block, summary: tuple[np.ndarray, np.ndarray, _Low]) -> None:
        pits, outlets, low = summary
        self._rims.add(low)
        with output_errors(scratch_folder()):
            self._file.write(np.concatenate((pits, outlets)).astype(np.int32).tobytes())
            self._file.flush()
        self._marks[at] = self._end, len(pits), len(outlets)
        self._end += 4 * (len(pits) + len(outlets))

    def _given(self, at: Block) -> tuple[np.ndarray, np.ndarray]:
        """Return flat indices of pits and outlets in a block with its margin."""
        reach, blocks = self._rule.reach, self._blocks
        r0, r1, c0, c1 = blocks.window(*at)
        top, left, width = r0 - 2 * reach, c0 - 2 * reach, c1 - c0 + 4 * reach

        def within(ids: np.ndarray, ring: int) -> np.ndarray:
            row, col = ids // blocks.cols - top, ids % blocks.cols - left
            inside = (row >= ring) & (row < r1 - top + 2 * reach - ring)
            inside &= (col >= ring) & (col < width - ring)
            return row[inside] * width + col[inside]

        side, shape = blocks.block, blocks.shape
        down = range(max(top, 0) // side, min((r1 + 2 * reach - 1) // side + 1, shape[0]))
        across = range(max(left, 0) // side, min((c1 + 2 * reach - 1) // side + 1, shape[1]))
        marks = [[within(self._over_blocks, reach)], list[np.ndarray]()]
        for other in product(down, across):
            start, pits, outlets = self._marks[other]
            data = os.pread(self._file.fileno(), 4 * (pits + outlets), start)
            ids = ids_of(blocks, other, np.frombuffer(data, np.int32))
            marks[0].append(within(ids[:pits], reach))
            marks[1].append(within(ids[pits:], 0))
        all_pits, all_outlets = (np.concatenate(one).astype(np.int32) for one in marks)
        return all_pits, all_outlets

    def _count(self, at: Block, counts: tuple[int, int, int]) -> None:
        for key, number in zip(COUNTS, counts, strict=True):
            self._counts[key] += number


def _shifted(ringed: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the eight neighbours of all cells inside a margin of one cell."""
    rows, cols = ringed.shape
    for row in range(3):
        for col in range(3):
            if (row, col) != (1, 1):
                yield ringed[row : row + rows - 2, col : col + cols - 2]


class _Low(NamedTuple):
    """The valid cells along the rim of a block.

    Attributes
    ----------
    ids, heights
        Ids and elevations of the cells.
    names
        Numbers of the flats of low cells that they are in; 0 for none.
    first, drains
        For each flat, from number 1: its first cell in the block, and whether it drains there.
    """

    ids: np.ndarray
    heights: np.ndarray
    names: np.ndarray
    first: np.ndarray
    drains: np.ndarray


class LowCells:
    """Flats of low cells that reach the rims of blocks."""

    def __init__(self, blocks: BlockGrid) -> None:
        self._blocks = blocks
        self._rims: list[_Low] = []
        self._count = 0

    def add(self, low: _Low) -> None:
        names = np.where(low.names > 0, low.names + self._count, 0)
        self._rims.append(low._replace(names=names))
        self._count += len(low.first)

    def pits(self) -> np.ndarray:
        """Return the first cells of flats that drain nowhere, sorted."""
        ids, heights, names, first, drains = (
            np.concatenate(one) for one in zip(*self._rims, strict=True)
        )
        self._rims.clear()
        order = np.argsort(ids)
        ids, heights, names = ids[order], heights[order], names[order]
        first, drains = np.append(0, first), np.append(False, drains)
        rows, cols = self._blocks.rows, self._blocks.cols
        row, col = np.divmod(ids, cols)
        arcs = [np.empty((2, 0), np.int64)]
        for down, right in ((0, 1), (1, -1), (1, 0), (1, 1)):
            inside = (row + down < rows) & (col + right >= 0) & (col + right < cols)
            neighbours = ids[inside] + down * cols + right
            at = np.minimum(np.searchsorted(ids, neighbours), len(ids) - 1)
            met = (ids[at] == neighbours) & (heights[at] == heights[inside])
            one, other = names[inside][met], names[at[met]]
            drains[one[other == 0]] = drains[other[one == 0]] = True
            arcs.append(np.stack((one, other))[:, (one > 0) & (other > 0)])
        one, other = np.unique(np.concatenate(arcs, axis=1), axis=1)
        drains[0] = False
        spread(drains, *lists_of(np.append(one, other), np.append(other, one), self._count + 1))
        least, before = first.copy(), None
        while before is None or (least != before).any():
            before = least.copy()
            np.minimum.at(least, one, before[other])
            np.minimum.at(least, other, before[one])
        return np.sort(first[1:][(~drains & (first == least))[1:]])
