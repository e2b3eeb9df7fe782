"""Labels of a block, and pieces of components between blocks, as their proof looks at them."""

from __future__ import annotations

import numpy as np

from ....compiled import jit


@jit
def _root(parent, at):
    while parent[at] != at:
        parent[at] = parent[parent[at]]
        at = parent[at]
    return at


@jit
def join_cells(labels, diagonal, parent):
    """Join the neighbouring cells of a block that have a label.

    Parameters
    ----------
    labels
        Shape (rows, cols); 0 outside.
    parent
        int32, shape (cells,): receives a union-find, of no meaning outside.

    Returns
    -------
    cells, joined
        Cells with a label, and how often two trees became one.
    fault
        A cell beside one with another label; -1 when there is none.
    """
    rows, cols = labels.shape
    cells = joined = 0
    for row in range(rows):
        for col in range(cols):
            at = row * cols + col
            parent[at] = at
            label = labels[row, col]
            if label == 0:
                continue
            cells += 1
            # W, N, NE, NW
            for k in range(4 if diagonal else 2):
                r = row if k == 0 else row - 1
                c = col + (0 if k == 1 else 1 if k == 2 else -1)
                if r < 0 or c < 0 or c >= cols or labels[r, c] == 0:
                    continue
                if labels[r, c] != label:
                    return cells, joined, at
                one, other = _root(parent, at), _root(parent, r * cols + c)
                if one != other:
                    # The first cell is the root.
                    parent[max(one, other)] = min(one, other)
                    joined += 1
    return cells, joined, -1


@jit
def to_roots(labels, parent, cells):
    """Replace cells of a block by their roots, by -1 where they have no label."""
    cols = labels.shape[1]
    for k in range(len(cells)):
        at = cells[k]
        cells[k] = -1 if labels[at // cols, at % cols] == 0 else _root(parent, at)


@jit
def new_labels(labels, tops, starts):
    """The largest label of each row, and the least from which on all up to it came in order.

    "In order": each as the largest so far. Both are 0 where there is no label.
    """
    for row in range(labels.shape[0]):
        top = start = 0
        for col in range(labels.shape[1]):
            label = np.int64(labels[row, col])
            if label > top:
                if label != top + 1 or top == 0:
                    start = label
                top = label
        tops[row], starts[row] = top, start


@jit
def check_order(tops, starts):
    """Labels seen row by row, from what `new_labels` tells of each row of each block.

    Returns
    -------
    count
        How many there are, one after another.
    row, column
        Row and column of blocks of the first label that is not the next one; -1 without.
    """
    count = 0
    for row in range(tops.shape[0]):
        for column in range(tops.shape[1]):
            if tops[row, column] > count:
                if starts[row, column] > count + 1:
                    return count, row, column
                count = tops[row, column]
    return count, -1, -1


@jit
def join_line(parent, labels, one, other, diagonal):
    """Join the pieces on both sides of a line between blocks.

    Parameters
    ----------
    parent, labels
        int64: union-find over pieces, and their labels.
    one, other
        int64, of one length: the piece of each cell along the line, -1 outside.

    Returns
    -------
    joined
        How often two trees became one.
    fault
        Cell of `one` beside another label; -1 when there is none.
    """
    joined, reach = 0, 1 if diagonal else 0
    for at in range(len(one)):
        if one[at] < 0:
            continue
        for beside in range(max(at - reach, 0), min(at + reach + 1, len(one))):
            if other[beside] < 0:
                continue
            if labels[one[at]] != labels[other[beside]]:
                return joined, at
            a, b = _root(parent, one[at]), _root(parent, other[beside])
            if a != b:
                parent[max(a, b)] = min(a, b)
                joined += 1
    return joined, -1
