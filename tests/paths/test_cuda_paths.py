"""Shortest paths on a GPU: the same bits as on the CPU and by Dijkstra's algorithm."""

from __future__ import annotations

import itertools
import os
import shutil
from functools import partial

import numpy as np
import pytest
import reference
import strategies
import test_mst
from region_plans import in_regions
from test_formula import NAMED, assert_same
from test_formula import PLAIN_FORMULAS as FORMULAS
from test_paths import make_store

import terrain_gpu
from terrain_gpu import shortest_paths
from terrain_gpu.errors import InputError, PlanError
from terrain_gpu.grid import ceil_div
from terrain_gpu.io.places import from_rowcol
from terrain_gpu.paths.cost.formula.interpret import evaluate
from terrain_gpu.paths.cost.models import MODELS, CostModel, Scaled
from terrain_gpu.paths.relax.gpu import allocate as gpu_allocate
from terrain_gpu.paths.relax.gpu import problem as gpu
from terrain_gpu.paths.relax.gpu import regions as gpu_regions
from terrain_gpu.paths.relax.gpu.variants import variant
from terrain_gpu.store.writer import LayerWriter

pytestmark = pytest.mark.gpu

ALL = {"backlink": True, "allocation": True}


def assert_equal(one, other):
    assert one.reached == other.reached
    assert one.report.valid_cells == other.report.valid_cells
    assert one.distance().dtype == other.distance().dtype
    for mine, theirs in zip(results(one), results(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)
        assert strategies.same_bits(mine, theirs)


def results(found):
    return found.distance(), found.backlink(), found.allocation()


def both(data, sources, **how):
    found = [shortest_paths(data, sources, **ALL, **how, backend=b) for b in ("cuda", "cpu")]
    assert [f.report.settings["backend"] for f in found] == ["cuda", "cpu"]
    assert_equal(*found)
    return found[0]


# -- edges ---------------------------------------------------------------------------------------

EXTREMES = [0.0, -0.0, 5e-324, 1e-300, 0.1, 1.0, 1e8, 1e154, 1.7e308, -1.0, -1e154]


def edge_inputs(count):
    """Heights, frictions and lengths: random ones, and all pairs of extreme ones."""
    rng = np.random.default_rng(6)
    pairs = np.array([(a, b) for a in EXTREMES for b in EXTREMES])
    heights = np.concatenate((rng.normal(0, 30, (count, 2)), pairs, pairs))
    frictions = np.concatenate((rng.uniform(0, 9, (count, 2)), np.abs(pairs), np.abs(pairs[::-1])))
    lengths = rng.choice([1.0, np.sqrt(2), 30.0, 1e-3], len(heights))
    return *heights.T.copy(), *frictions.T.copy(), lengths


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_edges_have_the_same_bits(name, scaled):
    import cupy
    import numba

    from terrain_gpu.cuda.device import module
    from terrain_gpu.paths.cost.edges import edge

    kernel = MODELS[name].kernel
    model = kernel(lam=0.7) if name == "langmuir" else kernel()
    cost = Scaled(model) if scaled else model

    @numba.njit(error_model="numpy")
    def on_cpu(cost, a, b, fa, fb, lengths, out):
        for k in range(len(a)):
            out[k] = edge(cost, a[k], b[k], fa[k], fb[k], lengths[k])

    inputs = edge_inputs(100_000)
    expected, found = np.empty((2, len(inputs[0])))
    on_cpu(cost, *inputs, expected)
    kinds = np.dtype(np.float64), None, np.dtype(np.float64)
    macros = variant(cost, *kinds, (True, True, False), 2**16)
    there = cupy.empty(len(found))
    module("costs", macros).get_function("evaluate")(
        (len(found) // 256 + 1,),
        (256,),
        (*map(cupy.asarray, inputs), cupy.array([*model, *[0.0] * 6][:6]), len(found), there),
    )
    found = there.get()
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(number, ~np.isnan(found))
    assert strategies.same_bits(found[number], expected[number])


@pytest.mark.parametrize("text", FORMULAS)
def test_formulas_have_the_same_bits(text):
    import cupy

    from terrain_gpu.cuda.device import module
    from terrain_gpu.paths.cost.formula.program import in_c

    model, inputs = CostModel(text, "friction" in text, {}), edge_inputs(100_000)
    macros = {"MODEL": "FORMULA", "SCALED": 0, "CELL": "f64", "DISTANCE": "F64"}
    macros["FORMULA_STEPS"] = in_c(model.kernel)
    found = cupy.empty(len(inputs[0]))
    module("costs", macros).get_function("evaluate")(
        (len(found) // 256 + 1,),
        (256,),
        (*map(cupy.asarray, inputs), cupy.zeros(6), len(found), found),
    )
    right = evaluate(model.tree, **dict(zip(NAMED, inputs, strict=True)))
    assert_same(found.get(), right)


# -- whole problems --------------------------------------------------------------------------------


def hills(rows, cols, seed=0):
    rng = np.random.default_rng(seed)
    z = np.cumsum(rng.normal(0, 1, (rows, cols)), axis=1) + np.cumsum(
        rng.normal(0, 1, (rows, cols)), axis=0
    )
    return z - z.min()


CASES = [
    ("absdiff", np.uint16, {}),
    ("absdiff", np.int16, {"source_edge": True}),
    ("absdiff", np.int32, {"connectivity": 4}),
    ("absdiff", np.float32, {"max_cost": 900.0}),
    ("friction", np.float32, {}),
    ("friction", np.float64, {"corner_cutting": False}),
    ("surface", np.int16, {"source_edge": True}),
    ("tobler", np.float32, {"reverse": True}),
    ("langmuir", np.float64, {}),
    ("minimax", np.float32, {}),
    ("herzog", np.float32, {"max_slope": 3.0}),
    ("campbell-2019", np.int16, {"reverse": True}),
    ("length * exp(abs(dz) ** 0.7) + log(1 + abs(z_to))", np.float64, {}),
    ("friction_from * max(0, length + dz)", np.float32, {"corner_cutting": False}),
    ("minimax", np.uint8, {"source_edge": True, "connectivity": 4}),
    ("absdiff", np.int32, {"max_slope": 3.0}),
    ("length * (1 + 1e-4 * dz)", np.float32, {"corner_cutting": False}),
]


@pytest.mark.parametrize(("cost", "kind", "how"), CASES)
@pytest.mark.parametrize("shape", [(700, 1100), (1, 5000), (3001, 33)])
def test_as_the_cpu(cost, kind, how, shape):
    z = hills(*shape).astype(kind)
    rng = np.random.default_rng(1)
    barriers = rng.random(shape) < 0.2
    barriers[0, 0] = barriers[-1, -1] = False
    z[barriers & (rng.random(shape) < 0.5)] = 7
    if cost.startswith("friction"):
        how = {**how, "friction": z}
    both(z, [(0, 0), (shape[0] - 1, shape[1] - 1, 2)], cost=cost, barriers=barriers, **how)


def test_vertical_factors():
    """Of a table: a formula like others."""
    z, table = hills(300, 400) * 20, [(-70, 3), (-5, 0.8), (0, 1), (30, 4), (80, 12)]
    friction = np.random.default_rng(1).uniform(0, 2, z.shape)
    how = {"cost": "surface", "friction": friction, "cell_size": 30.0}
    found = both(z, [(150, 200)], vertical_factor=table, **how)
    assert found.report.settings["cost"].startswith("sqrt(length * length + dz * dz) * friction")


def test_a_constant_raster_is_one_flat():
    found = both(np.zeros((500, 900), np.uint8), [(250, 450), (3, 3)])
    assert not found.distance().any()


@pytest.mark.parametrize("connectivity", [4, 8])
def test_a_spiral(connectivity):
    walls = strategies._spiral((513, 513))
    z = np.arange(513 * 513, dtype=np.float32).reshape(513, 513) % 17
    found = both(z, [(0, 0)], cost="surface", barriers=walls, connectivity=connectivity)
    assert found.reached == np.count_nonzero(~walls)


def test_stopping_at_targets():
    z = hills(900, 900).astype(np.float32)
    sources, targets = [(450, 450)], [(400, 430), (500, 500)]
    from terrain_gpu import GridSpec

    grid = GridSpec(*z.shape, (1.0, 0.0, 0.0, 0.0, -1.0, 0.0))
    how = {"targets": from_rowcol(grid, targets), "stop_at_targets": True, "cost": "surface"}
    found = both(z, sources, **how)
    assert 0 < found.reached < z.size


def test_many_sources():
    rng = np.random.default_rng(3)
    z = hills(1000, 800).astype(np.float32)
    places = rng.choice(z.size, 5000, replace=False)
    both(z, [(p // 800, p % 800, p % 11) for p in places.tolist()], cost="tobler")


def test_what_does_not_fit_is_refused_or_left_to_the_cpu():
    z = hills(300, 300)
    run = {"cost": "friction", "friction": z, "gpu_memory_limit": 5_000_000}
    with pytest.raises(PlanError, match=r"--gpu-memory-limit.*--backend cpu"):
        shortest_paths(z, [(0, 0)], **run, backend="cuda")
    found = shortest_paths(z, [(0, 0)], **run, backend="auto")
    assert found.report.settings["backend"] == "cpu"


def test_a_memory_limit_too_small_for_cuda(tmp_path, no_fsync):
    problem = strategies.CostProblem(
        strategies.Raster(np.dtype(np.uint8), (90, 90)), strategies.GridSpec(90, 90), "absdiff"
    )
    store = make_store(tmp_path / "s.zarr", problem, 64)
    with pytest.raises(PlanError, match=r"too small for CUDA .* give at least 98. MB"):
        shortest_paths(store, [(0, 0)], memory_limit=600_000_000, backend="cuda")
    found = shortest_paths(store, [(0, 0)], memory_limit=600_000_000)
    assert found.report.settings["backend"] == "cpu"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"cost": "friction"}, r"friction -1\.0 at row 2, column 3 is negative"),
        (
            {"barriers": np.ones((9, 9), np.uint8)},
            "1 of 1 given cells are barriers: row 0, column 0 ",
        ),
        ({"method": "dijkstra"}, "runs only on the CPU"),
    ],
)
def test_errors(how, message):
    z = np.ones((9, 9))
    z[2, 3] = -1
    if how.get("cost") == "friction":
        how = {**how, "friction": z}
    with pytest.raises(InputError, match=message):
        shortest_paths(z, [(0, 0)], **how, backend="cuda")


def test_reference_agrees_on_the_source_at_the_edge():
    z = hills(90, 70).astype(np.int16)
    found = shortest_paths(z, [(40, 30, 3)], source_edge=True, **ALL, backend="cuda")
    rim = np.pad(np.zeros((88, 68), bool), 1, constant_values=True)
    sources = [(r, c, None, 2**32 - 1) for r, c in reference.listed(rim)] + [(40, 30, 3, 1)]
    expected = reference.dijkstra(z, "absdiff", sources)
    assert found.distance().tolist() == expected.tolist()


def test_the_command(tmp_path, no_fsync):
    from click.testing import CliRunner

    from terrain_gpu import TileStore
    from terrain_gpu.cli.compute_sssp import command

    problem = strategies.CostProblem(
        strategies.Raster(np.dtype(np.int16), (200, 300), terrain="hills"),
        strategies.GridSpec(200, 300),
        "tobler",
    )
    store = str(make_store(tmp_path / "s.zarr", problem, 64))
    start = [store, "--source-rowcol", "20,30", "--cost", "tobler", "--overwrite"]
    found = []
    for how in (
        ["--backend", "cuda", "--device", "0", "--gpu-memory-limit", "1GB", "--verify"],
        ["--backend", "cpu"],
    ):
        done = CliRunner().invoke(command, [*start, *how], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        found.append(TileStore.open(store).layer("distance").read_window(0, 200, 0, 300))
    assert strategies.same_bits(*found)
    done = CliRunner().invoke(command, [*start, "--backend", "cuda", "--device", "77"])
    assert done.exit_code != 0


# -- rasters that do not fit -----------------------------------------------------------------------


@pytest.fixture(params=[(1, 1), (2, 2), (3, 3), (1, 9), (3, 1)], ids=str)
def regions(request, monkeypatch):
    """The GPU uses regions of so many rows and columns of blocks."""
    in_regions(monkeypatch, *request.param)
    return request.param


def test_regions(regions):
    for cost, kind, how in CASES:
        z = hills(300, 410).astype(kind)
        barriers = np.random.default_rng(1).random(z.shape) < 0.2
        barriers[0, 0] = barriers[-1, -1] = False
        z[100:220, 60:300] = 7
        sources = [(0, 0), (299, 409, 2)]
        beside = {"friction": z} if cost.startswith("friction") else {}
        found = both(z, sources, cost=cost, barriers=barriers, block_size=64, **how, **beside)
        assert found.report.result["regions"] > 1
        assert found.report.result["region_visits"] > 1


def test_allocation_holds_one_region_at_a_time(regions, monkeypatch):
    used, usual = [], gpu_allocate.follow

    def follow(*given):
        used.append(cupy.get_default_memory_pool().used_bytes())
        return usual(*given)

    import cupy

    monkeypatch.setattr(gpu_allocate, "follow", follow)
    found = both(hills(1536, 1536).astype(np.uint8), [(0, 0), (900, 900)], block_size=256)
    assert found.report.result["regions"] > 1
    count = ceil_div(6, min(regions)) ** 2  # it takes squares
    assert len(used) == 2 * count
    assert max(used) - min(used) < 4 * 1536**2 / count  # labels take 8 bytes per cell


def test_a_flat_over_regions(regions):
    z = np.zeros((300, 300), np.uint8)
    found = both(z, [(150, 140), (3, 3)], block_size=64)
    assert not found.distance().any()


def test_a_spiral_over_regions(regions):
    walls = strategies._spiral((257, 257))
    z = np.arange(257 * 257, dtype=np.float32).reshape(257, 257) % 17
    both(z, [(0, 0)], cost="surface", barriers=walls, block_size=64)


def test_targets_and_a_limit_over_regions(regions):
    z = hills(300, 300).astype(np.float32)
    from terrain_gpu import GridSpec

    targets = from_rowcol(GridSpec(*z.shape), [(200, 130), (250, 250)])
    how = {"targets": targets, "stop_at_targets": True, "cost": "tobler", "block_size": 64}
    assert 0 < both(z, [(150, 150)], **how).reached < z.size
    both(z, [(150, 150)], cost="absdiff", max_cost=40, block_size=64)


def test_distances_alone_over_regions(regions):
    z = hills(300, 410).astype(np.float32)
    z[np.random.default_rng(2).random(z.shape) < 0.1] = -9
    z[0, 0] = z[150, 300] = 1
    for more in ({"cost": "surface"}, {"cost": "surface", "max_cost": 60}, {"source_edge": True}):
        sources = [(0, 0), (150, 300, 5)]
        how = {"nodata": -9, "block_size": 64, **more}
        cuda, cpu = (shortest_paths(z, sources, **how, backend=b) for b in ("cuda", "cpu"))
        assert (cuda.reached, cuda.report.valid_cells) == (cpu.reached, cpu.report.valid_cells)
        assert strategies.same_bits(cuda.distance(), cpu.distance())


def test_a_region_is_read_again_where_it_is_needed(monkeypatch):
    in_regions(monkeypatch, 7)
    z = hills(896, 896).astype(np.uint16)
    result = both(z, [(30, 40)], block_size=64).report.result
    assert result["regions"] == 4
    assert result["region_visits"] > 4
    assert 14 * 14 <= result["blocks_read"] < 49 * result["region_visits"]


STOPS = [(0, "save"), (1, "save"), (2, "save"), (5, "save"), (20, "save"), (60, "save")]


@pytest.mark.parametrize("sources", [[(0, 0)], [(0, 0), (299, 409, 2)]], ids=["one", "two"])
@pytest.mark.parametrize(("stop", "of"), [*STOPS, (4, "write"), (20, "write")])
def test_a_stopped_run_goes_on_from_the_distances_found(
    tmp_path, no_fsync, monkeypatch, stop, of, sources
):
    z = hills(300, 410).astype(np.uint16)
    z[100:220, 60:300] = 7
    test_mst.make_store(tmp_path / "s.zarr", z, None, 64)
    run = partial(shortest_paths, tmp_path / "s.zarr", sources, **ALL)
    with monkeypatch.context() as patch:
        in_regions(patch, 2)
        home = gpu_regions.RegionSpill if of == "save" else LayerWriter
        name = "save" if of == "save" else "write_block"
        write, calls = getattr(home, name), itertools.count()

        def failing(self, *args):
            if next(calls) != stop:
                return write(self, *args)
            if of == "save":  # half a block, maybe over an older one
                _, at, cells = args
                half = memoryview(cells).cast("B")[: cells.nbytes // 2]
                slots, slot = self._slots, self._slot(at)
                os.pwrite(slots._open()[0], half, slot * slots._slot_bytes)
            raise KeyboardInterrupt

        patch.setattr(home, name, failing)
        with pytest.raises(KeyboardInterrupt):
            run(backend="cuda")
    expected = both(z, sources, block_size=64)
    for high, wide in (2, 2), (3, 2), (1, 9):  # a resumed run may use other regions
        folder = tmp_path / f"{high} {wide}"
        shutil.copytree(tmp_path / "s.zarr", folder)
        with monkeypatch.context() as patch:
            in_regions(patch, high, wide)
            found = shortest_paths(folder, sources, **ALL, backend="cuda", resume=True)
        assert (found.report.result["blocks_resumed"] == 35) >= (of == "write")
        assert_equal(found, expected)
        assert not (folder / ".incomplete").exists()


def test_a_run_that_saved_nothing_leaves_nothing(tmp_path, no_fsync, regions):
    z = np.ones((200, 200), np.float32)
    z[3, 3] = -1
    store = test_mst.make_store(tmp_path / "s.zarr", z, None, 64)
    for _ in range(2):
        with pytest.raises(InputError, match=r"friction -1\.0 at row 3, column 3 is negative"):
            shortest_paths(store, [(0, 0)], cost="friction", friction="elevation", backend="cuda")
    assert not (store / ".incomplete").exists()


def test_a_small_limit_makes_regions(monkeypatch):
    monkeypatch.setattr(gpu, "RESERVED", 0)
    z = hills(700, 900).astype(np.float32)
    run = {"cost": "friction", "friction": z, "block_size": 64, "threads": 2}
    found = shortest_paths(z, [(350, 350)], **run, gpu_memory_limit=4_000_000, backend="cuda")
    expected = shortest_paths(z, [(350, 350)], **run, backend="cpu")
    assert found.report.result["regions"] > 1
    assert strategies.same_bits(found.distance(), expected.distance())


@pytest.mark.gpu
@pytest.mark.parametrize("cost", ["absdiff", "surface", "minimax"])
@pytest.mark.parametrize("nodata", [None, 0])
def test_floats_below_the_normal_ones(cost, nodata):
    """1e-45 is not 0: neither as a height nor beside a nodata value of 0."""
    rng = np.random.default_rng(1)
    z = rng.choice(np.array([0, 1e-45, 3e-45, 1e-40, 1e-38, -1e-45, -0.0], np.float32), (150, 170))
    z[0, 0] = 1e-45
    found = [
        shortest_paths(z, [(0, 0)], cost=cost, nodata=nodata, backend=backend, verify=True)
        for backend in ("cpu", "cuda")
    ]
    one, other = (each.distance() for each in found)
    assert one.tobytes() == other.tobytes()


def test_arrays_of_cupy_in_and_out():
    import cupy

    z = hills(150, 170).astype(np.float32)
    how = {"cost": "surface", "backlink": True, "allocation": True}
    plain = shortest_paths(z, [(0, 0), (99, 40)], **how, backend="cpu")
    found = shortest_paths(cupy.asarray(z), [(0, 0), (99, 40)], **how, backend="cuda")
    for name in ("distance", "backlink", "allocation"):
        there = getattr(found, name)()
        assert isinstance(there, cupy.ndarray)
        assert strategies.same_bits(cupy.asnumpy(there), getattr(plain, name)())
    tree = terrain_gpu.minimum_spanning_tree(cupy.asarray(z))
    edges = terrain_gpu.minimum_spanning_tree(z, backend="cpu").edges()
    assert isinstance(tree.edges(), cupy.ndarray)
    assert np.array_equal(cupy.asnumpy(tree.edges()), edges)
