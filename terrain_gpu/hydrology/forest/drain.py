"""Drain a forest in three steps: contract blocks, solve the skeleton, finish blocks.

1. `outline` cuts a block's forest between its outlets and contracts the rest to the cells with
   edges to other blocks, with the sums of what was contracted into them.
2. `solve` cuts between outlets of different blocks and computes the flow: the edges within blocks
   to cut, and the sum that flows over each edge between blocks.
3. `drain` uses the result to finish a block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...grid import Block, BlockGrid
from ...grid.neighbours import DIRECTIONS
from ..common.code_values import NOWHERE
from ..common.outlets import BlockOutlets
from .block import BlockForest
from .block_kernels import clear, d8_codes, fold, lead_out
from .skeleton import ByBlock, Crossing, Graph, Outline, neighbour
from .skeleton_kernels import by_number, keep_joined, number_vertices
from .tree import contract, gather, separate

VERTEX_BYTES = 110
"""Bytes per vertex of the skeleton while it is joined and solved."""


def outline(
    block: BlockForest, block_outlets: BlockOutlets, values: np.ndarray | None
) -> tuple[Outline, int]:
    """Contract the forest of a block.

    Parameters
    ----------
    block_outlets
        The outlets of the block.
    values
        int64, shape (rows, cols): the value of each cell. None if no sums are needed.

    Returns
    -------
    outline
        The outline. Its `paths` hold the key and id of the heaviest edge of each path.
    outlets
        The number of outlets that are open within the block.
    """
    work = block.work
    block.root(np.concatenate((block.out_cell, block_outlets.cells)))
    block.weigh()
    tree = block.trunk, work.parent, work.keys, work.ids
    outward = block.outward(block_outlets)
    opened = _separate(block, block_outlets, outward)
    outlets = block_outlets.cells[opened]
    number = work.one[: block.size]
    terminals, numbered = number_vertices(block.trunk, block.out_cell, outlets, number)
    _fold(block, values)
    ends = np.empty((2 * numbered + 1, 2), np.int32)
    heaviest = np.empty(2 * numbered + 1, np.int32)
    size, count = contract(
        *tree, work.cut, number, numbered, work.sums, work.two, work.three, ends, heaviest
    )
    ends, heaviest = ends[:count].copy(), heaviest[:count]
    # Other blocks do not need the outlets of trees that lie entirely within this one.
    keep, renumbered = keep_joined(size, len(terminals), ends)
    sums = by_number(block.trunk, number, size, work.sums)
    mouths = number[outlets]
    keep_outlet = keep[mouths]
    crossing = Crossing.of(block)
    found_outline = Outline(
        block.globally(terminals),
        sums[keep],
        renumbered[mouths[keep_outlet]],
        ends,
        (work.keys[heaviest], work.ids[heaviest]),
        crossing.cells,
        (block.crossing_keys(len(crossing.ids)), crossing.ids),
        (outward[0][opened][keep_outlet], outward[1][opened][keep_outlet]),
    )
    return found_outline, len(outlets)


def _separate(
    block: BlockForest, outlets: BlockOutlets, outward: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """Cut a weighed forest between the outlets of its block; return the mask of open outlets."""
    work, closed = block.work, np.zeros(len(outlets.cells), bool)
    if len(outlets.cells) > 1:
        tree = block.trunk, work.parent, work.keys, work.ids
        separate(*tree, outlets.cells, *outward, work.one, work.cut, closed)
    return ~closed


def _fold(block: BlockForest, values: np.ndarray | None) -> None:
    """Add the values of branches to the trunk, in `work.sums`."""
    sums = block.work.sums
    if values is None:
        clear(block.trunk, sums)
    else:
        sums[: block.size] = values.ravel()
        fold(block.branches, block.width, block.work.code, sums)


BlockFlows = tuple[tuple[np.ndarray, ...], ...]


@dataclass
class Flows:
    """What each block learns from the solved skeleton.

    Attributes
    ----------
    cuts
        Edges within blocks to cut: the lower endpoint and the edge id.
    leaving
        Cells that drain into another block, and the neighbour they drain to.
    entering
        Cells that receive flow from another block, and the amount; a cell may appear repeatedly.
    closed
        Outlets that are closed because their cells drain to another outlet.
    """

    cuts: ByBlock
    leaving: ByBlock
    entering: ByBlock
    closed: ByBlock

    def of(self, at: Block) -> BlockFlows:
        """Return the rows of each table for one block."""
        return tuple(one.of(at) for one in (self.cuts, self.leaving, self.entering, self.closed))


def solve(graph: Graph | None, blocks: BlockGrid) -> Flows:
    """Cut the skeleton between outlets, and drain it."""
    severed = sources = sinks = sums = shut = np.empty(0, np.int64)
    if graph is not None:
        order, parent, (keys, ids) = graph.order, graph.parent, graph.paths
        cut = np.zeros(len(order), bool)
        into = np.empty(len(order), np.int32)
        closed = np.zeros(len(graph.marked), bool)
        separate(order, parent, keys, ids, graph.marked, *graph.outward, into, cut, closed)
        gather(order, parent, cut, graph.marked[~closed], graph.values, into)
        shut = graph.outward[1][closed] + blocks.rows * blocks.cols
        severed = ids[cut & ~graph.crossing]
        source = np.flatnonzero(into >= 0)
        sink = into[source]
        over = np.where(sink == parent[source], graph.crossing[source], graph.crossing[sink])
        source, sink = source[over], sink[over]
        sources, sinks, sums = graph.cell[source], graph.cell[sink], graph.values[source]
    return Flows(
        ByBlock(blocks, severed >> 2, severed),
        ByBlock(blocks, sources, neighbour(blocks.cols, sources, sinks)),
        ByBlock(blocks, sinks, sums),
        ByBlock(blocks, shut),
    )


def drain(
    block: BlockForest,
    block_outlets: BlockOutlets,
    values: np.ndarray | None,
    flows: BlockFlows,
    codes: np.ndarray,
) -> np.ndarray:
    """Compute the sum that drains through each cell of a block.

    Parameters
    ----------
    block_outlets, values
        As for `outline`.
    flows
        The block's rows of `Flows`.
    codes
        uint8, shape (cells,). Receives the D8 code of each cell's drainage direction, 0 at outlets,
        255 where the cell does not drain.

    Returns
    -------
    numpy.ndarray, int64, shape (cells,)
        The sums, 0 for cells without an outlet; undefined if `values` is None. A view of the work
        space, valid until the next block.
    """
    work = block.work
    block.root(np.concatenate((block.out_cell, block_outlets.cells)))
    trunk = block.trunk
    if len(block_outlets.cells) > 1:
        block.weigh()
    (cells, cuts), (leaving_cells, steps), (entered, amounts), (closed,) = flows
    outlets = block_outlets.cells[_separate(block, block_outlets, block.outward(block_outlets))]
    outlets = outlets[~np.isin(outlets, block.locally(closed))]
    if len(cuts):
        across = np.array([down * block.width + right for down, right in DIRECTIONS])
        lower = block.locally(cells)
        upper = lower + across[cuts & 3]
        work.cut[np.where(work.parent[lower] == upper, lower, upper)] = True
    sums = work.sums[: block.size]
    _fold(block, values)
    np.add.at(sums, block.locally(entered), amounts)
    leaving = block.locally(leaving_cells)
    gather(trunk, work.parent, work.cut, np.concatenate((outlets, leaving)), sums, work.one)
    d8_codes(block.branches, trunk, block.width, work.code, work.parent, work.one, codes)
    lead_out(codes, leaving, steps)
    if values is not None:
        sums[codes == NOWHERE] = 0
    return sums
