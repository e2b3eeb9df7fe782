"""The forest of a raster, contracted to the cells where blocks meet.

Each block contributes an `Outline`: its forest reduced to the cells with edges to other blocks and
the branching points between them, with each path contracted to one edge. `Skeleton.join` combines
the outlines into one rooted graph. Only this graph is kept in memory: O(cells along block borders).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...engine.plan import Growing
from ...errors import PlanError, StoreError
from ...grid import BlockGrid
from ...grid.neighbours import NEIGHBOUR
from ...plurals import counted
from ...report import trim
from .block import BlockForest
from .block_kernels import crossing_edges
from .skeleton_kernels import root_graph

OUTLINE_BYTES = 50
"""Bytes per vertex of an outline, including the edge to its parent."""

Columns = tuple[np.ndarray, ...]


@dataclass
class Crossing:
    """Edges to other blocks, listed by the block of their lower endpoint.

    Attributes
    ----------
    cells
        int64, shape (n, 2): the ends of each edge, the one with the lower id first.
    ids
        int64, edge ids.
    """

    cells: np.ndarray
    ids: np.ndarray

    @classmethod
    def of(cls, block: BlockForest) -> Crossing:
        return cls(*crossing_edges(block.out_cell, block.out_step, block.corner))


@dataclass
class Outline:
    """A block's part of the skeleton.

    Attributes
    ----------
    cells
        int64, ids of the cells with edges to other blocks. They are the first vertices.
    values
        int64, one value per vertex.
    marked
        int32, vertices to mark, such as outlets.
    ends
        int32, shape (n, 2): the vertices at the ends of each edge.
    paths
        Columns that describe the path each edge stands for.
    crossing
        int64, shape (m, 2): cells at the ends of edges to other blocks.
    steps
        The same columns as `paths`, for these edges.
    outward
        Columns that describe the outward edge of each marked vertex, if these are outlets.
    """

    cells: np.ndarray
    values: np.ndarray
    marked: np.ndarray
    ends: np.ndarray
    paths: Columns
    crossing: np.ndarray
    steps: Columns
    outward: Columns = ()


@dataclass
class Graph:
    """The skeleton, rooted.

    Attributes
    ----------
    cell
        int64, the cell of each vertex at a block border, -1 for other vertices.
    values, marked, outward
        As in `Outline`.
    order, parent
        int32, see `root_graph`.
    paths
        The columns of `Outline.paths` for the edge from each vertex to its parent; meaningless at
        roots.
    turned
        bool, whether that edge is listed with the parent first.
    crossing
        bool, whether that edge joins two blocks.
    """

    cell: np.ndarray
    values: np.ndarray
    marked: np.ndarray
    order: np.ndarray
    parent: np.ndarray
    paths: Columns
    turned: np.ndarray
    crossing: np.ndarray
    outward: Columns


class Skeleton:
    """Collects the outlines of blocks, in any order.

    Parameters
    ----------
    each
        Bytes per vertex while blocks stream, and while the graph is solved.
    room
        The memory available to the run.
    """

    def __init__(self, each: tuple[int, int], room: Growing) -> None:
        self._each, self._room = each, room
        self._outlines: list[Outline] = []
        self.vertices = 0

    def add(self, outline: Outline) -> None:
        """Add the outline of a block."""
        if not len(outline.cells):
            return
        self._outlines.append(outline)
        self.vertices += len(outline.values)
        if not self._room.fits(*self._size):
            self._outlines.clear()

    @property
    def _size(self) -> tuple[int, int]:
        held, joined = (self.vertices * size for size in self._each)
        return held, joined

    def join(self) -> Graph | None:
        """Combine all outlines, and release them; None if no edge joins two blocks.

        Raises
        ------
        PlanError
            If there are more vertices than the memory limit allows.
        """
        vertices = counted(self.vertices, "cell between blocks", "cells between blocks")
        remedy = "convert with a larger --block-size"
        self._room.require(*self._size, f"for {vertices}", advice=f", or {remedy}")
        if self.vertices >= 2**31:
            raise PlanError(f"{vertices} are too many; {remedy}")
        parts, self._outlines = self._outlines, []
        if not parts:
            return None
        trim()
        starts = np.cumsum([0] + [len(part.values) for part in parts])[:-1]
        shifted = list(zip(parts, starts.tolist(), strict=True))
        cell = np.full(self.vertices, -1)
        for part, start in shifted:
            cell[start : start + len(part.cells)] = part.cells
        between = _vertices_of(cell, np.concatenate([part.crossing for part in parts]))
        ends = np.concatenate([part.ends + np.int32(start) for part, start in shifted] + [between])
        inside = len(ends) - len(between)
        order, parent, via = root_graph(ends, self.vertices)
        if len(order) != self.vertices:
            raise StoreError(
                "the layer mst has a cycle; compute it again (compute-mst --overwrite)"
            )
        columns = [part.paths for part in parts] + [part.steps for part in parts]
        return Graph(
            cell,
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.marked + np.int32(start) for part, start in shifted]),
            order,
            parent,
            tuple(np.concatenate(several)[via] for several in zip(*columns, strict=True)),
            ends[via, 0] != np.arange(self.vertices, dtype=np.int32),
            via >= inside,
            tuple(map(np.concatenate, zip(*(part.outward for part in parts), strict=True))),
        )


def _vertices_of(cell: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the vertices of the `wanted` cells, int32."""
    order = np.argsort(cell).astype(np.int32)
    at = np.searchsorted(cell, wanted, sorter=order)
    vertices = order[np.minimum(at, len(order) - 1)]
    if (cell[vertices] != wanted).any():
        raise StoreError("the layer mst changed while it was read; run this again")
    return vertices


class ByBlock:
    """A table whose rows are looked up by the block of their cell.

    Parameters
    ----------
    cells
        int64, cell ids: the first column.
    columns
        The other columns.
    """

    def __init__(self, blocks: BlockGrid, cells: np.ndarray, *columns: np.ndarray) -> None:
        self._across = blocks.shape[1]
        block = cells // blocks.cols // blocks.block * self._across
        block += cells % blocks.cols // blocks.block
        order = np.argsort(block, kind="stable")
        self._block = block[order]
        self._columns = tuple(column[order] for column in (cells, *columns))

    def __len__(self) -> int:
        return len(self._block)

    def of(self, at: tuple[int, int]) -> Columns:
        """Return the rows of one block."""
        block = at[0] * self._across + at[1]
        first, last = np.searchsorted(self._block, [block, block + 1])
        return tuple(column[first:last] for column in self._columns)

    def blocks(self) -> list[tuple[int, int]]:
        """Return the blocks that have rows."""
        return [divmod(block, self._across) for block in np.unique(self._block).tolist()]


def neighbour(cols: int, cells: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the number, uint8, of cell `others` among the neighbours of cell `cells`; 0 is E."""
    return NEIGHBOUR[others // cols - cells // cols + 1, others % cols - cells % cols + 1]
