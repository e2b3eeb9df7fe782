"""Compiled proof of tiles: Boruvka's rounds over all their edges must pick edges of the forest.

A tile's cells that have neighbours outside of it are *open*: not all of their edges are seen, so
their components never pick. Every other component picks its least edge, which is in the minimum
spanning forest because all edges that leave the component are seen (the cut property). So no two
open cells are ever joined, and in the end each is the root of its own component. Rounds without
open cells then pick the *candidates*: the spanning forest of the edges left. An edge that is
neither picked nor a candidate is the largest of a cycle. `forest` explains what this proves.

An edge of a tile has the number ``4 * cell + direction``. Where they fit, its weight and number
form one word, so that the least word is the least edge.
"""

from __future__ import annotations

import numba
import numpy as np
from numba.extending import overload, register_jitable

from ...compiled import jit

_NONE = -1


def weigh(a, b, rule):
    """Return the weight of the edge between two operands as an unsigned number in its order."""
    raise RuntimeError("for compiled code only")


@overload(weigh, inline="always")
def _weigh(a, b, rule):
    if rule == numba.types.float64:

        def key(a, b, rule):
            slope = np.float32(abs(np.float64(a) - np.float64(b)) * rule)
            height = np.uint64(_ordered(max(a, b))) << np.uint64(32)
            return height | np.uint64(np.uint32(0x7FFFFFFF) - slope.view(np.uint32))

    elif isinstance(a, numba.types.Float):
        unsigned = np.uint32 if a.bitwidth == 32 else np.uint64
        real = np.float32 if a.bitwidth == 32 else np.float64

        def key(a, b, rule):
            return real(abs(a - b)).view(unsigned)

    else:

        def key(a, b, rule):
            return max(a, b) - min(a, b) if rule else max(a, b)

    return key


def _ordered(z):
    """Return a height as an unsigned number in the same order."""


@overload(_ordered, inline="always")
def _ordered_of(z):
    if not isinstance(z, numba.types.Float):
        return lambda z: z

    def ordered(z):
        bits = np.float32(z).view(np.uint32)
        return ~bits if bits >> np.uint32(31) else bits | np.uint32(1 << 31)

    return ordered


def _rule_of(rule, direction, row):
    """Return how edges in a direction from a row are weighed."""


@overload(_rule_of, inline="always")
def _rule_of_row(rule, direction, row):
    if isinstance(rule, numba.types.Array):
        return lambda rule, direction, row: rule[direction, row]
    return lambda rule, direction, row: rule


def new_words(unit: int, key_bits: int) -> tuple[np.ndarray, int]:
    """Allocate the words of a tile; return them, and the bits of an edge's number in a word."""
    shift = (4 * unit * unit - 1).bit_length()
    if key_bits + shift > 64:
        shift = 0
    word = np.uint32 if key_bits + shift <= 32 else np.uint64
    return np.empty((4, unit * unit + 2 * (unit + 1)), word), shift


@jit
def check_tiles(
    cells, valid, bits, rule, diagonal, place, unit, words, shift, out, vertex, weights
):
    """Check the tiles of a square; list the candidates, and the edges between tiles.

    Parameters
    ----------
    cells, valid, bits
        Operands, validity and forward edges of the square.
    rule
        Reciprocal lengths of steps by direction and row of the square; or whether to subtract.
    place
        (row, column) of the square in the raster, and the shape of the raster.
    unit
        Side of the tiles.
    words, shift
        Words of a tile, and the bits of an edge's number beside its weight in them; 0 if they do
        not fit. See `new_words`.
    out
        The arrays of a `PieceEdges`.
    vertex
        Receives the numbers of open cells; all -1.
    weights
        Receives the weights of the forest's edges.

    Returns
    -------
    right
        False if the forest is wrong.
    count, size, picked, checked
        Numbers of edges listed, of vertices, of the forest's edges, and of all edges.
    """
    rows, cols = cells.shape
    work = _new_work(unit, words)
    count = size = picked = checked = 0
    for row in range(0, rows, unit):
        for col in range(0, cols, unit):
            window = (row, min(row + unit, rows), col, min(col + unit, cols))
            _fill(cells, valid, window, rule, diagonal, unit, shift, work)
            chosen, edges = _read_bits(bits, valid, window, diagonal, place, unit, work)
            if chosen < 0:
                return False, 0, 0, 0, 0
            size = _open(valid, window, place, unit, work, vertex, size)
            first = picked
            count, picked = _check(
                window, place, unit, shift, work, vertex, out, count, weights, picked
            )
            # Any other edge is the largest of a cycle.
            if picked - first != chosen:
                return False, 0, 0, 0, 0
            checked += edges
    right, count, picked, edges = _between(
        cells, valid, bits, rule, diagonal, place, unit, out, count, vertex, weights, picked
    )
    return right, count, size, picked, checked + edges


@register_jitable
def _new_work(unit, words):
    n = unit * unit
    return (
        words,  # by direction
        np.empty(n, np.uint8),  # the edges of each cell
        np.empty(n, np.uint8),  # those of the forest
        np.zeros(words.shape[1], np.int32),  # label
        np.empty(n, np.int32),  # label among open cells
        np.empty(n, words.dtype),  # least word of each cell
        np.empty(n, words.dtype),  # least word of each component
        np.empty(n, np.int32),  # number of that edge
        np.empty(n, np.int32),  # parent
        np.empty(n, np.int32),  # active components
        np.empty(n, np.bool_),  # open
        np.empty(n, np.int32),  # picks
    )


@register_jitable
def _fill(cells, valid, window, rule, diagonal, unit, shift, work):
    """List the edges inside a tile."""
    words, present = work[0], work[1]
    row0, row1, col0, col1 = window
    words[:] = ~words.dtype.type(0)
    present[:] = 0
    for y in range(row0, row1):
        first = (y - row0) * unit
        for d in range(4):
            if (d > 0 and y + 1 == row1) or (d & 1 and not diagonal):
                continue
            west, east = int(d == 1), int(d % 3 == 0)
            width = col1 - col0 - west - east
            below, start = y + (d > 0), col0 + west
            beside = start - west + east
            at = first + west
            _fill_row(
                cells[y, start : start + width],
                cells[below, beside : beside + width],
                valid[y, start : start + width],
                valid[below, beside : beside + width],
                _rule_of(rule, d, y),
                words[d, unit + 1 + at : unit + 1 + at + width],
                present[at : at + width],
                4 * at + d,
                shift,
            )


@register_jitable
def _fill_row(a, b, here, there, rule, words, present, number, shift):
    word = words.dtype.type
    top, by = ~word(0), word(shift)
    keep = word(0) if shift == 0 else top
    bit = np.uint8(1 << (number & 3))
    for x in range(len(words)):
        both = here[x] & there[x]
        w = (word(weigh(a[x], b[x], rule)) << by) | (word(number + 4 * x) & keep)
        words[x] = w if both else top
        present[x] |= bit if both else np.uint8(0)


@register_jitable
def _read_bits(bits, valid, window, diagonal, place, unit, work):
    """Return how many edges the forest has in a tile, -1 if a bit is wrong, and the grid."""
    present, chosen = work[1], work[2]
    row0, row1, col0, col1 = window
    chosen[:] = 0
    count = edges = 0
    for y in range(row0, row1):
        first = (y - row0) * unit
        strange = 0
        for x in range(col1 - col0):
            have, can = bits[y, col0 + x], present[first + x]
            mine = have & can
            chosen[first + x] = mine
            count += (mine & 1) + (mine >> 1 & 1) + (mine >> 2 & 1) + (mine >> 3 & 1)
            edges += (can & 1) + (can >> 1 & 1) + (can >> 2 & 1) + (can >> 3 & 1)
            strange |= have & ~can
        if not strange:
            continue
        for x in range(col0, col1):
            odd = np.int64(bits[y, x]) & ~np.int64(present[first + x - col0])
            if odd and not _lead_out(odd, y, x, valid, window, diagonal, place):
                return -1, 0
    return count, edges


@register_jitable
def _lead_out(odd, y, x, valid, window, diagonal, place):
    """Whether all these bits lead from a cell with a value to other tiles."""
    _, row1, col0, col1 = window
    if odd > 15 or not valid[y, x]:
        return False
    for d in range(4):
        if not odd >> d & 1:
            continue
        if d & 1 and not diagonal:
            return False
        down, beside = y + (d > 0), x + (1 if d == 0 else d - 2)
        if down < row1 and col0 <= beside < col1:
            return False
        if place[0] + down >= place[2] or not 0 <= place[1] + beside < place[3]:
            return False
    return True


@register_jitable
def _open(valid, window, place, unit, work, vertex, size):
    """Number the cells that have neighbours in other tiles."""
    opened = work[10]
    opened[:] = False
    row0, row1, col0, col1 = window
    up, down = place[0] + row0 > 0, place[0] + row1 < place[2]
    left, right = place[1] + col0 > 0, place[1] + col1 < place[3]
    for y in range(row0, row1):
        whole = (up and y == row0) or (down and y == row1 - 1)
        step = 1 if whole else max(col1 - col0 - 1, 1)
        for x in range(col0, col1, step):
            out = whole or (left and x == col0) or (right and x == col1 - 1)
            if out and valid[y, x]:
                opened[(y - row0) * unit + x - col0] = True
                vertex[y, x] = size
                size += 1
    return size


@register_jitable
def _check(window, place, unit, shift, work, vertex, out, count, weights, taken):
    """Run all rounds of a tile.

    Returns the number of edges listed, and of the forest's edges so far; -1 if it lacks one.
    """
    words, _, chosen, label, home, _, _, _, _, active, opened, picks = work
    n, pad = unit * unit, unit + 1
    for c in range(n):
        label[pad + c] = c
        active[c] = c
    picked, roots = _rounds(unit, shift, work, n)
    for k in range(picked):
        e = np.int64(picks[k])
        if not chosen[e >> 2] >> np.uint8(e & 3) & 1:
            return count, _NONE
        weights[taken] = words[e & 3, pad + (e >> 2)] >> words.dtype.type(shift)
        taken += 1
    for c in range(n):
        home[c] = label[pad + c]
        opened[c] = False
    picked, _ = _rounds(unit, shift, work, roots)
    row0, _, col0, _ = window
    keys, ids, us, vs, tree, strange = out
    for k in range(picked):
        e = np.int64(picks[k])
        cell, d = e >> 2, e & 3
        key = words[d, pad + cell] >> words.dtype.type(shift)
        u, v = home[cell], home[cell + (1 if d == 0 else unit + d - 2)]
        y, x = row0 + cell // unit, col0 + cell % unit
        keys[count] = key
        ids[count] = 4 * ((place[0] + y) * place[3] + place[1] + x) + d
        us[count] = vertex[row0 + u // unit, col0 + u % unit]
        vs[count] = vertex[row0 + v // unit, col0 + v % unit]
        mine = chosen[cell] >> np.uint8(d) & 1 != 0
        tree[count] = mine
        strange[count] = _NONE if mine else ids[count]
        count += 1
        if mine:
            weights[taken] = key
            taken += 1
    return count, taken


@register_jitable
def _rounds(unit, shift, work, roots):
    """Run rounds until no component can pick; return the number of picks and of components."""
    words, present, _, label, _, least, best, number, parent, active, opened, picks = work
    n, pad = unit * unit, unit + 1
    labels = label[pad : pad + n]
    top = ~words.dtype.type(0)
    found = 0
    while roots > 1:
        _least_of_cells(words, label, unit, least)
        _least_of_components(labels, least, active, roots, best)
        if shift:
            few = words.dtype.type((1 << shift) - 1)
            for k in range(roots):
                r = active[k]
                number[r] = np.int32(best[r] & few) if best[r] != top else _NONE
        else:
            _number_ties(words, present, labels, unit, least, best, number, active, roots)
        before = found
        for k in range(roots):
            c = active[k]
            e = number[c]
            parent[c] = c
            if opened[c] or e == _NONE:
                continue
            cell, d = np.int64(e >> 2), e & 3
            to = cell + (1 if d == 0 else unit + d - 2)
            other = labels[cell] ^ labels[to] ^ c
            if c < other and number[other] == e and not opened[other]:
                continue  # both picked this edge: the lesser one remains a root
            parent[c] = other
            picks[found] = e
            found += 1
        if found == before:
            break
        still = 0
        for k in range(roots):
            c = active[k]
            root = c
            while parent[root] != root:
                parent[root] = parent[parent[root]]
                root = parent[root]
            parent[c] = root
            active[still] = c
            still += root == c
        roots = still
        for c in range(n):
            labels[c] = parent[labels[c]]
    return found, roots


@register_jitable
def _least_of_cells(words, label, unit, least):
    """Find the least of the eight edges of each cell that leave its component."""
    n, pad = len(least), unit + 1
    own = label[pad : pad + n]
    after, lower = label[pad + 1 : pad + 1 + n], label[pad + unit : pad + unit + n]
    lower_left = label[pad + unit - 1 : pad + unit - 1 + n]
    lower_right = label[pad + unit + 1 : pad + unit + 1 + n]
    before, upper = label[pad - 1 : pad - 1 + n], label[1 : 1 + n]
    upper_left, upper_right = label[:n], label[2 : 2 + n]
    e, sw, s, se = (
        words[0, pad : pad + n],
        words[1, pad : pad + n],
        words[2, pad : pad + n],
        words[3, pad : pad + n],
    )
    w, ne = words[0, pad - 1 : pad - 1 + n], words[1, 2 : 2 + n]
    north, nw = words[2, 1 : 1 + n], words[3, :n]
    top = ~words.dtype.type(0)
    for c in range(n):
        at = own[c]
        word = e[c] if after[c] != at else top
        word = min(word, sw[c] if lower_left[c] != at else top)
        word = min(word, s[c] if lower[c] != at else top)
        word = min(word, se[c] if lower_right[c] != at else top)
        word = min(word, w[c] if before[c] != at else top)
        word = min(word, ne[c] if upper_right[c] != at else top)
        word = min(word, north[c] if upper[c] != at else top)
        least[c] = min(word, nw[c] if upper_left[c] != at else top)


@register_jitable
def _least_of_components(labels, least, active, roots, best):
    """Find the least word of each component."""
    n, top = len(least), ~least.dtype.type(0)
    if roots == n:
        best[:] = least
        return
    for k in range(roots):
        best[active[k]] = top
    if roots > n // 16:
        for c in range(n):
            r = labels[c]
            best[r] = min(best[r], least[c])
        return
    # In large components, neighbours mostly are in the same one.
    run, word = labels[0], top
    for c in range(n):
        r = labels[c]
        if r != run:
            best[run] = min(best[run], word)
            run, word = r, top
        word = min(word, least[c])
    best[run] = min(best[run], word)


@register_jitable
def _number_ties(words, present, labels, unit, least, best, number, active, roots):
    """Find the least number of the edges that have the least weight of each component."""
    pad = unit + 1
    for k in range(roots):
        number[active[k]] = _NONE
    for c in range(len(least)):
        r = labels[c]
        if least[c] != best[r]:
            continue
        # The eight edges in the order of their numbers.
        for k in range(8):
            d = 3 - k if k < 4 else k - 4
            step = 1 if d == 0 else unit + d - 2
            lower = c - step if k < 4 else c
            if lower < 0 or not present[lower] >> np.uint8(d) & 1:
                continue
            if labels[lower + step if k >= 4 else lower] == r:
                continue
            if words[d, pad + lower] == best[r]:
                e = np.int32(4 * lower + d)
                if number[r] == _NONE or e < number[r]:
                    number[r] = e
                break


@register_jitable
def _between(cells, valid, bits, rule, diagonal, place, unit, out, count, vertex, weights, taken):
    """List the edges between tiles; return whether they are right, and the numbers."""
    rows, cols = cells.shape
    keys, ids, us, vs, tree, strange = out
    edges = 0
    for y in range(rows):
        last = y % unit == unit - 1
        step = 1 if last or unit < 3 else unit - 1
        x = 0
        while x < cols:
            for d in range(4):
                down, beside = y + (d > 0), x + (1 if d == 0 else d - 2)
                if down >= rows or beside < 0 or beside >= cols or (d & 1 and not diagonal):
                    continue
                if down // unit == y // unit and beside // unit == x // unit:
                    continue
                mine = bits[y, x] >> np.uint8(d) & 1 != 0
                if not (valid[y, x] and valid[down, beside]):
                    if mine:
                        return False, 0, 0, 0
                    continue
                key = weigh(cells[y, x], cells[down, beside], _rule_of(rule, d, y))
                keys[count] = key
                ids[count] = 4 * ((place[0] + y) * place[3] + place[1] + x) + d
                us[count], vs[count] = vertex[y, x], vertex[down, beside]
                tree[count] = mine
                strange[count] = _NONE if mine else ids[count]
                count += 1
                edges += 1
                if mine:
                    weights[taken] = key
                    taken += 1
            # Only the first and the last column of each tile, unless the row is its last.
            x += step if step == 1 or x % unit == 0 else 1
    return True, count, taken, edges
