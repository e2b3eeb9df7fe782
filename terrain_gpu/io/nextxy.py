"""NEXTXY: flow directions as the column and the row of the next cell, the form of CaMa-Flood."""

from __future__ import annotations

import numpy as np

from ..grid import Window
from ..grid.neighbours import COL_STEP, ROW_STEP, encoded

NEXTXY = "nextxy"
"""Name of the encoding. Its two bands are columns and rows, counted from 1 in the file."""

DTYPE = np.dtype(np.int32)
NONE, MOUTH, SINK = -9999, -9, -10
"""In both bands: no direction (nodata), a river mouth, and an inland sink.

Flow paths end at a mouth at the raster's edge, next to cells without a direction, or where the next
cell is not in the file. An outlet surrounded by other cells is a sink.
"""

_NOWHERE = 255


def end_outside(codes: np.ndarray, window: Window, shape: tuple[int, int]) -> None:
    """Set the codes of a window with a ring of one cell to 255 outside the raster."""
    r0, r1, c0, c1 = window
    codes[: r0 == 0] = codes[codes.shape[0] - (r1 == shape[0]) :] = _NOWHERE
    codes[:, : c0 == 0] = codes[:, codes.shape[1] - (c1 == shape[1]) :] = _NOWHERE


def next_cells(codes: np.ndarray, window: Window, part: Window) -> np.ndarray:
    """Return columns and rows of the next cells, int32 of shape (2, rows, cols).

    Parameters
    ----------
    codes
        Codes of the window and a ring of one cell; 255 outside the raster.
    window, part
        The window, and the window of the whole file.
    """
    r0, r1, c0, c1 = window
    codes_inside = codes[1:-1, 1:-1]
    row, col = np.arange(r0, r1)[:, None], np.arange(c0, c1)[None]
    result = np.full((2, *codes_inside.shape), MOUTH, DTYPE)
    result[:, codes_inside == _NOWHERE] = NONE
    inland = codes_inside == 0
    for k in range(8):
        down, right = int(ROW_STEP[k]), int(COL_STEP[k])
        neighbour = codes[
            1 + down : 1 + down + codes_inside.shape[0],
            1 + right : 1 + right + codes_inside.shape[1],
        ]
        inland &= neighbour != _NOWHERE
        r, c = row + down, col + right
        leads = (codes_inside == 1 << k) & (neighbour != _NOWHERE)
        leads &= (r >= part[0]) & (r < part[1]) & (c >= part[2]) & (c < part[3])
        result[0][leads] = np.broadcast_to(c - part[2] + 1, codes_inside.shape)[leads]
        result[1][leads] = np.broadcast_to(r - part[0] + 1, codes_inside.shape)[leads]
    result[:, inland] = SINK
    return result


def no_directions(codes: np.ndarray) -> np.ndarray:
    """Where cells do not hold codes of flow directions."""
    invalid: np.ndarray = encoded("esri")[codes] < 0
    return invalid
