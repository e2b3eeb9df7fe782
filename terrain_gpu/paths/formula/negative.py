"""Finds steps whose cost is negative, before paths rely on there being none."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...compiled import jit
from ...grid import TILE
from ...grid.neighbours import COL_STEP, ROW_STEP
from ..fields import Field
from ..steps import fill_weights


def negative_step(
    cost: Any, field: Field, options: tuple[bool, bool, bool]
) -> tuple[int, int, int, float] | None:
    """Return row and column of a padded block, direction to the neighbour, and cost of a step.

    None if there is no negative cost among the steps between this block's cells and their
    neighbours.
    """
    work = np.empty((8, TILE, TILE))
    cells = field.heights, field.frictions, field.absent, field.lengths
    row, col, k, found = _find_negative(cost, *cells, options, work)
    return None if row < 0 else (row, col, k, found)


@jit
def _find_negative(cost, heights, frictions, absent, lengths, options, work):
    height, width = absent.shape
    for row in range(0, height - 2, TILE):
        for col in range(0, width - 2, TILE):
            fill_weights(cost, heights, frictions, absent, lengths, row, col, options, work)
            for y in range(TILE):
                for x in range(TILE):
                    r, c = row + 1 + y, col + 1 + x
                    for k in range(8):
                        if work[k, y, x] < 0 and not absent[r + ROW_STEP[k], c + COL_STEP[k]]:
                            return r, c, k, work[k, y, x]
    return -1, -1, -1, 0.0
