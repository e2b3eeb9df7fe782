"""Decode the tiles of a shard, together if possible, and arrange them as cells of a window."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import StoreError
from ..grid import TILE, Window
from .checksums import crc32c
from .codecs import decode, together
from .shard import Shard
from .tiles import ABSENT, split_bits, z_view

BATCH = 1 << 20
"""Number of bytes of encoded tiles that a thread reads and decodes at once."""


def shards_at_once(compress: str | None) -> Any:
    """The module `shard_kernel`, which reads a shard in one call; None where it cannot be used.

    Like `together`, it is used only if numba is loaded.
    """
    if "numba" not in sys.modules:
        return None
    from . import shard_kernel

    return shard_kernel if shard_kernel.can(compress) else None


def decode_tiles(
    shard: Shard,
    compress: str | None,
    ranks: np.ndarray,
    tiles: np.ndarray,
    slots: np.ndarray,
    buffer: Callable[[int], np.ndarray],
) -> int | None:
    """Check and decode the tiles with these `ranks` into the `slots` of `tiles`.

    Parameters
    ----------
    buffer
        Returns a buffer of this number of bytes, at most `BATCH`.

    Returns
    -------
    int or None
        The rank of a tile that differs from its checksum; the other tiles are then not decoded.

    Raises
    ------
    StoreError
        when a tile does not decode.
    """
    kernels = together(compress) if shard.source.mapped else None
    if kernels is None:
        for rank, slot, stored in zip(ranks, slots, shard.tiles(ranks), strict=True):
            if shard.sums is not None and crc32c(stored) != shard.sums[rank]:
                return int(rank)
            _decode_one(shard, compress, stored, tiles[slot])
        return None
    room = buffer(min(BATCH, int(shard.lengths[ranks].sum())))
    for some, data, starts, lengths in shard.batches(ranks, room):
        if shard.sums is not None:
            wrong = kernels.crc_of_parts(data, starts, lengths) != shard.sums[ranks[some]]
            if wrong.any():
                return int(ranks[some[np.argmax(wrong)]])
        n = 0
        while n < some.size:
            rest = starts[n:], lengths[n:], tiles, slots[some[n:]]
            n += kernels.decode_tiles(compress, data, *rest)
            if n < some.size:
                stored = data[starts[n] : starts[n] + lengths[n]]
                _decode_one(shard, compress, stored, tiles[slots[some[n]]])
                n += 1
    return None


def _decode_one(shard: Shard, compress: str | None, stored: np.ndarray, out: np.ndarray) -> None:
    try:
        decode(compress, stored, out)
    except ValueError as error:
        raise StoreError(f"{shard.path}: a tile {error}; copy or convert the layer again") from None


def arrange(
    tiles: np.ndarray,
    slots: np.ndarray,
    ranks: np.ndarray,
    inner: Window,
    out: np.ndarray,
    fill: np.ndarray,
) -> None:
    """Copy the cells `inner` of a block from the slots of its tiles.

    Parameters
    ----------
    slots
        Slot for each tile row and column of the window; `ABSENT` for tiles that are all `fill`.
    ranks
        Ranks of all tiles of a block.
    """
    if "numba" in sys.modules and out.strides[1] == out.itemsize:  # a kernel, without the lock
        from .shard_kernel import place

        place(tiles, slots, inner, out, fill)
        return
    if out.shape == (len(ranks) * TILE,) * 2 and np.array_equal(slots, ranks):
        np.copyto(split_bits(out), z_view(tiles[: slots.size]))
        return
    # One tile row at a time, for any window and with absent tiles.
    row0, row1, col0, col1 = inner
    skip = col0 % TILE
    for k, across in enumerate(slots):
        top = (row0 // TILE + k) * TILE
        lo, hi = max(row0, top), min(row1, top + TILE)
        strip = tiles[across, lo - top : hi - top]
        if (across == ABSENT).any():
            strip[across == ABSENT] = fill
        line = strip.transpose(1, 0, 2).reshape(hi - lo, -1)
        out[lo - row0 : hi - row0] = line[:, skip : skip + col1 - col0]
