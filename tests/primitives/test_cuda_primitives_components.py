"""Connected components on a GPU: every method agrees with the CPU, and its kernels compile."""

from __future__ import annotations

import shutil

import emulation
import numpy as np
import pytest
from test_cuda import compile_all, compile_for_real_gpus, needs_nvcc
from test_primitives_components import GRAPHS, MASKS, by_scipy, plain, rmat, torus

from terrain_gpu.errors import InputError
from terrain_gpu.primitives import components_gpu, edge_components
from terrain_gpu.primitives.components import METHODS, connected_components

NAMED = METHODS[1:]


@needs_nvcc
def test_kernels_compile(tmp_path):
    compile_all(tmp_path, "components", components_gpu.variants())


@needs_nvcc
def test_kernels_compile_for_real_gpus(tmp_path):
    compile_for_real_gpus(tmp_path, "components", components_gpu.variants()[0])


@pytest.fixture
def small_groups(monkeypatch):
    """Give "stages" many groups."""
    monkeypatch.setattr(edge_components, "LEAST_GROUP", 50)


@pytest.fixture(params=[0.02, 0.4, 0.97])
def share(request, monkeypatch):
    """The share of the CPU in "hybrid"."""
    monkeypatch.setattr(components_gpu, "FIRST_SHARE", request.param)
    monkeypatch.setattr(components_gpu, "_shares", {})


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint16"])
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name, dtype, small_groups):
    edges, n = GRAPHS[name]
    expected = plain(edges, n)
    for method in NAMED:
        labels = connected_components(edges.astype(dtype), n, method, backend="cuda")
        assert type(labels) is np.ndarray
        assert labels.dtype == np.int64
        assert np.array_equal(labels, expected), method


@pytest.mark.gpu
@pytest.mark.parametrize("name", GRAPHS)
def test_hybrid(name, share):
    edges, n = GRAPHS[name]
    for _ in range(3):
        labels = connected_components(edges, n, "hybrid", backend="cuda")
        assert np.array_equal(labels, plain(edges, n))


@pytest.mark.parametrize("method", ["rem", "sv", "sv-updt", "soman", "cc-updt", "stages-sv-updt"])
def test_methods_in_the_emulation(method, kernels, monkeypatch, small_groups):
    if shutil.which("g++") is None:
        pytest.skip("no compiler to emulate a GPU")
    emulation.use(monkeypatch, kernels)
    try:
        for edges, n in GRAPHS.values():
            labels = connected_components(edges, n, method, backend="cuda")
            assert np.array_equal(labels, plain(edges, n))
    finally:
        emulation.forget()


@pytest.mark.gpu
def test_large_graphs():
    """Large enough for threads to interfere; compared with Rem's method on the CPU."""
    rng = np.random.default_rng(7)
    n = 300_000
    path = rng.permutation(n)
    for edges in (
        rng.integers(0, n, (n // 2, 2)),
        rng.integers(0, n, (4 * n, 2)),
        rmat(rng, 18, 3 * n),
        torus(500, 600),
        np.stack([path[:-1], path[1:]], 1),
        np.stack([np.arange(n), np.zeros(n, int) + n - 1], 1),
    ):
        expected = connected_components(edges, n, "rem", backend="cpu")
        for method in NAMED:
            labels = connected_components(edges, n, method, backend="cuda")
            assert np.array_equal(labels, expected), method


@pytest.mark.gpu
def test_ids_of_64_bits(monkeypatch, small_groups):
    monkeypatch.setattr(edge_components, "label_dtype", lambda n: np.dtype(np.int64))
    for name in ("sparse", "rmat", "path, shuffled"):
        edges, n = GRAPHS[name]
        for method in NAMED:
            for dtype in ("int32", "int64"):
                labels = connected_components(edges.astype(dtype), n, method, backend="cuda")
                assert np.array_equal(labels, plain(edges, n)), method
    for mask in MASKS[-9:]:
        labels = connected_components(mask, backend="cuda")
        assert np.array_equal(labels, by_scipy(mask, True)[2])


@pytest.mark.gpu
@pytest.mark.parametrize("diagonal", [False, True])
def test_masks(diagonal):
    rng = np.random.default_rng(8)
    large = [rng.random((777, 1234)) < share for share in (0.1, 0.41, 0.6, 0.9)]
    for mask in [*MASKS, *large]:
        expected = by_scipy(mask, diagonal)[2]
        for method in ("rem", "sv", "cc-updt"):
            labels = connected_components(
                mask, method=method, connectivity=4 + 4 * diagonal, backend="cuda"
            )
            assert np.array_equal(labels, expected), method


@pytest.mark.gpu
def test_arrays_on_the_gpu():
    import cupy

    edges, n = GRAPHS["sparse"]
    flat = cupy.asarray(np.concatenate([[0], edges.ravel()]))
    odd = flat[1:].reshape(-1, 2)  # no edge lies in one 16-byte word
    for given in (odd, odd[::-1], odd.astype(np.int32)):
        labels = connected_components(given, n)
        assert isinstance(labels, cupy.ndarray)
        assert np.array_equal(labels.get(), plain(edges, n))
    mask = cupy.asarray(MASKS[-1])
    for given in (mask, mask.T):
        labels = connected_components(given)
        assert isinstance(labels, cupy.ndarray)
        assert np.array_equal(labels.get(), by_scipy(given.get(), True)[2])
    with pytest.raises(InputError, match="arrays are on the GPU"):
        connected_components(mask, backend="cpu")
    with pytest.raises(InputError, match="vertex 4999 of an edge is outside 0 to 98"):
        connected_components(cupy.asarray([[4999, 1]]), 99)
    with pytest.raises(InputError, match=r"edges of type float64 and shape \(1, 2\)"):
        connected_components(cupy.ones((1, 2)))
