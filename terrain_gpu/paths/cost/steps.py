"""The steps into each cell: their costs, and the codes of backlinks."""

from __future__ import annotations

import math

import numpy as np
from numba.extending import overload, register_jitable

from ...grid import TILE
from ...grid.neighbours import COL_STEP, COL_STEP_16, EDGE_OF, EDGE_OF_16, ROW_STEP, ROW_STEP_16
from .edges import edge, infinity_of, join
from .formula.machine import new_registers, run
from .formula.program import FRICTION_FROM, FRICTION_TO, LENGTH, Z_FROM, Z_TO, Formula
from .knights import Knights, halo_of
from .models import Hops

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
        Cells of the block, padded by `halo_of` the options: by one, or by two for 16 neighbours.
    lengths
        float64 (4 or 8, padded rows), from the block's padded rows, see `step_lengths`.
    row, col
        First row and column of the tile's halo in the padded block.
    options
        (diagonal, corner_cutting, reverse).
    weights
        (8 or 16, TILE, TILE); receives the costs, the largest value where there is no step.
    """
    raise RuntimeError("for compiled code only")


@overload(fill_weights)
def _fill_weights_of(cost, heights, frictions, absent, lengths, row, col, options, weights):
    ways = {Hops: _fill_hops, Formula: _fill_formula}
    return ways.get(cost.instance_class, _fill_steps)


def _fill_hops(cost, heights, frictions, absent, lengths, row, col, options, weights):
    """Every step on a flat costs 1; `heights` holds masks of these steps, see `finalise`."""
    infinity, halo = infinity_of(weights), halo_of(options)
    for k in range(8 * halo):
        for y in range(TILE):
            steps = heights[row + halo + y, col + halo : col + halo + TILE]
            into = weights[k, y]
            for x in range(TILE):
                into[x] = 1 if (steps[x] >> k) & 1 else infinity


def _fill_steps(cost, heights, frictions, absent, lengths, row, col, options, weights):
    diagonal, corner_cutting, reverse = options
    kind = weights.dtype.type  # numba widens the difference of two uint32
    infinity, halo = infinity_of(weights), halo_of(options)
    for k in range(8):
        if k % 2 == 1 and not diagonal:
            weights[k] = infinity
            continue
        dy, dx = ROW_STEP[k], COL_STEP[k]
        for y in range(TILE):
            r, c = row + halo + y, col + halo
            # The step leads from (r0, c0) to (r1, c1). Swapping the arrays instead would prevent
            # vectorisation.
            r0, c0, r1, c1 = r + dy, c + dx, r, c
            if reverse:
                r0, c0, r1, c1 = r1, c1, r0, c0
            length = lengths[EDGE_OF[k], r + min(dy, 0)]
            # Other indices might be negative, and count from the end, which prevents
            # vectorisation; rows selected by slices would be counted as references.
            a0, b0, a1, b1 = np.uint64(r0), np.uint64(c0), np.uint64(r1), np.uint64(c1)
            a2, b2 = np.uint64(r), np.uint64(c)
            for x in range(np.uint64(TILE)):
                # Cells may be stored in a narrower type without loss; see `terrain.held`.
                a, b = kind(heights[a0, b0 + x]), kind(heights[a1, b1 + x])
                fa, fb = kind(frictions[a0, b0 + x]), kind(frictions[a1, b1 + x])
                w = kind(edge(cost, a, b, fa, fb, length))
                w = (
                    w if w <= infinity else infinity
                )  # also for NaN: an infinite cost times friction 0
                # Steps from absent cells need no test: such cells are never reached.
                weights[k, y, x] = infinity if absent[a2, b2 + x] else w
    if not corner_cutting:
        _close_corners(absent, row + halo, col + halo, weights)
    fill_moves(cost, heights, frictions, absent, lengths, row, col, options, weights)


def _fill_formula(cost, heights, frictions, absent, lengths, row, col, options, weights):
    diagonal, corner_cutting, reverse = options
    registers, halo = new_registers(cost, ROWS * TILE), halo_of(options)
    for k in range(8):
        if k % 2 == 1 and not diagonal:
            weights[k] = np.inf
            continue
        dy, dx = ROW_STEP[k], COL_STEP[k]
        for first in range(0, TILE, ROWS):
            for y in range(ROWS):
                r, c, lane = row + halo + first + y, col + halo, y * TILE
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
                gone = absent[row + halo + first + y, col + halo : col + halo + TILE]
                into = weights[k, first + y]
                for x in range(TILE):
                    w = found[x] if found[x] <= np.inf else np.inf  # NaN is no step
                    into[x] = np.inf if gone[x] else w
    if not corner_cutting:
        _close_corners(absent, row + halo, col + halo, weights)
    fill_moves(cost, heights, frictions, absent, lengths, row, col, options, weights)


@register_jitable
def _load(cells, first, register, lane):
    """Copy the cells of a row of a tile into a register."""
    fro, to = cells[first : first + TILE], register[lane : lane + TILE]
    for x in range(TILE):
        to[x] = fro[x]


@register_jitable
def _close_corners(absent, row, col, weights):
    """Remove diagonal steps between two absent cells; the tile begins at (row, col)."""
    infinity = infinity_of(weights)
    for k in range(1, 8, 2):
        dy, dx = ROW_STEP[k], COL_STEP[k]
        for y in range(TILE):
            beside, across = np.uint64(row + y), np.uint64(row + y + dy)
            left, right = np.uint64(col), np.uint64(col + dx)
            for x in range(np.uint64(TILE)):
                closed = absent[beside, right + x] & absent[across, left + x]
                weights[k, y, x] = infinity if closed else weights[k, y, x]


def fill_moves(cost, heights, frictions, absent, lengths, row, col, options, weights):
    """As `fill_weights`, for the knight's moves of 16 neighbours only."""
    raise RuntimeError("for compiled code only")


@overload(fill_moves)
def _fill_moves_of(cost, heights, frictions, absent, lengths, row, col, options, weights):
    if getattr(options, "instance_class", None) is not Knights:
        return lambda cost, heights, frictions, absent, lengths, row, col, options, weights: None
    return _move_by_formula if cost.instance_class is Formula else _move


def _move(cost, heights, frictions, absent, lengths, row, col, options, weights):
    for k in range(8, 16):
        dy, dx, one, other = ROW_STEP_16[k], COL_STEP_16[k], k - 8, (k - 7) % 8
        for y in range(TILE):
            r, c = row + 2 + y, col + 2
            r0, c0, r1, c1 = r + dy, c + dx, r, c
            if options.reverse:
                r0, c0, r1, c1 = r1, c1, r0, c0
            rp, cp = r + ROW_STEP[one], c + COL_STEP[one]
            rq, cq = r + ROW_STEP[other], c + COL_STEP[other]
            fro, to = heights[r0, c0 : c0 + TILE], heights[r1, c1 : c1 + TILE]
            ff, ft = frictions[r0, c0 : c0 + TILE], frictions[r1, c1 : c1 + TILE]
            p, q = heights[rp, cp : cp + TILE], heights[rq, cq : cq + TILE]
            fp, fq = frictions[rp, cp : cp + TILE], frictions[rq, cq : cq + TILE]
            gone = absent[r, c : c + TILE]
            gone_p, gone_q = absent[rp, cp : cp + TILE], absent[rq, cq : cq + TILE]
            length = 0.5 * lengths[EDGE_OF_16[k], r + min(dy, 0)]
            into = weights[k, y]
            for x in range(TILE):
                z = 0.5 * (np.float64(p[x]) + np.float64(q[x]))
                f = 0.5 * (np.float64(fp[x]) + np.float64(fq[x]))
                a, b = np.float64(fro[x]), np.float64(to[x])
                fa, fb = np.float64(ff[x]), np.float64(ft[x])
                there = edge(cost, a, z, fa, f, length)
                w = join(cost, there, edge(cost, z, b, f, fb, length))
                w = w if w <= np.inf else np.inf
                into[x] = np.inf if gone[x] | gone_p[x] | gone_q[x] else w


def _move_by_formula(cost, heights, frictions, absent, lengths, row, col, options, weights):
    registers = new_registers(cost, ROWS * TILE)
    for k in range(8, 16):
        dy, dx, one, other = ROW_STEP_16[k], COL_STEP_16[k], k - 8, (k - 7) % 8
        for first in range(0, TILE, ROWS):
            for half in range(2):
                for y in range(ROWS):
                    r, c, lane = row + 2 + first + y, col + 2, y * TILE
                    # The end of this half: where the move begins, or where it arrives.
                    begins = half == 0
                    re, ce = (r + dy, c + dx) if begins != options.reverse else (r, c)
                    rp, cp = r + ROW_STEP[one], c + COL_STEP[one]
                    rq, cq = r + ROW_STEP[other], c + COL_STEP[other]
                    length = 0.5 * lengths[EDGE_OF_16[k], r + min(dy, 0)]
                    for x in range(TILE):
                        registers[LENGTH, lane + x] = length
                    z, m = (Z_FROM, Z_TO) if begins else (Z_TO, Z_FROM)
                    _load(heights[re], ce, registers[z], lane)
                    _load_mean(heights[rp], cp, heights[rq], cq, registers[m], lane)
                    if cost.frictions:
                        f, m = (
                            (FRICTION_FROM, FRICTION_TO) if begins else (FRICTION_TO, FRICTION_FROM)
                        )
                        _load(frictions[re], ce, registers[f], lane)
                        _load_mean(frictions[rp], cp, frictions[rq], cq, registers[m], lane)
                run(cost.code, registers)
                for y in range(ROWS):
                    found = registers[cost.result, y * TILE : (y + 1) * TILE]
                    into = weights[k, first + y]
                    for x in range(TILE):
                        into[x] = found[x] if half == 0 else into[x] + found[x]
        for y in range(TILE):
            r, c = row + 2 + y, col + 2
            rp, cp = r + ROW_STEP[one], c + COL_STEP[one]
            rq, cq = r + ROW_STEP[other], c + COL_STEP[other]
            into = weights[k, y]
            for x in range(TILE):
                gone = absent[r, c + x] | absent[rp, cp + x] | absent[rq, cq + x]
                into[x] = into[x] if (into[x] <= np.inf) & (not gone) else np.inf


@register_jitable
def _load_mean(one, first, other, begin, register, lane):
    """Write the means of two rows of cells to a register."""
    to = register[lane : lane + TILE]
    for x in range(TILE):
        to[x] = 0.5 * (np.float64(one[first + x]) + np.float64(other[begin + x]))
