"""The spanning forest of one tile: Boruvka over 64 x 64 cells, in cache and in vector registers.

A round scans cells, not a list of edges: each cell finds the least of its eight edges that leave
its component (straight-line code over arrays, which the compiler vectorises), each component the
least of its cells. Rounds with a frozen rim give the final edges; rounds without frozen cells then
give the candidates, the spanning tree of the edges left between rim cells.
"""

from __future__ import annotations

import numpy as np
from numba.extending import overload, register_jitable

from ...compiled import jit
from ...grid import TILE
from ..weights import Weight
from .boruvka import add_weight, compress, edge_key, rule_at

CELLS = TILE * TILE
PAD = TILE + 1
RING = 4 * TILE - 4
"""Cells on the rim of a tile."""

_STEP = np.array([1, TILE - 1, TILE, TILE + 1], np.uint64)
"""Steps from the lower endpoint to the upper: E, SW, S, SE."""


def new_tile_work(weight: Weight) -> tuple:
    """Allocate the work arrays of `tile_forest`."""
    word = _word_dtype(weight)
    arrays = (word,) if word else (weight.key_dtype, np.int32)

    def choices() -> tuple:
        return tuple(np.empty(CELLS, dtype) for dtype in arrays)

    return (
        np.empty((4, CELLS + 2 * PAD), arrays[0]),  # edges by direction: words or keys
        np.full(CELLS + 2 * PAD, CELLS, np.uint32),  # component of each cell
        np.empty(CELLS, np.uint32),  # component before the rim was thawed
        choices(),  # least edge of each cell
        choices(),  # least edge of each component
        np.empty(CELLS, np.uint32),  # parent
        np.empty(CELLS, np.uint32),  # active components
        np.empty(CELLS, np.bool_),  # frozen
        choices(),  # picked edges
    )


# -- choices -----------------------------------------------------------------------------
# An edge of a tile has a 14-bit number, 4 * cell + direction. If they fit, key and number are
# packed into one word, and the total order is that of the words: a tuple (words,). 64-bit keys are
# stored beside the numbers: a tuple (keys, numbers). Functions are overloaded for both.

NUMBER = 14


def _word_dtype(weight: Weight) -> np.dtype | None:
    """Return the unsigned type that holds key and number; None if none is wide enough."""
    bits = weight.key_bits + NUMBER
    return np.dtype(np.uint32 if bits <= 32 else np.uint64) if bits <= 64 else None


def _key_and_number(choices, k):
    """Return key and number of choice `k`; without an edge, all ones and an arbitrary number."""


@overload(_key_and_number, inline="always")
def _key_and_number_of(choices, k):
    last = len(choices) - 1

    def unpack(choices, k):
        key = choices[0][k] if last else choices[0][k] >> NUMBER
        # Masked even without a key in it: if there is no edge, the number was never set.
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
    """Return the number of a rim cell, 0 .. RING - 1: top row, bottom row, left, right column."""
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
def tile_forest(cells, valid, window, rule, diagonal, sides, work, mask, sums, mode, out, count):
    """Write the final edges of a tile to `mask`, and append its candidates to `out`.

    Parameters
    ----------
    cells, valid
        Operands and validity of the block.
    window
        (row0, row1, col0, col1) of the tile in the block.
    rule
        See `Weight.rule`, of the block's rows.
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
        Candidate edges (keys, ids, us, vs) of the block and their number so far; ends are numbers
        on the tile's rim, ids are those of the block.

    Returns
    -------
    count, picked
        Number of candidates so far, and of final edges of this tile.
    """
    edges, label, ring, least, _, parent, active, frozen, picked = work
    row0, _, col0, _ = window
    _fill(cells, valid, window, rule, diagonal, edges, least)
    _freeze_rim(window, sides, frozen)
    for c in range(CELLS):
        label[c + PAD] = c
        parent[c] = c
        active[c] = c
    # In the first round every cell is a component, so its least edge is that of the component.
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
    """Run rounds until no component can pick; return the edges found and the components left."""
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
    """Return whether there are at least two components and one of them is not frozen."""
    for k in range(roots):
        if not frozen[active[k]]:
            return roots > 1
    return False


@register_jitable
def _hook(best, label, parent, active, roots, frozen, picked, found):
    """Attach every component that may pick to the one across its least edge.

    Branch-free, because the outcome is hard to predict.
    """
    for k in range(roots):
        c = active[k]
        _, e = _key_and_number(best, c)
        lower = np.uint64(e >> 2)
        other = label[lower + PAD] ^ label[lower + PAD + _STEP[e & 3]] ^ c
        stays = frozen[c] | (not _is_edge(best, c))
        other = c if stays else other
        # If both picked this edge, the smaller remains a root.
        stays |= (c < other) & _same(best, c, best, other) & (not frozen[other])
        parent[c] = c if stays else other
        _copy(best, c, picked, found)
        found += 1 - np.int64(stays)
    return found


@register_jitable
def _join(parent, active, roots, label):
    """Label every cell with the root of its component; return the number of roots."""
    roots = compress(parent, active, roots)
    for c in range(PAD, CELLS + PAD):
        label[c] = parent[label[c]]
    return roots


def _word(key, number, choices, edges):
    """Return the entry of an edge in `edges`: key and number in one word, or the key."""


@overload(_word, inline="always")
def _word_of(key, number, choices, edges):
    if len(choices) == 2:
        return lambda key, number, choices, edges: key

    def pack(key, number, choices, edges):
        return (edges.dtype.type(key) << edges.dtype.type(NUMBER)) | edges.dtype.type(number)

    return pack


@register_jitable
def _fill(cells, valid, window, rule, diagonal, edges, choices):
    """Fill in all edges inside the tile, by direction; all ones if there is no edge."""
    row0, row1, col0, col1 = window
    width = col1 - col0
    top = ~edges.dtype.type(0)
    edges[:] = top
    for y in range(row0, row1):
        first = (y - row0) * TILE
        at = PAD + first
        here, good = cells[y, col0:col1], valid[y, col0:col1]
        east = edges[0, at : at + width]
        of_step = rule_at(rule, 0, y)
        for x in range(width - 1):
            key = edge_key(here[x], here[x + 1], of_step)
            word = _word(key, 4 * (first + x), choices, edges)
            east[x] = word if good[x] & good[x + 1] else top
        if y + 1 == row1:
            break
        below, fine = cells[y + 1, col0:col1], valid[y + 1, col0:col1]
        south = edges[2, at : at + width]
        of_step = rule_at(rule, 2, y)
        for x in range(width):
            key = edge_key(here[x], below[x], of_step)
            word = _word(key, 4 * (first + x) + 2, choices, edges)
            south[x] = word if good[x] & fine[x] else top
        if not diagonal:
            continue
        south_west, south_east = edges[1, at : at + width], edges[3, at : at + width]
        of_step = rule_at(rule, 1, y)
        for x in range(1, width):
            key = edge_key(here[x], below[x - 1], of_step)
            word = _word(key, 4 * (first + x) + 1, choices, edges)
            south_west[x] = word if good[x] & fine[x - 1] else top
        of_step = rule_at(rule, 3, y)
        for x in range(width - 1):
            key = edge_key(here[x], below[x + 1], of_step)
            word = _word(key, 4 * (first + x) + 3, choices, edges)
            south_east[x] = word if good[x] & fine[x + 1] else top


@register_jitable
def _freeze_rim(window, sides, frozen):
    """Freeze the cells that have neighbours outside the tile."""
    height, width = window[1] - window[0], window[3] - window[2]
    frozen[:] = False
    for x in range(width):
        frozen[x] |= sides[0]
        frozen[(height - 1) * TILE + x] |= sides[1]
    for y in range(height):
        frozen[y * TILE] |= sides[2]
        frozen[y * TILE + width - 1] |= sides[3]


def _least_of_cells(edges, label, least):
    """Find, for each cell, its least edge that leaves its component."""


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
    # The order of the tests is that of the numbers, so that ties go to the least number.
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
    """Find the least edge of each component."""


@overload(_least_of_components)
def _least_of_components_by(least, label, active, roots, best):
    return _reduce_words if len(least) == 1 else _reduce_keys


def _reduce_words(least, label, active, roots, best):
    # Branch-free, because small components are unpredictable. Neighbours are mostly of one
    # component, where each waits for the one before, so four quarters of the tile take turns.
    words, found = least[0], best[0]
    top = ~words.dtype.type(0)
    for k in range(roots):
        found[active[k]] = top
    for c in range(CELLS // 4):
        for quarter in range(4):
            at = quarter * (CELLS // 4) + c
            r = label[at + PAD]
            found[r] = min(found[r], words[at])


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
