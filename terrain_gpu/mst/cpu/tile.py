"""The spanning forest of one tile: Boruvka over 64 x 64 cells, in cache and in vector registers.

A round looks at every cell, not at a list of edges: each cell takes the least of its eight edges
that leave its component (straight-line code over arrays, which the compiler vectorises), each
component the least of its cells. Rounds with the rim frozen give the final edges; rounds without
it then give the candidates, the spanning tree of what is left between rim cells.
"""

from __future__ import annotations

import numpy as np
from numba.extending import overload, register_jitable

from ...compiled import jit
from ...grid import TILE
from ..weights import Weight
from .boruvka import add_weight, compress, edge_key

CELLS = TILE * TILE
PAD = TILE + 1
MANY = CELLS // 16
"""Components of a tile above which they are small: measured, and not critical."""
RING = 4 * TILE - 4
"""Cells on the rim of a tile."""

_STEP = np.array([1, TILE - 1, TILE, TILE + 1], np.uint64)
"""From the lower endpoint to the upper: E, SW, S, SE."""


def new_tile_work(weight: Weight) -> tuple:
    """Arrays that `tile_forest` works in."""
    word = _word_dtype(weight)
    arrays = (word,) if word else (weight.key_dtype, np.int32)

    def choices() -> tuple:
        return tuple(np.empty(CELLS, dtype) for dtype in arrays)

    return (
        np.empty((4, CELLS + 2 * PAD), arrays[0]),  # edges by direction: words or keys
        np.full(CELLS + 2 * PAD, CELLS, np.uint32),  # component of each cell
        np.empty(CELLS, np.uint32),  # component before the rim was thawed
        choices(),  # least edge of each cell
        choices(),  # and of each component
        np.empty(CELLS, np.uint32),  # parent
        np.empty(CELLS, np.uint32),  # active components
        np.empty(CELLS, np.bool_),  # frozen
        choices(),  # picked edges
    )


# -- choices -----------------------------------------------------------------------------
# An edge of a tile has a number of 14 bits, 4 * cell + direction. Where its key leaves room, key
# and number are one word, and the total order is that of words: a tuple (words,). Keys of 64 bits
# are kept beside the numbers: a tuple (keys, numbers). The functions that differ are overloaded.

NUMBER = 14


def _word_dtype(weight: Weight) -> np.dtype | None:
    """Unsigned integer for key and number; None when no type is wide enough."""
    bits = 8 * weight.dtype.itemsize + NUMBER
    return np.dtype(np.uint32 if bits <= 32 else np.uint64) if bits <= 64 else None


def _key_and_number(choices, k):
    """Key and number of choice `k`: all ones and any number where there is no edge."""


@overload(_key_and_number, inline="always")
def _key_and_number_of(choices, k):
    last = len(choices) - 1

    def unpack(choices, k):
        key = choices[0][k] if last else choices[0][k] >> NUMBER
        # Masked also when it stands alone: without an edge it was never set.
        return key, np.int64(choices[last][k]) & ((1 << NUMBER) - 1)

    return unpack


def _is_edge(choices, k):
    """Whether choice `k` is an edge."""


@overload(_is_edge, inline="always")
def _is_edge_of(choices, k):
    return lambda choices, k: choices[0][k] != ~choices[0].dtype.type(0)


def _same(choices, k, others, m):
    """Whether two choices are the same edge."""


@overload(_same, inline="always")
def _same_of(choices, k, others, m):
    last = len(choices) - 1  # words or numbers: both name the edge
    return lambda choices, k, others, m: choices[last][k] == others[last][m]


def _copy(choices, k, into, m):
    """Copy choice `k`."""


@overload(_copy, inline="always")
def _copy_of(choices, k, into, m):
    if len(choices) == 1:

        def copy(choices, k, into, m):
            into[0][m] = choices[0][k]

    else:

        def copy(choices, k, into, m):
            into[0][m] = choices[0][k]
            into[1][m] = choices[1][k]

    return copy


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
    edges, label, ring, least, _, parent, active, frozen, picked = work
    row0, _, col0, _ = window
    _fill(cells, valid, window, low, diagonal, edges, least)
    _freeze_rim(window, sides, frozen)
    for c in range(CELLS):
        label[c + PAD] = c
        parent[c] = c
        active[c] = c
    # In the first round every cell is a component, and its least edge is the component's.
    _least_of_cells(edges, label, least)
    final = _hook(least, label, parent, active, CELLS, frozen, picked, 0)
    roots = _join(parent, active, CELLS, label)
    final, roots = _rounds(work, roots, final)
    key_type = out[0].dtype.type
    for k in range(final):
        key, e = _key_and_number(picked, k)
        mask[row0 + (e >> 8), col0 + ((e >> 2) & 63)] |= np.uint8(1 << (e & 3))
        add_weight(sums, key_type(key), mode)
    for c in range(CELLS):
        ring[c] = label[c + PAD]
        frozen[c] = False
    candidates, _ = _rounds(work, roots, 0)
    for k in range(candidates):
        key, e = _key_and_number(picked, k)
        u, v = ring[e >> 2], ring[(e >> 2) + np.int64(_STEP[e & 3])]
        out[0][count] = key
        cell = (row0 + (e >> 8)) * cells.shape[1] + col0 + ((e >> 2) & 63)
        out[1][count] = 4 * cell + (e & 3)
        out[2][count] = ring_index(u >> 6, u & 63)
        out[3][count] = ring_index(v >> 6, v & 63)
        count += 1
    return count, final


@register_jitable
def _rounds(work, roots, found):
    """Rounds until no component can pick: edges found so far, and components left."""
    edges, label, _, least, best, parent, active, frozen, picked = work
    while _may_pick(active, roots, frozen):
        _least_of_cells(edges, label, least)
        _least_of_components(least, label, active, roots, best)
        more = _hook(best, label, parent, active, roots, frozen, picked, found)
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
def _hook(best, label, parent, active, roots, frozen, picked, found):
    """Hang every component that may pick on the one across its least edge.

    Whether it does is hard to predict, so there are no branches.
    """
    for k in range(roots):
        c = active[k]
        _, e = _key_and_number(best, c)
        lower = np.uint64(e >> 2)
        other = label[lower + PAD] ^ label[lower + PAD + _STEP[e & 3]] ^ c
        stays = frozen[c] | (not _is_edge(best, c))
        other = c if stays else other
        # Both may have picked it: then the smaller stays root.
        stays |= (c < other) & _same(best, c, best, other) & (not frozen[other])
        parent[c] = c if stays else other
        _copy(best, c, picked, found)
        found += 1 - np.int64(stays)
    return found


@register_jitable
def _join(parent, active, roots, label):
    """Name every cell after the root of its component; keep the roots, return their number."""
    roots = compress(parent, active, roots)
    for c in range(PAD, CELLS + PAD):
        label[c] = parent[label[c]]
    return roots


def _word(key, number, choices, edges):
    """An edge as `edges` holds it: key and number in one word, or the key."""


@overload(_word, inline="always")
def _word_of(key, number, choices, edges):
    if len(choices) == 2:
        return lambda key, number, choices, edges: key

    def pack(key, number, choices, edges):
        return (edges.dtype.type(key) << edges.dtype.type(NUMBER)) | edges.dtype.type(number)

    return pack


@register_jitable
def _fill(cells, valid, window, low, diagonal, edges, choices):
    """All edges inside the tile, by direction; all ones where there is no edge."""
    row0, row1, col0, col1 = window
    width = col1 - col0
    top = ~edges.dtype.type(0)
    edges[:] = top
    for y in range(row0, row1):
        first = (y - row0) * TILE
        at = PAD + first
        here, good = cells[y, col0:col1], valid[y, col0:col1]
        east = edges[0, at : at + width]
        for x in range(width - 1):
            key = edge_key(here[x], here[x + 1], low)
            word = _word(key, 4 * (first + x), choices, edges)
            east[x] = word if good[x] & good[x + 1] else top
        if y + 1 == row1:
            break
        below, fine = cells[y + 1, col0:col1], valid[y + 1, col0:col1]
        south = edges[2, at : at + width]
        for x in range(width):
            key = edge_key(here[x], below[x], low)
            word = _word(key, 4 * (first + x) + 2, choices, edges)
            south[x] = word if good[x] & fine[x] else top
        if not diagonal:
            continue
        south_west, south_east = edges[1, at : at + width], edges[3, at : at + width]
        for x in range(1, width):
            key = edge_key(here[x], below[x - 1], low)
            word = _word(key, 4 * (first + x) + 1, choices, edges)
            south_west[x] = word if good[x] & fine[x - 1] else top
        for x in range(width - 1):
            key = edge_key(here[x], below[x + 1], low)
            word = _word(key, 4 * (first + x) + 3, choices, edges)
            south_east[x] = word if good[x] & fine[x + 1] else top


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


def _least_of_cells(edges, label, least):
    """Least edge of each cell that leaves its component."""


@overload(_least_of_cells)
def _least_of_cells_by(edges, label, least):
    return _least_words if len(least) == 1 else _least_keys


def _least_words(edges, label, least):
    e, sw, s, se = edges[0], edges[1], edges[2], edges[3]
    top = ~edges.dtype.type(0)
    for c in range(CELLS):
        q = c + PAD
        own = label[q]
        word = se[c] if label[c] != own else top
        word = min(word, s[c + 1] if label[c + 1] != own else top)
        word = min(word, sw[c + 2] if label[c + 2] != own else top)
        word = min(word, e[c + TILE] if label[c + TILE] != own else top)
        word = min(word, e[q] if label[q + 1] != own else top)
        word = min(word, sw[q] if label[q + TILE - 1] != own else top)
        word = min(word, s[q] if label[q + TILE] != own else top)
        word = min(word, se[q] if label[q + PAD] != own else top)
        least[0][c] = word


def _least_keys(edges, label, least):
    # The tests come in the order of numbers.
    e, sw, s, se = edges[0], edges[1], edges[2], edges[3]
    top = ~edges.dtype.type(0)
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
        least[0][c] = min(k, key)
        least[1][c] = np.int32(4 * c) + code


def _least_of_components(least, label, active, roots, best):
    """Least edge of each component."""


@overload(_least_of_components)
def _least_of_components_by(least, label, active, roots, best):
    return _reduce_words if len(least) == 1 else _reduce_keys


def _reduce_words(least, label, active, roots, best):
    # While components are small nothing is predictable, so there are no branches; once they are
    # large, neighbouring cells mostly share theirs, and runs of them are reduced in a register.
    words, found = least[0], best[0]
    top = ~words.dtype.type(0)
    for k in range(roots):
        found[active[k]] = top
    if roots > MANY:
        for c in range(CELLS):
            r = label[c + PAD]
            found[r] = min(found[r], words[c])
        return
    run, word = label[PAD], top
    for c in range(CELLS):
        r = label[c + PAD]
        if r != run:
            found[run] = min(found[run], word)
            run, word = r, top
        word = min(word, words[c])
    found[run] = min(found[run], word)


def _reduce_keys(least, label, active, roots, best):
    keys, numbers = least
    top = ~keys.dtype.type(0)
    for k in range(roots):
        best[0][active[k]] = top
    for c in range(CELLS):
        r = label[c + PAD]
        key, e = keys[c], numbers[c]
        old, was = best[0][r], best[1][r]
        better = (key < old) | ((key == old) & (e < was))
        best[0][r] = key if better else old
        best[1][r] = e if better else was
