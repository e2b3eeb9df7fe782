"""The forest of a raster, contracted to the cells where blocks meet.

Each block contributes an `Outline`: its forest between the cells with edges to other blocks, paths
without a branch contracted to one edge. `Skeleton.join` makes one rooted graph of them. Only that
is in memory, O(cells between blocks).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..compiled import jit
from ..engine.plan import COMPILED_BASELINE, MB, format_size
from ..errors import PlanError, StoreError
from ..grid import BlockGrid, ceil_div
from ..grid.neighbours import COL_STEP, NEIGHBOUR, ROW_STEP
from ..report import trim
from .block import BlockForest

OUTLINE_BYTES = 50
"""Memory for a vertex of an outline and the edge to its parent."""

_DIRECTION = np.array([0, 3, 2, 1])
"""Direction of the edge to a neighbour, E, SE, S, SW, of which this cell is the lower endpoint."""

"""Number of a neighbour by its row and column, of nine cells."""

Columns = tuple[np.ndarray, ...]


@dataclass
class Crossing:
    """Edges to other blocks, listed by the block of their lower endpoint.

    Attributes
    ----------
    own
        Which of `BlockForest.out_cell` they are, bool.
    cells
        int64, shape (n, 2): their ends, the lower one first.
    ids
        int64.
    """

    own: np.ndarray
    cells: np.ndarray
    ids: np.ndarray

    @classmethod
    def of(cls, block: BlockForest) -> Crossing:
        own = block.out_step < 4
        cell, step = block.globally(block.out_cell[own]), block.out_step[own]
        other = cell + ROW_STEP[step] * block.cols + COL_STEP[step]
        return cls(own, np.stack((cell, other), axis=1), 4 * cell + _DIRECTION[step])


@dataclass
class Outline:
    """A block's part of the skeleton.

    Attributes
    ----------
    cells
        int64, ids of the cells with edges to other blocks: the first vertices.
    values
        int64, one for each vertex.
    marked
        int32, some vertices.
    ends
        int32, shape (n, 2): vertices at the ends of each edge.
    paths
        Columns that say what path each edge stands for.
    crossing
        int64, shape (m, 2): cells at the ends of edges to other blocks.
    steps
        The columns of `paths` for these.
    """

    cells: np.ndarray
    values: np.ndarray
    marked: np.ndarray
    ends: np.ndarray
    paths: Columns
    crossing: np.ndarray
    steps: Columns


@dataclass
class Graph:
    """The skeleton, rooted.

    Attributes
    ----------
    cell
        int64, the cell of each vertex at a border of its block, -1 of others.
    values, marked
        As in outlines.
    order, parent
        int32, see `root_graph`.
    paths
        The columns of outlines for the edge from each vertex to its parent; of no meaning at roots.
    turned
        bool, whether that edge was listed from its parent.
    crossing
        bool, whether it leads to another block.
    """

    cell: np.ndarray
    values: np.ndarray
    marked: np.ndarray
    order: np.ndarray
    parent: np.ndarray
    paths: Columns
    turned: np.ndarray
    crossing: np.ndarray


class Skeleton:
    """Outlines of blocks, gathered in any order.

    Parameters
    ----------
    vertex
        Bytes that the graph takes for each vertex while it is worked on.
    memory_limit
        Bound on the peak resident set of the process, bytes.
    """

    def __init__(self, vertex: int, memory_limit: int) -> None:
        self._vertex, self._limit = vertex, memory_limit
        self._outlines: list[Outline] = []
        self.vertices = 0

    def add(self, outline: Outline) -> None:
        """Keep the outline of another block.

        Raises
        ------
        PlanError
            when there are more vertices than the memory limit allows.
        """
        if not len(outline.cells):
            return
        self._outlines.append(outline)
        self.vertices += len(outline.values)
        needed = COMPILED_BASELINE + self.vertices * self._vertex
        if needed > self._limit or self.vertices >= 2**31:
            raise PlanError(
                f"a memory limit of {format_size(self._limit)} is too small for {self.vertices:,} "
                f"and more cells between blocks; give more than {ceil_div(needed, MB)} MB, or "
                "convert with a larger --block-size"
            )

    def join(self) -> Graph | None:
        """The graph of all outlines, which are gone afterwards; None without edges."""
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
        )


def _vertices_of(cell: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Vertices of cells, int32."""
    order = np.argsort(cell).astype(np.int32)
    at = np.searchsorted(cell, wanted, sorter=order)
    found = order[np.minimum(at, len(order) - 1)]
    if (cell[found] != wanted).any():
        raise StoreError("the layer mst changed while it was read; run this again")
    return found


@jit
def root_graph(ends, size):
    """Take leaves off a forest: order, parents, and the edge to each parent, -1 at roots.

    Vertices of cycles are left out of the order.
    """
    degree = np.zeros(size, np.int32)
    # The exclusive or of a vertex's edges: the last that is left of them is all of it.
    mixed = np.zeros(size, np.int64)
    for e in range(len(ends)):
        for v in ends[e]:
            degree[v] += 1
            mixed[v] ^= e
    order, parent = np.empty(size, np.int32), np.full(size, -3, np.int32)
    via = np.full(size, -1, np.int64)
    count = 0
    for start in range(size):
        v = start
        while degree[v] == 1:
            e = mixed[v]
            u = ends[e, 0] ^ ends[e, 1] ^ v
            degree[v] = 0
            degree[u] -= 1
            mixed[u] ^= e
            parent[v], via[v] = u, e
            order[count] = v
            count += 1
            v = u
        if degree[v] == 0 and parent[v] == -3:
            parent[v] = -1
            order[count] = v
            count += 1
    return order[:count], parent, via


class ByBlock:
    """Rows of a table, looked up by the block of a cell.

    Parameters
    ----------
    cells
        int64, ids: the first column.
    columns
        The others.
    """

    def __init__(self, blocks: BlockGrid, cells: np.ndarray, *columns: np.ndarray) -> None:
        self._across = blocks.shape[1]
        block = cells // blocks.cols // blocks.block * self._across
        block += cells % blocks.cols // blocks.block
        order = np.argsort(block, kind="stable")
        self._block = block[order]
        self._columns = tuple(column[order] for column in (cells, *columns))

    def of(self, at: tuple[int, int]) -> Columns:
        """The rows of a block."""
        block = at[0] * self._across + at[1]
        first, last = np.searchsorted(self._block, [block, block + 1])
        return tuple(column[first:last] for column in self._columns)

    def blocks(self) -> list[tuple[int, int]]:
        """Blocks that have rows."""
        return [divmod(block, self._across) for block in np.unique(self._block).tolist()]


def neighbour(cols: int, here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Number of the neighbour that `there` is of `here`, ids of cells; uint8."""
    return NEIGHBOUR[there // cols - here // cols + 1, there % cols - here % cols + 1]
