"""Snap points to a channel nearby: `most_within`."""

from __future__ import annotations

import numpy as np

from ...cells import is_nodata
from ...grid import GridSpec
from ...grid.distance import Distance
from ...grid.lengths import step_lengths
from ...store import Layer
from .snap_kernels import improve

_GROUP = 512
"""Side, in cells, of the squares whose points are moved together."""

_PIECE = 1024
"""Side, in cells, of the squares in which sums are read."""


def most_within(
    sums: Layer, points: np.ndarray, snap: Distance, expected: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Find the cell with the largest sum within a distance of each point.

    On a tie, it is the nearest one, then the first in row-major order. Distances are between cell
    centres; see `distances`.

    Parameters
    ----------
    points
        int64, shape (n, 2): rows and columns.
    snap
        The largest distance.
    expected
        float64, shape (n,): find the sum closest to this one instead of the largest.

    Returns
    -------
    cells
        int64, shape (n, 2): rows and columns.
    none
        bool, shape (n,): points with no sum within it.
    """
    grid = sums.grid
    steps, radius = snap.measured(grid)
    across, down = steps
    best = np.zeros(len(points), sums.dtype if expected is None else np.float64)
    away, cells = np.full(len(points), np.inf), np.full(len(points), -1)
    order = np.lexsort(tuple(points.T // _GROUP)[::-1])
    squares = points[order] // _GROUP
    starts = np.flatnonzero(np.any(np.diff(squares, axis=0, prepend=-1) != 0, axis=1))
    for group in np.split(order, starts[1:]):
        r0, c0 = points[group].min(axis=0)
        r1, c1 = points[group].max(axis=0) + 1
        margin = _steps(radius, down.min(), grid.rows)
        r0, r1 = max(r0 - margin, 0), min(r1 + margin, grid.rows)
        margin = _steps(radius, across[r0:r1].min(), grid.cols)
        c0, c1 = max(c0 - margin, 0), min(c1 + margin, grid.cols)
        for row in range(r0, r1, _PIECE):
            for col in range(c0, c1, _PIECE):
                corner = np.array((row, col, grid.cols))
                data = sums.read_window(row, min(row + _PIECE, r1), col, min(col + _PIECE, c1))
                good = ~is_nodata(data, sums.nodata)
                piece = data, expected, good, corner, points, group
                improve(*piece, radius, steps, best, away, cells)
    none = cells < 0
    return np.stack(np.divmod(np.where(none, 0, cells), grid.cols), axis=1), none


def distances(grid: GridSpec, row: int, col: int, cells: np.ndarray) -> np.ndarray:
    """Return the distances of cells from one; step lengths are averaged over the two rows."""
    across, _, down, _ = step_lengths(grid)
    rows = cells[:, 0]
    return np.hypot(
        np.abs(rows - row) * (down[rows] + down[row]) / 2,
        np.abs(cells[:, 1] - col) * (across[rows] + across[row]) / 2,
    )


def _steps(radius: float, length: float, most: int) -> int:
    """Return the number of steps of a length that cover a radius, at most `most`."""
    return most if radius >= length * most else int(radius / length) + 1
