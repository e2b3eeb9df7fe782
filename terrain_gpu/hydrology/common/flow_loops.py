"""The error for flow directions that form a loop, which lists the cells."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import StoreError
from ...grid import Window
from ...grid.neighbours import COL_STEP, ROW_STEP
from ...io.encodings import CODES
from ...plurals import counted
from ...store import Layer
from .codes import RECODE

LISTED = 12
"""Number of cells of a loop that the message lists."""

SEARCHED = 20_000
"""Number of steps after which a loop is too long to count its cells."""

_SIDE = 256

Cell = tuple[int, int]


def loop_error(layer: Layer, row: int, col: int) -> StoreError:
    """Return the error for directions that form a loop.

    Parameters
    ----------
    row, col
        A cell on the loop, or one that drains into it.
    """
    cells = _cells(layer, (row, col))
    text = f"{layer.path}: row {row}, column {col}: directions form a loop"
    if cells:
        first = cells.index(min(cells))
        cells = cells[first:] + cells[:first]
        row, col = cells[0]
        named = ", ".join(f"({r}, {c})" for r, c in cells[:LISTED])
        others = f" and {len(cells) - LISTED:,} more" if len(cells) > LISTED else ""
        text = (
            f"{layer.path}: row {row}, column {col}: directions form a loop of "
            f"{counted(len(cells), 'cell')}: {named}{others}"
        )
    return StoreError(
        f"{text}; correct them there, or compute them again (flow-direction). If the codes are not "
        f"{CODES}: {RECODE}"
    )


def _cells(layer: Layer, start: Cell) -> list[Cell]:
    """Return the cells of the loop in order; none if it is too long."""
    seen: dict[Cell, int] = {}
    for cell in _path(layer, start):
        if cell in seen:
            return list(seen)[seen[cell] :]
        if len(seen) == SEARCHED:
            break
        seen[cell] = len(seen)
    return []


def _path(layer: Layer, cell: Cell) -> Iterator[Cell]:
    """Follow directions from a cell, cell by cell."""
    rows, cols = layer.grid.shape
    window: Window = (0, 0, 0, 0)
    while True:
        row, col = cell
        yield cell
        if not (window[0] <= row < window[1] and window[2] <= col < window[3]):
            r0, c0 = row // _SIDE * _SIDE, col // _SIDE * _SIDE
            window = r0, min(r0 + _SIDE, rows), c0, min(c0 + _SIDE, cols)
            codes = layer.read_window(*window)
        code = int(codes[row - window[0], col - window[2]])
        if code == 0 or code & (code - 1):  # no direction
            return
        k = code.bit_length() - 1
        cell = row + int(ROW_STEP[k]), col + int(COL_STEP[k])
        if not (0 <= cell[0] < rows and 0 <= cell[1] < cols):
            return
