"""Find the edges of a forest that form its network: per block, in the skeleton, per block again.

An edge belongs to the network when, on both of its sides, a path that begins with it is long enough
or leads to a kept point. This needs the longest path from each edge to either side. Such maxima can
be combined across blocks. Lengths are integers, so sums do not depend on the blocks.

This rule alone would shorten every line by the minimum length. Each end that is not a kept point is
therefore extended along the longest path. A block does not know which line ends enter it from other
blocks, so it reports where each would leave again. Once all reports are in, the ends are known, and
the blocks they enter are processed once more.
"""

from __future__ import annotations

import numpy as np

from ..compiled import jit
from ..grid import BlockGrid
from .block import BlockForest, Work, edge_ids, parent_lengths
from .skeleton import ByBlock, Columns, Crossing, Graph, Outline, neighbour

VERTEX_BYTES = 165
"""Bytes per vertex of the skeleton while it is joined and solved."""

ENDLESS = 2**62
"""Length of a path to a kept point; every other path is shorter."""


class LengthWork(Work):
    """`Work` with arrays for lengths, int64 each.

    Attributes
    ----------
    along
        Length of each cell's edge to its parent.
    hang
        The longest path from a cell into what was contracted into it.
    a, b, c, d
        Work space.
    bits
        uint8, the edges of the network at each cell, as a union of D8 codes.
    """

    BYTES = 3 * 8 + 1

    def __init__(self, blocks: BlockGrid) -> None:
        super().__init__(blocks)
        n = len(self.sums)
        # Weights are not needed here, so their arrays are reused.
        self.along, self.hang, self.a = self.ids, self.sums, self.keys.view(np.int64)
        self.b, self.c, self.d = (np.empty(n, np.int64) for _ in range(3))
        self.bits = np.empty(n, np.uint8)


def outline(block: BlockForest, kept: np.ndarray, units: np.ndarray) -> Outline:
    """Contract the forest of a block to the cells with edges to other blocks.

    In the result, `values` holds the longest path contracted into each vertex. `paths` holds the
    length of each contracted path, and the longest paths into what branches off it, measured from
    its first end and from its second end.

    Parameters
    ----------
    kept
        int32, kept points of the block.
    units
        See `grid.lengths.whole_lengths`.
    """
    work = _prepared(block, kept, units)
    terminals = np.unique(block.out_cell)
    number = work.one[: block.size]
    number[:] = -1
    number[terminals] = np.arange(len(terminals), dtype=np.int32)
    ends = np.empty((2 * len(terminals) + 1, 2), np.int32)
    paths = np.empty((3, 2 * len(terminals) + 1), np.int64)
    chain = work.two, work.a, work.b, work.c
    size, count = contract_lengths(
        block.order,
        work.parent,
        work.along,
        number,
        len(terminals),
        work.hang,
        chain,
        ends,
        paths,
    )
    here = np.flatnonzero(number >= 0)
    hang = np.empty(size, np.int64)
    hang[number[here]] = work.hang[here]
    crossing = Crossing.of(block)
    steps = units[crossing.ids & 3, (crossing.ids >> 2) // block.cols]
    none = np.zeros(len(steps), np.int64)
    return Outline(
        block.globally(terminals),
        hang,
        np.empty(0, np.int32),
        ends[:count],
        tuple(paths[:, :count]),
        crossing.cells,
        (steps, none, none),
    )


def _prepared(block: BlockForest, kept: np.ndarray, units: np.ndarray) -> LengthWork:
    work = block.work
    assert isinstance(work, LengthWork)
    tree = block.order, work.code, work.parent
    parent_lengths(block.window[0], block.width, *tree, units, work.along)
    work.hang[: block.size] = 0
    work.hang[kept] = ENDLESS
    return work


@jit
def contract_lengths(order, parent, along, number, numbered, hang, chain, ends, paths):
    """As `tree.contract`, for lengths.

    Parameters
    ----------
    hang
        Receives the longest path contracted into each numbered vertex.
    chain
        Work space: the vertex at the lower end of an open path, the length of the path, and the
        longest paths into what branches off it, from its lower and from its upper end.
    ends, paths
        Receive the numbers at the ends of each contracted path; its length and these two longest
        paths.
    """
    low, length, from_low, from_top = chain
    for v in order:
        low[v] = -1
    count = 0
    for v in order:
        p, step = parent[v], along[v]
        into = back = np.int64(0)
        if number[v] >= 0:
            start, far = v, step
        else:
            start, far = low[v], step
            if start >= 0:
                far = length[v] + step
                into = max(from_low[v], length[v] + hang[v])
                back = max(from_top[v], hang[v]) + step
        if p < 0:
            if number[v] < 0 and start >= 0:
                hang[start] = max(hang[start], into)
            continue
        if start < 0:
            hang[p] = max(hang[p], hang[v] + step)
            continue
        if number[p] < 0 and low[p] < 0:
            low[p], length[p], from_low[p], from_top[p] = start, far, into, back
            continue
        if number[p] < 0:
            number[p] = numbered
            numbered += 1
            ends[count] = number[low[p]], number[p]
            paths[0, count], paths[1, count] = length[p], from_low[p]
            paths[2, count] = from_top[p]
            count += 1
        ends[count] = number[start], number[p]
        paths[0, count], paths[1, count], paths[2, count] = far, into, back
        count += 1
    return numbered, count


@jit
def reach(order, parent, along, hang, from_parent, from_child, best, second, down, up):
    """Compute the longest path that begins with each edge, to either side.

    Parameters
    ----------
    along, hang
        Length of the edge to the parent; the longest path contracted into a vertex.
    from_parent, from_child
        The longest path into what an edge stands for, from its upper and from its lower end; equal
        to `along` for an ordinary edge.
    best, second
        Work space: the two longest paths from a vertex downwards.
    down, up
        Receive the longest path from the parent over the edge, and from the vertex over it.
    """
    for v in order:
        best[v], second[v] = hang[v], 0
    for v in order:
        p = parent[v]
        if p >= 0:
            far = max(from_parent[v], along[v] + best[v])
            down[v] = far
            if far > best[p]:
                best[p], second[p] = far, best[p]
            else:
                second[p] = max(second[p], far)
    for k in range(len(order) - 1, -1, -1):
        v = order[k]
        p = parent[v]
        if p >= 0:
            rest = second[p] if down[v] == best[p] else best[p]
            if parent[p] >= 0:
                rest = max(rest, up[p])
            up[v] = max(from_child[v], along[v] + rest)


def solve(graph: Graph | None, blocks: BlockGrid, least: int) -> ByBlock:
    """Solve the skeleton: what each block needs to know about the others.

    Parameters
    ----------
    least
        Minimum length of the paths on both sides of an edge of the network.

    Returns
    -------
    ByBlock
        For every edge between blocks, from each of its ends: the cell, the neighbour in the other
        block, the longest path over the edge, and whether the edge belongs to the network.
    """
    if graph is None:
        none = np.empty(0, np.int64)
        return ByBlock(blocks, none, none, none, none.astype(bool))
    order, parent, (along, into, back) = graph.order, graph.parent, graph.paths
    into, back = np.where(graph.turned, back, into), np.where(graph.turned, into, back)
    best, second, down, up = (np.empty(len(order), np.int64) for _ in range(4))
    reach(order, parent, along, graph.values, back, into, best, second, down, up)
    child = np.flatnonzero(graph.crossing)
    here, there = graph.cell[child], graph.cell[parent[child]]
    kept = np.minimum(down[child], up[child]) >= least
    return ByBlock(
        blocks,
        np.concatenate((here, there)),
        np.concatenate((neighbour(blocks.cols, here, there), neighbour(blocks.cols, there, here))),
        np.concatenate((up[child], down[child])),
        np.concatenate((kept, kept)),
    )


class Tips:
    """Edges between blocks over which line ends are extended; empty at first."""

    def __init__(self, blocks: BlockGrid) -> None:
        self._blocks = blocks
        self._index(np.empty(0, np.int64))

    def _index(self, ids: np.ndarray) -> None:
        cols = self._blocks.cols
        lower = ids >> 2
        upper = lower + np.array([1, cols - 1, cols, cols + 1])[ids & 3]
        cells, others = np.concatenate((lower, upper)), np.concatenate((upper, lower))
        self._table = ByBlock(self._blocks, cells, neighbour(cols, cells, others))

    def close(self, arcs: np.ndarray) -> list[tuple[int, int]]:
        """Find all edges that line ends reach; returns the blocks at these edges.

        Parameters
        ----------
        arcs
            int64, shape (n, 2): a line end that enters a block by the first edge leaves it by the
            second; the first is -1 for lines that end in the block.
        """
        known, fresh = np.empty(0, np.int64), np.array([-1])
        while len(fresh):
            known = np.union1d(known, fresh)
            fresh = np.setdiff1d(arcs[np.isin(arcs[:, 0], fresh), 1], known)
        self._index(known[1:])
        return self._table.blocks()

    def of(self, at: tuple[int, int]) -> tuple[np.ndarray, ...]:
        """Cells of a block at such edges, and their neighbours in other blocks."""
        return self._table.of(at)


def keep(
    block: BlockForest,
    kept: np.ndarray,
    units: np.ndarray,
    beyond: Columns,
    tips: Columns,
    least: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Find the edges of a block that belong to the network.

    Parameters
    ----------
    kept, units
        As for `outline`.
    beyond
        The block's rows of the result of `solve`.
    tips
        Line ends known to enter the block: its rows of `Tips`.
    least
        As for `solve`.

    Returns
    -------
    bits
        uint8, the edges at each cell as a union of D8 codes; each edge is marked at both ends.
    arcs
        See `Tips.close`.
    """
    work = _prepared(block, kept, units)
    cells, steps, far, chosen = beyond
    local = block.locally(cells)
    np.maximum.at(work.hang, local, far)
    tree = block.order, work.parent, work.along, work.hang
    reach(*tree, work.along, work.along, work.a, work.b, work.c, work.d)
    bits, end, out = work.bits[: block.size], work.one[: block.size], work.a[: block.size]
    bits[:] = 0
    sides = block.order, work.parent, work.code, work.c, work.d, least
    keep_edges(*sides, bits)
    np.bitwise_or.at(bits, local[chosen], _codes(steps[chosen]))

    # Where lines end in the block, and where a line end may enter from another block.
    end[:] = -1
    end[(bits != 0) & (bits & (bits - np.uint8(1)) == 0)] = 0
    end[kept] = -1
    coming = np.flatnonzero((far >= least) & ~chosen)
    end[local[coming]] = coming + 1
    known, inward = tips
    known = block.locally(known)
    end[known] = 0
    np.bitwise_or.at(bits, known, _codes(inward))
    short = far < least
    out[:] = 0
    np.maximum.at(out, local[short], far[short])
    extend_lines(*sides, bits, end, out)
    leaving = np.flatnonzero(short & (end[local] >= 0) & (far == out[local]))
    source = end[local[leaving]]
    sure = leaving[source == 0]
    np.bitwise_or.at(bits, local[sure], _codes(steps[sure]))
    ids = edge_ids(block.cols, cells, steps)
    entered = np.where(source == 0, -1, np.append(-1, ids)[source])
    return bits, np.stack((entered, ids[leaving]), axis=1)


def _codes(steps: np.ndarray) -> np.ndarray:
    return np.left_shift(1, steps).astype(np.uint8)


@jit
def keep_edges(order, parent, code, down, up, least, bits):
    """Mark edges with long enough paths on both sides; each is marked at both of its ends."""
    for v in order:
        p = parent[v]
        if p >= 0 and down[v] >= least and up[v] >= least:
            bits[v] |= 1 << code[v]
            bits[p] |= 1 << (code[v] + 4 & 7)


@jit
def extend_lines(order, parent, code, down, up, least, bits, end, out):
    """Extend line ends along the longest paths; mark the edges where the line end is certain.

    Where an edge outside the network has a long enough path on one side, the line is on that side.

    Parameters
    ----------
    bits
        Receives the edges, each at both of its ends.
    end
        int32, 0 at line ends, a positive number where a line end may enter, -1 elsewhere; receives
        the same number at all cells that the end is extended to.
    out
        int64, the longest path away from lines over edges to other blocks; receives the longest
        over all edges.
    """
    for v in order:
        p = parent[v]
        if p >= 0:
            if up[v] < least:
                out[v] = max(out[v], up[v])
            if down[v] < least:
                out[p] = max(out[p], down[v])
    for v in order:
        p = parent[v]
        if p >= 0 and end[v] >= 0 and up[v] < least and up[v] == out[v]:
            end[p] = end[v]
            if end[v] == 0:
                bits[v] |= 1 << code[v]
                bits[p] |= 1 << (code[v] + 4 & 7)
    for k in range(len(order) - 1, -1, -1):
        v = order[k]
        p = parent[v]
        if p >= 0 and end[p] >= 0 and down[v] < least and down[v] == out[p]:
            end[v] = end[p]
            if end[v] == 0:
                bits[v] |= 1 << code[v]
                bits[p] |= 1 << (code[v] + 4 & 7)
