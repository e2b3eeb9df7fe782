"""Hashes of 64-bit words, whose sums show whether two sets are equal."""

from __future__ import annotations

import numpy as np

SEEDS = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03
"""Seeds; hashes with different seeds are practically independent."""


def mixed(seed: int, *columns: np.ndarray) -> np.ndarray:
    """Return a uint64 hash for each row of columns of uint64."""
    found = np.zeros(1, np.uint64)
    for words in columns:
        found = _mix(found + words if words is not columns[0] else words, seed)
    return found


def _mix(words: np.ndarray, seed: int) -> np.ndarray:
    """The finaliser of splitmix64 (G. Steele, D. Lea, C. Flood 2014)."""
    words = words + np.uint64(seed)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: np.ndarray = words ^ (words >> np.uint64(31))
    return found
