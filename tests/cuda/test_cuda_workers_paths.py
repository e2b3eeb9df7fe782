"""Shortest paths on GPUs of the workers of a cluster: real ones where there are two, else emulated.

The CPU of one process says what is right.
"""

from __future__ import annotations

import math
import shutil
from functools import partial
from shutil import rmtree

import emulation
import numpy as np
import pytest
from bucket import files
from cluster import at_share, drawn_share, kill_a_worker
from contract import Stop, make_store, same, stop_at, whole
from distributed import WorkerPlugin
from effort import examples, is_long
from gpu_workers import workers_with_gpus
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import forked
from samples import make_layers, round_the_earth
from strategies import shapes
from test_paths_cluster import Lossy, Ticking

from terrain_gpu import TileStore, shortest_paths
from terrain_gpu.cuda import device, workers
from terrain_gpu.cuda.backend import Gpu, Placement
from terrain_gpu.cuda.device import OutOfGpuMemory
from terrain_gpu.engine.machine import Machine
from terrain_gpu.engine.run import run
from terrain_gpu.errors import InputError, PlanError, StoreError
from terrain_gpu.grid import BlockGrid, ceil_div
from terrain_gpu.io.places import as_places
from terrain_gpu.paths.cost.edges import infinity_of
from terrain_gpu.paths.cost_distance import gpu_remote as remote
from terrain_gpu.paths.cost_distance import gpu_worker as keep
from terrain_gpu.paths.cost_distance.gpu_worker import Around, RegionFiles
from terrain_gpu.paths.cost_distance.operation import LAYERS, CostDistance
from terrain_gpu.paths.relax.gpu.problem import Problem
from terrain_gpu.store.spill import SlotFiles

pytestmark = [
    pytest.mark.usefixtures("no_fsync"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs a compiler"),
]

SOURCES = [(3, 5), (90, 120, 7)]
HEAVY = {"minimax", "metric", "max_cost", "reverse"}
"""Costs and settings whose kernels are slow to compile for a stand-in."""
ALL = {"backlink": True, "allocation": True}


def heights(shape=(130, 140)):
    found = np.random.default_rng(5).integers(0, 9, shape).astype(np.int16)
    found[60:80, 30:120] = -1
    found[5:50, 50:110] = 4
    return found


def make(path, data=None):
    """Heights, with frictions and barriers beside them."""
    data = heights() if data is None else data
    rng = np.random.default_rng(6)
    friction = rng.random(data.shape, np.float32)
    barriers = (rng.random(data.shape) < 0.2).astype(np.uint8)
    barriers[0, 0] = barriers[-1, -1] = 0
    store = make_store(path, data, -1, 64)
    lay_beside(store, 64, friction=friction, barriers=barriers)
    return store


def lay_beside(store, block, **layers):
    make_layers(store, TileStore.open(store).layer("elevation").grid, layers, block)


@pytest.fixture
def store(tmp_path):
    return make(tmp_path / "s.zarr")


@pytest.fixture(scope="module", params=["stand-in", pytest.param("real", marks=pytest.mark.gpu)])
def kind(request):
    """Whether GPUs are real, or a stand-in where there are none."""
    if request.param == "stand-in" and device.why_not() is None:
        pytest.skip("there are real ones")
    return request.param


@pytest.fixture(scope="module")
def gpus(kind, kernels):
    """A client of two workers with a GPU each."""
    with workers_with_gpus(2, kernels, lanes=True) as client:
        yield client


@pytest.fixture(scope="module")
def one_gpu(kind, kernels):
    """A client of one worker with a GPU."""
    with workers_with_gpus(1, kernels, lanes=True) as client:
        yield client


def in_regions(patch, sides):
    """Regions have so many rows and columns of blocks; None for one of each worker."""
    if sides is not None:
        patch.setattr(Problem, "sides", lambda self, least=1: sides)


@pytest.fixture(params=[None, (1, 2)], ids=["one of each", "six"])
def regions(request, monkeypatch):
    in_regions(monkeypatch, request.param)
    return request.param


def both(store, client=None, sources=SOURCES, **how):
    """Run on GPUs of the workers and on this process's CPU; compare; return the first report."""
    there = {"client": client, "backend": "cuda", **how}
    beside = shortest_paths(store, sources, **there)
    assert not (store / ".incomplete").exists()
    found = {name: files(store / name) for name in beside.layers}
    how = {k: v for k, v in how.items() if k not in ("backend", "client", "resume")}
    alone = shortest_paths(store, sources, backend="cpu", **(how | {"overwrite": True}))
    for name in alone.layers:
        assert files(store / name) == found[name], name
    assert beside.reached == alone.reached > 0
    assert beside.report.valid_cells == alone.report.valid_cells
    return beside.report


@pytest.mark.parametrize(
    "how",
    [
        {"verify": True, **ALL},
        {"cost": "friction", "friction": "friction", "reverse": True, **ALL},
        {"cost": "minimax", "source_edge": True, "corner_cutting": False, **ALL},
        {"cost": "friction", "friction": "friction", "connectivity": 16, "barriers": "barriers"},
        {"cost": "friction", "friction": "friction", "metric": "continuous"},
        {"targets": [(20, 90), (90, 20)], "stop_at_targets": True, "backlink": True},
        {"cost": "length * 2 + abs(dz)", "max_cost": 90.0, "connectivity": 4},
    ],
    ids=["absdiff", "friction", "minimax", "16", "continuous", "targets", "formula"],
)
def test_the_same_bytes(gpus, kind, store, regions, how):
    if kind == "stand-in" and HEAVY & {*how, how.get("cost")} and not is_long():
        pytest.skip("takes a minute to compile for a stand-in; --long")
    if how.get("metric") == "continuous":
        data = np.random.default_rng(1).integers(1, 9, heights().shape).astype(np.float32)
        lay_beside(store, 64, positive=data)
        how = {**how, "friction": "positive"}
    if "barriers" in how:
        how = {**how, **ALL, "sources": [(0, 0)]}
    report = both(store, gpus, how.pop("sources", SOURCES), **how)
    told = report.settings
    assert told["backend"] == "cuda"
    assert told["gpu"]
    assert told["cluster"]["workers"] == 2
    assert told["plan"]["worker_memory"] > 0
    assert report.result["regions"] == (6 if regions else 2)
    if regions is None:  # each is read once
        assert report.result["blocks_read"] == 9
    if "verify" in how:
        assert report.result["verified_on"] == "cpu"


def test_across_the_seam(gpus, tmp_path, regions):
    world = round_the_earth_at(tmp_path / "world.zarr")
    assert both(world, gpus, **ALL).result["wrap"]


def round_the_earth_at(path):
    shape = 100, 129
    make_layers(path, round_the_earth(shape), {"elevation": heights(shape)}, 64)
    return path


def test_one_worker(one_gpu, store, tmp_path):
    assert both(store, one_gpu, **ALL).result["regions"] == 1
    world = round_the_earth_at(tmp_path / "world.zarr")
    assert both(world, one_gpu, **ALL).result["regions"] == 1


def test_distances_that_need_64_bits(gpus, kind, tmp_path, regions):
    if kind == "stand-in" and not is_long():
        pytest.skip("takes a minute to compile for a stand-in; --long")
    data = np.zeros((130, 140), np.int32)
    data[::2] = 2**30
    found = both(make_store(tmp_path / "s.zarr", data, -1, 64), gpus, **ALL)
    assert found.result["distance_dtype"] == "uint64"


@settings(max_examples=examples(20))
@given(
    data=st.data(),
    shape=shapes(160, 12_000),
    block=st.sampled_from([64, 128]),
    sides=st.sampled_from([None, (1, 1), (2, 1), (1, 2)]),
    seconds=st.sampled_from([0.0, 0.2]),
    how=st.sampled_from(
        [
            {},
            {"source_edge": True},
            {"max_cost": 20.0, "connectivity": 4},
            {"cost": "friction", "friction": "friction"},
            {"cost": "friction", "friction": "friction", "connectivity": 16, "barriers": "walls"},
        ]
    ),
    made=st.tuples(
        st.sampled_from([1, 3, 200]), st.sampled_from([0.0, 0.3, 0.6]), st.integers(0, 99)
    ),
)
def test_any_raster(gpus, folders, data, shape, block, sides, seconds, how, made):
    most, holes, seed = made
    rng = np.random.default_rng(seed)
    z = rng.integers(0, most, shape).astype(np.int16)
    z[rng.random(shape) < holes] = -1
    friction = rng.integers(0, 3, shape).astype(np.uint8)
    walls = (rng.random(shape) < 0.2).astype(np.uint8)
    start = rng.integers(shape[0]), rng.integers(shape[1])
    z[start], walls[start] = 1, 0
    with folders() as folder, pytest.MonkeyPatch.context() as patch:
        in_regions(patch, sides)
        patch.setattr(remote, "SECONDS", seconds)
        store = make_store(folder / "s.zarr", z, -1, block)
        lay_beside(store, block, friction=friction, walls=walls)
        names = data.draw(st.sampled_from([{}, {"backlink": True}, ALL]))
        both(store, gpus, [(*map(int, start), 3)], **how, **names)


# -- faults ----------------------------------------------------------------------------------------


def test_a_worker_dies(gpus, store, regions):
    killed = []
    kill = at_share(drawn_share(), lambda: killed.append(kill_a_worker(gpus)))
    both(store, gpus, progress=kill, **ALL)
    assert killed
    gpus.wait_for_workers(2)


def interrupt_at(share):
    stop = stop_at(share)

    def interrupt(cells, total):
        try:
            stop(cells, total)
        except Stop:
            raise KeyboardInterrupt from None

    return interrupt


@pytest.mark.parametrize("share", [0.2, 0.6])
def test_a_stopped_run_goes_on(gpus, one_gpu, tmp_path, regions, share):
    """With other workers, with other regions, on CPUs, and from there."""
    ways = {
        "there": {"client": gpus, "backend": "cuda"},
        "one": {"client": one_gpu, "backend": "cuda"},
        "cpus": {"client": gpus, "backend": "cpu"},
        "alone": {"backend": "cpu"},
    }
    for first, then in ("there", "one"), ("there", "cpus"), ("there", "alone"), ("alone", "there"):
        store = make(tmp_path / f"{first}-{then}")
        with pytest.raises(KeyboardInterrupt):
            shortest_paths(store, SOURCES, progress=interrupt_at(share), **ways[first], **ALL)
        found = both(store, resume=True, **ALL, **ways[then])
        assert found.result["blocks_resumed"] > 0


def test_distances_that_are_finished_are_left(gpus, store):
    shortest_paths(store, SOURCES, backend="cpu", **ALL)
    rmtree(store / "backlink")
    written = (store / "distance" / "zarr.json").stat().st_ino
    how = {"client": gpus, "backend": "cuda", "resume": True}
    shortest_paths(store, SOURCES, **how, **ALL)
    assert (store / "distance" / "zarr.json").stat().st_ino == written
    found = {name: files(store / name) for name in LAYERS}
    shortest_paths(store, SOURCES, backend="cpu", overwrite=True, **ALL)
    assert found == {name: files(store / name) for name in LAYERS}


def test_saved_once_a_minute(gpus, store, monkeypatch):
    """A run that dies goes on from there."""
    monkeypatch.setattr(remote, "CHECKPOINT", 0.0)
    monkeypatch.setattr(remote, "SECONDS", 0.0)
    with pytest.raises(Stop):
        shortest_paths(store, SOURCES, client=gpus, backend="cuda", progress=stop_at(0.55), **ALL)
    assert both(store, gpus, resume=True, **ALL).result["blocks_resumed"] > 0


@pytest.fixture(scope="module")
def lanes(kind, kernels):
    """A GPU in this process, or a stand-in for one until the end of the module."""
    if kind == "real":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        emulation.in_lanes(patch, kernels)
        yield
    emulation.forget()


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return make(tmp_path_factory.mktemp("kept") / "s.zarr")


@settings(max_examples=examples(12))
@given(
    st.data(),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([None, (1, 1), (1, 2), (3, 1)]),
    st.sampled_from([0.0, 0.003, 1.0]),
    st.sampled_from([0.0, 0.01, math.inf]),
    st.sampled_from(
        [
            {"names": LAYERS[:1]},
            {"cost": "friction", "friction": "friction", "names": LAYERS[:2]},
            {"source_edge": True, "names": LAYERS},
        ]
    ),
)
def test_whatever_workers_lose(lanes, kept, data, slots, sides, seconds, checkpoint, how):
    """Any of so many may die, before or after a visit, or its result is never heard."""
    layer = TileStore.open(kept).layer("elevation")
    sources = as_places(layer.grid, SOURCES, "sources")
    problem = CostDistance(str(kept), "elevation", sources=sources, **how)
    alone = run(problem, overwrite=True, threads=1)
    cells = {name: whole(found) for name, found in alone.layers.items()}
    engine, clock = Lossy(data.draw), Ticking()
    engine.slots = slots
    gpu = Gpu(0, 10**9, False, True, workers=("one",) * slots)
    with pytest.MonkeyPatch.context() as patch:
        in_regions(patch, sides)
        patch.setattr(remote, "SECONDS", seconds)
        patch.setattr(remote, "CHECKPOINT", checkpoint)
        for module in (remote, keep):
            patch.setattr(module, "time", clock)
        place = Placement(gpu)
        beside = run(problem, overwrite=True, threads=1, engine=engine, place=place)
    for name, found in beside.layers.items():
        assert same(cells[name], whole(found))
    assert beside.found == alone.found
    assert not (kept / ".incomplete").exists()


class Alone(Lossy):
    """One worker, which loses nothing."""

    slots = 1

    def __init__(self):
        super().__init__(lambda numbers: 0)

    def fate(self, name, work, item):
        return "done"


def damage(path):
    path.write_bytes(path.read_bytes()[:-9] + bytes(9))


def test_a_damaged_block_that_nothing_reaches(lanes, tmp_path, monkeypatch):
    """A run goes on without what an earlier one has saved there."""
    data = heights()
    data[:, 64] = data[64, :] = -1
    store = make(tmp_path / "s.zarr", data)
    grid = TileStore.open(store).layer("elevation").grid
    sources = as_places(grid, [(3, 5)], "sources")
    problem = CostDistance(str(store), "elevation", sources=sources)
    in_regions(monkeypatch, (1, 1))
    saved = SlotFiles.beside(tmp_path / "fields")
    saved.begin()
    gpu = Gpu(0, 10**9, False, True, workers=("one",))
    form = problem._problem(1, problem.plan(Machine.of(threads=1).on(gpu)), gpu, tmp_path)
    RegionFiles(form, saved, exact=False).save("", (1, 1), np.zeros((64, 64), problem.dtype))
    for path in saved.folder.iterdir():
        damage(path)
    monkeypatch.setattr(SlotFiles, "left", lambda spill: saved)
    beside = run(problem, overwrite=True, threads=1, engine=Alone(), place=Placement(gpu))
    monkeypatch.undo()
    cells = whole(beside.layers["distance"])
    alone = run(problem, overwrite=True, threads=1)
    assert same(cells, whole(alone.layers["distance"]))


def test_damage_while_a_region_is_kept(lanes, kept, tmp_path, monkeypatch):
    """It is refused, not taken for a block without distances."""
    layer = TileStore.open(kept).layer("elevation")
    problem = CostDistance(
        str(kept), "elevation", sources=as_places(layer.grid, [(3, 5)], "sources")
    )
    in_regions(monkeypatch, (1, 2))
    gpu = Gpu(0, 10**9, False, True, workers=("one",))
    plan, folder = problem.plan(Machine.of(threads=1).on(gpu)), tmp_path / "fields"
    folder.mkdir()
    ring = np.full(2 * (128 + 2 + 64), infinity_of(np.empty(0, problem.dtype)), problem.dtype)
    first = keep.RegionVisit(
        (0, 0), "", "", False, folder, {}, Around.of(ring, ring), None, problem.farthest,
        math.inf, False, (False,), gpu._replace(workers=()), plan,
    )  # fmt: skip
    (saved,) = keep.relax_region(problem, [], first).saved
    problem.close()
    there = first._replace(settled=True, names=saved.names, seconds=1.0)
    found = keep.relax_region(problem, [], there)
    assert found.counts["blocks_read"] == 0
    for path in folder.iterdir():
        damage(path)
    lowered = ring.copy()
    lowered[-1] = 0
    more = there._replace(field=found.field, settled=False, around=Around.of(lowered, ring))
    with pytest.raises(StoreError, match="damaged; compute again with --overwrite"):
        keep.relax_region(problem, [], more)
    problem.close()


def test_memory_of_a_run_that_is_gone_is_freed(lanes, monkeypatch):
    monkeypatch.setattr(device, "identity_of", lambda: "")

    class Holder:
        gone = False

        def let_go(self):
            self.gone = True

    holder = Holder()
    workers.HOLDERS.add(holder)
    assert workers.own_gpu(None).missing is None
    assert holder.gone


# -- choice, limits, errors ------------------------------------------------------------------------


def test_auto(gpus, store, kernels, caplog):
    caplog.set_level("INFO", "terrain_gpu")
    found = both(store, gpus, backend="auto")
    assert found.settings["backend"] == "cuda"
    assert "on the GPUs of 2 workers: " in caplog.text
    for how in ({"backend": "cpu"}, {"method": "dijkstra", "backend": "auto"}):
        assert both(store, gpus, overwrite=True, **how).settings["backend"] == "cpu"
    with workers_with_gpus(2, kernels, announced=False, lanes=True) as client:
        found = both(store, client, overwrite=True, backend="auto")
    assert found.settings["backend"] == "cpu"
    assert "announces no GPU (--resources GPU=1, or --backend cuda" in caplog.text


def run_out(*given):
    raise OutOfGpuMemory("the GPU has no memory left; choose a smaller --gpu-memory-limit")


class Full(WorkerPlugin):
    """The GPU of each worker is full when distances are to be written."""

    name = "full"

    def setup(self, worker):
        self.usual, keep.RegionKeeper.finish = keep.RegionKeeper.finish, run_out

    def teardown(self, worker):
        keep.RegionKeeper.finish = self.usual


def test_no_memory_is_left(gpus, store, caplog):
    gpus.register_plugin(Full())
    try:
        found = both(store, gpus, backend="auto", **ALL)
        assert found.settings["backend"] == "cpu"
        assert "on the CPU from now on: the GPU has no memory left" in caplog.text
        with pytest.raises(PlanError, match="no memory left; choose a smaller --gpu-memory"):
            shortest_paths(store, SOURCES, client=gpus, backend="cuda", overwrite=True)
    finally:
        gpus.unregister_worker_plugin("full")


def test_limits(gpus, store):
    both(store, gpus, gpu_memory_limit="600MB")
    cuda = partial(shortest_paths, store, SOURCES, client=gpus, backend="cuda", overwrite=True)
    with pytest.raises(PlanError, match="more than the limit of 500 MB; raise --gpu-memory-limit"):
        cuda(gpu_memory_limit="500MB")
    with pytest.raises(PlanError, match=r"memory limit of \d+ MB is too small"):
        cuda(memory_limit="400MB")


def test_errors_are_those_of_one_process(gpus, tmp_path):
    data = np.ones((130, 140), np.float32)
    data[100, 20] = -2
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    words = r"friction -2\.0 at row 100, column 20 is negative"
    with pytest.raises(InputError, match=words):
        shortest_paths(
            store, [(0, 0)], cost="friction", friction="elevation", client=gpus, backend="cuda"
        )


def test_a_command(kind, store, tmp_path):
    """With real GPUs: the emulation is not in the workers of a command."""
    command = f"compute-sssp {store} --source-rowcol 3,5 --workers 1 --backend cuda"
    done = forked(f"{command} --allocation {tmp_path}/a.tif --json {tmp_path}/r.json")
    if kind == "real":
        assert done.returncode == 0, done.stderr
        own = files(store / "allocation")
        shortest_paths(store, [(3, 5)], backend="cpu", overwrite=True, **ALL)
        assert files(store / "allocation") == own
    else:
        assert done.returncode == 2
        assert "CuPy is not installed" in done.stderr
        assert done.stderr.count("\n") == 1


# -- parts -----------------------------------------------------------------------------------------


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 20), st.sampled_from([600, 1000]))
def test_regions_of_workers(rows, cols, workers, memory):
    """They fit, each worker gets one if there are as many blocks, and no fewer would do."""
    grid = BlockGrid(rows, cols, 512)
    gpu = Gpu(0, memory * 10**6, given=True, wanted=True)
    problem = form(grid, gpu)
    high, wide = problem.sides(workers)
    assert problem.memory(high, wide) <= gpu.memory
    count = ceil_div(grid.shape[0], high) * ceil_div(grid.shape[1], wide)
    assert min(workers, grid.count) <= count
    for more in range(wide + 1, grid.shape[1] + 1):
        fewer = ceil_div(grid.shape[0], high) * ceil_div(grid.shape[1], more)
        fits = problem.memory(high, more) <= gpu.memory
        assert not fits or fewer == count or fewer < min(workers, grid.count)


def form(grid, gpu):
    class Ground:
        blocks, heights, friction, barriers = grid, np.empty(0, np.uint16), None, None
        dtype, sources = np.dtype(np.uint32), (0,)

    how = (True, True, False), 2**31 - 1, None, ["distance"], 1, gpu, None, None
    return Problem(Ground, *how)


@pytest.mark.parametrize(
    ("workers", "sides"), [(1, (4, 4)), (2, (2, 4)), (3, (2, 2)), (4, (2, 2)), (8, (1, 2))]
)
def test_the_squarest(workers, sides):
    gpu = Gpu(0, 10**10, given=True, wanted=True)
    assert form(BlockGrid(1024, 1024, 256), gpu).sides(workers) == sides


@given(st.integers(0, 99), st.integers(1, 40), st.sampled_from(["u4", "u8", "f8"]))
def test_what_is_sent_of_cells_around(seed, count, dtype):
    rng = np.random.default_rng(seed)
    ring, seen = rng.integers(0, 4, (2, count)).astype(dtype)
    around = Around.of(ring, seen)
    assert ((around.ring < around.seen()) == (ring < seen)).all()
    assert around.seen().dtype == ring.dtype


def test_a_block_that_is_damaged(tmp_path):
    """It counts as never visited, but not where it has to be exact."""
    grid, gpu = BlockGrid(64, 64, 64), Gpu(0, 10**9, given=True, wanted=True)
    problem, cells = form(grid, gpu), np.arange(64 * 64, dtype=np.uint32).reshape(64, 64)
    cells[3, 4] = 2**32 - 1  # absent
    own = SlotFiles.beside(tmp_path / "f")
    own.begin()
    spill = RegionFiles(problem, own, exact=False)
    spill.save("", (0, 0), cells)
    found = np.empty_like(cells)
    spill.restore((0, 0), found)
    assert found[3, 4] == spill.infinity
    assert np.array_equal(np.minimum(cells, spill.infinity), found)
    (path,) = own.folder.iterdir()
    damage(path)
    names = dict(own.names)
    with pytest.raises(StoreError, match="damaged; compute again with --overwrite"):
        RegionFiles(problem, SlotFiles(own.folder, names), exact=True).restore((0, 0), found)
    spill.restore((0, 0), found)
    assert (found == spill.infinity).all()
    assert not spill.saved
    assert not own.names
