"""Polylines of a network: traced block by block, kept on disk as pieces, then joined.

A polyline connects two *nodes*. A node is a cell where three or more edges meet, a cell with one
edge, or a kept point. Within a block, a polyline consists of pieces. Each end of a piece is a node
or an edge to another block.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...engine.plan import Excess
from ...errors import StoreError
from ...plurals import counted
from .block import BlockForest, edge_ids
from .line_kernels import string, trace

NODE = -1
"""Marks an end of a piece that is a node and not an edge to another block."""

PIECE_BYTES, POSSIBLE_BYTES = 200, 60
"""Bytes per piece while pieces are joined; before that, bytes of one that may yet be dropped."""

CELL_BYTES = 330
"""Bytes per cell of a line while it is written; measured: 165 for GeoPackage, 310 for GeoJSON."""

BATCH = 1 << 16
"""Polylines are processed in batches of about this many cells."""


@dataclass
class Pieces:
    """Pieces of polylines in a block.

    Attributes
    ----------
    cells
        int64, cell ids of all pieces, concatenated.
    heights
        The elevations of these cells.
    starts
        int64, shape (n + 1,): where each piece starts in `cells`, and the total at the end.
    ends
        int64, shape (n, 2): ids of the edges to other blocks at both ends of each piece, or `NODE`.
    conditions
        int64, shape (n,); see `prune.keep`.
    """

    cells: np.ndarray
    heights: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    conditions: np.ndarray


def trace_pieces(
    block: BlockForest, bits: np.ndarray, condition: np.ndarray, keep_points: np.ndarray
) -> Pieces:
    """Trace the pieces of polylines in a block.

    Parameters
    ----------
    bits, condition
        See `prune.keep`.
    keep_points
        int32, the kept points in the block, where polylines end.
    """
    marked = block.work.cut[: block.size]
    marked[:] = False
    marked[keep_points] = True
    width = block.width
    lines = bits, marked, width, np.flatnonzero(bits != 0).astype(np.int32)
    count, total = trace(*lines, np.empty(0, np.int32), np.empty((0, 3), np.int32))
    cells, heads = np.empty(total, np.int32), np.empty((count, 3), np.int32)
    trace(*lines, cells, heads)
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
    conditions = condition[cells[starts[:-1]]]
    return Pieces(block.globally(cells), block.heights[row, col], starts, ends, conditions)


class PieceFile:
    """The pieces of all blocks: cells and elevations on disk, the rest in memory.

    Parameters
    ----------
    folder
        Folder for temporary files. They have no name, so a killed process leaves nothing behind.
    dtype
        Dtype of the heights.
    excess
        The memory for pieces.
    """

    def __init__(self, folder: Path, dtype: np.dtype, excess: Excess) -> None:
        self._dtype, self._excess = dtype, excess
        self._cells = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._heights = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._total = self._needed = self._count = self._pieces = 0
        self._tables: dict[tuple[int, int], tuple[np.ndarray, ...]] = {}

    def close(self) -> None:
        self._cells.close()
        self._heights.close()

    def put(self, at: tuple[int, int], pieces: Pieces) -> None:
        """Store the pieces of a block; they replace earlier ones."""
        self._counted(self._tables.pop(at, None), -1)
        if len(pieces.ends) == 0:
            return
        self._cells.write(pieces.cells.data)
        self._heights.write(np.ascontiguousarray(pieces.heights).data)
        starts, ends = pieces.starts[:-1], pieces.starts[1:]
        outer = np.stack((pieces.cells[starts], pieces.cells[ends - 1]), axis=1)
        table = starts + self._total, ends - starts, pieces.ends, outer, pieces.conditions
        self._tables[at] = table
        self._total += len(pieces.cells)
        self._counted(table)
        if not self._has_room():
            self._tables.clear()

    def choose(self, entered: np.ndarray) -> None:
        """Keep only unconditional pieces and those whose condition is among the entered edges.

        Raises
        ------
        PlanError
            If there are more pieces than the memory limit allows.
        """
        if not self._has_room():  # which of them the network has was not kept: count all
            self._needed, self._count = self._pieces * PIECE_BYTES, self._pieces
            self._has_room()
        self._excess.refuse()
        self._needed = self._count = self._pieces = 0
        for at, (*columns, conditions) in self._tables.items():
            good = (conditions < 0) | np.isin(conditions, entered)
            none = np.full(np.count_nonzero(good), -1)
            self._tables[at] = *(column[good] for column in columns), none
            self._counted(self._tables[at])
        self._has_room()
        self._excess.refuse()

    def _counted(self, table: tuple[np.ndarray, ...] | None, sign: int = 1) -> None:
        if table is None:
            return
        sure = int(np.count_nonzero(table[-1] < 0))
        self._pieces += sign * len(table[-1])
        self._count += sign * sure
        self._needed += sign * (sure * PIECE_BYTES + (len(table[-1]) - sure) * POSSIBLE_BYTES)

    def _has_room(self) -> bool:
        purpose = f"for a network of {counted(self._count, 'line')}"
        return self._excess.has_room(self._needed, purpose)

    def lines(self) -> Iterator[tuple[list[np.ndarray], list[np.ndarray]]]:
        """Yield the cells and elevations of polylines, in batches.

        Each line starts at its node with the smaller id. Lines are sorted by the id of their first
        node, then of their last, so the order does not depend on the blocks.

        Raises
        ------
        PlanError
            If the memory limit is too small for a line.
        """
        if not self._tables:
            return
        at, count, ends, outer, _ = (
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
        lengths = np.add.reduceat(count[slots >> 1], starts[:-1])
        longest = int(lengths.max())
        extra = max(longest - BATCH, 0) * CELL_BYTES
        self._excess.has_room(extra, f"for a line of {counted(longest, 'cell')}")
        self._excess.refuse()
        cells: list[np.ndarray] = []
        heights: list[np.ndarray] = []
        gathered = 0
        for k in order.tolist():
            line = slots[starts[k] : starts[k + 1]]
            if turned[k]:
                line = line[::-1] ^ 1
            parts = [self._piece(int(at[s >> 1]), int(count[s >> 1]), s & 1) for s in line.tolist()]
            cells.append(np.concatenate([part[0] for part in parts]))
            heights.append(np.concatenate([part[1] for part in parts]))
            gathered += len(cells[-1])
            if gathered > BATCH:
                yield cells, heights
                cells, heights, gathered = [], [], 0
        if cells:
            yield cells, heights

    def _piece(self, at: int, count: int, side: int) -> tuple[np.ndarray, ...]:
        """Read the cells and elevations of a piece, reversed if it is entered at its end (1)."""
        columns = []
        for file, dtype in ((self._cells, np.dtype(np.int64)), (self._heights, self._dtype)):
            size = dtype.itemsize
            data = np.frombuffer(os.pread(file.fileno(), count * size, at * size), dtype)
            columns.append(data[::-1] if side else data)
        return tuple(columns)


def _mates(ends: np.ndarray) -> np.ndarray:
    """Return, for each end of a piece, the end that the same edge connects it to; -1 at nodes."""
    mate = np.full(len(ends), -1)
    open_ = np.flatnonzero(ends != NODE)
    open_ = open_[np.argsort(ends[open_], kind="stable")]
    one, other = open_[::2], open_[1::2]
    if len(one) != len(other) or (ends[one] != ends[other]).any():
        raise StoreError("the layer mst changed while it was read; run this again")
    mate[one], mate[other] = other, one
    return mate
