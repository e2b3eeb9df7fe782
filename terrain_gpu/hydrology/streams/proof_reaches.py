"""The reaches of all blocks and the Horton orders of their links, computed for the proof.

A reach is the part of a link in one block. A link begins at a head or a junction, so Strahler
orders pass along its reaches: the greatest order that flows in, plus one if several have it.
Reaches are rows of a table, in memory, or in a file if they do not fit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ...engine.machine import MB
from ...engine.plan import Excess, StreamPlan
from ...engine.proof import wrong
from ...errors import StoreError
from ...grid import Block, Window
from ...plurals import counted
from ...store.paged import Gathered, Paged
from ...store.readable import Readable
from .proof_kernels import BEGINS, ENTERED, INNER, find_reaches, follow_reaches
from .proof_reach_kernels import (
    ReachColumns,
    climb_reaches,
    compare_reaches,
    first_waiting,
    join_reaches,
)

REACH = np.dtype(
    [
        *((name, np.int64) for name in ReachColumns._fields[:6]),
        *((name, np.uint8) for name in ReachColumns._fields[6:10]),
        ("begins", np.bool_),
    ],
    align=True,
)
"""A reach: the ids of its first and last cell; the next cell, later the row of the next reach (-1
at outlets); the sum at the last cell; the row of the inflowing reach of the same stream (-1 at
heads); the order recorded in its cells; then the computed values: Strahler order, how many inflows
have the greatest order, how many inflows are still to come, Horton order; and whether a link begins
here."""

EACH = REACH.itemsize + 8
"""Bytes per reach in memory: its row, and its entry in the order of the flow."""
HELD = 16 * MB
"""Bytes planned for the reaches of all blocks."""
SHARE, FOLLOWED_BYTES = 16, 120
"""Memory is planned for one reach per `SHARE` cells of a block, and this number of bytes each."""


class BlockReaches(NamedTuple):
    """Finds the reaches of blocks; see `proof_kernels`. Can be sent to workers."""

    codes: Readable
    sums: Readable
    streams: Readable
    plan: StreamPlan

    def excess(self, count: int) -> int:
        """Bytes beyond the plan, of each buffer, for this number of reaches in a block."""
        return max(count - self.codes.blocks.largest() // SHARE, 0) * FOLLOWED_BYTES

    def of(self, window: Window, data: list[np.ndarray], least: Any) -> np.ndarray | int:
        """The reaches of a block, in any process; their number where they do not fit the limit."""
        codes, sums, orders = data
        r0, r1, c0, c1 = window
        cols = self.codes.grid.cols
        state = np.empty((r1 - r0, c1 - c0), np.uint8)
        find_reaches(codes, sums, least, state)
        count = int(np.count_nonzero(state >= ENTERED))
        extra = self.excess(count) * self.plan.buffers
        if self.plan.memory + extra > self.plan.memory_limit:
            return count
        rows = np.zeros(count, REACH)
        first, last, after = np.empty((3, count), np.int64)
        follow_reaches(codes, state, np.array([r0, c0, cols]), first, last, after)
        for row, col in np.argwhere(state == INNER)[:1].tolist():
            self.wrong_loop((r0 + row) * cols + c0 + col)
        rows["first"], rows["last"], rows["to"] = first, last, after
        through = sums[last // cols - r0 + 1, last % cols - c0 + 1]
        # The bits of positive floats have the same order as the floats.
        real = through.dtype.kind == "f"
        rows["sums"] = through.astype(np.float64).view(np.int64) if real else through
        rows["order"] = orders[first // cols - r0 + 1, first % cols - c0 + 1]
        rows["begins"] = state[first // cols - r0, first % cols - c0] == BEGINS
        return rows

    def wrong_loop(self, cell: int) -> NoReturn:
        row, col = divmod(cell, self.codes.grid.cols)
        wrong(self.codes, "direction leads into a loop", "acyclic", row, col)


class Reaches:
    """The reaches of all blocks.

    Parameters
    ----------
    folder
        Folder for tables that do not fit the memory limit.
    """

    def __init__(self, of: BlockReaches, folder: Path) -> None:
        self._of, self._blocks = of, of.codes.blocks
        room = of.plan.memory_limit - of.plan.memory + HELD
        self._paged = Paged(folder, room)
        self._rows = Gathered(self._paged, REACH, room, EACH)
        self._spans = np.zeros((self._blocks.count, 2), np.int64)
        self._excess = Excess.of(of.plan, per="buffers")

    def add(self, at: Block, rows: np.ndarray | int) -> None:
        """Add the reaches of a block."""
        if isinstance(rows, int):
            purpose = f"to verify orders of {counted(rows, 'reach', 'reaches')} in a block"
            self._excess.has_room(self._of.excess(rows), purpose)
            return
        block, count = at[0] * self._blocks.shape[1] + at[1], self._rows.count
        self._spans[block] = count, count + len(rows)
        self._rows.append(rows)

    def check(self) -> None:
        """Compare the orders of all links.

        Raises
        ------
        VerificationError
            for the first link whose order is wrong, or for a loop.
        PlanError
            when a block has more reaches than fit the memory limit.
        StoreError
            If the directions change while they are read.
        OutputError
            If the disk is full.
        """
        self._excess.refuse()
        if not self._rows.count:
            return
        table, blocks, paged = self._rows.table(), self._blocks, self._paged
        columns: dict[str, Any] = {name: table.rows[name] for name in ReachColumns._fields[:-1]}
        reaches = ReachColumns(**columns, pages=table.pages)
        layout = np.array([blocks.cols, blocks.block, blocks.shape[1]])
        state = np.zeros(2, np.int64)
        paged.run(join_reaches, reaches, self._spans, layout, state)
        if state[1]:
            raise StoreError(f"{self._of.codes.path}: changed while it was read; run this again")
        order, ordered, beyond = paged.numbers(), 0, self._of.codes.grid.cells
        for chunk in paged.filled(climb_reaches, reaches, state=np.array([0, -1, 0])):
            order.append(chunk)
            ordered += len(chunk)
        if ordered < self._rows.count:
            state = np.array([0, beyond])
            paged.run(first_waiting, reaches, state)
            self._of.wrong_loop(int(state[1]))
        state = np.array([0, beyond, 0, 0])
        for chunk in order.chunks(backwards=True):
            state[0] = len(chunk)
            paged.run(compare_reaches, reaches, chunk, state)
        _, cell, recorded, right = state.tolist()
        if cell < beyond:
            row, col = divmod(cell, blocks.cols)
            problem = f"order {recorded} should be {right}"
            wrong(self._of.streams, problem, "horton", row, col)

    def close(self) -> None:
        """Remove the files."""
        self._paged.close()
