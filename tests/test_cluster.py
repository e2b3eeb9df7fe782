"""Clusters: what starts them, what may die, what they refuse. See also `contract`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from multiprocessing import get_context

import numpy as np
import pytest
from cluster import processes, share_imports
from contract import Stop, make_store, same, stop_at, whole
from memory import MB, within
from programs import spawn

from terrain_gpu import ClusterError, TileStore, minimum_spanning_tree, slope
from terrain_gpu.drainage.accumulation import Accumulate
from terrain_gpu.engine import cluster as clusters
from terrain_gpu.engine.run import run
from terrain_gpu.errors import CellError, InputError, PlanError, StoreError
from terrain_gpu.morphometry import Slope
from terrain_gpu.mst.problem import SpanningForest

pytestmark = pytest.mark.usefixtures("no_fsync")


def heights(shape=(450, 520)):
    found = np.random.default_rng(5).integers(0, 90, shape).astype(np.int16)
    found[100:140, 30:200] = -1
    return found


@pytest.fixture
def store(tmp_path):
    return make_store(tmp_path / "s.zarr", heights(), -1, 64)


@pytest.fixture(scope="module")
def edges(tmp_path_factory):
    """The spanning tree of `store`, and its report's result, by this process alone."""
    path = make_store(tmp_path_factory.mktemp("alone") / "s.zarr", heights(), -1, 64)
    found = run(SpanningForest(str(path)))
    return whole(found.layers["mst"]), found.found


def check(store, edges):
    layer = TileStore.open(store).layer("mst")
    assert same(whole(layer), edges[0])
    assert layer.info["result"] == edges[1]
    assert not (store / ".incomplete").exists()


def serve(name, words):
    """What `dask scheduler` and `dask worker` run."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    import_module(f"distributed.cli.dask_{name}").main([*words, "--no-dashboard"])


class Daemon:
    """A process of Dask, started by hand."""

    def __init__(self, name, *words):
        share_imports()
        self.process = get_context("forkserver").Process(target=serve, args=(name, words))
        self.process.start()

    def kill(self):
        self.process.kill()
        self.process.join()


@pytest.fixture
def scheduler(tmp_path):
    """One that listens on the loopback, with its `address`."""
    file = tmp_path / "scheduler.json"
    words = ("--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file))
    daemon = Daemon("scheduler", *words)
    while True:
        assert daemon.process.is_alive()
        if file.exists() and (text := file.read_text()):
            break
        time.sleep(0.02)
    daemon.address = json.loads(text)["address"]
    yield daemon
    daemon.kill()


@pytest.fixture
def by_hand(scheduler, monkeypatch):
    """A scheduler with two workers, each a process of its own, which may take their time."""
    monkeypatch.setattr(clusters, "WAIT", 600)
    monkeypatch.setattr(clusters, "CONNECT", 600)
    words = ("--nthreads", "1", "--memory-limit", "0", "--no-nanny")
    workers = [Daemon("worker", scheduler.address, *words) for _ in range(2)]
    yield scheduler
    for worker in workers:
        worker.kill()


@pytest.mark.parametrize("workers", [3, 5])
def test_any_number_of_workers_gives_the_same_bytes(store, edges, workers):
    with processes(workers) as client:
        found = run(SpanningForest(str(store)), client=client)
        assert found.report.settings["cluster"]["workers"] == workers
        check(store, edges)
        run(Accumulate(str(store)), client=client)
    one = whole(TileStore.open(store).layer("accumulation"))
    run(Accumulate(str(store)), overwrite=True)
    assert same(one, whole(TileStore.open(store).layer("accumulation")))


def test_a_scheduler_dies(store, edges, by_hand):
    kill = []

    def progress(cells, total):
        if not kill:
            kill.append(by_hand.kill())

    with (
        clusters.open_client(None, by_hand.address) as client,
        pytest.raises(ClusterError, match="the scheduler is gone; --resume goes on"),
    ):
        run(SpanningForest(str(store)), client=client, progress=progress)
    assert run(SpanningForest(str(store)), resume=True).report.result["blocks_resumed"] > 0
    check(store, edges)


DRIVER = """
import os, signal, sys
from terrain_gpu.engine.cluster import open_client
from terrain_gpu.engine.run import run
from terrain_gpu.mst.problem import SpanningForest

seen = 0
def kill(cells, total):
    global seen
    seen += cells
    if seen >= 0.4 * total:
        os.kill(os.getpid(), signal.SIGKILL)

with open_client(None, sys.argv[2]) as client:
    run(SpanningForest(sys.argv[1]), client=client, progress=kill)
"""


def test_whoever_started_the_run_dies(store, edges, by_hand):
    ended = subprocess.run([sys.executable, "-c", DRIVER, store, by_hand.address], check=False)
    assert ended.returncode == -signal.SIGKILL
    with processes(3) as client:
        found = run(SpanningForest(str(store)), client=client, resume=True)
    assert found.report.result["blocks_resumed"] > 0
    check(store, edges)


def test_what_a_given_up_worker_writes_late_does_not_arrive(store, tmp_path):
    with pytest.raises(Stop):
        run(SpanningForest(str(store)), threads=1, progress=stop_at(0.1))
    from terrain_gpu.store import create_layer

    source = TileStore.open(store).layer("elevation")
    with create_layer(tmp_path / "o.zarr", "o", source.grid, "u1", block_size=64) as writer:
        (folder := tmp_path / "lent").mkdir()
        late = writer.lent(folder)
        cells = np.ones((64, 64), np.uint8)
        late.write_block(0, 0, cells)
        writer.record(late.lines.pop())
        folder.rmdir()
        for other in (cells * 2, cells * 0):
            with pytest.raises(OSError, match="cannot be written"):
                late.write_block(0, 0, other)
        assert same(writer.read_block(0, 0), cells)


def test_errors_of_workers_are_those_of_one_machine(tmp_path, cluster):
    data = np.zeros((130, 130), np.int64)
    data[100, 70] = np.iinfo(np.int64).max
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    with pytest.raises(CellError, match="row 100, column 70"):
        minimum_spanning_tree(store, client=cluster)
    shard = TileStore.open(store).layer("elevation").shard_path(1, 1)
    shard.write_bytes(b"x" * 100)
    with pytest.raises(StoreError, match="corrupt shard index"):
        slope(store, client=cluster)


def test_workers_of_another_version(store, cluster, monkeypatch):
    import terrain_gpu

    monkeypatch.setattr(terrain_gpu, "__version__", "9.9")
    with pytest.raises(ClusterError, match=r"has terrain_gpu 0.1.0, not 9.9; install the same"):
        slope(store, client=cluster)


def test_workers_that_do_not_see_the_store(cluster, tmp_path):
    with pytest.raises(ClusterError, match=r"does not see .*; the store must lie in a folder that"):
        clusters.Cluster(cluster)._probe(tmp_path / "elsewhere" / "lent")


def test_a_scheduler_without_workers(store, scheduler, monkeypatch):
    monkeypatch.setattr(clusters, "WAIT", 0.1)
    with (
        clusters.open_client(None, scheduler.address) as client,
        pytest.raises(
            ClusterError, match=f"there is no worker; start some .dask worker {scheduler.address}"
        ),
    ):
        slope(store, client=client)


def test_no_scheduler(monkeypatch):
    monkeypatch.setattr(clusters, "CONNECT", 0.1)
    with (
        pytest.raises(ClusterError, match=r"tcp://127.0.0.1:1: no scheduler answers; start one"),
        clusters.open_client(None, "tcp://127.0.0.1:1"),
    ):
        pass


def test_no_dask(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(ClusterError, match=r"pip install 'terrain_gpu\[dask\]'"),
        clusters.open_client(2, None),
    ):
        pass


def test_a_client_is_for_stores_and_cpus(store):
    for wrong in (5, "tcp://127.0.0.1:1"):
        with pytest.raises(InputError, match=r"client .*distributed.Client"):
            slope(store, client=wrong)


def test_the_plan_has_room_for_dask(store, cluster):
    found = [slope(store, threads=1, overwrite=True, client=c) for c in (None, cluster)]
    alone, beside = (one.report.settings["plan"]["memory"] for one in found)
    assert beside == alone + 60 * MB
    with pytest.raises(PlanError, match="give at least"):
        slope(store, client=cluster, memory_limit=beside - MB)


@pytest.mark.parametrize("name", ["compute-mst", "terrain-gpu slope"])
def test_the_least_limit_holds_in_every_process(tmp_path, name):
    make_store(tmp_path / "s.zarr", heights((1100, 900)), -1, 512)
    command = f"{name} s.zarr --workers 2 --overwrite -q --json r.json"
    limit, peak = within(tmp_path, command, 200 * MB)
    workers = json.loads((tmp_path / "r.json").read_text())["settings"]["cluster"]
    assert peak <= limit
    assert workers["workers"] == 2
    assert 0 < workers["worker_peak_rss_bytes"] <= limit


def test_commands(store, by_hand):
    done = spawn(f"terrain-gpu slope {store} --scheduler {by_hand.address}")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert same(
        whole(TileStore.open(store).layer("slope")),
        whole(run(Slope(str(store), into="other")).layers["other"]),
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("--workers 2 --threads 2", 2, "--threads is of one process"),
        ("--workers 2 --scheduler tcp://127.0.0.1:1", 2, "leave out --scheduler"),
        ("--workers 0", 2, "--workers"),
        ("--scheduler nonsense", 2, "nonsense: is not an address; write for example tcp://"),
    ],
)
def test_wrong_options(store, words, code, message):
    done = spawn(f"terrain-gpu slope {store} {words}")
    assert done.returncode == code
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
