"""Cells and tentative distances of one block during relaxation."""

from __future__ import annotations

import mmap
import weakref
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

_SPARE = 2
_spare: defaultdict[int, list[mmap.mmap]] = defaultdict(list)


def pages(shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """Allocate an uninitialised array in pages of its own.

    The allocator fragments what numpy frees: with fields coming and going it would keep more memory
    than the fields need. A few mappings are kept for reuse, because the system zeroes new pages. A
    new one takes the place of kept ones, so all are never more than the fields in use once were.
    """
    size = shape[0] * shape[1] * np.dtype(dtype).itemsize
    try:
        whole = _spare[size].pop()
    except IndexError:
        _forget(size)
        # Private: the system may have no large pages for shared memory.
        whole = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            # With small pages, every row of a tile would lie in a different one.
            whole.madvise(mmap.MADV_HUGEPAGE)
    flat = np.frombuffer(whole, dtype)
    weakref.finalize(flat, _put_aside, size, whole)
    return flat.reshape(shape)


def _put_aside(size: int, whole: mmap.mmap) -> None:
    if len(_spare[size]) < _SPARE:
        _spare[size].append(whole)


def _forget(size: int) -> None:
    """Return kept pages of so many bytes to the system, if there are as many."""
    for other in list(_spare):
        while size > 0 and _spare[other]:
            with suppress(IndexError):  # another thread may have taken the last one
                _spare[other].pop()
                size -= other


def forget_spare_pages() -> None:
    """Return the pages kept for reuse to the system."""
    _spare.clear()


@dataclass
class Field:
    """Cells of a block, padded by one and to whole tiles, and their distances.

    Attributes
    ----------
    heights, frictions
        Floats, or unsigned integers, see `terrain.held`; absent cells hold arbitrary finite
        numbers.
    absent
        Cells that are not vertices of the graph.
    lengths
        See `fill_weights`.
    distances
        Tentative distances until phase 2 ends.
    """

    heights: np.ndarray
    frictions: np.ndarray
    absent: np.ndarray
    lengths: np.ndarray
    distances: np.ndarray
    dirty: bool = False
