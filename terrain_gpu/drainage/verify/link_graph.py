"""Orders and codes of links, found from their graph alone, as proofs of channels compute them.

A graph is given by the link that each flows into, the sum at its last cell and that cell. Whatever
follows from the way down is found by pointer jumping; Strahler and Shreve orders add up what flows
in, the farthest links from the outlets first.

Pfafstetter codes: tributaries are put into a tree of parts of stems, the largest first. A part
takes four; the next ones go to a part between, below or above these. A code is read off on the way
through the tree, from the outlet up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .link_kernels import build_parts, climb, spell

LINK_BYTES = 400
"""Of a link, while its order and code are found; of which graph and orders take 250."""


class LinkOrders(NamedTuple):
    """Orders of links; int64, but `main`: whether it is the main one that flows into the next."""

    outlet: np.ndarray
    strahler: np.ndarray
    shreve: np.ndarray
    horton: np.ndarray
    hack: np.ndarray
    topological: np.ndarray
    main: np.ndarray


def jump(to: np.ndarray, counted: np.ndarray) -> tuple[np.ndarray, np.ndarray] | int:
    """Follow pointers to their ends.

    Parameters
    ----------
    to
        int64, the next one, itself at an end.
    counted
        bool, of each that is no end, whether the way over it counts.

    Returns
    -------
    (int64, int64) or int
        The end that each leads to, and how many on the way count; or one that leads to no end.
    """
    at, count = to, counted.astype(np.int64)
    for _ in range(len(to).bit_length() + 1):
        lost = np.flatnonzero(to[at] != at)
        if not len(lost):
            return at, count
        count = count + count[at]
        at = at[at]
    return int(lost[0])


def find_orders(down: np.ndarray, sums: np.ndarray, last: np.ndarray) -> LinkOrders | int:
    """Find the orders of all links, see `streams`.

    Parameters
    ----------
    down
        int64, the link that each flows into, -1 at outlets.
    sums, last
        The sum at its last cell, and the id of that.

    Returns
    -------
    LinkOrders or int
        Or a link that flows to no outlet, but round in a circle.
    """
    own, inner = np.arange(len(down)), down >= 0
    found = jump(np.where(inner, down, own), inner)
    if isinstance(found, int):
        return found
    outlet, hops = found
    strahler, shreve = np.empty((2, len(down)), np.int64)
    climb(np.argsort(-hops, kind="stable"), down, strahler, shreve)
    main, stem = (_greatest(down, keys) for keys in ((-last, sums), (-last, sums, strahler)))
    # No link is lost, so these lead to ends too.
    top, _ = jump(np.where(stem, down, own), stem)  # type: ignore[misc]
    _, turns = jump(np.where(inner, down, own), inner & ~main)  # type: ignore[misc]
    return LinkOrders(outlet, strahler, shreve, strahler[top], turns + 1, hops + 1, main)


def _greatest(down: np.ndarray, keys: tuple[np.ndarray, ...]) -> np.ndarray:
    """Whether each link is the greatest of those that flow into the same; the last key counts."""
    order = np.lexsort((*keys, down))
    to = down[order]
    found = np.zeros(len(down), bool)
    found[order[(to != np.append(to[1:], -1)) & (to >= 0)]] = True
    return found


class BasinCodes:
    """Pfafstetter codes of links, see `streams`.

    Parameters
    ----------
    down, sums, last
        See `find_orders`.
    main
        From there.
    """

    def __init__(
        self, down: np.ndarray, sums: np.ndarray, last: np.ndarray, main: np.ndarray
    ) -> None:
        count = len(down)
        self._down = down
        # Stems are known by their lowest link; places on them count up from there.
        self._stem, self._place = jump(np.where(main, down, np.arange(count)), main)  # type: ignore[misc]
        tributaries = np.flatnonzero((down >= 0) & ~main)
        mouth = self._place[down[tributaries]]
        self._mouth = np.full(count, -1)
        self._mouth[tributaries] = mouth
        # Of one junction, the least comes first.
        rank = np.empty(count, np.int64)
        rank[np.lexsort((-last, sums))] = np.arange(count)
        self._along = np.empty(count, np.int64)
        along = tributaries[np.lexsort((rank[tributaries], mouth))]
        self._along[along] = np.arange(len(along))
        size = len(tributaries)
        self._root = np.full(count, -1)
        self._chosen, self._parts = np.full((size, 4), -1), np.full((size, 5), -1)
        tree = self._root, self._chosen, self._parts
        largest = tributaries[np.argsort(-rank[tributaries])]
        into = self._stem[np.maximum(down, 0)]
        build_parts(largest, into, self._along, *tree)
        self._space = np.empty(count, np.int64), np.empty(size + 1, np.uint8)

    def of(self, link: int) -> str:
        """The code of a link."""
        chain, digits = self._space
        tree = self._root, self._chosen, self._parts
        places = self._down, self._stem, self._place, self._mouth, self._along
        count = spell(link, places, tree, chain, digits)
        return bytes(digits[:count]).decode()
