"""Check the costs that compiled programs give steps against a plain interpreter of the formula."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...compiled import jit
from ...grid import TILE
from ...grid.neighbours import COL_STEP_16, EDGE_OF_16, ROW_STEP_16
from .fields import Field
from .formula.interpret import evaluate
from .formula.tree import FormulaTree
from .knights import Options, halo_of
from .steps import fill_weights


def wrong_price(
    tree: FormulaTree, cost: Any, field: Field, options: Options
) -> tuple[int, int, int, float, float] | None:
    """Find a step into a block whose cost is wrong.

    Returns
    -------
    row, col, k, found, right
        Cell of the block, direction to the neighbour that the step comes from, and its costs; None
        if all are right.
    """
    halo = halo_of(options)
    work = np.empty((8 * halo, TILE, TILE))
    cells = field.heights, field.frictions, field.absent, field.lengths
    for row in range(0, field.absent.shape[0] - 2 * halo, TILE):
        for col in range(0, field.absent.shape[1] - 2 * halo, TILE):
            _price(cost, *cells, row, col, options, work)
            right = interpreted(tree, field, row, col, options)
            if not np.array_equal(work, right):
                k, y, x = np.argwhere(work != right)[0].tolist()
                return row + y, col + x, k, float(work[k, y, x]), float(right[k, y, x])
    return None


def prices(terrain: Any, at: Any, options: Options, dtype: np.dtype) -> np.ndarray:
    """The costs of all steps into the cells of a block, padded to whole tiles.

    (8 or 16, rows, cols)
    """
    field, halo = terrain.load(at), halo_of(options)
    cells = field.heights, field.frictions, field.absent, field.lengths
    rows, cols = (side - 2 * halo for side in field.absent.shape)
    found = np.empty((8 * halo, rows, cols), dtype)
    work = np.empty((8 * halo, TILE, TILE), dtype)
    for row in range(0, rows, TILE):
        for col in range(0, cols, TILE):
            _price(terrain.model.kernel, *cells, row, col, options, work)
            found[:, row : row + TILE, col : col + TILE] = work
    return found


def interpreted(
    tree: FormulaTree, field: Field, row: int, col: int, options: Options
) -> np.ndarray:
    """What `steps.fill_weights` computes for a tile, in plain steps."""
    diagonal, corner_cutting, reverse = options
    halo = halo_of(options)
    found = np.full((8 * halo, TILE, TILE), np.inf)

    def around(cells: np.ndarray, dy: int, dx: int) -> np.ndarray:
        r, c = row + halo + dy, col + halo + dx
        return cells[r : r + TILE, c : c + TILE]

    def at(dy: int, dx: int) -> tuple[np.ndarray, np.ndarray]:
        return around(field.heights, dy, dx), around(field.frictions, dy, dx)

    def priced(fro: Any, to: Any, length: np.ndarray) -> np.ndarray:
        ends = {"z_from": fro[0], "z_to": to[0], "friction_from": fro[1], "friction_to": to[1]}
        return evaluate(tree, **ends, length=length)

    for k in range(8 * halo):
        dy, dx = int(ROW_STEP_16[k]), int(COL_STEP_16[k])
        if k < 8 and dy and dx and not diagonal:
            continue
        fro, to = (at(0, 0), at(dy, dx)) if reverse else (at(dy, dx), at(0, 0))
        upper = row + halo + min(dy, 0)
        length = field.lengths[EDGE_OF_16[k], upper : upper + TILE, None]
        closed = around(field.absent, 0, 0)
        if k < 8:
            costs = priced(fro, to, length)
            if dy and dx and not corner_cutting:
                closed = closed | around(field.absent, 0, dx) & around(field.absent, dy, 0)
        else:  # through the middle between two cells
            beside = [(int(ROW_STEP_16[n]), int(COL_STEP_16[n])) for n in (k - 8, (k - 7) % 8)]
            pairs = zip(at(*beside[0]), at(*beside[1]), strict=True)
            middle = [0.5 * (a.astype(float) + b.astype(float)) for a, b in pairs]
            costs = priced(fro, middle, 0.5 * length) + priced(middle, to, 0.5 * length)
            closed = closed | around(field.absent, *beside[0]) | around(field.absent, *beside[1])
        found[k] = np.where(closed | np.isnan(costs), np.inf, costs)
    return found


@jit
def _price(cost, heights, frictions, absent, lengths, row, col, options, work):
    fill_weights(cost, heights, frictions, absent, lengths, row, col, options, work)
