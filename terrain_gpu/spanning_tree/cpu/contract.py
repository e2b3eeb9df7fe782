"""The method "contract": the classical contraction, kept as a reference for the spanning tree.

It is H. Haverkort's algorithm for grid graphs, as chapter 2 of the 2012 thesis that this project
builds on gives it (docs/design/origins.md):

1. *Block MST*: compute the spanning tree of a block, including its boundary vertices.
2. *Dead-end removal*: subtrees without a boundary vertex never lie on a cycle with an edge of
   another block. Their edges are final.
3. *Path contraction*: the rest has fewer branching vertices than boundary vertices. Contract every
   path between boundary and branching vertices to its largest edge: only that edge of a path can
   still be replaced. The others are final.
4. *Merge*: four contracted trees and the separator edges between them are a graph of O(boundary)
   edges. Treat it in the same way: spanning tree, dead ends, paths.
5. *Expansion downwards*: add edges that become final at an upper level to the blocks that hold
   them; `levels` does that for all methods.

Spanning trees are grown with a tournament tree over the vertices (R. C. Prim, "Shortest connection
networks and some generalizations", Bell System Technical Journal 36, 1957), starting at boundary
vertices if there are any: then a subtree without boundary vertices is a dead end, and one pass up
and one pass down the tree do steps 2 and 3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ...primitives.tournament import NOBODY, challenge, first, leave, new_tree, plays, precedes
from ..region import Edges, Region
from ..weights import Weight
from .keys import add_weight, edge_key, rule_at
from .merge import Children, Frame

__all__ = [
    "kernel",
    "levels_per_vertex",
    "merge",
    "most_candidates",
    "new_work",
    "solve_block",
    "work_bytes",
]


def new_edges(count: int, key: np.dtype) -> Edges:
    """Allocate a list of `count` edges."""
    return np.empty(count, key), *(np.empty(count, np.int64) for _ in range(3))  # type: ignore[return-value]


def new_forest(vertices: int, key: np.dtype) -> tuple[np.ndarray, ...]:
    """Allocate a rooted forest, with one entry per vertex in each array.

    The arrays are: key and id of the edge by which a vertex joined; its parent, -1 if unreached,
    itself if a root; the vertices in the order in which they joined; and *branches*: the number of
    its subtrees with boundary vertices, plus 2 for a boundary vertex itself. So a vertex with 0
    branches is in a dead end, one with 1 is inside a path, and the others remain vertices.
    """
    return (
        np.empty(vertices, key),
        np.empty(vertices, np.int64),
        np.full(vertices, -1, np.int64),
        np.empty(vertices, np.int64),
        np.zeros(vertices, np.uint8),
    )


# -- blocks --------------------------------------------------------------------------------


def work_bytes(sides: tuple[int, int], key: np.dtype) -> int:
    """Bytes of `new_work`."""
    return sides[0] * sides[1] * (45 + key.itemsize)


def levels_per_vertex(key: np.dtype) -> int:
    """Bytes of the largest `merge` and its input, per vertex."""
    return 32 * (key.itemsize + 24)


def most_candidates(rim: int) -> int:
    """Bound on the candidates of a block with `rim` border cells."""
    return 2 * rim


def new_work(sides: tuple[int, int], weight: Weight) -> tuple:
    """Allocate the work arrays of `solve_block` for blocks of so many rows and columns."""
    cells = sides[0] * sides[1]
    # A tree with b leaves has fewer than b branching vertices, hence fewer than 2 b paths.
    key = weight.key_dtype
    return new_forest(cells, key), new_tree(cells), new_edges(4 * sum(sides), key)


def solve_block(
    cells: np.ndarray,
    valid: np.ndarray,
    rule: np.unsignedinteger | np.ndarray,
    diagonal: bool,
    open_sides: tuple[bool, bool, bool, bool],
    work: Any,
    mask: np.ndarray,
    sums: np.ndarray,
    mode: int,
) -> tuple[int, Edges]:
    """Write a block's final edges to `mask`; return their number, and the candidates.

    Parameters
    ----------
    cells, valid
        Operands and validity, of one shape.
    rule, mode
        See `Weight`.
    diagonal
        Whether diagonal neighbours are joined.
    open_sides
        Whether the block has neighbours above, below, left, right.
    work
        From `new_work`.
    mask
        uint8, zeroed: receives the final edges, bit k for direction k.
    sums
        Zeroed accumulators of the final edges' weights.

    Returns
    -------
    edges, candidates
        Number of final edges; and keys, ids ``4 * (row * cols + col) + direction`` and both ends
        (row * cols + col) of the contracted paths, valid until `work` is used again.
    """
    edges, count = kernel(cells, valid, rule, diagonal, open_sides, work, mask, sums, mode)
    keys, ids, us, vs = work[2]
    return int(edges), (keys[:count], ids[:count], us[:count], vs[:count])


@jit
def contract_block(cells, valid, rule, diagonal, open_sides, work, mask, sums, mode):
    """Run steps 1 to 3; return the numbers of final edges and of candidates. See `solve_block`."""
    forest, whole_tree, candidates = work
    rows, cols = cells.shape
    tree = whole_tree[: 2 * rows * cols]
    _mark_boundary(rows, cols, open_sides, forest[4])
    reached = block_mst(cells, valid, rule, diagonal, forest, tree)
    final, count = contract_forest(forest, reached, candidates, sums, mode)
    for k in range(final):
        edge = forest[3][k]
        cell = edge >> 2
        mask[cell // cols, cell % cols] |= np.uint8(1 << (edge & 3))
    return final, count


kernel = contract_block


@register_jitable
def _mark_boundary(rows, cols, open_sides, branches):
    """Set 2 branches for each boundary vertex of a block, 0 for the other cells."""
    above, below, left, right = open_sides
    branches[: rows * cols] = 0
    for col in range(cols):
        if above:
            branches[col] = 2
        if below:
            branches[(rows - 1) * cols + col] = 2
    for row in range(rows):
        if left:
            branches[row * cols] = 2
        if right:
            branches[row * cols + cols - 1] = 2


@jit
def block_mst(cells, valid, rule, diagonal, forest, tree):
    """Grow the spanning forest of a block by Prim; return the number of its vertices."""
    parent, branches = forest[2], forest[4]
    rows, cols = cells.shape
    parent[: rows * cols] = -1
    tree[:] = NOBODY
    reached = 0
    for interior in range(2):
        for row in range(rows):
            for col in range(cols):
                root = row * cols + col
                if parent[root] < 0 and valid[row, col] and (branches[root] == 0) == interior:
                    reached = _grow_in_block(
                        root, cells, valid, rule, diagonal, forest, tree, reached
                    )
    return reached


@jit
def _grow_in_block(root, cells, valid, rule, diagonal, forest, tree, reached):
    """Grow the tree of the component of `root`; return the number of vertices reached so far."""
    keys, ids, parent, order, _ = forest
    rows, cols = cells.shape
    parent[root] = root
    v = root
    while v != NOBODY:
        order[reached] = v
        reached += 1
        row, col = v // cols, v % cols
        for d in range(0, 4, 1 if diagonal else 2):
            for way in (1, -1):
                y = row + way * (d > 0)
                x = col + way * (1 if d == 0 else d - 2)
                if y < 0 or y >= rows or x < 0 or x >= cols or not valid[y, x]:
                    continue
                u = y * cols + x
                key = edge_key(cells[row, col], cells[y, x], rule_at(rule, d, min(row, y)))
                _offer(forest, tree, u, v, key, 4 * min(u, v) + d)
        v = first(tree)
        if v != NOBODY:
            leave(tree, keys, ids, v)
    return reached


@register_jitable
def _offer(forest, tree, u, v, key, edge):
    """Offer `u` an edge to `v`, which is in the tree; `u` keeps its least offer until it joins."""
    keys, ids, parent = forest[0], forest[1], forest[2]
    if parent[u] < 0 or (plays(tree, u) and precedes(key, edge, keys[u], ids[u])):
        keys[u], ids[u], parent[u] = key, edge, v
        challenge(tree, keys, ids, u)


# -- dead ends and paths -------------------------------------------------------------------


@jit
def contract_forest(forest, reached, candidates, sums, mode):
    """Dead-end removal and path contraction.

    Parameters
    ----------
    forest
        As grown by Prim; see `new_forest`. The ids of the final edges replace its order.
    reached
        Number of its vertices.
    candidates
        Receives the contracted paths.
    sums, mode
        For `add_weight`.

    Returns
    -------
    final, count
        Numbers of final edges and of candidates.
    """
    keys, ids, parent, order, branches = forest
    _remove_dead_ends(parent, order, branches, reached)
    _contract_paths(keys, ids, parent, order, branches, reached)
    final = 0
    count = 0
    for k in range(reached):
        v = order[k]
        if parent[v] == v:
            continue
        if branches[v] > 1:
            candidates[0][count], candidates[1][count] = keys[v], ids[v]
            candidates[2][count], candidates[3][count] = v, parent[v]
            count += 1
        else:
            add_weight(sums, keys[v], mode)
            order[final] = ids[v]
            final += 1
    return final, count


@register_jitable
def _remove_dead_ends(parent, order, branches, reached):
    """Count branches from the leaves to the roots; vertices left with 0 are dead ends."""
    for k in range(reached - 1, -1, -1):
        v = order[k]
        if branches[v] > 0 and parent[v] != v:
            branches[parent[v]] += 1


@register_jitable
def _contract_paths(keys, ids, parent, order, branches, reached):
    """Move the largest edge of each path, and the path's upper end, down to its lower end."""
    for k in range(reached):
        v = order[k]
        p = parent[v]
        if branches[v] == 0 or branches[p] > 1:
            continue
        if precedes(keys[v], ids[v], keys[p], ids[p]):
            keys[v], keys[p] = keys[p], keys[v]
            ids[v], ids[p] = ids[p], ids[v]
        parent[v] = parent[p]


# -- merge ---------------------------------------------------------------------------------


def merge(
    children: Children,
    shape: tuple[int, int],
    rule: np.unsignedinteger | np.ndarray,
    diagonal: bool,
    sums: np.ndarray,
    mode: int,
) -> tuple[Region, np.ndarray]:
    """Join siblings.

    Parameters and results are those of `merge.merge`; the ends of candidates may lie inside the
    region.
    """
    frame = Frame(children, shape)
    keys, ids, us, vs = frame.edges(rule, diagonal)
    cells, ends = np.unique(np.concatenate((us, vs)), return_inverse=True)
    del us, vs

    vertices = len(cells)
    forest = new_forest(vertices, keys.dtype)
    forest[4][frame.is_open(cells)] = 2
    candidates = new_edges(vertices, keys.dtype)
    reached = graph_mst(keys, ids, ends, *_incidence(ends, vertices), forest, new_tree(vertices))
    final, count = contract_forest(forest, reached, candidates, sums, mode)
    kept = (
        candidates[0][:count].copy(),
        candidates[1][:count].copy(),
        cells[candidates[2][:count]],
        cells[candidates[3][:count]],
    )
    return frame.region(kept), forest[3][:final].copy()


def _incidence(ends: np.ndarray, vertices: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where each vertex starts among the ends sorted by vertex, and that order.

    Positions k and k + (number of edges) in `ends` belong to edge k.
    """
    starts = np.zeros(vertices + 1, np.int64)
    np.cumsum(np.bincount(ends, minlength=vertices), out=starts[1:])
    return starts, np.argsort(ends, kind="stable")


@jit
def graph_mst(keys, ids, ends, starts, incident, forest, tree):
    """Grow the spanning forest of a graph by Prim.

    Parameters
    ----------
    keys, ids
        Of the edges.
    ends
        Vertices at one end of each edge, then those at the other end.
    starts, incident
        See `_incidence`.
    forest
        See `new_forest`; two branches at boundary vertices.
    tree
        An empty tournament tree.

    Returns
    -------
    vertices
        The number of vertices in the forest: all vertices of the graph.
    """
    branches, parent = forest[4], forest[2]
    reached = 0
    for interior in range(2):
        for root in range(len(parent)):
            if parent[root] < 0 and (branches[root] == 0) == interior:
                reached = _grow_in_graph(
                    root, keys, ids, ends, starts, incident, forest, tree, reached
                )
    return reached


@register_jitable
def _grow_in_graph(root, keys, ids, ends, starts, incident, forest, tree, reached):
    """Grow the tree of the component of `root`; return the number of vertices reached so far."""
    parent, order = forest[2], forest[3]
    parent[root] = root
    v = root
    while v != NOBODY:
        order[reached] = v
        reached += 1
        for k in range(starts[v], starts[v + 1]):
            edge = incident[k] % len(keys)
            other = ends[edge] ^ ends[edge + len(keys)] ^ v
            _offer(forest, tree, other, v, keys[edge], ids[edge])
        v = first(tree)
        if v != NOBODY:
            leave(tree, forest[0], forest[1], v)
    return reached
