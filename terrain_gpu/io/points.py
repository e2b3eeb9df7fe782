"""Points and cells passed by callers, as arrays of numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain
from numbers import Real

import numpy as np

from ..arguments import described
from ..errors import InputError


def numbers_of(
    points: Iterable[Sequence[float]], kind: str, names: str
) -> tuple[np.ndarray, np.ndarray]:
    """Convert points to pairs, shape (n, 2), and start costs, float64."""
    if (
        isinstance(points, np.ndarray)
        and points.dtype.kind in "iuf"
        and points.shape[1:] in ((2,), (3,))
    ):
        points = points.tolist()  # Python's numbers can be converted at once
    try:
        several = list(points)
    except TypeError:
        raise InputError(f"{kind}s {described(points)}: give the {names} of each") from None
    plain = _plain_numbers(several)
    if plain is not None:
        return plain[:, :2], plain[:, 2]
    values = []
    for number, point in enumerate(several, 1):
        try:
            if isinstance(point, str) or not all(isinstance(one, Real) for one in point):
                raise TypeError
            first, second, cost = (*map(float, point), 0.0)[: max(3, len(point))]
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"{kind} {number}: {described(point)} is neither {names} nor {names}, start cost"
            ) from None
        if not (math.isfinite(first) and math.isfinite(second)):
            raise InputError(f"{kind} {number}: {names} {first}, {second} are not finite")
        if not 0 <= cost < math.inf:
            raise InputError(
                f"{kind} {number}: start cost {cost} is negative or not finite; give 0 or more"
            )
        values.append((first, second, cost))
    if not values:
        raise InputError(f"no {kind} given")
    table = np.array(values)
    return table[:, :2], table[:, 2]


def _plain_numbers(points: list[Sequence[float]]) -> np.ndarray | None:
    """Convert valid pairs or triples of Python's numbers at once; None for anything else."""
    if not set(map(type, points)) <= {tuple, list}:
        return None
    if not set(map(type, chain.from_iterable(points))) <= {int, float}:
        return None
    if set(map(len, points)) not in ({2}, {3}):
        return None
    try:
        table = np.array(points, np.float64)
    except OverflowError:
        return None
    table = np.column_stack((table, np.zeros((len(table), 3 - table.shape[1]))))
    return table if np.isfinite(table).all() and (table[:, 2] >= 0).all() else None
