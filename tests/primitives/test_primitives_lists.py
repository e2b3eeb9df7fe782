"""List ranking on the CPU: all methods against a plain walk."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from terrain_gpu.errors import InputError
from terrain_gpu.primitives import list_ranking, lists_cpu

METHODS = ("auto", "sequential", "wyllie", "splitters", "recursive", "hybrid")
ORDERS = ("random", "ordered", "reversed")


def make_lists(count, lists, order, seed):
    """Successors of `count` elements in at most `lists` lists."""
    rng = np.random.default_rng(seed)
    chain = np.arange(count)
    chain = {"random": rng.permutation(count), "ordered": chain, "reversed": chain[::-1]}[order]
    succ = np.empty(count, np.int64)
    succ[chain[:-1]] = chain[1:]
    succ[chain[-1:]] = chain[-1:]
    ends = rng.integers(0, max(count, 1), lists - 1 if count else 0)
    succ[ends] = ends
    return succ


def plain_ranks(succ, weights=None):
    """Ranks by walking from each end back to the head."""
    before = {int(after): v for v, after in enumerate(succ) if after != v}
    ranks = np.zeros(len(succ), np.int64)
    for end in np.flatnonzero(succ == np.arange(len(succ))):
        v = int(end)
        while v in before:
            after, v = v, before[v]
            ranks[v] = ranks[after] + (1 if weights is None else weights[v])
    return ranks


@st.composite
def lists(draw):
    count = draw(st.integers(0, 300))
    lists = draw(st.sampled_from([1, 2, 5, count // 2 + 1]))
    succ = make_lists(count, lists, draw(st.sampled_from(ORDERS)), draw(st.integers(0, 99)))
    weights = np.random.default_rng(count).integers(-(2**40), 2**40, count)
    return succ, draw(st.sampled_from([None, weights]))


def check_methods(given_lists, splitters, backend, methods=METHODS):
    succ, weights = given_lists
    expected = plain_ranks(succ, weights)
    for method in methods:
        ranks = list_ranking(succ, method, weights, backend, splitters=splitters)
        assert ranks.dtype == np.int64
        assert np.array_equal(ranks, expected), method


@given(given_lists=lists(), splitters=st.sampled_from([None, 1, 7, 50, 1000]))
def test_as_the_plain_walk(given_lists, splitters):
    check_methods(given_lists, splitters, "cpu")


def test_more_than_fits_16_bits_and_one_thread():
    """Words of 64 bits in Wyllie's algorithm, parts of ranges in all, recursion."""
    succ = make_lists(140_000, 3, "random", 1)
    check_methods((succ, None), None, "cpu")
    check_methods((succ, np.arange(len(succ))), 70_000, "cpu", ("splitters", "recursive"))


@pytest.mark.parametrize("count", [2**16 - 1, 2**16])
def test_where_words_become_wider(count):
    ranks = list_ranking(make_lists(count, 1, "ordered", 0), "wyllie", backend="cpu")
    assert np.array_equal(ranks, np.arange(count)[::-1])


def test_deep_recursion(monkeypatch):
    monkeypatch.setattr(lists_cpu, "SMALL", 8)
    succ = make_lists(3000, 4, "random", 2)
    for weights in (None, np.arange(3000)):
        check_methods((succ, weights), 1500, "cpu", ("recursive",))


@pytest.mark.parametrize("kind", ["int32", "uint8", "uint64"])
def test_other_integers(kind):
    succ = make_lists(200, 3, "random", 3)
    ranks = list_ranking(succ.astype(kind), backend="cpu")
    assert np.array_equal(ranks, plain_ranks(succ))


def test_a_python_list_and_none():
    assert list_ranking([2, 1, 1], backend="cpu").tolist() == [2, 0, 1]
    assert list_ranking([], backend="cpu").tolist() == []


def test_the_input_is_left_alone():
    succ = make_lists(500, 2, "random", 4)
    given_lists = succ.copy()
    for method in METHODS:
        list_ranking(given_lists, method, backend="cpu", splitters=100)
        assert np.array_equal(given_lists, succ)


def faults():
    """Arrays that are not lists, and the error messages."""
    ring = np.roll(np.arange(300), -1)
    two_rings = np.concatenate((make_lists(300, 2, "ordered", 5), ring + 300))
    wide = make_lists(300, 2, "random", 5)
    beyond, below, fork = wide.copy(), wide.copy(), wide.copy()
    beyond[7], below[7] = 300, -1
    a, b = np.flatnonzero(wide != np.arange(300))[:2]
    fork[b] = fork[a]
    return [
        (ring, "element 0 is on a cycle; the last element of a list must point to itself"),
        (two_rings, "element 300 is on a cycle"),
        (np.array([1, 0]), "element 0 is on a cycle"),
        (beyond, r"succ\[7\] is 300, but the elements are 0 to 299"),
        (below, r"succ\[7\] is -1, but"),
        (fork, f"elements {a} and {b} have the same successor, {fork[a]}"),
        (np.array([1, 1, 1]), "elements 0 and 2 have the same successor, 1"),
    ]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("splitters", [None, 1, 100])
def test_no_lists(method, splitters):
    for succ, message in faults():
        with pytest.raises(InputError, match=message):
            list_ranking(succ, method, backend="cpu", splitters=splitters)


@given(
    succ=st.integers(1, 12).flatmap(lambda n: st.lists(st.integers(-1, n), min_size=n, max_size=n))
)
def test_any_array_is_ranked_or_refused(succ):
    """Each element reaches a last one, and nobody but the last is reached twice."""
    count = len(succ)
    inside = all(0 <= after < count for after in succ)
    steps = [after for v, after in enumerate(succ) if after != v]
    good = inside and len(set(steps)) == len(steps)
    far = list(range(count))
    for _ in range(count if good else 0):
        far = [succ[v] for v in far]
    good = good and all(succ[v] == v for v in far)
    for method in METHODS:
        if good:
            ranks = list_ranking(succ, method, backend="cpu", splitters=3)
            assert np.array_equal(ranks, plain_ranks(np.array(succ)))
        else:
            with pytest.raises(InputError):
                list_ranking(succ, method, backend="cpu", splitters=3)


def test_wrong_arguments():
    succ = [1, 1]
    for message, arguments in (
        ("method 'dfs' is not known; use one of auto, seq", {"method": "dfs"}),
        ("splitters 0: give a whole number from 1 on", {"splitters": 0}),
        ("sums of floats depend on the order", {"weights": [0.5, 0.5]}),
        (r"weights have shape \(3,\); it must be that of succ, \(2,\)", {"weights": [1, 2, 3]}),
        ("sum of the weights exceeds int64", {"weights": [2**62, 2**62]}),
        ("backend 'gpu' is not known", {"backend": "gpu"}),
    ):
        with pytest.raises(InputError, match=message):
            list_ranking(succ, **{"backend": "cpu", **arguments})
    with pytest.raises(InputError, match="succ is of float64; integers are needed"):
        list_ranking([0.0], backend="cpu")
    with pytest.raises(InputError, match=r"succ has shape \(1, 2\); one dimension"):
        list_ranking([[0, 1]], backend="cpu")


def test_large_weights_that_cancel_are_taken():
    weights = np.array([2**62, -(2**61), 5])
    assert list_ranking([1, 2, 2], weights=weights, backend="cpu").tolist() == [2**61, -(2**61), 0]
