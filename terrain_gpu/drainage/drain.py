"""Drain a forest in three steps: contract blocks, solve the skeleton, finish blocks.

1. `outline` cuts a block's forest between its outlets and contracts the rest to the cells with
   edges to other blocks, together with the sums of what was contracted into them.
2. `solve` cuts between outlets of different blocks and computes the flow: which edges within
   blocks are cut, and which sum flows over which edge between blocks.
3. `drain` uses this to finish a block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..grid import Block, BlockGrid
from ..grid.neighbours import DIRECTIONS
from .block import BlockForest, d8_codes, fold
from .codes import NOWHERE
from .skeleton import ByBlock, Crossing, Graph, Outline, neighbour
from .tree import contract, gather, separate

VERTEX_BYTES = 110
"""Bytes per vertex of the skeleton while it is joined and solved."""


def outline(block: BlockForest, outlets: np.ndarray, values: np.ndarray | None) -> Outline:
    """Contract the forest of a block; `paths` holds key and id of each path's heaviest edge.

    Parameters
    ----------
    outlets
        int32, cells of the block.
    values
        int64, shape (rows, cols): the value of each cell. None: no sums are wanted.
    """
    work = block.work
    block.root(np.concatenate((block.out_cell, outlets)))
    block.weigh()
    tree = block.trunk, work.parent, work.keys, work.ids
    if len(outlets) > 1:
        separate(*tree, outlets, work.one, work.cut)
    terminals = np.unique(block.out_cell)
    number = work.one[: block.size]
    number[block.trunk] = -1
    number[terminals] = np.arange(len(terminals), dtype=np.int32)
    more = outlets[number[outlets] < 0]
    numbered = len(terminals) + len(more)
    number[more] = np.arange(len(terminals), numbered, dtype=np.int32)
    _fold(block, values)
    ends = np.empty((2 * numbered + 1, 2), np.int32)
    heaviest = np.empty(2 * numbered + 1, np.int32)
    size, count = contract(
        *tree, work.cut, number, numbered, work.sums, work.two, work.three, ends, heaviest
    )
    ends, heaviest = ends[:count], heaviest[:count]
    # Other blocks do not need the outlets of trees that lie entirely within this one.
    kept = np.zeros(size, bool)
    kept[: len(terminals)] = True
    kept[ends] = True
    renumbered = np.cumsum(kept, dtype=np.int32) - 1
    here = block.trunk[number[block.trunk] >= 0]
    sums = np.empty(size, np.int64)
    sums[number[here]] = work.sums[here]
    mouths = number[outlets]
    crossing = Crossing.of(block)
    return Outline(
        block.globally(terminals),
        sums[kept],
        renumbered[mouths[kept[mouths]]],
        renumbered[ends],
        (work.keys[heaviest], work.ids[heaviest]),
        crossing.cells,
        (block.crossing_keys()[crossing.own], crossing.ids),
    )


def _fold(block: BlockForest, values: np.ndarray | None) -> None:
    """Sum the values of branches into the trunk, in `work.sums`."""
    sums = block.work.sums
    if values is None:
        sums[block.trunk] = 0
    else:
        sums[: block.size] = values.ravel()
        fold(block.branches, block.width, block.work.code, sums)


BlockFlows = tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...], tuple[np.ndarray, ...]]


@dataclass
class Flows:
    """What each block learns from the solved skeleton.

    Attributes
    ----------
    cuts
        Edges within blocks to cut: lower cell and edge id.
    leaving
        Cells that drain into another block, and the neighbour they drain to.
    entering
        Cells that receive flow from another block, and the amount; a cell may appear repeatedly.
    """

    cuts: ByBlock
    leaving: ByBlock
    entering: ByBlock

    def of(self, at: Block) -> BlockFlows:
        """The three tables' rows of one block."""
        return self.cuts.of(at), self.leaving.of(at), self.entering.of(at)


def solve(graph: Graph | None, blocks: BlockGrid) -> Flows:
    """Cut the skeleton between outlets, and drain it."""
    severed = sources = sinks = sums = np.empty(0, np.int64)
    if graph is not None:
        order, parent, (keys, ids) = graph.order, graph.parent, graph.paths
        cut = np.zeros(len(order), bool)
        into = np.empty(len(order), np.int32)
        separate(order, parent, keys, ids, graph.marked, into, cut)
        gather(order, parent, cut, graph.marked, graph.values, into)
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
    )


def drain(
    block: BlockForest,
    outlets: np.ndarray,
    values: np.ndarray | None,
    flows: BlockFlows,
    codes: np.ndarray,
) -> np.ndarray:
    """Compute the sum that drains through each cell of a block.

    Parameters
    ----------
    outlets, values
        As for `outline`.
    flows
        The block's rows of `Flows`.
    codes
        uint8, shape (cells,): receives the D8 code of each cell's drainage direction, 0 at
        outlets, 255 where the cell does not drain.

    Returns
    -------
    numpy.ndarray, int64, shape (cells,)
        The sums, 0 without an outlet; undefined without values. A view of the work space, valid
        until the next block.
    """
    work = block.work
    block.root(np.concatenate((block.out_cell, outlets)))
    trunk = block.trunk
    if len(outlets) > 1:
        block.weigh()
        separate(trunk, work.parent, work.keys, work.ids, outlets, work.one, work.cut)
    (cells, cuts), (left, steps), (entered, amounts) = flows
    if len(cuts):
        across = np.array([down * block.width + right for down, right in DIRECTIONS])
        lower = block.locally(cells)
        upper = lower + across[cuts & 3]
        work.cut[np.where(work.parent[lower] == upper, lower, upper)] = True
    sums = work.sums[: block.size]
    _fold(block, values)
    np.add.at(sums, block.locally(entered), amounts)
    leaving = block.locally(left)
    gather(trunk, work.parent, work.cut, np.concatenate((outlets, leaving)), sums, work.one)
    d8_codes(block.branches, trunk, block.width, work.code, work.parent, work.one, codes)
    codes[leaving] = 1 << steps
    if values is not None:
        sums[codes == NOWHERE] = 0
    return sums
