"""Elevations as float64; integers that it does not hold exactly are counted from the lowest one."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ...errors import InputError
from .weights import extremes, largest_weight

_EXACT = 2**53
"""Up to this size, float64 holds all integers."""


@lru_cache(maxsize=16)
def base_of(heights: Any) -> int:
    """Return what is subtracted from the cells of a layer: 0, but for large integers.

    Raises
    ------
    InputError
        when the range of these is too large, too.
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
    """Return cells less the base, float64."""
    return (cells - cells.dtype.type(base) if base else cells).astype(np.float64)


def restored(levels: np.ndarray, base: int, dtype: np.dtype) -> np.ndarray:
    """Return levels in the type of the cells again."""
    found = levels.astype(dtype)
    return found + dtype.type(base) if base else found


def largest_height(heights: Any) -> float | int:
    """The largest size of a height as `as_floats` has it."""
    base = base_of(heights)
    return extremes(heights)[1] - base if base else largest_weight(heights)
