"""The continuous metric: paths may leave a cell in any direction, not only towards a neighbour.

A path reaches a cell straight from a point between two neighbours that touch. There, distance and
friction are interpolated from both, so with a share t of the diagonal neighbour d, and 1 - t of the
one beside it, a, the cell's distance is at most

    (1 - t) (T(a) + w(a) L / L(a)) + t (T(d) + w(d) L / L(d))

where L is the length from the point, and w and L(.) are cost and length of the step from each. This
is |grad T| = friction on triangles (J. N. Tsitsiklis 1995, "Efficient algorithms for globally
optimal trajectories"; F. Bornemann and C. Rasch 2006). The least value over all t is not monotone
once it is rounded. So t takes fixed values (`SHARES`): products with constants, sums, minima and
maxima are monotone in floating point, too, and relaxation in any order ends at the same bits. A
distance is also at least the next float above those it comes from. So it depends on lesser ones
only, and the equations of all cells have one solution.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SHARES = tuple(k / 8 for k in range(1, 8))
"""Shares of the diagonal neighbour; with both neighbours, 17 directions in a quarter of a turn."""

NEXT = 1 + 2.0**-52
"""Times a normal number: a greater one, the next or the one after it."""

LEAST_FRICTION = 1e-30
"""Frictions below it are refused: where they are 0, distances have no direction."""


class Continuous(NamedTuple):
    """Options of kernels for the continuous metric: a type, so that others are compiled without."""

    diagonal: bool
    corner_cutting: bool
    reverse: bool


class Front(NamedTuple):
    """How distances combine: `edges.Sum` with points between neighbours.

    Attributes
    ----------
    ratios
        float64 (8, TILE, len(SHARES)). For each row of a tile, the length from the point of a share
        over that of the step from the neighbour beside, and over that of the diagonal one: of the
        triangles with the cell above, with the cell below, and with a cell at the side and one
        diagonally above, or below.
    """

    ratios: np.ndarray


def ratios_of(lengths: np.ndarray) -> np.ndarray:
    """`Front.ratios` of all rows, float64 (8 * len(SHARES), rows), for a GPU.

    Parameters
    ----------
    lengths
        float64 (4, rows), see `lengths.step_lengths`. The first and the last row are around.
    """
    found = np.ones((4, 2, len(SHARES), lengths.shape[1]))
    own = slice(1, -1)
    for kind in range(4):
        upward, vertical = kind % 2 == 0, kind < 2
        edge, other = (slice(-2), slice(-2)) if upward else (own, slice(2, None))
        along, down, diagonal = lengths[0, own], lengths[2, edge], lengths[3, edge]
        beside, across = (down, lengths[0, other]) if vertical else (along, down)
        for k, share in enumerate(SHARES):
            rest = 1.0 - share
            square = rest * (beside * beside) + share * (diagonal * diagonal)
            length = np.sqrt(square - share * rest * (across * across))
            with np.errstate(divide="ignore", invalid="ignore"):  # a step along a pole has none
                found[kind, :, k, own] = length / beside, length / diagonal
    return found.reshape(-1, lengths.shape[1])
