"""Polylines of a network: traced in blocks, kept on disk in pieces, strung together.

A polyline leads from one *node* to the next: a cell where three or more edges meet, or one ends, or
a kept point. Within a block it comes in pieces, each from a node or an edge to another block to the
next such.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..compiled import jit
from ..engine.plan import MB, format_size
from ..errors import PlanError, StoreError
from ..grid import ceil_div
from ..grid.neighbours import COL_STEP, ROW_STEP
from .block import BlockForest, edge_ids

NODE = -1
"""End of a piece that is no edge to another block."""

PIECE_BYTES = 200
"""Memory for a piece while pieces are strung together."""

CELL_BYTES = 200
"""Memory for a cell of a line that is being written."""

BATCH = 1 << 16
"""Cells of polylines that are handled together."""


@dataclass
class Pieces:
    """Pieces of polylines in a block.

    Attributes
    ----------
    cells
        int64, ids of the cells of all pieces, one piece after the other.
    heights
        Their cells' values.
    starts
        int64, where each piece starts in them, and one more.
    ends
        int64, shape (n, 2): ids of the edges to other blocks before and after, or `NODE`.
    """

    cells: np.ndarray
    heights: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


def trace_pieces(block: BlockForest, bits: np.ndarray, kept: np.ndarray) -> Pieces:
    """The pieces of polylines in a block.

    Parameters
    ----------
    bits
        See `prune.keep`.
    kept
        int32, points of the block that are kept, which end polylines.
    """
    marked = block.work.cut[: block.size]
    marked[:] = False
    marked[kept] = True
    width = block.width
    nothing = np.empty(0, np.int32), np.empty((0, 3), np.int32)
    count, total = trace(bits, marked, width, *nothing)
    cells, heads = np.empty(total, np.int32), np.empty((count, 3), np.int32)
    trace(bits, marked, width, cells, heads)
    starts = np.append(heads[:, 0].astype(np.int64), total)
    first, last = block.globally(cells[starts[:-1]]), block.globally(cells[starts[1:] - 1])
    ends = np.stack(
        [
            np.where(steps < 8, edge_ids(block.cols, at, steps & 7), NODE)
            for at, steps in ((first, heads[:, 1]), (last, heads[:, 2]))
        ],
        axis=1,
    )
    row, col = cells // width + 1, cells % width + 1
    return Pieces(block.globally(cells), block.heights[row, col], starts, ends)


@jit
def trace(bits, marked, width, cells, heads):
    """Pieces of polylines: their number, and of their cells.

    Parameters
    ----------
    bits
        uint8 D8 codes of the edges at each cell.
    marked
        Cells that end polylines.
    width
        Columns of the block.
    cells, heads
        int32. Unless empty, receive the cells of each piece; and where it starts in them, and the
        neighbours in other blocks before its first cell and after its last, 8 at nodes.
    """
    height = len(bits) // width
    write = len(heads) > 0
    count, total = 0, 0
    for start in range(len(bits)):
        here = bits[start]
        if here == 0:
            continue
        node = _is_node(here, marked[start])
        leaving = 0
        for k in range(8):
            leaving += here >> k & 1 and _leaves(start, k, height, width)
        if not node and leaving == 0:
            continue
        if leaving == 2 and not node:
            before = 8
            for k in range(8):
                if here >> k & 1:
                    before, after = k, before
            if write:
                cells[total] = start
                heads[count] = total, before, after
            count += 1
            total += 1
            continue
        before = 8
        if not node:
            for k in range(8):
                if here >> k & 1 and _leaves(start, k, height, width):
                    before = k
        for k in range(8):
            if not here >> k & 1 or k == before:
                continue
            if _leaves(start, k, height, width):
                if write:
                    cells[total] = start
                    heads[count] = total, 8, k
                count += 1
                total += 1
                continue
            # Once to see where it ends, for each piece is met from both of its ends.
            length, v, step = 1, start, k
            after = 8
            while True:
                v += ROW_STEP[step] * width + COL_STEP[step]
                length += 1
                if _is_node(bits[v], marked[v]):
                    break
                came = step + 4 & 7
                for k2 in range(8):
                    if bits[v] >> k2 & 1 and k2 != came:
                        step = k2
                if _leaves(v, step, height, width):
                    after = step
                    break
            if v < start:
                continue
            if write:
                heads[count] = total, before, after
                v, step = start, k
                for m in range(length):
                    cells[total + m] = v
                    if m == length - 1:
                        break
                    v += ROW_STEP[step] * width + COL_STEP[step]
                    came = step + 4 & 7
                    if m < length - 2:
                        for k2 in range(8):
                            if bits[v] >> k2 & 1 and k2 != came:
                                step = k2
            count += 1
            total += length
    return count, total


@jit
def _is_node(bits, marked):
    """Whether polylines end here: unless exactly two edges meet."""
    count = 0
    for k in range(8):
        count += bits >> k & 1
    return marked or count != 2


@jit
def _leaves(v, k, height, width):
    """Whether a neighbour lies outside of the block."""
    row, col = v // width + ROW_STEP[k], v % width + COL_STEP[k]
    return not (0 <= row < height and 0 <= col < width)


class PieceFile:
    """Pieces of all blocks: cells and heights on disk, the rest in memory.

    Parameters
    ----------
    folder
        Where the files go; without a name, so that nothing is left of a process that is killed.
    dtype
        Type of the heights.
    memory, memory_limit
        The peak resident set of the process without pieces, and the bound on it, bytes.
    """

    def __init__(self, folder: Path, dtype: np.dtype, memory: int, memory_limit: int) -> None:
        self._dtype, self._memory, self._limit = dtype, memory, memory_limit
        self._cells = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._heights = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._total = self._count = 0
        self._tables: dict[tuple[int, int], tuple[np.ndarray, ...]] = {}

    def close(self) -> None:
        self._cells.close()
        self._heights.close()

    def put(self, at: tuple[int, int], pieces: Pieces) -> None:
        """Keep the pieces of a block, in place of earlier ones.

        Raises
        ------
        PlanError
            when there are more than the memory limit allows.
        """
        if earlier := self._tables.pop(at, None):
            self._count -= len(earlier[0])
        if len(pieces.ends) == 0:
            return
        self._cells.write(pieces.cells.data)
        self._heights.write(np.ascontiguousarray(pieces.heights).data)
        starts, ends = pieces.starts[:-1], pieces.starts[1:]
        outer = np.stack((pieces.cells[starts], pieces.cells[ends - 1]), axis=1)
        self._tables[at] = starts + self._total, ends - starts, pieces.ends, outer
        self._total += len(pieces.cells)
        self._count += len(starts)
        self._refuse(self._count * PIECE_BYTES, f"a network of {self._count:,} and more lines")

    def _refuse(self, more: int, what: str) -> None:
        needed = self._memory + more
        if needed > self._limit:
            raise PlanError(
                f"a memory limit of {format_size(self._limit)} is too small for {what}; give more "
                f"than {ceil_div(needed, MB)} MB, or a larger --min-length"
            )

    def lines(self) -> Iterator[tuple[list[np.ndarray], list[np.ndarray]]]:
        """Cells and heights of polylines, some at a time.

        Each begins at its node of the lesser id; they come in the order of these, then of the
        others, so that nothing depends on blocks.

        Raises
        ------
        PlanError
            when the memory limit is too small for a line.
        """
        if not self._tables:
            return
        at, count, ends, outer = (
            np.concatenate(columns) for columns in zip(*self._tables.values(), strict=True)
        )
        self._tables = {}
        self._cells.flush()
        self._heights.flush()
        mate = _mates(ends.ravel())
        slots, starts = string(mate)
        heads, tails = slots[starts[:-1]], slots[starts[1:] - 1] ^ 1
        first, last = outer.ravel()[heads], outer.ravel()[tails]
        turned = first > last
        order = np.lexsort((np.maximum(first, last), np.minimum(first, last)))
        cells: list[np.ndarray] = []
        heights: list[np.ndarray] = []
        gathered = 0
        for k in order.tolist():
            way = slots[starts[k] : starts[k + 1]].tolist()
            if turned[k]:
                way = [slot ^ 1 for slot in reversed(way)]
            length = sum(int(count[slot >> 1]) for slot in way)
            self._refuse(max(length - BATCH, 0) * CELL_BYTES, f"a line of {length:,} cells")
            parts = [self._piece(int(at[s >> 1]), int(count[s >> 1]), s & 1) for s in way]
            cells.append(np.concatenate([part[0] for part in parts]))
            heights.append(np.concatenate([part[1] for part in parts]))
            gathered += len(cells[-1])
            if gathered > BATCH:
                yield cells, heights
                cells, heights, gathered = [], [], 0
        if cells:
            yield cells, heights

    def _piece(self, at: int, count: int, side: int) -> tuple[np.ndarray, ...]:
        """Cells and heights of a piece, entered from one side."""
        found = []
        for file, dtype in ((self._cells, np.dtype(np.int64)), (self._heights, self._dtype)):
            size = dtype.itemsize
            data = np.frombuffer(os.pread(file.fileno(), count * size, at * size), dtype)
            found.append(data[::-1] if side else data)
        return tuple(found)


def _mates(ends: np.ndarray) -> np.ndarray:
    """For each end of a piece the end of another at the same edge between blocks, else -1."""
    mate = np.full(len(ends), -1)
    open_ = np.flatnonzero(ends != NODE)
    open_ = open_[np.argsort(ends[open_], kind="stable")]
    one, other = open_[::2], open_[1::2]
    if len(one) != len(other) or (ends[one] != ends[other]).any():
        raise StoreError("the layer mst changed while it was read; run this again")
    mate[one], mate[other] = other, one
    return mate


@jit
def string(mate):
    """Pieces strung together: slots (twice the piece, plus the side of entry), and line starts."""
    slots = np.empty(len(mate) // 2, np.int64)
    starts = np.empty(len(mate) // 2 + 1, np.int64)
    used = np.zeros(len(mate) // 2, np.bool_)
    count, lines = 0, 0
    for first in range(len(mate)):
        if mate[first] >= 0 or used[first >> 1]:
            continue
        starts[lines] = count
        lines += 1
        slot = first
        while slot >= 0:
            used[slot >> 1] = True
            slots[count] = slot
            count += 1
            slot = mate[slot ^ 1]
    starts[lines] = count
    return slots[:count], starts[: lines + 1]
