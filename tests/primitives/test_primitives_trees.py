"""Euler tours and tree contraction on the CPU, against recursion and plain loops."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from terrain_gpu.errors import InputError
from terrain_gpu.primitives import EulerTour, contract_tree, euler_tour

SHAPES = ("random", "path", "star", "caterpillar", "binary", "forest")


def make_tree(shape, count, seed=0, shuffled=True):
    """Parents of a tree of `count` vertices."""
    rng = np.random.default_rng(seed)
    v = np.arange(count)
    parent = {
        "random": rng.integers(0, np.maximum(v, 1)),
        "path": v - 1,
        "star": np.zeros(count, int),
        "caterpillar": np.where(v % 2, v - 1, v - 2),
        "binary": (v - 1) // 2,
        "forest": np.where(rng.random(count) < 0.2, v, rng.integers(0, np.maximum(v, 1))),
    }[shape]
    parent[:1] = 0
    if not shuffled:
        return parent
    names = rng.permutation(count)
    renamed = np.empty(count, np.int64)
    renamed[names] = names[parent]
    return renamed


@st.composite
def trees(draw, shapes=SHAPES):
    return make_tree(
        draw(st.sampled_from(shapes)),
        draw(st.integers(1, 120)),
        draw(st.integers(0, 99)),
        draw(st.booleans()),
    )


def plain_tour(parent):
    """Depth, preorder and size with a stack."""
    count = len(parent)
    children = [[] for _ in range(count)]
    for v in range(count - 1, -1, -1):
        if parent[v] != v:
            children[parent[v]].append(v)  # the least is on top of the stack
    depth, preorder, size = np.zeros((3, count), np.int64)
    order = []
    for root in np.flatnonzero(parent == np.arange(count)):
        stack = [int(root)]
        while stack:
            v = stack.pop()
            preorder[v] = len(order)
            depth[v] = 0 if v == root else depth[parent[v]] + 1
            order.append(v)
            stack += children[v]
    for v in reversed(order):
        size[v] += 1
        if parent[v] != v:
            size[parent[v]] += size[v]
    return EulerTour(np.asarray(parent), depth, preorder, size)


NAMES = ("parent", "depth", "preorder", "size")


def same(tour, expected, names=NAMES):
    for name in names:
        array = getattr(tour, name)
        assert array.dtype == np.int64
        assert np.array_equal(array, getattr(expected, name)), name


@given(parent=trees(), method=st.sampled_from(["auto", "splitters"]))
def test_parents(parent, method):
    same(euler_tour(parent, method=method, backend="cpu"), plain_tour(parent))


def edges_of(parent, rng):
    """Edges in any order and direction."""
    child = rng.permutation(np.flatnonzero(parent != np.arange(len(parent))))
    edges = np.stack((child, parent[child]), 1)
    return np.where(rng.random((len(edges), 1)) < 0.5, edges, edges[:, ::-1])


def rerooted(parent, root):
    """Parents after the tree is rooted at another vertex."""
    parent = parent.copy()
    v, above = root, root
    while True:
        before, parent[v] = parent[v], above
        if before == v:
            return parent
        v, above = before, v


@given(parent=trees(SHAPES[:-1]), seed=st.integers(0, 99))
def test_edges(parent, seed):
    rng = np.random.default_rng(seed)
    root = int(rng.integers(len(parent)))
    tour = euler_tour(edges=edges_of(parent, rng), root=root, backend="cpu")
    same(tour, plain_tour(rerooted(parent, root)))


def test_empty():
    same(euler_tour([], backend="cpu"), plain_tour(np.zeros(0, np.int64)))
    same(euler_tour(edges=[], backend="cpu"), plain_tour(np.zeros(1, np.int64)))


def test_a_deep_path():
    count = 200_000
    tour = euler_tour(make_tree("path", count, shuffled=False), backend="cpu")
    assert np.array_equal(tour.depth, np.arange(count))
    assert np.array_equal(tour.size, np.arange(count, 0, -1))


def no_trees():
    """Arguments that are not trees, and the error messages."""
    ring = np.roll(np.arange(9), 1)
    beside = np.concatenate((make_tree("random", 5, shuffled=False), np.roll(np.arange(4), 1) + 5))
    return [
        ({"parent": ring}, "vertex [0-8] is its own ancestor; parents must lead to a root"),
        ({"parent": beside}, "vertex [5-8] is its own ancestor"),
        ({"parent": [0, 0, 7]}, r"parent\[2\] is 7, but the vertices are 0 to 2; the parent of"),
        ({"parent": [-1, 0]}, r"parent\[0\] is -1"),
        ({"edges": [[0, 1], [1, 2], [2, 0]]}, "the edges are not a tree: from root 0"),
        ({"edges": [[0, 1], [1, 0]]}, "the edges are not a tree"),
        ({"edges": [[0, 0]]}, "the edges are not a tree"),
        ({"edges": [[1, 1]]}, "the edges are not a tree"),
        ({"edges": [[0, 1], [2, 3], [3, 2]]}, "the edges are not a tree"),
        ({"edges": [[1, 2], [2, 3], [3, 1]], "root": 0}, "the edges are not a tree"),
        ({"edges": [[0, 2]]}, "end 1 of the edges is 2, but the vertices are 0 to 1"),
        ({"edges": [[0, 1]], "root": 2}, "root 2 is not one of the vertices, 0 to 1"),
        ({"edges": [[0, 1, 2]]}, r"edges have shape \(1, 3\)"),
        ({}, "either parent or edges"),
        ({"parent": [0], "edges": [[0, 1]]}, "and not both"),
        ({"parent": [0.5]}, "parent is of float64; integers are needed"),
    ]


@pytest.mark.parametrize(("arguments", "message"), no_trees())
def test_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        euler_tour(**arguments, backend="cpu")


@given(data=st.data(), count=st.integers(2, 7))
def test_any_edges_are_a_tree_or_refused(data, count):
    end = st.integers(0, count - 1)
    edges = data.draw(st.lists(st.tuples(end, end), min_size=count - 1, max_size=count - 1))
    label = list(range(count))
    joined = 0
    for u, v in edges:
        if label[u] != label[v]:
            label = [label[u] if mine == label[v] else mine for mine in label]
            joined += 1
    if joined == count - 1:
        parent = euler_tour(edges=edges, backend="cpu").parent
        assert {frozenset((v, p)) for v, p in enumerate(parent.tolist()) if p != v} == {
            frozenset(edge) for edge in edges
        }
    else:
        with pytest.raises(InputError):
            euler_tour(edges=edges, backend="cpu")


# -- contraction -----------------------------------------------------------------------------------


def plain_contraction(parent, keep, weights, reduce=operator.add):
    """Corners and {ends: (vertices, weight)}, one leaf and one vertex after the other."""
    near = {v: {} for v in range(len(parent))}
    for v, p in enumerate(parent.tolist()):
        if p != v:
            near[v][p] = near[p][v] = ((v, p), int(weights[v]))
    leaves = [v for v in near if len(near[v]) <= 1 and not keep[v]]
    while leaves:
        v = leaves.pop()
        for u in near.pop(v):
            del near[u][v]
            if len(near[u]) <= 1 and not keep[u]:
                leaves.append(u)
        leaves = [u for u in dict.fromkeys(leaves) if u in near]
    for v in list(near):
        if len(near[v]) == 2 and not keep[v]:
            (a, one), (b, two) = near.pop(v).items()
            to = one[0] if one[0][-1] == v else one[0][::-1]
            off = two[0] if two[0][0] == v else two[0][::-1]
            del near[a][v], near[b][v]
            near[a][b] = near[b][a] = (to + off[1:], reduce(one[1], two[1]))
    paths = {frozenset((u, v)): path for u in near for v, path in near[u].items()}
    return sorted(near), {(min(p, p[::-1]), w) for p, w in paths.values()}


def as_set(found):
    cuts = zip(found.offsets[:-1].tolist(), found.offsets[1:].tolist(), strict=True)
    paths = [tuple(found.path_vertices[a:b].tolist()) for a, b in cuts]
    weights = found.weights.tolist()
    assert len(set(paths)) == len(weights)
    return found.vertices.tolist(), {
        (min(p, p[::-1]), w) for p, w in zip(paths, weights, strict=True)
    }


@given(
    parent=trees(),
    seed=st.integers(0, 99),
    share=st.sampled_from([0, 0.02, 0.1, 0.5, 1]),
    method=st.sampled_from(["auto", "recursive"]),
    reduce=st.sampled_from(["sum", "max"]),
)
def test_contraction(parent, seed, share, method, reduce):
    rng = np.random.default_rng(seed)
    keep, weights = rng.random(len(parent)) < share, rng.integers(-9, 9, len(parent))
    tour = euler_tour(parent, backend="cpu")
    found = contract_tree(tour, keep, weights, reduce=reduce, method=method, backend="cpu")
    assert all(array.dtype == np.int64 for array in vars(found).values())
    plainly = {"sum": operator.add, "max": max}[reduce]
    assert as_set(found) == plain_contraction(parent, keep, weights, plainly)


def test_a_path_becomes_one():
    """Its ends are kept; the root is inside."""
    tour = euler_tour(edges=[[i, i + 1] for i in range(9)], root=4, backend="cpu")
    keep = np.isin(np.arange(10), (0, 9))
    found = contract_tree(tour, keep, backend="cpu")
    assert found.vertices.tolist() == [0, 9]
    assert found.weights.tolist() == [9]
    assert sorted(found.path_vertices.tolist()) == list(range(10))


def test_contraction_is_refused():
    tour = euler_tour([0, 0, 1], backend="cpu")
    for keep, weights, message in (
        ([1, 0, 1], None, "keep is int64 of shape"),
        ([True], None, "one for each of 3 vertices"),
        ([True] * 3, [1], r"weights have shape \(1,\)"),
        ([True] * 3, [0.5] * 3, "weights is of float64"),
    ):
        with pytest.raises(InputError, match=message):
            contract_tree(tour, np.array(keep), weights, backend="cpu")
    with pytest.raises(InputError, match="reduce 'min' is not known; use sum or max"):
        contract_tree(tour, np.array([True] * 3), reduce="min", backend="cpu")
