"""Cost matrices on a GPU: the same bits as on the CPU. Most run without one, in emulated lanes."""

from __future__ import annotations

import shutil

import emulation
import numpy as np
import pytest
from contract import make_store
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_paths_matrix import as_places, how_of, listed, questions

from terrain_gpu import InputError, PlanError, cost_matrix, least_cost_network
from terrain_gpu.cuda import device
from terrain_gpu.cuda.backend import Gpu
from terrain_gpu.engine.arrays import ArrayLayer
from terrain_gpu.engine.machine import Machine
from terrain_gpu.grid import BlockGrid, GridSpec
from terrain_gpu.io.places import Places
from terrain_gpu.paths.cost_matrix import gpu
from terrain_gpu.paths.cost_matrix.operation import MatrixProblem
from terrain_gpu.paths.cost_matrix.solve import MatrixRun

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a compiler")

RNG = np.random.default_rng(3)
ROUGH = RNG.integers(1, 99, (70, 101)).astype(np.int16)
FLAT = np.uint8(RNG.random(ROUGH.shape) < 0.3)
HOLES = np.where(RNG.random(ROUGH.shape) < 0.1, np.nan, ROUGH / 7).astype(np.float32)
CELLS = [(int(r), int(c)) for r, c in RNG.integers(0, 70, (11, 2)) if not np.isnan(HOLES[r, c])]


@pytest.fixture(scope="module")
def lanes(kernels):
    """A stand-in for a GPU, until the end of the module."""
    if device.why_not() is None:
        pytest.skip("there is a real one")
    with pytest.MonkeyPatch.context() as patch:
        emulation.in_lanes(patch, kernels)
        yield
    emulation.forget()


def both(*what, **how):
    found = [cost_matrix(*what, backend=backend, verify=True, **how) for backend in ("cuda", "cpu")]
    assert len({one.report.result["verified_steps"] for one in found}) == 1
    assert [one.report.settings["backend"] for one in found] == ["cuda", "cpu"]
    assert found[0].report.settings["plan"]["planes"] > 0
    assert listed(found[0]) == listed(found[1])
    return found[0]


HOW = {
    "friction": (HOLES, {"cost": "friction", "friction": HOLES}),
    "tobler": (ROUGH, {"cost": "tobler", "reverse": True, "corner_cutting": False}),
    "flats": (FLAT, {"cost": "absdiff"}),
    "integers": (ROUGH.astype(np.int64) * 10**9, {"cost": "absdiff", "nearest": 2}),
    "minimax": (ROUGH.astype(np.float64), {"cost": "minimax", "connectivity": 4}),
    "formula": (ROUGH, {"cost": "length * exp(abs(slope) / 9)", "max_slope": 60.0}),
    "bounded": (ROUGH, {"cost": "surface", "max_cost": {1: 400.0, 3: 371.8}}),
    "knights": (HOLES, {"cost": "friction", "friction": HOLES, "connectivity": 16}),
    "knights uphill": (ROUGH, {"cost": "tobler", "reverse": True, "connectivity": 16}),
    "knights on flats": (FLAT, {"cost": "absdiff", "connectivity": 16}),
    "seam": (HOLES, {"cost": "friction", "friction": HOLES, "wrap": "yes"}),
    "knights across the seam": (FLAT, {"cost": "absdiff", "wrap": "yes", "connectivity": 16}),
    "flats across the seam": (FLAT, {"cost": "absdiff", "wrap": "yes", "corner_cutting": False}),
}


# The others are compiled for other tests, or left to a GPU.
EMULATED = [name for name in HOW if name not in ("knights", "knights uphill", "seam")]


@needs_compiler
@pytest.mark.parametrize("name", EMULATED)
def test_emulated(lanes, name):
    data, how = HOW[name]
    both(data, CELLS[:3], CELLS[3:7], cell_size=(3.0, 5.0), **how)


def as_files(folder, backend, *what, **how):
    """A run with a table and lines; returns the text of both."""
    files = folder / f"{backend}.csv", folder / f"{backend}.geojson"
    how |= {"output": files[0], "paths": files[1], "backend": backend}
    found = cost_matrix(*what, **how)
    assert found.report.settings["backend"] == backend
    return [file.read_text() for file in files], found.report


def several():
    """Places of two cells each, with start costs, of more sources than one pass has planes."""
    cells = np.array(CELLS * 3)
    cells[len(CELLS) :, 1] = (cells[len(CELLS) :, 1] * 7 + np.arange(2 * len(CELLS))) % 101
    cells = np.unique(cells[~np.isnan(HOLES[tuple(cells.T)])], axis=0)
    ids = (np.arange(len(cells)) // 2 + 1).astype(np.uint32)
    return Places(*cells.T, ids, np.arange(len(cells)) % 3.0)


@needs_compiler
def test_emulated_sources_wake_the_tiles_that_knights_reach(lanes):
    """The cells between cost too much, and the target lies in the next tile, two columns away."""
    data = np.full((40, 70), -9999, np.int16)
    data[10, 30], data[10, 31], data[11, 31], data[11, 32] = 0, 100, -100, 0
    how = {"cost": "absdiff", "connectivity": 16, "max_cost": 50.0, "nodata": -9999}
    found = both(data, [(10, 30)], [(11, 32)], **how)
    assert found.columns()["cost"].tolist() == [0]


@needs_compiler
@pytest.mark.parametrize("name", ["friction", "flats", "knights", "knights across the seam"])
def test_emulated_passes_and_lines(lanes, tmp_path, monkeypatch, name):
    """Planes are used again, a place has several cells, and paths are kept in parts."""
    monkeypatch.setattr(gpu, "planes_within", lambda form, most: 8)
    for most in ("_PATHS", "_STEPS", "_MOST"):
        monkeypatch.setattr(gpu, most, 40)
    data, how = HOW[name]
    places = several()
    how = {**how, "nodata": None, "nearest": 3}
    (mine, report), (theirs, _) = (
        as_files(tmp_path, backend, data, places, **how) for backend in ("cuda", "cpu")
    )
    assert report.result["batches"] == 2
    assert mine == theirs


@needs_compiler
def test_emulated_runs_resume_each_other(lanes, tmp_path, monkeypatch):
    """What a GPU has finished is kept where it ends, and the CPU goes on; and the other way."""
    monkeypatch.setattr(gpu, "planes_within", lambda form, most: 8)
    data, how = HOW["friction"]
    whole, _ = as_files(tmp_path, "cpu", data, several(), **how)
    usual = MatrixRun._finish
    for first, second in (("cuda", "cpu"), ("cpu", "cuda")):
        files = {"output": tmp_path / "t.csv", "paths": tmp_path / "t.geojson", "overwrite": True}
        finished = []

        def finish(self, number, *rest, seen=finished):
            if seen:
                raise KeyboardInterrupt
            seen.append(number)
            usual(self, number, *rest)

        monkeypatch.setattr(MatrixRun, "_finish", finish)
        with pytest.raises(KeyboardInterrupt):
            cost_matrix(data, several(), backend=first, threads=1, **files, **how)
        monkeypatch.setattr(MatrixRun, "_finish", usual)
        found = cost_matrix(data, several(), backend=second, resume=True, **files, **how)
        assert found.report.result["batches_resumed"] == 1
        assert [files[name].read_text() for name in ("output", "paths")] == whole


@needs_compiler
@pytest.mark.parametrize(
    "how", [{"pairs": "all", "connectivity": 16}, {"nearest": 2, "cost": "tobler"}]
)
def test_emulated_networks(lanes, tmp_path, how):
    store, text = make_store(tmp_path / "s.zarr", ROUGH, None, 64), []
    for backend in ("cuda", "cpu"):
        file = tmp_path / f"{backend}.geojson"
        found = least_cost_network(store, CELLS, file, backend=backend, verify=True, **how)
        assert found.report.settings["backend"] == backend
        text.append(file.read_text())
    assert text[0] == text[1]


@needs_compiler
def test_emulated_refusals_are_those_of_the_cpu(lanes):
    walls = np.zeros(ROUGH.shape, np.uint8)
    walls[10, 10] = 1
    far = np.array([[-(2**60), 2**60, -(2**60), 2**60, -(2**60)]], np.int64)
    bad = ROUGH.astype(float)
    bad[3, 4] = -1
    for backend in ("cuda", "cpu"):
        with pytest.raises(InputError, match="given cells are barriers: row 10, column 10 "):
            cost_matrix(ROUGH, [(0, 0), (10, 10)], barriers=walls, backend=backend)
        with pytest.raises(InputError, match="exceed 64 bits"):
            cost_matrix(far, [(0, 0)], [(0, 4)], backend=backend)
        with pytest.raises(InputError, match=r"friction -1.0 at row 3, column 4 is negative"):
            cost_matrix(bad, [(0, 0), (9, 9)], cost="friction", friction=bad, backend=backend)


def test_a_raster_that_does_not_fit(monkeypatch, caplog):
    """Planned before CUDA is used, so that no GPU is needed to see it."""
    caplog.set_level("INFO", logger="terrain_gpu")
    monkeypatch.setattr(device, "why_not", lambda number=0: None)
    monkeypatch.setattr(device, "usable_memory", lambda number, asked: asked or 10**9)
    monkeypatch.setattr(device, "give_back", lambda number: None)
    with pytest.raises(PlanError, match=r"limit of 520 MB; raise --gpu-memory-limit, or use"):
        cost_matrix(ROUGH, CELLS, backend="cuda", gpu_memory_limit="520MB")
    found = cost_matrix(ROUGH, CELLS, gpu_memory_limit="520MB")
    assert found.report.settings["backend"] == "cpu"
    assert "on the CPU: a cost matrix over 70 x 101 cells takes 600 MB" in caplog.text
    assert listed(found) == listed(cost_matrix(ROUGH, CELLS, backend="cpu"))


def test_planes_are_as_many_as_fit(monkeypatch):
    """Of the GPU's memory, of the process's, and as there are sources."""
    monkeypatch.setattr(device, "why_not", lambda number=0: None)
    ids = np.arange(70)
    sources = Places(ids, ids // 9, ids.astype(np.uint32), np.zeros(70))
    layer = ArrayLayer(ROUGH, BlockGrid(*ROUGH.shape, 64), GridSpec(*ROUGH.shape))
    problem = MatrixProblem("", "data", sources=sources).over([layer])
    for memory, most in ((10**10, 72), (603_000_000, 24)):
        plan = problem.plan_batches(Machine.of("4GB", 2).on(Gpu(0, memory, True, True)))
        assert plan.planes == most
        assert plan.gpu_memory <= memory
        assert plan.together == most // 8
    large = Gpu(0, 10**10, True, True)
    least = problem.plan_batches(Machine.of("4GB", 1).on(large))
    fewer = problem.plan_batches(Machine.of(least.memory - 1, 1).on(large))
    assert fewer.planes < least.planes
    assert fewer.memory < least.memory
    with pytest.raises(PlanError, match="for a cost matrix on a GPU"):
        problem.plan_batches(Machine.of("300MB", 1).on(large))


# -- on a GPU --------------------------------------------------------------------------------------

on_gpu = pytest.mark.gpu


@on_gpu
@given(questions(connectivities=(8, 4, 16)), st.booleans())
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_problems(question, joined):
    problem, sources, targets, nearest = question
    joined &= problem.cells.shape[1] >= 5
    ends = None if targets is None else as_places(targets)
    both(
        problem.cells,
        as_places(sources),
        ends,
        friction=problem.friction,
        barriers=problem.barriers,
        nodata=problem.raster.nodata,
        nearest=nearest,
        wrap="yes" if joined else "no",
        **how_of(problem),
    )


@on_gpu
@pytest.mark.parametrize("name", HOW)
def test_named_problems(name):
    data, how = HOW[name]
    both(data, CELLS[:3], CELLS[3:7], cell_size=(3.0, 5.0), **how)


@on_gpu
@pytest.mark.parametrize("cost", ["friction", "absdiff"])
@pytest.mark.parametrize("way", [{}, {"connectivity": 16}, {"wrap": "yes", "connectivity": 16}])
def test_many_sources_of_a_large_raster(tmp_path, cost, way):
    """Paths too, and in several passes: what does not fit one is the same."""
    rng = np.random.default_rng(5)
    data = rng.integers(1, 9, (1500, 1300)).astype(np.uint8)
    points = list(map(tuple, rng.integers(0, 1300, (40, 2)).tolist()))
    how = {"cost": cost, **way} | ({"friction": data} if cost == "friction" else {})
    (mine, report), (theirs, _) = (
        as_files(tmp_path, backend, data, points, **how) for backend in ("cuda", "cpu")
    )
    assert mine == theirs
    plan = report.settings["plan"]
    assert plan["planes"] == 40
    some = cost_matrix(
        data, points, backend="cuda", gpu_memory_limit=plan["gpu_memory"] - 10**6, **how
    )
    assert some.report.settings["plan"]["planes"] < 40
    assert listed(some) == listed(cost_matrix(data, points, backend="cuda", **how))


@on_gpu
def test_the_plan_holds(monkeypatch):
    import cupy

    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    found = both(HOLES.repeat(9, 0).repeat(9, 1), [(5, 5), (600, 900)], cost="surface")
    assert pool.total_bytes() <= found.report.settings["plan"]["gpu_memory"]
