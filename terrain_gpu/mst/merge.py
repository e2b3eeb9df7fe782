"""Joining regions: four siblings become one, until one is left.

A region is a rectangle of blocks of which only its border still matters: the cells along it, and
the candidate edges between them. Siblings are joined by the edges across the cuts between them;
border cells that are now inside thaw, and `contract` decides their edges.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from .boruvka import contract, edge_key, jit, new_list_work
from .region import Border, Region


def merge(
    children: dict[tuple[int, int], Region],
    shape: tuple[int, int],
    low: np.unsignedinteger,
    diagonal: bool,
    sums: np.ndarray,
    mode: int,
) -> tuple[Region, np.ndarray]:
    """Join up to four siblings, keyed by (row, column) 0 or 1; (0, 0) is always there.

    Parameters
    ----------
    shape
        Rows and columns of the raster.
    low, sums, mode
        See `Weight`.
    diagonal
        Whether diagonal neighbours are joined.

    Returns
    -------
    region, final
        The joined region, and the global ids of the edges now final.
    """
    row0, row_cut, col0, col_cut = children[0, 0].window
    row1 = children[1, 0].window[1] if (1, 0) in children else row_cut
    col1 = children[0, 1].window[3] if (0, 1) in children else col_cut
    frame = np.array([row0, row_cut, row1, col0, col_cut, col1])
    keys = children[0, 0].candidates[0].dtype
    inherited = sum(len(child.candidates[0]) for child in children.values())
    across = 3 * ((row1 - row0) + (col1 - col0))
    vertices = 4 * ((row1 - row0) + (col1 - col0))
    work = new_list_work(vertices, inherited + across, keys)
    count = 0
    for child in children.values():
        new = count + len(child.candidates[0])
        for into, values in zip(work[0], child.candidates, strict=True):
            into[count:new] = values
        count = new
    border = _outer_border(children)
    count = _join(
        work,
        count,
        frame,
        shape[1],
        _sides_of_cut(children, (0, 0), (1, 0), 3, (0, 1), (1, 1), 2),
        _sides_of_cut(children, (0, 0), (0, 1), 1, (1, 0), (1, 1), 0),
        low,
        diagonal,
    )
    open_sides = (row0 > 0, row1 < shape[0], col0 > 0, col1 < shape[1])
    final, candidates = _solve(work, vertices, count, frame, shape[1], open_sides, sums, mode)
    kept = tuple(a[:candidates].copy() for a in work[0])
    region = Region((row0, row1, col0, col1), border, kept)
    return region, work[5][:final].copy()


def _line(
    children: dict[tuple[int, int], Region],
    first: tuple[int, int],
    then: tuple[int, int],
    side: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Cells and validity along one side of one or two children in a row."""
    found = [children[k].border for k in (first, then) if k in children]
    return (
        np.concatenate([b.cells[side] for b in found]),
        np.concatenate([b.valid[side] for b in found]),
    )


def _sides_of_cut(children, first, first_then, first_side, second, second_then, second_side):
    """(cells, valid, cells, valid) on both sides of a cut; empty arrays when there is none."""
    one = _line(children, first, first_then, first_side)
    if second not in children:
        return one[0][:0], one[1][:0], one[0][:0], one[1][:0]
    return (*one, *_line(children, second, second_then, second_side))


def _outer_border(children: dict[tuple[int, int], Region]) -> Border:
    bottom = 1 if (1, 0) in children else 0
    right = 1 if (0, 1) in children else 0
    lines = (
        _line(children, (0, 0), (0, 1), 0),
        _line(children, (bottom, 0), (bottom, 1), 1),
        _line(children, (0, 0), (1, 0), 2),
        _line(children, (0, right), (1, right), 3),
    )
    return Border(tuple(x[0] for x in lines), tuple(x[1] for x in lines))  # type: ignore[arg-type]


@jit
def _join(work, count, frame, cols, left_right, above_below, low, diagonal):
    """Number the ends of inherited edges, append those across the cuts."""
    keys, ids, us, vs = work[0]
    row0, row_cut, _, col0, col_cut, _ = frame
    for k in range(count):
        us[k] = _vertex(us[k] // cols, us[k] % cols, frame)
        vs[k] = _vertex(vs[k] // cols, vs[k] % cols, frame)
    left, left_valid, right, right_valid = left_right
    for k in range(len(left)):
        row = row0 + k
        for d in (0, 3):  # E and SE from the left side
            j = k + (d == 3)
            if j < len(left) and left_valid[k] and right_valid[j] and (d == 0 or diagonal):
                keys[count] = edge_key(left[k], right[j], low)
                ids[count] = 4 * (row * cols + col_cut - 1) + d
                us[count] = _vertex(row, col_cut - 1, frame)
                vs[count] = _vertex(row0 + j, col_cut, frame)
                count += 1
        if diagonal and k + 1 < len(left) and right_valid[k] and left_valid[k + 1]:  # SW
            keys[count] = edge_key(right[k], left[k + 1], low)
            ids[count] = 4 * (row * cols + col_cut) + 1
            us[count] = _vertex(row, col_cut, frame)
            vs[count] = _vertex(row + 1, col_cut - 1, frame)
            count += 1
    above, above_valid, below, below_valid = above_below
    for k in range(len(above)):
        for d in (1, 2, 3):
            j = k + d - 2
            if j < 0 or j >= len(above) or not (above_valid[k] and below_valid[j]):
                continue
            if d != 2 and (not diagonal or (k < col_cut - col0) != (j < col_cut - col0)):
                continue  # the diagonals through the crossing of the cuts are in already
            keys[count] = edge_key(above[k], below[j], low)
            ids[count] = 4 * ((row_cut - 1) * cols + col0 + k) + d
            us[count] = _vertex(row_cut - 1, col0 + k, frame)
            vs[count] = _vertex(row_cut, col0 + j, frame)
            count += 1
    return count


@jit
def _solve(work, vertices, count, frame, cols, open_sides, sums, mode):
    """Freeze the outer border, contract, and name the ends of the candidates globally."""
    frozen = work[4]
    row0, _, row1, col0, _, col1 = frame
    frozen[:vertices] = False
    for col in range(col0, col1):
        frozen[_vertex(row0, col, frame)] |= open_sides[0]
        frozen[_vertex(row1 - 1, col, frame)] |= open_sides[1]
    for row in range(row0, row1):
        frozen[_vertex(row, col0, frame)] |= open_sides[2]
        frozen[_vertex(row, col1 - 1, frame)] |= open_sides[3]
    final, candidates = contract(work, vertices, count, sums, mode)
    _, _, us, vs = work[0]
    for k in range(candidates):
        row, col = _cell(us[k], frame)
        us[k] = row * cols + col
        row, col = _cell(vs[k], frame)
        vs[k] = row * cols + col
    return final, candidates


@register_jitable
def _child(down, right, frame):
    """First cell, size and first vertex of a child."""
    row0, row_cut, row1, col0, col_cut, col1 = frame
    top, height = (row_cut, row1 - row_cut) if down else (row0, row_cut - row0)
    left, width = (col_cut, col1 - col_cut) if right else (col0, col_cut - col0)
    first = 0
    if right or down:
        first += 2 * (row_cut - row0 + col_cut - col0)
    if down:
        first += 2 * (row_cut - row0 + col1 - col_cut)
    if down and right:
        first += 2 * (row1 - row_cut + col_cut - col0)
    return top, left, height, width, first


@register_jitable
def _vertex(row, col, frame):
    """Number of a border cell of a child: its sides one after another."""
    top, left, height, width, first = _child(row >= frame[1], col >= frame[4], frame)
    row, col = row - top, col - left
    if row == 0:
        return first + col
    if row == height - 1:
        return first + width + col
    if col == 0:
        return first + 2 * width + row
    return first + 2 * width + height + row


@register_jitable
def _cell(vertex, frame):
    """The inverse of `_vertex`."""
    down = right = False
    for k in range(3, 0, -1):
        down, right = k >= 2, k % 2 == 1
        if vertex >= _child(down, right, frame)[4]:
            break
        down = right = False
    top, left, height, width, first = _child(down, right, frame)
    at = vertex - first
    if at < width:
        return top, left + at
    if at < 2 * width:
        return top + height - 1, left + at - width
    if at < 2 * width + height:
        return top + at - 2 * width, left
    return top + at - 2 * width - height, left + width - 1
