"""The edges between the tiles of a block, along the seams of tiles.

A seam has two lines of cells, a and b: above and below, or left and right. By the place x along it,
the edges of a seam are a[x] - b[x] (straight), a[x] - b[x + 1] (forth) and b[x] - a[x + 1] (back).
With those inside the lines, a[x] - a[x + 1] and b[x] - b[x + 1], they make four triangles for each
x. An edge that is the greatest of a triangle is in no minimum spanning tree (R. Tarjan 1983, the
red rule), which leaves half of them.
"""

from __future__ import annotations

import numba
import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros
from numba.extending import overload, register_jitable

from .first_round import SIDE
from .keys import edge_key, rule_at
from .tile import RING, ring_index

_FORTH, _BACK = 1, 2


@register_jitable
def separators(cells, valid, rule, diagonal, across, edges, count):
    """Append the edges between tiles to a block's list; return how long it is then."""
    rows, cols = cells.shape
    length = max(rows, cols)
    lines = np.empty((5, length + 2), np.uint64)
    kept = np.zeros((length + 7) // 8 * 8, np.uint8)
    for row in range(SIDE - 1, rows - 1, SIDE):
        _fill(cells, valid, rule, diagonal, row, 0, False, edges[0], lines)
        _mark(lines, cols, kept)
        count = _append(lines, kept, row, 0, False, rows, cols, across, edges, count)
    kept[:] = 0
    for col in range(SIDE - 1, cols - 1, SIDE):
        _fill(cells, valid, rule, diagonal, 0, col, True, edges[0], lines)
        _mark(lines, rows, kept)
        # Diagonals between rows of tiles have been listed.
        for row in range(SIDE - 1, len(kept), SIDE):
            kept[row] &= np.uint8(1)
        count = _append(lines, kept, 0, col, True, rows, cols, across, edges, count)
    return count


def _word(keys, key, number):
    """Return key and number of an edge as one word; only the key if it has 64 bits."""


@overload(_word, inline="always")
def _word_of(keys, key, number):
    if keys.dtype == numba.types.uint64:
        return lambda keys, key, number: np.uint64(key)
    return lambda keys, key, number: (np.uint64(key) << np.uint64(32)) | np.uint64(number)


def _key(keys, word):
    """Return the key in a word."""


@overload(_key, inline="always")
def _key_of(keys, word):
    if keys.dtype == numba.types.uint64:
        return lambda keys, word: word
    return lambda keys, word: np.uint32(word >> np.uint64(32))


@register_jitable
def _fill(cells, valid, rule, diagonal, row, col, down, keys, lines):
    """Fill in the edges of a seam at `x + 1`, of cell a[0]; all ones if there is no edge."""
    rows, cols = cells.shape
    top = ~np.uint64(0)
    straight, forth, back, in_a, in_b = lines[0], lines[1], lines[2], lines[3], lines[4]
    lines[:] = top
    dy, dx = (1, 0) if down else (0, 1)  # a step along the seam; (dx, dy) is one across it
    to_b, inside = (0, 2) if down else (2, 0)
    a, b = cells[row, col], cells[row + dx, col + dy]
    good, fine = valid[row, col], valid[row + dx, col + dy]
    length = rows if down else cols
    for x in range(length):
        q = x + 1
        y, z = row + x * dy, col + x * dx
        at = 4 * (y * cols + z)
        beside = at + 4 * (dx * cols + dy)
        if good & fine:
            straight[q] = _word(keys, edge_key(a, b, rule_at(rule, to_b, y)), at + to_b)
        if q == length:
            break
        c, d = cells[y + dy, z + dx], cells[y + 1, z + 1]
        well, whole = valid[y + dy, z + dx], valid[y + 1, z + 1]
        if good & well:
            in_a[q] = _word(keys, edge_key(a, c, rule_at(rule, inside, y)), at + inside)
        if fine & whole:
            in_b[q] = _word(keys, edge_key(b, d, rule_at(rule, inside, y + dx)), beside + inside)
        if diagonal & good & whole:
            forth[q] = _word(keys, edge_key(a, d, rule_at(rule, 3, y)), at + 3)
        if diagonal & fine & well:
            lower = beside if down else at + 4
            back[q] = _word(keys, edge_key(b, c, rule_at(rule, 1, y)), lower + 1)
        a, b, good, fine = c, d, well, whole


@register_jitable
def _mark(lines, length, kept):
    """Mark the edges of a seam to keep, by bits of each x. Equal 64-bit keys are all kept."""
    straight, forth, back, in_a, in_b = lines[0], lines[1], lines[2], lines[3], lines[4]
    top = ~np.uint64(0)
    for x in range(length):
        q = x + 1
        here, following = straight[q], straight[q + 1]
        before = min(max(in_a[x], forth[x]), max(in_b[x], back[x]))
        after = min(max(in_a[q], back[q]), max(in_b[q], forth[q]))
        one = np.uint8((here <= min(before, after)) & (here < top))
        most = min(max(in_a[q], following), max(in_b[q], here))
        two = np.uint8((forth[q] <= most) & (forth[q] < top))
        most = min(max(in_a[q], here), max(in_b[q], following))
        three = np.uint8((back[q] <= most) & (back[q] < top))
        kept[x] = one | (two << np.uint8(1)) | (three << np.uint8(2))


@register_jitable
def _append(lines, kept, row, col, down, rows, cols, across, edges, count):
    """Append the marked edges of a seam."""
    keys, ids, us, vs = edges
    eights = kept.view(np.uint64)
    for k in range(len(eights)):
        found = eights[k]
        while found:
            bit = np.int64(trailing_zeros(found))
            found &= found - np.uint64(1)
            x, kind = 8 * k + (bit >> 3), bit & 7
            word = lines[kind, x + 1]
            # The lower endpoint, of which line it is, and how far along the seam both are.
            line, far = 0, x + (kind == _FORTH)
            if kind == _BACK:
                line, x, far = (1, x, x + 1) if down else (0, x + 1, x)
            y, z = (row + x, col + line) if down else (row, col + x)
            v, w = (row + far, col + 1 - line) if down else (row + 1, col + far)
            d = (0 if down else 2) if kind == 0 else 5 - 2 * kind
            keys[count] = _key(keys, word)
            ids[count] = 4 * (y * cols + z) + d
            us[count] = vertex(y, z, across, rows)
            vs[count] = vertex(v, w, across, rows)
            count += 1
    return count


@register_jitable
def vertex(row, col, across, rows):
    """Return the number of a tile's rim cell among all rim cells of the block."""
    tile = (row // SIDE) * across + col // SIDE
    return tile * RING + ring_index(row % SIDE, col % SIDE, rows)
