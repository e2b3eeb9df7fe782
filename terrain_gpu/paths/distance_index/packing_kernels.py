"""Kernels that pack the entries of a tile, and unpack them."""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ..cost.edges import infinity_of, join


@jit
def mark_kept(way, entries, symmetric, square, turned, kept):
    """Mark the distances of a tile that must be kept.

    The distance from b to a is left out, if for another rim cell c the distances from b to c and
    from c to a join to at most as much, and both come before it in this order: by distance, then by
    how far apart the numbers of the two cells are. So no two distances are left out because of each
    other, whatever is equal or 0.

    Parameters
    ----------
    way
        From `edges.joining`.
    entries
        See `rim.entries_of`.
    square, turned
        Work space, rim cells x rim cells: distances by their first and by their last cell.
    kept
        bool, for each distance; receives the marks.
    """
    infinity, count, k = infinity_of(entries), len(square), 0
    for b in range(count):
        for a in range(b if symmetric else count):
            # A cell is not on the way from itself: no test for c in the loops below.
            value = infinity if a == b else entries[k]
            square[b, a] = turned[a, b] = value
            if symmetric:
                square[a, b] = turned[b, a] = value
            k += 1
        square[b, b] = turned[b, b] = infinity
    k = 0
    for b in range(count):
        ahead = square[b]
        for a in range(b if symmetric else count):
            whole, behind = ahead[a], turned[a]
            near, far = min(a, b), max(a, b) + 1
            kept[k] = whole < infinity and not (
                _any_as_short(way, ahead[near:far], behind[near:far], whole)
                or _any_of_shorter(way, ahead[:near], behind[:near], whole)
                or _any_of_shorter(way, ahead[far:], behind[far:], whole)
            )
            k += 1


@register_jitable
def _any_as_short(way, ahead, behind, whole):
    """Whether two distances join to at most `whole`."""
    found = False
    for c in range(len(ahead)):  # without an early end, it is vectorised
        found |= join(way, ahead[c], behind[c]) <= whole
    return found


@register_jitable
def _any_of_shorter(way, ahead, behind, whole):
    """Whether two distances that are less than `whole` join to at most that."""
    found = False
    for c in range(len(ahead)):
        x, y = ahead[c], behind[c]
        found |= (join(way, x, y) <= whole) & (x < whole) & (y < whole)
    return found


@jit
def pack(words, kept, packed):
    """Pack a tile: bits of kept distances, then their differences and those of steps, by bytes.

    Parameters
    ----------
    words
        The entries as unsigned integers.
    kept
        From `mark_kept`.
    packed
        uint8, see `packed_bytes`; receives the tile.
    """
    kind, ways, item = words.dtype.type, len(kept), words.itemsize
    packed[:] = 0
    count = len(words) - ways
    for k in range(ways):
        if kept[k]:
            packed[k >> 3] |= np.uint8(1 << (k & 7))
            count += 1
    before, place = kind(0), (ways + 7) // 8
    for k in range(len(words)):
        if k < ways and not kept[k]:
            continue
        step = kind(words[k] - before)
        before = words[k]
        # The sign goes to the lowest bit, so that small differences have zeros above.
        sign = kind(step >> kind(8 * item - 1))
        step = kind(kind(step << kind(1)) ^ kind(kind(0) - sign))
        for byte in range(item):
            packed[place + byte * count] = np.uint8(step >> kind(8 * byte))
        place += 1


@jit
def unpack(packed, kept, steps, words):
    """Inverse of `pack`: the distances that are kept and so many steps, one after the other.

    Returns the number of distances.
    """
    kind, ways, item = words.dtype.type, len(kept), words.itemsize
    found = 0
    for k in range(ways):
        kept[k] = (packed[k >> 3] >> (k & 7)) & 1
        found += kept[k]
    count, place = found + steps, (ways + 7) // 8
    values = words[:count]
    values[:] = 0
    for byte in range(item):
        plane = packed[place + byte * count : place + (byte + 1) * count]
        for k in range(len(plane)):
            values[k] |= kind(kind(plane[k]) << kind(8 * byte))
    before = kind(0)
    for k in range(count):
        step = values[k]
        step = kind(kind(step >> kind(1)) ^ kind(kind(0) - kind(step & kind(1))))
        before = kind(before + step)
        values[k] = before
    return found


@jit
def spread(values, kept, entries):
    """The entries of a tile from those that are kept; others are infinite."""
    infinity, place = infinity_of(entries), 0
    for k in range(len(kept)):
        entries[k] = values[place] if kept[k] else infinity
        place += kept[k]
    for k in range(len(kept), len(entries)):
        entries[k] = values[place]
        place += 1


@jit
def link_ends(values, kept, symmetric, ends, others, ways):
    """List the kept distances of a tile by their first cell; in both directions if symmetric."""
    ends[:] = 0
    k, count = 0, len(ends) - 1
    for b in range(count):
        for a in range(b if symmetric else count):
            if kept[k]:
                ends[b + 1] += 1
                if symmetric:
                    ends[a + 1] += 1
            k += 1
    for b in range(count):
        ends[b + 1] += ends[b]
    free = ends.copy()
    k = place = 0
    for b in range(count):
        for a in range(b if symmetric else count):
            if kept[k]:
                value = values[place]
                place += 1
                others[free[b]], ways[free[b]] = a, value
                free[b] += 1
                if symmetric:
                    others[free[a]], ways[free[a]] = b, value
                    free[a] += 1
            k += 1
