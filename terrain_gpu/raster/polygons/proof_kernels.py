"""Compiled code of the proof of polygons."""

from __future__ import annotations

import numpy as np

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
    labels, inside
        Labels of cells and whether they have one, with a ring of others around them.
    parent
        int64, flat; receives the first cell of the part of each cell, -1 of cells without a label.
    """
    rows, cols = labels.shape[0] - 2, labels.shape[1] - 2
    count = 0
    for row in range(rows):
        for col in range(cols):
            at, label = row * cols + col, labels[row + 1, col + 1]
            if not inside[row + 1, col + 1]:
                parent[at] = -1
                continue
            parent[at] = at
            count += 1
            if row > 0 and inside[row, col + 1] and labels[row, col + 1] == label:
                parent[at] = _root(parent, at - cols)
                count -= 1
            if col > 0 and inside[row + 1, col] and labels[row + 1, col] == label:
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


@jit
def misplaced_hole(ring, upper, lower, polygon, outer, last):
    """Return a hole to the left of whose leftmost side the next side is of another polygon, or -1.

    Parameters
    ----------
    ring, upper, lower
        Of the upright edges by column, then by row: their rings, and their rows.
    polygon, outer
        Of each ring, its polygon, and whether it is the first one of that.
    last
        A number of -1 for every row; overwritten.
    """
    met, found = np.zeros(len(polygon), np.bool_), -1
    for k in range(len(ring)):
        own = ring[k]
        if not (met[own] or outer[own]):
            beside = last[upper[k]]
            if (beside < 0 or polygon[beside] != polygon[own]) and (found < 0 or own < found):
                found = own
        met[own] = True
        last[upper[k] : lower[k]] = own
    return found
