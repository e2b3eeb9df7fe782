"""A block of the spanning forest: its cells as vertices, and the edges that leave it.

Cells are numbered row by row within the block. Neighbours are numbered as D8 codes are: E, SE, S,
SW, W, NW, N, NE. Each thread allocates its work space once; see `Work`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..compiled import jit
from ..errors import StoreError
from ..grid import BlockGrid, Window, clip
from ..grid.neighbours import COL_STEP, EDGE_OF, ROW_STEP
from ..mst.cpu.boruvka import edge_key, rule_at
from ..mst.weights import Weight, valid_cells
from .source import Forest

_DIRECTION = np.array([0, 3, 2, 1, -1, -1, -1, -1])
"""Direction of the edge to a neighbour, -1 where the neighbour is the lower endpoint."""
_UNSEEN = -3
"""Parent of a cell that has not been visited yet."""


class Work:
    """Work space of one thread, for one block.

    Attributes
    ----------
    links
        uint8, bits of a cell's remaining edges within the block while leaves are removed.
    code
        uint8, which neighbour is the cell's parent.
    order, parent, keys, ids, cut
        See `tree.separate`.
    one, two, three
        int32 work space.
    sums
        int64 work space.
    """

    def __init__(self, blocks: BlockGrid) -> None:
        n = min(blocks.block, blocks.rows) * min(blocks.block, blocks.cols)
        self.links, self.code = np.empty(n, np.uint8), np.empty(n, np.uint8)
        self.order, self.parent = np.empty(n, np.int32), np.empty(n, np.int32)
        self.keys, self.ids = np.empty(n, np.uint64), np.empty(n, np.int64)
        self.one, self.two, self.three = (np.empty(n, np.int32) for _ in range(3))
        self.cut, self.sums = np.empty(n, np.bool_), np.empty(n, np.int64)


def work_bytes(block: int, cell: np.dtype, key: np.dtype) -> int:
    """Bytes a thread needs for a block: `Work`, operands, validity and their temporaries."""
    own = 1 + 1 + 4 + 4 + 8 + 8 + 12 + 1 + 8
    return (block + 2) ** 2 * (own + key.itemsize + cell.itemsize + 16)


@dataclass
class BlockForest:
    """The forest inside a block.

    Attributes
    ----------
    window, cols
        The block's window, and the number of columns of the raster.
    heights, valid
        Shape (rows + 2, cols + 2): the block's cells with one ring around them, and which of them
        have a value.
    work
        The thread's arrays, which may be longer than this block needs.
    order
        `work.order`, cut to the cells that have a value.
    out_cell, out_step
        Edges to other blocks: the cell, int32, and the number of the neighbour, uint8.
    weight
        The edge weight.
    """

    window: Window
    cols: int
    heights: np.ndarray
    valid: np.ndarray
    work: Work
    order: np.ndarray
    out_cell: np.ndarray
    out_step: np.ndarray
    weight: Weight

    @property
    def width(self) -> int:
        return self.window[3] - self.window[2]

    @property
    def size(self) -> int:
        return (self.window[1] - self.window[0]) * self.width

    def globally(self, cells: np.ndarray) -> np.ndarray:
        """Ids of cells in the raster, int64."""
        cells = cells.astype(np.int64)
        return (self.window[0] + cells // self.width) * self.cols + (
            self.window[2] + cells % self.width
        )

    def locally(self, ids: np.ndarray) -> np.ndarray:
        """Cells of this block from their ids, int32."""
        row, col = ids // self.cols - self.window[0], ids % self.cols - self.window[2]
        return (row * self.width + col).astype(np.int32)

    @cached_property
    def operands(self) -> np.ndarray:
        """`Weight.operands` of the heights, in the same shape."""
        return self.weight.operands(self.heights)

    def weigh(self) -> None:
        """Compute the key and the id of every cell's edge to its parent, into `work`."""
        corner = np.array((*self.window, self.cols), np.int64)
        work = self.work
        tree = self.order, work.code, work.parent
        rule = self.weight.rule()
        parent_edges(self.operands, rule, corner, *tree, work.keys, work.ids)

    def crossing_keys(self) -> np.ndarray:
        """Keys of the edges to other blocks, uint64."""
        row, col = self.out_cell // self.width + 1, self.out_cell % self.width + 1
        there = row + ROW_STEP[self.out_step], col + COL_STEP[self.out_step]
        forward = _DIRECTION[self.out_step]
        lower = np.where(forward < 0, there[0], row) - 1 + self.window[0]
        direction = np.maximum(forward, _DIRECTION[(self.out_step + 4) & 7])
        of_step = rule_at(self.weight.rule(), direction, lower)
        return edge_key(self.operands[row, col], self.operands[there], of_step).astype(np.uint64)


def read_forest(
    forest: Forest, window: Window, cells: np.ndarray, edges: np.ndarray, work: Work
) -> BlockForest:
    """Root the forest inside a block.

    Parameters
    ----------
    cells, edges
        Heights and forward edges of the block and one ring around it, C-contiguous.
    work
        Receives links, code, order, parent and cut (all False).

    Raises
    ------
    StoreError
        when the edges do not form a forest, or do not match the cells.
    """
    valid = valid_cells(cells, forest.cells.nodata)
    r0, r1, c0, c1 = window
    ring = (r0 - 1, r1 + 1, c0 - 1, c1 + 1)
    inside = clip(ring, forest.cells.grid.window)
    beyond = np.ones(valid.shape, bool)
    beyond[inside[0] - ring[0] : inside[1] - ring[0], inside[2] - ring[2] : inside[3] - ring[2]] = (
        False
    )
    valid[beyond] = False
    most = 16 * (r1 - r0 + c1 - c0)  # eight for each cell of the rim
    out_cell, out_step = np.empty(most, np.int32), np.empty(most, np.uint8)
    count, leaving, good = root_trees(
        edges, valid, work.links, work.code, work.order, work.parent, out_cell, out_step
    )
    if not good:
        raise StoreError(
            f"{forest.edges.path}: not a forest of these cells in rows {r0} .. {r1 - 1}, columns "
            f"{c0} .. {c1 - 1}; compute it again (compute-mst --overwrite)"
        )
    work.cut[: (r1 - r0) * (c1 - c0)] = False
    return BlockForest(
        window,
        forest.cells.grid.cols,
        cells,
        valid,
        work,
        work.order[:count],
        out_cell[:leaving],
        out_step[:leaving],
        forest.weight,
    )


def edge_ids(cols: int, cells: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Ids of the edges from cells to neighbours."""
    there = cells + ROW_STEP[steps] * cols + COL_STEP[steps]
    return 4 * np.where(steps < 4, cells, there) + EDGE_OF[steps & 3]


@jit
def root_trees(forward, valid, links, code, order, parent, out_cell, out_step):
    """Order the vertices of a block by removing leaves, and list the edges that leave the block.

    Parameters
    ----------
    forward, valid
        Forward edges (bit 0 E, 1 SW, 2 S, 3 SE) and whether each cell has a value, with one ring.
    links, code, order, parent, out_cell, out_step
        See `Work` and `BlockForest`.

    Returns
    -------
    vertices, leaving
        The number of cells with a value, and of edges that leave the block.
    good
        Whether all edges join cells with a value, and there is no cycle.
    """
    rows, cols = forward.shape[0] - 2, forward.shape[1] - 2
    step = ROW_STEP * cols + COL_STEP
    links[: rows * cols] = 0
    leaving, vertices = 0, 0
    for row in range(-1, rows + 1):
        for col in range(-1, cols + 1):
            bits = np.int64(forward[row + 1, col + 1])
            here = 0 <= row < rows and 0 <= col < cols
            vertices += here and valid[row + 1, col + 1]
            if bits == 0:
                continue
            if bits > 15:
                return 0, 0, False
            for d in range(4):
                if not bits >> d & 1:
                    continue
                k = EDGE_OF[d]
                r, c = row + ROW_STEP[k], col + COL_STEP[k]
                there = 0 <= r < rows and 0 <= c < cols
                if not (here or there):
                    continue
                if not (valid[row + 1, col + 1] and valid[r + 1, c + 1]):
                    return 0, 0, False
                if here and there:
                    links[row * cols + col] |= 1 << k
                    links[r * cols + c] |= 1 << (k + 4)
                elif here:
                    out_cell[leaving] = row * cols + col
                    out_step[leaving] = k
                    leaving += 1
                else:
                    out_cell[leaving] = r * cols + c
                    out_step[leaving] = k + 4
                    leaving += 1
    parent[: rows * cols] = _UNSEEN
    count = 0
    for start in range(rows * cols):
        v = start
        while links[v] != 0 and links[v] & (links[v] - 1) == 0:
            k = 0
            while links[v] >> (k + 1):
                k += 1
            u = v + step[k]
            links[v] = 0
            links[u] &= ~(1 << (k + 4 & 7))
            code[v] = k
            parent[v] = u
            order[count] = v
            count += 1
            v = u
        if links[v] == 0 and parent[v] == _UNSEEN and valid[v // cols + 1, v % cols + 1]:
            parent[v] = -1
            order[count] = v
            count += 1
    return count, leaving, count == vertices


@jit
def parent_edges(operands, rule, corner, order, code, parent, keys, ids):
    """Compute key and id of the edge from each cell of `order` to its parent, if it has one."""
    row0, _, col0, col1, cols = corner
    width = col1 - col0
    for v in order:
        if parent[v] < 0:
            continue
        k = code[v]
        row, col = v // width, v % width
        r, c = row + ROW_STEP[k], col + COL_STEP[k]
        here, there = operands[row + 1, col + 1], operands[r + 1, c + 1]
        d = _DIRECTION[k]
        if d < 0:
            row, col, d = r, c, _DIRECTION[k - 4]
        keys[v] = np.uint64(edge_key(here, there, rule_at(rule, d, row0 + row)))
        ids[v] = 4 * ((row0 + row) * cols + col0 + col) + d


@jit
def parent_lengths(row0, width, order, code, parent, lengths, along):
    """Compute the length of each cell's edge to its parent; `lengths` is as of `step_lengths`."""
    for v in order:
        along[v] = 0
        if parent[v] >= 0:
            d = _DIRECTION[code[v]]
            lower = v if d >= 0 else parent[v]
            along[v] = lengths[max(d, _DIRECTION[code[v] - 4]), row0 + lower // width]


@jit
def d8_codes(order, code, parent, into, codes):
    """Encode where vertices drain to as D8 codes: 0 at outlets, 255 where they do not drain."""
    codes[:] = 255
    for v in order:
        u = into[v]
        if u == -1:
            codes[v] = 0
        elif u >= 0:
            k = code[v] if u == parent[v] else code[u] + 4
            codes[v] = 1 << (k & 7)
