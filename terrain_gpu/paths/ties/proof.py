"""Proof of all steps back on least-cost paths: `verify_ties`.

A cell must have exactly the steps from strictly nearer neighbours that give its distance, which the
proof of distances finds as well, and its backlink. Distances and backlinks are assumed to be right;
they have their own proof.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...engine.plan import StreamPlan
from ...engine.proof import Limits, Read, RunRecord, check_blocks, plan_proof, wrong
from ...facts import Findings
from ...grid import TILE, Block
from ...store import Layer, TileStore
from ...store.readable import Readable, Typed
from ..cost.edges import infinity_of
from ..cost.fields import Field
from ..cost.steps import UNREACHED, layer_named, unreached
from ..cost.terrain import Terrain
from ..proof.kernels import check_steps
from ..proof.stored import RecordedPaths


def verify_ties(
    paths: tuple[Terrain, Any],
    distances: Readable,
    backlinks: Readable,
    ties: Readable,
    limits: Limits,
) -> Findings:
    """Check the steps of every cell.

    Parameters
    ----------
    paths
        The problem that was solved, and the largest distance: see `RecordedPaths.problem`.
    distances, backlinks, ties
        Layers; the latter two are uint8.

    Returns
    -------
    dict
        "cells", the number of cells with more than one step.

    Raises
    ------
    VerificationError
        at the first wrong cell found.
    PlanError
        when the memory limit is too small.
    StoreError
        when a layer is damaged.
    """
    terrain, _ = paths
    plan, reads = plan_ties_proof(terrain, distances, backlinks, ties, limits)
    cells = 0

    def add(at: Block, several: int) -> None:
        nonlocal cells
        cells += several

    check = partial(_check, paths, distances, ties)
    check_blocks(plan, terrain.blocks, reads, check, add, limits)
    return {"cells": cells}


def _check(
    paths: tuple[Terrain, Any],
    distances: Readable,
    ties: Readable,
    at: Block,
    data: list[np.ndarray],
) -> int:
    """Check the cells of a block; return the number of cells with more than one step."""
    terrain, farthest = paths
    ring, codes, found = data
    window = r0, r1, c0, _ = terrain.blocks.window(*at)
    for here, there in terrain.blocks.beyond_seam(window):
        ring[:, here] = distances.read_ring((r0, r1, there, there + 1))[:, 1]
    right, shorter = _nearer(terrain, farthest, at, ring)
    if shorter is not None:
        what = "a step reaches this cell at less than its distance"
        wrong(distances, what, "ties", r0 + shorter[0], c0 + shorter[1])
    right = right[: codes.shape[0], : codes.shape[1]]
    right[codes == 0] = 0
    right |= np.where(codes == UNREACHED, 0, codes)
    if len(faults := np.argwhere(right != found)):
        row, col = faults[0].tolist()
        what = f"steps {found[row, col]} instead of {right[row, col]}"
        wrong(ties, what, "ties", r0 + row, c0 + col)
    return int(np.count_nonzero(np.bitwise_count(right) > 1))


def plan_ties_proof(
    terrain: Terrain, distances: Typed, backlinks: Typed, ties: Typed, limits: Limits
) -> tuple[StreamPlan, list[Read]]:
    """Plan how blocks stream; `ties` need not exist yet."""
    reads = [Read(distances, 1), Read(backlinks), Read(ties)]
    rasters = (terrain.heights, terrain.friction, terrain.barriers)
    raw = sum(one.dtype.itemsize + 1 for one in rasters if one is not None)
    worker = (terrain.blocks.block + 2 + TILE) ** 2 * (2 * raw + 40) + 64 * TILE * TILE
    return plan_proof(terrain.blocks, reads, limits, worker=worker), reads


def verify_stored_ties(store: TileStore, layer: Layer, limits: Limits) -> Findings:
    """Run `verify_ties` with the settings recorded in a layer and in its distances."""
    recorded = RunRecord(store, layer)
    name = recorded.get("ties_of", str)
    distances = recorded.input(name)
    backlinks = recorded.input(layer_named(name, "backlink"))
    paths = RecordedPaths(distances)
    for one in (layer, backlinks):
        if one.dtype != np.uint8 or one.blocks != distances.blocks:
            raise recorded.damaged("data_type", one.dtype.name)
    return verify_ties(paths.problem(store), distances, backlinks, layer, limits)


def _padded(field: Field, ring: np.ndarray) -> np.ndarray:
    """Distances in the form for kernels, unreached outside the raster."""
    infinity = infinity_of(ring)
    found = np.full(field.absent.shape, infinity, ring.dtype)
    void = np.isnan(ring) if ring.dtype.kind == "f" else ring == unreached(ring.dtype)
    rows, cols = ring.shape
    # Cells outside the raster are absent, and no step into one is considered.
    found[:rows, :cols] = np.where(void | field.absent[:rows, :cols], infinity, ring)
    return found


def _nearer(
    terrain: Terrain, farthest: float, at: Block, ring: np.ndarray
) -> tuple[np.ndarray, tuple[int, int] | None]:
    """The steps from strictly nearer neighbours that give exactly the distance of a cell.

    Also returns a cell that some step reaches at less than its distance, if there is one.
    """
    field = terrain.load(at)
    distances = _padded(field, ring)
    shape = tuple(side - 2 for side in distances.shape)
    near, even = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)
    _, k, row, col = check_steps(
        terrain.model.kernel,
        field.heights,
        field.frictions,
        field.absent,
        field.lengths,
        terrain.options,
        distances,
        (distances.dtype.type(farthest), False, ring.shape[1] - 2),
        np.empty((8, TILE, TILE), distances.dtype),
        near,
        even,
    )
    return near, None if k < 0 else (int(row), int(col))
