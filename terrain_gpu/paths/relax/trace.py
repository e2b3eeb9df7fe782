"""Follow backlinks from a target to its source."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...compiled import jit
from ...described import Described
from ...errors import InputError, StoreError
from ...grid import BlockGrid
from ...grid.neighbours import CODE_16, COL_STEP_16, EDGE_OF_16, ROW_STEP_16
from ...plurals import counted
from ..cost.steps import SOURCE, UNREACHED

KEPT_BLOCKS = 4
"""Blocks kept in memory: a path may weave around the corner where four blocks meet."""

_PIECE = 1 << 16
"""Cells of a path are collected in pieces of this size."""

_STEPS = {ways: np.zeros((256, 2), np.int64) for ways in (8, 16)}
"""Row and column step of each code, by the number of neighbours; none for other values."""
for _ways, _steps in _STEPS.items():
    _steps[CODE_16[:_ways]] = np.stack((ROW_STEP_16, COL_STEP_16), axis=1)[:_ways]

_EDGE_TO = np.zeros((5, 5), np.int64)
"""The kind of a step's length by its rows and columns, which may be negative."""
_EDGE_TO[ROW_STEP_16, COL_STEP_16] = EDGE_OF_16

_MOVING, _ENDED, _CIRCLE = range(3)

_DAMAGED = "the backlinks {}; the layer is damaged, compute it again"


@dataclass(frozen=True, eq=False, repr=False)
class TracedPath(Described):
    """A least-cost path.

    Attributes
    ----------
    source, target
        Ids of the source and the target.
    cost
        From source to target, in units of the cost model.
    length
        In map units, or metres when the CRS is geographic.
    cells
        int64, shape (n, 2): (row, col) from source to target.
    source_name, target_name
        What the ids stand for; None where places have no names.
    """

    source: int
    target: int
    cost: float
    length: float
    cells: np.ndarray
    source_name: str | None = None
    target_name: str | None = None


def trace_path(
    read_block: Callable[[int, int], np.ndarray],
    blocks: BlockGrid,
    row: int,
    col: int,
    ways: int = 8,
) -> np.ndarray | None:
    """Find the cells of the least-cost path that ends in a cell.

    Parameters
    ----------
    read_block
        Returns the backlinks of block (i, j), clipped to the raster, in an array that is not
        reused: uint8 ESRI D8 codes towards the predecessor (E 1, SE 2, S 4, SW 8, W 16, NW 32,
        N 64, NE 128), 0 at sources, 255 at unreached cells. `KEPT_BLOCKS` blocks are kept.
    blocks
        The blocks of the raster.
    row, col
        The target.
    ways
        16 if there are knight's moves, whose codes are the sums of the two that they pass between.

    Returns
    -------
    numpy.ndarray, int64, shape (n, 2), or None
        (row, col) from source to target; None when the target is unreached.

    Raises
    ------
    InputError
        when the target is outside the raster.
    StoreError
        when the backlinks are damaged: a value is not a code, or they lead out of the raster or
        form a cycle.
    """
    if not (0 <= row < blocks.rows and 0 <= col < blocks.cols):
        raise InputError(
            f"row {row}, column {col} is outside the raster of "
            f"{counted(blocks.rows, 'row')} and {counted(blocks.cols, 'column')}"
        )
    read = lru_cache(KEPT_BLOCKS)(read_block)
    state = np.array((row, col, row, col, 1, 1), np.int64)
    pieces = [np.empty((_PIECE, 2), np.int64)]
    count, ended = 0, _MOVING
    while ended == _MOVING:
        if blocks.wraps:
            state[1] %= blocks.cols
        row, col = state[:2].tolist()
        if not (0 <= row < blocks.rows and 0 <= col < blocks.cols):
            raise StoreError(_DAMAGED.format(f"lead out of the raster to row {row}, column {col}"))
        i, j = row // blocks.block, col // blocks.block
        window = blocks.window(i, j)
        codes = np.ascontiguousarray(read(i, j))
        shape = window[1] - window[0], window[3] - window[2]
        if codes.shape != shape or codes.dtype != np.uint8:
            raise StoreError(
                f"backlinks of block ({i}, {j}) are {codes.shape} {codes.dtype}, not {shape} uint8"
            )
        if count == _PIECE:
            pieces.append(np.empty((_PIECE, 2), np.int64))
            count = 0
        where = codes, window[0], window[2]
        count, ended = _walk(*where, _STEPS[ways], state, pieces[-1], count)
    row, col = state[:2].tolist()
    if ended == _CIRCLE:
        raise StoreError(_DAMAGED.format(f"form a cycle at row {row}, column {col}"))
    code = codes[row - window[0], col - window[2]]
    if code == UNREACHED and len(pieces) == count == 1:
        return None
    if code != SOURCE:
        raise StoreError(_DAMAGED.format(f"hold {code} at row {row}, column {col}"))
    pieces[-1] = pieces[-1][:count]
    return np.ascontiguousarray(np.concatenate(pieces)[::-1])


def path_length(cells: np.ndarray, lengths: np.ndarray, across: int | None = None) -> float:
    """Length of a path through cells (row, col); arguments as for `lengths_of`."""
    return math.fsum(lengths_of(cells, lengths, across).tolist())


def lengths_of(cells: np.ndarray, lengths: np.ndarray, across: int | None = None) -> np.ndarray:
    """Lengths of the steps of a path, float64, from `grid.lengths.step_lengths`.

    `across` is the number of columns of a raster that wraps.
    """
    step, reach = np.diff(cells, axis=0), len(lengths) // 4
    if across is not None:
        step[:, 1] = (step[:, 1] + reach) % across - reach
    upper = np.minimum(cells[1:, 0], cells[:-1, 0])
    return lengths[_EDGE_TO[step[:, 0], step[:, 1]], upper]


@jit
def _walk(
    codes: np.ndarray,
    row0: int,
    col0: int,
    steps: np.ndarray,
    state: np.ndarray,
    cells: np.ndarray,
    count: int,
) -> tuple[int, int]:
    """Follow the codes of a block until the path ends, leaves it, or `cells` is full.

    `state` holds row and column, and the state of a cycle detection that remembers one cell (R. P.
    Brent 1980): row and column of a mark, the number of steps after which the mark moves to the
    current cell, and the last such number.
    """
    row, col, mark_row, mark_col, left, span = state
    ended = _MOVING
    while count < len(cells):
        r, c = row - row0, col - col0
        if not (0 <= r < codes.shape[0] and 0 <= c < codes.shape[1]):
            break
        cells[count, 0], cells[count, 1] = row, col
        count += 1
        down, right = steps[codes[r, c]]
        if down == 0 and right == 0:
            ended = _ENDED
            break
        row += down
        col += right
        if row == mark_row and col == mark_col:
            ended = _CIRCLE
            break
        left -= 1
        if left == 0:
            mark_row, mark_col = row, col
            span *= 2
            left = span
    state[0], state[1], state[2] = row, col, mark_row
    state[3], state[4], state[5] = mark_col, left, span
    return count, ended
