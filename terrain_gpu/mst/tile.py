"""The spanning forest of one tile: Boruvka over 64 x 64 cells, in cache and in vector registers.

A round looks at every cell, not at a list of edges: each cell takes the least of its eight edges
that leave its component (straight-line code over arrays, which the compiler vectorises), each
component the least of its cells. Rounds with the rim frozen give the final edges; rounds without
it then give the candidates, the spanning tree of what is left between rim cells.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from ..grid import TILE
from .boruvka import add_weight, compress, edge_key, jit

CELLS = TILE * TILE
PAD = TILE + 1
MANY = CELLS // 16
"""Components of a tile above which they are small: measured, and not critical."""
RING = 4 * TILE - 4
"""Cells on the rim of a tile."""

_STEP = np.array([1, TILE - 1, TILE, TILE + 1], np.uint64)
"""From the lower endpoint to the upper: E, SW, S, SE."""


def new_tile_work(key: np.dtype) -> tuple:
    """Arrays that `tile_forest` works in."""
    return (
        np.empty((4, CELLS + 2 * PAD), key),  # edge keys by direction
        np.full(CELLS + 2 * PAD, CELLS, np.uint32),  # component of each cell
        np.empty(CELLS, np.uint32),  # component before the rim was thawed
        np.empty(CELLS, key),  # least key of a cell, then of a component
        np.empty(CELLS, key),
        np.empty(CELLS, np.int32),  # the edges they belong to: 4 * cell + direction
        np.empty(CELLS, np.int32),
        np.empty(CELLS, np.uint32),  # parent
        np.empty(CELLS, np.uint32),  # active components
        np.empty(CELLS, np.bool_),  # frozen
        (np.empty(CELLS, key), np.empty(CELLS, np.int32)),  # picked edges
    )


@register_jitable
def ring_index(row, col):
    """Number of a rim cell, 0 .. RING - 1: top row, bottom row, left and right column."""
    if row == 0:
        return col
    if row == TILE - 1:
        return TILE + col
    return (2 * TILE if col == 0 else 3 * TILE - 2) + row - 1


@register_jitable
def ring_cell(k):
    """The inverse of `ring_index`: (row, col)."""
    if k < TILE:
        return 0, k
    if k < 2 * TILE:
        return TILE - 1, k - TILE
    if k < 3 * TILE - 2:
        return k - 2 * TILE + 1, 0
    return k - (3 * TILE - 2) + 1, TILE - 1


@jit
def tile_forest(cells, valid, window, low, diagonal, sides, work, mask, sums, mode, out, count):
    """Final edges of a tile into `mask`, candidates into `out`.

    Parameters
    ----------
    cells, valid
        Operands and validity of the block.
    window
        (row0, row1, col0, col1) of the tile in the block.
    low
        See `Weight.low`.
    diagonal
        Whether diagonal neighbours are joined.
    sides
        Whether the tile has neighbours above, below, left, right.
    work
        From `new_tile_work`.
    mask
        uint8 of the block: bit k for the edge in direction k from the cell, its lower endpoint.
    sums, mode
        For `add_weight`.
    out, count
        Candidate edges (keys, ids, us, vs) of the block and their number so far; the ends are rim
        numbers of the tile, the ids those of the block.

    Returns
    -------
    count, picked
        Candidates so far, and final edges of this tile.
    """
    keys, label, ring, least, _, edge, _, parent, active, frozen, picked = work
    row0, _, col0, _ = window
    _fill_keys(cells, valid, window, low, diagonal, keys)
    _freeze_rim(window, sides, frozen)
    for c in range(CELLS):
        label[c + PAD] = c
        parent[c] = c
        active[c] = c
    # In the first round every cell is a component, and its least edge is the component's.
    _least_of_cells(keys, label, least, edge)
    final = _hook(least, edge, label, parent, active, CELLS, frozen, picked, 0)
    roots = _join(parent, active, CELLS, label)
    final, roots = _rounds(work, roots, final)
    for k in range(final):
        e = picked[1][k]
        mask[row0 + (e >> 8), col0 + ((e >> 2) & 63)] |= np.uint8(1 << (e & 3))
        add_weight(sums, picked[0][k], mode)
    for c in range(CELLS):
        ring[c] = label[c + PAD]
        frozen[c] = False
    candidates, _ = _rounds(work, roots, 0)
    for k in range(candidates):
        e = picked[1][k]
        lower = np.uint64(e >> 2)
        u, v = ring[lower], ring[lower + _STEP[e & 3]]
        out[0][count] = picked[0][k]
        cell = (row0 + (e >> 8)) * cells.shape[1] + col0 + ((e >> 2) & 63)
        out[1][count] = 4 * cell + (e & 3)
        out[2][count] = ring_index(u >> 6, u & 63)
        out[3][count] = ring_index(v >> 6, v & 63)
        count += 1
    return count, final


@register_jitable
def _rounds(work, roots, found):
    """Rounds until no component can pick: edges found so far, and components left."""
    keys, label, _, least, best, edge, chosen, parent, active, frozen, picked = work
    while _may_pick(active, roots, frozen):
        _least_of_cells(keys, label, least, edge)
        _least_of_components(least, edge, label, active, roots, best, chosen)
        more = _hook(best, chosen, label, parent, active, roots, frozen, picked, found)
        if more == found:
            break
        found = more
        roots = _join(parent, active, roots, label)
    return found, roots


@register_jitable
def _may_pick(active, roots, frozen):
    """Whether there are two components, and one that is not frozen."""
    for k in range(roots):
        if not frozen[active[k]]:
            return roots > 1
    return False


@register_jitable
def _hook(best, chosen, label, parent, active, roots, frozen, picked, found):
    """Hang every component that may pick on the one across its least edge."""
    top = ~best.dtype.type(0)
    for k in range(roots):
        c = active[k]
        if frozen[c] or best[c] == top:
            continue
        e = chosen[c]
        lower = np.uint64(e >> 2)
        other = label[lower + PAD] ^ label[lower + PAD + _STEP[e & 3]] ^ c
        if c < other and chosen[other] == e and not frozen[other]:
            continue  # both picked it: the smaller stays root
        parent[c] = other
        picked[0][found] = best[c]
        picked[1][found] = e
        found += 1
    return found


@register_jitable
def _join(parent, active, roots, label):
    """Name every cell after the root of its component; keep the roots, return their number."""
    roots = compress(parent, active, roots)
    for c in range(PAD, CELLS + PAD):
        label[c] = parent[label[c]]
    return roots


@register_jitable
def _fill_keys(cells, valid, window, low, diagonal, keys):
    """Keys of all edges inside the tile, by direction; all ones where there is no edge."""
    row0, row1, col0, col1 = window
    width = col1 - col0
    top = ~keys.dtype.type(0)
    keys[:] = top
    for y in range(row0, row1):
        at = PAD + (y - row0) * TILE
        here, good = cells[y, col0:col1], valid[y, col0:col1]
        east = keys[0, at : at + width]
        for x in range(width - 1):
            key = edge_key(here[x], here[x + 1], low)
            east[x] = key if good[x] & good[x + 1] else top
        if y + 1 == row1:
            break
        below, fine = cells[y + 1, col0:col1], valid[y + 1, col0:col1]
        south = keys[2, at : at + width]
        for x in range(width):
            key = edge_key(here[x], below[x], low)
            south[x] = key if good[x] & fine[x] else top
        if not diagonal:
            continue
        south_west, south_east = keys[1, at : at + width], keys[3, at : at + width]
        for x in range(1, width):
            key = edge_key(here[x], below[x - 1], low)
            south_west[x] = key if good[x] & fine[x - 1] else top
        for x in range(width - 1):
            key = edge_key(here[x], below[x + 1], low)
            south_east[x] = key if good[x] & fine[x + 1] else top


@register_jitable
def _freeze_rim(window, sides, frozen):
    """Freeze the cells that have neighbours outside of the tile."""
    height, width = window[1] - window[0], window[3] - window[2]
    frozen[:] = False
    for x in range(width):
        frozen[x] |= sides[0]
        frozen[(height - 1) * TILE + x] |= sides[1]
    for y in range(height):
        frozen[y * TILE] |= sides[2]
        frozen[y * TILE + width - 1] |= sides[3]


@register_jitable
def _least_of_cells(keys, label, least, edge):
    """Least edge of each cell that leaves its component; the tests come in the order of ids."""
    e, sw, s, se = keys[0], keys[1], keys[2], keys[3]
    top = ~keys.dtype.type(0)
    for c in range(CELLS):
        q = c + PAD
        own = label[q]
        key = se[c] if label[c] != own else top
        code = np.int32(4 * -PAD + 3)
        k = s[c + 1] if label[c + 1] != own else top
        code = np.int32(4 * (1 - PAD) + 2) if k < key else code
        key = min(k, key)
        k = sw[c + 2] if label[c + 2] != own else top
        code = np.int32(4 * (2 - PAD) + 1) if k < key else code
        key = min(k, key)
        k = e[c + TILE] if label[c + TILE] != own else top
        code = np.int32(-4) if k < key else code
        key = min(k, key)
        k = e[q] if label[q + 1] != own else top
        code = np.int32(0) if k < key else code
        key = min(k, key)
        k = sw[q] if label[q + TILE - 1] != own else top
        code = np.int32(1) if k < key else code
        key = min(k, key)
        k = s[q] if label[q + TILE] != own else top
        code = np.int32(2) if k < key else code
        key = min(k, key)
        k = se[q] if label[q + PAD] != own else top
        code = np.int32(3) if k < key else code
        least[c] = min(k, key)
        edge[c] = np.int32(4 * c) + code


@register_jitable
def _least_of_components(least, edge, label, active, roots, best, chosen):
    """Least edge of each component.

    While components are small nothing is predictable, so there are no branches; once they are
    large, neighbouring cells mostly share theirs, and runs of them are reduced in registers.
    """
    top = ~least.dtype.type(0)
    for k in range(roots):
        best[active[k]] = top
    if roots > MANY:
        for c in range(CELLS):
            r = label[c + PAD]
            key, e = least[c], edge[c]
            old, was = best[r], chosen[r]
            better = (key < old) | ((key == old) & (e < was))
            best[r] = key if better else old
            chosen[r] = e if better else was
        return
    run = label[PAD]
    key, e = top, np.int32(0)
    for c in range(CELLS + 1):
        r = label[c + PAD]
        if r != run:
            if key < best[run] or (key == best[run] and e < chosen[run]):
                best[run] = key
                chosen[run] = e
            run = r
            key = top
        if c < CELLS:
            better = (least[c] < key) | ((least[c] == key) & (edge[c] < e))
            key = least[c] if better else key
            e = edge[c] if better else e
