"""Proof that the entries of a distance index are correct: `verify_entries`.

Every entry is computed again and compared bit for bit. Within a tile, distances from many rim cells
at once are lowered along single steps, in sweeps over its cells, until no step lowers any of them.
Each distance is then the cost of a path, summed from its first cell onwards, and no path costs
less: rounded addition is monotonic, so a cheaper path would contain a step that lowers a distance.
Entries that should have been left out are tested one by one for whether they are superfluous. The
entries of a square of a level are computed again in the same way from the entries of its quarters,
which have been proven before. The proof shares with the program that builds the index only the cost
of a step and how costs are combined; the layout of a tile's entries is defined again here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np

from ...engine.plan import PER_ROW, StreamPlan, format_size, require
from ...engine.proof import Limits, check_blocks, plan_threads
from ...errors import VerificationError
from ...facts import Findings
from ...grid import Block, BlockGrid
from ...grid.neighbours import COL_STEP, ROW_STEP
from ..cost.edges import infinity_of, joining
from ..cost.fields import Field
from ..cost.models import CostModel
from ..cost.terrain import Terrain
from .proof_kernels import drop_superfluous, relax_from, relax_over, step_costs


def _rim(tile: int) -> np.ndarray:
    """Rows and columns of the rim cells of a tile, clockwise from the upper left one."""
    last, side = tile - 1, range(tile - 1)
    return np.array(
        [(0, n) for n in side]
        + [(n, last) for n in side]
        + [(last, last - n) for n in side]
        + [(last - n, 0) for n in side]
    )


def _into(tile: int) -> np.ndarray:
    """Rim cells and directions of neighbours in other tiles."""
    return np.array([
        (b, k)
        for b, cell in enumerate(_rim(tile).tolist())
        for k in range(8)
        if not {cell[0] + ROW_STEP[k], cell[1] + COL_STEP[k]} <= set(range(tile))
    ])  # fmt: skip


_LANES = 64
"""A square is computed again from this many rim cells at once."""


class CheckedIndex(Protocol):
    """A distance index, such as `paths.distance_index.Index`."""

    blocks: BlockGrid
    tile: int
    levels: int
    dtype: np.dtype
    symmetric: bool

    def entries(self, level: int = 0) -> int: ...

    def chunk(self, level: int = 0) -> tuple[int, int]: ...

    def tiles(self, at: Block, level: int = 0) -> tuple[int, int]: ...

    def rows(self, at: Block, level: int = 0) -> Iterator[np.ndarray]: ...


def plan_entries(index: CheckedIndex, model: CostModel, limits: Limits) -> StreamPlan:
    """Plan how many threads check the blocks of an index within a memory limit.

    Raises
    ------
    PlanError
        when the limit is too small for one thread.
    """
    item, block, limit = index.dtype.itemsize, index.blocks.block, limits.memory_limit
    lanes = index.tile - 1
    cluster = limits.cluster
    with limits.planning() as machine:
        baseline = machine.baseline(block) + PER_ROW * index.blocks.rows
    # Heights, frictions and barriers, as read and as computed with; masks.
    one = index.blocks.largest(1) * (2 * item + 16 * model.needs_friction + 8 + 3)
    # A row of tiles as read; what is read, computed and compared of one; distances and costs.
    one += (index.chunk()[1] + 9) * index.entries() * item + index.tile**2 * (lanes + 8) * item
    for level in range(1, index.levels + 1):
        # Rows of squares and of their quarters; of one square, distances, and steps in order.
        wide, below = index.chunk(level)[1] + 7, 3 * index.chunk(level - 1)[1] + 8
        one += (wide * index.entries(level) + below * index.entries(level - 1)) * item
        count = len(_rim(index.tile << level))
        one += count * (3 * count + 2 * _LANES) * item + 2 * count**2 * (item + 5 * 8)
    least = 1 if cluster is None else min(cluster.threads, index.blocks.count)
    require(
        baseline + least * one,
        limit,
        f"to verify a distance index in blocks of {block} ({format_size(one)} for a thread)",
    )
    threads = min(limits.checkers, index.blocks.count, (limit - baseline) // one)
    return plan_threads(index.blocks, index.dtype.name, threads, one, limits)


def verify_entries(
    terrain: Terrain,
    options: tuple[bool, bool, bool],
    index: CheckedIndex,
    path: Path,
    limits: Limits,
) -> Findings:
    """Check every entry of an index.

    Parameters
    ----------
    terrain
        The cells.
    options
        (diagonal, corner_cutting, reverse).
    path
        The final path of the index, for messages.

    Returns
    -------
    dict
        "entries": the number of entries compared.

    Raises
    ------
    VerificationError
        at the first wrong entry found.
    PlanError
        when the memory limit is too small.
    StoreError
        when a file of the index or a layer is damaged.
    """
    plan, found = plan_entries(index, terrain.model, limits), 0

    def add(at: Block, count: int) -> None:
        nonlocal found
        found += count

    if limits.cluster is None:
        _Tile(terrain, options, index).compile()
        if index.levels:
            _Square(terrain, index, 1).entries([])
    entries = _EntryChecker(terrain, options, index, path)
    check_blocks(plan, index.blocks, [], entries.check, add, limits)
    return {"entries": found}


_local = threading.local()
"""The work space of each thread."""


@dataclass(frozen=True)
class _EntryChecker:
    """Checks the entries of blocks; can be sent to workers. Attributes: see `verify_entries`."""

    terrain: Terrain
    options: tuple[bool, bool, bool]
    index: CheckedIndex
    path: Path

    def check(self, at: Block, _: object) -> int:
        """Check the entries of a block; return their number."""
        if getattr(_local, "of", None) is not self:
            _local.of, _local.tile = self, _Tile(self.terrain, self.options, self.index)
            levels = range(1, self.index.levels + 1)
            _local.squares = [_Square(self.terrain, self.index, level) for level in levels]
        field, tile, count = self.terrain.load(at), _local.tile, 0
        for i, row in enumerate(self.index.rows(at)):
            for j in range(self.index.tiles(at)[1]):
                tile.entries(field, i * tile.side, j * tile.side)
                count += tile.compare(self.path, at, (i, j), row[j])
        del field
        for square in _local.squares:
            below = self.index.rows(at, square.level - 1)
            for i, row in enumerate(self.index.rows(at, square.level)):
                quarters = [half.copy() for half in islice(below, 2)]
                for j in range(len(row)):
                    square.entries([half[2 * j : 2 * j + 2] for half in quarters])
                    count += square.compare(self.path, at, (i, j), row[j])
        return count


class _RightEntries:
    """Computes the correct entries of tiles or squares, one at a time, in its own arrays."""

    what = "the distance within its tile"

    def __init__(self, terrain: Terrain, index: CheckedIndex, level: int) -> None:
        self.terrain, self.index, self.level = terrain, index, level
        self.side = index.tile << level
        self.rim, self.into = _rim(self.side), _into(self.side)
        self._between, self._kept = np.empty((2, len(self.rim), len(self.rim)), index.dtype)
        self._found = np.empty(index.entries(level), index.dtype)
        self._start = index.dtype.type(-np.inf if terrain.model.kind.bottleneck else 0)

    def _keep(self) -> None:
        """Keep only the distances between rim cells that are not superfluous."""
        lower = np.tril_indices(len(self.rim), -1)
        if self.index.symmetric:  # only the lower half is stored, and used in both directions
            self._between.T[lower] = self._between[lower]
        way = joining(self.terrain.model.kernel)
        drop_superfluous(way, self._between, self.index.symmetric, self._kept)
        kept = self._kept[lower] if self.index.symmetric else self._kept.ravel()
        self._found[: -len(self.into)] = kept

    def compare(self, path: Path, at: Block, tile: tuple[int, int], entries: np.ndarray) -> int:
        """Compare the entries of a tile of a block with the correct ones; return their number."""
        bits = f"u{entries.itemsize}"
        wrong = np.flatnonzero(self._found.view(bits) != entries.view(bits))
        if len(wrong):
            self._refuse(path, at, tile, int(wrong[0]), entries)
        return len(entries)

    def _refuse(
        self, path: Path, at: Block, tile: tuple[int, int], entry: int, found: np.ndarray
    ) -> None:
        """Raise the error for a wrong entry."""
        r0, _, c0, _ = self.index.blocks.window(*at)
        corner, rim = np.array([r0, c0]) + self.side * np.array(tile), self.rim
        count, into = len(rim), entry - (len(found) - len(self.into))
        if into >= 0:
            b, k = self.into[into]
            first, last, what = rim[b] + (ROW_STEP[k], COL_STEP[k]), rim[b], "the cost of the step"
        else:
            b = int((1 + (1 + 8 * entry) ** 0.5) / 2) if self.index.symmetric else entry // count
            a = entry - b * (b - 1) // 2 if self.index.symmetric else entry % count
            first, last, what = rim[b], rim[a], self.what
        (row, col), (r, c) = (corner + first).tolist(), (corner + last).tolist()
        raise VerificationError(
            f"{path}: {what} from row {row}, column {col} to row {r}, column {c} "
            f"is {found[entry]!s} instead of {self._found[entry]!s}; build the index again with "
            "--overwrite",
            "entry",
            row,
            col,
        )


class _Tile(_RightEntries):
    """Computes the entries of tiles from cells."""

    def __init__(
        self, terrain: Terrain, options: tuple[bool, bool, bool], index: CheckedIndex
    ) -> None:
        super().__init__(terrain, index, 0)
        self.options, side = options, self.side
        self._lanes = side - 1  # rim cells at once: those of a side
        self._costs = np.empty((side, side, 8), index.dtype)
        self._far = np.empty((side, side, self._lanes), index.dtype)
        self._stale = np.empty((side, side), bool)

    def entries(self, field: Field, row: int, col: int) -> None:
        """Compute the entries of the tile from this row and column of a block."""
        model, count, cells = self.terrain.model.kernel, len(self.rim), self.rim
        place = field.lengths, row, col, self.options
        step_costs(model, field.heights, field.frictions, field.absent, *place, self._costs)
        rim = cells[self.into[:, 0]]
        self._found[-len(self.into) :] = self._costs[rim[:, 0], rim[:, 1], self.into[:, 1]]
        for first in range(0, count, self._lanes):
            own = cells[first : first + self._lanes]
            open_ = ~field.absent[1 + row + own[:, 0], 1 + col + own[:, 1]]
            relax_from(joining(model), self._costs, own, open_, self._start, self._far, self._stale)
            self._between[first : first + self._lanes] = self._far[cells[:, 0], cells[:, 1]].T
        self._keep()

    def compile(self) -> None:
        """Compile in this thread, where Ctrl-C works."""
        shape = self.side + 2, self.side + 2
        heights, frictions = (np.zeros(shape, dtype) for dtype in self.terrain.types)
        absent, lengths = np.ones(shape, bool), np.ones((4, self.side + 2))
        self.entries(Field(heights, frictions, absent, lengths, None), 0, 0)  # type: ignore[arg-type]


class _Square(_RightEntries):
    """Computes the entries of squares of a level from those of their quarters."""

    def __init__(self, terrain: Terrain, index: CheckedIndex, level: int) -> None:
        super().__init__(terrain, index, level)
        self.what = f"the distance within its square of side {self.side}"
        self._quarter = _rim(self.side // 2)
        size = 4 * len(self._quarter)
        self._far = np.empty((size, _LANES), index.dtype)
        self._changed, self._seen = np.empty((2, size), np.int64)
        # Rim cells of the quarters, one after the other, and steps into each from another quarter.
        corners = self.side // 2 * np.array([(0, 0), (0, 1), (1, 0), (1, 1)])
        cells = (corners[:, None] + self._quarter).reshape(-1, 2)
        number = {cell: n for n, cell in enumerate(map(tuple, cells.tolist()))}
        self._own = np.array([number[cell] for cell in map(tuple, self.rim.tolist())])
        found, place = [], {}
        for quarter, corner in enumerate(corners):
            for p, (b, k) in enumerate(_into(self.side // 2).tolist()):
                row, col = (corner + self._quarter[b]).tolist()
                head = number[row, col]
                place[head, k] = quarter, p
                tail = number.get((row + int(ROW_STEP[k]), col + int(COL_STEP[k])))
                if tail is not None:
                    found.append((quarter, p, head, tail))
        self._inner = np.array(found).T
        self._outer = np.array([place[self._own[b], k] for b, k in self.into.tolist()]).T

    def entries(self, quarters: list[np.ndarray]) -> None:
        """Compute the entries of a square from its quarters, (columns, entries) by rows."""
        count, steps = len(self._quarter), len(_into(self.side // 2))
        never = infinity_of(self._found)
        into = np.full((4, steps), never, self._found.dtype)
        parts = []
        for i, row in enumerate(quarters):
            for j, entries in enumerate(row):
                into[2 * i + j] = entries[-steps:]
                ways = np.full((count, count), never, self._found.dtype)
                if self.index.symmetric:
                    lower = np.tril_indices(count, -1)
                    ways[lower] = ways.T[lower] = entries[:-steps]
                else:
                    ways[:] = entries[:-steps].reshape(count, count)
                b, a = np.nonzero(ways < never)
                shift = (2 * i + j) * count
                parts.append((b + shift, a + shift, ways[b, a]))
        quarter, p, head, tail = self._inner
        parts.append((tail, head, into[quarter, p]))
        tails, heads, costs = map(np.concatenate, zip(*parts, strict=True))
        order = np.argsort(heads, kind="stable")
        order = order[costs[order] < never]
        first = np.searchsorted(heads[order], np.arange(4 * count + 1))
        graph = first, tails[order], costs[order]
        way, work = joining(self.terrain.model.kernel), (self._far, self._changed, self._seen)
        for begin in range(0, len(self._own), _LANES):
            own = self._own[begin : begin + _LANES]
            relax_over(way, *graph, own, self._start, *work)
            self._between[begin : begin + _LANES] = self._far[self._own, : len(own)].T
        self._keep()
        self._found[-len(self.into) :] = into[self._outer[0], self._outer[1]]
