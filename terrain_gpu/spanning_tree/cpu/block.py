"""The spanning forest of one block: its tiles, then the edges left between their rims."""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ...grid import ceil_div
from ..weights import Weight
from .first_round import SIDE
from .kruskal import contract, new_list_work
from .seams import separators, vertex
from .tile import RING, new_tile_work, ring_cell, tile_forest


def new_block_work(sides: tuple[int, int], weight: Weight) -> tuple:
    """Allocate the work arrays of `block_forest` for blocks of so many rows and columns."""
    tiles = ceil_div(sides[0], SIDE) * ceil_div(sides[1], SIDE)
    # A tile has fewer candidates than rim cells. 3 separator edges per rim cell and 1 more per
    # corner count each of these edges at least once.
    edges = tiles * (RING + 3 * RING + 4)
    return new_tile_work(weight), new_list_work(tiles * RING, edges, weight.key_dtype)


@jit
def block_forest(cells, valid, rule, diagonal, sides, work, mask, sums, mode):
    """Compute the spanning forest of a block.

    Parameters
    ----------
    cells, valid
        Operands and validity, of one shape.
    rule, mode
        See `Weight`.
    diagonal
        Whether diagonal neighbours are joined.
    sides
        Whether the block has neighbours above, below, left, right.
    work
        From `new_block_work`.
    mask
        uint8, zeroed: receives the final edges, bit k for direction k.
    sums
        Zeroed accumulators of the final edges' weights.

    Returns
    -------
    final, candidates
        Number of final edges and of candidates. The candidates are at the start of ``work[1][0]``:
        keys, ids ``4 * (row * cols + col) + direction`` in the block, and the border cells of the
        block (row * cols + col) at both ends.
    """
    tile_work, list_work = work
    edges, frozen, picked = list_work[0], list_work[3], list_work[4]
    rows, cols = cells.shape
    down, across = (rows + SIDE - 1) // SIDE, (cols + SIDE - 1) // SIDE
    count = np.int64(0)  # always int64, so that `tile_forest` is compiled only once
    final = 0
    for ti in range(down):
        for tj in range(across):
            row, col = ti * SIDE, tj * SIDE
            window = (row, min(row + SIDE, rows), col, min(col + SIDE, cols))
            near = (
                ti > 0 or sides[0],
                ti + 1 < down or sides[1],
                tj > 0 or sides[2],
                tj + 1 < across or sides[3],
            )
            start = count
            count, more = tile_forest(
                cells,
                valid,
                window,
                rule,
                diagonal,
                near,
                tile_work,
                mask,
                sums,
                mode,
                edges,
                count,
            )
            final += more
            first = (ti * across + tj) * RING
            for k in range(start, count):
                edges[2][k] += first
                edges[3][k] += first
    count = separators(cells, valid, rule, diagonal, across, edges, count)
    vertices = down * across * RING
    frozen[:vertices] = False
    for row in range(rows):
        step = 1 if row in (0, rows - 1) else max(cols - 1, 1)
        for col in range(0, cols, step):
            frozen[vertex(row, col, across, rows)] = (
                (row == 0 and sides[0])
                or (row == rows - 1 and sides[1])
                or (col == 0 and sides[2])
                or (col == cols - 1 and sides[3])
            )
    more, candidates = contract(list_work, vertices, count, sums, mode)
    for k in range(more):
        cell = picked[k] >> 2
        mask[cell // cols, cell % cols] |= np.uint8(1 << (picked[k] & 3))
    for k in range(candidates):
        edges[2][k] = _cell(edges[2][k], across, rows, cols)
        edges[3][k] = _cell(edges[3][k], across, rows, cols)
    return final + more, candidates


@register_jitable
def _cell(vertex, across, rows, cols):
    """The inverse of `seams.vertex`: row * cols + col."""
    tile = vertex // RING
    row, col = ring_cell(vertex % RING, rows, cols)
    return ((tile // across) * SIDE + row) * cols + (tile % across) * SIDE + col
