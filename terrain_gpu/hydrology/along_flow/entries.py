"""How flow passes from block to block: the cells where it enters, and where it goes from there.

Flow enters a block at some cells of its rim, the *entries*. From each entry it continues to an
entry of another block, or ends inside. Memory holds only these arcs, at most one per cell of the
rims. Sums are passed downstream along them; values of flow paths are passed upstream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...engine.operation import Phase, State
from ...engine.plan import Growing, StreamPlan
from ...facts import Findings
from ...grid import Block, BlockGrid
from ...plurals import counted
from ..common.flow_loops import loop_error
from ..common.weights import Rule, WeightRule
from .kernels import join_downstream, join_upstream
from .rim_kernels import known_at

if TYPE_CHECKING:
    from .operation import AlongFlow

ENTRY_BYTES = 190
"""Bytes per entry while all are joined; before that, about a third of it."""

NONE = np.empty(0, np.int64)


def most_entries(blocks: BlockGrid) -> int:
    """Return the number of entries to plan for: one per cell of the lines between blocks.

    DEMs from lidar and satellites have 0.5 to 0.7 per cell; the maximum is two.
    """
    return blocks.line_cells


def entry_bytes(count: int, extra: int) -> tuple[int, int]:
    """Return the bytes that entries need while blocks stream, and while all are joined.

    `extra` is the number of bytes per entry needed at all times in addition to `ENTRY_BYTES`.
    """
    return count * (ENTRY_BYTES // 3 + extra), count * (ENTRY_BYTES + extra)


class FlowEntries(State):
    """The entries of all blocks, collected and joined."""

    def __init__(self, operation: AlongFlow, plan: StreamPlan) -> None:
        self._layer, self._blocks = operation.layers[0], operation.blocks
        self._more = operation.entry_more
        planned = entry_bytes(most_entries(self._blocks), self._more)
        self._room = Growing(plan, *planned, operation.held_bytes)
        self._parts: list[tuple[np.ndarray, ...]] = []
        self._count = 0
        self._ids = NONE
        self._values = [NONE]

    def add(self, phase: Phase, at: Block, message: tuple[np.ndarray, ...] | None) -> None:
        """Add a block: the ids of its entries, of the next entries (-1 for none), and columns."""
        if phase.writes or message is None:
            return
        self._parts.append(message)
        self._count += len(message[0])
        if not self._fits:
            self._parts.clear()

    @property
    def _fits(self) -> bool:
        return self._room.fits(*entry_bytes(self._count, self._more))

    def _joined(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """Sort the entries; return which one follows each, and the further columns."""
        self._room.require(
            *entry_bytes(self._count, self._more),
            f"for {counted(self._count, 'cell')} at which flow enters blocks",
            where=self._layer.path,
            advice=", or convert with a larger --block-size",
        )
        if not self._parts:
            return NONE, []
        ids, following, *columns = map(np.concatenate, zip(*self._parts, strict=True))
        self._parts.clear()
        order = np.argsort(ids)
        self._ids = ids[order]
        following = following[order]
        following = np.where(following < 0, -1, np.searchsorted(self._ids, following))
        return following, [
            column[order] if len(column) == len(order) else column for column in columns
        ]

    def _check_cycle(self, entry: int) -> None:
        """Raise an error if an entry lies on a cycle; -1 if none does."""
        if entry >= 0:
            row, col = divmod(int(self._ids[entry]), self._blocks.cols)
            raise loop_error(self._layer, row, col)

    def at_rim(self, at: Block, *, inside: bool) -> tuple[np.ndarray, ...]:
        """Return the entries at the rim of a block or in the ring around it, and their values.

        The values are arrays, one for each column.
        """
        (r0, r1, c0, c1), blocks, more = self._blocks.window(*at), self._blocks, 0 if inside else 1
        window = r0 - more, r1 + more, c0 - more, c1 + more
        known = known_at(self._ids, window, blocks.rows, blocks.cols)
        return self._ids[known], *(values[known] for values in self._values)


class Inflows(FlowEntries):
    """The amounts that enter each block.

    Each block adds the cells where flow leaves it, and the amounts that come from its own cells, in
    one or more columns.

    Parameters
    ----------
    rule
        How amounts are combined; see `weights.Rule`. By default they are added.
    """

    def __init__(self, operation: AlongFlow, plan: StreamPlan, rule: Rule | None = None) -> None:
        super().__init__(operation, plan)
        self._adds, self._empty = (True, 0) if rule is None else (rule.adds, rule.empty)
        self._weighted = rule is not None and rule.weights is not None
        self._rule, self._counts = rule, np.zeros(3, np.int64)
        self._left: list[tuple[np.ndarray, ...]] = []

    def add(self, phase: Phase, at: Block, message: tuple[np.ndarray, ...] | None) -> None:
        if phase.writes or message is None:
            return
        ids, following, leaving, amounts, *counts = message
        super().add(phase, at, (ids, following))
        self._left.append((leaving, *np.atleast_2d(amounts)))
        if not self._fits:
            self._left.clear()
        self._counts += sum(counts)

    def join(self, phase: Phase) -> None:
        if phase.writes:
            return
        if isinstance(self._rule, WeightRule):
            self._rule.refuse_lost(*self._counts[1:].tolist())
        following, _ = self._joined()
        join = np.add if self._adds else np.maximum
        columns = len(self._left[0]) - 1
        self._values = [np.full(len(following), self._empty, np.int64) for _ in range(columns)]
        for leaving, *amounts in self._left:
            to = np.searchsorted(self._ids, leaving)
            for values, added in zip(self._values, amounts, strict=True):
                join.at(values, to, added)
        self._left.clear()
        for values in self._values:
            waiting = np.empty_like(following)
            self._check_cycle(join_upstream(following, waiting, values, self._adds))

    def found(self) -> Findings:
        return {"without_weight": int(self._counts[0])} if self._weighted else {}

    def given(self, phase: Phase, at: Block) -> tuple[np.ndarray, ...] | None:
        """Return the cells where flow enters the block, and the amounts."""
        if not phase.writes:
            return None
        return self.at_rim(at, inside=True)


class Beyond(FlowEntries):
    """One or more values of the flow path that starts at each entry.

    Parameters
    ----------
    rules
        How each value is combined along the path; see `kernels.follow`.
    """

    def __init__(self, operation: AlongFlow, plan: StreamPlan, *rules: int) -> None:
        super().__init__(operation, plan)
        self._rules = rules

    def join(self, phase: Phase) -> None:
        if phase.writes:
            return
        following, columns = self._joined()
        if columns:
            self._combine(following, columns)

    def _combine(self, following: np.ndarray, columns: list[np.ndarray]) -> None:
        """Combine the values of flow paths against the flow, in place."""
        order, waiting = np.empty((2, len(following)), np.int64)
        self._values = columns
        for rule, values in zip(self._rules, columns, strict=True):
            self._check_cycle(join_downstream(following, order, waiting, values, rule))

    def given(self, phase: Phase, at: Block) -> tuple[np.ndarray, ...] | None:
        """Return the entries around the block, and their values."""
        if not phase.writes:
            return None
        return self.at_rim(at, inside=False)
