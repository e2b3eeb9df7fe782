"""From the GPU to the CPU: one decision for all that run on either. No test needs a GPU."""

from __future__ import annotations

import sys
import types
import weakref
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
from test_mst import make_store

from terrain_gpu import PlanError, TileStore, build_index, minimum_spanning_tree, shortest_paths
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.cuda import device
from terrain_gpu.cuda.backend import Gpu, NoGpu, Placement, find_gpu
from terrain_gpu.cuda.device import OutOfGpuMemory, memory_bound
from terrain_gpu.paths.distance_index import gpu as index_gpu
from terrain_gpu.paths.distance_index.operation import EntrySolver
from terrain_gpu.paths.proof import gpu as proof_gpu
from terrain_gpu.paths.proof import verify_stored
from terrain_gpu.paths.relax.gpu import solve as paths_gpu
from terrain_gpu.paths.relax.relaxation import Overflow, Relaxation
from terrain_gpu.primitives import connected_components, contract_tree, euler_tour, list_ranking
from terrain_gpu.spanning_tree.gpu import plan as mst_plan
from terrain_gpu.spanning_tree.gpu import regions as mst_gpu
from terrain_gpu.spanning_tree.levels import Solver
from terrain_gpu.spanning_tree.proof import gpu as verify_gpu
from terrain_gpu.spanning_tree.proof.forest import verify_arrays, verify_forest
from terrain_gpu.spanning_tree.weights import Weight

pytestmark = pytest.mark.usefixtures("no_fsync")

FULL = "the GPU has no memory left (out of memory)"
REMEDY = "choose a smaller --gpu-memory-limit, or use --backend cpu"


def run_out(*_, **__):
    raise OutOfGpuMemory(f"{FULL}; {REMEDY}")


@pytest.fixture
def asked(monkeypatch):
    """A GPU that seems to work; counts requests for its free memory."""
    found = []

    def usable_memory(number, limit):
        found.append(number)
        return limit or 10**10

    monkeypatch.setattr(device, "why_not", lambda number=0: None)
    monkeypatch.setattr(device, "usable_memory", usable_memory)
    monkeypatch.setattr(device, "name_of", lambda number=0: "A GPU")
    monkeypatch.setattr(mst_plan, "shared_memory", lambda number: 232_448)
    return found


class Shown:
    """A bar of progress: how far it is, and how far it ever was."""

    def __init__(self):
        self.cells = self.total = self.most = self.backwards = 0

    def __call__(self, cells, total):
        self.backwards += cells < 0
        self.cells, self.total = self.cells + cells, total
        self.most = max(self.most, self.cells)


@pytest.fixture
def shown():
    """Checked afterwards: it ends at the total and never exceeds it."""
    bar = Shown()
    yield bar
    assert 0 < bar.cells == bar.most == bar.total


def warnings(caplog):
    """Except those about compiling kernels, which depend on numba's cache."""
    told = [r for r in caplog.records if r.name != "terrain_gpu.compiled"]
    return [record.getMessage() for record in told if record.levelname == "WARNING"]


# -- the decision ----------------------------------------------------------------------------------


def gpu_of(*, wanted):
    return Gpu(0, 10**9, given=False, wanted=wanted)


@pytest.mark.parametrize(("error", "level"), [(PlanError, "INFO"), (OutOfGpuMemory, "WARNING")])
def test_a_step_without_room_runs_again_on_the_cpu(caplog, error, level):
    caplog.set_level("INFO", logger="terrain_gpu")
    bar, steps, held = Shown(), [], []
    placement = Placement(gpu_of(wanted=False), bar, "verifying ")

    class Held:
        pass

    def step(gpu):
        steps.append(gpu)
        if gpu is None:
            assert not held[0]()  # the error and all it held is gone
            placement.progress(9, 9)
            return placement.held
        mine = Held()
        held.append(weakref.ref(mine))
        placement.progress(4, 9)
        raise error("too small; use --backend cpu")

    assert placement.run(step) == 700 * 10**6
    assert [gpu is None for gpu in steps] == [False, True]
    assert (bar.cells, bar.most, bar.backwards) == (9, 9, 1)
    placement.run(steps.append)
    assert steps[-1] is placement.gpu is None
    (record,) = caplog.records
    assert record.levelname == level
    assert record.getMessage().startswith("verifying on the CPU")
    assert record.getMessage().endswith(": too small")


def test_a_gpu_that_is_wanted_is_not_left(caplog):
    placement = Placement(gpu_of(wanted=True))
    with pytest.raises(OutOfGpuMemory, match=r"no memory left .*use --backend cpu"):
        placement.run(lambda gpu: run_out() if gpu else pytest.fail("on the CPU"))
    assert not caplog.records


def test_other_errors_are_none_of_the_gpus():
    placement = Placement(gpu_of(wanted=False))
    with pytest.raises(ZeroDivisionError):
        placement.run(lambda gpu: 1 / 0 if gpu else pytest.fail("on the CPU"))


def test_a_cpu_without_room_beside_cuda_says_so():
    def step(gpu):
        raise PlanError("a memory limit of 300 MB is too small; give at least 400 MB")

    with pytest.raises(
        PlanError, match="at least 400 MB, beside 700 MB for CUDA; or use --backend"
    ):
        Placement(gpu_of(wanted=False)).run(step)
    with pytest.raises(PlanError, match=r"at least 400 MB$"):
        Placement(None).run(step)


def test_a_gpu_is_found_once_with_its_limit(asked, monkeypatch):
    assert find_gpu("auto", 1, None, "4GB", 64) == Gpu(1, 10**10, given=False, wanted=False)
    assert find_gpu("cuda", 0, "1GB", "4GB", 64) == Gpu(0, 10**9, given=True, wanted=True)
    assert asked == [1, 0]
    assert find_gpu("cpu", 0, None, "4GB", 64) is None
    monkeypatch.setattr(device, "why_not", lambda number=0: pytest.fail("loaded"))

    def fits():
        raise PlanError("too small to verify; give more")

    assert find_gpu("auto", 0, None, "4GB", 64, fits=fits) is None
    with pytest.raises(PlanError, match="too small to verify"):
        find_gpu("cuda", 0, None, "4GB", 64, fits=fits)
    monkeypatch.setattr(device, "why_not", lambda number=0: "no GPU")
    assert find_gpu("auto", 0, None, "4GB", 64) is None
    with pytest.raises(NoGpu):
        find_gpu("cuda", 0, None, "4GB", 64)
    assert len(asked) == 2


class Full(Exception):
    """CuPy's own."""


class Runtime(RuntimeError):
    """CUDA's."""


@pytest.fixture
def cupy(monkeypatch):
    """A stand-in for CuPy: numpy with memory pools."""

    class Device:
        def __init__(self, number=0):
            self.id = number

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

    class Pool:
        limit = 7

        def get_limit(self):
            return self.limit

        def set_limit(self, limit):
            self.limit = limit

        def used_bytes(self):
            return 0

        def free_all_blocks(self):
            pass

    pool = Pool()
    found = types.ModuleType("cupy")
    found.__getattr__ = partial(getattr, np)
    found.asnumpy = np.asarray
    found.get_default_memory_pool = found.get_default_pinned_memory_pool = lambda: pool
    memory = types.SimpleNamespace(OutOfMemoryError=Full)
    found.cuda = types.SimpleNamespace(Device=Device, memory=memory)
    monkeypatch.setitem(sys.modules, "cupy", found)
    return found


@pytest.mark.parametrize(
    "error",
    [
        Full("Out of memory allocating 8 bytes (allocated so far: 0 bytes).\nmore"),
        Runtime("cudaErrorMemoryAllocation: out of memory"),
        Runtime("CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
    ],
)
def test_what_is_refused_for_lack_of_memory(cupy, error):
    def work(raised):
        with memory_bound(10**9):
            assert cupy.get_default_memory_pool().limit == 10**9
            raise raised

    with pytest.raises(OutOfGpuMemory) as caught:
        work(error)
    first = str(error).splitlines()[0]
    assert str(caught.value) == f"the GPU has no memory left ({first}); {REMEDY}"
    assert cupy.get_default_memory_pool().limit == 7
    for other in (Runtime("cudaErrorIllegalAddress"), ZeroDivisionError()):
        with pytest.raises(type(other)):
            work(other)


# -- spanning trees --------------------------------------------------------------------------------

HEIGHTS = np.random.default_rng(1).integers(0, 500, (300, 260)).astype(np.int16)
HEIGHTS[40:60, 100:130] = 3


@pytest.fixture(params=["store", "array"])
def heights(request, tmp_path):
    if request.param == "array":
        return HEIGHTS
    return make_store(tmp_path / "s.zarr", HEIGHTS, None, 64)


def sized(data, **how):
    return {**how, "block_size": 64} if isinstance(data, np.ndarray) else how


@pytest.fixture(params=[64, 256])
def half_solved(request, monkeypatch):
    """Some regions of this side are written wrongly; then no memory is left."""
    monkeypatch.setattr(mst_plan, "MOST_SIDE", request.param)

    def solve_regions(source, solver, target, regions, spill, plan, done):
        assert solver.regions.block == request.param
        one = Solver((64, 64), 64, solver.weight, None, True)
        cells = np.zeros((64, 64), source.dtype)
        for at in list(regions)[:1]:
            spill.save(*at, one.solve((0, 64, 0, 64), cells, np.zeros((64, 64), np.uint8)))
            for block in solver.blocks_in(at):
                r0, r1, c0, c1 = solver.blocks.window(*block)
                target.write_block(*block, np.full((r1 - r0, c1 - c0), 15, np.uint8))
            done(at)
        run_out()

    monkeypatch.setattr(mst_gpu, "solve_regions", solve_regions)


def solve_blocks(source, solver, target, regions, spill, plan, done):
    """What a GPU does with regions of one block."""
    cpu = Solver(solver.shape, 64, Weight("max", source.dtype), None, True)
    for at in regions:
        window = r0, r1, c0, c1 = solver.blocks.window(*at)
        mask = np.zeros((r1 - r0, c1 - c0), np.uint8)
        cells = source.read_block(*at, out=np.empty((64, 64), source.dtype))
        spill.save(*at, cpu.solve(window, cells, mask))
        target.write_block(*at, mask)


@pytest.mark.parametrize("verify", [False, True])
def test_a_spanning_tree(asked, half_solved, heights, caplog, shown, verify):
    expected = minimum_spanning_tree(HEIGHTS, backend="cpu")
    found = minimum_spanning_tree(
        heights, **sized(heights, verify=verify, memory_limit="2GB", progress=shown)
    )
    assert np.array_equal(found.edges(), expected.edges())
    assert found.total_weight == expected.total_weight
    assert found.report.settings["backend"] == "cpu"
    assert found.report.settings["plan"]["memory_limit"] == 1_300_000_000
    assert found.report.result.get("verified_on", "cpu") == "cpu"
    assert warnings(caplog) == [f"on the CPU from now on: {FULL}"]
    assert asked == [0]
    assert shown.backwards == 1
    if found.layer is not None:
        assert not (found.layer.path.parent / ".incomplete").exists()


@pytest.mark.parametrize("blocks", [1, 9])
def test_a_spanning_tree_that_the_gpu_alone_may_compute(
    asked, monkeypatch, heights, caplog, blocks
):
    def solve_regions(source, solver, target, *more):
        def write(*how, usual=target.write_block, left=[None] * blocks):
            left.pop() if left else run_out()
            usual(*how)

        target.write_block = write
        solve_blocks(source, solver, target, *more)

    monkeypatch.setattr(mst_plan, "MOST_SIDE", 64)
    monkeypatch.setattr(mst_gpu, "solve_regions", solve_regions)
    run = partial(minimum_spanning_tree, heights, **sized(heights))
    with pytest.raises(PlanError, match=f"no memory left .*; {REMEDY}"):
        run(backend="cuda")
    assert not caplog.records
    if heights is not HEIGHTS:
        found = run(backend="cpu", resume=True)
        expected = minimum_spanning_tree(HEIGHTS, backend="cpu")
        assert np.array_equal(found.edges(), expected.edges())
        assert found.report.result["blocks_resumed"] == blocks


def test_regions_are_joined_on_the_cpu(asked, monkeypatch, heights, caplog):
    """What was solved on the GPU stays."""
    expected = minimum_spanning_tree(HEIGHTS, backend="cpu")
    merges = []
    monkeypatch.setattr(mst_plan, "MOST_SIDE", 64)
    monkeypatch.setattr(mst_gpu, "solve_regions", solve_blocks)
    monkeypatch.setattr(mst_gpu.GpuSolver, "_merge", lambda *how: merges.append(1) or run_out())
    found = minimum_spanning_tree(heights, **sized(heights))
    assert np.array_equal(found.edges(), expected.edges())
    assert found.total_weight == expected.total_weight
    assert found.report.settings["backend"] == "cuda"
    assert warnings(caplog) == [f"joining regions on the CPU from now on: {FULL}"]
    assert merges == [1]
    if heights is not HEIGHTS:
        with pytest.raises(PlanError, match="no memory left"):
            minimum_spanning_tree(heights, backend="cuda", overwrite=True)


def test_the_proof_of_a_spanning_tree(asked, monkeypatch, caplog, shown):
    tree = minimum_spanning_tree(HEIGHTS, backend="cpu")
    calls = []

    def prove(*how, progress, **more):
        calls.append(1)
        progress(40, HEIGHTS.size)
        run_out()

    monkeypatch.setattr(verify_gpu, "prove", prove)
    for backend, level in (("auto", 1), ("cuda", 0)):
        caplog.clear()
        check = partial(verify_arrays, HEIGHTS, None, tree._forward, "max", 8, backend=backend)
        if level:
            assert check()["backend"] == "cpu"
        else:
            with pytest.raises(PlanError, match="no memory left"):
                check()
        assert warnings(caplog) == [f"verifying on the CPU from now on: {FULL}"] * level
    assert len(calls) == len(asked) == 2
    shown(1, 1)


def test_the_proof_of_a_stored_tree_tells_progress_once(
    asked, monkeypatch, tmp_path, caplog, shown
):
    store = make_store(tmp_path / "s.zarr", HEIGHTS, None, 64)
    minimum_spanning_tree(store, backend="cpu")

    def prove(*how, progress, **more):
        progress(40, HEIGHTS.size)
        run_out()

    monkeypatch.setattr(verify_gpu, "prove", prove)
    opened = TileStore.open(store)
    forest = opened.layer("mst")
    found = verify_forest(
        opened.layer("elevation"),
        forest,
        weight="max",
        connectivity=8,
        expected=forest.info["result"],
        backend="auto",
        progress=shown,
    )
    assert found["backend"] == "cpu"
    assert shown.backwards == 1


# -- shortest paths --------------------------------------------------------------------------------

SOURCES = [(0, 0), (250, 200)]


@pytest.fixture
def half_relaxed(monkeypatch):
    """Some blocks of all layers are written wrongly, distances spilled; then no memory is left."""

    def solve(problem, report, tick, write, read):
        types = {"distance": problem.ground.dtype, "backlink": np.uint8, "allocation": np.uint32}
        for at in list(problem.blocks.ids())[:7]:
            r0, r1, c0, c1 = problem.blocks.window(*at)
            for name in problem.names:
                write(name, at, np.ones((r1 - r0, c1 - c0), types[name]))
            tick((r1 - r0) * (c1 - c0))
        problem.spill.parent.mkdir(exist_ok=True)
        for name in ("regions", "regions.saved", "hops"):
            problem.spill.with_name(name).write_bytes(bytes(99))
        run_out()

    monkeypatch.setattr(paths_gpu, "solve", solve)
    usual, spills = Relaxation.run, []

    def run(self, *how, **more):
        spills.append(sorted(path.name for path in self.spill.parent.glob("[rh]*")))
        return usual(self, *how, **more)

    monkeypatch.setattr(Relaxation, "run", run)
    yield
    assert not any(spills)


LINKS = {"backlink": True, "allocation": True}


def assert_same(found):
    expected = shortest_paths(HEIGHTS, SOURCES, **LINKS, backend="cpu")
    for name in ("distance", "backlink", "allocation"):
        np.testing.assert_array_equal(getattr(found, name)(), getattr(expected, name)())


@pytest.mark.parametrize("verify", [False, True])
def test_shortest_paths(asked, half_relaxed, heights, caplog, verify):
    bar, how = Shown(), sized(heights, verify=verify, memory_limit="2GB", threads=3)
    found = shortest_paths(heights, SOURCES, **LINKS, **how, progress=bar)
    assert_same(found)
    assert found.report.settings["backend"] == "cpu"
    assert found.report.settings["plan"]["memory_limit"] == 1_300_000_000
    assert found.report.settings["plan"]["workers"] == 3
    assert found.report.result.get("verified_on", "cpu") == "cpu"
    assert warnings(caplog) == [f"on the CPU from now on: {FULL}"]
    assert asked == [0]
    assert bar.backwards == 1
    assert bar.cells == bar.most
    assert verify or bar.cells == bar.total


def test_paths_that_the_gpu_alone_may_compute(asked, half_relaxed, heights, caplog):
    run = partial(shortest_paths, heights, SOURCES, **LINKS, **sized(heights))
    with pytest.raises(PlanError, match=f"no memory left .*; {REMEDY}"):
        run(backend="cuda")
    assert not caplog.records
    if heights is not HEIGHTS:
        for left in (heights / ".incomplete" / "distance.spill").iterdir():
            left.unlink()  # for the fixture's check: a GPU would continue from it
        assert_same(run(backend="cpu", resume=True))


def test_planning_does_not_ask_again(asked, monkeypatch, caplog, heights):
    """The GPU's memory may be gone by then, which shows when it is needed."""
    monkeypatch.setattr(
        paths_gpu, "memory_bounds", lambda limit, numbers: run_out() if limit == 10**10 else None
    )
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    monkeypatch.setattr(device, "give_back", lambda number: None)
    found = shortest_paths(heights, SOURCES, **LINKS, **sized(heights))
    assert_same(found)
    assert asked == [0]
    assert warnings(caplog) == [f"on the CPU from now on: {FULL}"]


def test_an_overflow_and_then_no_memory(asked, monkeypatch, heights, caplog):
    def solve(problem, *how):
        if problem.ground.dtype == np.uint32:
            raise Overflow
        run_out()

    monkeypatch.setattr(paths_gpu, "solve", solve)
    found = shortest_paths(heights, SOURCES, **sized(heights))
    assert found.report.result["distance_dtype"] == "uint64"
    expected = shortest_paths(HEIGHTS, SOURCES, backend="cpu")
    np.testing.assert_array_equal(found.distance(), expected.distance())
    first, second = warnings(caplog)
    assert first == "distances do not fit into 32 bits; starting again with 64 bits"
    assert second == f"on the CPU from now on: {FULL}"
    assert asked == [0]


@pytest.mark.parametrize("on", ["array", "store"])
def test_the_proof_of_paths(asked, monkeypatch, caplog, tmp_path, on, shown):
    store = make_store(tmp_path / "s.zarr", HEIGHTS, None, 64)
    shortest_paths(store, SOURCES, backend="cpu")

    def prove(self, side, progress):
        progress(99, HEIGHTS.size)
        run_out()

    monkeypatch.setattr(proof_gpu.Proof, "_prove", prove)
    monkeypatch.setattr(proof_gpu, "memory_bound", lambda *how: nullcontext())
    monkeypatch.setattr(proof_gpu, "free_staging", lambda: None)
    fake = types.ModuleType("cupy")
    fake.cuda = types.SimpleNamespace(Device=lambda number: nullcontext())
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(device, "give_back", lambda number: None)
    opened = TileStore.open(store)
    found = verify_stored(opened, backend="auto", progress=shown)
    assert found["backend"] == "cpu"
    assert warnings(caplog) == [f"verifying on the CPU from now on: {FULL}"]
    with pytest.raises(PlanError, match="no memory left"):
        verify_stored(opened, backend="cuda")


# -- the index -------------------------------------------------------------------------------------


@pytest.fixture
def half_indexed(monkeypatch, cupy):
    """A CPU solver in the GPU's place, without memory for the fourth block."""
    calls = []

    class Solved(EntrySolver):
        def __init__(self, terrain, options, index, nothing, tile_rows, method):
            super().__init__(terrain, options, index, nothing)

        def rows(self, at):
            calls.append(at)
            for row in super().rows(at):
                if len(calls) == 4:
                    run_out()
                yield row

    monkeypatch.setattr(index_gpu, "GpuEntrySolver", Solved)
    return calls


def files(store):
    found = sorted(p for p in (store / "distance_index").rglob("*") if p.is_file())
    return {str(p.relative_to(store)): p.read_bytes() for p in found}


def test_an_index(asked, half_indexed, tmp_path, caplog, shown):
    stores = [make_store(tmp_path / f"{k}.zarr", HEIGHTS, None, 64) for k in range(3)]
    build_index(stores[0], backend="cpu", threads=1)
    report = build_index(stores[1], threads=1, memory_limit="2GB", progress=shown)
    assert report.settings["backend"] == "cpu"
    assert report.result["blocks_resumed"] == 0
    assert files(stores[1]) == files(stores[0])
    assert warnings(caplog) == [f"on the CPU from now on: {FULL}"]
    assert len(half_indexed) == 4
    assert asked == [0]
    assert shown.backwards == 1
    half_indexed.clear()
    with pytest.raises(PlanError, match="no memory left"):
        build_index(stores[2], backend="cuda", threads=1)
    report = build_index(stores[2], backend="cpu", threads=1)
    assert report.result["blocks_resumed"] == 3
    assert files(stores[2]) == files(stores[0])


# -- primitives ------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [Full("Out of memory"), Runtime("cudaErrorMemoryAllocation: x")])
def test_primitives(asked, cupy, caplog, error):
    def asarray(*how):
        raise error

    cupy.asarray = asarray
    parent = np.array([0, 0, 0, 1, 1])
    tour = euler_tour(parent, backend="cpu")
    calls = (
        partial(list_ranking, np.array([1, 2, 2])),
        partial(connected_components, np.eye(9, dtype=bool)),
        partial(euler_tour, parent),
        partial(contract_tree, tour, parent > 2),
    )
    for call in calls:
        caplog.clear()
        found, expected = call(), call(backend="cpu")
        arrays = [
            [one] if isinstance(one, np.ndarray) else vars(one).values()
            for one in (found, expected)
        ]
        assert all(np.array_equal(one, two) for one, two in zip(*arrays, strict=True))
        (line,) = warnings(caplog)
        assert line.startswith("on the CPU from now on: the GPU has no memory left (")
        with pytest.raises(PlanError, match=r"no memory left .*; free some, or use numpy"):
            call(backend="cuda")
    assert not asked  # they take what is available


# -- the programs ----------------------------------------------------------------------------------


def test_the_program_says_it_in_one_line(asked, half_relaxed, tmp_path, caplog):
    store = make_store(tmp_path / "s.zarr", HEIGHTS, None, 64)
    words = ["compute-sssp", str(store), "--source-rowcol", "0,0", "--overwrite"]

    def call(*more):
        return options._guarded(lambda: group.main([*words, *more], standalone_mode=False))

    assert call() == 0
    assert warnings(caplog) == [f"on the CPU from now on: {FULL}"]
    assert call("--backend", "cuda") == 2
