"""Components across blocks: join them across the lines between blocks, and number them.

The label of a component is one plus the number of first cells before its own in row-major order.
First cells of components inside a block are only counted, per row and column of blocks; components
at the rim of a block are stored.
"""

from __future__ import annotations

import numpy as np

from ...compiled import jit
from ...grid import Block, BlockGrid
from ...primitives.union_find import find
from .block import CELLS, COL0, COL1, FIRST, ROW0, ROW1, UNITS


@jit
def join_line(parent, firsts, one, other, diagonal):
    """Join components of neighbouring cells on both sides of a line between blocks.

    Parameters
    ----------
    parent
        int64: union-find over the components at rims. The root is the component that begins first.
    firsts
        int64: their first cells.
    one, other
        int64, of equal length: component of each cell along the line; -1 outside.
    """
    cells, reach = len(one), 1 if diagonal else 0
    for at in range(cells):
        if one[at] < 0:
            continue
        for beside in range(max(at - reach, 0), min(at + reach + 1, cells)):
            if other[beside] < 0:
                continue
            a, b = find(parent, one[at]), find(parent, other[beside])
            if firsts[a] < firsts[b]:
                parent[b] = a
            else:
                parent[a] = b


@jit
def gather(parent, measures):
    """Point every component to its root, and merge its measures, if any, into the root's."""
    for one in range(len(parent)):
        root = find(parent, one)
        parent[one] = root
        if root == one or not len(measures):
            continue
        for column in (CELLS, UNITS):
            measures[root, column] += measures[one, column]
        for column in (ROW0, COL0):
            measures[root, column] = min(measures[root, column], measures[one, column])
        for column in (ROW1, COL1):
            measures[root, column] = max(measures[root, column], measures[one, column])


@jit
def number_roots(parent, firsts, labels, starts, cols, block):
    """Compute the final labels of the components at rims.

    Parameters
    ----------
    parent
        int64: the root of each; components of a block are in the order of their first cells.
    firsts
        int64: their first cells.
    labels
        int64: number of inner components that begin before each in the same row of its block;
        receives the labels.
    starts
        int64, shape (rows, columns of blocks): number of inner components that begin there;
        receives the label of the first component that begins there.
    cols, block
        Columns of the raster, side of a block.

    Returns
    -------
    int
        Number of all components.
    """
    row, column, before = -1, -1, 0
    for one in range(len(parent)):
        if parent[one] != one:
            continue
        place = firsts[one] // cols, firsts[one] % cols // block
        if place != (row, column):
            row, column = place
            before = 0
        labels[one] += before
        before += 1
        starts[place] += 1
    following = 1
    for row in range(starts.shape[0]):
        for column in range(starts.shape[1]):
            here = starts[row, column]
            starts[row, column] = following
            following += here
    for one in range(len(parent)):
        if parent[one] == one:
            labels[one] += starts[firsts[one] // cols, firsts[one] % cols // block]
    for one in range(len(parent)):
        labels[one] = labels[parent[one]]
    return following - 1


def most_at_rims(blocks: BlockGrid) -> int:
    """Return the largest possible number of components at the rims of all blocks: every second rim
    cell."""
    down, across = blocks.shape
    return blocks.rows * across + blocks.cols * down


def joins_bytes(blocks: BlockGrid, *, measured: bool) -> int:
    """Return an upper bound on the bytes that `Joins` holds."""
    # Per component: two cells on the lines, first cell, label, root, and the measures.
    rims = most_at_rims(blocks) * (5 + (FIRST if measured else 0))
    return 8 * (rims + blocks.rows * blocks.shape[1] + 2 * blocks.count)


class Joins:
    """The components of a raster between its two passes.

    Memory is reserved for the largest possible number of components at rims; the unused part is
    never touched.

    Parameters
    ----------
    measured
        Whether to keep measures.

    Attributes
    ----------
    count
        Number of all components, after `number`.
    """

    def __init__(self, blocks: BlockGrid, *, diagonal: bool, measured: bool) -> None:
        self.blocks, self.diagonal = blocks, diagonal
        down, across = blocks.shape
        # Component at each cell of the blocks' first and last rows and columns.
        self._rows = np.full((2, down, blocks.cols), -1, np.int64)
        self._cols = np.full((2, across, blocks.rows), -1, np.int64)
        self._starts = np.zeros((blocks.rows, across), np.int64)
        most = most_at_rims(blocks)
        self._firsts, self._labels, self._parent = (np.empty(most, np.int64) for _ in range(3))
        self._measures = np.empty((most if measured else 0, FIRST), np.int64)
        self._parts = np.empty((*blocks.shape, 2), np.int64)
        self._used = 0
        self.count = 0

    def add(
        self,
        at: Block,
        sides: list[np.ndarray],
        starts: np.ndarray,
        left: np.ndarray,
        measures: np.ndarray,
    ) -> None:
        """Add a block.

        Parameters
        ----------
        sides
            First and last row, first and last column: slot of each cell, -1 outside.
        starts, left
            From `block.count_firsts`.
        measures
            int64, shape (components at the rim, MEASURES): their measures.
        """
        i, j = at
        r0, r1, c0, c1 = self.blocks.window(*at)
        base, self._used = self._used, self._used + len(measures)
        self._parts[at] = base, self._used
        part = slice(base, self._used)
        self._firsts[part], self._labels[part] = measures[:, FIRST], left
        if len(self._measures):
            self._measures[part] = measures[:, :FIRST]
        lines = (
            self._rows[0, i, c0:c1],
            self._rows[1, i, c0:c1],
            self._cols[0, j, r0:r1],
            self._cols[1, j, r0:r1],
        )
        for line, side in zip(lines, sides, strict=True):
            np.add(side, base, out=line, where=side >= 0)
        self._starts[r0:r1, j] = starts

    def number(self) -> None:
        """Join all blocks and number the components, after every block was added."""
        firsts, parent = self._firsts[: self._used], self._parent[: self._used]
        parent[:] = np.arange(self._used)
        for first, last in (self._rows, self._cols):
            for k in range(len(first) - 1):
                join_line(parent, firsts, last[k], first[k + 1], self.diagonal)
        del self._rows, self._cols
        gather(parent, self._measures[: self._used])
        self.count = int(
            number_roots(
                parent, firsts, self._labels, self._starts, self.blocks.cols, self.blocks.block
            )
        )

    def of(self, at: Block) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the results for a block, after `number`.

        Returns
        -------
        starts
            int64, shape (rows,): label of the first component that begins in each row.
        labels
            int64: labels of the components at its rim.
        begins
            bool: whether they begin in this block.
        measures
            int64, shape (components at the rim, 6): measures of the whole components, if kept.
        """
        r0, r1, _, _ = self.blocks.window(*at)
        start, stop = self._parts[at]
        part = slice(start, stop)
        roots = self._parent[part]
        begins = roots == np.arange(start, stop)
        measures = self._measures[roots] if len(self._measures) else self._measures
        return (
            np.ascontiguousarray(self._starts[r0:r1, at[1]]),
            self._labels[part],
            begins,
            measures,
        )
