"""The steps into each cell: their costs, and the codes of backlinks."""

from __future__ import annotations

import math

import numpy as np
from numba.extending import overload, register_jitable

from ..grid import TILE
from ..grid.neighbours import COL_STEP, EDGE_OF, ROW_STEP
from .costs import Hops
from .edges import edge, infinity_of
from .formula.machine import new_registers, run
from .formula.program import FRICTION_FROM, FRICTION_TO, LENGTH, Z_FROM, Z_TO, Formula

RESULTS = ("distance", "backlink", "allocation")
"""What can be computed, and the layers of a store that hold it unless another name is given."""

SOURCE = 0
UNREACHED = 255
"""Backlinks of cells without a predecessor; other cells hold the D8 code of theirs."""


ROWS = 8
"""Rows of a tile that a formula prices at once."""


def layer_named(into: str, name: str) -> str:
    """The layer of a result where distances go to `into`: walk, walk_backlink."""
    return into if name == RESULTS[0] else name if into == RESULTS[0] else f"{into}_{name}"


def unreached(dtype: np.dtype) -> float | int:
    """Value of unreached cells in a distance layer: NaN, or the largest integer."""
    return math.nan if dtype.kind == "f" else int(np.iinfo(dtype).max)


def fill_weights(cost, heights, frictions, absent, lengths, row, col, options, weights):
    """Compute the cost of every step into the cells of a tile.

    Parameters
    ----------
    heights, frictions, absent
        Cells of the block, padded by one.
    lengths
        float64 (4, rows + 2): lengths of the steps E, SW, S, SE from the block's padded rows.
    row, col
        First row and column of the tile's halo in the padded block.
    options
        (diagonal, corner_cutting, reverse).
    weights
        (8, TILE, TILE); receives the costs, the largest value where there is no step.
    """
    raise RuntimeError("for compiled code only")


@overload(fill_weights)
def _fill_weights_of(cost, heights, frictions, absent, lengths, row, col, options, weights):
    ways = {Hops: _fill_hops, Formula: _fill_formula}
    return ways.get(cost.instance_class, _fill_steps)


def _fill_hops(cost, heights, frictions, absent, lengths, row, col, options, weights):
    """Every step on a flat costs 1; `heights` holds masks of these steps, see `finalise`."""
    infinity = infinity_of(weights)
    for k in range(8):
        for y in range(TILE):
            steps = heights[row + 1 + y, col + 1 : col + 1 + TILE]
            into = weights[k, y]
            for x in range(TILE):
                into[x] = 1 if (steps[x] >> k) & 1 else infinity


def _fill_steps(cost, heights, frictions, absent, lengths, row, col, options, weights):
    diagonal, corner_cutting, reverse = options
    kind = weights.dtype.type  # numba widens the difference of two uint32
    infinity = infinity_of(weights)
    for k in range(8):
        if k % 2 == 1 and not diagonal:
            weights[k] = infinity
            continue
        dy, dx = ROW_STEP[k], COL_STEP[k]
        for y in range(TILE):
            r, c = row + 1 + y, col + 1
            # The step leads from (r0, c0) to (r1, c1). Swapping the arrays instead would prevent
            # vectorisation.
            r0, c0, r1, c1 = r + dy, c + dx, r, c
            if reverse:
                r0, c0, r1, c1 = r1, c1, r0, c0
            fro, to = heights[r0, c0 : c0 + TILE], heights[r1, c1 : c1 + TILE]
            ff, ft = frictions[r0, c0 : c0 + TILE], frictions[r1, c1 : c1 + TILE]
            gone = absent[r, c : c + TILE]
            length = lengths[EDGE_OF[k], r + min(dy, 0)]
            into = weights[k, y]
            for x in range(TILE):
                # Cells may be stored in a narrower type without loss; see `ground.held`.
                a, b, fa, fb = kind(fro[x]), kind(to[x]), kind(ff[x]), kind(ft[x])
                w = kind(edge(cost, a, b, fa, fb, length))
                w = (
                    w if w <= infinity else infinity
                )  # also for NaN: an infinite cost times friction 0
                # Steps from absent cells need no test: such cells are never reached.
                into[x] = infinity if gone[x] else w
    if not corner_cutting:
        _close_corners(absent, row, col, weights)


def _fill_formula(cost, heights, frictions, absent, lengths, row, col, options, weights):
    diagonal, corner_cutting, reverse = options
    registers = new_registers(cost, ROWS * TILE)
    for k in range(8):
        if k % 2 == 1 and not diagonal:
            weights[k] = np.inf
            continue
        dy, dx = ROW_STEP[k], COL_STEP[k]
        for first in range(0, TILE, ROWS):
            for y in range(ROWS):
                r, c, lane = row + 1 + first + y, col + 1, y * TILE
                r0, c0, r1, c1 = r + dy, c + dx, r, c
                if reverse:
                    r0, c0, r1, c1 = r1, c1, r0, c0
                length = lengths[EDGE_OF[k], r + min(dy, 0)]
                for x in range(TILE):
                    registers[LENGTH, lane + x] = length
                _load(heights[r0], c0, registers[Z_FROM], lane)
                _load(heights[r1], c1, registers[Z_TO], lane)
                if cost.frictions:
                    _load(frictions[r0], c0, registers[FRICTION_FROM], lane)
                    _load(frictions[r1], c1, registers[FRICTION_TO], lane)
            run(cost.code, registers)
            for y in range(ROWS):
                found = registers[cost.result, y * TILE : (y + 1) * TILE]
                gone = absent[row + 1 + first + y, col + 1 : col + 1 + TILE]
                into = weights[k, first + y]
                for x in range(TILE):
                    w = found[x] if found[x] <= np.inf else np.inf  # NaN is no step
                    into[x] = np.inf if gone[x] else w
    if not corner_cutting:
        _close_corners(absent, row, col, weights)


@register_jitable
def _load(cells, first, register, lane):
    """Copy the cells of a row of a tile into a register."""
    fro, to = cells[first : first + TILE], register[lane : lane + TILE]
    for x in range(TILE):
        to[x] = fro[x]


@register_jitable
def _close_corners(absent, row, col, weights):
    """Remove diagonal steps between two absent cells."""
    infinity = infinity_of(weights)
    for k in range(1, 8, 2):
        dy, dx = ROW_STEP[k], COL_STEP[k]
        for y in range(TILE):
            r = row + 1 + y
            for x in range(TILE):
                c = col + 1 + x
                if absent[r, c + dx] and absent[r + dy, c]:
                    weights[k, y, x] = infinity
