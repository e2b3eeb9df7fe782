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
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...engine.plan import StreamPlan
from ...engine.proof import (
    Limits,
    Read,
    RunRecord,
    check_blocks,
    plan_proof,
    wrong,
    wrong_totals,
)
from ...errors import InputError
from ...grid import Block
from ...store import Layer, TileStore
from ..codes import end_ways
from .stream_kernels import FAULTS, OF_SUMS, check_orders

RULES = ("strahler", "shreve", "hack", "topological", "link")
"""The orders that have a proof."""
_LINK_BYTES = 48


def plan_orders(codes: Any, sums: Any, streams: Any, limits: Limits, links: int = 0) -> StreamPlan:
    """How blocks stream through the check; `streams` need not exist yet.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    reads = [Read(layer, 1) for layer in (codes, sums, streams)]
    worker, held = codes.blocks.block**2, _LINK_BYTES * links
    return plan_proof(codes.blocks, reads, limits, worker=worker, held=held)


def refuse_unproven(order: str) -> None:
    """Refuse to verify an order without a proof.

    Raises
    ------
    InputError
    """
    if order not in RULES:
        raise InputError(
            f"verify (--verify): there is no proof of {order} orders, which no rule tells from "
            f"neighbouring cells; leave it out, or write {', '.join(RULES[:-1])} or {RULES[-1]}"
        )


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
    least, order = settings
    refuse_unproven(order)
    blocks, cols = codes.blocks, codes.grid.cols
    numbered = order == "link"
    links = expected.get("links")
    known = links if numbered and type(links) is int and 0 <= links <= codes.grid.cells else 0
    plan = plan_orders(codes, sums, streams, limits, known)
    totals = np.zeros(4, np.int64)
    starts: list[np.ndarray] = []

    def check(at: Block, data: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        r0, r1, c0, c1 = window = blocks.window(*at)
        end_ways(codes, codes.grid, window, data[0])
        begins, counts = np.empty((r1 - r0, c1 - c0), bool), np.empty(4, np.int64)
        bound = sums.dtype.type(least)
        strict = sums.dtype.kind == "i"
        rule = RULES.index(order)
        fault, row, col = check_orders(*data, bound, strict, rule, begins, counts)
        if fault >= OF_SUMS:
            code = data[0][row + 1, col + 1]
            wrong(codes, f"direction {code} {FAULTS[fault]}", "direction", r0 + row, c0 + col)
        if fault:
            what = f"order {data[2][row + 1, col + 1]} {FAULTS[fault]}"
            wrong(streams, what, order, r0 + row, c0 + col)
        row, col = np.nonzero(begins) if numbered else np.empty((2, 0), np.int64)
        ids = (r0 + row) * cols + c0 + col
        return counts, np.stack((ids, data[2][row + 1, col + 1].astype(np.int64)))

    def add(at: Block, found: tuple[np.ndarray, np.ndarray]) -> None:
        counts, numbers = found
        totals[:] += counts
        if numbered:
            starts.append(numbers)
            if totals[1] > known:
                wrong_totals(streams, "links or more", int(totals[1]), links)

    reads = [Read(layer, 1) for layer in (codes, sums, streams)]
    check_blocks(plan, blocks, reads, check, add, limits.progress)
    if numbered:
        cells, numbers = np.concatenate(starts, axis=1)
        numbers = numbers[np.argsort(cells)]
        cells.sort()
        for k in np.flatnonzero(numbers != np.arange(1, len(numbers) + 1))[:1].tolist():
            row, col = divmod(int(cells[k]), cols)
            wrong(streams, f"number {numbers[k]} of link {k + 1}", order, row, col)
    found = dict(zip(("cells", "links", "heads", "outlets"), totals.tolist(), strict=True))
    for name, value in found.items():
        wrong_totals(streams, name, value, expected.get(name))
    return found


def verify_stored_orders(store: TileStore, layer: Layer, limits: Limits) -> dict[str, Any]:
    """`verify_orders` of a layer, from what is recorded with it."""
    recorded = RunRecord(store, layer)
    codes, sums = (recorded.input(recorded.get(k, str)) for k in ("streams_of", "accumulation"))
    least: Any = recorded.settings.get("least")
    order = recorded.get("order", str)
    if type(least) not in (int, float) or not least > 0:
        raise recorded.damaged("least", least)
    if layer.dtype.kind not in "ui" or layer.blocks != codes.blocks or sums.blocks != codes.blocks:
        raise recorded.damaged("data_type", layer.dtype.name)
    if order not in RULES:
        return {"verified": False, "unproven": f"there is no proof of {order} orders"}
    return verify_orders(codes, sums, layer, (least, order), recorded.result, limits)
