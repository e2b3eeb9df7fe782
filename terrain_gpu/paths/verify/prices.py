"""Check the costs that compiled programs give steps against a plain interpreter of the formula."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...compiled import jit
from ...grid import TILE
from ...grid.neighbours import COL_STEP, EDGE_OF, ROW_STEP
from ..fields import Field
from ..formula.interpret import evaluate
from ..formula.tree import FormulaTree
from ..steps import fill_weights


def wrong_price(
    tree: FormulaTree, cost: Any, field: Field, options: tuple[bool, bool, bool]
) -> tuple[int, int, int, float, float] | None:
    """Find a step into a block whose cost is wrong.

    Returns
    -------
    row, col, k, found, right
        Cell of the block, direction to the neighbour that the step comes from, and its costs; None
        if all are right.
    """
    work = np.empty((8, TILE, TILE))
    cells = field.heights, field.frictions, field.absent, field.lengths
    for row in range(0, field.absent.shape[0] - 2, TILE):
        for col in range(0, field.absent.shape[1] - 2, TILE):
            _price(cost, *cells, row, col, options, work)
            right = interpreted(tree, field, row, col, options)
            if not np.array_equal(work, right):
                k, y, x = np.argwhere(work != right)[0].tolist()
                return row + y, col + x, k, float(work[k, y, x]), float(right[k, y, x])
    return None


def prices(terrain: Any, at: Any, options: tuple[bool, bool, bool], dtype: np.dtype) -> np.ndarray:
    """The costs of all steps into the cells of a block, padded to whole tiles: (8, rows, cols)."""
    field = terrain.load(at)
    cells = field.heights, field.frictions, field.absent, field.lengths
    rows, cols = (side - 2 for side in field.absent.shape)
    found, work = np.empty((8, rows, cols), dtype), np.empty((8, TILE, TILE), dtype)
    for row in range(0, rows, TILE):
        for col in range(0, cols, TILE):
            _price(terrain.model.kernel, *cells, row, col, options, work)
            found[:, row : row + TILE, col : col + TILE] = work
    return found


def interpreted(
    tree: FormulaTree, field: Field, row: int, col: int, options: tuple[bool, bool, bool]
) -> np.ndarray:
    """What `steps.fill_weights` computes for a tile, in plain steps."""
    diagonal, corner_cutting, reverse = options
    found = np.full((8, TILE, TILE), np.inf)

    def around(cells: np.ndarray, dy: int, dx: int) -> np.ndarray:
        return cells[row + 1 + dy : row + 1 + dy + TILE, col + 1 + dx : col + 1 + dx + TILE]

    for k in range(8):
        dy, dx = int(ROW_STEP[k]), int(COL_STEP[k])
        if dy and dx and not diagonal:
            continue
        here, there = (0, 0), (dy, dx)
        fro, to = (here, there) if reverse else (there, here)
        upper = row + 1 + min(dy, 0)
        costs = evaluate(
            tree,
            z_from=around(field.heights, *fro),
            z_to=around(field.heights, *to),
            friction_from=around(field.frictions, *fro),
            friction_to=around(field.frictions, *to),
            length=field.lengths[EDGE_OF[k], upper : upper + TILE, None],
        )
        closed = around(field.absent, 0, 0) | np.isnan(costs)
        if dy and dx and not corner_cutting:
            closed |= around(field.absent, 0, dx) & around(field.absent, dy, 0)
        found[k] = np.where(closed, np.inf, costs)
    return found


@jit
def _price(cost, heights, frictions, absent, lengths, row, col, options, work):
    fill_weights(cost, heights, frictions, absent, lengths, row, col, options, work)
