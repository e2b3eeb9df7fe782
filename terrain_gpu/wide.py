"""Keys of two words, for orders that need more than 64 bits; `less` compares keys of any type.

Such a key is a complex number whose parts are whole numbers that a float64 holds exactly: of 95
bits the upper 47 and the lower 48. Arrays, plans and files need nothing new for it, and numpy
orders complex numbers as keys must be: by the real part, then by the imaginary one.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba.extending import overload, register_jitable

DTYPE = np.dtype(np.complex128)

_LOW = 31
"""Bits of the lower word."""
_SHARED = 17
"""Bits of the upper word in the imaginary part."""


@register_jitable
def two_words(high: Any, low: Any) -> Any:
    """Join an upper word of 64 bits and a lower one of 31; both uint64, numbers or arrays."""
    shared = high & np.uint64((1 << _SHARED) - 1)
    first = np.float64(high >> np.uint64(_SHARED))
    return first + 1j * np.float64((shared << np.uint64(_LOW)) | low)


@register_jitable
def high_word(key: Any) -> Any:
    """Return the upper word, uint64."""
    upper = np.uint64(key.real) << np.uint64(_SHARED)
    return upper | (np.uint64(key.imag) >> np.uint64(_LOW))


def words_of(keys: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return keys as unsigned integers, the lower word of two first."""
    if keys.dtype.kind != "c":
        return (keys,)
    return keys.imag.astype(np.uint64), keys.real.astype(np.uint64)


def less(a: Any, b: Any) -> Any:
    """Whether a key comes before another."""
    return a < b


@overload(less, inline="always")
def _less(a, b):
    if isinstance(a, numba.types.Complex):
        return lambda a, b: a.real < b.real or (a.real == b.real and a.imag < b.imag)
    return lambda a, b: a < b


def difference(a: Any, b: Any) -> Any:
    """Return a - b as the nearest float64; the difference of integers is exact before."""
    raise RuntimeError("for compiled code only")


def relative(a: Any, b: Any) -> Any:
    """Return a as float64; of integers of 64 bits a - b, of which float64 holds more."""
    raise RuntimeError("for compiled code only")


@overload(relative)
def _relative(a, b):
    if isinstance(a, numba.types.Integer) and a.bitwidth == 64:
        return lambda a, b: difference(a, b) + 0.0
    return lambda a, b: np.float64(a)


def scaled_difference(a: Any, b: Any, by: Any) -> Any:
    """The same times a power of two, of floats also where the difference would be infinite."""
    raise RuntimeError("for compiled code only")


@overload(scaled_difference)
def _scaled_difference(a, b, by):
    if isinstance(a, numba.types.Integer):
        return lambda a, b, by: difference(a, b) * by
    return lambda a, b, by: np.float64(a) * by - np.float64(b) * by


@overload(difference)
def _difference(a, b):
    if isinstance(a, numba.types.Integer) and a.bitwidth == 64:

        def exact(a, b):
            x, y = np.uint64(a), np.uint64(b)
            if a >= b:
                return np.float64(x - y)
            return -np.float64(y - x)

        return exact
    return lambda a, b: np.float64(a) - np.float64(b)
