"""Pits of a block, and the least-cost channels out of them.

A *low* cell is valid, has no lower neighbour, and is not an outlet. Neighbouring low cells are
equally high, so components of low cells lie in flats. Such a component is a pit unless one of its
cells has an equally high neighbour that is not low, through which the flat drains.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ...grid.neighbours import COL_STEP, EDGE_OF, NEIGHBOUR, ROW_STEP
from ...primitives.union_find import find
from ...wide import difference, scaled_difference
from .kinds import NO_VALUE, OUTLET, PIT

_UNSEEN, _SETTLED = -1, -2
_STEP = np.int64(1) << 32
"""A step in the second key of a path; a diagonal step adds 1 more."""


@jit
def find_low(heights, valid, outlets, low):
    """Mark low cells of a block.

    Parameters
    ----------
    heights, valid
        Elevations and the mask of valid cells, with a margin of one cell.
    outlets
        int32, flat indices of the outlets in the block.
    low
        bool. Receives the marks.
    """
    rows, cols = low.shape
    for row in range(rows):
        for col in range(cols):
            lowest = valid[row + 1, col + 1]
            for k in range(8):
                r, c = row + 1 + ROW_STEP[k], col + 1 + COL_STEP[k]
                lowest &= not (valid[r, c] and heights[r, c] < heights[row + 1, col + 1])
            low[row, col] = lowest
    for cell in outlets:
        low[cell // cols, cell % cols] = False


@jit
def survey(heights, valid, labels, first, drains):
    """Find the first cell of each component of low cells, and whether it drains in the block.

    Parameters
    ----------
    labels
        Numbers of the components of low cells, from 1; 0 elsewhere; without a margin.
    first
        int32, by label. Receives the flat index of the first cell.
    drains
        bool, by label, all False at first. Receives whether the component drains in the block.
    """
    rows, cols = labels.shape
    first[:] = -1
    for row in range(rows):
        for col in range(cols):
            label = labels[row, col]
            if label == 0:
                continue
            if first[label] < 0:
                first[label] = row * cols + col
            for k in range(8):
                r, c = row + ROW_STEP[k], col + COL_STEP[k]
                if 0 <= r < rows and 0 <= c < cols and labels[r, c] == 0:
                    same = heights[r + 1, c + 1] == heights[row + 1, col + 1]
                    drains[label] |= same and valid[r + 1, c + 1]


@jit
def join_low(parent, drains, names, other_names, heights, other_heights):
    """Join components of low cells across a border between blocks.

    Parameters
    ----------
    parent, drains
        By name: the union-find forest, and whether the component drains.
    names, other_names
        Names of the cells on both sides of the border: 0 for other valid cells, -1 for nodata.
    """
    for at in range(len(names)):
        for beside in range(max(at - 1, 0), min(at + 2, len(names))):
            one, other = names[at], other_names[beside]
            if one > 0 and other > 0:
                a, b = find(parent, one), find(parent, other)
                parent[max(a, b)] = min(a, b)
            elif heights[at] == other_heights[beside] and min(one, other) == 0:
                drains[max(one, other)] = True


@jit
def join_marks(parent, first, drains):
    """Combine the first cells and drain marks of joined components at their roots."""
    for name in range(1, len(parent)):
        root = find(parent, name)
        first[root] = min(first[root], first[name])
        drains[root] |= drains[name]


@jit
def place(kinds, cells, width, down, right, kind, ring):
    """Set the kind of the cells of another block that are inside `kinds`.

    Parameters
    ----------
    cells, width
        int32, flat indices in a block of this width.
    down, right
        Row and column of the block's first cell in `kinds`.
    ring
        Width of the margin of `kinds` in which cells are not set.
    """
    rows, cols = kinds.shape
    for cell in cells:
        row, col = down + cell // width, right + cell % width
        if ring <= row < rows - ring and ring <= col < cols - ring:
            kinds[row, col] = kind


@jit
def breach_all(heights, kinds, reach, per_unit, deepest, work, out):
    """Lower the cells of a block along the channels out of all pits that may reach it.

    Parameters
    ----------
    heights, kinds
        With a margin of 2 `reach` cells; pits are marked only in the inner half of the margin.
    work
        See `new_search`.
    out
        Elevations of the block, lowered in place.

    Returns
    -------
    pits, breached
        The number of pits in the block itself, and of those that were breached.
    """
    rows, cols = out.shape
    way = work[3]
    pits, breached = 0, 0
    for row in range(reach, heights.shape[0] - reach):
        for col in range(reach, heights.shape[1] - reach):
            if kinds[row, col] != PIT:
                continue
            count = search(heights, kinds, row, col, reach, per_unit, deepest, work)
            own = 0 <= row - 2 * reach < rows and 0 <= col - 2 * reach < cols
            pits += own
            breached += own and count > 0
            for at in way[:count]:
                r = row - 3 * reach + at // (2 * reach + 1)
                c = col - 3 * reach + at % (2 * reach + 1)
                if 0 <= r < rows and 0 <= c < cols and out[r, c] > heights[row, col]:
                    out[r, c] = heights[row, col]
    return pits, breached


@register_jitable
def cut_units(height, level, per_unit):
    """Return the cost of a cut from an elevation down to a level, in units, int64."""
    return np.int64(np.rint(scaled_difference(height, level, per_unit)))


@jit
def trace_way(heights, kinds, row, col, limits, work, units, top, steps):
    """Find the channel out of a pit, and measure it.

    Parameters
    ----------
    heights, kinds
        With a margin of at least `reach` cells around the pit.
    limits
        `reach`, `per_unit` and `deepest`, as for `breach_all`.
    units
        int64, shape (4, rows of the raster): step lengths; see `lengths.step_lengths`.
    top
        The first row of `heights` in the raster.
    steps
        uint8. Receives the number of the next neighbour for each cell except the last.

    Returns
    -------
    count, cost, cut, length, row, col
        The number of steps, 0 if there is no channel; the sum of all cuts in units; the deepest
        cut; the length in units; and the cell at the end.
    """
    reach, per_unit, deepest = limits
    count = search(heights, kinds, row, col, reach, per_unit, deepest, work)
    cost, cut, length = np.int64(0), 0.0, np.int64(0)
    if count == 0:
        return 0, cost, cut, length, row, col
    here, side, way = heights[row, col], 2 * reach + 1, work[3]
    r, c = row, col
    for at in range(count - 2, -1, -1):
        y, x = row - reach + way[at] // side, col - reach + way[at] % side
        k = NEIGHBOUR[y - r + 1, x - c + 1]
        steps[count - 2 - at] = k
        length += units[EDGE_OF[k], top + min(r, y)]
        r, c = y, x
        if heights[r, c] > here:
            cost += cut_units(heights[r, c], here, per_unit)
            cut = max(cut, difference(heights[r, c], here))
    return count - 1, cost, cut, length, r, c


def new_search(reach):
    """Return the work space of a search: costs, second keys, heap positions, heap, seen cells."""
    size = (2 * reach + 1) ** 2
    heap, seen = np.empty((2, size), np.int32)
    return (
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.full(size, -1, np.int32),
        heap,
        seen,
    )


@jit
def search(heights, kinds, row, col, reach, per_unit, deepest, work):
    """Find the least-cost path from a pit to a lower cell or an outlet, by Dijkstra's algorithm.

    Of paths of equal cost, it is the one with the fewest steps, then with the fewest diagonal
    steps, then with the first cell at its end, and so on backwards.

    Returns
    -------
    int
        The number of cells on the path, 0 if there is none. The heap in `work` then holds these
        cells from the end of the path, numbered in row-major order in the window around the pit.
    """
    cost, rest, place, heap, seen = work
    side = 2 * reach + 1
    top, left = row - reach, col - reach
    here = heights[row, col]
    start = reach * side + reach
    cost[start], rest[start], place[start] = 0, 0, 0
    heap[0], seen[0] = start, start
    size, met, end = 1, 1, -1
    while size:
        v = heap[0]
        r, c = top + v // side, left + v % side
        if heights[r, c] < here or kinds[r, c] == OUTLET:
            end = v
            break
        size -= 1
        if size:
            _sink(heap, size, heap[size], cost, rest, place)
        place[v] = _SETTLED
        for k in range(8):
            y, x = r + ROW_STEP[k], c + COL_STEP[k]
            if abs(y - row) > reach or abs(x - col) > reach or kinds[y, x] == NO_VALUE:
                continue
            u = (y - top) * side + x - left
            if place[u] == _SETTLED:
                continue
            new_cost, new_rest = cost[v], rest[v] + _STEP + (k & 1)
            if heights[y, x] > here:
                if difference(heights[y, x], here) > deepest:
                    continue
                new_cost += cut_units(heights[y, x], here, per_unit)
            if place[u] == _UNSEEN:
                seen[met] = u
                met += 1
                place[u] = size
                size += 1
            elif new_cost > cost[u] or (new_cost == cost[u] and new_rest >= rest[u]):
                continue
            cost[u], rest[u] = new_cost, new_rest
            _rise(heap, u, cost, rest, place)
    count = 0
    if end >= 0:
        count = _go_back(heights, here, per_unit, top, left, end, side, work)
    for u in seen[:met]:
        place[u] = _UNSEEN
    return count


@jit
def _before(u, v, cost, rest):
    """Whether the path to a cell comes before that to another one."""
    if cost[u] != cost[v]:
        return cost[u] < cost[v]
    if rest[u] != rest[v]:
        return rest[u] < rest[v]
    return u < v


@jit
def _rise(heap, u, cost, rest, place):
    """Move a cell up in the heap."""
    at = place[u]
    while at > 0:
        above = (at - 1) // 2
        v = heap[above]
        if not _before(u, v, cost, rest):
            break
        heap[at], place[v] = v, at
        at = above
    heap[at], place[u] = u, at


@jit
def _sink(heap, size, u, cost, rest, place):
    """Put a cell at the top of a heap of this size, and move it down."""
    at = 0
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and _before(heap[below + 1], heap[below], cost, rest):
            below += 1
        v = heap[below]
        if not _before(v, u, cost, rest):
            break
        heap[at], place[v] = v, at
        at = below
    heap[at], place[u] = u, at


@jit
def _go_back(heights, here, per_unit, top, left, end, side, work):
    """Trace a path back from its end by costs, into the heap; return its number of cells."""
    cost, rest, place, heap, _ = work
    heap[0], count, v = end, 1, end
    while rest[v] > 0:
        row, col = v // side, v % side
        cut = np.int64(0)
        if heights[top + row, left + col] > here:
            cut = cut_units(heights[top + row, left + col], here, per_unit)
        # In ascending order of cell numbers.
        for k in (5, 6, 7, 4, 0, 3, 2, 1):
            r, c = row + ROW_STEP[k], col + COL_STEP[k]
            if not (0 <= r < side and 0 <= c < side):
                continue
            u = r * side + c
            same = place[u] == _SETTLED and cost[u] == cost[v] - cut
            if same and rest[u] == rest[v] - _STEP - (k & 1):
                heap[count] = v = u
                count += 1
                break
    return count
