"""Z-order (Morton) arithmetic on int64, x (column) in the lowest bit.

The functions work on Python ints and numpy int64 arrays and, after `register_jitable` has been
called, on both inside numba-compiled code. Coordinates are 0 to 2**31 - 1, codes up to 2**62 - 1.
Source: G. M. Morton, *A computer oriented geodetic data base*, IBM, 1966; the masks are the usual
parallel bit spreading (Warren, *Hacker's Delight*, section 7-2).
"""

from functools import cache
from typing import Any

import numpy as np


def spread(v: Any) -> Any:
    """Move bit i of `v` to bit 2 i."""
    v = (v | (v << 16)) & 0x0000FFFF0000FFFF
    v = (v | (v << 8)) & 0x00FF00FF00FF00FF
    v = (v | (v << 4)) & 0x0F0F0F0F0F0F0F0F
    v = (v | (v << 2)) & 0x3333333333333333
    return (v | (v << 1)) & 0x5555555555555555


def squeeze(v: Any) -> Any:
    """Move bit 2 i of `v` to bit i, dropping the odd bits: the inverse of `spread`."""
    v = v & 0x5555555555555555
    v = (v | (v >> 1)) & 0x3333333333333333
    v = (v | (v >> 2)) & 0x0F0F0F0F0F0F0F0F
    v = (v | (v >> 4)) & 0x00FF00FF00FF00FF
    v = (v | (v >> 8)) & 0x0000FFFF0000FFFF
    return (v | (v >> 16)) & 0x00000000FFFFFFFF


def encode(row: Any, col: Any) -> Any:
    """Return the Morton code of (row, col); int64, any shape."""
    return spread(col) | (spread(row) << 1)


def decode_row(code: Any) -> Any:
    """Return the row of a Morton code."""
    return squeeze(code >> 1)


def decode_col(code: Any) -> Any:
    """Return the column of a Morton code."""
    return squeeze(code)


def z_ranks(side: int) -> np.ndarray:
    """Return the Morton code of every (row, col) of a `side` x `side` square; int64."""
    i = np.arange(side, dtype=np.int64)
    return encode(i[:, None], i[None, :])


@cache
def register_jitable() -> None:
    """Let numba-compiled code call these functions; not on import, because numba loads slowly."""
    from numba.extending import register_jitable as register

    for function in (spread, squeeze, encode, decode_row, decode_col):
        register(function)
