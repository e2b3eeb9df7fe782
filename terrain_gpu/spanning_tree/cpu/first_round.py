"""The first round of a tile: every cell is a component, and all work is straight array code.

Edges are in arrays by cell and direction, so the place tells the number of an edge. Entries are
words of 32 bits that hold key and number, if both fit; else keys, of which the one with the least
number comes first if they are equal.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numba.extending import overload, register_jitable

from .keys import add_weight, edge_key, rule_at

SIDE = 128
"""Side of a tile, twice that of a store's: numbers of its edges just fit 16 bits."""

CELLS = SIDE * SIDE
PAD = SIDE + 1

NUMBER = 16
NONE = np.uint16(0xFFFF)
"""No edge: the last cell has none to the south-east."""

STEP = np.array([1, SIDE - 1, SIDE, SIDE + 1], np.uint64)
"""Steps from the lower endpoint to the upper: E, SW, S, SE."""


def is_packed(choices):
    """Return whether entries of `edges` are words, from the types of lists; see `tile`."""
    return len(choices) == 1 and choices[0].dtype == numba.types.uint32


def _word(key, number, choices, edges):
    """Return the entry of an edge in `edges`: key and number in one word, or the key."""


@overload(_word, inline="always")
def _word_of(key, number, choices, edges):
    if not is_packed(choices):
        return lambda key, number, choices, edges: key

    def pack(key, number, choices, edges):
        return (np.uint32(key) << np.uint32(NUMBER)) | np.uint32(number)

    return pack


@register_jitable
def load(cells, valid, window, z, missing):
    """Copy the cells of a tile."""
    row0, row1, col0, col1 = window
    top, here = ~missing.dtype.type(0), missing.dtype.type(0)
    missing[:] = top
    width = col1 - col0
    for y in range(row1 - row0):
        at = PAD + y * SIDE
        of_row, line = cells[row0 + y, col0:col1], z[at : at + width]
        for x in range(width):
            line[x] = of_row[x]
        good, gone = valid[row0 + y, col0:col1], missing[at : at + width]
        for x in range(width):
            gone[x] = here if good[x] else top


@register_jitable
def fill(z, missing, window, rule, diagonal, edges, choices):
    """Fill in all edges inside the tile, by direction; all ones if there is no edge."""
    top = ~edges.dtype.type(0)
    height = window[1] - window[0]
    for y in range(height):
        at = PAD + y * SIDE
        for d in range(0, 4, 1 if diagonal else 2):
            to = at + np.int64(STEP[d])
            a, b, of_step = z[at : at + SIDE], z[to : to + SIDE], rule_at(rule, d, window[0] + y)
            no_a, no_b = missing[at : at + SIDE], missing[to : to + SIDE]
            line, number = edges[d, at : at + SIDE], 4 * y * SIDE + d
            for x in range(SIDE):
                word = _word(edge_key(a[x], b[x], of_step), number + 4 * x, choices, edges)
                line[x] = word | no_a[x] | no_b[x]
    edges[:, PAD + height * SIDE :] = top
    edges[0, PAD + SIDE - 1 :: SIDE] = top
    edges[1, PAD::SIDE] = top
    edges[3, PAD + SIDE - 1 :: SIDE] = top
    if not diagonal:
        edges[1::2] = top


@register_jitable
def freeze_rim(window, sides, frozen):
    """Freeze the cells that have neighbours outside the tile."""
    height, width = window[1] - window[0], window[3] - window[2]
    frozen[:] = False
    for x in range(width):
        frozen[x] |= sides[0]
        frozen[(height - 1) * SIDE + x] |= sides[1]
    for y in range(height):
        frozen[y * SIDE] |= sides[2]
        frozen[y * SIDE + width - 1] |= sides[3]


def least_of_cells(edges, frozen, least, choice, choices):
    """Find, for each cell, its least edge, and pick it unless the cell is frozen."""


@overload(least_of_cells)
def _least_of_cells_by(edges, frozen, least, choice, choices):
    return _least_words if is_packed(choices) else _least_keys


def _least_words(edges, frozen, least, choice, choices):
    e, sw, s, se = edges[0], edges[1], edges[2], edges[3]
    for c in range(CELLS):
        q = c + PAD
        before = min(se[c], s[c + 1], sw[c + 2], e[c + SIDE])
        least[c] = min(before, e[q], sw[q], s[q], se[q])
    for c in range(CELLS):
        choice[c + PAD] = NONE if frozen[c] else np.uint16(least[c])


def _least_keys(edges, frozen, least, choice, choices):
    top = ~edges.dtype.type(0)
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
        key = min(k, key)
        least[c] = key
        stays = frozen[c] | (key == top)
        choice[c + PAD] = NONE if stays else np.uint16(np.int32(4 * c) + code)


@register_jitable
def hook_cells(choice, parent, bits):
    """Attach every cell that picks an edge to the one across it, see `_hook`; set their bits."""
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
        parent[c] = cell if own == NONE else other
    for c in range(CELLS):
        q, e = c + PAD, np.uint16(4 * c)
        own = choice[q]
        found = np.uint8((own == e) | (choice[q + 1] == e))
        e = np.uint16(4 * c + 1)
        found |= np.uint8((own == e) | (choice[q + SIDE - 1] == e)) << np.uint8(1)
        e = np.uint16(4 * c + 2)
        found |= np.uint8((own == e) | (choice[q + SIDE] == e)) << np.uint8(2)
        e = np.uint16(4 * c + 3)
        bits[c] = found | (np.uint8((own == e) | (choice[q + PAD] == e)) << np.uint8(3))
    bits[CELLS - 1] = 0  # what is no edge looks like one there


def sum_cells(least, parent, choices, sums, mode):
    """Add the weights of the edges that cells have picked; return how many they are."""


@overload(sum_cells)
def _sum_cells_by(least, parent, choices, sums, mode):
    shift = least.dtype(NUMBER if is_packed(choices) else 0)
    narrow = least.dtype == numba.types.uint32 and not is_packed(choices)

    def add(least, parent, choices, sums, mode):
        low = high = count = np.int64(0)
        for c in range(CELLS):
            count += parent[c] != c
        if mode == 0:
            # In registers: in memory, each waits until the one before is stored.
            for c in range(CELLS):
                key = np.uint64(least[c] >> shift) if parent[c] != c else np.uint64(0)
                low += np.int64(key & np.uint64(0xFFFFFFFF))
                high += np.int64(key >> np.uint64(32))
            sums[0] += low
            sums[1] += high
        elif not (narrow and _sum_floats(least, parent, sums, mode)):
            for c in range(CELLS):
                if parent[c] != c:
                    add_weight(sums, least[c], mode)
        return count

    return add


@register_jitable
def _sum_floats(keys, parent, sums, mode):
    """Add 32-bit weights exactly as integers of 64 bits; False if their exponents are too far."""
    negative = np.uint32(0xFFFFFFFF) if mode == 2 else np.uint32(0)
    low, high = np.int32(255), np.int32(1)
    for c in range(CELLS):
        # Shifted, numbers have 64 bits: the sign must go.
        bits = _bits(keys[c], negative) if parent[c] != c else np.uint32(0)
        size = np.uint32(bits << np.uint32(1))
        exponent = np.int32(size >> np.uint32(24))
        high = max(high, exponent)
        low = min(low, exponent if size else np.int32(255))
    low = max(low, np.int32(1))  # subnormals have the exponent of the least others
    if high - low > 24 or high == 255:
        return False
    total, unit = np.int64(0), math.ldexp(1.0, 150 - low)
    for c in range(CELLS):
        number = np.uint32(_bits(keys[c], negative)).view(np.float32)
        total += np.int64(number * unit if parent[c] != c else 0.0)
    sums[2 * low] += total & np.int64(0xFFFFFFFF)
    sums[2 * low + 1] += total >> np.int64(32)
    return True


@register_jitable
def _bits(key, negative):
    """Return the bits of the number of a key; what is below the sign bit becomes `negative`."""
    sign = np.uint32(1 << 31)
    return np.uint32(key ^ (sign if key >= sign else negative))


@register_jitable
def _shorten(parent, start, step):
    """Point every cell to its parent's parent, in a direction; return whether one changed."""
    changed = np.uint32(0)
    for k in range(CELLS):
        c = start + k * step
        old = parent[c]
        new = parent[old]
        changed |= old ^ new
        parent[c] = new
    return changed != 0


@register_jitable
def compress_cells(parent, active):
    """`_compress` for all cells: without branches, in passes back and forth until none changes.

    A pass follows every chain of parents that lies in its direction to the end.
    """
    changed = _shorten(parent, 0, 1)
    while changed and _shorten(parent, CELLS - 1, -1):
        changed = _shorten(parent, 0, 1)
    roots = 0
    for c in range(CELLS):
        active[roots] = c
        roots += parent[c] == c
    return roots


@register_jitable
def mark(edges, label, kept):
    """Mark the edges between components that are not the greatest of a triangle.

    The greatest edge of a cycle is in no minimum spanning tree (R. Tarjan 1983, the red rule). Of
    equal keys, that with the greater number is greater. Missing edges, such as those beyond a row's
    end, are greater than all others.
    """
    e, sw, s, se = edges[0], edges[1], edges[2], edges[3]
    top = ~edges.dtype.type(0)
    for c in range(CELLS):
        q = c + PAD
        own = label[q]
        # Each side of a square belongs to two triangles of it, and to two of the next square; a
        # diagonal to two.
        key = e[q]
        below = min(max(s[q + 1], se[q]), max(s[q], sw[q + 1]))
        above = min(max(s[c + 1], se[c + 1]), max(s[c + 2], sw[c + 2]))
        found = np.uint8((key <= below) & (key < above) & (label[q + 1] != own))
        key = sw[q]
        right, left = max(e[q + SIDE - 1], s[q]), max(e[q - 1], s[q - 1])
        one = (key <= right) & (key < left) & (label[q + SIDE - 1] != own)
        found |= np.uint8(one) << np.uint8(1)
        key = s[q]
        right, left = max(e[q + SIDE], se[q]), max(e[q - 1], se[q - 1])
        one = (key <= right) & (key < left) & (label[q + SIDE] != own)
        one &= ((key < e[q]) | (key <= sw[q + 1])) & ((key <= e[q + SIDE - 1]) | (key < sw[q]))
        found |= np.uint8(one) << np.uint8(2)
        key = se[q]
        one = (key < top) & (label[q + PAD] != own)
        one &= ((key < e[q]) | (key <= s[q + 1])) & ((key < s[q]) | (key <= e[q + SIDE]))
        kept[c] = found | (np.uint8(one) << np.uint8(3))
