"""Proof that the rain water is at rest and that none is lost: `verify_water`.

Water is at rest if no neighbour of a wet cell, dry or wet, has a lower surface. Depths are float32,
so surfaces agree only up to their last bits. The water on the cells is added up in whole units and
must equal the recorded sum bit for bit. The rain is added up again and must equal the water that
stays plus the water that left.

The proof does not show that the right depressions hold the water; that would mean filling all of
them again.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from ...cells import is_nodata
from ...engine.plan import StreamPlan
from ...engine.proof import Limits, Read, RunRecord, check_blocks, plan_proof, wrong, wrong_totals
from ...facts import Findings
from ...grid import Block
from ...grid.neighbours import COL_STEP, ROW_STEP
from ...store import Layer, TileStore
from ...store.readable import Readable, Typed
from ..common.relative import as_floats, base_of, largest_height
from ..forest.source import open_forest
from .rain import Rain

WORKER_BYTES = 80
"""Bytes per cell of a block."""


def verify_water(
    heights: Layer,
    depths: Readable,
    connectivity: int,
    rain: Rain,
    recorded: Findings,
    limits: Limits,
) -> Findings:
    """Check the depth of every cell, and all sums.

    Parameters
    ----------
    heights, depths
        Layers of elevations and of depths of water.
    connectivity
        Number of neighbours that water can flow to, 8 or 4.
    rain
        The rain that fell.
    recorded
        The recorded totals.

    Returns
    -------
    dict
        "cells", the number of cells under water.

    Raises
    ------
    VerificationError
        If a cell or a sum is wrong; the first one found is reported.
    PlanError
        If the memory limit is too small.
    StoreError
        If a layer is damaged.
    """
    sums = [0, 0, 0]

    def add(at: Block, found: tuple[int, int, int]) -> None:
        for k, value in enumerate(found):
            sums[k] += value

    plan = plan_water(heights, depths, rain, limits)
    check = partial(_check, heights, depths, connectivity, rain)
    check_blocks(plan, heights.blocks, _reads(heights, depths, rain), check, add, limits)
    wet, stands, fell = sums
    wrong_totals(depths, "cells under water", wet, recorded.get("wet_cells"))
    wrong_totals(depths, "water on the cells", stands / rain.scale, recorded.get("on_cells"))
    wrong_totals(depths, "rain", fell / rain.scale, recorded.get("rain"))
    water, left = (float(recorded.get(name) or 0) for name in ("water", "outflow"))
    if not math.isclose(water + left, fell / rain.scale, rel_tol=1e-12):
        wrong_totals(depths, "rain that stayed or left", fell / rain.scale, water + left)
    # Depths are rounded to 24 bits, volumes to units, and surfaces to doubles.
    surface = wet * float(rain.areas.max()) * float(np.spacing(float(largest_height(heights))))
    most = 2.0**-22 * water + (2 * wet + 1) / rain.scale + surface
    if abs(stands / rain.scale - water) > most:
        wrong_totals(depths, "water on the cells", stands / rain.scale, water)
    return {"cells": wet}


def _check(
    heights: Layer,
    depths: Readable,
    connectivity: int,
    rain: Rain,
    at: Block,
    data: list[np.ndarray],
) -> tuple[int, int, int]:
    """Check the depths of a block; return its number of wet cells and units of water and rain."""
    z, depth, *more = data
    r0, r1, c0, c1 = window = heights.blocks.window(*at)
    absent = is_nodata(z, heights.nodata)
    beyond = r0 == 0, r1 == heights.grid.rows, c0 == 0, c1 == heights.grid.cols
    for side, outside in zip((0, -1), beyond[:2], strict=True):
        absent[side] |= outside
    for side, outside in zip((0, -1), beyond[2:], strict=True):
        absent[:, side] |= outside
    valid, inner = ~absent[1:-1, 1:-1], depth[1:-1, 1:-1]

    def refuse(fault: np.ndarray, what: str, check: str) -> None:
        for row, col in np.argwhere(fault)[:1].tolist():
            wrong(depths, f"depth {inner[row, col]!s}: {what}", check, r0 + row, c0 + col)

    refuse(np.isnan(inner) == valid, "must be nodata exactly where the elevation is", "void")
    refuse(valid & ~((inner >= 0) & (inner < np.inf)), "is not a depth", "depth")
    ground = np.where(absent, np.inf, as_floats(z, base_of(heights)))
    wet = np.where(absent, False, depth > 0)
    level = ground + np.where(wet, depth, 0)
    error = np.spacing(np.where(wet, depth, np.float32(0))).astype(np.float64)
    error += 4 * np.spacing(np.abs(np.where(absent, 0.0, level)))
    here, slack = level[1:-1, 1:-1], error[1:-1, 1:-1]
    for k in range(0, 8, 8 // connectivity):
        rows = slice(1 + ROW_STEP[k], 1 + ROW_STEP[k] + inner.shape[0])
        cols = slice(1 + COL_STEP[k], 1 + COL_STEP[k] + inner.shape[1])
        there, near = level[rows, cols], slack + error[rows, cols]
        flows = wet[1:-1, 1:-1] & (there < here - near)
        refuse(flows, "the water would flow to a lower neighbour", "rest")
    units = np.rint(np.where(valid, inner, 0) * (rain.areas * rain.scale)[r0:r1, None])
    fell = rain.of(window, valid, more[0] if more else None)
    return int(wet[1:-1, 1:-1].sum()), int(units.astype(np.int64).sum()), int(fell.sum())


def plan_water(heights: Layer, depths: Typed, rain: Rain, limits: Limits) -> StreamPlan:
    """Plan the pass; the layer of depths need not exist yet."""
    worker = heights.blocks.largest(1) * WORKER_BYTES
    return plan_proof(heights.blocks, _reads(heights, depths, rain), limits, worker=worker)


def _reads(heights: Layer, depths: Typed, rain: Rain) -> list[Read]:
    reads = [Read(heights, 1), Read(depths, 1)]
    return reads if isinstance(rain.depth, float) else [*reads, Read(rain.depth)]


def verify_stored_water(store: TileStore, layer: Layer, limits: Limits) -> Findings:
    """Check a layer with `verify_water` and the settings recorded with it."""
    recorded = RunRecord(store, layer)
    heights = recorded.input(recorded.get("water_of", str))
    depth = recorded.settings.get("rain")
    if isinstance(depth, str):
        depth = recorded.input(depth)
    elif not isinstance(depth, float) or not 0 <= depth < math.inf:
        raise recorded.damaged("rain", depth)
    if layer.dtype != np.float32 or layer.blocks != heights.blocks:
        raise recorded.damaged("data_type", layer.dtype.name)
    rain = Rain(layer.grid, depth)
    connectivity = open_forest(store).connectivity
    return verify_water(heights, layer, connectivity, rain, recorded.result, limits)
