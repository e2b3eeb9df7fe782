"""Proof that layers of terrain indices are right: `verify_indices`.

Every cell is computed again with numpy and compared bit for bit. numpy's functions may differ from
the C library's in the last place, which a 32-bit result rarely shows. A cell that differs is
computed once more with the C library.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial

import numpy as np

from ...engine.plan import StreamPlan
from ...engine.proof import Limits, Read, RunRecord, check_blocks, plan_proof, wrong
from ...facts import Findings
from ...grid import Block
from ...store import Layer, TileStore
from ...store.readable import Typed
from .rule import DTYPE, KINDS, NODATA, PLOT, PLOT_SINE, RADIANS, IndexRule, check_inputs

_STRIP = 1 << 16
"""Number of cells computed at a time, so that temporaries stay in the cache."""


def verify_indices(rule: IndexRule, results: Findings, limits: Limits) -> Findings:
    """Check every cell of the layers.

    Parameters
    ----------
    results
        Layers of float32, by kind: "twi", "spi", "ls".

    Returns
    -------
    dict
        "cells", the number of cells with indices.

    Raises
    ------
    VerificationError
        If a cell is wrong; the first one found is reported.
    PlanError
        If the memory limit is too small.
    StoreError
        If a layer is damaged.
    """
    plan, reads = plan_indices_proof(rule, results.values(), limits)
    cells = 0

    def add(at: Block, count: int) -> None:
        nonlocal cells
        cells += count

    check_blocks(plan, rule.blocks, reads, partial(_check, rule, results), add, limits)
    return {"cells": cells}


def _check(rule: IndexRule, results: Findings, at: Block, data: list[np.ndarray]) -> int:
    """Check the cells of a block; return the number with indices."""
    r0, r1, c0, c1 = rule.blocks.window(*at)
    step, count = max(_STRIP // (c1 - c0), 1), 0
    for top in range(0, r1 - r0, step):
        slopes, sums, *stored = (one[top : top + step] for one in data)
        first = r0 + top
        absent = rule.absent((first, first + len(slopes), c0, c1), slopes, sums)
        count += absent.size - int(np.count_nonzero(absent))
        areas = sums * rule.per_width[first : first + len(slopes), None]
        for (kind, layer), values in zip(results.items(), stored, strict=True):
            right = _indices(kind, areas, slopes, rule.least_tangent, absent)
            differs = right.view(np.uint32) != values.view(np.uint32)
            for row, col in np.argwhere(differs).tolist():
                one = areas[row, col], float(slopes[row, col]), rule.least_tangent
                again = right[row, col] if absent[row, col] else _by_library(kind, *one)
                if again.view(np.uint32) != values[row, col].view(np.uint32):
                    problem = f"{kind} {values[row, col]!s} should be {again!s}"
                    wrong(layer, problem, kind, first + row, c0 + col)
    return count


def plan_indices_proof(
    rule: IndexRule, results: Iterable[Typed], limits: Limits
) -> tuple[StreamPlan, list[Read]]:
    """Plan the pass; `results` need not exist yet."""
    reads = [Read(rule.slopes), Read(rule.sums), *(Read(layer) for layer in results)]
    worker = 100 * (_STRIP + rule.blocks.block)
    return plan_proof(rule.blocks, reads, limits, worker=worker), reads


def verify_stored_indices(store: TileStore, layer: Layer, limits: Limits) -> Findings:
    """Check one layer with `verify_indices` and the settings recorded with it."""
    recorded = RunRecord(store, layer)
    slopes = recorded.input(recorded.get("indices_of", str))
    sums = recorded.input(recorded.get("accumulation", str))
    check_inputs(slopes, sums)
    least, kind = recorded.get("min_slope", float), layer.info.get("holds")
    if not 0 < least < 90:
        raise recorded.damaged("min_slope", least)
    rule = IndexRule(slopes, sums, least)
    if kind not in KINDS or layer.dtype != DTYPE or layer.blocks != rule.blocks:
        raise recorded.damaged("holds", kind)
    return verify_indices(rule, {kind: layer}, limits)


def _indices(
    kind: str, areas: np.ndarray, slopes: np.ndarray, least: float, absent: np.ndarray
) -> np.ndarray:
    angles = slopes.astype(np.float64) * RADIANS
    with np.errstate(all="ignore"):  # cells that are nodata
        if kind == "twi":
            values = np.log(areas / np.maximum(np.tan(angles), least))
        elif kind == "spi":
            values = areas * np.tan(angles)
        else:
            values = (areas / PLOT) ** 0.4 * (np.sin(angles) / PLOT_SINE) ** 1.3
        right = values.astype(np.float32)
    right[absent] = NODATA
    return right


def _by_library(kind: str, area: float, slope: float, least: float) -> np.float32:
    angle = slope * RADIANS
    if kind == "twi":
        return np.float32(math.log(area / max(math.tan(angle), least)))
    if kind == "spi":
        return np.float32(area * math.tan(angle))
    return np.float32((area / PLOT) ** 0.4 * (math.sin(angle) / PLOT_SINE) ** 1.3)
