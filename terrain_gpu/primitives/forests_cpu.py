"""The minimum spanning forest on the CPU, see `forests`: Kruskal's algorithm on parts of a list."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..compiled import jit
from ..engine.machine import available_threads
from .edge_components import label_dtype, shortcut
from .union_find import join

PART = 1 << 18
"""Fewest edges of a thread's part."""

_LOW = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True)
class EdgeIds:
    """Ids of edges, ascending."""

    ids: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)


class CpuForest:
    """Trees that grow together.

    Attributes
    ----------
    keys
        Of all edges, unsigned integers.
    parent
        The trees of vertices, as stars between calls: a root is the least vertex of its tree.
    chosen
        bool, one for each edge: whether it is in the forest.
    """

    GROUP = 1.5
    """Most edges per vertex in a list that is joined without being split."""

    def __init__(self, edges: np.ndarray, keys: np.ndarray, n: int) -> None:
        self.edges, self.keys = edges, keys
        self.parent = np.arange(n, dtype=label_dtype(n))
        self.chosen = np.zeros(len(edges), bool)

    def to_host(self, array: np.ndarray) -> np.ndarray:
        return array

    def all_edges(self) -> EdgeIds:
        return EdgeIds(np.arange(len(self.edges), dtype=label_dtype(len(self.edges))))

    def split(self, edges: EdgeIds, key: Any, last: Any) -> tuple[EdgeIds, EdgeIds]:
        """Split a list after an edge, given by its key and id."""
        parts = _in_parts(edges, lambda ids: split(ids, self.keys, key, last))
        light, heavy = (EdgeIds(np.concatenate(some)) for some in zip(*parts, strict=True))
        return light, heavy

    def between_trees(self, edges: EdgeIds) -> EdgeIds:
        """Return the edges between different trees."""
        parts = _in_parts(edges, lambda ids: between_trees(ids, self.edges, self.parent))
        return EdgeIds(np.concatenate(parts))

    def join(self, edges: EdgeIds) -> None:
        """Join the trees across these edges, in order."""
        keys, count = self.keys[edges.ids], len(edges)
        places = np.arange(count, dtype=np.uint64)
        order = places
        for shift in range(0, 8 * keys.itemsize, 32):  # half keys and places share words
            half = (keys[order].astype(np.uint64) >> np.uint64(shift)) & _LOW
            words = half << np.uint64(32) | places
            words.sort()
            order = order[words & _LOW]
        join_in_order(edges.ids[order], self.edges, self.parent, self.chosen)


def _in_parts(edges: EdgeIds, work: Callable[[np.ndarray], Any]) -> list[Any]:
    """Work on parts of a list in threads; return the results in order."""
    threads = available_threads()
    width = max(PART, -(-len(edges) // threads))
    parts = [edges.ids[k : k + width] for k in range(0, max(1, len(edges)), width)]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, parts))


@jit
def split(ids, keys, key, last):
    """Return the edges up to that of this key and id, and the others; both ascending."""
    out = np.empty_like(ids)
    low, high = 0, len(ids)
    for k in range(len(ids)):
        e = ids[k]
        out[low] = e  # at both ends of the gap, and one of them stays
        out[high - 1] = e
        light = keys[e] < key or (keys[e] == key and e <= last)
        low += light
        high -= not light
    return out[:low], out[low:][::-1]


@jit
def between_trees(ids, edges, parent):
    """Return the edges between different stars."""
    out = np.empty_like(ids)
    count = 0
    for k in range(len(ids)):
        out[count] = ids[k]
        count += parent[edges[ids[k], 0]] != parent[edges[ids[k], 1]]
    return out[:count]


@jit
def join_in_order(ids, edges, parent, chosen):
    """Join trees across edges, in the order of the list; leave stars."""
    for k in range(len(ids)):
        e = ids[k]
        chosen[e] = join(parent, np.int64(edges[e, 0]), np.int64(edges[e, 1]))
    shortcut(parent)
