"""Proof that streams are burned into a DEM: `verify_burn`.

Every cell is unchanged, bit for bit, or lowered by the depth; and the lowered cells are those that
were given, by number and digest.
"""

from __future__ import annotations

import hashlib
from functools import partial

import numpy as np

from ...cells import is_nodata
from ...engine.plan import StreamPlan
from ...engine.proof import Limits, Read, RunRecord, check_blocks, plan_proof, wrong, wrong_totals
from ...errors import VerificationError
from ...facts import Findings
from ...grid import Block
from ...store import Layer, TileStore
from ...store.readable import Readable, Typed


def plan_burn_proof(heights: Readable, burned: Typed, cells: int, limits: Limits) -> StreamPlan:
    """Plan the pass for this number of lowered cells; the layer `burned` need not exist yet."""
    size = heights.blocks.largest()
    reads = [Read(heights), Read(burned)]
    worker = 2 * size + 48 * min(cells, size)
    return plan_proof(heights.blocks, reads, limits, worker=worker, held=16 * cells, measures=False)


def verify_burn(
    heights: Readable,
    burned: Readable,
    depth: float,
    digest: str,
    recorded: Findings,
    limits: Limits,
) -> Findings:
    """Check the elevation of every cell.

    Parameters
    ----------
    heights, burned
        Layers of elevations, before and after.
    depth
        The amount by which cells are lowered.
    digest
        Digest of the sorted ids of the lowered cells.
    recorded
        The recorded totals: the number of lowered cells, "burned".

    Returns
    -------
    dict
        The number of lowered cells, "burned".

    Raises
    ------
    VerificationError
        If a cell is wrong, or other cells are lowered; the first fault found is reported.
    PlanError
        If the memory limit is too small.
    StoreError
        If a layer is damaged.
    """
    count, lowered, total = recorded["burned"], list[np.ndarray](), 0
    plan = plan_burn_proof(heights, burned, count, limits)

    def add(_: Block, ids: np.ndarray) -> None:
        nonlocal total
        total += len(ids)
        if total > count:
            wrong_totals(burned, "or more cells burned", total, count)
        lowered.append(ids)

    reads = [Read(heights), Read(burned)]
    check = partial(_check, heights, burned, depth)
    check_blocks(plan, heights.blocks, reads, check, add, limits)
    wrong_totals(burned, "cells burned", total, count)
    ids = np.sort(np.concatenate(lowered))
    if hashlib.sha256(ids.astype("<i8").tobytes()).hexdigest() != digest:
        raise VerificationError(
            f"{burned.path}: the lowered cells are not those that were given; compute it again "
            "with --overwrite",
            "cells",
        )
    return {"burned": total}


def _check(
    heights: Readable, burned: Readable, depth: float, at: Block, data: list[np.ndarray]
) -> np.ndarray:
    """Check the cells of a block; return the ids of those that are lowered."""
    word = f"u{heights.dtype.itemsize}"
    before, after = data
    r0, _, c0, _ = heights.blocks.window(*at)
    row, col = np.nonzero(before.view(word) != after.view(word))
    high, low = before[row, col], after[row, col]
    good = ~is_nodata(high, heights.nodata) & ~is_nodata(low, heights.nodata) & (low < high)
    if high.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            good &= low == np.subtract(high, depth, dtype=np.float64).astype(high.dtype)
    else:  # the difference, modulo the size of a word
        good &= np.subtract(high.view(word), low.view(word)) == depth
    if not good.all():
        k = int(np.argmin(good))
        problem = f"elevation {low[k]!s}; it was {high[k]!s}, and may be lowered by {depth} only"
        wrong(burned, problem, "height", r0 + int(row[k]), c0 + int(col[k]))
    return (r0 + row.astype(np.int64)) * heights.grid.cols + c0 + col


def verify_stored_burn(store: TileStore, layer: Layer, limits: Limits) -> Findings:
    """Check a layer with `verify_burn` and the settings recorded with it."""
    recorded = RunRecord(store, layer)
    heights = recorded.input(recorded.get("burn_of", str))
    kind = float if heights.dtype.kind == "f" else int
    depth, digest = recorded.get("depth", kind), recorded.get("streams", str)
    if not depth > 0:
        raise recorded.damaged("depth", depth)
    count = recorded.result.get("burned")
    if type(count) is not int or count < 1:
        raise recorded.damaged("burned", count)
    if layer.dtype != heights.dtype or layer.blocks != heights.blocks:
        raise recorded.damaged("data_type", layer.dtype.name)
    return verify_burn(heights, layer, depth, digest, recorded.result, limits)
