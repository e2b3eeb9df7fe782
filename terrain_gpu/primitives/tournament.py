"""A tournament tree: a priority queue with insertion, decrease and removal of entries.

The leaves are the players, and every inner node holds the winner of its two children (tree
selection: D. E. Knuth, The Art of Computer Programming 3, 5.2.3). Entries are pairs (key, edge id),
stored outside the tree in one array each. All operations are O(log players) and allocate nothing.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from ..wide import less

NOBODY = -1


def new_tree(players: int) -> np.ndarray:
    """Allocate an empty tree: inner nodes from 1, the root, then the leaves."""
    return np.full(2 * players, NOBODY, np.int64)


@register_jitable
def precedes(key, edge, other_key, other_edge):
    """Compare edges in their total order: by key, then by id."""
    return less(key, other_key) or (key == other_key and edge < other_edge)


@register_jitable
def plays(tree, player):
    """Return whether `player` is in the tree."""
    return tree[len(tree) // 2 + player] != NOBODY


@register_jitable
def first(tree):
    """Return the winner of the whole tournament, or NOBODY."""
    return tree[1]


@register_jitable
def challenge(tree, keys, ids, player):
    """Insert `player`, or move it up after its entry decreased."""
    node = len(tree) // 2 + player
    tree[node] = player
    while node > 1:
        node //= 2
        holder = tree[node]
        if holder not in (NOBODY, player) and not precedes(
            keys[player], ids[player], keys[holder], ids[holder]
        ):
            return
        tree[node] = player


@register_jitable
def leave(tree, keys, ids, player):
    """Remove `player`, and replay the matches it had won."""
    node = len(tree) // 2 + player
    winner = NOBODY
    while tree[node] == player:
        tree[node] = winner
        if node == 1:
            return
        rival = tree[node ^ 1]
        if winner == NOBODY or (
            rival != NOBODY and precedes(keys[rival], ids[rival], keys[winner], ids[winner])
        ):
            winner = rival
        node //= 2
