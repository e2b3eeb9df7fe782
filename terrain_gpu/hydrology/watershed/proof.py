"""Proof that a layer labels watersheds: `verify_watershed`.

Labels are right exactly if

1. the pour points are those that were given, by a digest of their labels and cells;
2. a pour point, or a cell of a link, has its own label;
3. every other cell that drains has the label of the next one, 0 if there is none, and directions
   have no loop without a pour point;
4. cells that do not drain have the label 0.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ...cells import is_nodata
from ...engine.plan import StreamPlan
from ...engine.proof import Limits, Read, RunRecord, check_blocks, plan_proof, wrong
from ...errors import VerificationError
from ...facts import Findings
from ...grid import Block, BlockGrid
from ...store import Layer, TileStore
from ...store.readable import Readable, Typed
from ..common.codes import open_directions, open_links
from ..common.proof_kernels import check_labels
from ..common.proof_paths import PATHS_BYTES, BlockFlow, BlockPaths, FlowPaths, paths_bytes
from .pour_points import HOLDS, digest, points_layer

_POINT_BYTES = 100

_NO_POINTS = np.empty((0, 3), np.int64)


def verify_watershed(
    codes: Readable,
    marks: Readable,
    labels: Readable,
    expected: str | None,
    limits: Limits,
    *,
    points: int = 0,
) -> Findings:
    """Check the label of every cell.

    Parameters
    ----------
    codes, marks, labels
        Layers of directions, of the labels of pour points or links, and of all labels.
    expected
        Digest of the pour points; None for links.
    points
        Number of pour points, for the plan.

    Returns
    -------
    dict
        The number of "cells" with a label, and of "points": pour points, or cells of links.

    Raises
    ------
    VerificationError
        If a label is wrong, or the pour points are others; the first fault found is reported.
    PlanError
        If the memory limit is too small.
    StoreError
        If a layer is damaged.
    """
    blocks = _blocks(codes, marks)
    plans = plan_watershed(codes, marks, labels, limits, points=points)
    paths = FlowPaths(codes, blocks, plans[0])
    parts = [_NO_POINTS]
    cells = ends = 0

    def add(at: Block, summary: tuple[np.ndarray, BlockFlow]) -> None:
        parts.append(summary[0])
        paths.add(summary[1])

    def count(at: Block, counts: tuple[int, int]) -> None:
        nonlocal cells, ends
        cells, ends = cells + counts[0], ends + counts[1]

    first, second = _reads(codes, marks, labels)
    look = partial(_look, paths.of, marks, expected is not None)
    check_blocks(plans[0], blocks, first, look, add, limits)
    paths.join()
    if expected is not None:
        rows, cols, ids = _sorted(parts)
        if digest(ids, np.column_stack((rows, cols))) != expected:
            raise VerificationError(
                f"{marks.path}: holds other pour points than were given; compute it again with "
                "--overwrite",
                "points",
            )
    check = partial(_check, paths.of, marks, labels)
    check_blocks(plans[1], blocks, second, check, count, limits)
    return {"cells": cells, "points": ends}


def _look(
    paths: BlockPaths, marks: Readable, has_points: bool, at: Block, data: list[np.ndarray]
) -> tuple[np.ndarray, BlockFlow]:
    """Return the pour points of a block, if points were `has_points`, and its flow paths."""
    r0, _, c0, _ = paths.blocks.window(*at)
    stops, points = _ends(data[1], marks), _NO_POINTS
    if has_points:
        cells = np.argwhere(stops[1:-1, 1:-1])
        points = np.column_stack((cells + np.array((r0, c0)), data[1][tuple(cells.T + 1)]))
    target, order = paths.within(at, data[0], stops)
    return points, paths.look(at, data[0], target, order)[1]


def _check(
    paths: BlockPaths, marks: Readable, labels: Readable, at: Block, data: list[np.ndarray]
) -> tuple[int, int]:
    """Check the labels of a block; return the number of labelled cells, and of those at marks."""
    r0, _, c0, c1 = paths.blocks.window(*at)
    stops = _ends(data[1], marks)
    target, _ = paths.within(at, data[0], stops)
    right = np.where(stops, data[1], 0)[1:-1, 1:-1].astype(np.int64).ravel()
    cell = check_labels(data[0], target, data[2], right)
    if cell >= 0:
        row, col = divmod(cell, c1 - c0)
        problem = f"label {data[2][row + 1, col + 1]!s} is not the first one on its flow path"
        wrong(labels, problem, "label", r0 + row, c0 + col)
    stored = data[2][1:-1, 1:-1]
    return int(np.count_nonzero(stored)), int(np.count_nonzero(right[target == -1]))


def plan_watershed(
    codes: Readable, marks: Typed, labels: Typed, limits: Limits, *, points: int = 0
) -> list[StreamPlan]:
    """Plan both passes; the layers to check need not exist yet."""
    blocks = _blocks(codes, marks)
    worker = blocks.largest(1) * (PATHS_BYTES + 8)
    held = paths_bytes(blocks) + _POINT_BYTES * points
    return [
        plan_proof(blocks, reads, limits, worker=worker, held=held)
        for reads in _reads(codes, marks, labels)
    ]


def verify_stored_watershed(store: TileStore, layer: Layer, limits: Limits) -> Findings:
    """Check a layer with `verify_watershed` and the settings recorded with it."""
    recorded = RunRecord(store, layer)
    codes = recorded.input(recorded.get("watershed_of", str))
    open_directions(store, codes.name)
    names, expected, points = [layer.name], None, 0
    if "links" in recorded.settings:
        marks = recorded.input(recorded.get("links", str))
        open_links(store, marks.name)
    else:
        expected = recorded.get("pour_points", str)
        points = recorded.result.get("pour_points")  # type: ignore[assignment]
        if type(points) is not int:
            raise recorded.damaged("pour_points", points)
        names.append(points_layer(layer.name))
        marks = store.layer(names[1])
        if marks.info.get("holds") != HOLDS:
            raise RunRecord(store, marks).damaged("holds", marks.info.get("holds"))
        if marks.dtype != np.uint32 or marks.blocks != layer.blocks:
            raise RunRecord(store, marks).damaged("data_type", marks.dtype.name)
    if layer.dtype != marks.dtype or layer.blocks != _blocks(codes, marks):
        raise recorded.damaged("data_type", layer.dtype.name)
    result = verify_watershed(codes, marks, layer, expected, limits, points=points)
    return {"layers": names, **result}


def _blocks(codes: Readable, marks: Typed) -> BlockGrid:
    """Return the larger blocks; layers that do not exist yet have those of the directions."""
    several = [layer.blocks for layer in (codes, marks) if hasattr(layer, "blocks")]
    return max(several, key=lambda one: one.block)


def _reads(codes: Readable, marks: Typed, labels: Typed) -> list[list[Read]]:
    inputs = [Read(codes, 1), Read(marks, 1)]
    return [inputs, [*inputs, Read(labels, 1)]]


def _ends(labels: np.ndarray, marks: Readable) -> np.ndarray:
    """Return the mask of cells with a mark, where flow paths end."""
    return (labels != 0) & ~is_nodata(labels, marks.nodata)


def _sorted(parts: list[np.ndarray]) -> np.ndarray:
    """Return rows, columns and labels in row-major order."""
    points = np.concatenate(parts)
    return points[np.lexsort((points[:, 1], points[:, 0]))].T
