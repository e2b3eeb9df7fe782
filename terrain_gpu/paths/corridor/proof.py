"""Proof that a layer is the corridor of layers of distances: `verify_corridor`.

The proof takes one pass. Every cell must follow from the distances there and the recorded optima,
and each optimum must be the least sum of its two distances. The operation masks whole arrays pair
by pair; here nodata cells stay NaN, and paths that cost too much become NaN.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from ...cells import is_nodata
from ...engine.plan import StreamPlan
from ...engine.proof import Limits, Read, RunRecord, check_blocks, plan_proof, wrong, wrong_totals
from ...facts import Findings
from ...grid import Block, BlockGrid
from ...store import Layer, TileStore
from ...store.readable import Readable, Typed

_STRIP = 1 << 15
"""Number of cells computed at a time, so that temporary arrays stay in the cache."""


class Stated(NamedTuple):
    """The recorded properties of a corridor.

    Attributes
    ----------
    pairs
        Numbers of the layers of each pair.
    optima
        The least cost between the sources of each pair; NaN where there is no path.
    within, share
        The largest excess of a path's cost over the optimum: a cost, or a fraction of the optimum.
    """

    pairs: tuple[tuple[int, int], ...]
    optima: tuple[float, ...]
    within: float | None = None
    share: float | None = None

    def over(self, costs: Sequence[np.ndarray]) -> tuple[np.ndarray, list[float]]:
        """The expected cells, and the least sum of each pair in them; NaN for none."""
        right, least = np.full(costs[0].shape, np.nan), []
        reached = [not np.isnan(one).all() for one in costs]
        for optimum, (one, other) in zip(self.optima, self.pairs, strict=True):
            if not (reached[one] and reached[other]):
                least.append(math.nan)
                continue
            ways = np.add(costs[one], costs[other])
            ways[np.isposinf(ways)] = np.nan
            least.append(float(np.fmin.reduce(ways, axis=None)))
            ways = np.subtract(ways, optimum)
            allowed = self.within if self.share is None else self.share * optimum
            bad = np.isposinf(ways) if allowed is None else ~(ways <= allowed)
            right = np.fmin(right, np.where(bad, np.nan, ways))
        return right, least


def verify_corridor(
    stated: Stated, distances: Mapping[str, Any], corridor: Readable, limits: Limits
) -> Findings:
    """Check every cell of a layer that `corridor` has written, and the optima.

    Parameters
    ----------
    distances
        The layers of distances by name, in the order of the arguments.
    corridor
        The layer.

    Returns
    -------
    dict
        "cells", the number of valid cells.

    Raises
    ------
    VerificationError
        at the first wrong cell found, or for a wrong optimum.
    PlanError
        when the memory limit is too small.
    StoreError
        when a layer is damaged.
    """
    blocks: BlockGrid = corridor.blocks
    plan, reads = plan_corridor_proof(blocks, list(distances.values()), corridor, limits)
    cells, least = 0, np.full(len(stated.optima), np.nan)

    def add(_: Block, found: tuple[int, np.ndarray]) -> None:
        nonlocal cells, least
        cells, least = cells + found[0], np.fmin(least, found[1])

    check_blocks(plan, blocks, reads, partial(_check, stated, corridor, reads), add, limits)
    names = list(distances)
    for pair, found, optimum in zip(stated.pairs, least.tolist(), stated.optima, strict=True):
        if not (math.isnan(found) and math.isnan(optimum)):
            one, other = (names[k] for k in pair)
            wrong_totals(corridor, f"from {one} to {other}", found, optimum)
    return {"cells": cells}


def _check(
    stated: Stated, corridor: Readable, reads: list[Read], at: Block, data: list[np.ndarray]
) -> tuple[int, np.ndarray]:
    """Check the cells of a block; return the number of valid cells, and the least sums."""
    r0, _, c0, c1 = corridor.blocks.window(*at)
    step, valid, least = max(_STRIP // (c1 - c0), 1), 0, np.full(len(stated.optima), np.nan)
    for top in range(0, len(data[0]), step):
        here, *given = (cells[top : top + step] for cells in data)
        costs = [cells.astype(np.float64) for cells in given]
        for cost, cells, (layer, _) in zip(costs, given, reads[1:], strict=True):
            cost[is_nodata(cells, layer.nodata)] = np.nan
        with np.errstate(over="ignore", invalid="ignore"):
            right, found = stated.over(costs)
        least = np.fmin(least, found)
        void = np.isnan(right)
        valid += void.size - int(np.count_nonzero(void))
        same = here.view(np.int64) == right.view(np.int64)
        faults = np.argwhere(~np.where(void, np.isnan(here), same))
        if len(faults):
            row, col = faults[0].tolist()
            value = "nodata" if void[row, col] else repr(float(right[row, col]))
            what = f"{here[row, col]!s} where the distances give {value}"
            wrong(corridor, what, "cells", r0 + top + row, c0 + col)
    return valid, least


def plan_corridor_proof(
    blocks: BlockGrid, distances: Sequence[Any], corridor: Typed, limits: Limits
) -> tuple[StreamPlan, list[Read]]:
    """Plan how blocks stream; `corridor` need not exist yet."""
    reads = [Read(corridor), *map(Read, distances)]
    worker = (9 * len(distances) + 64) * (_STRIP + blocks.block)
    held = 200 * math.comb(len(distances), 2)  # at most
    return plan_proof(
        blocks, reads, limits, worker=worker, held=held, measures=False, compiled=False
    ), reads


def verify_stored_corridor(store: TileStore, layer: Layer, limits: Limits) -> Findings:
    """Run `verify_corridor` with the settings recorded in a layer."""
    recorded = RunRecord(store, layer)
    names = recorded.get("corridor_of", list)
    if not all(isinstance(one, str) for one in names) or len(set(names)) < max(len(names), 2):
        raise recorded.damaged("corridor_of", names)
    for key in ("within", "share"):
        value = recorded.settings.get(key)
        if value is not None and not (_is_number(value) and value >= 0):
            raise recorded.damaged(key, value)
    if layer.dtype != np.float64:
        raise recorded.damaged("data_type", layer.dtype.name)
    chosen = _chosen(recorded, len(names))
    pairs = recorded.result.get("pairs")
    if not isinstance(pairs, list) or len(pairs) != len(chosen):
        raise recorded.damaged("pairs", pairs)
    optima = []
    for pair, (one, other) in zip(pairs, chosen, strict=True):
        optimum: Any = pair.get("optimum", "") if isinstance(pair, dict) else ""
        good = optimum is None or _is_number(optimum)
        if not good or (pair.get("from"), pair.get("to")) != (names[one], names[other]):
            raise recorded.damaged("pairs", pair)
        optima.append(math.nan if optimum is None else float(optimum))
    most = (recorded.settings.get(key) for key in ("within", "share"))
    stated = Stated(chosen, tuple(optima), *most)
    distances = {name: recorded.input(name) for name in names}
    for source in distances.values():
        if source.blocks != layer.blocks:
            raise recorded.damaged("corridor_of", source.name)
    return verify_corridor(stated, distances, layer, limits)


def _chosen(recorded: RunRecord, count: int) -> tuple[tuple[int, int], ...]:
    """The recorded numbers of layers of each pair; those of all pairs if there is no record."""
    every = tuple(combinations(range(count), 2))
    given = recorded.settings.get("chosen", every)
    if not isinstance(given, list | tuple) or not all(
        isinstance(one, list | tuple) for one in given
    ):
        raise recorded.damaged("chosen", given)
    found = tuple(map(tuple, given))
    if not set(found) <= set(every) or len(set(found)) < len(found):
        raise recorded.damaged("chosen", given)
    return found


def _is_number(value: Any) -> bool:
    """Whether a value is a number that is finite as a float."""
    most = sys.float_info.max
    return type(value) in (int, float) and -most <= value <= most
