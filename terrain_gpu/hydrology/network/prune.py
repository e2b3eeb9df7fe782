"""Find the edges of a forest that form its network: per block, in the skeleton, per block again.

An edge belongs to the network if, on both sides, a path that begins with it is long enough or
reaches a kept point. This needs the longest path from each edge to either side; such maxima can be
combined across blocks. Lengths are integers, so sums do not depend on the blocks.

This rule alone would shorten every line by the minimum length. Each end that is not a kept point is
therefore extended along the longest path. A block does not know which line ends enter it from other
blocks. It therefore extends a line over each edge by which one might enter, and reports the edge by
which it would leave again. Once all blocks have reported, the extensions are known.
"""

from __future__ import annotations

import numpy as np

from ...grid import BlockGrid
from ..forest.block import BlockForest, Work, edge_ids
from ..forest.block_kernels import find_parents, parent_lengths
from ..forest.skeleton import ByBlock, Columns, Crossing, Graph, Outline, neighbour
from ..forest.skeleton_kernels import by_number, number_vertices
from .prune_kernels import contract_lengths, extend_lines, fold_lengths, keep_edges, reach

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
        The longest path from each cell into what was contracted into it.
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


def outline(block: BlockForest, keep_points: np.ndarray, units: np.ndarray) -> Outline:
    """Contract the forest of a block to the cells with edges to other blocks.

    In the result, `values` holds the longest path contracted into each vertex. `paths` holds the
    length of each contracted path, and the longest paths into what branches off it, measured from
    its first end and from its second end.

    Parameters
    ----------
    keep_points
        int32, kept points of the block.
    units
        See `grid.lengths.whole_lengths`.
    """
    work, trunk = _folded(block, keep_points, units, np.iinfo(np.int64).max)
    number, none = work.one[: block.size], np.empty(0, np.int32)
    terminals, _ = number_vertices(trunk, block.out_cell, none, number)
    ends = np.empty((2 * len(terminals) + 1, 2), np.int32)
    paths = np.empty((3, 2 * len(terminals) + 1), np.int64)
    chain = work.two, work.a, work.b, work.c
    size, count = contract_lengths(
        trunk,
        work.parent,
        work.along,
        number,
        len(terminals),
        work.hang,
        chain,
        ends,
        paths,
    )
    crossing = Crossing.of(block)
    steps = units[crossing.ids & 3, (crossing.ids >> 2) // block.cols]
    zeros = np.zeros(len(steps), np.int64)
    return Outline(
        block.globally(terminals),
        by_number(trunk, number, size, work.hang),
        none,
        ends[:count],
        tuple(paths[:, :count]),
        crossing.cells,
        (steps, zeros, zeros),
    )


def _folded(
    block: BlockForest, keep_points: np.ndarray, units: np.ndarray, least: int
) -> tuple[LengthWork, np.ndarray]:
    """Fold dead ends shorter than `least` into `hang`.

    Returns the work space, and the other cells, each before its parent.
    """
    work = block.work
    assert isinstance(work, LengthWork)
    block.root(block.out_cell)
    work.hang[: block.size] = 0
    work.hang[keep_points] = ENDLESS
    metric, unfolded = (block.window[0], block.width, units), work.three
    count = fold_lengths(metric, block.branches, work.code, least, work.hang, work.cut, unfolded)
    order = unfolded[: count + len(block.trunk)]
    order[count:] = block.trunk
    find_parents(order, block.width, work.code, work.parent)
    parent_lengths(metric, order, work.code, work.along)
    return work, order


def solve(graph: Graph | None, blocks: BlockGrid, least: int) -> ByBlock:
    """Solve the skeleton, and return what each block needs from the others.

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
    cells, others = graph.cell[child], graph.cell[parent[child]]
    in_network = np.minimum(down[child], up[child]) >= least
    return ByBlock(
        blocks,
        np.concatenate((cells, others)),
        np.concatenate(
            (neighbour(blocks.cols, cells, others), neighbour(blocks.cols, others, cells))
        ),
        np.concatenate((up[child], down[child])),
        np.concatenate((in_network, in_network)),
    )


def entered(arcs: np.ndarray) -> np.ndarray:
    """Return the ids of all edges between blocks over which lines are extended, in ascending order.

    Parameters
    ----------
    arcs
        int64, shape (n, 2): a line end that enters a block by the first edge leaves it by the
        second; the first is -1 for lines that end in the block.
    """
    edges, fresh = np.empty(0, np.int64), np.array([-1])
    while len(fresh):
        edges = np.union1d(edges, fresh)
        fresh = np.setdiff1d(arcs[np.isin(arcs[:, 0], fresh), 1], edges)
    return edges[1:]


def keep(
    block: BlockForest, keep_points: np.ndarray, units: np.ndarray, beyond: Columns, least: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the edges of a block that belong to the network, or would if a line end enters it.

    At most one line end enters a tree of the block, and only if the tree has no other line.

    Parameters
    ----------
    keep_points, units
        As for `outline`.
    beyond
        The block's rows of the result of `solve`.
    least
        As for `solve`.

    Returns
    -------
    bits
        uint8, the edges at each cell as a union of D8 codes; each edge is marked at both ends.
    condition
        int64, the id of the edge by which a line end must enter the block for the edges at a cell
        to be in the network; negative if they are in any case.
    arcs
        See `entered`.
    """
    work, order = _folded(block, keep_points, units, least)
    cells, steps, far, chosen = beyond
    local = block.locally(cells)
    np.maximum.at(work.hang, local, far)
    down, up = work.c, work.d
    tree = order, work.parent, work.along, work.hang
    reach(*tree, work.along, work.along, work.hang, work.a, down, up)
    bits, end, out = work.bits[: block.size], work.a[: block.size], work.b[: block.size]
    bits[:] = 0
    keep_edges(order, work.parent, work.code, down, up, least, bits)
    np.bitwise_or.at(bits, local[chosen], _codes(steps[chosen]))

    # Where lines end in the block, and where a line end may enter from another block.
    ids = edge_ids(block.cols, cells, steps)
    end[order] = -2
    edges = bits[order]
    end[order[(edges != 0) & (edges & (edges - np.uint8(1)) == 0)]] = -1
    end[keep_points] = -2
    coming = (far >= least) & ~chosen
    end[local[coming]] = ids[coming]
    bits[local[coming]] = _codes(steps[coming])
    short = far < least
    out[:] = 0
    np.maximum.at(out, local[short], far[short])
    begun = order[end[order] > -2]
    work.two[: len(begun)] = begun
    paths = (block.window[0], block.width, units), work.code, work.hang, up, least
    if not extend_lines(*paths, work.two, len(begun), bits, end, out):
        raise block.no_forest()
    leaving = short & (end[local] > -2) & (far == out[local])
    np.bitwise_or.at(bits, local[leaving], _codes(steps[leaving]))
    return bits, end, np.stack((end[local[leaving]], ids[leaving]), axis=1)


def _codes(steps: np.ndarray) -> np.ndarray:
    return np.left_shift(1, steps).astype(np.uint8)
