"""What tells cells that were changed from those that were not: their number and a digest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Changes(NamedTuple):
    """Cells that hold something else than before.

    Attributes
    ----------
    cells
        Their number.
    digest
        Sum of a 64-bit mixture of the id and the content of each, so that blocks add up in any
        order.
    """

    cells: int = 0
    digest: int = 0

    def plus(self, other: Changes) -> Changes:
        """Those of two sets of cells without a common one."""
        return Changes(self.cells + other.cells, (self.digest + other.digest) % 2**64)


def changes(ids: np.ndarray, before: np.ndarray, after: np.ndarray) -> Changes:
    """Compare cells bit for bit.

    Parameters
    ----------
    ids
        int64, of the cells.
    before, after
        Their contents, of one type.
    """
    word = f"u{after.dtype.itemsize}"
    differs = before.view(word) != after.view(word)
    content = after.view(word)[differs].astype(np.uint64)
    mixed = _mixed(_mixed(ids[differs].astype(np.uint64)) + content)
    return Changes(len(mixed), int(mixed.sum(dtype=np.uint64)))


def _mixed(words: np.ndarray) -> np.ndarray:
    """A bijection in which every bit of a word depends on all: the one of SplitMix64.

    G. L. Steele, D. Lea, C. H. Flood (2014), Fast splittable pseudorandom number generators.
    """
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
