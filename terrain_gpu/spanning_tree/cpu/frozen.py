"""The method "frozen": Boruvka whose components freeze when they hold a boundary vertex."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...grid import ceil_div
from .block import block_forest as kernel
from .block import new_block_work as new_work
from .first_round import SIDE
from .merge import merge
from .tile import RING

WORK_OF_TILE = 3_200_000
"""Bytes of `tile.new_tile_work`, at most."""


def work_bytes(sides: tuple[int, int], key: np.dtype) -> int:
    """Bytes of `new_work`: of a tile, and of the list of edges between tiles."""
    of_list = 17 + (key.itemsize + 32) * (4 + 4 / RING)
    return WORK_OF_TILE + math.ceil(
        ceil_div(sides[0], SIDE) * ceil_div(sides[1], SIDE) * RING * of_list
    )


def levels_per_vertex(key: np.dtype) -> int:
    """Bytes of the largest `merge` and its input, per vertex."""
    return 14 * (key.itemsize + 24)


def most_candidates(rim: int) -> int:
    """Bound on the candidates of a block with `rim` border cells."""
    return rim


__all__ = [
    "kernel",
    "levels_per_vertex",
    "merge",
    "most_candidates",
    "new_work",
    "solve_block",
    "work_bytes",
]


def solve_block(
    cells: np.ndarray,
    valid: np.ndarray,
    rule: np.unsignedinteger | np.ndarray,
    diagonal: bool,
    open_sides: tuple[bool, bool, bool, bool],
    work: Any,
    mask: np.ndarray,
    sums: np.ndarray,
    mode: int,
) -> tuple[int, tuple[np.ndarray, ...]]:
    """Write a block's final edges to `mask`; return their number, and the candidates.

    The candidates' ids and ends refer to the block's own cells.
    """
    edges, count = kernel(cells, valid, rule, diagonal, open_sides, work, mask, sums, mode)
    keys, ids, us, vs = (array[:count] for array in work[1][0])
    return int(edges), (keys, ids, us.astype(np.int64), vs.astype(np.int64))
