"""`verify_drainage`: the blocks of a raster checked one by one, and what holds between them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ...cells import is_nodata
from ...engine.plan import MB, StreamPlan, format_size
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
from ...errors import PlanError, VerificationError
from ...grid import Block, BlockGrid, ceil_div
from ...grid.lengths import area_units
from ...grid.neighbours import symmetric
from ...mst.weights import Weight
from ...store import Layer, TileStore
from ..source import Forest, open_forest
from .kernels import (
    FAULTS,
    add_up,
    check_codes,
    check_divides,
    crossing_edges,
    entries,
    heaviest_edges,
    join_ways,
    order_cells,
)

_NAMES = ("E", "SE", "S", "SW", "W", "NW", "N", "NE")
_MOST = np.iinfo(np.uint64).max


def verify_drainage(
    forest: Forest,
    codes: Any,
    sums: Any | None,
    outlets: str,
    areas: bool,
    expected: Mapping[str, Any],
    limits: Limits,
) -> dict[str, Any]:
    """Check the direction of every cell, and its sum.

    Parameters
    ----------
    forest
        The spanning forest and its cells.
    codes
        The layer of directions, uint8.
    sums
        The layer of sums, int64 cells or float64 areas; None if there is none.
    outlets
        "border", or the digest of the outlets, see `outlets_digest`.
    areas
        Whether areas are summed.
    expected
        The recorded "cells" and "outlets".

    Returns
    -------
    dict
        "cells" with a value, "outlets", and "reached", cells that drain to them.

    Raises
    ------
    VerificationError
        at the first violation found.
    PlanError
        when the memory limit is too small.
    StoreError
        when a layer is damaged.
    """
    checker = _DrainageChecker(forest, codes, sums, outlets, areas, expected)
    checker.run(limits)
    found = {"cells": checker.cells, "outlets": checker.outlets}
    for name, value in found.items():
        wrong_totals(codes, name, value, expected.get(name))
    return {**found, "reached": checker.reached}


def verify_stored_drainage(
    store: TileStore, codes: Layer, sums: Layer | None, limits: Limits
) -> dict[str, Any]:
    """`verify_drainage` of layers, from what is recorded with them."""
    recorded = RunRecord(store, codes)
    forest = open_forest(store)
    for layer in (forest.cells, forest.edges):
        recorded.input(layer.name)
    outlets, areas = recorded.get("outlets", str), recorded.get("areas", bool)
    for one, dtype in ((codes, "uint8"), (sums, "float64" if areas else "int64")):
        if one is not None and (one.dtype.name != dtype or one.blocks != forest.cells.blocks):
            raise RunRecord(store, one).damaged("data_type", one.dtype.name)
    return verify_drainage(forest, codes, sums, outlets, areas, recorded.result, limits)


def outlets_digest(cells: np.ndarray, cols: int) -> str:
    """The digest of outlets, from their ids in a raster of `cols` columns."""
    places = np.stack(np.divmod(np.sort(cells), cols), axis=1)
    return hashlib.sha256(np.ascontiguousarray(places).tobytes()).hexdigest()


class _Ways(NamedTuple):
    """The ways of a block that go on in other blocks, or come from there.

    Attributes
    ----------
    leaving, target
        Ids of the cells at which ways leave it, and of those that they drain to.
    sums
        What drains through the former from this block.
    top, number
        Key and id of the edge between both.
    least, least_number
        Of the lightest edge that must be heavier than what follows; the greatest values if none.
    entered, way
        Ids of the cells into which others drain, and which of `leaving` follows, -1 for an outlet.
    between, between_number
        The heaviest edge from there to that.
    """

    leaving: np.ndarray
    target: np.ndarray
    sums: np.ndarray
    top: np.ndarray
    number: np.ndarray
    least: np.ndarray
    least_number: np.ndarray
    entered: np.ndarray
    way: np.ndarray
    between: np.ndarray
    between_number: np.ndarray


_WAY_BYTES = 12 * 8 * 3
"""Of a cell at which ways leave a block, and of one at which they enter: kept, joined, followed."""


def plan_passes(
    forest: Forest, codes: Any, sums: Any | None, limits: Limits, *, outlets: int = 0
) -> list[StreamPlan]:
    """How both passes stream, or the one without sums; `outlets` that are given."""
    blocks = forest.cells.blocks
    held = _WAY_BYTES * _ways_between(blocks) + 48 * outlets
    ring, key = (blocks.block + 2) ** 2, forest.weight.key_dtype.itemsize
    return [
        plan_proof(blocks, reads, limits, worker=ring * worker, held=held)
        for reads, worker in zip(_reads(forest, codes, sums), (key + 60, 40), strict=False)
    ]


def _ways_between(blocks: BlockGrid) -> int:
    """How many cells drain into another block, planned: one for each cell of a line between them.

    Twice as many can, in odd rasters; see `_DrainageChecker._add`.
    """
    down, across = blocks.shape
    return (down - 1) * blocks.cols + (across - 1) * blocks.rows


def _reads(forest: Forest, codes: Any, sums: Any | None) -> list[list[Read]]:
    cells, edges = forest.cells, forest.edges
    first = [Read(cells, 1), Read(edges, 1), Read(codes, 1)]
    return [first] if sums is None else [first, [Read(codes, 1), Read(sums)]]


class _DrainageChecker:
    def __init__(
        self,
        forest: Forest,
        codes: Any,
        sums: Any | None,
        outlets: str,
        areas: bool,
        expected: Mapping[str, Any],
    ) -> None:
        self.forest, self.codes, self.layer = forest, codes, sums
        self.blocks, self.grid = forest.cells.blocks, forest.cells.grid
        self.border, self.digest = outlets == "border", outlets
        self.expected = expected.get("outlets")
        self.most = 0
        if not self.border and type(self.expected) is int:
            self.most = min(self.expected, self.grid.cells)
        self.units, self.unit = np.ones(self.grid.rows, np.int64), 1.0
        if areas:
            self.units, self.unit = area_units(self.grid)
        self.areas = areas
        self.cells = self.outlets = self.reached = 0
        self._mouths: list[np.ndarray] = []
        self._ways: list[_Ways] = []
        self._into = self._amounts = np.empty(0, np.int64)

    def run(self, limits: Limits) -> None:
        """Both passes; one without sums."""
        forest, blocks, progress = self.forest, self.blocks, limits.progress
        plans = plan_passes(forest, self.codes, self.layer, limits, outlets=self.most)
        self._plan, self._planned = plans[0], _ways_between(blocks)
        reads = _reads(forest, self.codes, self.layer)
        check_blocks(plans[0], blocks, reads[0], self._check, self._add, progress)
        if not self.border:
            self._check_outlets()
        self._join()
        if self.layer is not None:
            check_blocks(plans[1], blocks, reads[1], self._check_sums, _nothing, progress)

    # -- directions -----------------------------------------------------------------------------

    def _check(self, at: Block, data: list[np.ndarray]) -> tuple[Any, ...]:
        """Look at a block, from any thread; what `_add` is told."""
        heights, forward, codes = data
        r0, r1, c0, _ = self.blocks.window(*at)
        ring = self._valid(at, heights)
        valid = ring[1:-1, 1:-1]
        outlets = valid & around(~ring) if self.border else valid
        links = symmetric(forward)
        fault, cell = check_codes(codes, links, valid, outlets, self.border)
        if fault:
            kind = "outlet" if fault in (3, 4) else "direction"
            self._wrong(at, codes, cell, FAULTS[fault], kind)
        size = valid.size
        target, order = np.empty(size, np.int32), np.empty(size, np.int32)
        count, cell = order_cells(codes, target, np.empty(size, np.uint8), order)
        order = order[:count]
        if cell >= 0:
            self._wrong(at, codes, cell, "leads round in a circle", "acyclic")
        keys = Weight("max", heights.dtype).operands(heights)
        cells = keys, keys, np.empty((4, 0))  # without slopes, the type of heights is no matter
        if (per_length := self.forest.weight.per_length) is not None:
            cells = keys, heights, per_length
        corner = np.array([r0, c0, self.grid.cols])
        exits, tops = np.empty(size, np.int32), np.empty(size, np.uint64)
        numbers = np.empty(size, np.int64)
        leave = heaviest_edges(cells, corner, codes, target, order, exits, tops, numbers)
        least = np.full(leave, _MOST), np.full(leave, np.iinfo(np.int64).max)
        ways = links, order, exits, tops, numbers
        cell, k = check_divides(cells, corner, codes, *ways, *least)
        if cell >= 0:
            what = (
                f"drains over a heavier edge than the one to the {_NAMES[k]}, which is the divide"
            )
            self._wrong(at, codes, cell, what, "minimal")
        sums = (valid * self.units[r0:r1, None]).ravel()
        add_up(target, order, sums)
        mouths = self._globally(at, np.flatnonzero(codes[1:-1, 1:-1] == 0))
        leaving = np.flatnonzero(target == -2)
        leaving = leaving[np.argsort(exits[leaving])]
        entered = np.empty(size, bool)
        entries(codes, entered)
        into = np.flatnonzero(entered)
        over, number = np.empty((2, leave), np.int64)
        top = np.empty(leave, np.uint64)
        crossing_edges(cells, corner, codes, leaving, over, top, number)
        known = _Ways(
            self._globally(at, leaving),
            over,
            sums[leaving],
            top,
            number,
            *least,
            self._globally(at, into),
            exits[into].astype(np.int64),
            tops[into],
            numbers[into],
        )
        # Cells at the border of the data are not compared with others.
        listed = mouths[:0] if self.border else mouths
        return int(valid.sum()), len(mouths), listed, count, known

    def _add(self, at: Block, found: tuple[Any, ...]) -> None:
        cells, outlets, mouths, reached, ways = found
        self.cells += cells
        self.reached += reached
        self.outlets += outlets
        if not self.border:
            self._mouths.append(mouths)
            if type(self.expected) is int and self.outlets > self.expected:
                wrong_totals(self.codes, "outlets or more", self.outlets, self.expected)
        self._ways.append(ways)
        self._planned -= len(ways.leaving)
        needed = self._plan.memory - _WAY_BYTES * min(self._planned, 0)
        if needed > self._plan.memory_limit:
            raise PlanError(
                f"{self.codes.path}: more cells drain from block to block than a memory limit of "
                f"{format_size(self._plan.memory_limit)} has room for; give at least "
                f"{ceil_div(needed, MB)} MB to verify them"
            )

    def _join(self) -> None:
        """Follow the ways from block to block."""
        bases = np.cumsum([0, *(len(ways.leaving) for ways in self._ways[:-1])])
        own = zip(self._ways, bases, strict=True)
        way = np.concatenate([np.where(ways.way < 0, -1, ways.way + base) for ways, base in own])
        columns = [np.concatenate(column) for column in zip(*self._ways, strict=True)]
        self._ways.clear()
        joined = _Ways(*columns)
        entered = np.argsort(joined.entered)
        # Its block has marked each, for it read the same codes around itself.
        at = entered[np.searchsorted(joined.entered, joined.target, sorter=entered)]
        following, between, between_number = way[at], joined.between[at], joined.between_number[at]
        top, number = joined.top, joined.number
        more = _heavier(between, between_number, top, number)
        top[more], number[more] = between[more], between_number[more]
        space = np.empty((2, len(following)), np.int64)
        x = join_ways(following, *space, top, number, joined.sums)
        cols = self.grid.cols
        if x >= 0:
            row, col = divmod(int(joined.leaving[x]), cols)
            wrong(self.codes, "direction leads round in a circle", "acyclic", row, col)
        less = ~_heavier(joined.least, joined.least_number, top, number)
        less &= joined.least_number < np.iinfo(np.int64).max
        for x in np.flatnonzero(less)[:1].tolist():
            row, col = divmod(int(joined.least_number[x]) >> 2, cols)
            what = "an edge that is a divide, and a way from it to an outlet has a heavier one"
            wrong(self.codes, what, "minimal", row, col)
        order = np.argsort(joined.target)
        self._into, self._amounts = joined.target[order], joined.sums[order]

    def _check_outlets(self) -> None:
        found = np.concatenate(self._mouths)
        self._mouths.clear()
        if outlets_digest(found, self.grid.cols) != self.digest:
            raise VerificationError(
                f"{self.codes.path}: the cells of code 0 are not the outlets of the run; compute "
                "it again with --overwrite",
                "outlet",
            )

    # -- sums -----------------------------------------------------------------------------------

    def _check_sums(self, at: Block, data: list[np.ndarray]) -> None:
        codes, found = data
        r0, r1, c0, c1 = self.blocks.window(*at)
        size = found.size
        target, order = np.empty(size, np.int32), np.empty(size, np.int32)
        count, _ = order_cells(codes, target, np.empty(size, np.uint8), order)
        reached = codes[1:-1, 1:-1] != 255
        sums = (reached * self.units[r0:r1, None]).ravel()
        starts = np.arange(r0, r1) * self.grid.cols
        ends = np.searchsorted(self._into, (starts + c0, starts + c1)).T.tolist()
        for row, (first, last) in enumerate(ends):
            if first < last:
                into = self._into[first:last] - starts[row] - c0 + row * (c1 - c0)
                np.add.at(sums, into, self._amounts[first:last])
        add_up(target, order[:count], sums)
        right = sums.reshape(found.shape)
        if self.areas:
            right = right * self.unit
        faults = np.argwhere(right.view(np.int64) != found.view(np.int64))
        if len(faults):
            row, col = faults[0].tolist()
            what = f"sum {found[row, col]} where {right[row, col]} drains through the cell"
            wrong(self.layer, what, "sum", r0 + row, c0 + col)

    # -------------------------------------------------------------------------------------------

    def _valid(self, at: Block, heights: np.ndarray) -> np.ndarray:
        """Which cells have a value, with one ring."""
        r0, r1, c0, c1 = self.blocks.window(*at)
        valid = ~is_nodata(heights, self.forest.cells.nodata)
        valid[:1] &= r0 > 0
        valid[-1:] &= r1 < self.grid.rows
        valid[:, :1] &= c0 > 0
        valid[:, -1:] &= c1 < self.grid.cols
        return valid

    def _globally(self, at: Block, cells: np.ndarray) -> np.ndarray:
        """Ids of cells of a block."""
        r0, _, c0, c1 = self.blocks.window(*at)
        row, col = np.divmod(cells.astype(np.int64), c1 - c0)
        return (r0 + row) * self.grid.cols + c0 + col

    def _wrong(self, at: Block, codes: np.ndarray, cell: int, what: str, check: str) -> NoReturn:
        r0, _, c0, c1 = self.blocks.window(*at)
        row, col = divmod(cell, c1 - c0)
        what = f"direction {codes[row + 1, col + 1]} {what}"
        wrong(self.codes, what, check, r0 + row, c0 + col)


def _nothing(at: Block, found: None) -> None:
    """Nothing is known of a block."""


def _heavier(
    key: np.ndarray, number: np.ndarray, than_key: np.ndarray, than_number: np.ndarray
) -> np.ndarray:
    return (key > than_key) | ((key == than_key) & (number > than_number))
