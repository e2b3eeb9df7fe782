"""The methods of dividing flow among neighbours, with their lengths and arithmetic.

Square roots, quotients, products and sums are rounded in the same way on every machine. Powers and
arctangents of C libraries are not, so this module computes them itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from ...compiled import jit
from ...grid import GridSpec
from ...grid.lengths import step_lengths
from ...grid.neighbours import EDGE_OF, ROW_STEP

DINF, MFD, QUINN = range(3)
METHODS = {"dinf": DINF, "mfd": MFD, "quinn": QUINN}

EXPONENTS: Mapping[str, float] = MappingProxyType({"mfd": 1.1, "quinn": 1.0})
"""Default exponents of slopes: Freeman's and Quinn's."""

BITS = 30
"""Parts of flow are whole multiples of 2^-30."""

STEEPER = 1 + 2.0**-48
"""A slope is steeper than another if it exceeds it by more than this factor. Smaller differences
may come from rounding, which must not decide ties."""

_LN2, _ROOT_HALF = math.log(2), math.sqrt(0.5)

# Coefficients of series, highest order first.
_LOGARITHM = tuple(2 / k for k in range(19, 0, -2))
_EXPONENTIAL = tuple(1 / math.factorial(k) for k in range(13, -1, -1))
_ARCTANGENT = tuple(1 / k for k in range(19, 0, -2))


def geometry(grid: GridSpec) -> tuple[np.ndarray, np.ndarray]:
    """Return the step lengths to all neighbours, and the contour lengths that flow to them crosses.

    All contour lengths are the area of the cell divided by twice the step. For a straight step this
    is half the width of the cell across it; for a diagonal step of square cells, 0.354 times their
    side (Quinn and others 1991).

    Returns
    -------
    lengths, contours
        float64, shape (8, rows).
    """
    steps = step_lengths(grid)
    lengths, contours = np.empty((2, 8, grid.rows))
    for k in range(8):  # one at a time, to save memory for rasters with many rows

        def above(found: np.ndarray, k: int = k) -> np.ndarray:
            """Take the value of the upper of the two rows that a step joins."""
            return np.append(found[:1], found[:-1]) if ROW_STEP[k] < 0 else found

        lengths[k] = above(steps[EDGE_OF[k]])
        np.multiply(steps[0], above(steps[2]), out=contours[k])
        contours[k] /= 2 * lengths[k]
    return lengths, contours


@jit
def power(x, exponent):
    """Raise a number from 0 to 1 to a positive power, with an error below 1e-13."""
    if x <= 0:
        return 0.0
    if exponent == 1 or x == 1:
        return x
    mantissa, twos = math.frexp(x)
    if mantissa < _ROOT_HALF:
        mantissa, twos = 2 * mantissa, twos - 1
    t = (mantissa - 1) / (mantissa + 1)
    square, series = t * t, 0.0
    for one in _LOGARITHM:
        series = series * square + one
    log = exponent * (twos * _LN2 + t * series)
    if log < -700:
        return 0.0
    twos = math.floor(log / _LN2 + 0.5)
    rest, series = log - twos * _LN2, 0.0
    for one in _EXPONENTIAL:
        series = series * rest + one
    return math.ldexp(series, twos)


@jit
def arctan(x):
    """Return the arctangent of a number from 0 to infinity, with an error below 1e-13."""
    if x > 1:
        return math.pi / 2 - arctan_below(1 / x)
    return arctan_below(x)


@jit
def arctan_below(x):
    """Return the arctangent of a number from 0 to 1, from the series for a quarter of the angle."""
    for _ in range(2):
        x = x / (1 + math.sqrt(1 + x * x))
    square, series = x * x, 0.0
    for one in _ARCTANGENT:
        series = one - series * square
    return 4 * x * series


@jit
def share(amount, part):
    """Return `part` * 2^-30 of an amount, rounded down; exact for amounts of up to 62 bits."""
    rest = amount & ((1 << BITS) - 1)
    return (amount >> BITS) * part + (rest * part >> BITS)
