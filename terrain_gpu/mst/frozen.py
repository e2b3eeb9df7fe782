"""The method "frozen": Boruvka whose components freeze when they hold a boundary vertex."""

from __future__ import annotations

from typing import Any

import numpy as np

from .block import block_forest as kernel
from .block import new_block_work as new_work
from .merge import merge

__all__ = ["kernel", "merge", "new_work", "solve_block"]


def solve_block(
    cells: np.ndarray,
    valid: np.ndarray,
    low: np.unsignedinteger,
    diagonal: bool,
    open_sides: tuple[bool, bool, bool, bool],
    work: Any,
    mask: np.ndarray,
    sums: np.ndarray,
    mode: int,
) -> tuple[int, tuple[np.ndarray, ...]]:
    """Final edges of a block into `mask`; their number, and the candidates in its own cells."""
    edges, count = kernel(cells, valid, low, diagonal, open_sides, work, mask, sums, mode)
    return int(edges), tuple(a[:count] for a in work[1][0])
