"""Channels out of pits, found again for proofs by relaxing costs from a queue."""

from __future__ import annotations

import numpy as np

from ...compiled import jit
from ...wide import difference, scaled_difference
from .kinds import NO_VALUE, OUTLET, PIT

_MOST = np.iinfo(np.int64).max


@jit
def lower_again(heights, kinds, reach, per_unit, deepest, space, right):
    """Lower the elevations `right` of a block; return the numbers of its pits and of breached ones.

    Parameters
    ----------
    heights, kinds
        With a margin of 2 `reach` cells; pits are marked only in the inner half of the margin.
    space
        Work space: costs, second keys, states and the queue, for the cells around a pit.
    """
    wide, width, ring = heights.shape[1], right.shape[1], 2 * reach
    side = 2 * reach + 1
    pits, breached = 0, 0
    for pit in range(reach * wide, (heights.shape[0] - reach) * wide):
        row, col = pit // wide, pit % wide
        if not reach <= col < wide - reach or kinds[row, col] != PIT:
            continue
        level = heights[row, col]
        cells = _leave(heights, kinds, row, col, reach, per_unit, deepest, space)
        for at in cells:
            r, c = row - reach + at // side - ring, col - reach + at % side - ring
            if 0 <= r < right.shape[0] and 0 <= c < width and level < right[r, c]:
                right[r, c] = level
        if 0 <= row - ring < right.shape[0] and 0 <= col - ring < width:
            pits += 1
            breached += len(cells) > 0
    return pits, breached


@jit
def _cut(height, level, per_unit):
    if height <= level:
        return np.int64(0)
    return np.int64(np.rint(scaled_difference(height, level, per_unit)))


@jit
def _leave(heights, kinds, row, col, reach, per_unit, deepest, space):
    """Return the cells of the best channel out of a pit, a view of the queue; empty if none."""
    cost, rest, state, queue = space
    side = 2 * reach + 1
    level, start = heights[row, col], (side * side) // 2
    state[: side * side] = 0
    cost[start], rest[start], state[start] = 0, 0, 2
    queue[0] = start
    first, waiting = 0, 1
    best, best_rest, end = _MOST, _MOST, np.int64(-1)
    while waiting:
        v = queue[first]
        first = (first + 1) % (side * side)
        waiting -= 1
        state[v] = 1
        if cost[v] > best or (cost[v] == best and rest[v] >= best_rest):
            continue
        y, x = v // side, v % side
        for r in range(max(y - 1, 0), min(y + 2, side)):
            for c in range(max(x - 1, 0), min(x + 2, side)):
                u, z = r * side + c, heights[row - reach + r, col - reach + c]
                kind = kinds[row - reach + r, col - reach + c]
                if kind == NO_VALUE or u == v:
                    continue
                if z > level and difference(z, level) > deepest:
                    continue
                a = cost[v] + _cut(z, level, per_unit)
                b = rest[v] + (np.int64(1) << 32) + (r != y and c != x)
                if z < level or kind == OUTLET:
                    if (a, b, u) < (best, best_rest, end):
                        best, best_rest, end = a, b, np.int64(u)
                elif (a, b) < (best, best_rest) and (state[u] == 0 or (a, b) < (cost[u], rest[u])):
                    cost[u], rest[u] = a, b
                    if state[u] < 2:
                        queue[(first + waiting) % (side * side)] = u
                        waiting += 1
                        state[u] = 2
    if end < 0:
        return queue[:0]
    cost[end], rest[end] = best, best_rest
    return _backwards(heights, row, col, reach, per_unit, end, space)


@jit
def _backwards(heights, row, col, reach, per_unit, end, space):
    """Return the cells of a path from its end, found by the costs of its cells."""
    cost, rest, state, queue = space
    side, level = 2 * reach + 1, heights[row, col]
    queue[0], count, v = end, 1, end
    while rest[v]:
        y, x = v // side, v % side
        before = cost[v] - _cut(heights[row - reach + y, col - reach + x], level, per_unit)
        found = np.int64(-1)
        for r in range(max(y - 1, 0), min(y + 2, side)):
            for c in range(max(x - 1, 0), min(x + 2, side)):
                u = r * side + c
                step = (np.int64(1) << 32) + (r != y and c != x)
                met = u != v and state[u] and cost[u] == before and rest[u] == rest[v] - step
                if found < 0 and met:
                    found = u
        v = found
        queue[count] = v
        count += 1
    return queue[:count]
