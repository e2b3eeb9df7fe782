"""Proof that layers are Horn's slope and aspect: `verify_slopes`.

Every cell is computed again from its eight neighbours and compared bit for bit. The proof shares
nothing with the operation except the lengths of steps: it sums whole rows and columns. numpy's
arctangents may differ from the C library's in the last place, which a 32-bit result rarely shows; a
cell that differs is computed once more with the C library.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ...cells import differences, is_nodata
from ...engine.plan import StreamPlan
from ...engine.proof import Limits, Read, RunRecord, around, check_blocks, plan_proof, wrong
from ...facts import Findings
from ...grid import Block, GridSpec
from ...grid.lengths import step_lengths
from ...store import Layer, TileStore
from ...store.readable import Readable

KINDS = ("slope", "aspect")
_NODATA = np.float32(-9999)
_STRIP = 1 << 16
"""Number of cells computed at a time, so that temporaries stay in the cache."""


def verify_slopes(
    heights: Readable, results: Findings, limits: Limits, rise: float = 1.0
) -> Findings:
    """Check every cell of slopes, of aspects, or of both.

    Parameters
    ----------
    heights
        The layer that they were computed from.
    results
        Layers of float32, by their content: "slope", "aspect".
    rise
        See `units.rise_of`.

    Returns
    -------
    dict
        "cells", the number of cells with a slope.

    Raises
    ------
    VerificationError
        If a cell is wrong; the first one found is reported.
    PlanError
        If the memory limit is too small.
    StoreError
        If a layer is damaged.
    """
    plan, reads = plan_slopes(heights, results.values(), limits)
    cells = 0

    def add(at: Block, count: int) -> None:
        nonlocal cells
        cells += count

    check = partial(_check, heights, results, rise)
    check_blocks(plan, heights.blocks, reads, check, add, limits)
    return {"cells": cells}


def _check(
    heights: Readable, results: Findings, rise: float, at: Block, data: list[np.ndarray]
) -> int:
    """Check the cells of a block; return the number of cells with a slope."""
    grid = heights.grid
    across, down = (lengths / rise for lengths in _lengths(grid))
    r0, r1, c0, c1 = heights.blocks.window(*at)
    z, absent = data[0], is_nodata(data[0], heights.nodata)
    # Cells outside the raster count as nodata.
    absent[0] |= r0 == 0
    absent[-1] |= r1 == grid.rows
    absent[:, 0] |= c0 == 0
    absent[:, -1] |= c1 == grid.cols
    step, count = max(_STRIP // (c1 - c0), 1), 0
    for top in range(0, r1 - r0, step):
        rows, ring = slice(top, top + step), slice(top, top + step + 2)
        east, south, without = _gradients(
            z[ring], absent[ring], across[r0:r1][rows], down[r0:r1][rows]
        )
        count += without.size - int(without.sum())
        for (kind, layer), cells_of in zip(results.items(), data[1:], strict=True):
            fault = _first_wrong(kind, east, south, without, cells_of[rows])
            if fault is not None:
                row, col, right = fault
                value = cells_of[top + row, col]
                problem = f"{kind} is {value!s} but should be {right!s}"
                wrong(layer, problem, kind, r0 + top + row, c0 + col)
    return count


def plan_slopes(
    heights: Readable, results: Iterable[Any], limits: Limits
) -> tuple[StreamPlan, list[Read]]:
    """Plan the pass; `results` need not exist yet."""
    blocks = heights.blocks
    reads = [Read(heights, 1), *(Read(layer) for layer in results)]
    worker = 3 * blocks.largest(1) + 160 * (_STRIP + 2 * blocks.block)
    return plan_proof(blocks, reads, limits, worker=worker), reads


def verify_stored_slopes(store: TileStore, layer: Layer, limits: Limits) -> Findings:
    """Check one layer with `verify_slopes` and the settings recorded with it."""
    recorded = RunRecord(store, layer)
    heights = recorded.input(recorded.get("slope_of", str))
    kind = layer.info.get("holds")
    if kind is None and not recorded.get("aspect", bool):
        kind = "slope"  # an earlier version did not record it
    if kind not in KINDS or layer.dtype.name != "float32" or layer.blocks != heights.blocks:
        raise recorded.damaged("holds", kind)
    rise = recorded.settings.get("rise", 1.0)
    if type(rise) is not float or not 0 < abs(rise) < math.inf:
        raise recorded.damaged("rise", rise)
    return verify_slopes(heights, {kind: layer}, limits, rise)


@lru_cache(maxsize=1)
def _lengths(grid: GridSpec) -> tuple[np.ndarray, np.ndarray]:
    """Return each row's length of two steps east, and of two steps south centred on the row."""
    east, _, south, *_ = step_lengths(grid)
    west = grid.transform[0] < 0
    north = grid.transform[4] > 0
    across, down = east + east, south + np.append(south[:1], south[:-1])
    return (-across if west else across), (-down if north else down)


def _gradients(
    z: np.ndarray, absent: np.ndarray, across: np.ndarray, down: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rise to the east and south, and the mask of cells without them.

    `z` and `absent` have a margin of one cell.
    """
    middle = z[1:-1, 1:-1]
    exact = z.dtype.kind in "iu" and z.itemsize == 8  # relative to each cell, as float64 holds them
    z = z if exact else z.astype(np.float64)

    def line(*offsets: tuple[int, int]) -> np.ndarray:
        """Return the sum of three neighbours' elevations, the second counted twice."""
        parts = [z[y : y + len(middle), x : x + middle.shape[1]] for y, x in offsets]
        one, two, three = (differences(part, middle) for part in parts) if exact else parts
        total: np.ndarray = one + 2 * two + three
        return total

    with np.errstate(all="ignore"):  # nodata cells
        east = line((0, 2), (1, 2), (2, 2)) - line((0, 0), (1, 0), (2, 0))
        south = line((2, 0), (2, 1), (2, 2)) - line((0, 0), (0, 1), (0, 2))
        east, south = east / (4 * across[:, None]), south / (4 * down[:, None])
    return east, south, around(absent)


def _first_wrong(
    kind: str, east: np.ndarray, south: np.ndarray, without: np.ndarray, stored: np.ndarray
) -> tuple[int, int, np.float32] | None:
    """Return row, column and right value of the first wrong cell."""
    with np.errstate(all="ignore"):
        if kind == "slope":
            right = np.degrees(1) * np.arctan(np.sqrt(east * east + south * south))
        else:
            right = np.degrees(1) * np.arctan2(-east, south)
            right[right < 0] += 360
            without = without | ((east == 0) & (south == 0))
        right = right.astype(np.float32)
    right[without] = _NODATA
    differs = right.view(np.uint32) != stored.view(np.uint32)
    for row, col in np.argwhere(differs).tolist():
        value = right[row, col]
        if not without[row, col]:
            value = _by_library(kind, float(east[row, col]), float(south[row, col]))
        stored_value = stored[row, col]
        same = value.view(np.uint32) == stored_value.view(np.uint32)
        if not same and not (np.isnan(value) and np.isnan(stored_value)):
            return row, col, value
    return None


def _by_library(kind: str, east: float, south: float) -> np.float32:
    degrees = 180 / math.pi
    if kind == "slope":
        return np.float32(degrees * math.atan(math.sqrt(east * east + south * south)))
    downhill = degrees * math.atan2(-east, south)
    return np.float32(downhill + 360 if downhill < 0 else downhill)
