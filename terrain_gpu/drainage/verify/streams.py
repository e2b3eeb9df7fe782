"""Proof that orders of channels are right: `verify_orders`.

Nothing is shared with the program that orders channels but the layers of directions and sums.
Orders are right exactly when each cell satisfies a rule that tells its order from those of its
neighbours:

- Strahler, Shreve: from those of the channels that flow into it; 1 where none does;
- Hack, topological: from that of the channel that it flows into; 1 at outlets;
- numbers of links: that of the only channel that flows into it; where a link begins, numbers grow
  in row-major order from 1.

Sums grow along every step, so no way leads round in a circle, and the rule determines all orders.
Sums of areas may also stay the same, where an area is lost in rounding.

A Horton order depends on the Strahler orders of links, whose cells may show a greater one. Cells of
a link must have the same; and the reaches of blocks, joined from cell to cell, give the graph of
links, from which the orders are found again, see `link_graph`. Memory is O(reaches).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ...engine.plan import MB, StreamPlan, require
from ...engine.proof import (
    Limits,
    Read,
    RunRecord,
    check_blocks,
    plan_proof,
    wrong,
    wrong_totals,
)
from ...grid import Block, Window
from ...store import Layer, TileStore
from ..codes import end_ways
from .link_graph import LINK_BYTES, find_orders, jump
from .stream_kernels import (
    BEGINS,
    ENTERED,
    FAULTS,
    INNER,
    OF_SUMS,
    check_orders,
    find_reaches,
    follow_reaches,
)

RULES = ("strahler", "shreve", "hack", "topological", "link", "horton")
"""The orders, by the number of their rule."""
_RUN_BYTES = 100
"""Of the links of a row of a block, whose numbers are checked."""
_REACH_BYTES = LINK_BYTES + 100
_HELD = 16 * MB
"""Memory planned for the reaches of all blocks; more is counted as they come."""
_SHARE, _FOLLOWED_BYTES = 16, 120
"""Memory is planned for a reach in so many cells of a block; and its bytes there."""


def plan_orders(codes: Any, sums: Any, streams: Any, order: str, limits: Limits) -> StreamPlan:
    """How blocks stream through the check; `streams` need not exist yet.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    reads = [Read(layer, 1) for layer in (codes, sums, streams)]
    horton = order == "horton"
    cells = codes.blocks.block**2
    runs = 2 * codes.blocks.block * codes.blocks.shape[1]
    held = _HELD if horton else _RUN_BYTES * runs * (order == "link")
    worker = cells + horton * (cells + cells // _SHARE * _FOLLOWED_BYTES)
    return plan_proof(codes.blocks, reads, limits, worker=worker, held=held)


def verify_orders(
    codes: Any,
    sums: Any,
    streams: Any,
    settings: tuple[float, str],
    expected: Mapping[str, Any],
    limits: Limits,
) -> dict[str, Any]:
    """Check the order of every cell.

    Parameters
    ----------
    codes, sums, streams
        The layers of directions, of sums and of orders.
    settings
        The least sum of a channel, and which order.
    expected
        The recorded "cells", "links", "heads" and "outlets".

    Returns
    -------
    dict
        The same, as found.

    Raises
    ------
    VerificationError
        at the first violation found.
    PlanError
        when the memory limit is too small.
    StoreError
        when a layer is damaged.
    """
    order = settings[1]
    plan = plan_orders(codes, sums, streams, order, limits)
    totals = np.zeros(4, np.int64)
    of = _BlockReaches(codes, sums, streams, plan) if order == "horton" else None
    reaches = None if of is None else _Reaches(of)
    numbers = _LinkNumbers(codes, streams) if order == "link" else None

    def add(at: Block, found: tuple[np.ndarray, Any]) -> None:
        counts, more = found
        totals[:] += counts
        for graph in (reaches, numbers):
            if graph is not None:
                graph.add(at, more)

    layers = codes, sums, streams
    check, reads = partial(_check, layers, settings, of), [Read(layer, 1) for layer in layers]
    check_blocks(plan, codes.blocks, reads, check, add, limits)
    if numbers is not None:
        numbers.check()
    if reaches is not None:
        reaches.check()
    found = dict(zip(("cells", "links", "heads", "outlets"), totals.tolist(), strict=True))
    for name, value in found.items():
        wrong_totals(streams, name, value, expected.get(name))
    return found


def _check(
    layers: tuple[Any, Any, Any],
    settings: tuple[int | float, str],
    reaches: _BlockReaches | None,
    at: Block,
    data: list[np.ndarray],
) -> tuple[np.ndarray, Any]:
    """Check the orders of a block; return its counts, and its reaches or runs of numbers."""
    (codes, sums, streams), (least, order) = layers, settings
    r0, r1, c0, c1 = window = codes.blocks.window(*at)
    end_ways(codes, codes.grid, window, data[0])
    begins, counts = np.empty((r1 - r0, c1 - c0), bool), np.empty(4, np.int64)
    bound = sums.dtype.type(least)
    strict = sums.dtype.kind != "f"
    rule = RULES.index(order)
    fault, row, col = check_orders(*data, bound, strict, rule, begins, counts)
    if fault >= OF_SUMS:
        code = data[0][row + 1, col + 1]
        wrong(codes, f"direction {code} {FAULTS[fault]}", "direction", r0 + row, c0 + col)
    if fault:
        what = f"order {data[2][row + 1, col + 1]} {FAULTS[fault]}"
        wrong(streams, what, order, r0 + row, c0 + col)
    if reaches is not None:
        return counts, reaches.of(window, data, bound)
    runs = _runs_of(begins, data[2], (r0, c0, codes.grid.cols)) if order == "link" else None
    return counts, runs


def _runs_of(begins: np.ndarray, found: np.ndarray, corner: tuple[int, int, int]) -> np.ndarray:
    """The numbers of links that begin in a block, row by row.

    Returns
    -------
    int64, shape (6, n)
        The cell of the first link of a row, its number, and how many there are; then which of them
        is the first that does not continue the numbers, -1 for none, its cell and its number.
    """
    r0, c0, cols = corner
    rows = []
    for row in np.flatnonzero(begins.any(axis=1)).tolist():
        col = np.flatnonzero(begins[row])
        numbers = found[row + 1, col + 1].astype(np.int64)
        cell = (r0 + row) * cols + c0 + col
        bad = np.append(np.flatnonzero(numbers - numbers[0] != np.arange(len(col))), -1)[0]
        rows.append((cell[0], numbers[0], len(col), bad, cell[bad], numbers[bad]))
    return np.array(rows, np.int64).reshape(-1, 6).T


class _LinkNumbers:
    """The numbers of links, joined for each row of blocks."""

    def __init__(self, codes: Any, streams: Any) -> None:
        self._codes, self._streams = codes, streams
        self._runs: dict[int, list[np.ndarray]] = {}
        self._rows: dict[int, tuple[int, list[tuple[int, int, int]]]] = {}

    def add(self, at: Block, runs: np.ndarray) -> None:
        own = self._runs.setdefault(at[0], [])
        own.append(runs)
        if len(own) == self._codes.blocks.shape[1]:
            self._rows[at[0]] = self._joined(np.concatenate(self._runs.pop(at[0]), axis=1))

    def _joined(self, runs: np.ndarray) -> tuple[int, list[tuple[int, int, int]]]:
        """How many links begin in a row of blocks; the place, cell and number of its first one.

        And of the first one whose number does not follow from that.
        """
        first, number, count, bad, cell, found = runs[:, np.argsort(runs[0])]
        places = np.cumsum(count) - count
        known = list(zip(places.tolist(), first.tolist(), number.tolist(), strict=True))[:1]
        away = number != number[:1] + places
        for k in np.flatnonzero(away | (bad >= 0))[:1].tolist():
            right = int(places[k]), int(first[k]), int(number[k])
            within = int(places[k] + bad[k]), int(cell[k]), int(found[k])
            known.append(right if away[k] else within)
        return int(count.sum()), known

    def check(self) -> None:
        """Refuse the first link whose number is not its place."""
        before = 0
        for i in sorted(self._rows):
            count, known = self._rows[i]
            for place, cell, number in known:
                if number != before + place + 1:
                    row, col = divmod(cell, self._codes.grid.cols)
                    what = f"number {number} of link {before + place + 1}"
                    wrong(self._streams, what, "link", row, col)
            before += count


class _BlockReaches(NamedTuple):
    """Finds the reaches of blocks, see `stream_kernels`; can be sent to workers."""

    codes: Any
    sums: Any
    streams: Any
    plan: StreamPlan

    @property
    def dtype(self) -> np.dtype:
        """Type of reaches, with their sums and orders."""
        kinds = {
            **dict.fromkeys(("first", "last", "after"), np.int64),
            "sum": self.sums.dtype,
            "order": self.streams.dtype,
            "begins": np.bool_,
        }
        return np.dtype(list(kinds.items()))

    def of(self, window: Window, data: list[np.ndarray], least: Any) -> np.ndarray:
        """The reaches of a block, in any process."""
        codes, sums, orders = data
        r0, r1, c0, c1 = window
        cols = self.codes.grid.cols
        state = np.empty((r1 - r0, c1 - c0), np.uint8)
        find_reaches(codes, sums, least, state)
        count = int(np.count_nonzero(state >= ENTERED))
        beyond = max(count - self.plan.block_size**2 // _SHARE, 0)
        self.require(beyond * _FOLLOWED_BYTES * self.plan.buffers)
        found = np.empty(count, self.dtype)
        first, last, after = np.empty((3, count), np.int64)
        follow_reaches(codes, state, np.array([r0, c0, cols]), first, last, after)
        for row, col in np.argwhere(state == INNER)[:1].tolist():
            self.refuse_circle((r0 + row) * cols + c0 + col)
        found["first"], found["last"], found["after"] = first, last, after
        found["sum"] = sums[last // cols - r0 + 1, last % cols - c0 + 1]
        found["order"] = orders[first // cols - r0 + 1, first % cols - c0 + 1]
        found["begins"] = state[first // cols - r0, first % cols - c0] == BEGINS
        return found

    def require(self, more: int) -> None:
        plan = self.plan
        require(plan.memory + more, plan.memory_limit, "to verify orders of so many links")

    def refuse_circle(self, cell: int) -> NoReturn:
        row, col = divmod(cell, self.codes.grid.cols)
        wrong(self.codes, "direction leads round in a circle", "acyclic", row, col)


class _Reaches:
    """The reaches of all blocks."""

    def __init__(self, of: _BlockReaches) -> None:
        self._of, self._parts = of, [np.empty(0, of.dtype)]
        self._count = 0

    def add(self, at: Block, found: np.ndarray) -> None:
        self._parts.append(found)
        self._count += len(found)
        self._of.require(max(_REACH_BYTES * self._count - _HELD, 0))

    def check(self) -> None:
        """Compare the orders of all links."""
        found = np.concatenate(self._parts)
        self._parts = []
        found = found[np.argsort(found["first"])]
        first, begins = found["first"], found["begins"]
        # Where a reach goes on: its block has marked each, for it read the same codes around it.
        to = np.where(found["after"] < 0, -1, np.searchsorted(first, found["after"]))
        same = (to >= 0) & ~begins[to]
        joined = jump(np.where(same, to, np.arange(len(to))), same)
        if isinstance(joined, int):
            self._of.refuse_circle(int(first[joined]))
        head = np.flatnonzero(begins)
        tail = joined[0][head]
        down = np.where(to[tail] < 0, -1, np.searchsorted(head, to[tail]))
        orders = find_orders(down, found["sum"][tail], found["last"][tail])
        if isinstance(orders, int):
            self._of.refuse_circle(int(first[head[orders]]))
        for k in np.flatnonzero(found["order"][head] != orders.horton)[:1].tolist():
            row, col = divmod(int(first[head[k]]), self._of.codes.grid.cols)
            what = f"order {found['order'][head[k]]} where {orders.horton[k]} is right"
            wrong(self._of.streams, what, "horton", row, col)


def recorded_channels(recorded: RunRecord) -> tuple[Layer, Layer, int | float]:
    """Return directions, sums, and the least sum of a channel, of a layer of streams."""
    codes, sums = (recorded.input(recorded.get(k, str)) for k in ("streams_of", "accumulation"))
    least: Any = recorded.settings.get("least")
    if type(least) not in (int, float) or not least > 0:
        raise recorded.damaged("least", least)
    return codes, sums, least


def verify_stored_orders(store: TileStore, layer: Layer, limits: Limits) -> dict[str, Any]:
    """`verify_orders` of a layer, from what is recorded with it."""
    recorded = RunRecord(store, layer)
    codes, sums, least = recorded_channels(recorded)
    order = recorded.get("order", str)
    if layer.dtype.kind not in "ui" or layer.blocks != codes.blocks or sums.blocks != codes.blocks:
        raise recorded.damaged("data_type", layer.dtype.name)
    if order not in RULES:
        raise recorded.damaged("order", order)
    return verify_orders(codes, sums, layer, (least, order), recorded.result, limits)
