"""Outlines of equal labels: edges between cells, traced in blocks, assembled to polygons.

An edge is a side of a cell whose neighbour there has another label. It leads in a direction, 0 to 3
for east, north, west and south, with its own cell on the left; so its id is 4 * cell + direction.
Where two cells of a label touch only diagonally, outlines turn left and keep them apart.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...compiled import jit

AHEAD_ROW, AHEAD_COL = np.array([0, -1, 0, 1]), np.array([1, 0, -1, 0])
"""Steps in each direction. To the right of a direction is the direction before it."""


@jit
def mark_edges(labels, inside, marks):
    """Mark the edges of a block with a ring around it; returns their number, and that on the rim.

    Parameters
    ----------
    marks
        uint8, flat; receives bit d of a cell for its edge in direction d. The ring is not written.
    """
    total, rim = 0, 0
    rows, cols = labels.shape
    for row in range(1, rows - 1):
        found = 0
        for col in range(1, cols - 1):
            label = labels[row, col]
            # To the right of east is south, and so on. Without branches, so that it is vectorised.
            south = (labels[row + 1, col] != label) | (not inside[row + 1, col])
            east = (labels[row, col + 1] != label) | (not inside[row, col + 1])
            north = (labels[row - 1, col] != label) | (not inside[row - 1, col])
            west = (labels[row, col - 1] != label) | (not inside[row, col - 1])
            bits = np.uint8(south) | np.uint8(2 * east) | np.uint8(4 * north) | np.uint8(8 * west)
            count = np.int64(south) + np.int64(east) + np.int64(north) + np.int64(west)
            here = np.int64(inside[row, col])
            marks[row * cols + col] = bits * np.uint8(here)
            found += count * here
        total += found
        if row == 1 or row == rows - 2:
            rim += found
        else:
            for col in range(1, cols - 1, max(cols - 3, 1)):
                for way in range(4):
                    rim += marks[row * cols + col] >> way & 1
    return total, rim


@jit
def trace(labels, inside, marks, ways, heads):
    """Trace the outlines in a block; returns the number of their pieces.

    Parameters
    ----------
    labels, inside
        Cells of the block with a ring around it, and which of them have a label.
    marks
        From `mark_edges`; cleared.
    ways
        uint8; receives the directions of the edges of each piece.
    heads
        int32, shape (n, 3); receives the ids of the first edge of each piece and of the edge that
        follows its last one, in the block with its ring, and its number of edges. The second is -1
        for a whole ring.
    """
    rows, cols = labels.shape
    count, total = 0, 0
    # First the pieces that come from other blocks, all of which begin at the rim; then rings.
    for rings in range(2):
        for row in range(1, rows - 1):
            step = 1 if rings or row in (1, rows - 2) else max(cols - 3, 1)
            for col in range(1, cols - 1, step):
                if not marks[row * cols + col]:
                    continue
                for way in range(4):
                    if not marks[row * cols + col] >> way & 1:
                        continue
                    if not rings:
                        r, c, _ = _before(labels, inside, row, col, way)
                        if 0 < r < rows - 1 and 0 < c < cols - 1:
                            continue
                    first = total
                    r, c, w = row, col, way
                    while 0 < r < rows - 1 and 0 < c < cols - 1:
                        if not marks[r * cols + c] >> w & 1:
                            break
                        marks[r * cols + c] ^= np.uint8(1 << w)
                        ways[total] = w
                        total += 1
                        r, c, w = _after(labels, inside, r, c, w)
                    heads[count, 0] = 4 * (row * cols + col) + way
                    heads[count, 1] = -1 if rings else 4 * (r * cols + c) + w
                    heads[count, 2] = total - first
                    count += 1
    return count


@jit
def _same(labels, inside, row, col, label):
    return inside[row, col] and labels[row, col] == label


@jit
def _after(labels, inside, row, col, way):
    """The edge that follows an edge: its cell and direction."""
    label, right = labels[row, col], (way + 3) & 3
    r, c = row + AHEAD_ROW[way], col + AHEAD_COL[way]
    if not _same(labels, inside, r, c, label):
        return row, col, (way + 1) & 3
    if not _same(labels, inside, r + AHEAD_ROW[right], c + AHEAD_COL[right], label):
        return r, c, way
    return r + AHEAD_ROW[right], c + AHEAD_COL[right], right


@jit
def _before(labels, inside, row, col, way):
    """The edge that an edge follows."""
    label, right = labels[row, col], (way + 3) & 3
    r, c = row - AHEAD_ROW[way], col - AHEAD_COL[way]
    if not _same(labels, inside, r, c, label):
        return row, col, right
    if not _same(labels, inside, r + AHEAD_ROW[right], c + AHEAD_COL[right], label):
        return r, c, way
    return r + AHEAD_ROW[right], c + AHEAD_COL[right], (way + 1) & 3


# -- rings -------------------------------------------------------------------------------------


class Rings(NamedTuple):
    """Rings of some labels, as corners in order; a ring meets every corner once.

    Attributes
    ----------
    corners
        int64, ids: row * (columns + 1) + column.
    starts
        Where each ring starts in `corners`, and their number.
    label
        Of each ring, its label; ascending.
    outer
        Whether it is an outer ring, which comes before the holes in it. It has its polygon on its
        left, as every ring.
    cells, units
        Number of cells, and sum of areas, on the left of each ring; negative for holes.
    """

    corners: np.ndarray
    starts: np.ndarray
    label: np.ndarray
    outer: np.ndarray
    cells: np.ndarray
    units: np.ndarray


def assemble(
    ways: np.ndarray, starts: np.ndarray, edges: np.ndarray, label: np.ndarray, above: np.ndarray,
    cols: int,
) -> Rings:  # fmt: skip
    """Assemble the outlines of some labels.

    Parameters
    ----------
    ways
        uint8, the directions of all edges.
    starts
        Where each outline starts in `ways`, and the number of edges.
    edges
        The first edge of each outline.
    label
        Of each outline, ascending; no label is divided between calls.
    above
        int64: the sum of the units of area in a column above each row, and in all rows.
    cols
        Columns of the raster.
    """
    most = int(np.count_nonzero(ways[1:] != ways[:-1])) + 2 * len(edges)
    corners, begins = np.empty(most, np.int64), np.empty(len(edges) + 1, np.int64)
    corners = corners[: turns(ways, starts, edges, cols, corners, begins)]
    owner = np.repeat(np.arange(len(edges)), np.diff(begins))
    following = np.arange(1, len(corners) + 1)
    following[begins[1:] - 1] = begins[:-1]
    # An outline may touch itself in a corner. Exchanged there, it becomes two rings.
    order = np.lexsort((corners, owner))
    twice = np.diff(corners[order]) == 0
    twice &= np.diff(owner[order]) == 0
    one, other = order[:-1][twice], order[1:][twice]
    following[one], following[other] = following[other], following[one]
    del order, twice, one, other
    index, begins = np.empty(len(corners), np.int64), np.empty(len(corners) // 4 + 1, np.int64)
    begins = begins[: cycles(following, corners, index, begins) + 1]
    del following
    corners, label = corners[index], label[owner[index[begins[:-1]]]]
    cells, units = np.empty((2, len(label)), np.int64)
    measure_rings(corners, begins, above, cols + 1, cells, units)
    polygon = _polygons(corners, begins, label, cells > 0, (len(above), cols + 1))
    first = corners[begins[:-1]]
    ranks = np.lexsort((first, cells < 0, first[polygon], label))
    sizes = np.diff(begins)[ranks]
    ends = np.cumsum(sizes)
    moved = np.repeat(begins[:-1][ranks] - (ends - sizes), sizes) + np.arange(len(corners))
    return Rings(
        corners[moved],
        np.append(0, ends),
        label[ranks],
        cells[ranks] > 0,
        cells[ranks],
        units[ranks],
    )


def _polygons(
    corners: np.ndarray,
    starts: np.ndarray,
    label: np.ndarray,
    outer: np.ndarray,
    shape: tuple[int, int],
) -> np.ndarray:
    """The outer ring of the polygon of each ring."""
    ring = np.repeat(np.arange(len(label)), np.diff(starts))
    onward = np.arange(1, len(corners) + 1)
    onward[starts[1:] - 1] = starts[:-1]
    row, col = np.divmod(corners, shape[1])
    upright = np.flatnonzero(col == col[onward])
    upright = upright[np.lexsort((col[upright], label[ring[upright]]))]
    upper = np.minimum(row, row[onward])[upright]
    lower = np.maximum(row, row[onward])[upright]
    found = np.where(outer, np.arange(len(label)), -1)
    hang(ring[upright], upper, lower, found, np.empty(shape[0], np.int64))
    return found


@jit
def turns(ways, starts, edges, cols, corners, begins):
    """Write the ids of corners, and where each outline begins in them; returns their number."""
    total = 0
    for ring in range(len(edges)):
        begins[ring] = total
        cell, way = edges[ring] >> 2, edges[ring] & 3
        # Edges E and N begin below their cell or to its right.
        row = cell // cols + (way < 2)
        col = cell % cols + (0 < way < 3)
        before = ways[starts[ring + 1] - 1]
        for k in range(starts[ring], starts[ring + 1]):
            if ways[k] != before:
                corners[total] = row * (cols + 1) + col
                total += 1
            before = ways[k]
            row += AHEAD_ROW[before]
            col += AHEAD_COL[before]
    begins[len(edges)] = total
    return total


@jit
def cycles(following, corners, index, starts):
    """Write the corners ring by ring, each from its least one on; returns the number of rings."""
    count, total = 0, 0
    seen = np.zeros(len(following), np.bool_)
    for first in range(len(following)):
        if seen[first]:
            continue
        least, k = first, following[first]
        while k != first:
            if corners[k] < corners[least]:
                least = k
            k = following[k]
        starts[count] = total
        count += 1
        k = least
        while not seen[k]:
            seen[k] = True
            index[total] = k
            total += 1
            k = following[k]
    starts[count] = total
    return count


@jit
def measure_rings(corners, starts, above, width, cells, units):
    """Cells and units of area on the left of each ring, after Green's theorem."""
    for ring in range(len(starts) - 1):
        inside, area = 0, 0
        last = corners[starts[ring + 1] - 1] // width
        for k in range(starts[ring], starts[ring + 1]):
            row, col = corners[k] // width, corners[k] % width
            # Only edges that lead north or south count, whose ends are in the same column.
            inside += col * (last - row)
            area += col * (above[last] - above[row])
            last = row
        cells[ring], units[ring] = inside, area


@jit
def hang(ring, upper, lower, polygon, last):
    """Find the polygon of each hole: that of the next edge to the left of its leftmost one.

    Parameters
    ----------
    ring, upper, lower
        Of the upright edges, by label and column: their rings, and their rows.
    polygon
        Of each ring, -1 for holes, which is replaced.
    last
        A number for every row; overwritten.
    """
    for k in range(len(ring)):
        if polygon[ring[k]] < 0:
            polygon[ring[k]] = polygon[last[upper[k]]]
        last[upper[k] : lower[k]] = ring[k]
