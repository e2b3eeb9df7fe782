"""Divided flow computed again for proofs: what cells receive, and averages downstream."""

from __future__ import annotations

import math

import numpy as np

from ...compiled import jit
from ...grid.neighbours import COL_STEP, ROW_STEP
from ...wide import difference
from ..common.code_values import NODATA, NOWHERE, OUTLET
from .division import BITS, DINF, QUINN, STEEPER, arctan, power


@jit
def receive(heights, codes, sums, lengths, contours, above, how, inflow):
    """Add up what the cells of a block receive.

    Parameters
    ----------
    heights, codes
        Filled elevations and directions, with a margin of two cells around the block.
    sums
        int64, what drains through each cell, with a margin of one cell.
    lengths, contours
        See `division.geometry`.
    above
        The first row of `sums` in the raster, which may be -1.
    how
        The method and the exponent.
    inflow
        int64, with a margin of one cell. Receives the inflow of each cell.
    """
    rows, cols = sums.shape
    weights = np.empty(8)
    inflow[:] = 0
    for row in range(rows):
        for col in range(cols):
            code = codes[row + 1, col + 1]
            if code in (NOWHERE, OUTLET):
                continue
            around = heights[row : row + 3, col : col + 3]
            drains = codes[row : row + 3, col : col + 3]
            line = above + row
            weights[:] = 0
            _weigh(around, drains, lengths[:, line], contours[:, line], how, weights)
            _hand_out(sums[row, col], weights, row, col, inflow)


@jit
def average(heights, codes, levels, stops, to_outlets, found, rises, lengths, right):
    """Compute the right values of a block from those of the cells it drains to by D-infinity.

    Parameters
    ----------
    heights, codes, levels, stops
        Filled elevations, directions, the elevations that are measured, and the mask of streams,
        all with a margin of one cell.
    to_outlets
        Whether flow paths may also end at cells that drain no further.
    found
        float64, the values to check, with a margin of one cell.
    rises
        Whether values are heights above streams; otherwise they are distances.
    lengths
        See `division.geometry`; for the rows of the block.
    right
        float64. Receives the right values.
    """
    weights = np.empty(8)
    for row in range(right.shape[0]):
        for col in range(right.shape[1]):
            right[row, col] = NODATA
            r, c = row + 1, col + 1
            weights[:] = 0
            if codes[r, c] == NOWHERE:
                continue
            if codes[r, c] != OUTLET and not stops[r, c]:
                around = heights[row : row + 3, col : col + 3]
                drains, steps = codes[row : row + 3, col : col + 3], lengths[:, row]
                _weigh(around, drains, steps, steps, (DINF, 1.0), weights)
            largest = np.argmax(weights)
            if weights[largest] == 0:
                if (stops[r, c] or to_outlets) and not (rises and np.isnan(levels[r, c])):
                    right[row, col] = 0
                continue
            base, rest = np.nan, 0.0
            for k in range(-1, 8):
                to = largest if k < 0 else k
                if weights[to] == 0 or k == largest:
                    continue
                y, x = r + ROW_STEP[to], c + COL_STEP[to]
                step = lengths[to, row]
                if rises:
                    step = difference(levels[r, c], levels[y, x])
                one = np.nan if found[y, x] == NODATA else found[y, x] + step
                if k < 0:
                    base = rest = one
                else:
                    rest += weights[to] * (one - base)
            if np.isfinite(rest):
                right[row, col] = rest


@jit
def _weigh(around, drains, steps, widths, how, weights):
    """Find the weights of the neighbours of a cell that is not an outlet; `weights` must be 0."""
    if how[0] == DINF:
        known = _weigh_facets(around, drains, steps, weights)
    else:
        known = _weigh_slopes(around, drains, steps, widths, how, weights)
    if not known:
        for k in range(8):
            beside = drains[1 + ROW_STEP[k], 1 + COL_STEP[k]]
            weights[k] = drains[1, 1] == 1 << k and beside != NOWHERE


@jit
def _hand_out(amount, weights, row, col, inflow):
    """Divide an amount by weights whose sum is 1, and add the portions to `inflow`."""
    parts = np.floor(weights * (1 << BITS)).astype(np.int64)
    largest, rest = np.argmax(parts), amount
    if parts[largest] == 0:
        return
    # amount * part / 2^BITS, rounded down; in two halves, so that no product overflows.
    high, low = amount // (1 << BITS), amount % (1 << BITS)
    for k in range(8):
        portion = high * parts[k] + low * parts[k] // (1 << BITS)
        if k != largest:
            rest -= portion
            _add(portion, row + ROW_STEP[k], col + COL_STEP[k], inflow)
    _add(rest, row + ROW_STEP[largest], col + COL_STEP[largest], inflow)


@jit
def _add(portion, row, col, inflow):
    """Add a portion to a cell, unless it lies outside."""
    if 0 <= row < inflow.shape[0] and 0 <= col < inflow.shape[1]:
        inflow[row, col] += portion


@jit
def _drop(around, drains, k):
    """Return the drop to a neighbour; NaN if the neighbour does not drain."""
    r, c = 1 + ROW_STEP[k], 1 + COL_STEP[k]
    if drains[r, c] == NOWHERE:
        return np.nan
    return difference(around[1, 1], around[r, c])


@jit
def _weigh_slopes(around, drains, steps, widths, how, weights):
    """Find weights by powers of slopes; return False if no neighbour is lower."""
    for k in range(8):
        drop = _drop(around, drains, k)
        if drop > 0:
            weights[k] = drop / steps[k]
    steepest = weights.max()
    if steepest == 0 or np.isinf(steepest):
        weights[:] = 0
        return False
    total = 0.0
    for k in range(8):
        if weights[k] > 0:
            weights[k] = power(weights[k] / steepest, how[1])
            if how[0] == QUINN:
                weights[k] = weights[k] * widths[k]
            total += weights[k]
    for k in range(8):
        weights[k] /= total
    return True


@jit
def _weigh_facets(around, drains, steps, weights):
    """Find weights by the angle in the steepest of eight facets; return False if none descends."""
    straight_of, diagonal_of = (0, 6, 6, 4, 4, 2, 2, 0), (7, 7, 5, 5, 3, 3, 1, 1)
    turned_of = (6, 0, 4, 6, 2, 4, 0, 2)
    steepest, chosen, tangent = 0.0, 0, 0.0
    for facet in range(8):
        straight, diagonal, turned = straight_of[facet], diagonal_of[facet], turned_of[facet]
        drop, corner = _drop(around, drains, straight), _drop(around, drains, diagonal)
        s1, s2 = drop / steps[straight], 0.0
        if not np.isnan(drop) and not np.isnan(corner):
            side = around[1 + ROW_STEP[straight], 1 + COL_STEP[straight]]
            end = around[1 + ROW_STEP[diagonal], 1 + COL_STEP[diagonal]]
            s2 = difference(side, end) / steps[turned]
        slope, turn = s1, 0.0
        beyond = s2 * steps[straight] * STEEPER >= s1 * steps[turned]
        if not np.isnan(corner) and (np.isnan(drop) or beyond):
            slope, turn = corner / steps[diagonal], np.inf
        elif s2 > 0:
            slope, turn = math.sqrt(s1 * s1 + s2 * s2), s2 / s1
        if slope > steepest * STEEPER:
            steepest, chosen, tangent = slope, facet, turn
    if steepest == 0 or np.isinf(steepest):
        return False
    straight, diagonal, turned = straight_of[chosen], diagonal_of[chosen], turned_of[chosen]
    share = 1.0
    if tangent < np.inf:
        share = arctan(tangent) / arctan(steps[turned] / steps[straight])
    share = np.floor(share * (1 << BITS)) / (1 << BITS)
    weights[straight], weights[diagonal] = 1 - share, share
    return True
