"""Convert blocks to Z-ordered tiles, and back."""

from __future__ import annotations

import numpy as np

from ..errors import InputError
from ..grid import TILE, Window

ABSENT = -1
"""The slot of a tile whose cells are all fill."""


def untile(tiles: np.ndarray) -> np.ndarray:
    """Convert Z-ordered tiles to a square block."""
    side = TILE << ((len(tiles).bit_length() - 1) // 2)
    block = np.empty((side, side), tiles.dtype)
    np.copyto(split_bits(block), z_view(tiles))
    return block


def split_bits(block: np.ndarray) -> np.ndarray:
    """A (side, side) block as a view with one axis per bit of the tile row and column."""
    bits = (len(block) // TILE).bit_length() - 1
    view = block.reshape(((2,) * bits + (TILE,)) * 2)
    assert np.may_share_memory(view, block)  # splitting axes does not copy
    return view


def z_view(tiles: np.ndarray) -> np.ndarray:
    """Z-ordered tiles as a view that matches `split_bits`: the interleaved bits are separated."""
    bits = (len(tiles).bit_length() - 1) // 2
    axes = (*range(0, 2 * bits, 2), 2 * bits, *range(1, 2 * bits, 2), 2 * bits + 1)
    return tiles.reshape((2,) * (2 * bits) + (TILE, TILE)).transpose(axes)


def part_of(array: np.ndarray, window: Window, part: Window) -> np.ndarray:
    """View of the cells `part` in `array`, which covers `window`."""
    return array[
        part[0] - window[0] : part[1] - window[0], part[2] - window[2] : part[3] - window[2]
    ]


def check_buffer(out: np.ndarray, shape: tuple[int, ...], dtype: np.dtype, expected: str) -> None:
    """Check that a buffer for `expected` has this shape and dtype and is writable.

    Raises
    ------
    InputError
        if not: kernels write by address, and writing to a read-only map would end the process.
    """
    if out.shape != shape or out.dtype != dtype:
        raise InputError(f"buffer of {out.shape} {out.dtype} for {expected}")
    if not out.flags.writeable:
        raise InputError("the buffer is read-only; use a writable one")
