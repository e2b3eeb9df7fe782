"""Compiled code of the proof of polygons."""

from __future__ import annotations

from ...compiled import jit


@jit
def _root(parent, at):
    while parent[at] != at:
        parent[at] = parent[parent[at]]
        at = parent[at]
    return at


@jit
def join_parts(labels, inside, parent):
    """Join neighbouring cells of equal labels by their sides; returns the number of parts.

    Parameters
    ----------
    parent
        int64, flat; receives the first cell of the part of each cell, -1 of cells without a label.
    """
    rows, cols = labels.shape
    count = 0
    for row in range(rows):
        for col in range(cols):
            at = row * cols + col
            if not inside[row, col]:
                parent[at] = -1
                continue
            parent[at] = at
            count += 1
            if row > 0 and inside[row - 1, col] and labels[row - 1, col] == labels[row, col]:
                parent[at] = _root(parent, at - cols)
                count -= 1
            if col > 0 and inside[row, col - 1] and labels[row, col - 1] == labels[row, col]:
                one, other = _root(parent, at), _root(parent, at - 1)
                if one != other:
                    parent[max(one, other)] = min(one, other)
                    count -= 1
    for at in range(rows * cols):
        if parent[at] >= 0:
            parent[at] = parent[parent[at]]
    return count


@jit
def join_links(links, parent):
    """Join the ends of links, int64 (n, 2); returns by how many this makes the sets fewer."""
    count = 0
    for k in range(len(links)):
        one, other = _root(parent, links[k, 0]), _root(parent, links[k, 1])
        if one != other:
            parent[max(one, other)] = min(one, other)
            count += 1
    return count
