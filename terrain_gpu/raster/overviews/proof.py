"""Proof that a layer is the overview of a finer one: `verify_overview`.

Every cell is computed again and compared bit for bit. The proof shares nothing with the operation:
it joins whole rows and columns in pairs.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...cells import is_nodata
from ...engine.proof import Limits, RunRecord, check_blocks, plan_threads, wrong
from ...errors import StoreError
from ...facts import Findings
from ...grid import Block
from ...store import Layer, TileStore
from ...store.levels import place_of, root_of
from ...store.manage import is_coded

_STRIP = 64
"""Number of rows of the finer layer checked at a time."""


def verify_overview(fine: Any, coarse: Any, method: str, limits: Limits) -> Findings:
    """Check every cell of an overview.

    Parameters
    ----------
    fine
        The layer that it was made from.
    method
        The resampling method.

    Returns
    -------
    dict
        "cells", the number of valid cells.

    Raises
    ------
    VerificationError
        If a cell is wrong; the first one found is reported.
    PlanError
        If the memory limit is too small.
    StoreError
        If a layer is damaged.
    """
    cells = 0

    def add(at: Block, count: int) -> None:
        nonlocal cells
        cells += count

    side = min(fine.block_size, max(coarse.grid.shape))
    one = side * fine.dtype.itemsize * (2 * fine.block_size + 2 * side) + 160 * _STRIP * side
    plan = plan_threads(coarse.blocks, coarse.dtype.name, limits.checkers, one, limits)
    check_blocks(plan, coarse.blocks, [], partial(_check, fine, coarse, method), add, limits)
    return {"cells": cells}


def verify_stored_overview(store: TileStore, layer: Layer, limits: Limits) -> Findings:
    """Check a layer of a level with `verify_overview` and the settings recorded with it."""
    recorded = RunRecord(store, layer)
    root, factor = root_of(store.path)
    fine = TileStore.open(place_of(root, factor)).layer(recorded.get("overview_of", str))
    if recorded.get("finer", str) != fine.identity:
        raise StoreError(
            f"{layer.path}: made from other cells than {fine.path} holds now; build it again"
        )
    method = recorded.get("resampling", str)
    if method == "average" and is_coded(fine):
        raise StoreError(
            f"{layer.path}: averages of codes or labels are meaningless; build it again"
        )
    return verify_overview(fine, layer, method, limits)


def _check(fine: Any, coarse: Any, method: str, at: Block, _: object) -> int:
    """Check the cells of a block; return the number of valid cells."""
    r0, r1, c0, c1 = coarse.blocks.window(*at)
    stored, cells = coarse.read_block(*at), 0
    rows, cols = fine.grid.shape
    for top in range(2 * r0, min(2 * r1, rows), _STRIP):
        bottom = min(top + _STRIP, 2 * r1, rows)
        part = fine.read_window(top, bottom, 2 * c0, min(2 * c1, cols))
        right = _reduced(part, fine.nodata, method)
        stored_rows = stored[top // 2 - r0 : top // 2 - r0 + len(right)]
        kind = f"u{right.dtype.itemsize}"
        if (differs := right.view(kind) != stored_rows.view(kind)).any():
            row, col = np.argwhere(differs)[0].tolist()
            problem = f"{stored_rows[row, col]!s} where {method} gives {right[row, col]!s}"
            wrong(coarse, problem, "overview", top // 2 + row, c0 + col)
        cells += int((~is_nodata(right, fine.nodata)).sum())
    return cells


def _reduced(part: np.ndarray, nodata: float | int | None, method: str) -> np.ndarray:
    """Reduce the cells of some rows, an even number except at the end of the raster."""
    if method == "nearest":
        return part[::2, ::2]
    odd = [(0, side % 2) for side in part.shape]
    z, ok = np.pad(part, odd), np.pad(~is_nodata(part, nodata), odd)
    any_valid = _any(ok)
    with np.errstate(over="ignore", invalid="ignore"):
        result = {"average": _mean, "mode": _most}.get(method, partial(_extreme, method))(z, ok)
    if method == "average":
        chance = is_nodata(result, nodata)
        result[chance] = _first(z, ok)[chance]
    void = np.nan if z.dtype.kind == "f" else 0
    result[~any_valid] = void if nodata is None else nodata
    return result


def _fours(cells: np.ndarray) -> np.ndarray:
    """Return the four cells of each result in row-major order, along the last axis."""
    high, wide = cells.shape[0] // 2, cells.shape[1] // 2
    return cells.reshape(high, 2, wide, 2).swapaxes(1, 2).reshape(high, wide, 4)


def _any(ok: np.ndarray) -> np.ndarray:
    rows = ok[::2] | ok[1::2]
    return rows[:, ::2] | rows[:, 1::2]


def _sum(cells: np.ndarray) -> np.ndarray:
    pairs = cells[:, ::2] + cells[:, 1::2]
    return pairs[::2] + pairs[1::2]


def _mean(z: np.ndarray, ok: np.ndarray) -> np.ndarray:
    count = np.maximum(_sum(ok.astype(np.int64)), 1)
    real = np.where(ok, z, 0).astype(np.float64)
    mean = _sum(real) / count
    if (beyond := ~np.isfinite(mean)).any():
        mean[beyond] = _sum(real / count.repeat(2, axis=0).repeat(2, axis=1))[beyond]
    return (np.rint(mean) if z.dtype.kind in "iu" else mean).astype(z.dtype)


def _extreme(method: str, z: np.ndarray, ok: np.ndarray) -> np.ndarray:
    limits = np.finfo(z.dtype) if z.dtype.kind == "f" else np.iinfo(z.dtype)
    if method == "min":
        return _fours(np.where(ok, z, limits.max)).min(axis=2) + z.dtype.type(0)
    return _fours(np.where(ok, z, limits.min)).max(axis=2) + z.dtype.type(0)


def _most(z: np.ndarray, ok: np.ndarray) -> np.ndarray:
    cells, good = _fours(z), _fours(ok)
    result, best = cells[:, :, 0].copy(), np.zeros(cells.shape[:2], np.int64)
    for k in (3, 2, 1, 0):
        times = ((cells == cells[:, :, k : k + 1]) & good).sum(axis=2)
        take = good[:, :, k] & (times >= best)
        result[take], best[take] = cells[:, :, k][take], times[take]
    return result


def _first(z: np.ndarray, ok: np.ndarray) -> np.ndarray:
    cells, good = _fours(z), _fours(ok)
    result = cells[:, :, 3].copy()
    for k in (2, 1, 0):
        result[good[:, :, k]] = cells[:, :, k][good[:, :, k]]
    return result
