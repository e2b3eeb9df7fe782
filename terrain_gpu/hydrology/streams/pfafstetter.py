"""Pfafstetter codes of links (K. L. Verdin, J. P. Verdin 1999, J. Hydrology 218)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...compiled import jit
from ...store.paged import Pages, touch
from .link_kernels import columns_of, comes_before

if TYPE_CHECKING:
    from .links import Links

_I8 = np.dtype(np.int64)


class StemColumns(NamedTuple):
    """Columns of links, and the pages of their table.

    Attributes
    ----------
    child, sibling
        A tributary of the link, and the next tributary of the same link, as row + 1; 0 for none.
    node
        The smallest basin of the link.
    start, end, first, last
        For the lowest link of a stem: the range of the stem in `LaidColumns`, and the range of its
        tributaries in `TributaryColumns`.
    """

    child: Any
    sibling: Any
    node: Any
    start: Any
    end: Any
    first: Any
    last: Any
    pages: Pages


class LaidColumns(NamedTuple):
    """The links of all stems, each stem from its lowest link up along main links."""

    link: Any
    pages: Pages


class TributaryColumns(NamedTuple):
    """The tributaries of stems, from the outlet up; those of one junction, the smallest first.

    Attributes
    ----------
    link, place
        The lowest link of the tributary, and the index in `LaidColumns` of the link it flows into.
    """

    link: Any
    place: Any
    pages: Pages


class BasinColumns(NamedTuple):
    """Basins. The code is 16 times the index of the enclosing basin (or -1), plus its digit."""

    code: Any
    pages: Pages


class PartColumns(NamedTuple):
    """Parts of stems still to be divided.

    Attributes
    ----------
    start, end, first, last
        The range of the part in `LaidColumns`, and of its tributaries in `TributaryColumns`.
    basin
        The basin that they form, -1 for none.
    """

    start: Any
    end: Any
    first: Any
    last: Any
    basin: Any
    pages: Pages


def _type(kind: Any) -> np.dtype:
    return np.dtype([(name, _I8) for name in kind._fields[:-1]])


_KINDS = (
    (StemColumns, 1),
    (LaidColumns, 1),
    (TributaryColumns, 1),
    (BasinColumns, 2),
    (PartColumns, 2),
)
"""The tables, and the largest number of rows in each per link."""
BYTES = sum(_type(kind).itemsize * share for kind, share in _KINDS)
"""Bytes per link while codes are computed."""


class Codes:
    """The codes of links: the digits of nested basins, that of the largest basin first.

    A network, which is everything that flows to one outlet, is divided at the four tributaries of
    its main stem with the largest sums. These get the digits 2, 4, 6 and 8 from the outlet up. The
    areas that drain to the main stem below, between and above them get 1, 3, 5, 7 and 9. Each part
    that has tributaries is divided in the same way; if it has fewer than four, fewer digits are
    used. A network of one link has the code 1.

    Of equal sums, the one whose last cell comes first in row-major order counts as larger.
    """

    def __init__(self, links: Links) -> None:
        self._paged = paged = links.paged
        tables = [paged.table(share * links.count, _type(kind)) for kind, share in _KINDS]
        of = [columns_of(kind, table) for (kind, _), table in zip(_KINDS, tables, strict=True)]
        self._stems, laid, tributaries, self._basins, parts = of
        paged.run(list_tributaries, links.links, self._stems, np.zeros(1, np.int64))
        state = np.array([0, -1, 0, 0])
        paged.run(lay_stems, links.links, self._stems, laid, tributaries, state)
        state = np.zeros(16, np.int64)
        paged.run(divide, links.links, self._stems, laid, tributaries, parts, self._basins, state)

    def of(self, links: np.ndarray) -> list[str]:
        """Return the codes of some links."""
        size = 16 * len(links)
        while True:
            digits, ends = np.empty(size, np.uint8), np.empty(len(links), np.int64)
            state = np.array([0, -1, 0])
            self._paged.run(spell, self._stems, self._basins, links, digits, ends, state)
            if state[2] <= size:
                break
            size *= 2
        text = digits[: state[2]].tobytes().decode()
        starts = [0, *ends[:-1].tolist()]
        return [text[a:b][::-1] for a, b in zip(starts, ends.tolist(), strict=True)]


@jit
def list_tributaries(links, stems, state):
    """List the tributaries of each link: all that flow in but the main one.

    `state`: the next row.
    """
    while state[0] < len(stems.child):
        if links.pages.left[0] <= 0:
            return False
        at = state[0]
        state[0] += 1
        touch(links.pages, at)
        if links.topological[at] == 0 or links.down[at] < 0:  # not a link, or an outlet
            continue
        to = links.down[at]
        touch(links.pages, to)
        if links.main[to] != at:
            touch(stems.pages, at)
            touch(stems.pages, to)
            stems.sibling[at] = stems.child[to]
            stems.child[to] = at + 1
    return True


@jit
def lay_stems(links, stems, laid, tributaries, state):
    """List the links and tributaries of each stem, from its lowest link up along main links.

    `state`: the row of a lowest link; the next link of its stem, or -1; and the numbers of links
    and tributaries listed.
    """
    at, here, place, count = state
    while at < len(stems.child):
        if links.pages.left[0] <= 0:
            state[0], state[1], state[2], state[3] = at, here, place, count
            return False
        touch(links.pages, at)
        touch(stems.pages, at)
        if here < 0:
            down = links.down[at]
            if links.topological[at] > 0 and down >= 0:
                touch(links.pages, down)
            if links.topological[at] == 0 or (down >= 0 and links.main[down] == at):
                at += 1
                continue
            here, stems.start[at], stems.first[at] = at, place, count
        touch(links.pages, here)
        touch(stems.pages, here)
        touch(laid.pages, place)
        laid.link[place] = here
        begin, one = count, stems.child[here] - 1
        while one >= 0:
            touch(stems.pages, one)
            touch(links.pages, one)
            k = count
            touch(tributaries.pages, k)
            while k > begin and comes_before(links, tributaries.link[k - 1], one):
                tributaries.link[k] = tributaries.link[k - 1]
                k -= 1
            tributaries.link[k], tributaries.place[count] = one, place
            count += 1
            one = stems.sibling[one] - 1
        place += 1
        here = links.main[here]
        if here < 0:
            stems.end[at], stems.last[at] = place, count
            at += 1
    return True


_POP, _NAME, _CHOOSE = range(3)


@jit
def push(parts, depth, part, basin):
    touch(parts.pages, depth)
    parts.start[depth], parts.end[depth] = part[0], part[1]
    parts.first[depth], parts.last[depth] = part[2], part[3]
    parts.basin[depth] = basin


@jit
def add_basin(basins, count, basin, digit):
    touch(basins.pages, count)
    basins.code[count] = basin * 16 + digit


@jit
def divide(links, stems, laid, tributaries, parts, basins, state):
    """Divide networks into basins, and these into smaller ones.

    `state`: [0] the row of the next outlet, [1] the number of parts still to be divided, [2] the
    number of basins, [3] the step in progress, [4:8] its part, [8] its basin, [9] the next link or
    tributary of the part, [10] the number of chosen tributaries, [11:15] these tributaries.
    """
    chosen = state[11:15]
    while True:
        if links.pages.left[0] <= 0:
            return False
        if state[3] == _POP:
            if state[1] == 0:
                at = state[0]
                if at == len(stems.child):
                    return True
                state[0] += 1
                touch(links.pages, at)
                if links.topological[at] > 0 and links.down[at] < 0:
                    touch(stems.pages, at)
                    part = stems.start[at], stems.end[at], stems.first[at], stems.last[at]
                    push(parts, 0, part, -1)
                    state[1] = 1
                continue
            state[1] -= 1
            k = state[1]
            touch(parts.pages, k)
            state[4], state[5], state[6] = parts.start[k], parts.end[k], parts.first[k]
            state[7], state[8], state[10] = parts.last[k], parts.basin[k], 0
            if state[6] < state[7]:
                state[3], state[9] = _CHOOSE, state[6]
                continue
            if state[8] < 0:
                add_basin(basins, state[2], -1, 1)
                state[8] = state[2]
                state[2] += 1
            state[3], state[9] = _NAME, state[4]
        elif state[3] == _NAME:
            if state[9] == state[5]:
                state[3] = _POP
                continue
            touch(laid.pages, state[9])
            at = laid.link[state[9]]
            touch(stems.pages, at)
            stems.node[at] = state[8]
            state[9] += 1
        elif state[9] < state[7]:
            choose(links, tributaries, state, chosen)
            state[9] += 1
        else:
            split(stems, tributaries, parts, basins, state, chosen)
            state[3] = _POP


@jit
def choose(links, tributaries, state, chosen):
    """Keep a tributary if it is among the four largest so far; they stay in order."""
    one = state[9]
    touch(tributaries.pages, one)
    link = tributaries.link[one]
    touch(links.pages, link)
    count = state[10]
    if count == 4:
        least = 0
        for j in range(1, 4):
            touch(tributaries.pages, chosen[j])
            if comes_before(links, tributaries.link[chosen[least]], tributaries.link[chosen[j]]):
                least = j
        if not comes_before(links, link, tributaries.link[chosen[least]]):
            return
        for j in range(least, 3):
            chosen[j] = chosen[j + 1]
        count = 3
    chosen[count] = one
    state[10] = count + 1


@jit
def split(stems, tributaries, parts, basins, state, chosen):
    """Divide a part of a stem at the chosen tributaries."""
    start, end, first, last = state[4], state[5], state[6], state[7]
    depth, count, basin, digit = state[1], state[2], state[8], 1
    for j in range(state[10]):
        one = chosen[j]
        touch(tributaries.pages, one)
        up = tributaries.place[one] + 1
        if up > start:
            add_basin(basins, count, basin, digit)
            push(parts, depth, (start, up, first, one), count)
            depth, count = depth + 1, count + 1
        at = tributaries.link[one]
        touch(stems.pages, at)
        add_basin(basins, count, basin, digit + 1)
        part = stems.start[at], stems.end[at], stems.first[at], stems.last[at]
        push(parts, depth, part, count)
        depth, count = depth + 1, count + 1
        start, first, digit = up, one + 1, digit + 2
    if end > start:
        add_basin(basins, count, basin, digit)
        push(parts, depth, (start, end, first, last), count)
        depth, count = depth + 1, count + 1
    state[1], state[2] = depth, count


@jit
def spell(stems, basins, which, digits, ends, state):
    """Write the codes of links as text, each code from its last digit on, concatenated.

    `state`: the next link; a basin of it, or -1; and the number of digits, which counts on beyond
    the size of `digits`.
    """
    while state[0] < len(which):
        if stems.pages.left[0] <= 0:
            return False
        if state[1] < 0:
            touch(stems.pages, which[state[0]])
            state[1] = stems.node[which[state[0]]]
        touch(basins.pages, state[1])
        code = basins.code[state[1]]
        if state[2] < len(digits):
            digits[state[2]] = 48 + (code & 15)
        state[2] += 1
        state[1] = code >> 4
        if state[1] < 0:
            ends[state[0]] = state[2]
            state[0] += 1
    return True
