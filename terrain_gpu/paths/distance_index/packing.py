"""Leave out entries that others make superfluous, and pack the rest into few bytes.

A distance between two rim cells is superfluous, if another rim cell lies on a way that is as short.
The distances that are kept give all others: exactly, where costs are integers or are combined by
maximum; else up to rounding. Kept distances are stored as differences, byte by byte, and
compressed. See docs/design/distance-index.md.
"""

from __future__ import annotations

from typing import Any

import numcodecs.zstd
import numpy as np

from ...store.coding import ZSTD_LEVEL
from .packing_kernels import link_ends, mark_kept, pack, spread, unpack
from .rim import entries_of, number_dtype, rim_cells, rim_steps, ways_of
from .tile import Entries


def packed_bytes(side: int, symmetric: bool, dtype: np.dtype) -> int:
    """Bytes of a packed tile before compression: a bit for every distance, and all entries."""
    bits = ways_of(side, symmetric)
    return (bits + 7) // 8 + entries_of(side, symmetric) * dtype.itemsize


class Packer:
    """Packs and unpacks tiles, one at a time, in arrays of its own."""

    def __init__(self, side: int, symmetric: bool, dtype: np.dtype) -> None:
        self.symmetric, self.dtype = symmetric, dtype
        self._count, self._steps, self._numbers = (
            rim_cells(side),
            rim_steps(side),
            number_dtype(side),
        )
        ways, entries = ways_of(side, symmetric), entries_of(side, symmetric)
        self._entries = np.empty(entries, dtype)
        self._words = self._entries.view(f"u{dtype.itemsize}")
        self._values = np.empty(entries, dtype)
        self._square = np.empty((2, self._count, self._count), dtype)
        self._kept = np.empty(ways, bool)
        self._packed = np.empty(packed_bytes(side, symmetric, dtype), np.uint8)

    def pack(self, way: Any, entries: np.ndarray) -> bytes:
        """Compress the entries of a tile, see `rim.entries_of`, without superfluous ones."""
        self._entries[:] = entries
        mark_kept(way, self._entries, self.symmetric, *self._square, self._kept)
        pack(self._words, self._kept, self._packed)
        return numcodecs.zstd.compress(self._packed, ZSTD_LEVEL)

    def entries(self, stored: Any) -> np.ndarray:
        """The entries of a compressed tile, infinity where they were left out; reused.

        Raises
        ------
        ValueError
            when the bytes are not those of a tile.
        """
        self._unpack(stored)
        spread(self._values, self._kept, self._entries)
        return self._entries

    def links(self, stored: Any) -> Entries:
        """The entries of a compressed tile, for `tile`: one tile of a block of one.

        Raises
        ------
        ValueError
            when the bytes are not those of a tile.
        """
        found = self._unpack(stored)
        count = found * (1 + self.symmetric)
        ends = np.empty((1, self._count + 1), np.int64)
        others, ways = np.empty(count, self._numbers), np.empty(count, self.dtype)
        link_ends(self._values, self._kept, self.symmetric, ends[0], others, ways)
        return Entries(ends, others, ways, self._values[None, found : found + self._steps].copy())

    def _unpack(self, stored: Any) -> int:
        try:
            numcodecs.zstd.decompress(stored, self._packed)
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"a tile does not decompress: {error}") from None
        values = self._values.view(self._words.dtype)
        return int(unpack(self._packed, self._kept, self._steps, values))
