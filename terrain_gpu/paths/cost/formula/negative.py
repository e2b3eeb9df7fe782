"""Finds steps whose cost is negative, before paths rely on there being none."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....compiled import jit
from ....grid import TILE
from ....grid.neighbours import COL_STEP_16, ROW_STEP_16
from ..fields import Field
from ..knights import Options, halo_of
from ..steps import fill_weights


def negative_step(cost: Any, field: Field, options: Options) -> tuple[int, int, int, float] | None:
    """Return row and column of a padded block, direction to the neighbour, and cost of a step.

    None if there is no negative cost among the steps between this block's cells and their
    neighbours.
    """
    work = np.empty((8 * halo_of(options), TILE, TILE))
    cells = field.heights, field.frictions, field.absent, field.lengths
    row, col, k, found = _find_negative(cost, *cells, options, work)
    return None if row < 0 else (row, col, k, found)


@jit
def _find_negative(cost, heights, frictions, absent, lengths, options, work):
    height, width = absent.shape
    halo = halo_of(options)
    for row in range(0, height - 2 * halo, TILE):
        for col in range(0, width - 2 * halo, TILE):
            fill_weights(cost, heights, frictions, absent, lengths, row, col, options, work)
            for y in range(TILE):
                for x in range(TILE):
                    r, c = row + halo + y, col + halo + x
                    for k in range(8 * halo):
                        there = r + ROW_STEP_16[k], c + COL_STEP_16[k]
                        if work[k, y, x] < 0 and not absent[there]:
                            return r, c, k, work[k, y, x]
    return -1, -1, -1, 0.0
