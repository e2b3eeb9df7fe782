"""The local rule of orders of channels, as a proof checks it."""

from __future__ import annotations

import numpy as np

from ...compiled import jit
from ...grid.neighbours import COL_STEP, ROW_STEP

NOWHERE = 255
FAULTS = (
    "",
    "is that of a cell that is no channel",
    "is not that of the channels that flow in",
    "is not that of a head",
    "is not that of an outlet",
    "is not that of a channel that flows in",
    "leads to no cell through which more drains",
    "is not a D8 code",
)
OF_SUMS = 6
"""Faults from here on are of directions and sums."""
STRAHLER, SHREVE, HACK, TOPOLOGICAL, LINK = range(5)

_ROW_MAJOR = np.array([5, 6, 7, 4, 0, 3, 2, 1])
"""Neighbours in row-major order."""


@jit
def check_orders(codes, sums, found, least, strict, rule, begins, counts):
    """Compare the order of each channel of a block with those of the channels that flow in.

    Parameters
    ----------
    codes, sums, found
        Directions, sums and orders, with one ring.
    strict
        Whether sums must grow along every step; otherwise they may also be equal.
    rule
        Which order.
    begins
        bool, shape (rows, cols): receives where links begin.
    counts
        int64, (4,): receives the numbers of channel cells, links, heads and outlets.

    Returns
    -------
    fault, row, col
        Which of `FAULTS`, and the cell in the block.
    """
    rows, cols = begins.shape
    counts[:] = 0
    for row in range(1, rows + 1):
        for col in range(1, cols + 1):
            begins[row - 1, col - 1] = False
            own = np.int64(found[row, col])
            if codes[row, col] == NOWHERE or not sums[row, col] >= least:
                if own != 0:
                    return 1, row - 1, col - 1
                continue
            outlet = codes[row, col] == 0
            if not outlet:
                step = -1
                for k in range(8):
                    if codes[row, col] == 1 << k:
                        step = k
                if step < 0:
                    return 7, row - 1, col - 1
                r, c = row + ROW_STEP[step], col + COL_STEP[step]
                outlet = codes[r, c] == NOWHERE
                grows = sums[r, c] > sums[row, col] or (not strict and sums[r, c] == sums[row, col])
                if not outlet and not grows:
                    return 6, row - 1, col - 1
            inflows, top, several, total, main = 0, np.int64(0), 0, np.int64(0), -1
            for k in _ROW_MAJOR:
                r, c = row + ROW_STEP[k], col + COL_STEP[k]
                if codes[r, c] != 1 << (k + 4 & 7) or not sums[r, c] >= least:
                    continue
                order = np.int64(found[r, c])
                inflows += 1
                total += order
                if order > top:
                    top, several = order, 1
                elif order == top:
                    several += 1
                if main < 0 or sums[r, c] > sums[row + ROW_STEP[main], col + COL_STEP[main]]:
                    main = k
            begins[row - 1, col - 1] = inflows != 1
            counts[0] += 1
            counts[1] += inflows != 1
            counts[2] += inflows == 0
            counts[3] += outlet
            if rule in (STRAHLER, SHREVE):
                right = top + (several > 1) if rule == STRAHLER else total
                if own != (right if inflows else 1):
                    return (2 if inflows else 3), row - 1, col - 1
                continue
            if rule == LINK:
                if (inflows == 1 and own != top) or own < 1:
                    return 2, row - 1, col - 1
                continue
            if outlet and own != 1:
                return 4, row - 1, col - 1
            for k in range(8):
                r, c = row + ROW_STEP[k], col + COL_STEP[k]
                if codes[r, c] != 1 << (k + 4 & 7) or not sums[r, c] >= least:
                    continue
                more = k != main if rule == HACK else inflows > 1
                if found[r, c] != own + more:
                    return 5, row - 1, col - 1
    return 0, 0, 0
