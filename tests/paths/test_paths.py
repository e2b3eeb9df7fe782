"""Shortest paths against Dijkstra: every distance, predecessor and allocation, bit for bit."""

from __future__ import annotations

import json
import math
import os
import shlex
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import hypothesis
import numpy as np
import pytest
import reference
import strategies
from conftest import only_cpu
from effort import examples
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from rasterio.crs import CRS

from terrain_gpu import (
    GridSpec,
    InputError,
    LayerWriter,
    StoreError,
    TileStore,
    create_layer,
    shortest_paths,
    slope,
)
from terrain_gpu.grid import TILE
from terrain_gpu.grid.lengths import length_unit, other_unit
from terrain_gpu.io.places import Places
from terrain_gpu.paths.cost_distance.operation import CostDistance
from terrain_gpu.paths.relax import relaxation as relax
from terrain_gpu.paths.relax.gpu import problem as gpu
from terrain_gpu.paths.relax.gpu import regions as gpu_regions

pytestmark = pytest.mark.usefixtures("backend")


def as_sources(problem):
    """Sources of a problem; of several in a cell, only the cheapest."""
    best = {}
    for row, col, cost, name in problem.sources:
        start = 0.0 if cost is None else float(cost)
        if problem.model == "minimax":
            own = float(problem.cells[row, col])
            start = own if cost is None else max(start, own)
        best[row, col] = min(best.get((row, col), (start, name)), (start, name))
    cells = sorted(best)
    rows, cols = (np.array([c[k] for c in cells], np.int64) for k in (0, 1))
    costs, ids = (np.array([best[c][k] for c in cells]) for k in (0, 1))
    return Places(rows, cols, ids.astype(np.uint32), costs.astype(np.float64))


def options(problem):
    return {
        "connectivity": problem.connectivity,
        "corner_cutting": problem.corner_cutting,
        "reverse": problem.reverse,
        "max_cost": problem.max_cost,
    }


def solve(problem, **how):
    return shortest_paths(
        problem.cells,
        as_sources(problem),
        cost=problem.model,
        friction=problem.friction,
        barriers=problem.barriers,
        nodata=problem.raster.nodata,
        cell_size=(abs(problem.grid.transform[0]), abs(problem.grid.transform[4])),
        **options(problem),
        backlink=True,
        allocation=True,
        **how,
    )


def expected(problem):
    graph = problem.graph
    distance = reference.dijkstra(
        problem.cells, problem.model, problem.sources, max_cost=problem.max_cost, **graph
    )
    codes, _ = reference.backlinks(distance, problem.cells, problem.model, problem.sources, **graph)
    return (
        distance,
        codes,
        reference.allocation(codes, problem.cells, problem.model, problem.sources),
    )


def assert_same(found, problem):
    distance, codes, ids = expected(problem)
    mine = found.distance()
    reached = np.array([d < np.inf for d in distance.ravel()]).reshape(distance.shape)
    void = np.isnan(mine) if mine.dtype.kind == "f" else mine == np.iinfo(mine.dtype).max
    np.testing.assert_array_equal(~void, reached)
    assert [m.item() for m in mine[reached]] == distance[reached].tolist()
    np.testing.assert_array_equal(found.backlink(), codes)
    np.testing.assert_array_equal(found.allocation(), ids)
    assert found.reached == reached.sum()


def within_reach(problem):
    """Skip what the engine refuses, or gives as float64 where the reference has integers."""
    wide = problem.cells.dtype.kind in "iu" and problem.cells.dtype.itemsize == 8
    if wide and problem.model in ("absdiff", "minimax"):
        hypothesis.assume(np.abs(problem.cells.astype(np.float64)).max() < 2**52)
    if problem.model == "minimax":
        # A start cost of 0 means the source's own height.
        hypothesis.assume(all(s[2] != 0 for s in problem.sources))


large = strategies.rasters(shape=strategies.shapes(200, 6000))


@given(
    strategies.cost_problems(large, geographic=False),
    st.sampled_from([64, 128, 1024]),
    st.sampled_from([1, 2, 4]),
)
def test_arrays(backend, problem, block, threads):
    hypothesis.assume(problem.sources)
    within_reach(problem)
    found = solve(
        problem,
        block_size=block,
        threads=threads,
    )
    assert_same(found, problem)
    assert found.report.settings["backend"] == backend


def make_store(path, problem, block):
    """A store whose heights are in blocks of this side, and the barriers in others."""
    layers = {"elevation": (problem.cells, problem.raster.nodata)}
    if problem.friction is not None:
        layers["friction"] = (problem.friction, None)
    if problem.barriers is not None:
        layers["barriers"] = (problem.barriers.view(np.uint8), None)
    for name, (cells, nodata) in layers.items():
        side = {64: 128}.get(block, 64) if name == "barriers" else block
        with create_layer(
            path, name, problem.grid, cells.dtype, nodata=nodata, block_size=side
        ) as writer:
            for i, j in writer.blocks.ids():
                r0, r1, c0, c1 = writer.block_window(i, j)
                writer.write_block(i, j, np.ascontiguousarray(cells[r0:r1, c0:c1]))
            writer.commit()
    return path


@contextmanager
def fields_in_memory(count):
    """Runs keep `count` blocks in memory, or its square on a GPU; the others are spilled."""
    usual, usual_on_gpu = CostDistance.plan, gpu.Problem.plan

    def plan(self, machine):
        found = usual(self, machine)
        if machine.gpu is None:
            found = replace(found, buffers=count, workers=min(found.workers, count))
        return found

    def plan_on_gpu(self):
        limit, sides = usual_on_gpu(self)
        return limit, tuple(min(side, count) for side in sides)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CostDistance, "plan", plan)
        patch.setattr(gpu.Problem, "plan", plan_on_gpu)
        yield


def solve_store(store, problem, **how):
    layers = {name: name for name in ("friction", "barriers") if getattr(problem, name) is not None}
    return shortest_paths(
        store,
        as_sources(problem),
        cost=problem.model,
        **layers,
        **options(problem),
        backlink=True,
        allocation=True,
        **how,
    )


@given(
    strategies.cost_problems(large),
    st.sampled_from([64, 128, 1024]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 3, 100]),
)
def test_stores(folders, no_fsync_session, backend, problem, block, threads, fields):
    hypothesis.assume(problem.sources)
    within_reach(problem)
    with folders() as folder, fields_in_memory(fields):
        store = make_store(folder / "s.zarr", problem, block)
        found = solve_store(store, problem, threads=threads)
        assert_same(found, problem)
        assert not (store / ".incomplete").exists()
        assert found.report.settings["backend"] == backend
        assert found.report.result.get("spilled_bytes", 0) == 0 or fields < 100


@pytest.fixture(scope="session")
def no_fsync_session():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        yield


# -- what the plan says ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rough(tmp_path_factory, no_fsync_session):
    """A store of rough heights and frictions in blocks of 512, with no tile absent."""
    rng = np.random.default_rng(8)
    store = tmp_path_factory.mktemp("rough") / "s.zarr"
    make_layers(
        store,
        512,
        elevation=rng.integers(1, 99, (1024, 1536)).astype(np.int16),
        friction=rng.uniform(1, 5, (1024, 1536)).astype(np.float32),
        walls=np.uint8(rng.random((1024, 1536)) < 0.1),
    )
    return store


def make_layers(store, block, **layers):
    for name, cells in layers.items():
        with create_layer(
            store, name, GridSpec(*cells.shape), cells.dtype, block_size=block, overwrite=True
        ) as writer:
            for i, j in writer.blocks.ids():
                r0, r1, c0, c1 = writer.block_window(i, j)
                writer.write_block(i, j, np.ascontiguousarray(cells[r0:r1, c0:c1]))
            writer.commit()


@only_cpu
@pytest.mark.parametrize("fields", [2, 100])
@pytest.mark.parametrize(
    "how",
    [
        {"cost": "absdiff"},
        {"cost": "absdiff", "backlink": True, "allocation": True},
        {"cost": "friction", "friction": "friction", "barriers": "walls", "allocation": True},
    ],
)
def test_reading_and_writing_is_what_the_plan_says(rough, fields, how):
    how = {"overwrite": True, **how}
    run = partial(shortest_paths, rough, [(650, 755)], **how)
    with fields_in_memory(fields):
        run()  # the first run also reads compiled code
        report = run().report
    plan, spilled = report.settings["plan"], report.result["spilled_bytes"]
    assert (spilled > 0) == (fields == 2)
    # Besides cells and spill: metadata and the manifest.
    written = report.bytes_written - spilled
    assert 0.9 * plan["bytes_written"] <= written <= plan["bytes_written"] + 50_000
    assert 0.9 * plan["bytes_read"] <= report.bytes_read - report.result["loaded_bytes"]
    if not spilled:  # else cells are read again with their distances
        # Around a block, the tiles at its rim are read with it.
        blocks = TileStore.open(rough).layer("elevation").blocks
        side, tile = blocks.block // TILE, plan["bytes_read"] / blocks.rows / blocks.cols * TILE**2
        rims = blocks.count * ((side + 2) ** 2 - side**2) * tile
        assert report.bytes_read <= plan["bytes_read"] + rims + 10**6


@only_cpu
@pytest.mark.parametrize("limit", [295, 2000])
def test_the_peak_is_within_the_plan(tmp_path, limit):
    """In its own process, since the peak covers all that a process has done."""
    rng = np.random.default_rng(9)
    cells = rng.integers(1, 99, (1100, 1000)).astype(np.int16)
    frictions = rng.uniform(1, 5, cells.shape).astype(np.float32)
    store = tmp_path / "s.zarr"
    make_layers(store, 128, elevation=cells, friction=frictions)
    how = {"cost": "friction", "friction": "friction", "allocation": True}
    shortest_paths(store, [(500, 500)], **how)  # compiles, which takes memory
    command = [sys.executable, "-c", "from terrain_gpu.cli.main import compute_sssp as f; f()"]
    command += shlex.split(
        "s.zarr --source-rowcol 500,500 --cost friction --friction friction --allocation a.tif "
        f"--memory-limit {limit}MB --threads 2 --backend cpu --overwrite -q --json r.json"
    )
    # Through a shell: the peak of a new process starts at the size of its parent.
    subprocess.run(["sh", "-c", f"{shlex.join(command)}; exit $?"], check=True, cwd=tmp_path)
    report = json.loads((tmp_path / "r.json").read_text())
    plan = report["settings"]["plan"]
    assert (plan["buffers"] < plan["blocks"]) == (limit == 295)
    assert (report["result"]["spilled_bytes"] > 0) == (limit == 295)
    assert plan["memory"] <= limit * 10**6
    assert plan["memory"] / 2 <= report["peak_rss_bytes"] <= plan["memory"]


class Stop(BaseException):
    """An exception that no handler expects."""


@pytest.fixture
def terrain(tmp_path):
    """A store of 25 blocks with flats, its elevations and two sources."""
    rng = np.random.default_rng(5)
    data = np.cumsum(rng.integers(-1, 2, (300, 260)), axis=1).astype(np.int16)
    data[40:60, 50:200] = 7
    data[rng.random(data.shape) < 0.1] = -99
    data[10, 10] = data[250, 200] = 0
    store = tmp_path / "s.zarr"
    with create_layer(
        store, "elevation", GridSpec(*data.shape), data.dtype, nodata=-99, block_size=64
    ) as writer:
        for i, j in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(i, j)
            writer.write_block(i, j, np.ascontiguousarray(data[r0:r1, c0:c1]))
        writer.commit()
    return store, data, [(10, 10), (250, 200, 3)]


def all_of(found):
    return found.distance(), found.backlink(), found.allocation()


@pytest.mark.parametrize("phase", ["relax", "distance", "backlink", "allocation", "commit"])
@pytest.mark.parametrize("stop", [Stop, KeyboardInterrupt])
def test_a_run_stopped_in_any_phase_resumes_to_the_same_result(
    terrain, monkeypatch, no_fsync, backend, phase, stop
):
    store, data, sources = terrain
    how = {"backlink": True, "allocation": True}
    expected = shortest_paths(data, sources, nodata=-99, block_size=64, **how)
    run = partial(shortest_paths, store, sources, **how)
    with monkeypatch.context() as patch, fields_in_memory(3):
        home, name = {
            "relax": {
                "cpu": (relax.Relaxation, "_visit"),
                "cuda": (gpu_regions.RegionSpill, "save"),
            }[backend],
            "commit": (LayerWriter, "commit"),
        }.get(phase, (LayerWriter, "write_block"))
        usual, calls = getattr(home, name), []

        def failing(self, *args, **kwargs):
            if phase in ("relax", "commit") or self.shard_path(0, 0).parts[-4] == phase:
                calls.append(args)
                if len(calls) == (2 if phase == "commit" else 9):
                    raise stop
            return usual(self, *args, **kwargs)

        patch.setattr(home, name, failing)
        with pytest.raises(stop):
            run()
        assert len(calls) >= 2
    there = phase == "commit"  # the first of three layers
    with pytest.raises(StoreError, match="exists" if there else "--resume"):
        run()
    with pytest.raises(StoreError, match="exists" if there else "connectivity"):
        run(connectivity=4, resume=True)
    found = run(resume=True)
    for mine, theirs in zip(all_of(found), all_of(expected), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    if phase == "relax" and backend == "cpu":  # a GPU that holds it whole starts again
        assert found.report.result["blocks_resumed"] > 0
    assert not (store / ".incomplete").exists()


def test_a_friction_that_changed_is_not_resumed(tmp_path, monkeypatch, no_fsync):
    store, ones = tmp_path / "s.zarr", np.ones((200, 200), np.float32)
    make_layers(store, 64, elevation=ones, friction=ones)
    run = partial(shortest_paths, store, [(10, 10)], cost="friction", friction="friction")
    with monkeypatch.context() as patch:
        patch.setattr(LayerWriter, "commit", lambda *how: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run()
    make_layers(store, 64, friction=2 * ones)
    with pytest.raises(StoreError, match="cannot resume: layer 'friction' differs"):
        run(resume=True)
    assert run(overwrite=True).distance()[10, 12] == 4


def test_cells_of_another_byte_order():
    z = np.random.default_rng(1).integers(0, 999, (90, 130)).astype(np.int16)
    friction = np.random.default_rng(2).random(z.shape).astype(np.float32)
    found = [
        shortest_paths(
            z.astype(z.dtype.newbyteorder(order)),
            [(3, 4)],
            cost="tobler",
            friction=friction.astype(friction.dtype.newbyteorder(order)),
        )
        for order in "<>"
    ]
    assert strategies.same_bits(*(one.distance() for one in found))


@pytest.mark.parametrize("how", [{"threads": -1}, {"memory_limit": "-1GB"}])
def test_limits_that_are_none(tmp_path, how, no_fsync):
    make_layers(tmp_path / "s.zarr", 64, elevation=np.ones((70, 70), np.uint8))
    with pytest.raises(InputError, match=r"give |is not a size"):
        shortest_paths(tmp_path / "s.zarr", [(0, 0)], **how)


def test_a_mask_is_not_overlooked():
    z = np.random.default_rng(2).integers(0, 9, (20, 30))
    masked = np.ma.masked_less(z, 3)
    source = [tuple(np.argwhere(z > 2)[0])]
    found = shortest_paths(masked, source)
    plain = shortest_paths(masked.filled(-1), source, nodata=-1)
    assert np.array_equal(found.distance().filled(), plain.distance())
    with pytest.raises(InputError, match="friction is a masked array"):
        shortest_paths(z, [(0, 0)], cost="friction", friction=np.ma.masked_less(z, 1))


@only_cpu
def test_lengths_that_are_no_metres_are_told(tmp_path, caplog, no_fsync):
    store = tmp_path / "s.zarr"
    make_layers(store, 64, elevation=np.ones((70, 70), np.float32))
    shortest_paths(store, [(1, 1)], cost="surface")
    assert "needs metres" not in caplog.text
    shortest_paths(store, [(1, 1)], cost="tobler", overwrite=True)
    assert "tobler needs metres, but without a CRS the unit of lengths is unknown" in caplog.text
    for code, unit in ((32633, None), (4326, None), (2264, "US survey foot")):
        grid = GridSpec(5, 5, crs_wkt=CRS.from_epsg(code).to_wkt())
        assert other_unit(grid) == unit
        assert length_unit(grid) == (unit or "m")
    assert length_unit(GridSpec(5, 5)) == "map units"


@only_cpu
@pytest.mark.parametrize(
    ("unit", "code", "rise"),
    [
        ("ft", 32633, "0.3048"),
        ("km", 4326, "1000"),
        ("m", 2264, "3.28083333"),
        ("ft", 2264, None),
        ("m", 4326, None),
        ("", 32633, None),
    ],
)
def test_formulas_that_combine_two_units_are_told(tmp_path, caplog, no_fsync, unit, code, rise):
    store = tmp_path / "s.zarr"
    place = (0.001, 0.0, 10.0, 0.0, -0.001, 50.0)
    grid = GridSpec(70, 70, transform=place, crs_wkt=CRS.from_epsg(code).to_wkt())
    options = {"block_size": 64, "attributes": {"units": unit} if unit else {}}
    with create_layer(store, "elevation", grid, np.dtype("f4"), **options) as writer:
        for i, j in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(i, j)
            writer.write_block(i, j, np.ones((r1 - r0, c1 - c0), np.float32))
        writer.commit()
    shortest_paths(store, [(1, 1)], cost="absdiff")
    shortest_paths(store, [(1, 1)], cost="friction", friction="elevation", overwrite=True)
    shortest_paths(store, [(1, 1)], cost="surface", overwrite=True)
    slope(store)
    assert "without conversion" not in caplog.text
    shortest_paths(store, [(1, 1)], cost="length * exp(abs(slope))", overwrite=True)
    assert ("without conversion" in caplog.text) == (rise is not None)
    assert f"multiplied by {rise} to be" in caplog.text or rise is None


@only_cpu
def test_checkpoints_are_upper_bounds_that_a_run_goes_on_from(terrain, monkeypatch, no_fsync):
    store, data, sources = terrain
    expected = shortest_paths(data, sources, nodata=-99, block_size=64)
    usual, calls = relax.Relaxation._visit, []

    def slow(self, *args):
        calls.append(args)
        if len(calls) == 60:
            self.save_all()
            os._exit(9)
        return usual(self, *args)

    child = os.fork()
    if child == 0:
        relax.Relaxation._visit = slow
        shortest_paths(store, sources, threads=1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    found = shortest_paths(store, sources, resume=True)
    assert found.report.result["blocks_resumed"] > 5
    np.testing.assert_array_equal(found.distance(), expected.distance())


def test_integers_that_overflow_32_bits_are_promoted(tmp_path, no_fsync):
    # A comb of steps of 65535: beyond 2^31 after 32768 of them.
    rows, cols = 260, 520
    data = np.zeros((rows, cols), np.uint16)
    data[::2] = 65535
    data[:, ::2] ^= 65535
    problem = data.copy()
    found = shortest_paths(problem, [(0, 0)], connectivity=4, block_size=64)
    steps = np.add.outer(np.arange(rows), np.arange(cols))
    assert found.report.result["distance_dtype"] == "uint32"
    np.testing.assert_array_equal(found.distance(), steps * 65535)
    spiral = strategies._spiral((513, 513))
    data = np.zeros(spiral.shape, np.uint16)
    data[np.add.outer(np.arange(513), np.arange(513)) % 2 == 1] = 65535
    found = shortest_paths(data, [(0, 0)], connectivity=4, barriers=spiral, block_size=128)
    length = np.count_nonzero(~spiral) - 1
    assert found.report.result["distance_dtype"] == "uint64"
    reached = found.distance() != np.iinfo(np.uint64).max
    assert found.distance()[reached].max() >= length // 2 * 65535 > 2**32


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_heights_beyond_64_bit_distances_are_refused(dtype):
    far = 2**61
    data = np.array([[0, far, far - 1, far - 3]], dtype)
    found = shortest_paths(data, [(0, 0)], backend="cpu").distance()
    assert found.tolist() == [[0, far, far + 1, far + 3]]
    for height in (far + 1, int(np.iinfo(dtype).max)):
        data[0, 1] = height
        with pytest.raises(
            InputError, match=r"elevations beyond 2\*\*61 .* convert them to float64"
        ):
            shortest_paths(data, [(0, 0)], backend="cpu")
    found = shortest_paths(data, [(0, 0)], nodata=height, backend="cpu").distance()
    assert found.tolist() == [[0, *3 * [np.iinfo(np.uint64).max]]]  # nodata is not a height


def test_promoted_integers_whose_fields_are_spilled(tmp_path, no_fsync):
    """The spill of the 32-bit run is dropped, and the plan is that for 64 bits."""
    spiral = strategies._spiral((513, 513))
    data = np.zeros(spiral.shape, np.uint16)
    data[np.add.outer(np.arange(513), np.arange(513)) % 2 == 1] = 65535
    store = tmp_path / "s.zarr"
    make_layers(store, 256, elevation=data, walls=spiral.view(np.uint8))
    how = {"connectivity": 4, "barriers": "walls"}
    with fields_in_memory(2):
        found = shortest_paths(store, [(0, 0)], **how)
    assert found.report.result["distance_dtype"] == "uint64"
    assert found.report.settings["plan"]["bytes_written"] > 513**2 * 8
    expected = shortest_paths(data, [(0, 0)], connectivity=4, barriers=spiral)
    np.testing.assert_array_equal(found.distance(), expected.distance())
    assert not (store / ".incomplete").exists()


# -- mazes: one corridor that crosses each block many times ----------------------------------------


def corridor(walls):
    """The cells of a maze without branches, in order."""
    free = {tuple(cell) for cell in np.argwhere(~walls).tolist()}

    def beside(cell):
        r, c = cell
        return [n for n in ((r, c + 1), (r + 1, c), (r, c - 1), (r - 1, c)) if n in free]

    at = min(cell for cell in free if len(beside(cell)) == 1)
    order = []
    while at is not None:
        order.append(at)
        free.remove(at)
        at = next(iter(beside(at)), None)
    assert not free
    return np.array(order)


def along(order, start, values, step, connectivity):
    """Distances along a corridor from one of its cells: sums, except where bends are cut."""
    distance = [math.inf] * len(order)
    distance[start] = 0
    bend = (np.abs(order[2:] - order[:-2]) == 1).all(axis=1).tolist()  # around cell k + 1
    for way, end in ((1, len(order)), (-1, -1)):
        for k in range(start + way, end, way):
            j = k - way
            distance[k] = distance[j] + step(values[j], values[k], 1)
            i = j - way
            if connectivity == 8 and j != start and bend[min(i, k)]:
                cut = distance[i] + step(values[i], values[k], math.sqrt(2))
                distance[k] = min(distance[k], cut)
    return np.array(distance)


STEPS = {
    "absdiff": lambda a, b, length: abs(a - b),
    "friction": lambda a, b, length: 0.5 * (a + b) * length,
}


odd = st.sampled_from([251, 283, 321])
"""Sides with which a spiral ends in no loop."""


@settings(max_examples=examples(12), phases=(Phase.generate,))
@given(
    kind=st.sampled_from(["spiral", "comb"]),
    shape=st.tuples(odd, odd),
    cost=st.sampled_from(list(STEPS)),
    connectivity=st.sampled_from([4, 8]),
    block=st.sampled_from([64, 128, 256]),
    threads=st.sampled_from([1, 2]),
    fields=st.sampled_from([1, 3, 100]),
    seed=st.integers(0, 2**32 - 1),
)
def test_mazes(backend, kind, shape, cost, connectivity, block, threads, fields, seed):
    rng = np.random.default_rng(seed)
    walls = strategies._walls(rng, kind, shape)
    walls = walls.T if rng.random() < 0.5 else walls
    cells = rng.integers(0, 4, walls.shape).astype(np.int16)  # with flats
    if cost == "friction":
        cells = rng.uniform(0.1, 3, walls.shape)
    order = corridor(walls)
    start, places = int(rng.integers(len(order))), tuple(order.T)
    with fields_in_memory(fields):
        found = shortest_paths(
            cells,
            [order[start].tolist()],
            cost=cost,
            friction=cells if cost == "friction" else None,
            barriers=walls,
            connectivity=connectivity,
            block_size=block,
            threads=threads,
            backlink=True,
        )
    assert found.report.settings["backend"] == backend
    if backend == "cpu":
        spilled = found.report.result["spilled_bytes"]
        assert (spilled > 0) == (fields < math.prod(found._blocks.shape))
    else:
        assert (found.report.result["regions"] > 1) == (fields < max(found._blocks.shape))
    assert found.reached == len(order) > 0.45 * walls.size
    expected = along(order, start, cells[places].tolist(), STEPS[cost], connectivity)
    np.testing.assert_array_equal(found.distance()[places], expected)
    if connectivity == 4:
        np.testing.assert_array_equal(found.path(*order[-1]), order[start:])
        np.testing.assert_array_equal(found.path(*order[0]), order[start::-1])
