"""Divide the flow of a cell among its neighbours, in whole multiples of 2^-30."""

from __future__ import annotations

import math

import numpy as np

from ...compiled import jit
from ...wide import difference
from ..common.code_values import NOWHERE, OUTLET
from .division import BITS, DINF, QUINN, STEEPER, arctan, power


@jit
def split(z, code, at, step, lengths, contours, row, how, only, parts, shares):
    """Find the neighbours that a cell drains to, and the part of its flow that each receives.

    Parameters
    ----------
    z, code
        Filled elevations and directions, flat.
    at
        Flat index of the cell.
    step
        Differences of flat indices to the neighbours.
    lengths, contours
        See `geometry`.
    row
        The cell's row in the raster.
    how
        The method, and the exponent of slopes.
    only
        Whether only the neighbours are needed, not the size of their parts.
    parts
        int64, shape (8,). Receives the part of each neighbour in multiples of 2^-30, -1 for
        neighbours that receive nothing. With `only`, the sizes of the parts are arbitrary.
    shares
        float64, shape (8,), work space.

    Returns
    -------
    int
        The neighbour with the largest part, the first one clockwise from E on a tie; it receives
        what the others leave. -1 for an outlet.
    """
    parts[:] = -1
    if code[at] == OUTLET or code[at] == NOWHERE:
        return -1
    if how[0] == DINF:
        found = _steepest_facet(z, code, at, step, lengths, row, only, parts)
    else:
        found = _by_slopes(z, code, at, step, lengths, contours, row, how, only, parts, shares)
    largest = -1
    for k in range(8):
        if not found and code[at] == 1 << k and code[at + step[k]] != NOWHERE:
            parts[k] = 1 << BITS  # in a flat, or in a filled depression
        if parts[k] > (0 if largest < 0 else parts[largest]):
            largest = k
    return largest


@jit
def _by_slopes(z, code, at, step, lengths, contours, row, how, only, parts, shares):
    """Find parts by powers of slopes; return False if no neighbour is lower."""
    method, exponent = how
    steepest = 0.0
    for k in range(8):
        to = at + step[k]
        shares[k] = 0
        if code[to] != NOWHERE and z[to] < z[at]:
            shares[k] = difference(z[at], z[to]) / lengths[k, row]
            if shares[k] > 0:
                parts[k] = 1
                steepest = max(steepest, shares[k])
    if not 0 < steepest < np.inf:
        parts[:] = -1
        return False
    if only:
        return True
    total = 0.0
    for k in range(8):
        if parts[k] > 0:
            shares[k] = power(shares[k] / steepest, exponent)
            if method == QUINN:
                shares[k] *= contours[k, row]
            total += shares[k]
    for k in range(8):
        if parts[k] > 0:
            parts[k] = np.int64(shares[k] / total * (1 << BITS))
    return True


@jit
def _steepest_facet(z, code, at, step, lengths, row, only, parts):
    """Find parts by the steepest of eight triangular facets (Tarboton 1997).

    A facet with only one valid neighbour is the line to that neighbour. Returns False if no facet
    descends.
    """
    most, straight, other, ratio = 0.0, -1, -1, 0.0
    for facet in range(7, -1, -1):
        # Facets counterclockwise from E, as in the paper; from the straight step to the diagonal.
        near, far = facet, (facet + 1) & 7
        if facet & 1:
            near, far = far, near
        across = (2 * far - near) & 7
        first, second = at + step[near], at + step[far]
        has_first, has_second = code[first] != NOWHERE, code[second] != NOWHERE
        one, two = 0.0, 0.0
        if has_first:
            one = difference(z[at], z[first]) / lengths[near, row]
        if has_first and has_second:
            two = difference(z[first], z[second]) / lengths[across, row]
        slope, towards, beside, tangent = one, near, -1, 0.0
        far_enough = two * lengths[near, row] * STEEPER >= one * lengths[across, row]
        if has_second and (not has_first or far_enough):
            slope = difference(z[at], z[second]) / lengths[far, row]
            towards = far
        elif two > 0:
            slope, beside, tangent = math.sqrt(one * one + two * two), far, two / one
        if slope > most * STEEPER:
            most, straight, other, ratio = slope, towards, beside, tangent
    if straight < 0 or not most < np.inf:
        return False
    parts[straight] = 1 << BITS
    if other < 0:
        return True
    parts[other] = 0
    if only:
        return True
    across = (2 * other - straight) & 7
    angle = arctan(ratio) / arctan(lengths[across, row] / lengths[straight, row])
    parts[other] = np.int64(angle * (1 << BITS))
    parts[straight] -= parts[other]
    return True
