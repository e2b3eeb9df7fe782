"""Check the blocks of a raster one by one, and the components across blocks: `verify_labels`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ....engine.plan import StreamPlan
from ....engine.proof import (
    Limits,
    Read,
    RunRecord,
    check_blocks,
    plan_proof,
    wrong,
    wrong_totals,
)
from ....errors import InputError, VerificationError
from ....facts import Findings
from ....grid import Block, BlockGrid
from ....plurals import counted
from ....store import Layer, TileStore
from ....store.readable import Readable, Typed
from ..expression import Expression
from .kernels import check_order, join_cells, join_line, new_labels, to_roots

_STRIP = 1 << 16
"""Number of cells for which the condition is evaluated at a time."""


def verify_labels(
    condition: Expression,
    sources: Mapping[str, Any],
    labels: Readable,
    connectivity: int,
    expected: Findings,
    limits: Limits,
) -> Findings:
    """Check the label of every cell.

    Parameters
    ----------
    sources
        The layers of the condition, by name, in its order.
    labels
        The layer of labels, uint32 or int64, 0 outside.
    expected
        The recorded "components" and "cells".

    Returns
    -------
    dict
        The numbers of "components" and "cells" found.

    Raises
    ------
    VerificationError
        If a label or a total is wrong; the first fault found is reported.
    PlanError
        If the memory limit is too small.
    StoreError
        If a layer is damaged.
    """
    blocks: BlockGrid = labels.blocks
    plan, reads = plan_labels(blocks, labels, sources.values(), limits)
    count = _Count(labels, diagonal=connectivity == 8)

    of = _BlockLabels(labels, connectivity == 8)
    check = partial(_check, condition, dict(sources), of)
    check_blocks(plan, blocks, reads, check, count.add, limits)
    components, cells = count.join()
    wrong_totals(labels, "components", components, expected.get("components"))
    wrong_totals(labels, "cells inside", cells, expected.get("cells"))
    return {"components": components, "cells": cells}


def _check(
    condition: Expression,
    sources: Mapping[str, Any],
    of: _BlockLabels,
    at: Block,
    data: list[np.ndarray],
) -> tuple[int, int, list[np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    """Check which cells of a block have labels; return what `_Count.add` takes."""
    labels = of.layer
    stored, (r0, r1, c0, c1) = data[0], labels.blocks.window(*at)
    step = max(_STRIP // (c1 - c0), 1)
    for row in range(0, r1 - r0, step):
        part = slice(row, row + step)
        holds = condition.holds(
            {
                name: (cells[part], sources[name].nodata)
                for name, cells in zip(condition.layers, data[1:], strict=True)
            }
        )
        faults = np.argwhere(np.where(holds, stored[part] <= 0, stored[part] != 0))
        if not len(faults):
            continue
        down, right = faults[0].tolist()
        value = stored[row + down, right]
        problem = f"label {value} where the condition {'holds' if holds[down, right] else 'fails'}"
        wrong(labels, problem, "condition", r0 + row + down, c0 + right)
    return of.look(at, stored)


def plan_labels(
    blocks: BlockGrid, labels: Typed, sources: Iterable[Any], limits: Limits
) -> tuple[StreamPlan, list[Read]]:
    """Plan the pass; the layer of labels need not exist yet."""
    reads = [Read(labels), *map(Read, sources)]
    lines = blocks.rows * blocks.shape[1] + blocks.cols * blocks.shape[0]
    held = 32 * lines + 16 * blocks.rows * blocks.shape[1]
    worker = 6 * blocks.largest() + 32 * _STRIP * len(reads) + 100 * sum(blocks.sides)
    return plan_proof(blocks, reads, limits, worker=worker, held=held), reads


def verify_stored_labels(store: TileStore, layer: Layer, limits: Limits) -> Findings:
    """Check a layer with `verify_labels` and the settings recorded with it."""
    recorded = RunRecord(store, layer)
    where, inputs = recorded.get("where", str), recorded.inputs()
    try:
        condition = Expression(where, inputs)
    except InputError as error:
        raise recorded.damaged("where", where) from error
    connectivity = recorded.get("connectivity", int)
    if connectivity not in (4, 8):
        raise recorded.damaged("connectivity", connectivity)
    sources = {name: inputs[name] for name in condition.layers}
    if layer.dtype.name not in ("uint32", "int64"):
        raise recorded.damaged("dtype", layer.dtype.name)
    return verify_labels(condition, sources, layer, connectivity, recorded.result, limits)


class _BlockLabels(NamedTuple):
    """Checks labels of blocks; can be sent to workers."""

    layer: Readable
    diagonal: bool

    def look(
        self, at: Block, labels: np.ndarray
    ) -> tuple[int, int, list[np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
        """Return what `_Count.add` takes for a block."""
        rows, cols = labels.shape
        r0, _, c0, _ = self.layer.blocks.window(*at)
        parent = np.empty(rows * cols, np.int32)
        cells, joined, fault = join_cells(labels, self.diagonal, parent)
        if fault >= 0:
            row, col = divmod(fault, cols)
            problem = f"label {labels[row, col]} beside a cell of another label"
            wrong(self.layer, problem, "neighbours", r0 + row, c0 + col)
        along, down = np.arange(cols), np.arange(rows) * cols
        sides = [along, along + (rows - 1) * cols, down, down + cols - 1]
        for side in sides:
            to_roots(labels, parent, side)
        pieces = np.unique(np.concatenate(sides))
        pieces = pieces[pieces >= 0]
        slots = [np.where(s < 0, -1, np.searchsorted(pieces, s)) for s in sides]
        tops, starts = np.empty(rows, np.int64), np.empty(rows, np.int64)
        new_labels(labels, tops, starts)
        return cells, joined, slots, labels.ravel()[pieces].astype(np.int64), tops, starts


class _Count:
    """Components of the labelled cells, counted; see the module for what is checked.

    A *piece* is the part of a component in a block, if it touches the rim of the block.
    """

    def __init__(self, labels: Readable, *, diagonal: bool) -> None:
        self._layer, self._diagonal = labels, diagonal
        self._blocks: BlockGrid = labels.blocks
        rows, cols, (down, across) = self._blocks.rows, self._blocks.cols, self._blocks.shape
        # Piece of each cell of the first and last rows, and columns, of blocks; -1 outside.
        self._rows = np.full((2, down, cols), -1, np.int64)
        self._cols = np.full((2, across, rows), -1, np.int64)
        # Every second cell of a rim may be a piece. Unused memory is never touched.
        self._labels = np.empty(rows * across + cols * down, np.int64)
        self._pieces = 0
        self._tops = np.zeros((rows, across), np.int64)
        self._starts = np.zeros((rows, across), np.int64)
        self._cells = self._joined = 0

    def add(
        self,
        at: Block,
        summary: tuple[int, int, list[np.ndarray], np.ndarray, np.ndarray, np.ndarray],
    ) -> None:
        """Add a block."""
        cells, joined, sides, labels, tops, starts = summary
        i, j = at
        r0, r1, c0, c1 = self._blocks.window(*at)
        base, self._pieces = self._pieces, self._pieces + len(labels)
        self._labels[base : self._pieces] = labels
        lines = (
            self._rows[0, i, c0:c1],
            self._rows[1, i, c0:c1],
            self._cols[0, j, r0:r1],
            self._cols[1, j, r0:r1],
        )
        for line, side in zip(lines, sides, strict=True):
            np.add(side, base, out=line, where=side >= 0)
        self._tops[r0:r1, j], self._starts[r0:r1, j] = tops, starts
        self._cells += cells
        self._joined += joined

    def join(self) -> tuple[int, int]:
        """Return the numbers of components and cells, once every block has been added."""
        parent, labels = np.arange(self._pieces), self._labels[: self._pieces]
        block = self._blocks.block
        for by_rows, (first, last) in enumerate((self._cols, self._rows)):
            for k in range(len(first) - 1):
                joined, fault = join_line(parent, labels, last[k], first[k + 1], self._diagonal)
                if fault >= 0:
                    line = (k + 1) * block - 1
                    row, col = (line, fault) if by_rows else (fault, line)
                    problem = f"label {labels[last[k][fault]]} beside a cell of another label"
                    wrong(self._layer, problem, "neighbours", row, col)
                self._joined += joined
        count, row, column = check_order(self._tops, self._starts)
        if row >= 0:
            wrong(
                self._layer,
                f"a label above {count + 1} in the {block} columns from here on, but label "
                f"{count + 1} was not seen before, row by row",
                "order",
                row,
                column * block,
            )
        components = self._cells - self._joined
        if components != count:
            raise VerificationError(
                f"{self._layer.path}: {counted(components, 'component has', 'components have')} "
                f"{counted(count, 'label')}: some share one; compute it again with --overwrite",
                "components",
            )
        return components, self._cells
