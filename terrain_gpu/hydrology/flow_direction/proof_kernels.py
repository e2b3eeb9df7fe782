"""Checks of a block of directions with gradients in flats. Arrays have a margin of one cell."""

from __future__ import annotations

import numpy as np

from ...compiled import jit
from ...grid.neighbours import COL_STEP, EDGE_OF, ROW_STEP
from ...wide import difference
from ..common.code_values import NOWHERE, OUTLET


@jit
def classify(heights, along, drains, flats, low, high):
    """Find the cells that drain, and list the flat cells.

    Parameters
    ----------
    along
        uint8, `NOWHERE` at cells that do not count, 0 at outlets.
    drains
        bool. Receives True at cells that drain.
    flats
        int32. Receives the indices of flat cells.
    low, high
        Hop distances. `low` receives 0 at cells that drain; `high` receives 1 at flat cells next to
        higher ones.

    Returns
    -------
    int
        The number of flat cells.
    """
    rows, cols = heights.shape
    count = 0
    for row in range(1, rows - 1):
        for col in range(1, cols - 1):
            if along[row, col] == NOWHERE:
                continue
            higher = False
            drains[row, col] = along[row, col] == OUTLET
            for r in range(row - 1, row + 2):
                for c in range(col - 1, col + 2):
                    if along[r, c] != NOWHERE:
                        drains[row, col] |= heights[r, c] < heights[row, col]
                        higher |= heights[r, c] > heights[row, col]
            if drains[row, col]:
                low[row, col] = 0
            else:
                flats[count] = row * cols + col
                count += 1
                if higher:
                    high[row, col] = 1
    return count


@jit
def settle(heights, along, flats, low, high):
    """Lower the hop distances of flat cells to the least neighbour plus 1, until stable."""
    cols = heights.shape[1]
    unknown = np.iinfo(low.dtype).max
    waits = np.ones(heights.shape, np.bool_)  # whether a neighbour has changed
    changed = True
    backward = False
    while changed:
        changed = False
        for i in range(len(flats)):
            cell = flats[len(flats) - 1 - i] if backward else flats[i]
            row, col = cell // cols, cell % cols
            if not waits[row, col]:
                continue
            waits[row, col] = False
            nearest, farthest = low[row, col], high[row, col]
            for r in range(row - 1, row + 2):
                for c in range(col - 1, col + 2):
                    if heights[r, c] == heights[row, col] and along[r, c] != NOWHERE:
                        if low[r, c] < unknown:
                            nearest = min(nearest, low[r, c] + 1)
                        if low[r, c] > 0 and high[r, c] < unknown:
                            farthest = min(farthest, high[r, c] + 1)
            if nearest < low[row, col] or farthest < high[row, col]:
                low[row, col], high[row, col] = nearest, farthest
                for r in range(row - 1, row + 2):
                    for c in range(col - 1, col + 2):
                        waits[r, c] = True
                changed = True
        backward = not backward


@jit
def touching(heights, along, found):
    """List the rim cells of a block next to cells of the same elevation in the ring around it.

    A cell may be listed twice. Returns the number of entries.
    """
    rows, cols = heights.shape
    count = 0
    for row in range(1, rows - 1):
        by = 1 if row in (1, rows - 2) else max(cols - 3, 1)
        for col in range(1, cols - 1, by):
            if along[row, col] == NOWHERE:
                continue
            met = False
            for r in range(row - 1, row + 2):
                for c in range(col - 1, col + 2):
                    if r in (0, rows - 1) or c in (0, cols - 1):
                        met |= heights[r, c] == heights[row, col] and along[r, c] != NOWHERE
            if met:
                found[count] = row * cols + col
                count += 1
    return count


@jit
def check_directions(heights, along, codes, per_length, above, drains, low, high):
    """Check the directions of a block; see `proof`.

    Parameters
    ----------
    codes
        Directions, without a margin.
    per_length, above
        Reciprocals of step lengths, and the number of its rows before the block.

    Returns
    -------
    fault, cell
        The fault, or 0, and the index of a cell of the block.
    """
    rows, cols = codes.shape
    unknown = np.iinfo(low.dtype).max
    for row in range(rows):
        for col in range(cols):
            r, c = row + 1, col + 1
            code = codes[row, col]
            fault = 0
            if along[r, c] == NOWHERE:
                fault = 1 if code != NOWHERE else 0
            elif along[r, c] == OUTLET:
                fault = 2 if code != OUTLET else 0
            else:
                lowest = True
                for k in range(8):
                    to = r + ROW_STEP[k], c + COL_STEP[k]
                    lowest &= along[to] == NOWHERE or heights[to] >= heights[r, c]
                if not lowest:
                    if not _is_steepest(heights, along, r, c, code, per_length, above):
                        fault = 3
                elif low[r, c] == unknown:
                    fault = 4
                elif not _is_down_flat(heights, along, r, c, code, low, high):
                    fault = 5
            if fault:
                return fault, row * cols + col
    return 0, -1


@jit
def _number(code):
    """Return the number of the neighbour for a code, -1 if it is not a direction."""
    for k in range(8):
        if code == 1 << k:
            return k
    return -1


@jit
def _is_steepest(heights, along, row, col, code, per_length, above):
    """Whether no lower neighbour is steeper than that of a code, or as steep and first in order."""
    own = _number(code)
    if own < 0:
        return False
    slopes = np.full(8, np.float32(-1))
    for k in range(8):
        r, c = row + ROW_STEP[k], col + COL_STEP[k]
        if along[r, c] != NOWHERE and heights[r, c] < heights[row, col]:
            drop = difference(heights[row, col], heights[r, c])
            upper = min(row, r) - 1 + above
            slopes[k] = np.float32(drop * per_length[EDGE_OF[k], upper])
    if slopes[own] < 0:
        return False
    for k in range(8):
        if slopes[k] > slopes[own]:
            return False
        if k != own and slopes[k] == slopes[own] and _edge(k) < _edge(own):
            return False
    return True


@jit
def _edge(k):
    """Return the sort key of the edge to a neighbour: first endpoint, then direction."""
    first = 0, 0
    if k >= 4:
        first = ROW_STEP[k], COL_STEP[k]
    return first[0], first[1], EDGE_OF[k]


@jit
def _is_down_flat(heights, along, row, col, code, low, high):
    """Whether the neighbour of a code is the one that a flat cell must drain to."""
    own = _number(code)
    if own < 0:
        return False
    unknown = np.iinfo(low.dtype).max
    best = -1
    least = np.int64(0), 0, 0
    for k in range(8):
        r, c = row + ROW_STEP[k], col + COL_STEP[k]
        if along[r, c] == NOWHERE or heights[r, c] != heights[row, col]:
            continue
        value = 2 * np.int64(low[r, c])
        if low[r, c] == 0:  # comes before all flat cells
            value = np.iinfo(np.int64).min
        elif high[r, c] < unknown:
            value -= high[r, c]
        rank = value, k & 1, k + 4 & 7  # straight before diagonal, then clockwise from W
        if best < 0 or rank < least:
            best, least = k, rank
    return best == own
