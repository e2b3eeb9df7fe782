"""A block of the spanning forest: its cells as vertices, and the edges that leave it.

Cells are numbered row by row within the block. Neighbours are numbered as D8 codes are: E, SE, S,
SW, W, NW, N, NE. Each thread allocates its work space once; see `Work`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ...errors import StoreError
from ...grid import BlockGrid, Window
from ...grid.neighbours import COL_STEP, EDGE_OF, NE, NW, ROW_STEP, SE, SW, E, N, S, W
from ...spanning_tree.cpu.keys import edge_key, rule_at
from ...spanning_tree.weights import Weight, valid_cells
from .source import Forest

if TYPE_CHECKING:
    from ..common.outlets import BlockOutlets

_DIRECTION = np.array([0, 3, 2, 1, -1, -1, -1, -1])
"""Direction of the edge to a neighbour, -1 where the neighbour is the lower endpoint."""
_NONE, _KEPT, _ALONE, _ROOT = range(8, 12)
"""Codes of cells without a value or not seen yet, of those to keep, and of roots: of a tree without
one to keep, and of others."""

_NUMBER = np.zeros(256, np.uint8)
_NUMBER[1 << np.arange(8)] = np.arange(8)
"""Number of the neighbour of each single bit."""


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
    own = 1 + 1 + 4 + 4 + max(8, key.itemsize) + 8 + 12 + 1 + 8
    operand = max(cell.itemsize, min(8, key.itemsize))
    return blocks.largest(1) * (own + operand + cell.itemsize + 16)


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
    out_cell, out_step
        Edges to other blocks: the cell, int32, and the number of the neighbour, uint8.
    forest
        The layers, and the edge weight.
    order
        `work.order`, cut to the cells that have a value; set by `root`, as are the others.
    trunk
        The end of `order`: all cells on paths between those that `root` was told to keep.
    branches
        The cells before them. Each branch leads to the trunk, or forms a tree of its own.
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
        return self.forest.weight.operands(self.heights)

    def root(self, kept: np.ndarray | None) -> None:
        """Order the cells, and find the parents of those of the trunk.

        Parameters
        ----------
        kept
            int32: cells of the trunk. They may repeat. None: all are.

        Raises
        ------
        StoreError
            when the edges form a cycle.
        """
        work, valid = self.work, self.valid[1:-1, 1:-1].reshape(-1)
        found = np.empty(0, np.int32) if kept is None else kept
        branches, count = root_trees(work.links, valid, found, self.width, work.code, work.order)
        if count != np.count_nonzero(valid):
            raise self.no_forest()
        self.order = work.order[:count]
        first = 0 if kept is None else branches
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
        corner = np.array((*self.window, self.cols), np.int64)
        work = self.work
        tree = self.trunk, work.code, work.parent
        rule = self.forest.weight.rule()
        parent_edges(self.operands, rule, corner, *tree, work.keys, work.ids)

    def outward(self, outlets: BlockOutlets) -> tuple[np.ndarray, np.ndarray]:
        """Return key and id of the edge outwards from each outlet.

        That of a low one is as high as the cell and has no slope, so every edge to a lower cell
        comes before it. Its id is less than those of other edges. Edges outwards from given outlets
        come before all others.
        """
        row, col = outlets.cells // self.width, outlets.cells % self.width
        here = self.operands[row + 1, col + 1]
        keys = edge_key(here, here, rule_at(self.forest.weight.rule(), 0, self.window[0] + row))
        ids = self.globally(outlets.cells) - self.forest.cells.grid.cells
        low, first = outlets.low, np.iinfo(np.int64).min
        return np.where(low, keys, 0).astype(self.work.keys.dtype), np.where(low, ids, first)

    def crossing_keys(self) -> np.ndarray:
        """Keys of the edges to other blocks, of the type of `Work.keys`."""
        row, col = self.out_cell // self.width + 1, self.out_cell % self.width + 1
        there = row + ROW_STEP[self.out_step], col + COL_STEP[self.out_step]
        forward = _DIRECTION[self.out_step]
        lower = np.where(forward < 0, there[0], row) - 1 + self.window[0]
        direction = np.maximum(forward, _DIRECTION[(self.out_step + 4) & 7])
        of_step = rule_at(self.forest.weight.rule(), direction, lower)
        keys = edge_key(self.operands[row, col], self.operands[there], of_step)
        return keys.astype(self.work.keys.dtype)


def read_forest(
    forest: Forest, window: Window, cells: np.ndarray, edges: np.ndarray, work: Work
) -> BlockForest:
    """Read the forest of a block, which `BlockForest.root` then roots.

    Parameters
    ----------
    cells, edges
        Heights and forward edges of the block and one ring around it, C-contiguous.
    work
        Receives links.

    Raises
    ------
    StoreError
        when the edges do not match the cells.
    """
    valid = valid_cells(cells, forest.cells.nodata)
    rows, cols = forest.cells.grid.shape
    r0, r1, c0, c1 = window
    sides = valid[0], valid[-1], valid[:, 0], valid[:, -1]
    for side, beyond in zip(sides, (r0 == 0, r1 == rows, c0 == 0, c1 == cols), strict=True):
        if beyond:
            side[:] = False
    links = work.links[: (r1 - r0) * (c1 - c0)].reshape(r1 - r0, c1 - c0)
    known = join_edges(edges, links)
    outward = np.zeros_like(links)
    outward[0] |= NW | N | NE
    outward[-1] |= SW | S | SE
    outward[:, 0] |= NW | W | SW
    outward[:, -1] |= NE | E | SE
    outward &= links
    rim = np.flatnonzero(outward != 0)
    which, step = np.nonzero(
        np.unpackbits(outward.reshape(-1)[rim, None], axis=1, bitorder="little")
    )
    out_cell = rim[which].astype(np.int32)
    row, col = np.divmod(out_cell, links.shape[1])
    block = BlockForest(window, cols, cells, valid, work, out_cell, step.astype(np.uint8), forest)
    ends = valid[row + 1 + ROW_STEP[step], col + 1 + COL_STEP[step]]
    here = valid[1:-1, 1:-1]
    if not known or not ends.all() or not np.logical_or(here, links == 0).all():
        raise block.no_forest()
    links ^= outward
    return block


@jit
def join_edges(edges, links):
    """Compute the D8 edge bits of a window, see `grid.neighbours.symmetric`.

    Parameters
    ----------
    edges
        uint8: the forward edges of the window and of a ring around it.
    links
        uint8, of the shape of the window: receives the bits.

    Returns
    -------
    bool
        Whether the forward edges are such.
    """
    rows, cols = links.shape
    every = np.uint8(0)
    for row in range(rows):
        above, into = edges[row], links[row]
        west, own = edges[row + 1, 0:cols], edges[row + 1, 1 : cols + 1]
        north_west, north, north_east = above[0:cols], above[1 : cols + 1], above[2 : cols + 2]
        for x in range(cols):
            here = own[x]
            every |= here
            bits = (here & 1) | (here >> 2 & 2) | (here & 4) | (here << 2 & 8)
            bits |= (west[x] & 1) << 4 | (north_west[x] & 8) << 2
            into[x] = bits | (north[x] & 4) << 4 | (north_east[x] & 2) << 6
    return every < 16


def edge_ids(cols: int, cells: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Ids of the edges from cells to neighbours."""
    there = cells + ROW_STEP[steps] * cols + COL_STEP[steps]
    return 4 * np.where(steps < 4, cells, there) + EDGE_OF[steps & 3]


@jit
def root_trees(links, valid, kept, cols, code, order):
    """Order the vertices of a block by removing leaves, so that each comes before its parent.

    Leaves are removed row by row, then what became a leaf by that, and so on. Most neighbours in
    this order are independent, so the processor need not wait for one to begin the next.

    Parameters
    ----------
    links, code, order
        See `Work`; `order` has room for one more.
    valid
        Whether each cell has a value.
    kept
        int32, cells that are removed after all others but those between them.
    cols
        Columns of the block.

    Returns
    -------
    branches, vertices
        How many vertices were removed first, and in all. Those on cycles are not.
    """
    code[: len(valid)] = _NONE
    code[kept] = _KEPT
    count = 0
    for v in range(len(valid)):
        order[count] = v
        count += (links[v] & (links[v] - 1) == 0) & valid[v] & (code[v] == _NONE)
    branches = _remove_leaves(links, cols, code, order, 0, count, _ALONE)
    count = branches
    for v in kept:
        order[count] = v
        count += (links[v] & (links[v] - 1) == 0) & (code[v] == _KEPT)
        code[v] = _NONE
    return branches, _remove_leaves(links, cols, code, order, branches, count, _ROOT)


@register_jitable
def _remove_leaves(links, cols, code, order, done, count, root):
    """Remove the leaves from `done` to `count`, and what becomes a leaf by that; count all."""
    step = ROW_STEP * cols + COL_STEP
    while done < count:
        v = np.int64(order[done])
        done += 1
        bits = links[v]
        if bits == 0:  # its last neighbour was removed before it
            code[v] = root
            continue
        k = _NUMBER[bits]
        code[v] = k
        links[v] = 0
        u = v + step[k]
        bits = links[u] & ~(1 << (k + 4 & 7))
        links[u] = bits
        order[count] = u
        count += (bits & (bits - 1) == 0) & (bits != 0) & (code[u] == _NONE)
    return count


@jit
def find_parents(order, cols, code, parent):
    """Find the parent of each vertex of `order` from its code."""
    step = ROW_STEP * cols + COL_STEP
    for v in order:
        parent[v] = v + step[code[v]] if code[v] < _NONE else -1


@jit
def fold(branches, cols, code, sums):
    """Add the sum of each vertex of a branch to that of its parent."""
    step = ROW_STEP * cols + COL_STEP
    for v in branches:
        if code[v] < _NONE:
            sums[v + step[code[v]]] += sums[v]


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
        keys[v] = edge_key(here, there, rule_at(rule, d, row0 + row))
        ids[v] = 4 * ((row0 + row) * cols + col0 + col) + d


@register_jitable
def step_length(metric, v, u, k):
    """Length of the step from cell `v` to its neighbour `u`, number `k`.

    `metric` is the first row and the width of the block, and lengths as of `step_lengths`.
    """
    row0, width, lengths = metric
    # Unsigned numbers of 32 bits are divided faster.
    return lengths[EDGE_OF[k], row0 + np.int64(np.uint32(min(v, u)) // np.uint32(width))]


@jit
def parent_lengths(metric, order, code, along):
    """Compute the length of each cell's edge to its parent; `metric`: see `step_length`."""
    step = ROW_STEP * metric[1] + COL_STEP
    for v in order:
        k = code[v]
        along[v] = 0
        if k < _NONE:
            along[v] = step_length(metric, v, v + step[k], k)


@jit
def d8_codes(branches, trunk, cols, code, parent, into, codes):
    """Encode where vertices drain to as D8 codes: 0 at outlets, 255 where they do not drain.

    Parameters
    ----------
    into
        Where each vertex of the trunk drains to, see `tree.gather`. Branches drain to the trunk.
    codes
        Receives the codes.
    """
    step = ROW_STEP * cols + COL_STEP
    alone = 0
    for v in range(len(codes)):
        codes[v] = 1 << code[v] if code[v] < _NONE else 255
        alone += code[v] == _ALONE
    astray = alone > 0
    for v in trunk:
        u = into[v]
        if u >= 0:
            k = code[v] if u == parent[v] else code[u] + 4
            codes[v] = 1 << (k & 7)
        else:
            codes[v] = 0 if u == -1 else 255
            astray |= u != -1
    if not astray:
        return
    for i in range(len(branches) - 1, -1, -1):
        v = branches[i]
        if code[v] >= _NONE or codes[v + step[code[v]]] == 255:
            codes[v] = 255
