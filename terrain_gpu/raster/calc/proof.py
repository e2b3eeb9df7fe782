"""Proof that a layer holds the results of an expression: `verify_calc`.

Every cell is computed again by `proof_evaluation` and compared; floats are compared bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...cells import is_nodata
from ...engine.plan import StreamPlan
from ...engine.proof import Limits, Read, RunRecord, check_blocks, plan_proof, wrong
from ...errors import InputError
from ...facts import Findings
from ...grid import Block, BlockGrid
from ...store import Layer, TileStore
from .arithmetic import Arithmetic
from .proof_evaluation import REAL, WHOLE, evaluate

_STRIP = 1 << 15
"""Number of cells computed at a time, so that temporaries stay in the cache."""


_CLASS_VALUES = (int, float, type(None))


class Sought(NamedTuple):
    """The rule for the values of cells.

    Attributes
    ----------
    expression
        The text of the expression.
    parts
        At least the number of its operations, layers and numbers, which limits its memory.
    classes
        Values that replace results, None for nodata; or None if results are not replaced.
    default
        What replaces other results: a number, or "nodata".
    """

    expression: str
    parts: int
    classes: Mapping[float, float | None] | None = None
    default: float | str | None = None

    def over(self, cells: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the right results, NaN for nodata."""
        results = evaluate(self.expression, cells)
        if self.classes is None:
            return results
        keys, index = np.unique(results, return_inverse=True)
        number = float if results.dtype == REAL else int
        other = None if isinstance(self.default, str) else self.default
        values = [None if np.isnan(key) else self.classes.get(number(key), other) for key in keys]
        right = np.array([math.nan if v is None else v for v in values], WHOLE)
        return right[index].reshape(results.shape)


def verify_calc(
    sought: Sought, sources: Mapping[str, Any], results: Any, limits: Limits
) -> Findings:
    """Check every cell of a layer that `calc` has written.

    Parameters
    ----------
    sources
        The layers of the expression, by name.
    results
        The layer; it has a nodata value, or holds floats.

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
    blocks = results.blocks
    plan, reads = plan_calc_proof(blocks, sources.values(), results, sought.parts, limits)
    cells = 0

    def add(at: Block, valid: int) -> None:
        nonlocal cells
        cells += valid

    check_blocks(plan, blocks, reads, partial(_check, sought, dict(sources), results), add, limits)
    return {"cells": cells}


def _check(
    sought: Sought, sources: Mapping[str, Any], results: Any, at: Block, data: list[np.ndarray]
) -> int:
    """Check the cells of a block; return the number of valid cells."""
    r0, r1, c0, c1 = results.blocks.window(*at)
    step, valid = max(_STRIP // (c1 - c0), 1), 0
    for top in range(0, r1 - r0, step):
        rows = slice(top, top + step)
        layers = {
            name: _with_nan(one[rows], layer.nodata)
            for (name, layer), one in zip(sources.items(), data[1:], strict=True)
        }
        right, stored = sought.over(layers), data[0][rows]
        valid += int(np.count_nonzero(~np.isnan(right)))
        faults = np.argwhere(_differ(right, stored, results.nodata))
        if len(faults):
            row, col = faults[0].tolist()
            value = "no value" if np.isnan(right[row, col]) else f"{right[row, col]!s}"
            problem = f"{stored[row, col]!s} where {sought.expression!r} gives {value}"
            wrong(results, problem, "cells", r0 + top + row, c0 + col)
    return valid


def plan_calc_proof(
    blocks: BlockGrid, sources: Iterable[Any], results: Any, parts: int, limits: Limits
) -> tuple[StreamPlan, list[Read]]:
    """Plan the pass; `results` need not exist yet."""
    reads = [Read(results), *map(Read, sources)]
    worker = 18 * (parts + 8) * (_STRIP + blocks.block)
    return plan_proof(blocks, reads, limits, worker=worker, measures=False, compiled=False), reads


def verify_stored_calc(store: TileStore, layer: Layer, limits: Limits) -> Findings:
    """Check a layer with `verify_calc` and the settings recorded with it."""
    recorded = RunRecord(store, layer)
    text, inputs = recorded.get("calc_of", str), recorded.inputs()
    try:
        parsed = Arithmetic(text, {name: one.dtype for name, one in inputs.items()})
    except InputError as error:
        raise recorded.damaged("calc_of", text) from error
    classes = _recorded_classes(recorded)
    default = recorded.settings.get("default")
    if not (default in (None, "nodata") or type(default) in (int, float)):
        raise recorded.damaged("default", default)
    if layer.dtype.kind != "f" and layer.nodata is None:
        raise recorded.damaged("nodata", layer.nodata)
    sources = {name: inputs[name] for name in parsed.layers}
    return verify_calc(Sought(text, parsed.parts, classes, default), sources, layer, limits)


def _recorded_classes(recorded: RunRecord) -> dict[float, float | None] | None:
    classes = recorded.settings.get("classes")
    if classes is None:
        return None
    values: dict[float, float | None] = {}
    pair: Any
    for pair in classes if isinstance(classes, list) else [None]:
        kinds = [type(one) for one in pair] if isinstance(pair, list) else []
        if len(kinds) != 2 or kinds[0] not in (int, float) or kinds[1] not in _CLASS_VALUES:
            raise recorded.damaged("classes", pair)
        values[pair[0]] = pair[1]
    return values


def _with_nan(cells: np.ndarray, nodata: float | int | None) -> np.ndarray:
    """Convert cells to the types of `proof_evaluation`."""
    values = cells.astype(REAL if cells.dtype.kind == "f" else WHOLE)
    values[is_nodata(cells, nodata)] = np.nan
    return values


def _differ(right: np.ndarray, stored: np.ndarray, nodata: float | int | None) -> np.ndarray:
    """Return the mask of cells that do not hold the right results."""
    void = np.isnan(right)
    if stored.dtype.kind != "f":
        return stored.astype(WHOLE) != np.where(void, WHOLE.type(nodata or 0), right)
    word = f"u{stored.dtype.itemsize}"
    with np.errstate(over="ignore", invalid="ignore"):
        same = right.astype(stored.dtype).view(word) == stored.view(word)
    return ~np.where(void, np.isnan(stored), same)
