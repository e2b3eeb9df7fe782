"""Proof that depressions are numbered, measured and filled correctly: `verify_depressions`.

The proof floods the cells themselves and does not use the spanning forest: it sorts cells by
elevation and joins each to the neighbours already under water. Sets of cells that touch no other
block are complete; the others are joined across the borders of blocks. A second pass measures, and
a third compares every cell. If no depression is removed for its area or volume, the numbers are
known before the measurements, and one pass does both.

The proof of the flow directions shows that cells of code 0 are the outlets.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...cells import is_nodata
from ...engine.plan import StreamPlan
from ...engine.proof import Limits, Read, RunRecord, check_blocks, plan_proof, wrong, wrong_totals
from ...facts import Findings
from ...grid import Block, BlockGrid
from ...grid.lengths import area_units, cell_areas
from ...report import trim
from ...store import Layer, TileStore
from ...store.readable import Readable
from ..common.code_values import NOWHERE, OUTLET
from ..common.codes import label_dtype, open_directions
from ..common.proof_gathered import GatheredParts
from ..common.relative import as_floats, base_of, restored
from ..forest.source import open_forest
from .proof_kernels import (
    HALF,
    SEA,
    add_cells,
    add_within,
    join_sets,
    nest,
    raise_water,
    smallest,
)

CONDITIONED = "conditioned heights"
"""Recorded as the content of a layer of conditioned elevations."""

_CELL_BYTES, _DOOR_BYTES, _SET_BYTES = 100, 160, 150
"""Bytes per cell of a worker, per cell at the border of a block, and per set inside a block."""


class DepressionRule(NamedTuple):
    """The rule that defines the depressions.

    Attributes
    ----------
    codes, heights
        Layers of flow directions, in which code 0 marks an outlet, and of elevations.
    connectivity
        Number of neighbours, 8 or 4.
    depth, area, volume
        Depressions with less are ignored.
    """

    codes: Readable
    heights: Readable
    connectivity: int
    depth: float
    area: float
    volume: float


def verify_depressions(
    rule: DepressionRule,
    numbers: Readable | None,
    conditioned: Readable | None,
    recorded: Findings,
    limits: Limits,
) -> Findings:
    """Check every cell and the recorded totals.

    Parameters
    ----------
    numbers, conditioned
        Layers of depression numbers and of conditioned elevations. One of them may be None.
    recorded
        The recorded totals; see Returns.

    Returns
    -------
    dict
        The number of "depressions", the "deepest" depth, and the total "area" and "volume".

    Raises
    ------
    VerificationError
        If a cell or a total is wrong; the first one found is reported.
    PlanError
        If the memory limit is too small.
    StoreError
        If a layer is damaged.
    """
    limits = limits.here()
    checker = _Checker(rule, numbers, conditioned, plan_depressions_proof(rule, limits))
    return checker.run(recorded, limits)


def plan_depressions_proof(rule: DepressionRule, limits: Limits) -> StreamPlan:
    """Plan the passes; the layers to check need not exist yet."""
    blocks: BlockGrid = rule.codes.blocks
    worker = blocks.largest() * (_CELL_BYTES + rule.heights.dtype.itemsize)
    results = [Read(_Like(label_dtype(rule.heights.grid))), Read(_Like(rule.heights.dtype))]
    reads = [Read(rule.codes), Read(rule.heights), *results]
    return plan_proof(
        blocks, reads, limits, worker=worker, held=2 * blocks.line_cells * _DOOR_BYTES
    )


class _Like(NamedTuple):
    """Stands for a layer that does not exist yet."""

    dtype: np.dtype


def verify_stored_depressions(store: TileStore, layer: Layer, limits: Limits) -> Findings:
    """Check one layer with `verify_depressions` and the settings recorded with it."""
    recorded = RunRecord(store, layer)
    by_fill = "keep_depth" in recorded.settings  # written by `fill`
    heights = recorded.input(recorded.get("fill_of" if by_fill else "depressions_of", str))
    codes = recorded.input(recorded.get("directions", str))
    open_directions(store, codes.name)
    keys = ("keep_depth", "keep_area") if by_fill else ("min_depth", "min_area", "min_volume")
    least = [recorded.get(key, float) for key in keys] + [0.0] * by_fill
    for value, key in zip(least, keys, strict=False):
        if not 0 <= value < math.inf:
            raise recorded.damaged(key, value)
    conditioned = layer.info.get("holds") == CONDITIONED
    kind = heights.dtype if conditioned else label_dtype(layer.grid)
    if layer.dtype != kind or layer.blocks != codes.blocks:
        raise recorded.damaged("data_type", layer.dtype.name)
    rule = DepressionRule(codes, heights, open_forest(store).connectivity, *least)
    numbers, filled = (None, layer) if conditioned else (layer, None)
    return verify_depressions(rule, numbers, filled, recorded.result, limits)


class _BlockSummary(NamedTuple):
    """What one block contributes; cells are ids in the whole raster.

    Attributes
    ----------
    doors, heights
        Cells with neighbours in other blocks, and their elevations.
    ends, levels
        Edges of the graph that joins the blocks, and the levels at which their ends meet.
    pits
        Pits at the ends of those edges, and their elevations.
    closed
        Complete depressions: pits, their elevations, the levels at which they die, and cells of the
        sets that they merge into.
    """

    doors: np.ndarray
    heights: np.ndarray
    ends: np.ndarray
    levels: np.ndarray
    pits: tuple[np.ndarray, np.ndarray]
    closed: tuple[np.ndarray, ...]


class _Flooded(NamedTuple):
    """The result of flooding one block; see `raise_water`."""

    z: np.ndarray
    rim: np.ndarray
    first: np.ndarray
    dead: np.ndarray
    up: np.ndarray
    ends: np.ndarray
    levels: np.ndarray


class _Checker:
    """The passes of the proof."""

    def __init__(
        self,
        rule: DepressionRule,
        numbers: Readable | None,
        conditioned: Readable | None,
        plan: StreamPlan,
    ) -> None:
        self._rule, self._plan = rule, plan
        self._numbers, self._conditioned = numbers, conditioned
        self._blocks: BlockGrid = rule.codes.blocks
        self._grid, self._base = rule.heights.grid, base_of(rule.heights)
        self._known: GatheredParts[_BlockSummary] = GatheredParts(
            self._plan, _SET_BYTES, self._rule.heights, "depressions"
        )
        self._units, self._unit = area_units(self._grid)
        self._areas = cell_areas(self._grid)

    def run(self, recorded: Findings, limits: Limits) -> Findings:
        rule, plan, blocks = self._rule, self._plan, self._blocks
        reads = [Read(rule.codes), Read(rule.heights)]
        layers = [Read(one) for one in (self._numbers, self._conditioned) if one is not None]
        check_blocks(plan, blocks, reads, self._look, self._add, limits)
        self._join()
        at_once = not rule.area and not rule.volume
        if at_once:
            self._keep(self._deep)
        also = layers if at_once else []
        check_blocks(plan, blocks, reads + also, self._measure, self._sum, limits)
        keep, totals = self._add_up()
        for key, value in totals.items():
            wrong_totals(layers[0].layer, key, value, recorded.get(key))
        if not at_once:
            self._keep(keep)
            check_blocks(plan, blocks, reads + layers, self._compare, lambda at, _: None, limits)
        return totals

    # -------------------------------------------------------------------------------------------

    def _flood(self, at: Block, data: list[np.ndarray]) -> _Flooded:
        codes, cells = data[:2]
        nodata = self._rule.heights.nodata
        r0, r1, c0, c1 = self._blocks.window(*at)
        rim: np.ndarray = np.zeros(cells.shape, bool)
        rim[0] |= r0 > 0
        rim[-1] |= r1 < self._blocks.rows
        rim[:, 0] |= c0 > 0
        rim[:, -1] |= c1 < self._blocks.cols
        gone = is_nodata(cells, nodata) | (codes == NOWHERE)  # NOWHERE: reaches no outlet
        rim &= ~gone
        z = np.where(gone, np.nan, as_floats(cells, self._base)).reshape(-1)
        outlets, rim = (codes == OUTLET).reshape(-1), rim.reshape(-1)
        order = np.argsort(z, kind="stable")
        order = order[: len(z) - int(np.isnan(z).sum())].astype(np.int32)
        space = np.empty((3, len(z)), np.int32)
        most = len(z) + int(rim.sum())
        ends, levels = np.empty((most, 2), np.int32), np.empty(most)
        step = 1 if self._rule.connectivity == 8 else 2
        first, dead, up, count = raise_water(
            z, c1 - c0, order, outlets, rim, step, tuple(space), ends, levels
        )
        return _Flooded(z, rim, first, dead, up, ends[:count], levels[:count])

    def _globally(self, at: Block, cells: np.ndarray) -> np.ndarray:
        """Turn cells of a block into ids in the raster; `SEA` stays as it is."""
        r0, _, c0, c1 = self._blocks.window(*at)
        row, col = np.divmod(cells.astype(np.int64), c1 - c0)
        return np.where(cells < 0, SEA, (r0 + row) * self._blocks.cols + c0 + col)

    def _closed(self, flooded: _Flooded) -> np.ndarray:
        """Return the pits of complete depressions that are deep enough."""
        depth = flooded.dead - flooded.z
        pits: np.ndarray = np.flatnonzero(
            (depth > 0) & (depth >= self._rule.depth) & np.isfinite(depth)
        )
        return pits

    def _look(self, at: Block, data: list[np.ndarray]) -> _BlockSummary:
        flooded = self._flood(at, data)
        z, dead, up = flooded.z, flooded.dead, flooded.up
        doors, closed = np.flatnonzero(flooded.rim), self._closed(flooded)
        into = up[closed]
        going = np.arange(len(into))
        while len(going := going[into[going] >= 0]):
            going = going[dead[into[going]] <= dead[closed[going]]]
            into[going] = up[into[going]]
        into = np.where(into < SEA, -2 - into, into)
        pits = np.unique(flooded.ends[:, 0])
        pits = pits[pits >= 0]
        return _BlockSummary(
            self._globally(at, doors),
            z[doors],
            self._globally(at, flooded.ends.reshape(-1)).reshape(-1, 2),
            flooded.levels.copy(),
            (self._globally(at, pits), z[pits]),
            (self._globally(at, closed), z[closed], dead[closed], self._globally(at, into)),
        )

    def _add(self, at: Block, summary: _BlockSummary) -> None:
        self._known.add(summary, len(summary.closed[0]) + len(summary.pits[0]))

    def _join(self) -> None:
        """Join the sets of all blocks: ids, elevations, levels, and the sets they merge into."""
        summaries = self._known.take()
        doors, door_heights, ends, levels = (
            np.concatenate([summary[k] for summary in summaries]) for k in range(4)
        )
        pits, pit_heights = (
            np.concatenate([summary.pits[k] for summary in summaries]) for k in range(2)
        )
        closed, closed_heights, closed_dead, closed_into = (
            np.concatenate([summary.closed[k] for summary in summaries]) for k in range(4)
        )
        del summaries
        trim()  # they were many small arrays
        across, across_levels = self._across(doors, door_heights)
        ends, levels = np.concatenate((ends, across)), np.append(levels, across_levels)
        ids = np.concatenate((doors, pits, closed))
        heights = np.concatenate((door_heights, pit_heights, closed_heights))
        del doors, door_heights, pits, pit_heights, closed_heights, across, across_levels
        self._ids, which = np.unique(ids, return_index=True)
        self._heights = np.append(heights[which], -np.inf)
        del ids, heights, which
        count = len(self._heights)
        self._dead, self._up = np.full(count, np.inf), np.full(count, -1)
        ends = self._at(ends.reshape(-1)).reshape(-1, 2)
        order = np.argsort(levels, kind="stable")
        join_sets(order, ends, levels, self._heights, self._dead, self._up)
        del order, ends, levels
        indices = self._at(closed)
        self._dead[indices], self._up[indices] = closed_dead, self._at(closed_into)
        del indices, closed, closed_dead, closed_into
        self._nest_all()

    def _nest_all(self) -> None:
        """Find what lies within what, and how volumes are summed."""
        depth = self._dead - self._heights
        self._deep = (depth > 0) & (depth >= self._rule.depth) & np.isfinite(self._dead)
        # Each depression has its own scale, from the largest volume over one of its cells.
        depth[~self._deep] = 1.0
        bits = np.frexp(depth)[1] + np.frexp(self._areas.max())[1]
        self._scales = np.ldexp(1.0, np.minimum(2 * HALF - 1 - bits, 1000))
        del depth, bits
        falling = np.argsort(-self._dead, kind="stable")
        self._order = falling[np.isfinite(self._dead[falling])]
        del falling
        self._within, _, self._parents = self._nested(self._deep)
        self._sums = np.zeros((len(self._dead), 4), np.int64)

    def _at(self, ids: np.ndarray) -> np.ndarray:
        """Return indices of sets; unknown ids never spill and get the index of the sea."""
        at = np.minimum(np.searchsorted(self._ids, ids), max(len(self._ids) - 1, 0))
        exists = self._ids[at] == ids if len(self._ids) else np.zeros(len(ids), bool)
        return np.where(exists, at, len(self._ids))

    def _across(self, doors: np.ndarray, heights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Edges between cells of different blocks, and their elevations."""
        order = np.argsort(doors)
        doors, heights = doors[order], heights[order]
        side, rows, cols = self._blocks.block, self._blocks.rows, self._blocks.cols
        row, col = np.divmod(doors, cols)
        ends, levels = [np.empty((0, 2), np.int64)], [np.empty(0)]
        steps = ((0, 1), (1, -1), (1, 0), (1, 1))[:: 1 if self._rule.connectivity == 8 else 2]
        for down, right in steps:
            r, c = row + down, col + right
            other = (r // side != row // side) | (c // side != col // side)
            cells_here = np.flatnonzero(other & (r < rows) & (c >= 0) & (c < cols))
            ids = r[cells_here] * cols + c[cells_here]
            at = np.minimum(np.searchsorted(doors, ids), len(doors) - 1)
            meets = doors[at] == ids
            cells_here, at = cells_here[meets], at[meets]
            ends.append(np.stack((doors[cells_here], doors[at]), axis=1))
            levels.append(np.maximum(heights[cells_here], heights[at]))
        return np.concatenate(ends), np.concatenate(levels)

    def _nested(self, keep: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        count = len(keep)
        into, level, parent = np.empty(count, np.int64), np.empty(count), np.empty(count, np.int64)
        nest(self._order, self._dead, self._up, keep, into, level, parent)
        return into, level, parent

    # -------------------------------------------------------------------------------------------

    def _smallest(self, at: Block, data: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        """Return elevations, the set of each cell, and levels of depressions without a number."""
        flooded = self._flood(at, data)
        number = np.full(len(flooded.z), -1, np.int64)
        ends = flooded.ends[:, 0]
        for cells in (self._closed(flooded), np.flatnonzero(flooded.rim), ends[ends >= 0]):
            number[cells] = self._at(self._globally(at, cells))
        within = flooded.dead, flooded.up, number
        sets, lifted = np.empty(len(number), np.int64), np.empty(len(number))
        outside = self._dead, self._up
        smallest(flooded.z, flooded.first, within, outside, sets, lifted)
        return flooded.z, sets, lifted

    def _measure(self, at: Block, data: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        z, sets, lifted = self._smallest(at, data)
        if len(data) > 2:
            self._check(at, data, sets, lifted)
        r0, r1, _, _ = self._blocks.window(*at)
        which, inverse = np.unique(sets, return_inverse=True)
        which[which < 0] = len(self._dead) - 1  # the sea, which is in no depression
        into = self._within[which]
        sizes = self._units[r0:r1], self._areas[r0:r1]
        sums = np.zeros((len(which), 4), np.int64)
        level = np.where(into >= 0, self._dead[into], np.nan)
        indices = np.where(into >= 0, np.arange(len(which)), -1)
        add_cells(z, inverse.reshape(-1), indices, level, sizes, self._scales[into], sums)
        return into[into >= 0], sums[into >= 0]

    def _sum(self, at: Block, sums_of_block: tuple[np.ndarray, np.ndarray]) -> None:
        which, sums = sums_of_block
        np.add.at(self._sums, which, sums)
        which = np.unique(which)
        self._sums[which, 2] += self._sums[which, 3] >> HALF
        self._sums[which, 3] &= (1 << HALF) - 1

    def _add_up(self) -> tuple[np.ndarray, Findings]:
        """Return the mask of depressions that are kept, and the totals."""
        units = self._sums[:, 1].copy()
        volumes = (self._sums[:, 2] * 2.0**HALF + self._sums[:, 3]) / self._scales
        del self._sums
        rows = np.flatnonzero(self._deep)
        rising = rows[np.argsort(self._dead[rows], kind="stable")]
        add_within(rising, self._parents, self._dead, self._unit, units, volumes)
        areas = units * self._unit
        keep = self._deep & (areas >= self._rule.area) & (volumes >= self._rule.volume)
        outer = keep & (self._parents < 0)
        depths = (self._dead - self._heights)[keep]
        return keep, {
            "depressions": int(keep.sum()),
            "deepest": float(depths.max(initial=0)),
            "area": float(areas[outer].sum()),
            "volume": float(volumes[outer].sum()),
        }

    # -------------------------------------------------------------------------------------------

    def _keep(self, keep: np.ndarray) -> None:
        into, self._level, _ = self._nested(keep)
        numbers = np.append(np.where(keep, np.cumsum(keep), 0), 0)
        self._label = numbers[into]

    def _compare(self, at: Block, data: list[np.ndarray]) -> None:
        _, sets, lifted = self._smallest(at, data)
        self._check(at, data, sets, lifted)

    def _check(
        self, at: Block, data: list[np.ndarray], sets: np.ndarray, lifted: np.ndarray
    ) -> None:
        stored = iter(data[2:])
        inside = sets >= 0
        if self._numbers is not None:
            right = np.where(inside, self._label[sets], 0)
            self._same(at, self._numbers, next(stored), right, "number")
        if self._conditioned is not None:
            levels = np.where(inside, np.maximum(self._level[sets], lifted), lifted)
            right = data[1].reshape(-1).copy()
            raised = levels > -np.inf
            right[raised] = restored(levels[raised], self._base, right.dtype)
            self._same(at, self._conditioned, next(stored), right, "height")

    def _same(
        self, at: Block, layer: Readable, cells: np.ndarray, right: np.ndarray, kind: str
    ) -> None:
        right = right.astype(cells.dtype).reshape(cells.shape)
        bits = f"u{right.itemsize}"
        for row, col in np.argwhere(right.view(bits) != cells.view(bits))[:1].tolist():
            r0, _, c0, _ = self._blocks.window(*at)
            text = f"{kind} {cells[row, col]!s} should be {right[row, col]!s}"
            wrong(layer, text, kind, r0 + row, c0 + col)
