"""Proof that the orders of channels are right: `verify_orders`.

It shares nothing with the program that orders channels except the layers of directions and sums.
Orders are right exactly if each cell satisfies a rule that derives its order from those of its
neighbours:

- Strahler, Shreve: from those of the channels that flow into it; 1 if there is none;
- Hack, topological: from that of the channel that it flows into; 1 at outlets;
- numbers of links: that of the only channel that flows into it; where links begin, the numbers
  count up from 1 in row-major order.

Sums grow along every step, so flow paths have no loops, and the rule determines all orders. Sums of
areas may also stay the same, where an area is lost in rounding.

A Horton order depends on the Strahler orders of links, which the cells do not show if the Horton
order is greater. Cells of a link must have the same order; and the reaches of blocks, joined from
cell to cell, give the graph of links, from which the orders are computed again, see
`proof_reaches`. What does not fit in memory is spilled to disk.
"""

from __future__ import annotations

from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...engine.plan import StreamPlan
from ...engine.proof import Limits, Read, RunRecord, check_blocks, plan_proof, wrong, wrong_totals
from ...facts import Findings
from ...grid import Block
from ...store import Layer, TileStore
from ...store.readable import Readable, Typed
from ...store.scratch import scratch_folder
from ..common.codes import end_ways
from .proof_kernels import FAULTS, OF_SUMS, check_orders
from .proof_reaches import FOLLOWED_BYTES, HELD, SHARE, BlockReaches, Reaches

RULES = ("strahler", "shreve", "hack", "topological", "link", "horton")
"""The orders; the index of each is the number of its rule."""
_RUN_BYTES = 100
"""Bytes for a run of links in one row of a block, whose numbers are checked."""


def plan_orders(
    codes: Readable, sums: Readable, streams: Typed, order: str, limits: Limits
) -> StreamPlan:
    """Plan the pass; the layer `streams` need not exist yet.

    Raises
    ------
    PlanError
        If the memory limit is too small.
    """
    reads = [Read(layer, 1) for layer in (codes, sums, streams)]
    horton = order == "horton"
    cells = codes.blocks.largest()
    runs = 2 * codes.blocks.block * codes.blocks.shape[1]
    held = HELD if horton else _RUN_BYTES * runs * (order == "link")
    worker = cells + horton * (cells + cells // SHARE * FOLLOWED_BYTES)
    return plan_proof(codes.blocks, reads, limits, worker=worker, held=held)


def verify_orders(
    codes: Readable,
    sums: Readable,
    streams: Readable,
    settings: tuple[float, str],
    expected: Findings,
    limits: Limits,
    folder: Path | None = None,
) -> Findings:
    """Check the order of every cell.

    Parameters
    ----------
    codes, sums, streams
        The layers of directions, of sums and of orders.
    settings
        The smallest sum of a channel cell, and the name of the order.
    expected
        The recorded "cells", "links", "heads" and "outlets".
    folder
        Folder for what does not fit the memory limit; None for the default scratch folder.

    Returns
    -------
    dict
        The numbers of "cells", "links", "heads" and "outlets" found.

    Raises
    ------
    VerificationError
        If an order or a total is wrong; the first one found is reported.
    PlanError
        If the memory limit is too small.
    StoreError
        If a layer is damaged.
    OutputError
        If the disk is full.
    """
    order = settings[1]
    plan = plan_orders(codes, sums, streams, order, limits)
    totals = np.zeros(4, np.int64)
    of = BlockReaches(codes, sums, streams, plan) if order == "horton" else None
    reaches = None if of is None else Reaches(of, folder or scratch_folder())
    numbers = _LinkNumbers(codes, streams) if order == "link" else None
    graphs = [graph for graph in (reaches, numbers) if graph is not None]

    def add(at: Block, summary: tuple[np.ndarray, Any]) -> None:
        counts, reaches = summary
        totals[:] += counts
        for graph in graphs:
            graph.add(at, reaches)

    layers = codes, sums, streams
    check, reads = partial(_check, layers, settings, of), [Read(layer, 1) for layer in layers]
    with nullcontext() if reaches is None else closing(reaches):
        check_blocks(plan, codes.blocks, reads, check, add, limits)
        for graph in graphs:
            graph.check()
    totals_by_name = dict(zip(("cells", "links", "heads", "outlets"), totals.tolist(), strict=True))
    for name, value in totals_by_name.items():
        wrong_totals(streams, name, value, expected.get(name))
    return totals_by_name


def _check(
    layers: tuple[Any, Any, Any],
    settings: tuple[int | float, str],
    reaches: BlockReaches | None,
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
        problem = f"order {data[2][row + 1, col + 1]} {FAULTS[fault]}"
        wrong(streams, problem, order, r0 + row, c0 + col)
    if reaches is not None:
        return counts, reaches.of(window, data, bound)
    runs = _runs_of(begins, data[2], (r0, c0, codes.grid.cols)) if order == "link" else None
    return counts, runs


def _runs_of(begins: np.ndarray, stored: np.ndarray, corner: tuple[int, int, int]) -> np.ndarray:
    """Summarise the numbers of the links that begin in a block, row by row.

    Returns
    -------
    int64, shape (6, n)
        For each row with links: the cell and number of its first link, and the count of its links;
        then the index of the first link whose number is not the one before it plus 1 (-1 for none),
        its cell and its number.
    """
    r0, c0, cols = corner
    rows = []
    for row in np.flatnonzero(begins.any(axis=1)).tolist():
        col = np.flatnonzero(begins[row])
        numbers = stored[row + 1, col + 1].astype(np.int64)
        cell = (r0 + row) * cols + c0 + col
        bad = np.append(np.flatnonzero(numbers - numbers[0] != np.arange(len(col))), -1)[0]
        rows.append((cell[0], numbers[0], len(col), bad, cell[bad], numbers[bad]))
    return np.array(rows, np.int64).reshape(-1, 6).T


class _LinkNumbers:
    """The numbers of links, joined for each row of blocks."""

    def __init__(self, codes: Readable, streams: Readable) -> None:
        self._codes, self._streams = codes, streams
        self._runs: dict[int, list[np.ndarray]] = {}
        self._rows: dict[int, tuple[int, list[tuple[int, int, int]]]] = {}

    def add(self, at: Block, runs: np.ndarray) -> None:
        of_row = self._runs.setdefault(at[0], [])
        of_row.append(runs)
        if len(of_row) == self._codes.blocks.shape[1]:
            self._rows[at[0]] = self._joined(np.concatenate(self._runs.pop(at[0]), axis=1))

    def _joined(self, runs: np.ndarray) -> tuple[int, list[tuple[int, int, int]]]:
        """Return the number of links that begin in a row of blocks, and links to check.

        These are its first link, and the first one whose number does not follow from that: position
        in the row of blocks, cell and number of each.
        """
        first, number, count, bad, cell, bad_number = runs[:, np.argsort(runs[0])]
        positions = np.cumsum(count) - count
        links = list(zip(positions.tolist(), first.tolist(), number.tolist(), strict=True))[:1]
        away = number != number[:1] + positions
        for k in np.flatnonzero(away | (bad >= 0))[:1].tolist():
            right = int(positions[k]), int(first[k]), int(number[k])
            within = int(positions[k] + bad[k]), int(cell[k]), int(bad_number[k])
            links.append(right if away[k] else within)
        return int(count.sum()), links

    def check(self) -> None:
        """Raise an error for the first link whose number is not its position."""
        before = 0
        for i in sorted(self._rows):
            count, links = self._rows[i]
            for position, cell, number in links:
                if number != before + position + 1:
                    row, col = divmod(cell, self._codes.grid.cols)
                    problem = f"number {number} of link {before + position + 1}"
                    wrong(self._streams, problem, "link", row, col)
            before += count


def recorded_channels(recorded: RunRecord) -> tuple[Layer, Layer, int | float]:
    """Return the directions, the sums, and the smallest sum of a channel, of a layer of streams."""
    codes, sums = (recorded.input(recorded.get(k, str)) for k in ("streams_of", "accumulation"))
    least: Any = recorded.settings.get("least")
    if type(least) not in (int, float) or not least > 0:
        raise recorded.damaged("least", least)
    return codes, sums, least


def verify_stored_orders(store: TileStore, layer: Layer, limits: Limits) -> Findings:
    """Check a layer with `verify_orders` and the settings recorded with it."""
    recorded = RunRecord(store, layer)
    codes, sums, least = recorded_channels(recorded)
    order = recorded.get("order", str)
    if layer.dtype.kind not in "ui" or layer.blocks != codes.blocks or sums.blocks != codes.blocks:
        raise recorded.damaged("data_type", layer.dtype.name)
    if order not in RULES:
        raise recorded.damaged("order", order)
    return verify_orders(codes, sums, layer, (least, order), recorded.result, limits)
