"""Shortest paths in the workers of a cluster. See also `contract`."""

from __future__ import annotations

import math
import os
import pickle
import signal
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count

import numpy as np
import pytest
from contract import Stop, make_store, same, stop_at, whole
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from terrain_gpu import create_layer, shortest_paths
from terrain_gpu.engine.run import Here, Threads, run
from terrain_gpu.errors import InputError
from terrain_gpu.io.places import as_places
from terrain_gpu.paths.cost_distance import remote, solve, visits
from terrain_gpu.paths.cost_distance.operation import LAYERS, CostDistance
from terrain_gpu.paths.cost_distance.visits import visit_blocks, write_blocks
from terrain_gpu.store import TileStore
from terrain_gpu.store.spill import SlotFiles
from terrain_gpu.store.swap import lent_folder, withdraw

pytestmark = pytest.mark.usefixtures("no_fsync")

SHAPE = 200, 270
SOURCES = [(3, 5), (150, 199, 7)]
ALL = {"backlink": True, "allocation": True}


def heights():
    found = np.random.default_rng(5).integers(0, 9, SHAPE).astype(np.int16)
    found[100:120, 30:200] = -1
    return found


def make(path, data):
    """Heights, with frictions and barriers beside them."""
    store = make_store(path, data, -1, 64)
    rng = np.random.default_rng(6)
    for name, cells in (
        ("friction", rng.random(SHAPE, np.float32)),
        ("barriers", (rng.random(SHAPE) < 0.2).astype(np.uint8)),
    ):
        grid = TileStore.open(store).layer("elevation").grid
        with create_layer(store, name, grid, cells.dtype, block_size=64) as target:
            for at in target.blocks.ids():
                r0, r1, c0, c1 = target.block_window(*at)
                target.write_block(*at, np.ascontiguousarray(cells[r0:r1, c0:c1]))
            target.commit()
    return store


@pytest.fixture
def store(tmp_path):
    return make(tmp_path / "s.zarr", heights())


def both(store, cluster, sources=SOURCES, **how):
    """Run on the cluster and in this process, compare the layers, and return both reports."""
    beside = shortest_paths(store, sources, client=cluster, **how)
    cells = {name: whole(layer) for name, layer in beside.layers.items()}
    alone = shortest_paths(store, sources, overwrite=True, backend="cpu", **how)
    assert cells.keys() == alone.layers.keys()
    for name, layer in alone.layers.items():
        assert same(cells[name], whole(layer))
    assert beside.reached == alone.reached > 0
    assert beside.report.settings["cluster"]["tasks"] > 0
    return beside.report, alone.report


@pytest.mark.parametrize(
    "how",
    [
        {"cost": "tobler", "barriers": "barriers", "method": "dijkstra", "backlink": True},
        {"cost": "friction", "friction": "friction", "reverse": True, "verify": True, **ALL},
        {"cost": "minimax", "source_edge": True, "corner_cutting": False, **ALL},
        {"cost": "surface", "max_cost": 60.0, "connectivity": 4, **ALL},
        {"cost": "tobler", "max_slope": 3.0, "connectivity": 16, "barriers": "barriers", **ALL},
        {"cost": "friction", "friction": "friction", "connectivity": 16, "reverse": True, **ALL},
        {"targets": [(20, 90), (90, 20)], "stop_at_targets": True, **ALL},
    ],
)
def test_same_bits(store, cluster, how):
    both(store, cluster, **how)


def test_distances_that_are_finished_are_read(store, cluster):
    """The flats of backlinks need them; a run may be killed between two commits."""
    shortest_paths(store, SOURCES)
    written = (store / "distance" / "zarr.json").stat().st_ino
    beside = shortest_paths(store, SOURCES, client=cluster, resume=True, **ALL)
    assert (store / "distance" / "zarr.json").stat().st_ino == written
    cells = {name: whole(layer) for name, layer in beside.layers.items()}
    alone = shortest_paths(store, SOURCES, overwrite=True, backend="cpu", **ALL)
    assert all(same(cells[name], whole(layer)) for name, layer in alone.layers.items())


def test_distances_that_need_64_bits(tmp_path, cluster):
    data = np.zeros(SHAPE, np.int32)
    data[::2] = 2**30
    store = make(tmp_path / "s.zarr", data)
    beside, _ = both(store, cluster, **ALL)
    assert beside.result["distance_dtype"] == "uint64"
    assert not (store / ".incomplete").exists()


def test_what_a_cluster_does_not_compute(store, cluster):
    dijkstra = {"method": "dijkstra", "backend": "cuda"}
    for how in (dijkstra, {"method": "tournament"}, {"method": "index"}):
        with pytest.raises(InputError, match=r"a cluster .*leave out .*client"):
            shortest_paths(store, SOURCES, client=cluster, **how)
    with pytest.raises(InputError, match="a cluster computes only from stores"):
        shortest_paths(heights(), SOURCES, client=cluster)


def test_errors_of_workers_are_those_of_one_machine(store, cluster):
    barriers = whole(TileStore.open(store).layer("barriers"))
    row, col = np.argwhere((barriers != 0) & (heights() >= 0))[-1].tolist()
    words = f"1 of 1 given cells are barriers: row {row}, column {col} "
    with pytest.raises(InputError, match=words):
        shortest_paths(store, [(row, col)], barriers="barriers", client=cluster)


def dying(work, problem, writers, visits):
    """Do it; one process dies before it gets a block again, and one after."""
    for when in ("before", "after"):
        mark = visits[0].folder.parent / f"{work.__name__}-{when}"
        if when == "after":
            found = work(problem, writers, visits)
        if any(visit.stamp for visit in visits) and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return found


def test_workers_die_in_visits_and_while_they_write(store, cluster, monkeypatch):
    monkeypatch.setattr(remote, "visit_blocks", partial(dying, visit_blocks))
    monkeypatch.setattr(remote, "write_blocks", partial(dying, write_blocks))
    beside, alone = both(store, cluster, **ALL)
    assert beside.settings["cluster"]["retries"] >= 4
    assert alone.result["reached"] == beside.result["reached"]
    assert not (store / ".incomplete").exists()


FATES = ["died", "died late", "unheard"]


class Lossy(Threads):
    """Workers of which some die, before or after visits, or keep fields that do not count.

    After `losses` none does: with all the time some lost, the visits would hardly end.
    """

    remote, slots, losses = True, 3, 30

    def __init__(self, draw):
        self.draw, self.names = draw, count()
        self.workers = {}

    def join(self, operation):
        self.workers[f"w{next(self.names)}"] = passed(operation)

    @contextmanager
    def lend(self, run, names):
        self.workers, self.run = {}, run
        self.folder = lent_folder(run.spill)
        self.writers = [run.writers[name] for name in names]
        for _ in range(self.slots):
            self.join(run.operation)
        yield self
        withdraw(self.folder)

    def do(self, name, work, item):
        """The result of an item that a worker does, and the records of what it wrote."""
        lent = passed([writer.lent(self.folder) for writer in self.writers])
        return passed(work(self.workers[name], lent, item)), [writer.lines for writer in lent]

    def heard(self, found, records):
        for writer, lines in zip(self.writers, records, strict=True):
            for line in lines:
                writer.record(line)
        return found

    def lose(self, name):
        del self.workers[name]
        self.join(self.run.operation)

    def fate(self, name, work, item):
        """Do an item in a worker, which may die, or whose result may be lost; say what happened."""
        fate = self.draw(st.sampled_from(["done"] * 9 + FATES * (self.losses > 0)))
        self.losses -= fate != "done"
        if fate in ("died late", "unheard"):
            self.do(name, work, item)
        if fate in ("died", "died late"):
            self.lose(name)
        return fate

    def each(self, work, items):
        for item in items:
            name = self.draw(st.sampled_from(sorted(self.workers)))
            if self.fate(name, work, passed(item)) != "done":
                name = self.draw(st.sampled_from(sorted(self.workers)))
            yield self.heard(*self.do(name, work, passed(item)))

    def converse(self, give, waiting=0):
        under_way = []
        while True:
            given = Counter(name for name, _, _ in under_way)
            for name in list(self.workers):
                while given[name] <= waiting and (task := give(name, list(self.workers))):
                    under_way.append((name, task[0], passed(task[1])))
                    given[name] += 1
            if not under_way:
                return
            name, work, item = under_way.pop(self.draw(st.integers(0, len(under_way) - 1)))
            others = st.sampled_from(sorted(self.workers))
            place = name if name in self.workers else self.draw(others)
            if self.fate(place, work, item) != "done":
                place = self.draw(st.sampled_from(sorted(self.workers)))
            yield place, self.heard(*self.do(place, work, item))


class Ticking:
    """A clock that advances when it is read, so that examples can be repeated."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        self.now += 0.001
        return self.now

    monotonic = perf_counter


def passed(item):
    """As another process gets it."""
    return pickle.loads(pickle.dumps(item))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return make(tmp_path_factory.mktemp("kept") / "s.zarr", heights())


@settings(max_examples=examples(12))
@given(
    st.data(),
    st.sampled_from([1, 2, 5, 40]),
    st.sampled_from([0.0, 0.003, 1.0]),
    st.sampled_from([0.0, 0.01, math.inf]),
    st.sampled_from([(8, 3), (1, 0), (40, 40)]),
    st.sampled_from(
        [
            {"cost": "tobler", "barriers": "barriers", "names": LAYERS[:1]},
            {"cost": "friction", "friction": "friction", "names": LAYERS[:2]},
            {"cost": "minimax", "source_edge": True, "names": LAYERS},
        ]
    ),
)
def test_whatever_workers_lose(kept, data, capacity, seconds, checkpoint, most, how):
    """With room for `capacity` fields, calls of that many seconds and blocks, and checkpoints."""
    layer = TileStore.open(kept).layer("elevation")
    sources = as_places(layer.grid, SOURCES, "sources")
    problem = CostDistance(str(kept), "elevation", sources=sources, **how)
    alone = run(problem, overwrite=True, threads=1)
    cells = {name: whole(layer) for name, layer in alone.layers.items()}
    clock = Ticking()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(visits.Visitor.visit, "__defaults__", (seconds,))
        patch.setattr(solve, "CHECKPOINT", checkpoint)
        for module in (visits, remote):
            patch.setattr(module, "time", clock)
        patch.setattr(remote, "MOST", most[0])
        patch.setattr(remote, "NEW", most[1])
        narrow = lambda self, *limits: replace(plan(self, *limits), buffers=capacity)  # noqa: E731
        plan = CostDistance.plan
        patch.setattr(CostDistance, "plan", narrow)
        beside = run(problem, overwrite=True, threads=1, engine=Lossy(data.draw))
    for name, layer in beside.layers.items():
        assert same(cells[name], whole(layer))
    assert beside.found == alone.found


def test_heights_are_replaced_between_runs(store, cluster):
    """What workers have opened for the first run, stopped at a visit, is not of the second."""
    layer = TileStore.open(store).layer("elevation")
    sources = as_places(layer.grid, SOURCES, "sources")
    problem = CostDistance(
        str(store), "elevation", cost="absdiff", sources=sources, names=LAYERS[:1]
    )
    with pytest.raises(Stop):
        run(replace(problem), client=cluster, place=Here(stop_at(0.3)))
    how = {"nodata": -1, "block_size": 64, "overwrite": True}
    with create_layer(store, "elevation", layer.grid, "i2", **how) as target:
        for at in target.blocks.ids():
            r0, r1, c0, c1 = target.block_window(*at)
            target.write_block(*at, np.ascontiguousarray(heights()[::-1][r0:r1, c0:c1]))
        target.commit()
    beside, alone = (
        whole(run(replace(problem), client=client, overwrite=True).layers["distance"])
        for client in (cluster, None)
    )
    assert same(beside, alone)


def interrupted_at(share):
    """The place of a run that Ctrl-C stops at this share."""
    stopping = stop_at(share)

    def interrupt(cells, total):
        try:
            stopping(cells, total)
        except Stop:
            raise KeyboardInterrupt from None

    return Here(interrupt)


@settings(max_examples=examples(3))
@given(st.data())
def test_fields_that_were_lost_before_an_interrupt_are_found_and_saved(kept, data):
    class Forgetful(Lossy):
        losses = 0

        def converse(self, give, waiting=0):
            self.workers = {name: passed(self.run.operation) for name in self.workers}
            yield from super().converse(give, waiting)

    layer = TileStore.open(kept).layer("elevation")
    sources = as_places(layer.grid, SOURCES, "sources")
    problem = CostDistance(str(kept), "elevation", sources=sources, names=LAYERS[:1])
    engine = Forgetful(data.draw)
    with pytest.raises(KeyboardInterrupt):
        run(problem, overwrite=True, threads=1, engine=engine, place=interrupted_at(0.45))
    beside = run(problem, threads=1, resume=True)
    assert beside.report.result["blocks_resumed"] > 0
    cells = whole(beside.layers["distance"])
    alone = run(problem, overwrite=True, threads=1)
    assert same(cells, whole(alone.layers["distance"]))


@pytest.mark.parametrize("there", [False, True], ids=["alone", "cluster"])
def test_stopped_when_all_is_relaxed(cluster, store, monkeypatch, there):
    """The relaxation may end before anybody looks at it; nothing is written yet."""
    usual, how = solve.Phases.relax, {"client": cluster if there else None, "backend": "cpu", **ALL}

    def unseen(self):
        with monkeypatch.context() as patch:
            patch.setattr(solve.Phases, "_tick", lambda self, seen: None)
            return usual(self)

    def interrupt(cells, total):
        raise KeyboardInterrupt

    monkeypatch.setattr(solve.Phases, "relax", unseen)
    with pytest.raises(KeyboardInterrupt):
        shortest_paths(store, SOURCES, progress=interrupt, **how)
    assert shortest_paths(store, SOURCES, resume=True, **how).report.result["blocks_resumed"] > 0


def test_fields_go_from_a_cluster_to_one_machine_and_back(store, cluster):
    layer = TileStore.open(store).layer("elevation")
    problem = CostDistance(
        str(store), "elevation", sources=as_places(layer.grid, SOURCES, "sources"), names=LAYERS
    )

    with pytest.raises(KeyboardInterrupt):
        run(problem, client=cluster, place=interrupted_at(0.45))
    with pytest.raises(KeyboardInterrupt):
        run(problem, threads=1, place=interrupted_at(0.5), resume=True)
    with pytest.raises(KeyboardInterrupt):
        run(problem, client=cluster, place=interrupted_at(0.5), resume=True)
    found = run(problem, client=cluster, resume=True)
    blocks = problem.blocks.count
    assert 0 < found.report.result["blocks_resumed"] <= blocks
    alone = run(problem, overwrite=True)
    assert alone.report.result["blocks_resumed"] == 0
    assert found.found == alone.found
    assert not (store / ".incomplete").exists()


def test_who_saves_late_changes_nothing(tmp_path):
    files, cells = SlotFiles.beside(tmp_path / "f"), np.arange(9.0)
    files.begin()
    files.save(4, cells)
    late = SlotFiles(files.folder)
    late.save(4, cells + 1)
    read = np.empty(9)
    files.load(4, read)
    assert same(read, cells)
    left = SlotFiles.left(tmp_path / "f")
    assert list(left) == [4]
    with pytest.raises(OSError, match="cannot be written"):
        late.save(4, cells + 2)
    (path,) = (left.folder / name for name in left.names.values())
    path.write_bytes(path.read_bytes()[:-9] + bytes(9))
    assert not left.is_whole(4, read)
    assert 4 not in left
    left.close(keep=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("torn", [[0], [1], [0, 1]])
def test_fields_of_killed_workers(tmp_path, torn):
    """Of two files for a slot the whole one is used, whichever is found first; or none."""
    files, cells = SlotFiles.beside(tmp_path / "f"), np.arange(9.0)
    files.begin()
    for k in range(2):
        files.save(4, cells)
        if k in torn:
            path = files.folder / files.names[4]
            path.write_bytes(path.read_bytes()[:-3])
    (files.folder / ".nfs0001").write_bytes(b"of an open file that was removed")
    left, found = SlotFiles.left(tmp_path / "f"), np.empty(9)
    assert list(left) == [4]
    assert left.is_whole(4, found) == (len(torn) < 2)
    if len(torn) < 2:
        assert same(found, cells)
        assert [file.name for file in left.folder.iterdir()] == [left.names[4]]
    assert list(tmp_path.iterdir()) == [left.folder]
