"""A block of the spanning forest: its cells as vertices, and the edges that leave it.

Cells are numbered in row-major order within the block. Neighbours are numbered in the order of the
D8 codes: E, SE, S, SW, W, NW, N, NE. Each thread allocates its work space once; see `Work`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ...errors import StoreError
from ...grid import BlockGrid, Window
from ...grid.neighbours import COL_STEP, EDGE_OF, ROW_STEP
from ...spanning_tree.weights import Weight, valid_cells
from ..common.cell_kernels import cells_of, ids_of
from .block_kernels import (
    crossing_keys,
    cut_rim,
    find_parents,
    join_edges,
    outward_edges,
    parent_edges,
    root_trees,
)
from .source import Forest

if TYPE_CHECKING:
    from ..common.outlets import BlockOutlets


class Work:
    """Work space of one thread, for one block.

    Attributes
    ----------
    links
        uint8, bits of a cell's remaining edges within the block while leaves are removed.
    code
        uint8, the number of the neighbour that is the cell's parent.
    order, parent, keys, ids, cut
        See `tree.separate`.
    one, two, three
        int32 work space.
    sums
        int64 work space.
    """

    def __init__(self, blocks: BlockGrid, weight: Weight | None = None) -> None:
        n = blocks.largest()
        key = np.uint64 if weight is None or not weight.two_words else weight.key_dtype
        self.links, self.code = np.empty(n, np.uint8), np.empty(n, np.uint8)
        self.order, self.parent = np.empty(n + 1, np.int32), np.empty(n, np.int32)
        self.keys, self.ids = np.empty(n, key), np.empty(n, np.int64)
        self.one, self.two, self.three = (np.empty(n, np.int32) for _ in range(3))
        self.cut, self.sums = np.empty(n, np.bool_), np.empty(n, np.int64)


def work_bytes(blocks: BlockGrid, cell: np.dtype, key: np.dtype) -> int:
    """Bytes a thread needs for a block: `Work`, operands, validity and their temporaries."""
    arrays = 1 + 1 + 4 + 4 + max(8, key.itemsize) + 8 + 12 + 1 + 8
    operand = max(cell.itemsize, min(8, key.itemsize))
    return blocks.largest(1) * (arrays + operand + cell.itemsize + 16)


@dataclass
class BlockForest:
    """The forest inside a block.

    Attributes
    ----------
    window, cols
        The block's window, and the number of columns of the raster.
    heights, valid
        Shape (rows + 2, cols + 2): the elevations of the block with a margin of one cell, and the
        mask of valid cells.
    work
        The thread's arrays, which may be longer than this block needs.
    out_cell, out_step
        Edges to other blocks: the cell on this side, int32, and the neighbour's number, uint8.
    forest
        The layers, and the edge weight.
    order
        `work.order`, limited to the valid cells. Set by `root`, like the following two.
    trunk
        The end of `order`: all cells on paths between the cells that `root` had to keep.
    branches
        The cells before them. Each branch is connected to the trunk or forms a tree of its own.
    """

    window: Window
    cols: int
    heights: np.ndarray
    valid: np.ndarray
    work: Work
    out_cell: np.ndarray
    out_step: np.ndarray
    forest: Forest
    order: np.ndarray = field(init=False)
    trunk: np.ndarray = field(init=False)
    branches: np.ndarray = field(init=False)

    @property
    def width(self) -> int:
        return self.window[3] - self.window[2]

    @property
    def size(self) -> int:
        return (self.window[1] - self.window[0]) * self.width

    def globally(self, cells: np.ndarray) -> np.ndarray:
        """Return the ids of cells in the raster, int64."""
        return ids_of(cells, self.window[0], self.window[2], self.width, self.cols)

    def locally(self, ids: np.ndarray) -> np.ndarray:
        """Return the cells of this block with these ids, int32."""
        return cells_of(ids, self.window[0], self.window[2], self.width, self.cols)

    @property
    def corner(self) -> np.ndarray:
        """The window and the number of columns of the raster, for kernels."""
        return np.array((*self.window, self.cols), np.int64)

    @cached_property
    def operands(self) -> np.ndarray:
        """`Weight.operands` of the elevations, in the same shape."""
        return self.forest.weight.operands(self.heights)

    def root(self, keep_cells: np.ndarray | None) -> None:
        """Order the cells, and find the parents of those of the trunk.

        Parameters
        ----------
        keep_cells
            int32, cells to keep in the trunk, possibly repeated. None keeps all cells.

        Raises
        ------
        StoreError
            If the edges form a cycle.
        """
        work, valid = self.work, self.valid[1:-1, 1:-1].reshape(-1)
        keep = np.empty(0, np.int32) if keep_cells is None else keep_cells
        tree = work.code, work.order
        branches, count, complete = root_trees(work.links, valid, keep, self.width, *tree)
        if not complete:
            raise self.no_forest()
        self.order = work.order[:count]
        first = 0 if keep_cells is None else branches
        self.branches, self.trunk = self.order[:first], self.order[first:]
        find_parents(self.trunk, self.width, work.code, work.parent)
        work.cut[: self.size] = False

    def no_forest(self) -> StoreError:
        r0, r1, c0, c1 = self.window
        return StoreError(
            f"{self.forest.edges.path}: not a forest of these cells in rows {r0} .. {r1 - 1}, "
            f"columns {c0} .. {c1 - 1}; compute it again (compute-mst --overwrite)"
        )

    def weigh(self) -> None:
        """Compute the key and the id of the edge from each cell of the trunk to its parent."""
        work = self.work
        tree = self.trunk, work.code, work.parent
        rule = self.forest.weight.rule()
        parent_edges(self.operands, rule, self.corner, *tree, work.keys, work.ids)

    def outward(self, outlets: BlockOutlets) -> tuple[np.ndarray, np.ndarray]:
        """Return the key and id of the outward edge of each outlet.

        The outward edge of a low outlet has the elevation of the cell and slope 0, so every edge to
        a lower cell comes before it. Its id is smaller than the ids of all other edges. Outward
        edges of given outlets come before all other edges.
        """
        count, cells = len(outlets.cells), self.forest.cells.grid.cells
        keys, ids = np.empty(count, self.work.keys.dtype), np.empty(count, np.int64)
        rule = self.forest.weight.rule()
        outward_edges(self.operands, rule, self.corner, *outlets, -cells, keys, ids)
        return keys, ids

    def crossing_keys(self, count: int) -> np.ndarray:
        """Return the keys of the edges of `skeleton.Crossing`, in the type of `Work.keys`."""
        keys = np.empty(count, self.work.keys.dtype)
        rule, edges = self.forest.weight.rule(), (self.out_cell, self.out_step)
        crossing_keys(self.operands, rule, self.corner, *edges, keys)
        return keys


def read_forest(
    forest: Forest, window: Window, cells: np.ndarray, edges: np.ndarray, work: Work
) -> BlockForest:
    """Read the forest of a block, which `BlockForest.root` then roots.

    Parameters
    ----------
    cells, edges
        Elevations and forward edges of the block with a margin of one cell, C-contiguous.
    work
        Work space; `work.links` receives the edges within the block.

    Raises
    ------
    StoreError
        If the edges do not match the cells.
    """
    valid = valid_cells(cells, forest.cells.nodata)
    rows, cols = forest.cells.grid.shape
    r0, r1, c0, c1 = window
    sides = valid[0], valid[-1], valid[:, 0], valid[:, -1]
    for side, beyond in zip(sides, (r0 == 0, r1 == rows, c0 == 0, c1 == cols), strict=True):
        if beyond:
            side[:] = False
    links = work.links[: (r1 - r0) * (c1 - c0)].reshape(r1 - r0, c1 - c0)
    sound = join_edges(edges, links)
    out_cell, out_step, sound_rim = cut_rim(valid, links)
    block = BlockForest(window, cols, cells, valid, work, out_cell, out_step, forest)
    if not (sound and sound_rim):
        raise block.no_forest()
    return block


def edge_ids(cols: int, cells: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return the ids of the edges from cells to neighbours."""
    neighbours = cells + ROW_STEP[steps] * cols + COL_STEP[steps]
    return 4 * np.where(steps < 4, cells, neighbours) + EDGE_OF[steps & 3]
