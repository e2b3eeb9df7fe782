"""Compiled proof of tiles: Boruvka's rounds over all their edges must pick edges of the forest.

A tile's cells that have neighbours outside of it are *open*: not all of their edges are seen, so
their components never pick. Every other component picks its least edge, which is in the minimum
spanning forest because all edges that leave the component are seen (the cut property). So no two
open cells are ever joined, and in the end each is the root of its own component. Rounds without
open cells then pick the *candidates*: the spanning forest of the edges left. An edge that is
neither picked nor a candidate is the largest of a cycle. `forest` explains what this proves.

The first round reads the edges of cells, in loops that the compiler vectorises, and so does the
test that drops the largest edges of triangles. There a byte holds edges of a cell: bits 0 to 3 its
forward edges, bits 4 to 7 the forward edges of neighbors that lead to it. Few edges are left then:
later rounds read a list.

An edge of a tile has the number ``4 * cell + direction``. Where they fit, its weight and number
form one word, so that the least word is the least edge.
"""

from __future__ import annotations

import numba
import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros
from numba.extending import overload, register_jitable

from ...compiled import jit

_NONE = -1


def weigh(a, b, rule):
    """Return the weight of the edge between two operands as an unsigned number in its order."""
    raise RuntimeError("for compiled code only")


@overload(weigh)
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
    n, padded = unit * unit, words.shape[1]
    step = np.zeros(256, np.int32)
    for d in range(4):
        step[1 << d], step[16 << d] = _step(d, unit), -_step(d, unit)
    return (
        words,  # by direction
        np.empty(-(-n // 8) * 8, np.uint8),  # the edges of each cell, then those that are left
        np.zeros(padded, np.uint8),  # those of the forest
        (np.zeros(padded, np.uint8), np.empty(n, np.uint8), step),  # see `_first_round`
        np.zeros(padded, np.int32),  # label after the first round
        (  # the edges that are left: number, ends, and word
            np.empty(4 * n, np.int32),
            np.empty(4 * n, np.int32),
            np.empty(4 * n, np.int32),
            np.empty(4 * n, words.dtype),
        ),
        np.empty(n, words.dtype),  # least word of each component
        np.empty(n, np.int32),  # place of that edge in the list
        np.empty(n, np.int32),  # parent
        np.empty(n, np.int32),  # parent, once no cell is open
        np.empty(n, np.int32),  # active components
        np.empty(n, np.bool_),  # open
        np.empty(n, np.int32),  # picks
    )


@register_jitable
def _fill(cells, valid, window, rule, diagonal, unit, shift, work):
    """List the edges inside a tile."""
    words, present = work[0], work[1]
    row0, row1, col0, col1 = window
    width = col1 - col0
    words[:] = ~words.dtype.type(0)
    present[:] = 0
    for y in range(row0, row1):
        cell = (y - row0) * unit
        at = unit + 1 + cell
        a, here = cells[y, col0:col1], valid[y, col0:col1]
        bits, to = present[cell : cell + width], words[0, at : at + width]
        of_step = _rule_of(rule, 0, y)
        for x in range(width - 1):
            both = here[x] & here[x + 1]
            key = weigh(a[x], a[x + 1], of_step)
            to[x] = _word(to, key, both, 4 * (cell + x), shift)
            bits[x] = both
        if y + 1 == row1:
            break
        b, there = cells[y + 1, col0:col1], valid[y + 1, col0:col1]
        to, of_step = words[2, at : at + width], _rule_of(rule, 2, y)
        for x in range(width):
            both = here[x] & there[x]
            to[x] = _word(to, weigh(a[x], b[x], of_step), both, 4 * (cell + x) + 2, shift)
            bits[x] |= np.uint8(both) << np.uint8(2)
        if not diagonal:
            continue
        to, of_step = words[1, at : at + width], _rule_of(rule, 1, y)
        for x in range(1, width):
            both = here[x] & there[x - 1]
            to[x] = _word(to, weigh(a[x], b[x - 1], of_step), both, 4 * (cell + x) + 1, shift)
            bits[x] |= np.uint8(both) << np.uint8(1)
        to, of_step = words[3, at : at + width], _rule_of(rule, 3, y)
        for x in range(width - 1):
            both = here[x] & there[x + 1]
            to[x] = _word(to, weigh(a[x], b[x + 1], of_step), both, 4 * (cell + x) + 3, shift)
            bits[x] |= np.uint8(both) << np.uint8(3)


@register_jitable
def _word(words, key, present, number, shift):
    """Return the word of an edge: its weight, and its number where both fit."""
    word = words.dtype.type
    low = word(number) & (word(0) if shift == 0 else ~word(0))
    return (word(key) << word(shift)) | low if present else ~word(0)


@register_jitable
def _read_bits(bits, valid, window, diagonal, place, unit, work):
    """Return how many edges the forest has in a tile, -1 if a bit is wrong, and the grid."""
    present, chosen = work[1], work[2]
    row0, row1, col0, col1 = window
    width = col1 - col0
    chosen[:] = 0
    count = edges = 0
    for y in range(row0, row1):
        first = (y - row0) * unit
        have, can = bits[y, col0:col1], present[first : first + width]
        mine = chosen[unit + 1 + first : unit + 1 + first + width]
        strange, ours, grid = np.uint8(0), np.uint32(0), np.uint32(0)  # narrow, for vectors
        for x in range(width):
            mine[x] = have[x] & can[x]
            ours = np.uint32(ours + _ones(mine[x]))
            grid = np.uint32(grid + _ones(can[x]))
            strange |= have[x] & ~can[x]
        count, edges = count + ours, edges + grid
        if not strange:
            continue
        for x in range(col0, col1):
            odd = np.int64(bits[y, x]) & ~np.int64(present[first + x - col0])
            if odd and not _lead_out(odd, y, x, valid, window, diagonal, place):
                return -1, 0
    return count, edges


@register_jitable
def _ones(bits):
    """Count the ones of four bits."""
    pairs = bits - (bits >> 1 & 5)
    return (pairs & 3) + (pairs >> 2)


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
    opened = work[11]
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
    words, present, chosen, _, label, edges, _, _, parent, above, active, opened, picks = work
    pad = unit + 1
    taken, roots = _first_round(unit, shift, work, weights, taken)
    if taken < 0:
        return count, _NONE
    _drop(words, label, unit, present)
    left = _list(words, label, unit, present, edges)
    for k in range(roots):
        above[active[k]] = active[k]
    picked, left, still = _rounds(shift, work, parent, left, roots)
    for k in range(picked):
        e = np.int64(picks[k])
        if not chosen[pad + (e >> 2)] >> np.uint8(e & 3) & 1:
            return count, _NONE
        weights[taken] = words[e & 3, pad + (e >> 2)] >> words.dtype.type(shift)
        taken += 1
    opened[:] = False
    picked, _, _ = _rounds(shift, work, above, left, still)
    row0, _, col0, _ = window
    keys, ids, us, vs, tree, strange = out
    for k in range(picked):
        e = np.int64(picks[k])
        cell, d = e >> 2, e & 3
        key = words[d, pad + cell] >> words.dtype.type(shift)
        u, v = _root(parent, cell), _root(parent, cell + _step(d, unit))
        y, x = row0 + cell // unit, col0 + cell % unit
        keys[count] = key
        ids[count] = 4 * ((place[0] + y) * place[3] + place[1] + x) + d
        us[count] = vertex[row0 + u // unit, col0 + u % unit]
        vs[count] = vertex[row0 + v // unit, col0 + v % unit]
        mine = chosen[pad + cell] >> np.uint8(d) & 1 != 0
        tree[count] = mine
        strange[count] = _NONE if mine else ids[count]
        count += 1
        if mine:
            weights[taken] = key
            taken += 1
    return count, taken


@register_jitable
def _step(direction, unit):
    """How far the upper end of an edge is from the lower one."""
    return 1 if direction == 0 else unit + direction - 2


@register_jitable
def _first_round(unit, shift, work, weights, taken):
    """Let every cell pick, and list the weights of these edges.

    Returns how many weights are listed, -1 if the forest lacks an edge, and how many components
    there are.
    """
    words, _, chosen, (first, picked, step), label, _, least, _, parent, _, active, opened, _ = work
    n, pad = unit * unit, unit + 1
    _pick(words, opened, unit, least, first)
    own, e, sw = first[pad : pad + n], first[pad + 1 : pad + 1 + n], first[2 * unit : 2 * unit + n]
    s, se = first[pad + unit : pad + unit + n], first[2 * pad : 2 * pad + n]
    mine, west = chosen[pad : pad + n], chosen[unit : unit + n]
    ne, north, nw = chosen[2 : 2 + n], chosen[1 : 1 + n], chosen[:n]
    wrong = np.uint8(0)
    for c in range(n):
        # If both ends pick an edge, the lesser one remains a root.
        both = (e[c] >> 4 & 1) | (sw[c] >> 4 & 2) | (s[c] >> 4 & 4) | (se[c] >> 4 & 8)
        picked[c] = own[c] & ~both
        have = mine[c] | (west[c] & 1 | ne[c] & 2 | north[c] & 4 | nw[c] & 8) << 4
        wrong |= own[c] & ~have
    if wrong:
        return _NONE, 0
    for c in range(n):
        weights[taken] = least[c] >> words.dtype.type(shift)
        parent[c] = c + step[picked[c]]
        taken += picked[c] != 0
    for c in range(n - 1, -1, -1):
        parent[c] = parent[parent[c]]
    roots = 0
    for c in range(n):
        root = _root(parent, c)
        parent[c] = label[pad + c] = root
        active[roots] = c
        roots += root == c
    return taken, roots


@register_jitable
def _pick(words, opened, unit, least, first):
    """Find the least of the eight edges of each cell, and its bit; 0 if the cell does not pick."""
    n, pad = unit * unit, unit + 1
    nw, north = words[3, :n], words[2, 1 : 1 + n]
    ne, w = words[1, 2 : 2 + n], words[0, pad - 1 : pad - 1 + n]
    e, sw = words[0, pad : pad + n], words[1, pad : pad + n]
    s, se = words[2, pad : pad + n], words[3, pad : pad + n]
    own, top = first[pad : pad + n], ~words.dtype.type(0)
    for c in range(n):
        # In the order of their numbers: of equal words, the first is the least edge.
        word, bit = nw[c], np.int32(128)
        bit = np.int32(64) if north[c] < word else bit
        word = min(north[c], word)
        bit = np.int32(32) if ne[c] < word else bit
        word = min(ne[c], word)
        bit = np.int32(16) if w[c] < word else bit
        word = min(w[c], word)
        bit = np.int32(1) if e[c] < word else bit
        word = min(e[c], word)
        bit = np.int32(2) if sw[c] < word else bit
        word = min(sw[c], word)
        bit = np.int32(4) if s[c] < word else bit
        word = min(s[c], word)
        bit = np.int32(8) if se[c] < word else bit
        word = min(se[c], word)
        least[c] = word
        own[c] = 0 if opened[c] | (word == top) else bit


@register_jitable
def _drop(words, label, unit, present):
    """Drop edges inside components, and those that weigh most in a triangle of cells.

    A square of cells ``a b`` above ``c d`` has four triangles. Missing edges are above all others.
    """
    n, pad = unit * unit, unit + 1
    up, down = pad - unit, pad + unit
    e, e_before = words[0, pad : pad + n], words[0, pad - 1 : pad - 1 + n]
    e_below, e_left = words[0, down : down + n], words[0, down - 1 : down - 1 + n]
    sw, sw_after = words[1, pad : pad + n], words[1, pad + 1 : pad + 1 + n]
    s, s_after = words[2, pad : pad + n], words[2, pad + 1 : pad + 1 + n]
    s_before, s_up = words[2, pad - 1 : pad - 1 + n], words[2, up : up + n]
    se, se_before = words[3, pad : pad + n], words[3, pad - 1 : pad - 1 + n]
    sw_up, s_right = words[1, up + 1 : up + 1 + n], words[2, up + 1 : up + 1 + n]
    se_up = words[3, up : up + n]
    own, after, lower = label[pad : pad + n], label[pad + 1 : pad + 1 + n], label[down : down + n]
    lower_left, lower_right = label[down - 1 : down - 1 + n], label[down + 1 : down + 1 + n]
    for c in range(n):
        # Sides of a square belong to two triangles of it, and to two of the next; diagonals to two.
        east = min(max(s[c], sw_after[c]), max(s_after[c], se[c]))
        east = min(east, max(s_up[c], se_up[c]), max(sw_up[c], s_right[c]))
        south = min(max(e[c], sw_after[c]), max(e_below[c], se[c]))
        south = min(south, max(e_before[c], se_before[c]), max(sw[c], e_left[c]))
        south_west = min(max(e_before[c], s_before[c]), max(s[c], e_left[c]))
        south_east = min(max(e[c], s_after[c]), max(s[c], e_below[c]))
        left = np.uint8((e[c] <= east) & (after[c] != own[c]))
        left |= np.uint8((sw[c] <= south_west) & (lower_left[c] != own[c])) << np.uint8(1)
        left |= np.uint8((s[c] <= south) & (lower[c] != own[c])) << np.uint8(2)
        left |= np.uint8((se[c] <= south_east) & (lower_right[c] != own[c])) << np.uint8(3)
        present[c] &= left


@register_jitable
def _list(words, label, unit, present, edges):
    """List the edges that are left, in the order of their numbers; return how many there are."""
    numbers, us, vs, listed = edges
    pad, count = unit + 1, 0
    eights = present.view(np.uint64)
    for k in range(eights.size):
        bits = eights[k]
        while bits:
            bit = np.int64(trailing_zeros(bits))
            bits &= bits - np.uint64(1)
            cell, d = 8 * k + (bit >> 3), bit & 7
            numbers[count], listed[count] = 4 * cell + d, words[d, pad + cell]
            us[count], vs[count] = label[pad + cell], label[pad + cell + _step(d, unit)]
            count += 1
    return count


@register_jitable
def _rounds(shift, work, parent, left, roots):
    """Run rounds over the list until no component can pick.

    Returns the number of picks, and of edges and of components that are left.
    """
    _, _, _, _, _, edges, least, place, _, _, active, opened, picks = work
    numbers, us, vs, _ = edges
    top, found = ~least.dtype.type(0), 0
    while True:
        for k in range(roots):
            least[active[k]], place[active[k]] = top, _NONE
        if shift:
            count = _lower_words(edges, left, parent, least, place, active, roots, shift)
        else:
            count = _lower_weights(edges, left, parent, least, place)
        left, before = count, found
        for k in range(roots):
            c = active[k]
            stays = opened[c] | (place[c] == _NONE)
            at = 0 if stays else place[c]
            other = c if stays else us[at] ^ vs[at] ^ c
            stays |= (c < other) & (place[other] == at) & (not opened[other])
            parent[c] = c if stays else other
            picks[found] = numbers[at]
            found += 1 - np.int64(stays)
        if found == before:
            return found, left, roots
        still = 0
        for k in range(roots):
            c = active[k]
            parent[c] = _root(parent, c)
            active[still] = c
            still += parent[c] == c
        roots = still


@register_jitable
def _lower_words(edges, left, parent, least, place, active, roots, shift):
    """Find the least edge of each component, and drop the edges inside of one.

    An edge's place in the list decides like its number, and so stands for it in the words.
    """
    numbers, us, vs, words = edges
    word, top = words.dtype.type, ~words.dtype.type(0)
    few = (word(1) << word(shift)) - word(1)
    count = 0
    # In two loops, each without a branch: the second one waits for its own stores.
    for k in range(left):
        u, v = parent[us[k]], parent[vs[k]]
        numbers[count], us[count], vs[count] = numbers[k], u, v
        words[count] = words[k] & ~few | word(count)
        count += u != v
    for k in range(count):
        u, v = us[k], vs[k]
        least[u] = min(words[k], least[u])
        least[v] = min(words[k], least[v])
    for k in range(roots):
        c = active[k]
        place[c] = np.int32(least[c] & few) if least[c] != top else _NONE
    return count


@register_jitable
def _lower_weights(edges, left, parent, least, place):
    """As `_lower_words`, of weights that leave no room for numbers."""
    numbers, us, vs, weights = edges
    count = 0
    for k in range(left):
        u, v = parent[us[k]], parent[vs[k]]
        numbers[count], us[count], vs[count], weights[count] = numbers[k], u, v, weights[k]
        for c in (u, v):
            old, was = least[c], place[c]
            # Of equal weights the first is the least edge. A weight may be all ones.
            less = (u != v) & ((weights[k] < old) | (was == _NONE))
            least[c] = weights[k] if less else old
            place[c] = count if less else was
        count += u != v
    return count


@register_jitable
def _root(parent, c):
    """Find the root of a component, halving the path on the way."""
    while parent[c] != c:
        parent[c] = parent[parent[c]]
        c = parent[c]
    return c


@register_jitable
def _between(cells, valid, bits, rule, diagonal, place, unit, out, count, vertex, weights, taken):
    """List the edges between tiles; return whether they are right, and the numbers."""
    (rows, cols), edges = cells.shape, 0
    keys, ids, us, vs, tree, strange = out
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
