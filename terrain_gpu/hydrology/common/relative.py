"""Elevations as float64. Integers too large for it are counted from the lowest elevation."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...errors import InputError
from ...store import Layer
from .weights import extremes, largest_weight

_EXACT = 2**53
"""Up to this absolute value, float64 holds all integers exactly."""


@lru_cache(maxsize=16)
def base_of(heights: Layer) -> int:
    """Return the number to subtract from the cells of a layer: 0, except for large integers.

    Raises
    ------
    InputError
        If the integers span too wide a range.
    """
    if heights.dtype.kind == "f" or heights.dtype.itemsize < 8:
        return 0
    low, high = (int(value) for value in extremes(heights))
    if max(-low, high) <= _EXACT:
        return 0
    if high - low > _EXACT:
        raise InputError(
            f"{heights.path}: elevations from {low} to {high} differ by more than 2**53, the "
            "largest difference that this command computes exactly; divide them first (terrain-gpu "
            "calc), or check the nodata value"
        )
    return low


def as_floats(cells: np.ndarray, base: int) -> np.ndarray:
    """Return cells minus the base, float64."""
    return (cells - cells.dtype.type(base) if base else cells).astype(np.float64)


def restored(levels: np.ndarray, base: int, dtype: np.dtype) -> np.ndarray:
    """Undo `as_floats`: return levels in the data type of the cells."""
    cells = levels.astype(dtype)
    return cells + dtype.type(base) if base else cells


def largest_height(heights: Layer) -> float | int:
    """Return the largest absolute value of an elevation as `as_floats` returns it."""
    base = base_of(heights)
    return extremes(heights)[1] - base if base else largest_weight(heights)
