"""The number and digest of changed cells: `Changes`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Changes(NamedTuple):
    """The cells whose values have changed.

    Attributes
    ----------
    cells
        Their number.
    digest
        Sum of 64-bit hashes of the id and value of each, so that blocks can be added in any order.
    """

    cells: int = 0
    digest: int = 0

    def plus(self, other: Changes) -> Changes:
        """Return the changes in the union of two disjoint sets of cells."""
        return Changes(self.cells + other.cells, (self.digest + other.digest) % 2**64)


def changes(ids: np.ndarray, before: np.ndarray, after: np.ndarray) -> Changes:
    """Compare cells bit for bit.

    Parameters
    ----------
    ids
        int64, ids of the cells.
    before, after
        Their values, of the same type.
    """
    word = f"u{after.dtype.itemsize}"
    differs = before.view(word) != after.view(word)
    content = after.view(word)[differs].astype(np.uint64)
    mixed = _mixed(_mixed(ids[differs].astype(np.uint64)) + content)
    return Changes(len(mixed), int(mixed.sum(dtype=np.uint64)))


def _mixed(words: np.ndarray) -> np.ndarray:
    """Apply a bijection in which every bit of a word depends on all bits, that of SplitMix64.

    G. L. Steele, D. Lea, C. H. Flood (2014), Fast splittable pseudorandom number generators.
    """
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
