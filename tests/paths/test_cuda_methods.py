"""Classical ways to relax on a GPU: the same bits as the default and Dijkstra's algorithm."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import strategies
from click.testing import CliRunner
from effort import examples
from hypothesis import assume, given, settings
from test_cuda import compile_all, compile_for_real_gpus, needs_nvcc
from test_cuda_paths import ALL, CASES, assert_equal, hills
from test_paths import as_sources, assert_same, make_store, options, solve, within_reach

from terrain_gpu import GridSpec, shortest_paths
from terrain_gpu.arguments import PathMethod
from terrain_gpu.cli.main import group
from terrain_gpu.cuda import device
from terrain_gpu.errors import InputError
from terrain_gpu.io.places import from_rowcol
from terrain_gpu.paths.cost.models import MODELS, Scaled
from terrain_gpu.paths.cost_distance.inputs import GPU_METHODS
from terrain_gpu.paths.relax.gpu import classic as gpu_classic
from terrain_gpu.paths.relax.gpu import problem as gpu
from terrain_gpu.paths.relax.gpu.variants import variant

command = group.commands["compute-sssp"]
every_method = pytest.mark.parametrize("method", GPU_METHODS)
on_a_gpu = pytest.mark.gpu
small = strategies.rasters(shape=strategies.shapes(130, 2500))


def test_the_names_are_the_same_everywhere():
    assert set(gpu_classic.RELAXERS) == set(GPU_METHODS)
    choices = next(p for p in command.params if p.name == "method").type.choices
    assert tuple(choices) == get_args(PathMethod)


# -- refusals, which need no GPU -------------------------------------------------------------------


@every_method
def test_not_on_the_cpu(monkeypatch, method):
    z = np.ones((9, 9))
    remedy = "without one, use method relax"
    with pytest.raises(InputError, match=f"'{method}' runs on a GPU only: .*cpu.*{remedy}"):
        shortest_paths(z, [(0, 0)], method=method, backend="cpu")
    monkeypatch.setattr(device, "why_not", lambda number=0: "the driver is too old")
    for backend in ("auto", "cuda"):
        with pytest.raises(InputError, match=f"a GPU only: the driver is too old; {remedy}"):
            shortest_paths(z, [(0, 0)], method=method, backend=backend)
    with pytest.raises(InputError, match="build_index needs method index and cannot"):
        shortest_paths(z, [(0, 0)], method=method, build_index=True)


@every_method
def test_a_raster_too_large_for_the_gpu(monkeypatch, method):
    monkeypatch.setattr(device, "why_not", lambda number=0: None)
    monkeypatch.setattr(device, "usable_memory", lambda number, asked: asked)
    monkeypatch.setattr(gpu, "RESERVED", 0)
    z = hills(700, 900).astype(np.float32)
    how = {"cost": "friction", "friction": z, "block_size": 64, "threads": 2}
    how["gpu_memory_limit"] = 4_000_000
    message = rf"'{method}' needs the whole raster.* 4 MB; raise --gpu-memory-limit, or use --me"
    for backend in ("cuda", "auto"):
        with pytest.raises(InputError, match=message):
            shortest_paths(z, [(350, 350)], **how, method=method, backend=backend)


@every_method
def test_the_command_refuses(tmp_path, no_fsync, method):
    raster = strategies.Raster(np.dtype(np.uint8), (9, 9))
    problem = strategies.CostProblem(raster, GridSpec(9, 9), "absdiff")
    start = [str(make_store(tmp_path / "s.zarr", problem, 64)), "--source-rowcol", "3,3"]
    done = CliRunner().invoke(command, [*start, "--method", method, "--backend", "cpu"])
    assert isinstance(done.exception, InputError)
    assert done.exception.exit_code == 2
    assert "without one, use --method relax" in str(done.exception)
    done = CliRunner().invoke(command, [*start, "--method", method, "--build-index"])
    assert (
        f"--build-index needs --method index and cannot be combined with --method {method}"
        in str(done.exception)
    )


# -- kernels ---------------------------------------------------------------------------------------


def variants():
    """A selection of macros that covers every line."""
    types = {
        "integers": (np.uint16, None, np.uint32),
        "long": (np.int64, None, np.uint64),
        "real": (np.float32, np.float64, np.float64),
    }
    for cost, kind, how in (
        (MODELS["absdiff"].kernel(), "integers", (True, False, False)),
        (MODELS["absdiff"].kernel(), "long", (False, True, False)),
        (Scaled(MODELS["langmuir"].kernel()), "real", (True, False, True)),
        (MODELS["friction"].kernel(), "real", (True, True, False)),
    ):
        given = (t and np.dtype(t) for t in types[kind])
        yield "classic", gpu_classic.macros(variant(cost, *given, how, 2**16))


@needs_nvcc
def test_kernels_compile(tmp_path):
    compile_all(tmp_path, "classic", [macros for _, macros in variants()])


@needs_nvcc
def test_kernels_compile_for_real_gpus(tmp_path):
    compile_for_real_gpus(tmp_path, "classic", next(variants())[1])


# -- results ---------------------------------------------------------------------------------------


def assert_as_relax(data, sources, **how):
    """On the GPU, all methods give the result of `relax`."""
    expected, *others = (
        shortest_paths(data, sources, **ALL, **how, backend="cuda", method=method)
        for method in ("relax", *GPU_METHODS)
    )
    for found, method in zip(others, GPU_METHODS, strict=True):
        assert found.report.settings["method"] == method
        assert_equal(found, expected)
    return expected


@pytest.fixture
def small_blocks(monkeypatch):
    """Small rasters have several blocks of relax-array too."""
    monkeypatch.setattr(gpu_classic, "ARRAY_BLOCK", 64)


@on_a_gpu
@settings(max_examples=examples(60))
@given(strategies.cost_problems(small, geographic=False))
def test_as_dijkstra(problem):
    assume(problem.sources)
    within_reach(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_classic, "ARRAY_BLOCK", 32)
        for method in GPU_METHODS:
            assert_same(solve(problem, method=method, backend="cuda"), problem)


@on_a_gpu
@settings(max_examples=examples(20))
@given(strategies.cost_problems(small))
def test_stores(folders, problem):
    assume(problem.sources)
    within_reach(problem)
    layers = {n: n for n in ("friction", "barriers") if getattr(problem, n) is not None}
    with folders() as folder:
        store = make_store(folder / "s.zarr", problem, 64)
        for method in GPU_METHODS:
            found = shortest_paths(
                store,
                as_sources(problem),
                cost=problem.model,
                **layers,
                **options(problem),
                **ALL,
                overwrite=True,
                backend="cuda",
                method=method,
            )
            assert_same(found, problem)


@on_a_gpu
@pytest.mark.parametrize(("cost", "kind", "how"), CASES)
@pytest.mark.parametrize("shape", [(700, 1100), (1, 5000), (3001, 33)])
def test_as_relax(small_blocks, cost, kind, how, shape):
    z = hills(*shape).astype(kind)
    rng = np.random.default_rng(1)
    barriers = rng.random(shape) < 0.2
    barriers[0, 0] = barriers[-1, -1] = False
    z[barriers & (rng.random(shape) < 0.5)] = 7
    how = how | ({"friction": z} if cost.startswith("friction") else {})
    assert_as_relax(
        z, [(0, 0), (shape[0] - 1, shape[1] - 1, 2)], cost=cost, barriers=barriers, **how
    )


@on_a_gpu
@every_method
@pytest.mark.parametrize(("cost", "kind"), [("absdiff", np.uint16), ("friction", np.float32)])
def test_as_the_cpu(method, cost, kind):
    z = hills(1300, 2100).astype(kind)
    problem = {"cost": cost, "friction": z if cost == "friction" else None, **ALL}
    found, expected = (
        shortest_paths(z, [(650, 1050)], **problem, backend=backend, method=how)
        for backend, how in (("cuda", method), ("cpu", "relax"))
    )
    assert_equal(found, expected)


@on_a_gpu
def test_flats_and_many_sources(small_blocks):
    assert_as_relax(np.zeros((500, 900), np.uint8), [(250, 450), (3, 3)])
    z = hills(1000, 800).astype(np.float32)
    places = np.random.default_rng(3).choice(z.size, 5000, replace=False)
    assert_as_relax(z, [(p // 800, p % 800, p % 11) for p in places.tolist()], cost="tobler")


@on_a_gpu
def test_a_spiral(small_blocks):
    walls = strategies._spiral((257, 257))
    z = np.arange(walls.size, dtype=np.float32).reshape(walls.shape) % 17
    found = assert_as_relax(z, [(0, 0)], cost="surface", barriers=walls)
    assert found.reached == np.count_nonzero(~walls)


@on_a_gpu
def test_stopping_at_targets(small_blocks):
    z = hills(900, 900).astype(np.float32)
    targets = from_rowcol(GridSpec(*z.shape), [(400, 430), (500, 500)])
    how = {"targets": targets, "stop_at_targets": True, "cost": "surface"}
    assert 0 < assert_as_relax(z, [(450, 450)], **how).reached < z.size


@on_a_gpu
def test_integers_that_overflow_32_bits_are_promoted(small_blocks):
    spiral = strategies._spiral((513, 513))
    data = np.zeros(spiral.shape, np.uint16)
    data[np.add.outer(np.arange(513), np.arange(513)) % 2 == 1] = 65535
    found = assert_as_relax(data, [(0, 0)], connectivity=4, barriers=spiral)
    assert found.report.result["distance_dtype"] == "uint64"
