"""How tiles are encoded: names of codecs, their levels, and the size of their results."""

from __future__ import annotations

import numpy as np

NAMES = ("blosc-lz4", "blosc-zstd", "zstd")
ZSTD_LEVEL, BLOSC_LEVEL = 3, 1


def shuffle_of(dtype: np.dtype) -> str:
    """How blosc reorders cells: the bits of integers, the bytes of floats (measured best)."""
    return "shuffle" if dtype.kind == "f" else "bitshuffle"


def most_bytes(tile_bytes: int) -> int:
    """Largest size of an encoded tile in bytes; a multiple of 32."""
    return tile_bytes + tile_bytes // 128 + 64
