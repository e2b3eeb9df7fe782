"""Cells and tentative distances of one block, as relaxation holds them."""

from __future__ import annotations

import mmap
import weakref
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

_SPARE = 2
_spare: defaultdict[int, list[mmap.mmap]] = defaultdict(list)


def pages(shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """An array of its own pages, not set.

    The allocator keeps what numpy frees, in pieces: with fields coming and going that is more than
    the fields. Some pages are kept for the next array of their size, as the system zeroes new ones.
    """
    size = shape[0] * shape[1] * np.dtype(dtype).itemsize
    try:
        whole = _spare[size].pop()
    except IndexError:
        whole = mmap.mmap(-1, size)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            # A tile's rows lie in as many small pages.
            whole.madvise(mmap.MADV_HUGEPAGE)
    flat = np.frombuffer(whole, dtype)
    weakref.finalize(flat, _put_aside, size, whole)
    return flat.reshape(shape)


def _put_aside(size: int, whole: mmap.mmap) -> None:
    if len(_spare[size]) < _SPARE:
        _spare[size].append(whole)


def forget_spare_pages() -> None:
    """Give back the pages that are kept."""
    _spare.clear()


@dataclass
class Field:
    """Cells of a block, padded by one and up to whole tiles, and their distances.

    Attributes
    ----------
    heights, frictions
        float64, or the unsigned type of integer distances; absent cells hold harmless numbers.
    absent
        Cells that are no vertices.
    lengths
        See `fill_weights`.
    distances
        Tentative until phase 2 ends.
    """

    heights: np.ndarray
    frictions: np.ndarray
    absent: np.ndarray
    lengths: np.ndarray
    distances: np.ndarray
    dirty: bool = False
