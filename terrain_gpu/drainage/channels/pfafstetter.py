"""Pfafstetter codes of links (K. L. Verdin, J. P. Verdin 1999, J. Hydrology 218)."""

from __future__ import annotations

import numpy as np

from ...compiled import jit
from .links import Links

BYTES = 180
"""Of a link, while codes are computed."""


class Codes:
    """The codes of links: digits of nested basins, the first of the largest.

    A network, all that flows to one outlet, is divided at the four tributaries of its main stem
    with the largest sums. They get the digits 2, 4, 6 and 8 from the outlet up, and what flows to
    the main stem below, between and above them 1, 3, 5, 7 and 9. Each part with tributaries of its
    own is divided in the same way; with fewer than four, fewer digits are used. A network of one
    link has the code 1.

    Parameters
    ----------
    links
        All links.
    last
        int64, their last cells: of equal sums, the first one in row-major order counts as larger.
    """

    def __init__(self, links: Links, last: np.ndarray) -> None:
        count, down = len(links), links.down
        joins = down >= 0
        bottom = np.flatnonzero(~joins | (links.main[down] != np.arange(count)))
        laid, start = np.empty(count, np.int64), np.empty(len(bottom) + 1, np.int64)
        lay_stems(bottom, links.main, laid, start)
        place = np.empty(count, np.int64)
        place[laid] = np.arange(count)
        # Tributaries from the outlet up; of one junction, the least first.
        stem = np.flatnonzero(joins[bottom])
        mouth, sums, tail = place[down[bottom[stem]]], links.sums[bottom[stem]], last[bottom[stem]]
        order = np.lexsort((-tail, sums, mouth))
        rank = np.empty(len(order), np.int64)
        rank[np.lexsort((-tail[order], sums[order]))] = np.arange(len(order))
        root = np.flatnonzero(~joins[bottom])
        self._tree = np.empty((2, 2 * count), np.int64)
        self._node = np.empty(count, np.int64)
        stack = np.empty((5, 2 * count), np.int64)
        tributaries = stem[order], mouth[order], rank
        divide(laid, start, tributaries, root, stack, self._tree, self._node)

    def of(self, link: int) -> str:
        """The code of a link."""
        digits, node = [], int(self._node[link])
        while node >= 0:
            digits.append(str(self._tree[1, node]))
            node = int(self._tree[0, node])
        return "".join(reversed(digits))


@jit
def lay_stems(bottom, main, laid, start):
    """List the links of each stem, from its lowest one up along main links, and where it starts."""
    count = 0
    for stem in range(len(bottom)):
        start[stem] = count
        at = bottom[stem]
        while at >= 0:
            laid[count] = at
            count += 1
            at = main[at]
    start[len(bottom)] = count


@jit
def divide(laid, start, tributaries, root, stack, tree, node):
    """Divide networks into basins and these into smaller ones.

    Parameters
    ----------
    laid, start
        See `lay_stems`.
    tributaries
        Stems that flow into another: their numbers, in the order of the places in `laid` that they
        flow into; these places; ranks, the greatest of the largest sum.
    root
        Stems that flow to an outlet.
    stack
        int64, shape (5, n): work space; n is at least twice the number of links.
    tree
        int64, shape (2, n): receives the basin that each basin is a part of, -1 for none, and its
        digit.
    node
        int64, receives the smallest basin of each link.
    """
    stem, mouth, rank = tributaries
    depth, nodes = 0, 0
    for k in root:
        a, b = start[k], start[k + 1]
        p, q = np.searchsorted(mouth, a), np.searchsorted(mouth, b)
        stack[:, depth] = a, b, p, q, -1
        depth += 1
    chosen = np.empty(4, np.int64)
    while depth:
        # A part of a stem, its tributaries, and the basin that both make up.
        depth -= 1
        a, b, p = stack[0, depth], stack[1, depth], stack[2, depth]
        q, basin = stack[3, depth], stack[4, depth]
        if p == q:
            if basin < 0:
                tree[0, nodes], tree[1, nodes] = -1, 1
                basin, nodes = nodes, nodes + 1
            for k in range(a, b):
                node[laid[k]] = basin
            continue
        count = 0
        for t in range(p, q):
            if count < 4:
                chosen[count] = t
                count += 1
                continue
            least = 0
            for j in range(1, 4):
                if rank[chosen[j]] < rank[chosen[least]]:
                    least = j
            if rank[t] > rank[chosen[least]]:
                chosen[least] = t
        chosen[:count].sort()
        digit = 1
        for j in range(count):
            t = chosen[j]
            up = mouth[t] + 1
            if up > a:
                tree[0, nodes], tree[1, nodes] = basin, digit
                stack[:, depth] = a, up, p, t, nodes
                depth, nodes = depth + 1, nodes + 1
            c, d = start[stem[t]], start[stem[t] + 1]
            tree[0, nodes], tree[1, nodes] = basin, digit + 1
            first, last = np.searchsorted(mouth, c), np.searchsorted(mouth, d)
            stack[:, depth] = c, d, first, last, nodes
            depth, nodes = depth + 1, nodes + 1
            a, p, digit = up, t + 1, digit + 2
        if b > a:
            tree[0, nodes], tree[1, nodes] = basin, digit
            stack[:, depth] = a, b, p, q, nodes
            depth, nodes = depth + 1, nodes + 1
