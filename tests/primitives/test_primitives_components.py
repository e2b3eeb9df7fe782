"""Connected components by every method: against a plain search, and scipy's labels of masks."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage
from scipy.sparse import coo_array, csgraph

from terrain_gpu.errors import InputError
from terrain_gpu.primitives import edge_components, grid_components, lists_cpu
from terrain_gpu.primitives.components import METHODS, connected_components


def plain(edges, n):
    """Breadth-first search from each vertex in turn."""
    near = [[] for _ in range(n)]
    for u, v in np.asarray(edges).tolist():
        near[u].append(v)
        near[v].append(u)
    labels = np.full(n, -1, np.int64)
    for start in range(n):
        if labels[start] < 0:
            labels[start] = start
            front = [start]
            while front:
                front = [v for u in front for v in set(near[u]) if labels[v] < 0]
                labels[front] = start
                front = list(dict.fromkeys(front))
    return labels


def rmat(rng, scale, m):
    """R-MAT edges: each bit picks one of four quarters, with odds 0.45, 0.15, 0.15, 0.25."""
    quarters = rng.choice(4, (m, scale), p=(0.45, 0.15, 0.15, 0.25))
    bits = 1 << np.arange(scale)
    return np.stack([(quarters >> 1) @ bits, (quarters & 1) @ bits], 1)


def torus(rows, cols):
    """A grid whose opposite sides are joined."""
    cells = np.arange(rows * cols).reshape(rows, cols)
    right, down = np.roll(cells, -1, 1), np.roll(cells, -1, 0)
    return np.concatenate([np.stack([cells, other], -1).reshape(-1, 2) for other in (right, down)])


def graphs():
    """Name, edges, vertices; in order, reversed or shuffled."""
    rng = np.random.default_rng(4)
    path = np.arange(999)
    star = np.stack([np.full(600, 599), np.arange(600)], 1)  # with a loop
    found = {
        "empty": (np.empty((0, 2), np.int64), 0),
        "isolated": (np.empty((0, 2), np.int64), 7),
        "loops": (np.repeat(np.arange(5), 2).reshape(5, 2), 6),
        "sparse": (rng.integers(0, 5000, (2000, 2)), 5000),
        "random": (rng.integers(0, 700, (2800, 2)), 700),
        "repeated": (rng.integers(0, 12, (3000, 2)) * 3, 40),
        "rmat": (rmat(rng, 10, 4000), 1024),
        "torus": (torus(23, 31), 23 * 31),
        "path": (np.stack([path, path + 1], 1), 1000),
        "star, last": (star, 600),
        "star, first": (599 - star, 600),
    }
    for name in ("torus", "path", "star, last"):
        edges, n = found[name]
        found[f"{name}, reversed"] = (edges[::-1, ::-1], n)
        shuffled = rng.permutation(n)[rng.permutation(edges)]
        found[f"{name}, shuffled"] = (shuffled, n)
    return found


GRAPHS = graphs()


@pytest.fixture
def small_groups(monkeypatch):
    """Give "stages" many groups."""
    monkeypatch.setattr(edge_components, "LEAST_GROUP", 50)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("method", METHODS)
def test_graphs(method, name, small_groups):
    edges, n = GRAPHS[name]
    labels = connected_components(edges, n, method)
    assert labels.dtype == np.int64
    assert np.array_equal(labels, plain(edges, n))


@given(
    n=st.integers(1, 40),
    pairs=st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=60),
)
def test_any_graph(n, pairs):
    edges = np.array(pairs, np.int64).reshape(-1, 2) % n
    expected = plain(edges, n)
    for method in METHODS:
        assert np.array_equal(connected_components(edges, n, method), expected), method


def test_ids_of_64_bits(monkeypatch, small_groups):
    monkeypatch.setattr(edge_components, "label_dtype", lambda n: np.dtype(np.int64))
    edges, n = GRAPHS["sparse"]
    for method in ("rem", "stages-sv"):
        assert np.array_equal(connected_components(edges, n, method), plain(edges, n))


def crossings(rng, n):
    """Edges and vertices of graphs whose trees many threads join at once."""
    path = rng.permutation(n)
    yield "sparse", rng.integers(0, n, (n, 2)), n
    yield "dense", rng.integers(0, n // 8, (n, 2)), n // 8
    yield "path, shuffled", np.stack([path[:-1], path[1:]], 1), n
    yield "path, reversed", np.stack([np.arange(1, n), np.arange(n - 1)], 1)[::-1], n
    # Threads hook the same roots: together they run down the points of a star with the last centre.
    points = np.arange(n)[::-1].reshape(-1, 4).T.ravel()
    for _ in range(3):
        yield "star", np.stack([points, np.full(n, n - 1)], 1), n


@pytest.mark.parametrize("label", ["int32", "int64"])
def test_threads_share_the_edges(label, monkeypatch):
    monkeypatch.setattr(edge_components, "label_dtype", lambda n: np.dtype(label))
    monkeypatch.setattr(lists_cpu, "available_threads", lambda: 4)
    for name, edges, n in crossings(np.random.default_rng(9), 400_000):
        ones = np.ones(len(edges), np.int8)
        _, names = csgraph.connected_components(coo_array((ones, edges.T), shape=(n, n)), False)
        _, first = np.unique(names, return_index=True)
        for dtype in (label, "int64"):
            found = connected_components(edges.astype(dtype), n)
            assert np.array_equal(found, first[names]), name


def test_compare_and_swap():
    @numba.njit
    def swap(array, index, old, new):
        return edge_components.swap_if(array, index, old, new)

    for dtype in (np.int32, np.int64):
        array = np.array([5, 7, 9], dtype)
        assert not swap(array, 1, 8, 3)
        assert array.tolist() == [5, 7, 9]
        assert swap(array, 1, 7, -3)
        assert array.tolist() == [5, -3, 9]


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "uint64", ">i8"])
def test_any_integers(dtype):
    edges = (GRAPHS["repeated"][0]).astype(dtype)
    assert np.array_equal(connected_components(edges, 40), plain(edges, 40))
    assert np.array_equal(connected_components(edges[::2]), plain(edges[::2], 34))


# -- masks -----------------------------------------------------------------------------------------


def masks():
    """Odd shapes, from few cells to all."""
    rng = np.random.default_rng(5)
    for shape in ((1, 1), (1, 70), (70, 1), (2, 9), (16, 8), (67, 131), (129, 64), (0, 3), (3, 0)):
        for share in (0, 0.2, 0.45, 0.6, 0.95, 1):
            yield rng.random(shape) < share
    rows, cols = np.ogrid[:60, :90]
    yield (rows + cols) % 2 == 0  # a chessboard
    yield (rows % 2 == 0) | (cols == np.where(rows % 4 == 1, 0, 89))  # one snake
    yield (rows == 59) | (cols % 2 == 0)  # a comb, joined in the last row


MASKS = list(masks())


def by_scipy(mask, diagonal):
    """Labels 1 to k by scipy, which orders them by first cell, and k; and the least cells."""
    labels, count = ndimage.label(mask, np.ones((3, 3)) if diagonal else None)
    first = np.full(count + 1, -1)
    names, where = np.unique(labels, return_index=True)
    first[names] = where
    first[0] = -1
    return labels, count, first[labels]


@pytest.mark.parametrize("diagonal", [False, True])
def test_masks(diagonal, monkeypatch):
    monkeypatch.setattr(grid_components, "STRIP", 5)
    monkeypatch.setattr(grid_components, "available_threads", lambda: 4)
    for mask in MASKS:
        expected = by_scipy(mask, diagonal)[2]
        for method in ("auto", "cc", "hybrid"):
            labels = connected_components(mask, method=method, connectivity=4 + 4 * diagonal)
            assert labels.dtype == np.int64
            assert np.array_equal(labels, expected), method


@pytest.mark.parametrize("diagonal", [False, True])
def test_blocks(diagonal):
    for mask in MASKS:
        expected, count, _ = by_scipy(mask, diagonal)
        labels = np.full(mask.shape, 99, np.int32)
        assert grid_components.label_block(mask, diagonal, labels) == count
        assert np.array_equal(labels, expected)


@given(
    rows=st.integers(1, 12),
    cols=st.integers(1, 20),
    bits=st.integers(0, 2**240 - 1),
    diagonal=st.booleans(),
)
def test_any_mask(rows, cols, bits, diagonal):
    mask = np.array([bits >> k & 1 for k in range(rows * cols)], bool).reshape(rows, cols)
    labels = connected_components(mask, connectivity=4 + 4 * diagonal)
    assert np.array_equal(labels, by_scipy(mask, diagonal)[2])


def test_views_of_masks():
    mask = np.random.default_rng(6).random((40, 50)) < 0.5
    for view in (mask.T, mask[::2, ::-3], np.asfortranarray(mask)):
        assert np.array_equal(connected_components(view), by_scipy(view, True)[2])


# -- wrong input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edges", "options", "message"),
    [
        ([[0, 5]], {"n": 5}, "vertex 5 of an edge is outside 0 to 4; .* give at least n 6"),
        ([[0, -2]], {"n": 5}, "vertex -2 of an edge is outside 0 to 4"),
        ([[0, -2]], {}, "vertex -2 of an edge is outside"),
        (np.array([[0, 2**64 - 1]], np.uint64), {"n": 9}, "vertex 18446744073709551615 of"),
        ([[0, 1]], {"n": -1}, "n -1: give a whole number from 0"),
        ([[0, 1]], {"n": 2.5}, "n 2.5: give a whole number from 0"),
        ([[0.0, 1.0]], {}, r"edges of type float64 and shape \(1, 2\) are not usable"),
        ([], {}, r"edges of type float64 and shape \(0,\)"),
        ([[0, 1, 2]], {}, r"shape \(1, 3\)"),
        ([0, 1], {}, r"shape \(2,\)"),
        ([[[True]]], {}, r"a mask of shape \(1, 1, 1\) is not usable"),
        ([[True]], {"n": 1}, "n 1 is for edges only"),
        ([[0, 1]], {"method": "bfs"}, "method 'bfs' is not known; use one of auto, rem, sv"),
        ([[True]], {"connectivity": 6}, "connectivity 6 is not 8 or 4"),
        ([[0, 1]], {"backend": "tpu"}, "backend 'tpu' is not known"),
    ],
)
def test_refused(edges, options, message):
    with pytest.raises(InputError, match=message):
        connected_components(edges, **options)
