"""The kernel that finds tied steps."""

from __future__ import annotations

import numpy as np

from ...compiled import jit
from ...grid import TILE
from ...grid.neighbours import COL_STEP, ROW_STEP
from ..cost.edges import infinity_of, join
from ..cost.steps import UNREACHED, fill_weights


@jit
def tied(cost, heights, frictions, absent, lengths, options, distances, codes, work, ties):
    """Mark all steps from strictly nearer neighbours, and those of the backlinks.

    Parameters
    ----------
    heights, frictions, absent, lengths, options
        See `fill_weights`.
    distances
        Padded by one; the largest value where unreached.
    codes
        uint8, the backlinks.
    work
        (8, TILE, TILE) of the type of distances.
    ties
        uint8, receives bit k where a path may come from neighbour k.
    """
    infinity = infinity_of(distances)
    height, width = codes.shape
    for row in range(0, height, TILE):
        for col in range(0, width, TILE):
            fill_weights(cost, heights, frictions, absent, lengths, row, col, options, work)
            for y in range(min(TILE, height - row)):
                for x in range(min(TILE, width - col)):
                    r, c = row + y, col + x
                    here, code = distances[r + 1, c + 1], codes[r, c]
                    ties[r, c] = 0
                    if code in (0, UNREACHED) or here == infinity:
                        continue
                    found = code
                    for k in range(8):
                        there = distances[r + 1 + ROW_STEP[k], c + 1 + COL_STEP[k]]
                        if there < here and join(cost, there, work[k, y, x]) == here:
                            found |= np.uint8(1 << k)
                    ties[r, c] = found
