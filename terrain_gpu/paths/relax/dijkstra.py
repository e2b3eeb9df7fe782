"""Dijkstra's algorithm within one block: label setting, with a tournament tree over its cells.

This is the classical method (E. W. Dijkstra, "A note on two problems in connexion with graphs",
1959), and the reference for `block.relax_block`: both take and return the same, bit for bit.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ...grid import TILE, BlockGrid
from ...grid.neighbours import COL_STEP, EDGE_OF, ROW_STEP
from ...primitives.tournament import NOBODY, challenge, first, leave, new_tree
from ..cost.edges import edge, infinity_of, join


def new_players(block: tuple[int, int]) -> np.ndarray:
    """Allocate the tournament tree of `dijkstra_block`, over the cells of a padded block."""
    return new_tree((block[0] + 2) * (block[1] + 2))


def players_bytes(blocks: BlockGrid) -> int:
    """Return the bytes of `new_players` for the largest block."""
    return 2 * 8 * blocks.largest(1)


@jit
def dijkstra_block(
    cost,
    heights,
    frictions,
    absent,
    lengths,
    options,
    distances,
    keys,
    whole,
    limit,
    guard,
    tree,
    sides,
):
    """Settle the pending cells of a block, nearest first, up to a distance of `limit`.

    Parameters
    ----------
    tree
        From `new_players`; it must be empty, and is empty on return.
    cost, heights, frictions, absent, lengths, options, distances, keys, whole, limit, guard, sides
        As for `block.relax_block`.

    Returns
    -------
    least, visits, passes, overflow
        As from `block.relax_block`. Visits count settled cells divided by the cells of a tile,
        rounded up; passes is 0.
    """
    infinity = infinity_of(distances)
    height, width = distances.shape
    flat = distances.reshape(height * width)
    _enter(tree, flat, keys, whole, height, width)
    settled = 0
    overflow = False
    cell = first(tree)
    while cell != NOBODY and flat[cell] <= limit:
        overflow = flat[cell] > guard
        if overflow:
            break
        # Cells at equal distance may be settled in any order, so keys serve as ids.
        leave(tree, flat, flat, cell)
        settled += 1
        r, c = cell // width, cell % width
        for k in range(8):
            # (y, x) is the cell of which this cell is neighbour k.
            y, x = r - ROW_STEP[k], c - COL_STEP[k]
            if not (0 < y < height - 1 and 0 < x < width - 1):
                continue
            w = step(cost, heights, frictions, absent, lengths, options, y, x, k, distances)
            new = join(cost, flat[cell], w)
            if new < distances[y, x]:
                distances[y, x] = new
                challenge(tree, flat, flat, y * width + x)
                _tell(sides, y, x, height, width, new)
        cell = first(tree)
    least = flat[cell] if cell != NOBODY else infinity
    while cell != NOBODY:
        leave(tree, flat, flat, cell)
        cell = first(tree)
    return least, (settled + TILE * TILE - 1) // (TILE * TILE), 0, overflow


@register_jitable
def _enter(tree, flat, keys, whole, height, width):
    """Enter the pending cells of tiles: their own cells where `whole`, and the block's halo."""
    infinity = infinity_of(flat)
    down, across = keys.shape
    for i in range(down):
        for j in range(across):
            if keys[i, j] == infinity:
                continue
            r0, r1 = i * TILE, (i + 1) * TILE + 1
            c0, c1 = j * TILE, (j + 1) * TILE + 1
            for r in range(r0, r1 + 1):
                outer = r == 0 or r == height - 1
                inner = r0 < r < r1
                for c in range(c0, c1 + 1):
                    mine = whole[i, j] and inner and c0 < c < c1
                    halo = outer or c == 0 or c == width - 1
                    cell = r * width + c
                    if (mine or halo) and flat[cell] < infinity:
                        challenge(tree, flat, flat, cell)
    keys[:] = infinity
    whole[:] = False


@register_jitable
def step(cost, heights, frictions, absent, lengths, options, y, x, k, distances):
    """Cost of the step into padded cell (y, x) from neighbour k, as in `steps.fill_weights`."""
    diagonal, corner_cutting, reverse = options
    infinity = infinity_of(distances)
    if absent[y, x] or (k % 2 == 1 and not diagonal):
        return infinity
    r, c = y + ROW_STEP[k], x + COL_STEP[k]
    if k % 2 == 1 and not corner_cutting and absent[y, c] and absent[r, x]:
        return infinity
    length = lengths[EDGE_OF[k], min(y, r)]
    if reverse:
        y, x, r, c = r, c, y, x
    kind = distances.dtype.type
    a, b = kind(heights[r, c]), kind(heights[y, x])
    fa, fb = kind(frictions[r, c]), kind(frictions[y, x])
    w = kind(edge(cost, a, b, fa, fb, length))
    return w if w <= infinity else infinity


@register_jitable
def _tell(sides, y, x, height, width, value):
    """Lower the values of the sides of the block that a cell lies on."""
    dy = -1 if y == 1 else (1 if y == height - 2 else 0)
    dx = -1 if x == 1 else (1 if x == width - 2 else 0)
    for k in range(8):
        here = (ROW_STEP[k] == dy or ROW_STEP[k] == 0) and (COL_STEP[k] == dx or COL_STEP[k] == 0)
        if here:
            sides[k] = min(sides[k], value)
