"""A block of a filled DEM: each cell passes its flow on as soon as all its inflow is known.

Arrays include two rings of cells around the block, and are flat if they have one dimension. Cells
of the inner ring may drain into the block; those of the outer ring are only read.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ...grid.neighbours import COL_STEP, ROW_STEP
from ..common.code_values import NOWHERE
from .division import share
from .split import split

RING, DONE = 254, 255
"""Instead of a number of inflows: a cell of the inner ring; a cell that has nothing to pass on."""

UNKNOWN = np.iinfo(np.int64).min
"""Stands for the flow through a cell that waits for inflow."""


@jit
def count_inflows(heights, codes, lengths, contours, row0, how, waiting):
    """Count the neighbours that drain to each cell of a block.

    Parameters
    ----------
    heights, codes
        Filled elevations and directions, shape (rows + 4, cols + 4).
    lengths, contours, how
        See `split`.
    row0
        The first row of the block in the raster.
    waiting
        uint8. Receives the counts, or `RING` or `DONE`.

    Returns
    -------
    int
        The number of cells of the block that drain.
    """
    rows, cols = codes.shape
    step = ROW_STEP * cols + COL_STEP
    z, code = heights.ravel(), codes.ravel()
    parts, shares = np.empty(8, np.int64), np.empty(8)
    waiting[: rows * cols] = DONE
    count = 0
    for row in range(1, rows - 1):
        for col in range(1, cols - 1):
            at = row * cols + col
            if code[at] != NOWHERE:
                ring = row in (1, rows - 2) or col in (1, cols - 2)
                waiting[at] = RING if ring else 0
                count += not ring
    for row in range(1, rows - 1):
        for col in range(1, cols - 1):
            at = row * cols + col
            above = row0 + row - 2
            if split(z, code, at, step, lengths, contours, above, how, True, parts, shares) < 0:
                continue
            for k in range(8):
                if parts[k] >= 0 and waiting[at + step[k]] < RING:
                    waiting[at + step[k]] += 1
    return count


@jit
def pass_on(heights, codes, lengths, contours, row0, how, waiting, sums, begin, stack, crossed):
    """Pass on the flow of all cells whose inflow is known.

    Parameters
    ----------
    waiting
        See `count_inflows`. Counts go down as inflow arrives.
    sums
        int64, the flow through each cell as far as it is known; `UNKNOWN` in the inner ring if it
        is not.
    begin
        Whether this is the first visit, in which cells without inflow start.
    stack
        int32, work space.
    crossed
        int64, shape (3, 3). Receives how often flow went to each of the blocks around this one.

    Returns
    -------
    int
        The number of cells of the block completed by this call.
    """
    rows, cols = codes.shape
    step = ROW_STEP * cols + COL_STEP
    z, code = heights.ravel(), codes.ravel()
    parts, shares = np.empty(8, np.int64), np.empty(8)
    crossed[:] = 0
    done = 0
    for start_row in range(1, rows - 1):
        whole = begin or start_row in (1, rows - 2)
        by = 1 if whole else cols - 3
        for start in range(start_row * cols + 1, start_row * cols + cols - 1, by):
            if waiting[start] == RING:
                if sums[start] == UNKNOWN:
                    continue
            elif waiting[start] != 0:
                continue
            stack[0], height = start, 1
            while height:
                height -= 1
                at = stack[height]
                inside = waiting[at] != RING
                done += inside
                waiting[at] = DONE
                row = at // cols
                above = row0 + row - 2
                most = split(z, code, at, step, lengths, contours, above, how, False, parts, shares)
                if most < 0:
                    continue
                rest = sums[at]
                for k in range(8):
                    if parts[k] >= 0 and k != most:
                        parts[k] = share(sums[at], parts[k])
                        rest -= parts[k]
                    elif k != most:
                        parts[k] = UNKNOWN
                parts[most] = rest
                for k in range(8):
                    if parts[k] == UNKNOWN:
                        continue
                    to = at + step[k]
                    if waiting[to] < RING:
                        sums[to] += parts[k]
                        waiting[to] -= 1
                        if waiting[to] == 0:
                            stack[height] = to
                            height += 1
                    elif inside:
                        count_crossing(to, rows, cols, crossed)
    return done


@jit
def first_waiting(codes, waiting):
    """Return the index of the first cell of a block that waits for inflow, or -1."""
    rows, cols = codes.shape
    for row in range(2, rows - 2):
        for at in range(row * cols + 2, row * cols + cols - 2):
            if waiting[at] < RING:
                return at
    return -1


@register_jitable
def count_crossing(to, rows, cols, crossed):
    """Count a step to a cell outside the block, by the neighbouring block that it belongs to."""
    r, c = to // cols, to % cols
    down = 0 if r < 2 else 2 if r >= rows - 2 else 1
    right = 0 if c < 2 else 2 if c >= cols - 2 else 1
    crossed[down, right] += 1
