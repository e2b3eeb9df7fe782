"""The kernel that finds the cell to which a pour point snaps."""

from __future__ import annotations

import numpy as np

from ...compiled import jit


@jit
def improve(data, expected, good, corner, points, here, radius, steps, best, away, cells):
    """Look for better sums around some points in a piece of the raster.

    Parameters
    ----------
    data, expected, good
        The sums of the piece; the expected sum of each point, or None; and the mask of valid sums.
    corner
        int64: first row and column of the piece, and number of columns of the raster.
    points, here
        Rows and columns of all points; indices of those to look at.
    radius
        The largest distance.
    steps
        float64, shape (2, rows): step lengths in each row, across and down.
    best, away, cells
        For each point, updated: the largest sum, or minus the smallest difference from the expected
        one; the distance of its cell; and the id of the cell, -1 for none.
    """
    row0, col0, width = corner
    across, down = steps
    rows, cols = data.shape
    for k in here:
        row, col = points[k]
        for r in range(row0, row0 + rows):
            y = abs(r - row) * (down[r] + down[row]) / 2
            if y > radius:
                continue
            step = (across[r] + across[row]) / 2
            reach = radius / step if step > 0 else np.inf
            first = col0 if reach >= col - col0 else np.int64(col - reach)
            last = col0 + cols - 1 if reach >= col0 + cols - 1 - col else np.int64(col + reach) + 1
            for c in range(max(first, col0), min(last, col0 + cols - 1) + 1):
                if not good[r - row0, c - col0]:
                    continue
                far = np.hypot(y, abs(c - col) * step)
                if far > radius:
                    continue
                if expected is None:
                    found = data[r - row0, c - col0]
                else:
                    found = -abs(data[r - row0, c - col0] - expected[k])
                at = r * width + c
                if (
                    cells[k] < 0
                    or found > best[k]
                    or (found == best[k] and (far < away[k] or (far == away[k] and at < cells[k])))
                ):
                    best[k], away[k], cells[k] = found, far, at
