"""The minimum spanning forest of an edge list on a GPU: as on the CPU, and kernels compile."""

from __future__ import annotations

import shutil

import emulation
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from test_cuda import compile_all, compile_for_real_gpus, needs_nvcc
from test_primitives_components import GRAPHS
from test_primitives_forests import REFUSED, cases, check, large_cases

from terrain_gpu.cuda import device
from terrain_gpu.errors import InputError
from terrain_gpu.primitives import forests, forests_gpu, spanning_forest


@needs_nvcc
def test_kernels_compile(tmp_path):
    compile_all(tmp_path, "forests", forests_gpu.variants())


@needs_nvcc
def test_kernels_compile_for_real_gpus(tmp_path):
    compile_for_real_gpus(tmp_path, "forests", forests_gpu.variants()[0])


@pytest.fixture(scope="module")
def a_gpu(kernels):
    """A GPU, or its emulation."""
    with pytest.MonkeyPatch.context() as patch:
        emulation.forget()
        if device.why_not() is not None:
            if shutil.which("g++") is None:
                pytest.skip("neither a GPU nor a compiler to emulate one")
            emulation.use(patch, kernels)
        yield
    emulation.forget()


@given(case=cases(), group=st.sampled_from([1, 7, 1 << 16]))
@example(case=(np.empty((0, 2), int), np.empty(0), 1), group=1)
@example(case=(np.empty((0, 2), int), np.empty(0), 0), group=1)
@example(case=(np.array([[0, 1], [1, 2]]), np.array([2**64 - 1] * 2, np.uint64), 3), group=1)
def test_as_kruskal(a_gpu, case, group):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forests_gpu.GpuForest, "GROUP", 0)
        check(case, group, "cuda")


@pytest.mark.parametrize(("name", "kind"), [("label_dtype", np.int64), ("index_dtype", np.uint64)])
def test_ids_of_64_bits(a_gpu, monkeypatch, name, kind):
    edges, n = GRAPHS["random"]
    for weights in (np.arange(len(edges)) % 7, np.arange(len(edges), dtype=np.float32) % 5):
        expected = spanning_forest(edges, weights, n, backend="cpu")
        with monkeypatch.context() as patch:
            patch.setattr(forests_gpu, name, lambda count: np.dtype(kind))
            patch.setattr(forests, "LEAST_GROUP", 500)
            found = spanning_forest(edges, weights, n, backend="cuda")
        assert np.array_equal(found, expected)


@pytest.mark.parametrize(("edges", "weights", "options", "message"), REFUSED)
def test_refused(a_gpu, edges, weights, options, message):
    with pytest.raises(InputError, match=message):
        spanning_forest(edges, weights, **{"backend": "cuda", **options})


@pytest.mark.gpu
def test_large_graphs():
    """Large enough for threads to interfere."""
    for edges, weights, n in large_cases():
        for these in (edges, edges.astype(np.int64)):
            found = spanning_forest(these, weights, n, backend="cuda")
            assert type(found) is np.ndarray
            assert np.array_equal(found, spanning_forest(edges, weights, n, backend="cpu"))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["int32", "uint64", "float32", "float64"])
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name, dtype):
    edges, n = GRAPHS[name]
    weights = np.random.default_rng(4).integers(0, 99, len(edges)).astype(dtype)
    found = spanning_forest(edges, weights, n, backend="cuda")
    assert np.array_equal(found, spanning_forest(edges, weights, n, backend="cpu"))


@pytest.mark.gpu
def test_arrays_on_the_gpu():
    import cupy

    edges, n = GRAPHS["sparse"]
    weights = np.random.default_rng(5).random(len(edges))
    expected = spanning_forest(edges, weights, n, backend="cpu")
    flat = cupy.asarray(np.concatenate([[0], edges.ravel()]))
    odd = flat[1:].reshape(-1, 2)  # no edge lies in one 16-byte word
    for these in (odd, cupy.asfortranarray(odd), odd.astype(np.int32), edges):
        found = spanning_forest(these, cupy.asarray(weights), n)
        assert isinstance(found, cupy.ndarray)
        assert np.array_equal(found.get(), expected)
    with pytest.raises(InputError, match="arrays are on the GPU"):
        spanning_forest(odd, weights, backend="cpu")
