"""Proof that features are in a layer: `verify_rasterized`.

The cells that differ from the original layer must be those that were given, with the given values,
by number and digest. A feature that changes nothing is not detected, and does not matter.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...engine.plan import StreamPlan
from ...engine.proof import Limits, Read, RunRecord, check_blocks, plan_proof, wrong_totals
from ...errors import VerificationError
from ...facts import Findings
from ...grid import Block, BlockGrid
from ...store import Layer, TileStore
from ...store.readable import Readable, Typed
from .changes import Changes, changes

_STRIP = 1 << 16
"""Number of cells compared at a time."""


def verify_rasterized(
    source: Readable | None, rasterized: Any, expected: Changes, limits: Limits
) -> Findings:
    """Compare every cell with what it was before.

    Parameters
    ----------
    source
        The original layer, of the same type; None for zeros.

    Returns
    -------
    dict
        "changed", the number of changed cells.

    Raises
    ------
    VerificationError
        If other cells have changed, or have other values.
    PlanError
        If the memory limit is too small.
    StoreError
        If a layer is damaged.
    """
    blocks: BlockGrid = rasterized.blocks
    plan, reads = plan_rasterized_proof(blocks, source, rasterized, limits)
    changes = Changes()

    def add(_: Block, mine: Changes) -> None:
        nonlocal changes
        changes = changes.plus(mine)

    check_blocks(plan, blocks, reads, partial(_changes, blocks), add, limits)
    wrong_totals(rasterized, "cells changed", changes.cells, expected.cells)
    if changes != expected:
        raise VerificationError(
            f"{rasterized.path}: the cells of features, or their values, are not those that were "
            "given; compute it again with --overwrite",
            "cells",
        )
    return {"changed": changes.cells}


def _changes(blocks: BlockGrid, at: Block, data: list[np.ndarray]) -> Changes:
    """Return the changes of the cells of a block."""
    r0, r1, c0, c1 = blocks.window(*at)
    step, mine = max(_STRIP // (c1 - c0), 1), Changes()
    for top in range(0, r1 - r0, step):
        after = data[0][top : top + step]
        before = np.zeros_like(after) if len(data) == 1 else data[1][top : top + step]
        rows = np.arange(r0 + top, r0 + top + len(after), dtype=np.int64)
        ids = rows[:, None] * blocks.cols + np.arange(c0, c1)
        mine = mine.plus(changes(ids, before, after))
    return mine


def plan_rasterized_proof(
    blocks: BlockGrid, source: Typed | None, rasterized: Any, limits: Limits
) -> tuple[StreamPlan, list[Read]]:
    """Plan the pass; the layer `rasterized` need not exist yet."""
    reads = [Read(rasterized), *([] if source is None else [Read(source)])]
    worker = 80 * (_STRIP + blocks.block)
    return plan_proof(blocks, reads, limits, worker=worker, measures=False, compiled=False), reads


def verify_stored_rasterized(store: TileStore, layer: Layer, limits: Limits) -> Findings:
    """Check a layer with `verify_rasterized` and the settings recorded with it."""
    recorded = RunRecord(store, layer)
    onto = recorded.settings.get("onto")
    if onto is not None and not isinstance(onto, str):
        raise recorded.damaged("onto", onto)
    source = None if onto is None else recorded.input(onto)
    if source is not None and (source.dtype, source.blocks) != (layer.dtype, layer.blocks):
        raise recorded.damaged("data_type", layer.dtype.name)
    count, digest = (recorded.result.get(key) for key in ("changed", "digest"))
    try:
        expected = Changes(count, int(digest, 16))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise recorded.damaged("digest", digest) from None
    if type(count) is not int:
        raise recorded.damaged("changed", count)
    return verify_rasterized(source, layer, expected, limits)
