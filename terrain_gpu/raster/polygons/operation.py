"""Draw polygons of equal labels, as an operation: `LabelPolygons`.

1. *Trace*: trace the outlines in each block, and write the directions of their edges to a file.
2. *Write*: join the pieces of outlines across blocks, and write them label by label.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...cells import is_nodata
from ...compiled import known_types, tell_compiling
from ...engine.machine import Machine
from ...engine.operation import Phase, SolvedBlock
from ...engine.plan import StreamPlan, fit_blocks, layer_bytes, other_blocks
from ...engine.proof import Limits
from ...engine.run import Result, Run
from ...errors import ArgumentError, InputError
from ...facts import Findings
from ...grid import Block, GridSpec
from ...grid.lengths import Measured, area_units
from ...io.features import POLYGONS, Feature, Fields
from ...io.frames import FeatureResult
from ...io.lines import refuse_too_fine
from ...plurals import counted
from ...report import Report
from ...store import TileStore
from ..drawing.pieces import JOINING, Drawing, LinePieces, batches, successors
from . import DrawPolygons
from .outlines import Rings, assemble, cycles, mark_edges, trace
from .proof import Classes, LabelClasses, PolygonProof, polygon_file

FIELDS: Fields = {"label": np.int64, "cells": np.int64, "area": np.float64}

CORNER_BYTES, EDGE_BYTES = 350, 4
"""Bytes per corner, and per edge, of a polygon while it is assembled and written."""


@dataclass(repr=False)
class Polygons(FeatureResult):
    """Polygons written to a file.

    Attributes
    ----------
    path
        The file.
    labels, polygons, holes
        Number of labels, each of which is a feature; of their polygons; and of holes.
    cells
        Number of cells with a label.
    report
        The run's `Report`.
    """

    path: Path
    labels: int
    polygons: int
    holes: int
    cells: int
    report: Report


def label_polygons(store: TileStore | None, asked: DrawPolygons) -> LabelPolygons:
    """Return the operation of the tool, over the only layer unless one is named.

    Raises
    ------
    InputError
        If the layer does not hold integers, or its cells are too small for GeoJSON.
    StoreError
        If the layer is missing or damaged.
    """
    path = str(asked.path)
    if store is None:
        return LabelPolygons("", "", path)
    refuse_too_fine(path, store.grid)
    layer = asked.layer
    if layer is None:
        if len(store.layers) != 1:
            there = ", ".join(store.layers) or "none"
            raise ArgumentError("which layer? {layer} names one; there are: {there}", there=there)
        (layer,) = store.layers
    labels = store.layer(layer)
    if labels.dtype.kind == "f" or labels.dtype == np.uint64:
        raise InputError(
            f"{labels.path}: holds {labels.dtype.name}, not labels that fit int64; name a layer of "
            "whole numbers (--layer), such as basins"
        )
    return LabelPolygons(str(store.path), layer, path, names=asked.names)


@dataclass(frozen=True)
class LabelPolygons(Drawing):
    """The operation."""

    names: Mapping[int, str] | None = field(default=None, kw_only=True)

    command = "polygons"
    name = "polygons"
    shape = POLYGONS

    @property
    def fields(self) -> Fields:  # type: ignore[override]
        return FIELDS if self.names is None else {"label": np.int64, "name": object, **FIELDS}

    @property
    def measures(self) -> tuple[Measured, ...]:
        return ("areas",)

    def plan(self, machine: Machine) -> StreamPlan:
        (layer,), blocks = self.layers, self.blocks
        (rows, cols), item = self.grid.shape, layer.dtype.itemsize
        cells, ring = blocks.largest(), blocks.largest(1)
        # Per cell: the directions of four edges, the head of a ring, and its label.
        traced = cells * (4 + 12 + self.label_type.itemsize) * self.labels_of_a_cell
        own = ring * 40 + traced if self.computed else 0
        return fit_blocks(
            blocks,
            layer.dtype.name,
            "for the polygons of",
            buffer=ring * item + traced,
            worker=3 * ring + 12 * cells + own,
            scratch=blocks.largest(tiled=True) * item,
            held=self.held,
            joined=self.held + JOINING,
            advice=other_blocks("smaller", blocks.block),
            bytes_read=layer_bytes(rows, cols, item, blocks.block),
            machine=machine,
        )

    @cached_property
    def units(self) -> tuple[np.ndarray, float]:
        """The sum of area units in a column above each row; and the unit."""
        units, unit = area_units(self.grid)
        return np.append(0, np.cumsum(units)), unit

    @property
    def held(self) -> int:
        return 16 * self.grid.rows + super().held

    def new_work(self) -> np.ndarray:
        return np.empty(self.blocks.largest(1), np.uint8)

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        given: object,
        work: np.ndarray,
    ) -> SolvedBlock:
        (values,) = cells
        r0, r1, c0, c1 = self.blocks.window(*at)
        inside = ~is_nodata(values, self.layers[0].nodata)
        # Outside the raster, the margin holds fill values, which are not cells.
        inside[:1] &= r0 > 0
        inside[-1:] &= r1 < self.grid.rows
        inside[:, :1] &= c0 > 0
        inside[:, -1:] &= c1 < self.grid.cols
        traced = [_traced(*one, work) for one in self.labelled(values, inside)]
        return SolvedBlock(known=(traced, (r0 - 1, c0 - 1, values.shape[1])))

    def plan_verify(self, machine: Machine) -> None:
        classes = self.classes
        PolygonProof.plan(self.layers[0], Limits(machine), classes.cell_bytes, classes.most)

    def verify(self, run: Run, found: Findings) -> Findings:
        (writer,) = run.writers.values()
        file = polygon_file(writer.part, writer.path, self.grid, self.name, self.fields)
        checked = PolygonProof(file, self.layers[0], self.classes).run(run.proof_limits)
        return {"verified_polygons": checked["polygons"]}

    def result(self, found: Result) -> Any:
        found.report.valid_cells = found.found["cells"]
        counts = {key: found.found[key] for key in ("labels", "polygons", "holes", "cells")}
        return Polygons(Path(self.path).absolute(), **counts, report=found.report)

    # -- what contours override -------------------------------------------------------------------

    computed: ClassVar[bool] = False
    """Whether labels are computed from the cells."""

    @property
    def labels_of_a_cell(self) -> int:
        """The largest number of labels that a cell may have."""
        return 1

    def labelled(
        self, values: np.ndarray, inside: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield labels of the cells of a block, and the mask of cells with a label.

        Cells may have several labels.
        """
        yield values, inside

    @property
    def classes(self) -> Classes:
        """The classes of cells, for a proof."""
        return LabelClasses(self.names)

    def about(self, label: int) -> tuple[Any, ...]:
        """Return the attributes of a label that precede its number of cells and its area."""
        return (label,) if self.names is None else (label, self.names.get(label))

    @property
    def label_type(self) -> np.dtype:
        return self.layers[0].dtype

    # ---------------------------------------------------------------------------------------------

    def compile(self) -> None:
        if not known_types(trace):
            tell_compiling(trace, "polygons")
        labels, inside = np.zeros((3, 3), self.label_type), np.zeros((3, 3), bool)
        inside[1, 1] = True
        marks = np.empty(9, np.uint8)
        mark_edges(labels, inside, marks)
        ways, heads = np.empty(4, np.uint8), np.empty((5, 3), np.int32)
        trace(labels, inside, marks, ways, heads)
        assemble(ways, np.array([0, 4]), np.array([0]), np.array([1]), np.arange(2), 1)

    def pieces(self, plan: StreamPlan, writer: Any) -> Outlines:
        return Outlines(self, plan, writer)


class Outlines(LinePieces):
    """The pieces of outlines of all blocks, then the polygons."""

    def __init__(self, operation: LabelPolygons, plan: StreamPlan, writer: Any) -> None:
        each = CORNER_BYTES + EDGE_BYTES
        super().__init__(operation, plan, writer, np.dtype(np.uint8), each, "outlines", 6)
        self._operation = operation
        self._found = dict.fromkeys(("labels", "polygons", "holes", "cells"), 0)

    def found(self) -> Findings:
        return self._found

    def add(self, phase: Phase, at: Block, known: Any) -> None:
        traced, corner = known
        ways, heads, own = (np.concatenate(parts) for parts in zip(*traced, strict=True))
        # If a cell has several labels, its edges differ by the number of the label.
        turn = np.repeat(np.arange(len(traced)), [len(one) for _, _, one in traced])
        first, after = (
            np.where(ids < 0, -1, self._edges * turn + self._edge(ids, *corner))
            for ids in heads[:, :2].T
        )
        turns, starts = np.append(True, ways[1:] != ways[:-1]), np.cumsum(heads[:, 2]) - heads[:, 2]
        turns[starts] = True
        corners = np.add.reduceat(turns, starts, dtype=np.int64)
        self.add_pieces(at, ways, heads[:, 2], corners, first, after, own.astype(np.int64))

    @property
    def _edges(self) -> int:
        """The number of edges of all cells."""
        return 4 * self._operation.grid.cells

    def _edge(self, local: np.ndarray, r0: int, c0: int, width: int) -> np.ndarray:
        row, col = np.divmod(local >> 2, width)
        cell = (row.astype(np.int64) + r0) * self._operation.grid.cols + col + c0
        return 4 * cell + (local & 3)

    def name_of(self, key: int) -> str:
        return f"label {key}"

    def largest(self, enough: int, *columns: np.ndarray) -> tuple[int, str]:
        labels, which = np.unique(columns[-1], return_inverse=True)
        edges, corners = np.zeros((2, len(labels)), np.int64)
        np.add.at(edges, which, columns[1])
        np.add.at(corners, which, columns[2])
        sizes = CORNER_BYTES * corners + EDGE_BYTES * edges
        most = int(sizes.argmax())
        what = (
            f"the polygons of label {labels[most]}, with outlines of {counted(edges[most], 'edge')}"
        )
        return int(sizes[most]), what

    def draw(self, *columns: np.ndarray) -> Iterator[list[Feature]]:
        """Yield batches of labels, each with its polygons and attributes."""
        places, counts, _, first, after, label = columns
        following = successors(first, after, path=self._operation.layers[0].path)
        rings = following < 0
        following[rings] = np.flatnonzero(rings)
        pieces, starts = np.empty(len(first), np.int64), np.empty(len(first) + 1, np.int64)
        starts = starts[: cycles(following, first, pieces, starts) + 1]
        own = label[pieces[starts[:-1]]]
        order = np.lexsort((first[pieces[starts[:-1]]], own))
        own = own[order]
        edges = np.add.reduceat(counts[pieces], starts[:-1])[order]
        ends = np.flatnonzero(np.append(own[1:] != own[:-1], True)) + 1  # of labels
        before = np.append(0, np.cumsum(edges))
        for begin, end in batches(ends, before):
            several = [pieces[starts[k] : starts[k + 1]] for k in order[begin:end].tolist()]
            whole = np.concatenate(several)
            ways = self.read(places[whole], counts[whole])
            begins = np.append(0, before[begin + 1 : end + 1] - before[begin])
            heads = first[[one[0] for one in several]] % self._edges
            operation = self._operation
            yield self._batch(
                assemble(ways, begins, heads, own[begin:end], operation.units[0],
                         operation.grid.cols)
            )  # fmt: skip

    def _batch(self, rings: Rings) -> list[Feature]:
        """The features of some labels."""
        xy = _positions(self._operation.grid, rings.corners)
        bounds = rings.starts.tolist()
        closed = [np.concatenate((xy[a:b], xy[a : a + 1])) for a, b in pairwise(bounds)]
        a, _, _, _, e, _ = self._operation.grid.transform
        if a * e > 0:  # mirrored
            closed = [ring[::-1] for ring in closed]
        begins = [*np.flatnonzero(rings.outer).tolist(), len(closed)]
        parts = [closed[a:b] for a, b in pairwise(begins)]
        own = rings.label[rings.outer]
        new = np.flatnonzero(np.append(True, own[1:] != own[:-1]))
        first = np.flatnonzero(np.append(True, rings.label[1:] != rings.label[:-1]))
        cells = np.add.reduceat(rings.cells, first)
        areas = np.add.reduceat(rings.units, first) * self._operation.units[1]
        self._found["labels"] += len(new)
        self._found["polygons"] += len(parts)
        self._found["holes"] += len(closed) - len(parts)
        self._found["cells"] += int(cells.sum())
        rows = zip(own[new].tolist(), cells.tolist(), areas.tolist(), strict=True)
        several = (parts[a:b] for a, b in pairwise([*new.tolist(), len(parts)]))
        operation = self._operation
        if (names := operation.names) is not None:
            lacks = [label for label in own[new].tolist() if label not in names]
            if lacks:
                self._found.setdefault("first_unnamed", lacks[0])
                self._found["unnamed"] = self._found.get("unnamed", 0) + len(lacks)
        return [
            (found, dict(zip(operation.fields, (*operation.about(label), *more), strict=True)))
            for found, (label, *more) in zip(several, rows, strict=True)
        ]


def _traced(
    labels: np.ndarray, inside: np.ndarray, work: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the directions of the edges of a block, the heads of its pieces, and their labels."""
    edges, rim = mark_edges(labels, inside, work)
    ways, heads = np.empty(edges, np.uint8), np.empty((rim + edges // 4, 3), np.int32)
    heads = heads[: trace(labels, inside, work, ways, heads)].copy()
    return ways, heads, labels.ravel()[heads[:, 0] >> 2]


def _positions(grid: GridSpec, corners: np.ndarray) -> np.ndarray:
    """Return the coordinates of corners of cells."""
    a, _, c, _, e, f = grid.transform
    row, col = np.divmod(corners, grid.cols + 1)
    return np.stack((c + a * col, f + e * row), axis=1)
