"""A tournament tree: the least of many entries that come, become less, and leave.

The leaves are the players, every inner node holds the winner of the two nodes below it (tree
selection: D. E. Knuth, The Art of Computer Programming 3, 5.2.3). Entries are pairs (key, edge id)
and stand outside of the tree, in one array each. So all is O(log players), and nothing is ever
allocated.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

NOBODY = -1


def new_tree(players: int) -> np.ndarray:
    """A tree in which nobody plays yet: inner nodes from 1, the root, then the leaves."""
    return np.full(2 * players, NOBODY, np.int64)


@register_jitable
def precedes(key, edge, other_key, other_edge):
    """The total order of edges: by key, then by id."""
    return key < other_key or (key == other_key and edge < other_edge)


@register_jitable
def plays(tree, player):
    """Whether `player` has come and not left."""
    return tree[len(tree) // 2 + player] != NOBODY


@register_jitable
def first(tree):
    """The winner of the whole tournament, or NOBODY."""
    return tree[1]


@register_jitable
def challenge(tree, keys, ids, player):
    """Let `player` come, or climb after its entry became less."""
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
    """Take `player` out; what it had won is played again."""
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
