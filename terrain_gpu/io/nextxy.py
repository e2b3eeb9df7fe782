"""NEXTXY: flow directions as the column and the row of the next cell, as CaMa-Flood has them."""

from __future__ import annotations

import numpy as np

from ..grid import Window
from ..grid.neighbours import COL_STEP, ROW_STEP, encoded

NEXTXY = "nextxy"
"""Name of the encoding. Two bands: columns and rows, counted from 1 at the file's first cell."""

DTYPE = np.dtype(np.int32)
NONE, MOUTH, SINK = -9999, -9, -10
"""In both bands: no direction (nodata), a river mouth, and an inland sink.

Ways end at a mouth on the raster's edge, beside cells without a direction, or where the next cell
is not in the file; an outlet in the midst of other cells is a sink.
"""

_NOWHERE = 255


def end_outside(codes: np.ndarray, window: Window, shape: tuple[int, int]) -> None:
    """Set codes outside of the raster to 255, of a window with one ring."""
    r0, r1, c0, c1 = window
    codes[: r0 == 0] = codes[codes.shape[0] - (r1 == shape[0]) :] = _NOWHERE
    codes[:, : c0 == 0] = codes[:, codes.shape[1] - (c1 == shape[1]) :] = _NOWHERE


def next_cells(codes: np.ndarray, window: Window, part: Window) -> np.ndarray:
    """Return columns and rows of the next cells, int32 of shape (2, rows, cols).

    Parameters
    ----------
    codes
        Of a window, with one ring; 255 outside of the raster.
    window, part
        The window, and that of the whole file.
    """
    r0, r1, c0, c1 = window
    own = codes[1:-1, 1:-1]
    row, col = np.arange(r0, r1)[:, None], np.arange(c0, c1)[None]
    found = np.full((2, *own.shape), MOUTH, DTYPE)
    found[:, own == _NOWHERE] = NONE
    inland = own == 0
    for k in range(8):
        down, right = int(ROW_STEP[k]), int(COL_STEP[k])
        there = codes[1 + down : 1 + down + own.shape[0], 1 + right : 1 + right + own.shape[1]]
        inland &= there != _NOWHERE
        r, c = row + down, col + right
        leads = (own == 1 << k) & (there != _NOWHERE)
        leads &= (r >= part[0]) & (r < part[1]) & (c >= part[2]) & (c < part[3])
        found[0][leads] = np.broadcast_to(c - part[2] + 1, own.shape)[leads]
        found[1][leads] = np.broadcast_to(r - part[0] + 1, own.shape)[leads]
    found[:, inland] = SINK
    return found


def no_directions(codes: np.ndarray) -> np.ndarray:
    """Where cells hold no code of flow directions."""
    found: np.ndarray = encoded("esri")[codes] < 0
    return found
