"""Horn's slope and aspect of a block."""

from __future__ import annotations

import math

from ...compiled import jit
from ...wide import relative

DEGREES = 180 / math.pi


@jit
def horn(cells, absent, across, down, nodata, slopes, aspects):
    """Compute slope, and optionally aspect, of the cells that have all eight neighbours.

    Parameters
    ----------
    cells, absent
        Heights, and whether a cell has none; with a ring of one cell.
    across, down
        float64, per row: the length of two steps along it, and of two steps down around it;
        negative where columns count westwards, or rows northwards.
    nodata
        Value of cells that lack a neighbour, and aspect of level cells.
    slopes, aspects
        float32, receive degrees; without aspect, `aspects` is empty.
    """
    for r in range(slopes.shape[0]):
        for c in range(slopes.shape[1]):
            lacks = False
            for y in range(3):
                for x in range(3):
                    lacks |= absent[r + y, c + x]
            if lacks:
                slopes[r, c] = nodata
                if aspects.size:
                    aspects[r, c] = nodata
                continue
            z = cells[r + 1, c + 1]
            nw, n = relative(cells[r, c], z), relative(cells[r, c + 1], z)
            ne, w = relative(cells[r, c + 2], z), relative(cells[r + 1, c], z)
            e, sw = relative(cells[r + 1, c + 2], z), relative(cells[r + 2, c], z)
            s, se = relative(cells[r + 2, c + 1], z), relative(cells[r + 2, c + 2], z)
            east = ((ne + 2 * e + se) - (nw + 2 * w + sw)) / (4 * across[r])
            south = ((sw + 2 * s + se) - (nw + 2 * n + ne)) / (4 * down[r])
            slopes[r, c] = DEGREES * math.atan(math.sqrt(east * east + south * south))
            if aspects.size:
                # Downhill, clockwise from north.
                downhill = DEGREES * math.atan2(-east, south)
                if downhill < 0:
                    downhill += 360
                aspects[r, c] = nodata if east == 0 and south == 0 else downhill
