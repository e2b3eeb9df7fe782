"""Proof that the entries of a distance index are right: `verify_entries`.

Every entry is computed again and compared, bit for bit. Within a tile, distances from many rim
cells at once are improved along single steps, in sweeps over its cells, until no step shortens any.
Each is then the length of a path, added from its first cell onwards, and the least of all: rounded
addition is monotonic, so a shorter path would contain a step that shortens. Those that must have
been left out are then tested one by one, for what makes them superfluous. Nothing is shared with
the program that builds the index but the cost of a step and how costs combine; the layout of a
tile's entries is written down here once more.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...engine.plan import (
    COMPILED_BASELINE,
    PER_ROW,
    StreamPlan,
    format_size,
    limit_of,
    loaded,
    require,
)
from ...engine.proof import Limits, check_blocks, plan_threads
from ...errors import VerificationError
from ...grid import Block, BlockGrid
from ...grid.neighbours import COL_STEP, ROW_STEP
from ..cost.edges import joining
from ..cost.fields import Field
from ..cost.models import CostModel
from ..cost.terrain import Terrain
from .proof_kernels import drop_superfluous, relax_from, step_costs


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


class CheckedIndex(Protocol):
    """A distance index, such as `paths.distance_index.Index`."""

    blocks: BlockGrid
    tile: int
    dtype: np.dtype
    symmetric: bool
    entries: int

    @property
    def chunk(self) -> tuple[int, int]: ...

    def tiles(self, at: Block) -> tuple[int, int]: ...

    def rows(self, at: Block) -> Iterator[np.ndarray]: ...


def plan_entries(index: CheckedIndex, model: CostModel, limits: Limits) -> StreamPlan:
    """How the blocks of an index go through threads within a memory limit.

    Raises
    ------
    PlanError
        when the limit is too small for one.
    """
    item, block, limit = index.dtype.itemsize, index.blocks.block, limit_of(limits.memory_limit)
    lanes = index.tile - 1
    cluster = limits.cluster
    with nullcontext() if cluster is None else cluster.planning():
        baseline = COMPILED_BASELINE + loaded(block) + PER_ROW * index.blocks.rows
    # Heights, frictions and barriers, as read and as computed with; masks.
    one = index.blocks.largest(1) * (2 * item + 16 * model.needs_friction + 8 + 3)
    # A row of tiles as read; what is read, computed and compared of one; distances and costs.
    one += (index.chunk[1] + 9) * index.entries * item + index.tile**2 * (lanes + 8) * item
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
) -> dict[str, Any]:
    """Check every entry of an index.

    Parameters
    ----------
    terrain
        The cells.
    options
        (diagonal, corner_cutting, reverse).
    path
        Where the index is, or will be, for messages.

    Returns
    -------
    dict
        "entries", the number that is compared.

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
    entries = _EntryChecker(terrain, options, index, path)
    check_blocks(plan, index.blocks, [], entries.check, add, limits)
    return {"entries": found}


_local = threading.local()
"""What each thread computes tiles with."""


@dataclass(frozen=True)
class _EntryChecker:
    """Checks the entries of blocks; can be sent to workers. Attributes: see `verify_entries`."""

    terrain: Terrain
    options: tuple[bool, bool, bool]
    index: CheckedIndex
    path: Path

    def check(self, at: Block, _: Any) -> int:
        """Check the entries of a block; return their number."""
        if getattr(_local, "of", None) is not self:
            _local.of, _local.tile = self, _Tile(self.terrain, self.options, self.index)
        field, tile, count = self.terrain.load(at), _local.tile, 0
        for i, row in enumerate(self.index.rows(at)):
            for j in range(self.index.tiles(at)[1]):
                right = tile.entries(field, i * tile.side, j * tile.side)
                bits = f"u{right.itemsize}"
                wrong = np.flatnonzero(right.view(bits) != row[j].view(bits))
                if len(wrong):
                    tile.refuse(self.path, at, (i, j), int(wrong[0]), row[j])
                count += len(right)
        return count


class _Tile:
    """Computes the entries of tiles, one at a time, in arrays of its own."""

    def __init__(
        self, terrain: Terrain, options: tuple[bool, bool, bool], index: CheckedIndex
    ) -> None:
        self.terrain, self.options, self.index = terrain, options, index
        self.side = side = index.tile
        self.rim, self.into = _rim(side), _into(side)
        self._lanes = side - 1  # rim cells at once: those of a side
        self._costs = np.empty((side, side, 8), index.dtype)
        self._far = np.empty((side, side, self._lanes), index.dtype)
        self._stale = np.empty((side, side), bool)
        self._between, self._kept = np.empty((2, len(self.rim), len(self.rim)), index.dtype)
        self._found = np.empty(index.entries, index.dtype)
        self._start = index.dtype.type(-np.inf if terrain.model.kind.bottleneck else 0)

    def entries(self, field: Field, row: int, col: int) -> np.ndarray:
        """The right entries of the tile from this row and column of a block; reused."""
        model, count, cells = self.terrain.model.kernel, len(self.rim), self.rim
        steps = len(self.into)
        place = field.lengths, row, col, self.options
        step_costs(model, field.heights, field.frictions, field.absent, *place, self._costs)
        ways, into = self._found[:-steps], self._found[-steps:]
        rim = cells[self.into[:, 0]]
        into[:] = self._costs[rim[:, 0], rim[:, 1], self.into[:, 1]]
        for first in range(0, count, self._lanes):
            own = cells[first : first + self._lanes]
            open_ = ~field.absent[1 + row + own[:, 0], 1 + col + own[:, 1]]
            relax_from(joining(model), self._costs, own, open_, self._start, self._far, self._stale)
            self._between[first : first + self._lanes] = self._far[cells[:, 0], cells[:, 1]].T
        lower = np.tril_indices(count, -1)
        if self.index.symmetric:  # only the lower half is stored, and used in both directions
            self._between.T[lower] = self._between[lower]
        drop_superfluous(joining(model), self._between, self._kept)
        ways[:] = self._kept[lower] if self.index.symmetric else self._kept.ravel()
        return self._found

    def compile(self) -> None:
        """Compile in this thread, where Ctrl-C works."""
        shape = self.side + 2, self.side + 2
        heights, frictions = (np.zeros(shape, dtype) for dtype in self.terrain.types)
        absent, lengths = np.ones(shape, bool), np.ones((4, self.side + 2))
        self.entries(Field(heights, frictions, absent, lengths, None), 0, 0)  # type: ignore[arg-type]

    def refuse(
        self, path: Path, at: Block, tile: tuple[int, int], entry: int, found: np.ndarray
    ) -> None:
        """Raise the error for a wrong entry."""
        r0, _, c0, _ = self.index.blocks.window(*at)
        corner, rim = np.array([r0, c0]) + self.side * np.array(tile), self.rim
        count, into = len(rim), entry - (len(found) - len(self.into))
        if into >= 0:
            b, k = self.into[into]
            first, last, what = rim[b] + (ROW_STEP[k], COL_STEP[k]), rim[b], "the step"
        else:
            b = int((1 + (1 + 8 * entry) ** 0.5) / 2) if self.index.symmetric else entry // count
            a = entry - b * (b - 1) // 2 if self.index.symmetric else entry % count
            first, last, what = rim[b], rim[a], "the way inside its tile"
        (row, col), (r, c) = (corner + first).tolist(), (corner + last).tolist()
        raise VerificationError(
            f"{path}: {what} from row {row}, column {col} to row {r}, column {c} "
            f"has {found[entry]!s} where {self._found[entry]!s} is right; build the index again "
            "with --overwrite",
            "entry",
            row,
            col,
        )
