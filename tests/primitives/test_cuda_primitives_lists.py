"""List ranking, Euler tours and contraction on a GPU, against plain walks and the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cuda import compile_all, compile_for_real_gpus, needs_nvcc
from test_primitives_lists import check_methods, faults, lists, make_lists, plain_ranks
from test_primitives_trees import SHAPES, edges_of, make_tree, no_trees, same, trees

from terrain_gpu.errors import InputError
from terrain_gpu.primitives import contract_tree, euler_tour, list_ranking, lists_gpu

METHODS = ("auto", "wyllie", "splitters", "recursive", "hybrid")
gpu = pytest.mark.gpu


@needs_nvcc
def test_kernels_compile(tmp_path):
    compile_all(tmp_path, "lists", lists_gpu.variants())


@needs_nvcc
def test_kernels_compile_for_real_gpus(tmp_path):
    compile_for_real_gpus(tmp_path, "lists", lists_gpu.variants()[-1])


@gpu
@given(given_lists=lists(), splitters=st.sampled_from([None, 1, 7, 50, 1000]))
def test_as_the_plain_walk(given_lists, splitters):
    check_methods(given_lists, splitters, "cuda", METHODS)


@gpu
@pytest.mark.parametrize("order", ["random", "ordered", "reversed"])
@pytest.mark.parametrize("count_and_lists", [(3_000_000, 1), (1_000_003, 400_000), (70_001, 5)])
@pytest.mark.parametrize("weighted", [False, True])
def test_as_the_cpu(order, count_and_lists, weighted):
    """Splitters in words of 48 and 64 bits, and two levels of recursion."""
    succ = make_lists(*count_and_lists, order, 1)
    weights = np.random.default_rng(1).integers(-(2**40), 2**40, len(succ)) if weighted else None
    expected = list_ranking(succ, weights=weights, backend="cpu")
    for method in METHODS:
        for splitters in (None, 1000, len(succ) // 4):
            ranks = list_ranking(succ, method, weights, "cuda", splitters=splitters)
            assert np.array_equal(ranks, expected), (method, splitters)


@gpu
@pytest.mark.parametrize("count", [2**12, 2**12 + 1, 2**16 - 1, 2**16])
def test_where_words_become_wider(count):
    succ = make_lists(count, 1, "random", 0)
    for splitters in (None, count):
        check_methods((succ, None), splitters, "cuda", ("wyllie", "splitters"))


@gpu
def test_deep_recursion(monkeypatch):
    monkeypatch.setattr(lists_gpu, "SMALL", 8)
    succ = make_lists(3000, 4, "random", 2)
    for weights in (None, np.arange(3000)):
        check_methods((succ, weights), 1500, "cuda", ("recursive",))


@gpu
@pytest.mark.parametrize("kind", ["int32", "int64", "uint8"])
def test_resident_arrays_stay(kind):
    import cupy

    succ = make_lists(200, 3, "random", 3)
    given_lists = cupy.asarray(succ.astype(kind))
    for method in METHODS:
        ranks = list_ranking(given_lists, method)
        assert isinstance(ranks, cupy.ndarray)
        assert np.array_equal(ranks.get(), plain_ranks(succ))
        assert np.array_equal(given_lists.get(), succ)
    with pytest.raises(InputError, match="arrays are on the GPU"):
        list_ranking(given_lists, backend="cpu")
    with pytest.raises(InputError, match="method 'sequential' runs on the CPU"):
        list_ranking(given_lists, "sequential")


@gpu
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("splitters", [None, 1, 100])
def test_no_lists(method, splitters):
    for succ, message in faults():
        with pytest.raises(InputError, match=message):
            list_ranking(succ, method, backend="cuda", splitters=splitters)


@gpu
def test_a_large_cycle_beside_a_list():
    """Too large for jumping alone: found by the walks, or in the list of sublists."""
    succ = make_lists(2_000_000, 1, "random", 4)
    ring = np.roll(np.arange(1_000_000), 1) + 2_000_000
    for method in METHODS:
        for splitters in (None, 3):
            with pytest.raises(InputError, match="element 2000000 is on a cycle"):
                list_ranking(
                    np.concatenate((succ, ring)), method, backend="cuda", splitters=splitters
                )


# -- trees -----------------------------------------------------------------------------------------


@gpu
@settings(max_examples=examples(30))
@given(parent=trees(), seed=st.integers(0, 99))
def test_trees_as_on_the_cpu(parent, seed):
    check_trees(parent, np.random.default_rng(seed))


@gpu
@pytest.mark.parametrize("shape", SHAPES)
def test_large_trees_as_on_the_cpu(shape):
    check_trees(make_tree(shape, 300_000, 1), np.random.default_rng(1))


def check_trees(parent, rng):
    count = len(parent)
    tours = [euler_tour(parent, backend=backend) for backend in ("cpu", "cuda")]
    same(tours[1], tours[0])
    keep, weights = rng.random(count) < 0.1, rng.integers(-9, 9, count)
    for reduce in ("sum", "max"):
        found = [
            contract_tree(tour, keep, weights, reduce=reduce, backend=backend)
            for tour, backend in zip(tours, ("cpu", "cuda"), strict=True)
        ]
        same(found[1], found[0], vars(found[0]))
    if (parent == np.arange(count)).sum() == 1:
        edges, root = edges_of(parent, rng), int(rng.integers(count))
        tours = [euler_tour(edges=edges, root=root, backend=b) for b in ("cpu", "cuda")]
        same(tours[1], tours[0])


@gpu
def test_resident_trees_stay():
    import cupy

    parent = cupy.asarray(make_tree("random", 1000))
    tour = euler_tour(parent)
    found = contract_tree(tour, parent % 5 == 0)
    for array in (*vars(tour).values(), *vars(found).values()):
        assert isinstance(array, cupy.ndarray)


@gpu
@pytest.mark.parametrize(("arguments", "message"), no_trees())
def test_no_trees(arguments, message):
    with pytest.raises(InputError, match=message):
        euler_tour(**arguments, backend="cuda")
