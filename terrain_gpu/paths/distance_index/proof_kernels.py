"""Kernels of the proof of a distance index: the steps of a tile, distances, and which are kept."""

from __future__ import annotations

import numpy as np

from ...compiled import jit
from ...grid.neighbours import COL_STEP, EDGE_OF, ROW_STEP
from ..cost.edges import edge, infinity_of, join


@jit
def step_costs(cost, heights, frictions, absent, lengths, row, col, options, costs):
    """The cost of the step into each cell of a tile from each neighbour; without one, infinity.

    Parameters
    ----------
    heights, frictions, absent, lengths
        Of a block, see `fields.Field`.
    row, col
        Of the tile's first cell in the block.
    options
        (diagonal, corner_cutting, reverse).
    costs
        (side, side, 8) for tiles of this side, receives them.
    """
    diagonal, corner_cutting, reverse = options
    kind, infinity, side = costs.dtype.type, infinity_of(costs), len(costs)
    costs[:] = infinity
    for y in range(side):
        for x in range(side):
            r, c = row + y + 1, col + x + 1
            for k in range(8):
                r2, c2 = r + ROW_STEP[k], c + COL_STEP[k]
                if absent[r, c] or absent[r2, c2]:
                    continue
                if r != r2 and c != c2:
                    if not diagonal:
                        continue
                    if not corner_cutting and absent[r, c2] and absent[r2, c]:
                        continue
                r0, c0, r1, c1 = (r, c, r2, c2) if reverse else (r2, c2, r, c)
                a, b = kind(heights[r0, c0]), kind(heights[r1, c1])
                fa, fb = kind(frictions[r0, c0]), kind(frictions[r1, c1])
                step = kind(edge(cost, a, b, fa, fb, lengths[EDGE_OF[k], min(r, r2)]))
                if step <= infinity:  # not for NaN
                    costs[y, x, k] = step


@jit
def relax_from(way, costs, cells, there, start, far, stale):
    """Distances inside a tile from several cells, one lane for each.

    Parameters
    ----------
    way
        From `edges.joining`.
    costs
        From `step_costs`.
    cells, there
        Rows and columns of the cells, and whether they have a value.
    start
        Distance of a cell from itself.
    far
        (side, side, lanes), receives the distances.
    stale
        Work space: cells with a neighbour whose distances have changed.
    """
    infinity, side = infinity_of(far), len(far)
    far[:] = infinity
    stale[:] = False
    for lane in range(len(cells)):
        if there[lane]:
            y, x = cells[lane]
            far[y, x, lane] = start
            stale[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2] = True
    sweep, busy = 0, True
    while busy:
        busy = False
        for n in range(side * side):
            # Rows downwards or upwards, columns to the right or to the left, in turn.
            y = n // side if sweep & 2 == 0 else side - 1 - n // side
            x = n % side if sweep & 1 == 0 else side - 1 - n % side
            if not stale[y, x]:
                continue
            stale[y, x] = False
            here, changed = far[y, x], False
            for k in range(8):
                y2, x2 = y + ROW_STEP[k], x + COL_STEP[k]
                step = costs[y, x, k]
                if step == infinity or not (0 <= y2 < side and 0 <= x2 < side):
                    continue
                nearby = far[y2, x2]
                for lane in range(len(here)):
                    old = here[lane]
                    new = min(old, join(way, nearby[lane], step))
                    changed |= new != old
                    here[lane] = new
            if changed:
                busy = True
                stale[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2] = True
                stale[y, x] = False
        sweep += 1


@jit
def relax_over(way, first, tails, costs, cells, start, far, changed, seen):
    """Distances over a graph from several of its cells, one lane for each.

    Parameters
    ----------
    first, tails, costs
        For each cell where the steps into it begin, and the last end; their first cells and costs.
    cells
        The cells to begin with.
    start
        Distance of a cell from itself.
    far
        (cells, lanes), receives the distances.
    changed, seen
        Work space: when the distances of each cell changed, and when steps into it were taken.
    """
    far[:] = infinity_of(far)
    changed[:] = 0
    seen[:] = 0
    for lane in range(len(cells)):
        far[cells[lane], lane] = start
        changed[cells[lane]] = 1
    now, busy, back = 1, True, False
    while busy:
        busy = False
        for n in range(len(far)):
            v = len(far) - 1 - n if back else n
            now += 1
            here, better = far[v], False
            for e in range(first[v], first[v + 1]):
                if changed[tails[e]] <= seen[v]:
                    continue
                there = far[tails[e]]
                for lane in range(len(here)):
                    old = here[lane]
                    new = min(old, join(way, there[lane], costs[e]))
                    better |= new != old
                    here[lane] = new
            seen[v] = now
            if better:
                changed[v], busy = now, True
        back = not back


@jit
def drop_superfluous(way, far, symmetric, kept):
    """Replace superfluous distances by infinity.

    A distance is superfluous, if distances over a third cell join to at most as much. The two must
    come before it, by their sizes and then by how far apart the numbers of their cells are.

    Parameters
    ----------
    far
        Distances between cells, by their first and last one.
    symmetric
        Whether only those to cells of lower number are asked for.
    kept
        Of the same shape, receives them.
    """
    infinity, count = infinity_of(far), len(far)
    turned = np.ascontiguousarray(far.T)  # so that both halves of a path lie in a row
    for first in range(count):
        for last in range(first if symmetric else count):
            whole = far[first, last]
            kept[first, last] = infinity if first == last else whole
            if first == last or whole == infinity:
                continue
            span = abs(first - last)
            for via in range(count):
                there, on = far[first, via], turned[last, via]
                if join(way, there, on) > whole or via in (first, last):
                    continue
                inside = abs(first - via) < span and abs(via - last) < span
                if inside or (there < whole and on < whole):
                    kept[first, last] = infinity
                    break
