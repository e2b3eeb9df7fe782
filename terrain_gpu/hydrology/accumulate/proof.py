"""Proof that sums and directions of drainage are right: `verify_drainage`.

It shares nothing with the program that drains except the forest, the weights of its edges, and the
values of cells. Directions are right exactly if

1. every valid cell is an outlet (code 0), drains along an edge of the forest, or reaches no outlet
   (255); the outlets are those that were asked for; and no edge of the forest joins a cell that
   drains to one that does not, so that all trees with an outlet drain;
2. directions have no loops, so that each flow path ends at an outlet;
3. every edge of the forest between two cells of which neither drains into the other is heavier, in
   the total order of edges, than all edges on the flow paths from both to their outlets. By the
   cycle property, the directions are then the minimum spanning forest relative to the outlets.

Sums are right if each is the value of its cell plus the sums of those that drain into it. They are
added up again, as whole numbers, and compared bit for bit.

A block knows the flow path of each of its cells up to where it leaves the block. For cells where
paths leave or enter, it records the heaviest edge and the sum within the block, and the lightest
edge that must be heavier than the rest of the path. Between two passes over the blocks, these are
followed from block to block. Memory is O(rim).

Another proof, `spanning_tree.proof`, shows that the layer "mst" is the minimum spanning forest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

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
from ...errors import VerificationError
from ...facts import Findings
from ...grid import Block
from ...grid.neighbours import symmetric
from ...spanning_tree.weights import Weight
from ...store import Layer, TileStore
from ...store.readable import Readable, Typed
from ...wide import DTYPE as TWO_WORDS
from ..common.outlets import has_voids, is_low, name_of
from ..common.proof_gathered import GatheredParts
from ..common.proof_kernels import (
    FAULTS,
    OUTWARDS,
    check_codes,
    check_divides,
    crossing_edges,
    crossings,
    entries,
    heaviest_edges,
    join_ways,
    order_cells,
    order_ways,
    ways_out,
)
from ..common.proof_paths import BETWEEN, entering, ways_between
from ..common.proof_voids import VOID_BYTES, BlockVoids, Floods, floods_bytes
from ..common.sums import SumRule
from ..flow_accumulation.proof import plan_sums, verify_sums
from ..forest.source import Forest, open_forest

if TYPE_CHECKING:
    from ..common.proof_voids import _Rim

_NAMES = ("E", "SE", "S", "SW", "W", "NW", "N", "NE")
_MOST = {"u": np.iinfo(np.uint64).max, "c": np.inf}
"""A key greater than all others, by kind of data type."""


def verify_drainage(
    forest: Forest,
    codes: Readable,
    sums: Readable | None,
    outlets: str,
    areas: bool,
    expected: Findings,
    limits: Limits,
    added: Sequence[int] = (),
) -> Findings:
    """Check the direction of every cell, and its sum.

    Parameters
    ----------
    forest
        The spanning forest and its cells.
    codes
        The layer of directions, uint8.
    sums
        The layer of sums: uint32 or int64 cells, or float64 areas; None if there is none.
    outlets
        A name, see `hydrology.common.outlets`; a digest, see `outlets_digest`; or both.
    areas
        Whether areas are summed.
    expected
        The recorded "cells" and "outlets".
    added
        Ids of outlets added to those of a name.

    Returns
    -------
    dict
        The numbers of valid "cells", of "outlets", and of cells that drain to them, "reached".

    Raises
    ------
    VerificationError
        If a direction, a sum or a total is wrong; the first fault found is reported.
    PlanError
        If the memory limit is too small.
    StoreError
        If a layer is damaged.
    """
    checker = _DrainageChecker(forest, codes, outlets, expected, added)
    checker.run(limits)
    if sums is not None:
        verify_sums(codes, sums, SumRule(forest.cells.grid, areas), limits)
    totals = {"cells": checker.cells, "outlets": checker.outlets}
    for name, value in totals.items():
        wrong_totals(codes, name, value, expected.get(name))
    return {**totals, "reached": checker.reached}


def verify_stored_drainage(
    store: TileStore, codes: Layer, sums: Layer | None, limits: Limits
) -> Findings:
    """Check layers with `verify_drainage` and the settings recorded with them."""
    recorded = RunRecord(store, codes)
    forest = open_forest(store)
    for layer in (forest.cells, forest.edges):
        recorded.input(layer.name)
    outlets, areas = recorded.get("outlets", str), recorded.get("areas", bool)
    kind = SumRule(forest.cells.grid, areas).dtype.name
    for one, dtype in ((codes, "uint8"), (sums, kind)):
        if one is not None and (one.dtype.name != dtype or one.blocks != forest.cells.blocks):
            raise RunRecord(store, one).damaged("data_type", one.dtype.name)
    added = recorded.settings.get("added_outlets", [])
    good = isinstance(added, list) and all(
        type(one) is int and 0 <= one < codes.grid.cells for one in added
    )
    digests = [outlets_digest(np.array(added), codes.grid.cols)] if good and added else []
    if not good or digests != (outlets.split("+")[1:] if name_of(outlets) else []):
        raise recorded.damaged("added_outlets", added)
    return verify_drainage(forest, codes, sums, outlets, areas, recorded.result, limits, added)


def outlets_digest(cells: np.ndarray, cols: int) -> str:
    """Return the digest of outlets, from their ids in a raster of `cols` columns."""
    cells_by_row = np.stack(np.divmod(np.sort(cells), cols), axis=1)
    return hashlib.sha256(np.ascontiguousarray(cells_by_row).tobytes()).hexdigest()


class _TreePaths(NamedTuple):
    """The flow paths of a block that continue in other blocks or come from there.

    Attributes
    ----------
    leaving, target
        Ids of the cells where paths leave the block, and of the cells that these drain to.
    top, number
        Key and id of the edge between the two.
    least, least_number
        Key and id of the lightest edge that must be heavier than the rest of the path; the greatest
        values if there is none.
    entered, exit
        Ids of the cells where paths enter the block, and the index in `leaving` where each leaves
        it, -1 for an outlet.
    between, between_number
        Key and id of the heaviest edge between these two cells.
    """

    leaving: np.ndarray
    target: np.ndarray
    top: np.ndarray
    number: np.ndarray
    least: np.ndarray
    least_number: np.ndarray
    entered: np.ndarray
    exit: np.ndarray
    between: np.ndarray
    between_number: np.ndarray


_WAY_BYTES = 11 * 8 * 3
"""Bytes for a cell where paths leave a block and one where they enter: kept, joined, followed."""


def plan_passes(
    forest: Forest,
    codes: Any,
    sums: Typed | None,
    limits: Limits,
    *,
    outlets: int = 0,
    voids: bool = False,
) -> list[StreamPlan]:
    """Plan the passes: one for directions, and two for sums.

    `outlets` is the number of given outlets. With `voids`, another pass comes first.
    """
    blocks = forest.cells.blocks
    wide = 8 * (forest.cells.dtype.itemsize == 8)  # more bytes of a key
    held = (
        (_WAY_BYTES + 9 * wide) * ways_between(blocks) + 48 * outlets + floods_bytes(blocks) * voids
    )
    ring, key = blocks.largest(1), forest.weight.key_dtype.itemsize
    reads = _reads(forest, codes)
    worker = ring * (key + 60 + wide + VOID_BYTES * voids)
    first = plan_proof(blocks, reads, limits, worker=worker, held=held)
    return [first] if sums is None else [first, *plan_sums(blocks, codes, sums, limits)]


def _reads(forest: Forest, codes: Any) -> list[Read]:
    return [Read(forest.cells, 1), Read(forest.edges, 1), Read(codes, 1)]


class _BlockDrainage(NamedTuple):
    """Checks blocks; can be sent to workers.

    Attributes
    ----------
    named
        Name of the outlets; None for given cells, which are listed.
    added
        Sorted ids of outlets added to those of a name.
    """

    forest: Forest
    codes: Readable
    named: str | None
    added: np.ndarray

    def voids(self, at: Block, data: list[np.ndarray]) -> _Rim | None:
        """Find the voids of a block."""
        absent = is_nodata(data[0], self.forest.cells.nodata)
        return BlockVoids(self.codes.blocks).look(at, absent)

    def check(
        self, at: Block, data: list[np.ndarray], voids: BlockVoids | None = None
    ) -> tuple[int, int, np.ndarray, int, _TreePaths]:
        """Check a block, given the voids around it; return what `_add` takes."""
        heights, forward, codes = data
        r0, _, c0, _ = self.codes.blocks.window(*at)
        ring = self._valid(at, heights)
        valid = ring[1:-1, 1:-1]
        needed, possible, low = self._outlets(at, ring, voids)
        links = symmetric(forward)
        fault, cell = check_codes(codes, links, valid, needed, possible, low)
        if fault:
            kind = "outlet" if fault in (3, 4) else "direction"
            self._wrong(at, codes, cell, FAULTS[fault], kind)
        size = valid.size
        target, order = np.empty(size, np.int32), np.empty(size, np.int32)
        count, cell = order_cells(codes, target, np.empty(size, np.uint8), order)
        order = order[:count]
        if cell >= 0:
            self._wrong(at, codes, cell, "leads into a loop", "acyclic")
        keys = Weight("max", heights.dtype).operands(heights)
        cells = keys, keys, np.empty((4, 0))  # without slopes, elevations are not used
        if (per_length := self.forest.weight.per_length) is not None:
            cells = keys, heights, per_length
        corner = np.array([r0, c0, self.codes.grid.cols])
        key = TWO_WORDS if keys.dtype == np.uint64 else np.dtype(np.uint64)
        exits, tops = np.empty(size, np.int32), np.empty(size, key)
        numbers = np.empty(size, np.int64)
        leave = ways_out(target, order, exits)
        heaviest_edges(cells, corner, codes, low, target, order, tops, numbers)
        least = np.full(leave, _MOST[key.kind], key), np.full(leave, np.iinfo(np.int64).max)
        path_arguments = links, low, order, exits, tops, numbers
        cell, k = check_divides(cells, corner, codes, *path_arguments, *least)
        if cell >= 0:
            other = "outward edge" if k == 8 else f"edge to the {_NAMES[k]}"
            problem = f"drains across the divide: its {other} is lighter"
            self._wrong(at, codes, cell, problem, "minimal")
        mouths = self._globally(at, np.flatnonzero(codes[1:-1, 1:-1] == 0))
        leaving, over, number = np.empty((3, leave), np.int64)
        crossings(codes, corner, target, exits, leaving, over)
        entered = np.empty(size, bool)
        entries(codes, entered)
        into = np.flatnonzero(entered)
        top = np.empty(leave, key)
        crossing_edges(cells, corner, codes, leaving, top, number)
        paths = _TreePaths(
            self._globally(at, leaving),
            over,
            top,
            number,
            *least,
            self._globally(at, into),
            exits[into].astype(np.int64),
            tops[into],
            numbers[into],
        )
        # Named outlets need not be listed, since they were checked above.
        listed = mouths[:0] if self.named else mouths
        return int(valid.sum()), len(mouths), listed, count, paths

    def _outlets(
        self, at: Block, ring: np.ndarray, voids: BlockVoids | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return masks of the cells that must be outlets, that can be, and of low ones among these.

        `ring` is the mask of valid cells of the block and its ring.
        """
        valid = ring[1:-1, 1:-1]
        added = np.zeros(valid.shape, bool)
        if self.named is None:
            return added, valid, added
        added.ravel()[entering(self.codes.blocks, at, self.added)[1]] = True
        outside = ~ring if voids is None else voids.outside(at, ~ring)
        border = valid & around(outside) & ~added
        if is_low(self.named):
            return added, border | added, border
        return border | added, border | added, np.zeros_like(added)

    def _valid(self, at: Block, heights: np.ndarray) -> np.ndarray:
        """Return the mask of valid cells of a block and its ring."""
        r0, r1, c0, c1 = self.codes.blocks.window(*at)
        valid = ~is_nodata(heights, self.forest.cells.nodata)
        valid[:1] &= r0 > 0
        valid[-1:] &= r1 < self.codes.grid.rows
        valid[:, :1] &= c0 > 0
        valid[:, -1:] &= c1 < self.codes.grid.cols
        return valid

    def _globally(self, at: Block, cells: np.ndarray) -> np.ndarray:
        """Return the ids in the raster of cells of a block."""
        r0, _, c0, c1 = self.codes.blocks.window(*at)
        row, col = np.divmod(cells.astype(np.int64), c1 - c0)
        return (r0 + row) * self.codes.grid.cols + c0 + col

    def _wrong(self, at: Block, codes: np.ndarray, cell: int, problem: str, check: str) -> NoReturn:
        r0, _, c0, c1 = self.codes.blocks.window(*at)
        row, col = divmod(cell, c1 - c0)
        problem = f"direction {codes[row + 1, col + 1]} {problem}"
        wrong(self.codes, problem, check, r0 + row, c0 + col)


class _DrainageChecker:
    def __init__(
        self,
        forest: Forest,
        codes: Readable,
        outlets: str,
        expected: Findings,
        added: Sequence[int],
    ) -> None:
        self.forest, self.codes = forest, codes
        self.blocks, self.grid = forest.cells.blocks, forest.cells.grid
        self.named, self.digest = name_of(outlets), outlets
        self.added = np.sort(np.array(added, np.int64))
        self.floods = Floods(self.blocks) if has_voids(outlets, forest.cells) else None
        self.expected = expected.get("outlets")
        self.most = len(added)
        if not self.named and type(self.expected) is int:
            self.most = min(self.expected, self.grid.cells)
        self.cells = self.outlets = self.reached = 0
        self._mouths: list[np.ndarray] = []

    def run(self, limits: Limits) -> None:
        """Run the pass, after one over voids if it matters which of them are outer."""
        forest, blocks, floods = self.forest, self.blocks, self.floods
        of = _BlockDrainage(forest, self.codes, self.named, self.added)
        (self._plan,) = plan_passes(
            forest, self.codes, None, limits, outlets=self.most, voids=floods is not None
        )
        self._paths: GatheredParts[_TreePaths] = GatheredParts(
            self._plan, _WAY_BYTES, self.codes, BETWEEN, ways_between(blocks)
        )
        if floods is not None:

            def add(at: Block, rim: _Rim | None) -> None:
                floods.add(rim)

            check_blocks(self._plan, blocks, [Read(forest.cells)], of.voids, add, limits)
            floods.join()
        reads, voids_around = _reads(forest, self.codes), None if floods is None else floods.near
        check_blocks(self._plan, blocks, reads, of.check, self._add, limits, given=voids_around)
        if not self.named:
            self._check_outlets()
        self._join()

    def _add(self, at: Block, summary: tuple[int, int, np.ndarray, int, _TreePaths]) -> None:
        cells, outlets, mouths, reached, paths = summary
        self.cells += cells
        self.reached += reached
        self.outlets += outlets
        if not self.named:
            self._mouths.append(mouths)
            if type(self.expected) is int and self.outlets > self.expected:
                wrong_totals(self.codes, "outlets or more", self.outlets, self.expected)
        self._paths.add(paths, len(paths.leaving))

    def _join(self) -> None:
        """Follow the flow paths from block to block."""
        parts = self._paths.take()
        bases = np.cumsum([0, *(len(block.leaving) for block in parts[:-1])])
        based = zip(parts, bases, strict=True)
        exit_of = np.concatenate(
            [np.where(block.exit < 0, -1, block.exit + base) for block, base in based]
        )
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        del parts, based
        joined = _TreePaths(*columns)
        entered = np.argsort(joined.entered)
        # Each target is among `entered`, since its block read the same codes around itself.
        at = entered[np.searchsorted(joined.entered, joined.target, sorter=entered)]
        following, between, between_number = (
            exit_of[at],
            joined.between[at],
            joined.between_number[at],
        )
        top, number = joined.top, joined.number
        heavier = _heavier(between, between_number, top, number)
        top[heavier], number[heavier] = between[heavier], between_number[heavier]
        waiting, order = np.empty((2, len(following)), np.int64)
        count, x = order_ways(following, waiting, order)
        cols = self.grid.cols
        if x >= 0:
            row, col = divmod(int(joined.leaving[x]), cols)
            wrong(self.codes, "direction leads into a loop", "acyclic", row, col)
        join_ways(following, order[:count], top, number)
        less = ~_heavier(joined.least, joined.least_number, top, number)
        less &= joined.least_number < np.iinfo(np.int64).max
        for x in np.flatnonzero(less)[:1].tolist():
            least = int(joined.least_number[x])
            row, col = divmod(least + OUTWARDS if least < 0 else least >> 2, cols)
            problem = (
                "an edge here is a divide, but a flow path from it to an outlet has a heavier one"
            )
            wrong(self.codes, problem, "minimal", row, col)

    def _check_outlets(self) -> None:
        outlets = np.concatenate(self._mouths)
        self._mouths.clear()
        if outlets_digest(outlets, self.grid.cols) != self.digest:
            raise VerificationError(
                f"{self.codes.path}: the cells of code 0 are not the outlets of the run; compute "
                "it again with --overwrite",
                "outlet",
            )


def _heavier(
    key: np.ndarray, number: np.ndarray, than_key: np.ndarray, than_number: np.ndarray
) -> np.ndarray:
    return (key > than_key) | ((key == than_key) & (number > than_number))
