"""Convert blocks to Z-ordered tiles, and back."""

from __future__ import annotations

import numpy as np

from ..grid import TILE


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
    assert np.may_share_memory(view, block)  # splitting axes needs no copy
    return view


def z_view(tiles: np.ndarray) -> np.ndarray:
    """Z-ordered tiles as a view that matches `split_bits`: the interleaved bits are separated."""
    bits = (len(tiles).bit_length() - 1) // 2
    axes = (*range(0, 2 * bits, 2), 2 * bits, *range(1, 2 * bits, 2), 2 * bits + 1)
    return tiles.reshape((2,) * (2 * bits) + (TILE, TILE)).transpose(axes)
