"""Proof that a file holds the network of a spanning forest: `verify_network`.

The network is defined by the reach of edges: the length of the longest path that begins with an
edge, to either side. A path to a kept point counts as endless. The proof shares nothing with the
program that extracts the network except the forest and the lengths of steps. The file is right
exactly if

1. the vertices of every line are centres of adjacent cells, and every step is an edge of the forest
   that no other step uses;
2. at each cell, the lines use all edges whose reach is long enough on both sides. At an end of such
   edges, or of a line that comes from there, they also use the edges of the greatest reach; and no
   others. The edges that a cell may use follow from its own edges and from the lines that come to
   it. Lines that continue beyond the former edges never meet again, since a forest has no cycles.
   By induction along them, only the network satisfies this;
3. lines begin and end at nodes: kept points, and cells where the number of edges is not two. No
   node lies between. A line is cut only where its next step would cross it, and its parts follow
   one another, so the edges can be divided into lines in only one way;
4. each line starts at its end with the smaller id, lines are sorted by their nodes, and their
   attributes are those of their cells, bit for bit; the numbers of lines and cells are as reported.

The cells of lines are sorted by blocks on disk. Then blocks are read twice. First, each block is
reduced to the paths between its edges to other blocks; side branches count by their longest path. A
graph of these paths gives the reach of the edges between blocks. From it, the reach of every edge
of a block follows, and (2) is checked. The elevations of the cells of lines, and which of them are
nodes, are kept on disk for a second reading of the file, which checks (3) and (4). Memory is
O(rim), plus about 65 536 cells of lines.

Another proof, `spanning_tree.proof`, shows that the layer "mst" is the minimum spanning forest.
"""

from __future__ import annotations

import math
import tempfile
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ...engine.machine import MB, VECTOR_BYTES
from ...engine.plan import Excess, StreamPlan
from ...engine.proof import Limits, Read, check_blocks, plan_proof, wrong_totals
from ...errors import VerificationError
from ...facts import Findings
from ...grid import Block
from ...grid.lengths import step_lengths
from ...grid.neighbours import COL_STEP, ROW_STEP, symmetric
from ...io.places import Places
from ...io.proof.line_files import (
    Batch,
    BlockRecords,
    FileRoom,
    LineFile,
    check_attributes,
    read_lines,
    read_records,
    write_records,
    wrong_line,
)
from ..forest.source import Forest
from .proof_kernels import (
    EXCESS,
    MISSING,
    NO_EDGE,
    check_edges,
    gather_edges,
    outline,
    reach_between,
    reach_inside,
)

_ENDLESS = 2**62
"""Length of a path to a kept point; all other paths are shorter."""
_NODE_BYTES = 400
"""Bytes per cell where paths between blocks begin, meet or end, while these are joined."""
_FILE_BYTES = 48 * MB
"""Bytes for a batch of lines as Python objects."""
_FIELDS = ("start", "end", "weight", "pass_height", "length", "cells")
_RECORD = np.dtype([("cell", "<i8"), ("edges", "u1")])
_WHAT = {
    NO_EDGE: "a line takes a step that is not an edge of the forest",
    MISSING: "an edge of the network is on no line",
    EXCESS: "a line takes an edge that is not in the network",
}


def plan_network_proof(forest: Forest, limits: Limits) -> StreamPlan:
    """Plan the passes over the blocks of the forest.

    Raises
    ------
    PlanError
        If the memory limit is too small.
    """
    blocks = forest.cells.blocks
    nodes = 5 * blocks.line_cells // 2
    held = nodes * _NODE_BYTES + _FILE_BYTES + VECTOR_BYTES + 32 * blocks.rows + 8 * blocks.count
    # For each cell the reach of eight edges, ends, work space; cells of lines, as read and checked.
    one = 64 + 24 + 2 * (_RECORD.itemsize + 20 + forest.cells.dtype.itemsize)
    worker = blocks.largest(1) * one
    return plan_proof(blocks, _reads(forest), limits, worker=worker, held=held)


def _reads(forest: Forest) -> list[Read]:
    return [Read(forest.edges, 1), Read(forest.cells)]


def verify_network(
    forest: Forest,
    files: tuple[Path, Path],
    min_length: float | None,
    keep: Places,
    expected: Findings,
    limits: Limits,
) -> None:
    """Check every line of a file, and that none is missing.

    Parameters
    ----------
    forest
        The spanning forest and its cells.
    files
        The present path of the file, and its final path.
    min_length, keep
        See `extract_network`.
    expected
        The reported "lines", "cells" and "length".

    Raises
    ------
    VerificationError
        If a line is wrong or missing; the first fault found is reported.
    PlanError
        If the memory limit is too small.
    StoreError
        If a layer is damaged.
    """
    plan = plan_network_proof(forest, limits)
    with ExitStack() as stack:
        folder = files[1].parent
        scratch = [stack.enter_context(tempfile.TemporaryFile(dir=folder)) for _ in range(3)]
        checker = _NetworkChecker(forest, files, min_length, keep, plan, scratch)
        checker.sort_cells()
        blocks, reads = forest.cells.blocks, _reads(forest)
        check_blocks(plan, blocks, reads[:1], checker.reduce, checker.add, limits)
        checker.join()
        check_blocks(plan, blocks, reads, checker.check, lambda at, _: None, limits)
        checker.check_lines(expected)


class _Paths(NamedTuple):
    """The paths of a block between its edges to other blocks; see `outline`.

    Cells are ids in the raster. `cells` and `steps` are the edges to other blocks.
    """

    nodes: np.ndarray
    hang: np.ndarray
    chains: np.ndarray
    spans: np.ndarray
    cells: np.ndarray
    steps: np.ndarray


class _NetworkChecker:
    def __init__(
        self,
        forest: Forest,
        files: tuple[Path, Path],
        min_length: float | None,
        keep: Places,
        plan: StreamPlan,
        scratch: list[Any],
    ) -> None:
        self.forest, self.grid, self.blocks = forest, forest.cells.grid, forest.cells.blocks
        self.path = files[1]
        self.lines = LineFile(*files, self.grid, "network", _FIELDS)
        self.kept = np.sort(keep.rows * self.grid.cols + keep.cols)
        self.room = FileRoom(Excess.of(plan), "to verify a line", _FILE_BYTES)
        self.lengths = step_lengths(self.grid)
        # A power of two, so small that no path through all cells overflows.
        unit = 2.0 ** (math.frexp(float(self.lengths.max()) * self.grid.cells)[1] - 61)
        self.units = np.pad(np.rint(self.lengths / unit).astype(np.int64), ((0, 0), (1, 0)))
        self.least = _ENDLESS
        if min_length is not None:
            self.least = math.ceil(min(min_length / unit, _ENDLESS))
        records, chains, self.results = (file.fileno() for file in scratch)
        self.records = BlockRecords((records, chains), _RECORD, self.blocks)
        self.result = np.dtype([("height", forest.cells.dtype), ("node", "?")])
        self.known: dict[Block, _Paths] = {}
        self.reaches: dict[Block, tuple[np.ndarray, ...]] = {}

    # -- the file -------------------------------------------------------------------------------

    def sort_cells(self) -> None:
        """Write the cells of lines with their edges by blocks, and check that they are lines."""
        for batch in read_lines(self.lines, self.room):
            records = np.empty(len(batch.cells), _RECORD)
            records["cell"], records["edges"] = batch.cells, self._edges(batch)
            self.records.put(records)

    def _edges(self, batch: Batch) -> np.ndarray:
        """Return the edges of each cell along its line, as D8 bits."""
        step = batch.steps(self.path, self.grid.cols)
        code = np.append(1 << np.arange(8), 0).astype(np.uint8)
        edges = code[step]
        edges[1:] |= code[np.where(step < 8, step + 4 & 7, 8)[:-1]]
        return edges

    # -- the blocks -----------------------------------------------------------------------------

    def _local(self, at: Block, cells: np.ndarray) -> np.ndarray:
        r0, _, c0, c1 = self.blocks.window(*at)
        row, col = np.divmod(cells, self.grid.cols)
        return (row - r0) * (c1 - c0) + col - c0

    def _graph(self, at: Block, data: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        """Return the edges at each cell, step lengths, path lengths to kept points, and reaches.

        All reaches are unknown.
        """
        r0, r1, c0, c1 = self.blocks.window(*at)
        links = symmetric(data[0]).ravel()
        ends = np.zeros(len(links), np.int64)
        first, last = np.searchsorted(self.kept, [r0 * self.grid.cols, r1 * self.grid.cols])
        points = self.kept[first:last]
        points = points[(points % self.grid.cols >= c0) & (points % self.grid.cols < c1)]
        ends[self._local(at, points)] = _ENDLESS
        units = np.ascontiguousarray(self.units[:, r0 : r1 + 1])
        return links, units, ends, np.full((len(links), 8), -1)

    def reduce(self, at: Block, data: list[np.ndarray]) -> _Paths:
        """Find the paths of a block between its edges to other blocks; called from any thread."""
        links, units, ends, reach = self._graph(at, data)
        r0, r1, c0, c1 = self.blocks.window(*at)
        width = c1 - c0
        unknown, space = np.empty(len(links), np.uint8), np.empty(2 * len(links), np.int32)
        reach_inside(links, units, width, ends, reach, unknown, space)
        count = paths = 0
        for _ in range(2):  # the first time, to count
            nodes, chains = np.empty(count, np.int32), np.empty((paths, 2), np.int32)
            hang, spans = np.empty(count, np.int64), np.empty((paths, 3), np.int64)
            arrays = nodes, hang, chains, spans
            count, paths = outline(links, units, width, ends, reach, unknown, space, arrays)
        row, col = np.divmod(nodes.astype(np.int64), width)
        neighbours = row[:, None] + ROW_STEP, col[:, None] + COL_STEP
        outside = (
            (neighbours[0] < 0)
            | (neighbours[0] >= r1 - r0)
            | (neighbours[1] < 0)
            | (neighbours[1] >= width)
        )
        crossing, steps = np.nonzero(outside & (links[nodes][:, None] >> np.arange(8) & 1 == 1))
        ids = (r0 + row) * self.grid.cols + c0 + col
        return _Paths(ids, hang, chains, spans, ids[crossing], steps)

    def add(self, at: Block, paths: _Paths) -> None:
        self.known[at] = paths

    def join(self) -> None:
        """Find the reach of all edges between blocks."""
        ats, cols = list(self.known), self.grid.cols
        blocks = [self.known.pop(at) for at in ats]
        bases = np.cumsum([0, *(len(block.nodes) for block in blocks)])
        nodes, hang, _, spans, cells, steps = (
            np.concatenate(column) for column in zip(*blocks, strict=True)
        )
        based = zip(blocks, bases, strict=False)
        chains = np.concatenate([block.chains.astype(np.int64) + base for block, base in based])
        order = np.argsort(nodes)

        def number(ids: np.ndarray) -> np.ndarray:
            position = np.minimum(np.searchsorted(nodes, ids, sorter=order), len(nodes) - 1)
            vertices = order[position]
            if (nodes[vertices] != ids).any():
                self._no_forest()
            return vertices

        if not len(cells):
            return
        neighbours = cells + ROW_STEP[steps] * cols + COL_STEP[steps]
        lower = np.flatnonzero(steps < 4)
        pairs = np.stack((number(cells[lower]), number(neighbours[lower])), axis=1)
        length = self.units[np.array([0, 3, 2, 1])[steps[lower]], cells[lower] // cols + 1]
        crossing = np.zeros((len(lower), 3), np.int64)
        crossing[:, 0] = length
        ends, spans = np.concatenate((chains, pairs)), np.concatenate((spans, crossing))
        to = ends[:, ::-1].ravel()
        out = np.argsort(ends.ravel(), kind="stable")
        first = np.cumsum([0, *np.bincount(ends.ravel(), minlength=len(nodes)).tolist()])
        reach = np.empty(len(to), np.int64)
        space = np.empty(len(nodes), np.int64), np.empty(2 * len(nodes), np.int64)
        if reach_between(first, out, to, spans, hang, reach, *space) < len(to):
            self._no_forest()
        # The edges from their lower ends, then from their other ends, named as blocks name them.
        forward = cells[lower] * 8 + steps[lower]
        names = np.concatenate((forward, neighbours[lower] * 8 + steps[lower] + 4))
        mine = 2 * (len(chains) + np.arange(len(lower)))
        reach = reach[np.concatenate((mine, mine + 1))]
        order = np.argsort(names)
        crossings = cells * 8 + steps
        position = np.minimum(np.searchsorted(names, crossings, sorter=order), len(names) - 1)
        if len(names) != len(crossings) or (names[order[position]] != crossings).any():
            self._no_forest()
        cuts = np.cumsum([len(block.cells) for block in blocks])[:-1]
        columns = (np.split(column, cuts) for column in (cells, steps, reach[order[position]]))
        self.reaches = dict(zip(ats, zip(*columns, strict=True), strict=True))

    def _no_forest(self) -> NoReturn:
        raise VerificationError(
            f"{self.forest.edges.path}: not a forest; compute it again (compute-mst --overwrite)",
            "acyclic",
        )

    def check(self, at: Block, data: list[np.ndarray]) -> None:
        """Compare the edges of lines in a block with the network; called from any thread."""
        links, units, ends, reach = self._graph(at, data)
        r0, _, c0, c1 = self.blocks.window(*at)
        width = c1 - c0
        if at in self.reaches:
            cells, steps, far = self.reaches[at]
            reach[self._local(at, cells), steps] = far
        unknown, space = np.empty(len(links), np.uint8), np.empty(2 * len(links), np.int32)
        reach_inside(links, units, width, ends, reach, unknown, space)
        if unknown.any():
            self._no_forest()
        records = self.records.of(at)
        local = self._local(at, records["cell"])
        bits = np.empty(len(links), np.uint8)
        twice = gather_edges(local, np.ascontiguousarray(records["edges"]), bits)
        if twice >= 0:
            self._wrong(int(records["cell"][twice]), "an edge is on two lines")
        fault, cell = check_edges(links, units, width, ends, reach, self.least, bits)
        if fault:
            self._wrong((r0 + cell // width) * self.grid.cols + c0 + cell % width, _WHAT[fault])
        results = np.empty(len(local), self.result)
        results["height"] = data[1][local // width, local % width]
        degree = np.bitwise_count(bits[local])
        results["node"] = (degree != 2) | (ends[local] > 0)
        done = 0
        for first, count in self.records.parts(at):
            write_records(self.results, results[done : done + count], first)
            done += count

    def _wrong(self, cell: int, problem: str) -> NoReturn:
        row, col = divmod(cell, self.grid.cols)
        raise VerificationError(
            f"{self.path}: row {row}, column {col}: {problem}; write it again with --overwrite",
            "network",
            row,
            col,
        )

    # -- the lines ------------------------------------------------------------------------------

    def check_lines(self, expected: Findings) -> None:
        """Read the file again, with the elevations of cells and the mask of nodes."""
        order = _LineOrder(self.path, self.grid.cols)
        lines, cells, done, lengths = 0, 0, 0, []
        for batch in read_lines(self.lines, self.room):
            count = len(batch.cells)
            results = np.empty(count, self.result)
            by_block, _ = self.records.order(batch.cells)
            results[by_block] = read_records(self.results, self.result, done, count)
            done += count
            lengths.append(self._check_attributes(batch, results["height"]))
            bounds = batch.starts.tolist()
            for k, (first, last) in enumerate(pairwise(bounds)):
                order.add(batch.number + k, batch.cells[first:last], results["node"][first:last])
            lines, cells = lines + len(batch.attributes), cells + count
        order.close(lines)
        wrong_totals(self, "lines", lines, expected["lines"])
        wrong_totals(self, "cells", cells, expected["cells"])
        if not math.isclose(math.fsum(lengths), expected["length"], rel_tol=1e-12):
            wrong_totals(self, "of length", math.fsum(lengths), expected["length"])

    def _check_attributes(self, batch: Batch, heights: np.ndarray) -> float:
        """Compare the attributes of lines with those of their cells; return the total length."""
        row, col = np.divmod(batch.cells, self.grid.cols)
        kind = np.where(row[1:] == row[:-1], 0, np.where(col[1:] == col[:-1], 2, 3))
        kind[(row[1:] - row[:-1]) * (col[1:] - col[:-1]) < 0] = 1
        steps = self.lengths[kind, np.minimum(row[1:], row[:-1])]
        heights = heights + 0  # turns -0.0 into 0.0
        high, low = np.maximum(heights[1:], heights[:-1]), np.minimum(heights[1:], heights[:-1])
        weights = high
        if self.forest.weight.name == "absdiff":
            bits = f"u{high.itemsize}"
            with np.errstate(over="ignore"):
                weights = high - low if high.dtype.kind == "f" else high.view(bits) - low.view(bits)
        total = []
        for k, (first, last) in enumerate(pairwise(batch.starts.tolist())):
            attributes, number = batch.attributes[k], batch.number + k
            right = {
                "start": int(batch.cells[first]),
                "end": int(batch.cells[last - 1]),
                "weight": math.fsum(weights[first : last - 1].tolist()),
                "pass_height": float(heights[first:last].max()),
                "length": math.fsum(steps[first : last - 1].tolist()),
                "cells": last - first,
            }
            check_attributes(self.path, number, attributes, right)
            total.append(right["length"])
        return math.fsum(total)


class _LineOrder:
    """Checks where lines begin, end and are cut, and their order."""

    def __init__(self, path: Path, cols: int) -> None:
        self.path, self.cols = path, cols
        self.last = (-1, -1)
        self.begun: list[int] = []
        """The node where a cut line began, and the cell where it was cut."""
        self.squares: set[int] = set()

    def add(self, number: int, cells: np.ndarray, node: np.ndarray) -> None:
        """Check the next line, or part of one."""
        if node[1:-1].any():
            wrong_line(self.path, number, "a node lies between its ends", "node")
        if cells[0] > cells[-1]:
            wrong_line(self.path, number, "does not begin at its end with the smaller id", "order")
        at_node = bool(node[0]), bool(node[-1])
        if self.begun:
            turned = int(cells[-1]) == self.begun[1]
            if at_node[turned] or (cells[0] != self.begun[1] and not turned):
                wrong_line(self.path, number, "does not continue the line before it", "node")
        else:
            turned = not at_node[0]
            if not any(at_node):
                wrong_line(self.path, number, "has no node at its ends", "node")
        path = cells[::-1] if turned else cells
        squares = self._squares(path)
        if self.begun and squares[0] not in self.squares:
            wrong_line(self.path, number, "the line before it is cut too early", "cut")
        crossed = squares[squares >= 0]
        self.squares = set(crossed.tolist())
        if len(self.squares) < len(crossed):
            wrong_line(self.path, number, "crosses itself", "cut")
        first = self.begun[0] if self.begun else int(path[0])
        self.begun = [first, int(path[-1])]
        if at_node[not turned]:
            whole = first, int(path[-1])
            if whole <= self.last or whole[0] >= whole[1]:
                wrong_line(self.path, number, "is not in the order of its nodes", "order")
            self.last, self.begun = whole, []

    def close(self, number: int) -> None:
        if self.begun:
            wrong_line(self.path, number, "does not end at a node", "node")

    def _squares(self, path: np.ndarray) -> np.ndarray:
        """Return the first cell of the 2 x 2 square that each diagonal step crosses, else -1."""
        row, col = np.divmod(path, self.cols)
        square = np.minimum(row[1:], row[:-1]) * self.cols + np.minimum(col[1:], col[:-1])
        return np.where((row[1:] != row[:-1]) & (col[1:] != col[:-1]), square, -1)
