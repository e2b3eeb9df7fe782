"""The distance index from a GPU: the same files as from the CPU, byte for byte."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext

import emulation
import numpy as np
import pytest
import strategies
import test_paths
from effort import examples
from hypothesis import given, settings
from test_cuda import compile_all, compile_for_real_gpus, needs_nvcc
from test_paths_index import TILED, call, for_the_index, graph_of, write_layer

from terrain_gpu import build_index, shortest_paths
from terrain_gpu.cuda import device
from terrain_gpu.errors import InputError, PlanError
from terrain_gpu.paths.distance_index import gpu as gpu_index
from terrain_gpu.paths.distance_index import operation as problem
from terrain_gpu.paths.distance_index.classic import CLASSIC
from terrain_gpu.paths.distance_index.files import NAME
from terrain_gpu.paths.distance_index.writer import EntryWriter


@needs_nvcc
@pytest.mark.parametrize("name", ["index", "index_classic"])
def test_kernels_compile(tmp_path, name):
    compile_all(tmp_path, name, [how for other, how in gpu_index.variants() if other == name])


@needs_nvcc
def test_kernels_compile_for_real_gpus(tmp_path):
    compile_for_real_gpus(tmp_path, "index", gpu_index.variants()[0][1])


def files(store):
    """All files of an index."""
    found = sorted(p for p in (store / NAME).rglob("*") if p.is_file())
    return {str(p.relative_to(store)): p.read_bytes() for p in found}


def both(store, method="relax", **how):
    """Build on the GPU and on the CPU, and compare."""
    found = []
    for backend, by in (("cuda", {"method": method}), ("cpu", {})):
        report = build_index(store, **how, **by, backend=backend, overwrite=True)
        assert report.settings["backend"] == backend
        found.append(files(store))
    assert found[0].keys() == found[1].keys()
    for name, data in found[0].items():
        assert data == found[1][name], name
    return found[0]


@pytest.fixture
def rough(tmp_path, no_fsync):
    """A function that makes a store of odd shape, with heights, frictions, barriers and voids."""

    def make(dtype, shape=(150, 210), block=64):
        rng = np.random.default_rng(7)
        z = np.cumsum(rng.integers(-3, 4, shape), axis=1) + np.cumsum(
            rng.integers(-3, 4, shape), axis=0
        )
        layers = {
            "elevation": (z - z.min()).astype(dtype),
            "friction": rng.uniform(0, 4, shape).astype(np.float32),
            "walls": np.uint8(rng.random(shape) < 0.3),
        }
        layers["friction"][rng.random(shape) < 0.02] = np.nan
        layers["friction"][5:9, 20:40] = 0
        if np.dtype(dtype).kind == "f":
            layers["elevation"][rng.random(shape) < 0.02] = np.nan
        for name, cells in layers.items():
            write_layer(tmp_path / "s.zarr", name, cells, block)
        return tmp_path / "s.zarr"

    return make


CASES = [
    ("absdiff", np.uint16, {}),
    ("absdiff", np.int16, {"barriers": "walls", "corner_cutting": False}),
    ("absdiff", np.int32, {"connectivity": 4}),
    ("absdiff", np.float32, {"friction": "friction"}),
    ("friction", np.float32, {"friction": "elevation"}),
    ("friction", np.uint8, {"friction": "friction", "barriers": "walls"}),
    ("surface", np.int16, {}),
    ("surface", np.float64, {"friction": "friction", "connectivity": 4}),
    ("tobler", np.float32, {"barriers": "walls", "corner_cutting": False}),
    ("tobler", np.int16, {"reverse": True}),
    ("langmuir", np.float64, {"parameters": {"a": 0.7}}),
    ("langmuir", np.float32, {"friction": "friction", "reverse": True}),
    ("minimax", np.float32, {"barriers": "walls"}),
    ("minimax", np.int16, {"connectivity": 4}),
]


@pytest.mark.gpu
@pytest.mark.parametrize(("cost", "dtype", "how"), CASES)
@pytest.mark.parametrize(
    ("shape", "block", "tile"),
    [((150, 210), 64, 64), ((129, 300), 256, 128), ((1, 77), 64, 16), ((70, 130), 128, 32)],
)
def test_as_the_cpu(rough, cost, dtype, how, shape, block, tile):
    found = both(rough(dtype, shape, block), cost=cost, tile=tile, **how)
    assert len(found) == 1 + -(-shape[0] // block) * -(-shape[1] // block)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a compiler")
@pytest.mark.parametrize(
    ("tile", "how"),
    [
        (16, {"cost": "tobler", "connectivity": 4}),
        (32, {"cost": "absdiff"}),
        (64, {"cost": "tobler", "reverse": True}),
        (128, {"cost": "absdiff", "corner_cutting": False}),
    ],
)
def test_on_a_stand_in(rough, kernels, monkeypatch, tile, how):
    """All threads of a warp, for each size of tiles."""
    if device.why_not() is None:
        pytest.skip("there is a real one")
    store = rough(np.int16, (20, 70), 128)
    emulation.in_lanes(monkeypatch, kernels)
    monkeypatch.setattr(problem, "memory_bound", lambda *how: nullcontext())
    try:
        for method in ("relax", *CLASSIC) if tile == 16 else ("relax",):
            both(store, method, **how, barriers="walls", tile=tile, threads=1)
    finally:
        emulation.forget()


@pytest.mark.gpu
@pytest.mark.parametrize("axis", [0, 1])
def test_corridors(rough, axis):
    """Rim cells with steps only along a row or a column."""
    store = rough(np.int16)
    walls = np.zeros((150, 210), np.uint8)
    walls[1::2] = axis == 0
    walls[:, 1::2] |= np.uint8(axis == 1)
    write_layer(store, "walls", walls)
    both(store, cost="tobler", barriers="walls")


@pytest.mark.gpu
@pytest.mark.parametrize("method", CLASSIC)
@pytest.mark.parametrize(("cost", "dtype", "how"), CASES)
@pytest.mark.parametrize("tile", [16, 64])
def test_classical_methods(rough, method, cost, dtype, how, tile):
    both(rough(dtype, (70, 130), 64), method, cost=cost, tile=tile, **how)


@pytest.mark.gpu
def test_a_classical_method_in_little_memory(rough):
    store = rough(np.int16, (300, 410), 256)
    for method in CLASSIC:
        both(store, method, tile=32, gpu_memory_limit=700_000_000)


def test_classical_methods_need_a_gpu(rough):
    store = rough(np.int16)
    message = "method 'tournament' runs on a GPU only: backend cpu was given"
    with pytest.raises(InputError, match=message):
        build_index(store, method="tournament", backend="cpu")


@pytest.mark.gpu
@settings(max_examples=examples(15))
@given(for_the_index(), TILED)
def test_any_problem(folders, problem, sides):
    block, tile = sides
    if problem.exact and problem.cells.dtype.itemsize == 8:
        return
    with folders() as folder:
        store = test_paths.make_store(folder / "s.zarr", problem, block)
        both(store, **graph_of(problem), tile=tile)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_any_number_of_rows_at_once(rough, monkeypatch, rows):
    usual = gpu_index.plan
    monkeypatch.setattr(gpu_index, "plan", lambda *how: (usual(*how)[0], rows))
    both(rough(np.float32, (300, 410), 256), cost="tobler")


@pytest.mark.gpu
def test_a_build_goes_on_on_the_other_backend(rough, monkeypatch):
    store = rough(np.float32)
    expected = both(store, cost="friction", friction="elevation")
    usual, calls = EntryWriter.write_block, []

    def failing(*args):
        calls.append(args)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return usual(*args)

    for first, then in (("cpu", "cuda"), ("cuda", "cpu")):
        calls.clear()
        how = {"cost": "friction", "friction": "elevation", "overwrite": True}
        with monkeypatch.context() as patch:
            patch.setattr(EntryWriter, "write_block", failing)
            with pytest.raises(KeyboardInterrupt):
                build_index(store, **how, threads=1, backend=first)
        assert build_index(store, **how, backend=then).result["blocks_resumed"] == 4
        assert files(store) == expected


@pytest.mark.gpu
def test_limits(rough):
    store = rough(np.int16)
    for how, message in (
        ({"gpu_memory_limit": 5_000_000}, r"GPU memory, more than 5 MB.*--backend cpu"),
        ({"memory_limit": 600_000_000}, "memory limit of 600 MB is too small"),
    ):
        with pytest.raises(PlanError, match=message):
            build_index(store, **how, backend="cuda")
        found = build_index(store, **how, overwrite=True)
        assert found.settings["backend"] == "cpu"
    found = build_index(store, gpu_memory_limit=600_000_000, backend="cuda", overwrite=True)
    assert found.settings["backend"] == "cuda"


@pytest.mark.gpu
def test_the_commands(rough, capfd):
    store = rough(np.int16)
    where = "--backend cuda --device 0 --gpu-memory-limit 1GB"
    code, out, err = call(capfd, f"build-index {store} {where} --json -")
    assert code == 0, err
    assert json.loads(out)["settings"]["backend"] == "cuda"
    found = shortest_paths(store, [(0, 0)], method="index", backlink=True)
    expected = shortest_paths(store, [(0, 0)], backlink=True, overwrite=True, backend="cpu")
    for mine, theirs in zip(
        (found.distance(), found.backlink()),
        (expected.distance(), expected.backlink()),
        strict=True,
    ):
        assert strategies.same_bits(mine, theirs)
    assert call(capfd, f"build-index {store} --backend cuda --device 77")[0] == 2
    run = f"compute-sssp {store} --source-rowcol 0,0 --overwrite --cost minimax"
    code, out, err = call(capfd, f"{run} --build-index --gpu-memory-limit 1GB --json -")
    assert code == 0, err
    assert json.loads(out)["result"]["index_built"]["built"]
