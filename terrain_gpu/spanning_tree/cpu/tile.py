"""The spanning forest of one tile: Boruvka over 128 x 128 cells, in cache and in vector registers.

The first round scans cells: each finds the least of its eight edges, in straight-line code over
arrays that the compiler vectorises. So does the test that then drops the greatest edge of every
triangle, after which few edges between components are left. Further rounds scan their list. Rounds
with a frozen rim give the final edges; rounds without frozen cells then give the candidates, the
spanning tree of the edges left between rim cells.
"""

from __future__ import annotations

import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros
from numba.extending import overload, register_jitable

from ...compiled import jit
from ...primitives.union_find import find
from ..weights import Weight
from .first_round import (
    CELLS,
    NONE,
    NUMBER,
    PAD,
    SIDE,
    STEP,
    compress_cells,
    fill,
    freeze_rim,
    hook_cells,
    is_packed,
    least_of_cells,
    load,
    mark,
    sum_cells,
)
from .keys import add_weight

RING = 4 * SIDE - 4
"""Cells on the rim of a tile."""


def new_tile_work(weight: Weight) -> tuple:
    """Allocate the work arrays of `tile_forest`."""
    entry, listed = _entry_types(weight)

    def choices(count: int = CELLS) -> tuple:
        return tuple(np.empty(count, dtype) for dtype in listed)

    def ids(count: int = CELLS) -> np.ndarray:
        return np.empty(count, np.uint32)

    top = ~entry.type(0)
    return (
        np.zeros(CELLS + 2 * PAD, weight.operand_dtype),  # cells
        np.full(CELLS + 2 * PAD, top),  # all ones where there is none
        np.full((4, CELLS + 2 * PAD), top),  # edges by direction: words or keys
        np.empty(CELLS, entry),  # least edge of each cell
        np.full(CELLS + 2 * PAD, NONE),  # edge that each cell picks in the first round
        np.full(CELLS + 2 * PAD, CELLS, np.uint32),  # component of each cell after the first round
        np.empty(CELLS, np.uint8),  # edges left of each cell by directions
        np.empty(CELLS, np.uint8),  # its final edges
        choices(),  # least edge of each component
        ids(),  # parent of each component
        (ids(), ids()),  # components after the first round, and those that are active
        ids(),  # rim cell of each component after the first round
        np.empty(CELLS, np.bool_),  # frozen
        choices(),  # picked edges
        (choices(4 * CELLS), ids(4 * CELLS), ids(4 * CELLS)),  # edges left, and their ends
    )


# -- choices -----------------------------------------------------------------------------
# An edge of a tile has a 16-bit number, 4 * cell + direction. In the list of edges left, key and
# number are packed into one word if they fit, and the total order is that of the words: a tuple
# (words,). 64-bit keys are stored beside the numbers: a tuple (keys, numbers). Functions are
# overloaded for both. Before, in arrays by cell and direction, the place tells the number: they
# hold words of 32 bits, or keys where these would not fit.


def _entry_types(weight: Weight) -> tuple[np.dtype, tuple[np.dtype, ...]]:
    """Return the type of edges by cell and direction, and those of edges in lists."""
    bits, key, number = weight.key_bits + NUMBER, weight.key_dtype, np.dtype(np.int32)
    if bits <= 32:
        return key, (np.dtype(np.uint32),)
    return key, (np.dtype(np.uint64),) if bits <= 64 else (key, number)


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
def ring_index(row, col, rows):
    """Return the number of a rim cell, 0 .. RING - 1: top row, bottom row, left, right column.

    A block may have fewer `rows` than a tile.
    """
    if row == 0:
        return col
    if row == min(SIDE, rows) - 1:
        return SIDE + col
    return (2 * SIDE if col == 0 else 3 * SIDE - 2) + row - 1


@register_jitable
def ring_cell(k, rows, cols):
    """The inverse of `ring_index` in a block of this shape: (row, col)."""
    if k < SIDE:
        return 0, k
    if k < 2 * SIDE:
        return min(SIDE, rows) - 1, k - SIDE
    if k < 3 * SIDE - 2:
        return k - 2 * SIDE + 1, 0
    return k - (3 * SIDE - 2) + 1, min(SIDE, cols) - 1


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
    z, missing, edges, least, choice, label, kept, bits, best, parent, more, rim, frozen = work[:13]
    picked, left = work[13:]
    first, active = more
    rows, cols = cells.shape
    row0, row1, col0, col1 = window
    load(cells, valid, window, z, missing)
    fill(z, missing, window, rule, diagonal, edges, best)
    freeze_rim(window, sides, frozen)
    least_of_cells(edges, frozen, least, choice, best)
    hook_cells(choice, parent, bits)
    final = sum_cells(least, parent, best, sums, mode)
    roots = components = compress_cells(parent, active)
    for c in range(CELLS):
        label[c + PAD] = parent[c]
    mark(edges, label, kept)
    count_left = _gather(kept, edges, label, left)
    for k in range(roots):
        first[k] = active[k]
    found, roots, count_left = _rounds(work, roots, count_left)
    key_type = out[0].dtype.type
    for k in range(found):
        key, e = _key_and_number(picked, k)
        bits[e >> 2] |= np.uint8(1 << (e & 3))
        add_weight(sums, key_type(key), mode)
    for y in range(row1 - row0):
        line, of_tile = mask[row0 + y, col0:col1], bits[y * SIDE : (y + 1) * SIDE]
        for x in range(col1 - col0):
            line[x] = of_tile[x]
    for k in range(components):
        rim[first[k]] = find(parent, first[k])
    frozen[:] = False
    candidates, _, _ = _rounds(work, roots, count_left)
    for k in range(candidates):
        key, e = _key_and_number(picked, k)
        cell = e >> 2
        row, col = _place(cell)
        out[0][count] = key
        out[1][count] = 4 * ((row0 + row) * cols + col0 + col) + (e & 3)
        row, col = _place(rim[label[cell + PAD]])
        out[2][count] = ring_index(row, col, rows)
        row, col = _place(rim[label[cell + PAD + np.int64(STEP[e & 3])]])
        out[3][count] = ring_index(row, col, rows)
        count += 1
    return count, final + found


@register_jitable
def _place(cell):
    """Return (row, col) of a cell in the tile."""
    return cell // SIDE, cell % SIDE


@register_jitable
def _rounds(work, roots, count):
    """Run rounds on the edges left until no component can pick.

    Returns
    -------
    found, roots, count
        Numbers of edges found, of components left and of edges left.
    """
    best, parent, (_, active), _, frozen, picked, left = work[8:]
    found = 0
    while _may_pick(active, roots, frozen):
        count = _least_of_components(left, count, parent, active, roots, best)
        more = _hook(best, left, parent, active, roots, frozen, picked, found)
        if more == found:
            break
        found = more
        roots = _compress(parent, active, roots)
    return found, roots, count


@register_jitable
def _may_pick(active, roots, frozen):
    """Return whether there are at least two components and one of them is not frozen."""
    for k in range(roots):
        if not frozen[active[k]]:
            return roots > 1
    return False


@register_jitable
def _compress(parent, active, roots):
    """Point every active component to its root; keep only roots active, return their number."""
    still = 0
    for k in range(roots):
        c = active[k]
        parent[c] = find(parent, c)
        active[still] = c
        still += parent[c] == c
    return still


@register_jitable
def _hook(best, left, parent, active, roots, frozen, picked, found):
    """Attach every component that may pick to the one across its least edge.

    Branch-free, because the outcome is hard to predict.
    """
    choices, us, vs = left
    for k in range(roots):
        c = active[k]
        _, at = _key_and_number(best, c)
        other = us[at] ^ vs[at] ^ c
        stays = frozen[c] | (not _is_edge(best, c))
        other = c if stays else other
        # If both picked this edge, the smaller remains a root.
        stays |= (c < other) & _same(best, c, best, other) & (not frozen[other])
        parent[c] = c if stays else other
        _copy(choices, at, picked, found)
        found += 1 - np.int64(stays)
    return found


@register_jitable
def _gather(kept, edges, label, left):
    """List the marked edges in the order of their numbers; return how many there are."""
    choices, us, vs = left
    count = 0
    # Sixteen cells at a time, four bits each: the end of the inner loop is hard to predict.
    for k in range(CELLS // 2):
        kept[k] = kept[2 * k] | (kept[2 * k + 1] << np.uint8(4))
    words = kept[: CELLS // 2].view(np.uint64)
    for k in range(len(words)):
        found = words[k]
        while found:
            number = 64 * k + np.int64(trailing_zeros(found))
            found &= found - np.uint64(1)
            q, d = (number >> 2) + PAD, number & 3
            _put(choices, count, edges[d, q], number)
            us[count] = label[q]
            vs[count] = label[q + np.int64(STEP[d])]
            count += 1
    return count


def _put(choices, k, word, number):
    """Set choice `k` to an entry of `edges`."""


@overload(_put, inline="always")
def _put_of(choices, k, word, number):
    if is_packed(choices):

        def put(choices, k, word, number):
            choices[0][k] = word

    elif len(choices) == 1:

        def put(choices, k, word, number):
            choices[0][k] = (np.uint64(word) << np.uint64(NUMBER)) | np.uint64(number)

    else:

        def put(choices, k, word, number):
            choices[0][k] = word
            choices[1][k] = number

    return put


@register_jitable
def _least_of_components(left, count, parent, active, roots, best):
    """Find the least edge of each component, by its place among the edges left.

    Edges inside components are dropped. Others keep their order, that of their numbers, so places
    decide between equal keys. Returns how many are left.
    """
    choices, us, vs = left
    top = ~best[0].dtype.type(0)
    for k in range(roots):
        best[0][active[k]] = top
    kept = 0
    for k in range(count):
        u, v = parent[us[k]], parent[vs[k]]
        _copy(choices, k, choices, kept)
        us[kept], vs[kept] = u, v
        kept += u != v
    # A loop of its own, because it waits for its own stores. Neither loop branches: small
    # components are unpredictable.
    for k in range(kept):
        _lower(choices, k, best, us[k])
        _lower(choices, k, best, vs[k])
    return kept


def _lower(choices, k, best, c):
    """Make choice `k` the best one of a component, if it is less."""


@overload(_lower)
def _lower_of(choices, k, best, c):
    if len(choices) == 1:

        def lower(choices, k, best, c):
            kind, old = choices[0].dtype.type, best[0][c]
            word = ((choices[0][k] >> kind(NUMBER)) << kind(NUMBER)) | kind(k)
            best[0][c] = min(word, old)

    else:

        def lower(choices, k, best, c):
            key, old, place = choices[0][k], best[0][c], best[1][c]
            better = key < old
            best[0][c] = key if better else old
            best[1][c] = k if better else place

    return lower
