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
from .keys import add_weight, edge_key, rule_at

SIDE = 128
"""Side of a tile, twice that of a store's: numbers of its edges just fit 16 bits."""

CELLS = SIDE * SIDE
PAD = SIDE + 1
RING = 4 * SIDE - 4
"""Cells on the rim of a tile."""

_STEP = np.array([1, SIDE - 1, SIDE, SIDE + 1], np.uint64)
"""Steps from the lower endpoint to the upper: E, SW, S, SE."""


def new_tile_work(weight: Weight) -> tuple:
    """Allocate the work arrays of `tile_forest`."""
    word = _word_dtype(weight)
    arrays = (word,) if word else (weight.key_dtype, np.int32)

    def choices(count: int = CELLS) -> tuple:
        return tuple(np.empty(count, dtype) for dtype in arrays)

    def ids(count: int = CELLS) -> np.ndarray:
        return np.empty(count, np.uint32)

    return (
        np.empty((4, CELLS + 2 * PAD), arrays[0]),  # edges by direction: words or keys
        np.full(CELLS + 2 * PAD, CELLS, np.uint32),  # component of each cell after the first round
        np.full(CELLS + 2 * PAD, _NONE),  # edge that each cell picks in the first round
        choices(),  # least edge of each component
        ids(),  # parent of each component
        (ids(), ids()),  # components after the first round, and those that are active
        np.empty(CELLS, np.bool_),  # frozen
        choices(),  # picked edges
        np.empty(CELLS, np.uint8),  # edges left of each cell by directions, then its final edges
        (choices(4 * CELLS), ids(4 * CELLS), ids(4 * CELLS)),  # edges left, and their ends
    )


# -- choices -----------------------------------------------------------------------------
# An edge of a tile has a 16-bit number, 4 * cell + direction. If they fit, key and number are
# packed into one word, and the total order is that of the words: a tuple (words,). 64-bit keys are
# stored beside the numbers: a tuple (keys, numbers). Functions are overloaded for both.

NUMBER = 16
_NONE = np.uint16(0xFFFF)
"""No edge: the last cell has none to the south-east."""


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
    edges, label, choice, best, parent, (first, active), frozen, picked, bits, left = work
    rows, cols = cells.shape
    row0, _, col0, _ = window
    _fill(cells, valid, window, rule, diagonal, edges, best)
    _freeze_rim(window, sides, frozen)
    _least_of_cells(edges, best)
    final = _hook_cells(best, choice, parent, frozen, picked)
    roots = _compress_cells(parent, active)
    for c in range(CELLS):
        label[c + PAD] = parent[c]
    _mark(edges, label, bits)
    count_left = _gather(bits, edges, label, left)
    components = roots
    first[:] = active
    final, roots, count_left = _rounds(work, roots, count_left, final)
    if mode == 0:
        _set_and_sum(picked, final, window, bits, mask, sums)
    else:
        key_type = out[0].dtype.type
        for k in range(final):
            key, e = _key_and_number(picked, k)
            row, col = _place(e >> 2)
            mask[row0 + row, col0 + col] |= np.uint8(1 << (e & 3))
            add_weight(sums, key_type(key), mode)
    _compress(parent, first, components)
    for c in range(PAD, CELLS + PAD):
        label[c] = parent[label[c]]
    frozen[:] = False
    candidates, _, _ = _rounds(work, roots, count_left, 0)
    for k in range(candidates):
        key, e = _key_and_number(picked, k)
        u, v = label[(e >> 2) + PAD], label[(e >> 2) + PAD + np.int64(_STEP[e & 3])]
        out[0][count] = key
        row, col = _place(e >> 2)
        out[1][count] = 4 * ((row0 + row) * cols + col0 + col) + (e & 3)
        row, col = _place(u)
        out[2][count] = ring_index(row, col, rows)
        row, col = _place(v)
        out[3][count] = ring_index(row, col, rows)
        count += 1
    return count, final


@register_jitable
def _place(cell):
    """Return (row, col) of a cell in the tile."""
    return cell // SIDE, cell % SIDE


@register_jitable
def _set_and_sum(picked, count, window, bits, mask, sums):
    """Set the bits of final edges in `mask` and add their weights, which are integers.

    Bits are collected in the tile, because rows of a block compete for few places in the cache.
    Weights are summed in registers: in memory, each waits until the one before is stored.
    """
    row0, row1, col0, col1 = window
    low = high = np.int64(0)
    bits[:] = 0
    for k in range(count):
        key, e = _key_and_number(picked, k)
        bits[e >> 2] |= np.uint8(1 << (e & 3))
        low += np.int64(np.uint64(key) & np.uint64(0xFFFFFFFF))
        high += np.int64(np.uint64(key) >> np.uint64(32))
    for y in range(row1 - row0):
        for x in range(col1 - col0):
            mask[row0 + y, col0 + x] = bits[y * SIDE + x]
    sums[0] += low
    sums[1] += high


@register_jitable
def _rounds(work, roots, count, found):
    """Run rounds on the edges left until no component can pick.

    Returns
    -------
    found, roots, count
        Numbers of edges found, of components left and of edges left.
    """
    _, _, _, best, parent, (_, active), frozen, picked, _, left = work
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
def _hook_cells(best, choice, parent, frozen, picked):
    """Attach every cell that may pick to the one across its least edge; see `_hook`."""
    for c in range(CELLS):
        _, e = _key_and_number(best, c)
        choice[c + PAD] = _NONE if frozen[c] | (not _is_edge(best, c)) else np.uint16(e)
    for c in range(CELLS):
        q = c + PAD
        own, cell = choice[q], np.uint16(c)
        # If both picked this edge, the smaller remains a root.
        east = cell if choice[q + 1] == own else np.uint16(c + 1)
        south_west = cell if choice[q + SIDE - 1] == own else np.uint16(c + SIDE - 1)
        south = cell if choice[q + SIDE] == own else np.uint16(c + SIDE)
        south_east = cell if choice[q + PAD] == own else np.uint16(c + PAD)
        d = np.int16(own - 4 * c)  # negative at the upper end of an edge
        other = np.uint16(own >> np.uint16(2)) if d < 0 else east
        other = south_west if d == 1 else other
        other = south if d == 2 else other
        other = south_east if d == 3 else other
        parent[c] = cell if own == _NONE else other
    found = 0
    for c in range(CELLS):
        _copy(best, c, picked, found)
        found += parent[c] != c
    return found


@register_jitable
def _compress_cells(parent, active):
    """`_compress` for all cells: without branches, in as many passes as the deepest needs."""
    changed = np.uint32(1)
    while changed:
        changed = np.uint32(0)
        for c in range(CELLS):
            old = parent[c]
            new = parent[old]
            changed |= old ^ new
            parent[c] = new
    roots = 0
    for c in range(CELLS):
        active[roots] = c
        roots += parent[c] == c
    return roots


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
        first = (y - row0) * SIDE
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
        frozen[(height - 1) * SIDE + x] |= sides[1]
    for y in range(height):
        frozen[y * SIDE] |= sides[2]
        frozen[y * SIDE + width - 1] |= sides[3]


def _least_of_cells(edges, least):
    """Find, for each cell, its least edge."""


@overload(_least_of_cells)
def _least_of_cells_by(edges, least):
    return _least_words if len(least) == 1 else _least_keys


def _least_words(edges, least):
    e, sw, s, se = edges[0], edges[1], edges[2], edges[3]
    for c in range(CELLS):
        q = c + PAD
        before = min(se[c], s[c + 1], sw[c + 2], e[c + SIDE])
        least[0][c] = min(before, e[q], sw[q], s[q], se[q])


def _least_keys(edges, least):
    # The order of the tests is that of the numbers, so that ties go to the least number.
    e, sw, s, se = edges[0], edges[1], edges[2], edges[3]
    for c in range(CELLS):
        q = c + PAD
        key = se[c]
        code = np.int32(4 * -PAD + 3)
        k = s[c + 1]
        code = np.int32(4 * (1 - PAD) + 2) if k < key else code
        key = min(k, key)
        k = sw[c + 2]
        code = np.int32(4 * (2 - PAD) + 1) if k < key else code
        key = min(k, key)
        k = e[c + SIDE]
        code = np.int32(-4) if k < key else code
        key = min(k, key)
        k = e[q]
        code = np.int32(0) if k < key else code
        key = min(k, key)
        k = sw[q]
        code = np.int32(1) if k < key else code
        key = min(k, key)
        k = s[q]
        code = np.int32(2) if k < key else code
        key = min(k, key)
        k = se[q]
        code = np.int32(3) if k < key else code
        least[0][c] = min(k, key)
        least[1][c] = np.int32(4 * c) + code


@register_jitable
def _mark(edges, label, bits):
    """Mark the edges between components that are not the greatest of a triangle.

    The greatest edge of a cycle is in no minimum spanning tree (R. Tarjan 1983, the red rule).
    Equal 64-bit keys are all kept. Missing edges, such as those beyond a row's end, are greater
    than all others.
    """
    e, sw, s, se = edges[0], edges[1], edges[2], edges[3]
    top = ~edges.dtype.type(0)
    for c in range(CELLS):
        q = c + PAD
        own = label[q]
        # Each side of a square belongs to two triangles of it, and to two of the next square; a
        # diagonal to two.
        below = min(max(s[q + 1], se[q]), max(s[q], sw[q + 1]))
        above = min(max(s[c + 1], se[c + 1]), max(s[c + 2], sw[c + 2]))
        found = np.uint8((e[q] <= min(below, above)) & (e[q] < top) & (label[q + 1] != own))
        left = min(max(e[q - 1], s[q - 1]), max(e[q + SIDE - 1], s[q]))
        one = (sw[q] <= left) & (sw[q] < top) & (label[q + SIDE - 1] != own)
        found |= np.uint8(one) << np.uint8(1)
        right = min(max(e[q], sw[q + 1]), max(e[q + SIDE], se[q]))
        left = min(max(e[q - 1], se[q - 1]), max(e[q + SIDE - 1], sw[q]))
        one = (s[q] <= min(right, left)) & (s[q] < top) & (label[q + SIDE] != own)
        found |= np.uint8(one) << np.uint8(2)
        right = min(max(e[q], s[q + 1]), max(s[q], e[q + SIDE]))
        one = (se[q] <= right) & (se[q] < top) & (label[q + PAD] != own)
        bits[c] = found | (np.uint8(one) << np.uint8(3))


@register_jitable
def _gather(bits, edges, label, left):
    """List the marked edges in the order of their numbers; return how many there are."""
    choices, us, vs = left
    count = 0
    eights = bits.view(np.uint64)
    for k in range(CELLS // 8):
        found = eights[k]
        while found:
            bit = np.int64(trailing_zeros(found))
            found &= found - np.uint64(1)
            cell = 8 * k + (bit >> 3)
            d = bit & 7
            _put(choices, count, edges[d, cell + PAD], 4 * cell + d)
            us[count] = label[cell + PAD]
            vs[count] = label[cell + PAD + np.int64(_STEP[d])]
            count += 1
    return count


def _put(choices, k, word, number):
    """Set choice `k` to an entry of `edges`."""


@overload(_put, inline="always")
def _put_of(choices, k, word, number):
    if len(choices) == 1:

        def put(choices, k, word, number):
            choices[0][k] = word

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
        # Branch-free, because small components are unpredictable.
        _lower(choices, kept, best, u, u != v)
        _lower(choices, kept, best, v, u != v)
        kept += u != v
    return kept


def _lower(choices, k, best, c, leaves):
    """Make choice `k` the best one of a component, if it leaves it and is less."""


@overload(_lower)
def _lower_of(choices, k, best, c, leaves):
    if len(choices) == 1:

        def lower(choices, k, best, c, leaves):
            kind, old = choices[0].dtype.type, best[0][c]
            word = ((choices[0][k] >> kind(NUMBER)) << kind(NUMBER)) | kind(k)
            best[0][c] = word if leaves & (word < old) else old

    else:

        def lower(choices, k, best, c, leaves):
            key, old, place = choices[0][k], best[0][c], best[1][c]
            better = leaves & (key < old)
            best[0][c] = key if better else old
            best[1][c] = k if better else place

    return lower
