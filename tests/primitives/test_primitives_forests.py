"""The minimum spanning forest of a list of edges, against plain Kruskal and scipy."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import minimum_spanning_tree
from test_primitives_components import GRAPHS, rmat, torus

from terrain_gpu.errors import InputError
from terrain_gpu.primitives import connected_components, forests, forests_cpu, spanning_forest

WEIGHTS = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")


@st.composite
def cases(draw):
    """Edges, weights and vertices: repeated edges, loops, ties, extremes; or nothing at all."""
    n = draw(st.integers(1, 30))
    ends = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))
    edges = draw(st.lists(ends, max_size=90))
    dtype = np.dtype(draw(st.sampled_from(WEIGHTS)))
    if dtype.kind == "f":
        least, most = -np.inf, np.inf
        odd = [-0.0, 0.0, np.inf, -np.inf, float(np.finfo(dtype).tiny) / 4]
        any_weight = st.floats(width=8 * dtype.itemsize, allow_nan=False)
    else:
        least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        odd = [least, most, most - 1, 0]
        any_weight = st.integers(least, most)
    weight = draw(st.sampled_from([st.sampled_from([*odd, 1]), any_weight, st.integers(0, 3)]))
    weights = draw(st.lists(weight, min_size=len(edges), max_size=len(edges)))
    ends = np.array(edges, draw(st.sampled_from(["int32", "int64", "uint8"]))).reshape(-1, 2)
    return ends, np.array(weights, dtype), n


def check(case, group, backend):
    """Compare with Kruskal, with lists that are split after `group` edges."""
    edges, weights, n = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forests, "LEAST_GROUP", group)
        patch.setattr(forests_cpu.CpuForest, "GROUP", 0)
        patch.setattr(forests_cpu, "PART", 4)
        found = spanning_forest(edges, weights, n, backend=backend)
    assert found.dtype == np.int64
    assert found.tolist() == reference.spanning_forest(edges.tolist(), weights.tolist(), n)


@given(cases(), st.sampled_from([1, 7, 1 << 16]))
@example((np.empty((0, 2), int), np.empty(0), 1), 1)
@example((np.empty((0, 2), int), np.empty(0), 0), 1)
@example((np.array([[0, 0]]), np.array([-1.0]), 1), 1)
@example((np.array([[0, 1], [1, 0], [0, 1]]), np.array([0.0, -0.0, 0.0], np.float32), 2), 1)
def test_as_kruskal(case, group):
    check(case, group, "cpu")


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name):
    """Weights that differ, so that scipy has no choice."""
    edges, n = GRAPHS[name]
    edges = np.unique(np.sort(edges[edges[:, 0] != edges[:, 1]], 1), axis=0)
    weights = np.random.default_rng(1).permutation(len(edges)) + 1.0
    found = spanning_forest(edges, weights, n, backend="cpu")
    assert len(found) == n - len(np.unique(connected_components(edges, n, backend="cpu")))
    graph = coo_array((weights, edges.T), shape=(n, n))
    expected = minimum_spanning_tree(graph.tocsr()).data if n else []
    assert np.array_equal(np.sort(weights[found]), np.sort(expected))


def large_cases():
    """Lists that are split, in several threads: weights of both widths, random or all alike."""
    rng = np.random.default_rng(2)
    n = 100_000
    for edges in (rng.integers(0, n, (8 * n, 2)), rmat(rng, 16, 5 * n), torus(250, 400)):
        for weights in (
            rng.integers(-9, 9, len(edges)),
            rng.random(len(edges), np.float32),
            np.zeros(len(edges), np.uint64),
            np.arange(len(edges), 0, -1.0),
        ):
            yield edges.astype(np.int32), weights, n


def test_splitting_changes_nothing(monkeypatch):
    monkeypatch.setattr(forests_cpu, "available_threads", lambda: 3)
    monkeypatch.setattr(forests_cpu, "PART", 1000)
    for edges, weights, n in large_cases():
        found = spanning_forest(edges, weights, n, backend="cpu")
        with monkeypatch.context() as patch:
            patch.setattr(forests, "LEAST_GROUP", len(edges))
            whole = spanning_forest(edges, weights, n, backend="cpu")
        assert np.array_equal(found, whole)


def test_ids_of_64_bits(monkeypatch):
    monkeypatch.setattr(forests_cpu, "label_dtype", lambda n: np.dtype(np.int64))
    monkeypatch.setattr(forests, "LEAST_GROUP", 1)
    edges, n = GRAPHS["sparse"]
    for weights in (np.arange(len(edges)) % 7, np.arange(len(edges), dtype=np.float32) % 5):
        found = spanning_forest(edges, weights, n, backend="cpu")
        expected = reference.spanning_forest(edges.tolist(), weights.tolist(), n)
        assert found.tolist() == expected


def test_views_and_byte_orders():
    edges, n = GRAPHS["random"]
    weights = np.random.default_rng(3).random(len(edges))
    expected = spanning_forest(edges, weights, n, backend="cpu")
    for these in (np.asfortranarray(edges), edges.astype(">i4"), edges.astype(np.uint64)):
        for those in (weights.astype(">f8"), np.repeat(weights, 2)[::2]):
            assert np.array_equal(spanning_forest(these, those, n, backend="cpu"), expected)
    assert spanning_forest([[0, 1], [1, 2]], [1, 2]).tolist() == [0, 1]
    assert spanning_forest([], []).tolist() == []


REFUSED = [
    ([[0, 5]], [1], {"n": 5}, "vertex 5 of an edge is outside 0 to 4; .* give at least n 6"),
    ([[0, -2]], [1], {}, "vertex -2 of an edge is outside"),
    ([[0, 1]], [1], {"n": 2.5}, "n 2.5: give a whole number from 0"),
    ([[0.0, 1.0]], [1], {}, r"edges of type float64 and shape \(1, 2\) are not usable"),
    ([[0, 1, 2]], [1], {}, r"shape \(1, 3\)"),
    ([0, 1], [1], {}, r"shape \(2,\)"),
    ([[True, False]], [1], {}, "edges of type bool"),
    ([[0, 1], [1, 2]], [1], {}, r"weights have shape \(1,\); \(2,\) is needed"),
    ([[0, 1]], [[1]], {}, r"weights have shape \(1, 1\)"),
    ([[0, 1]], [True], {}, "weights are of type bool; give integers or floats"),
    ([[0, 1]], [1j], {}, "weights .*1j.*: give an array of numbers"),
    ([[0, 1]], np.ones(1, np.longdouble), {}, "of up to 64 bits"),
    ([[0, 1], [1, 2]], [1, np.nan], {}, r"weights\[1\] is NaN"),
    ([[0, 1]], np.array([np.nan], np.float16), {}, r"weights\[0\] is NaN"),
    ([[0, 1]], [1], {"backend": "tpu"}, "backend 'tpu' is not known"),
]


@pytest.mark.parametrize(("edges", "weights", "options", "message"), REFUSED)
def test_refused(edges, weights, options, message):
    with pytest.raises(InputError, match=message):
        spanning_forest(edges, weights, **{"backend": "cpu", **options})
