"""Clusters: what starts them, what may die, what they refuse. See also `contract`."""

from __future__ import annotations

import inspect
import json
import logging
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from itertools import islice
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import dask
import numpy as np
import pytest
from cluster import Daemon, kill_a_worker, processes, start_scheduler
from contract import Stop, make_store, same, stop_at, whole
from distributed import LocalCluster
from distributed.security import Security
from memory import MB, within
from pauses import HANGS, Pause, wait_for_pause
from programs import fork, spawn

import terrain_gpu
from terrain_gpu import (
    ClusterError,
    TileStore,
    create_layer,
    extract_network,
    minimum_spanning_tree,
    shortest_paths,
    slope,
)
from terrain_gpu.engine import cluster as clusters
from terrain_gpu.engine import connection
from terrain_gpu.engine import plan as planner
from terrain_gpu.engine.machine import Machine
from terrain_gpu.engine.run import Here, run
from terrain_gpu.engine.worker import Job, do_each
from terrain_gpu.errors import CellError, InputError, PlanError, StoreError
from terrain_gpu.hydrology.accumulate.operation import Accumulate
from terrain_gpu.paths.cost_distance import solve
from terrain_gpu.raster.slope import Slope
from terrain_gpu.raster.slope.operation import Slopes
from terrain_gpu.spanning_tree.operation import SpanningForest
from terrain_gpu.store.swap import lent_folder

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
    """The spanning tree of `store`, and its report's result, made in this process alone."""
    path = make_store(tmp_path_factory.mktemp("alone") / "s.zarr", heights(), -1, 64)
    found = run(SpanningForest(str(path)))
    return whole(found.layers["mst"]), found.found


def check(store, edges):
    layer = TileStore.open(store).layer("mst")
    assert same(whole(layer), edges[0])
    assert layer.info["result"] == edges[1]
    assert not (store / ".incomplete").exists()


@pytest.fixture
def scheduler(tmp_path):
    daemon = start_scheduler(tmp_path)
    yield daemon
    daemon.kill()


@pytest.fixture
def start_worker(scheduler):
    """Starts workers, each a process of its own; without a nanny they die for good."""
    started = []

    def start(limit="0", threads=1):
        words = ("--nthreads", str(threads), "--memory-limit", limit, "--no-nanny")
        started.append(Daemon("worker", scheduler.address, *words))

    yield start
    for worker in started:
        worker.kill()


@pytest.fixture
def by_hand(scheduler, start_worker, monkeypatch):
    """A scheduler with two workers, which may start slowly."""
    monkeypatch.setattr(clusters, "WAIT", HANGS)
    monkeypatch.setattr(connection, "CONNECT", HANGS)
    monkeypatch.setattr(connection, "GREET", HANGS)
    for _ in range(2):
        start_worker()
    return scheduler


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


def test_workers_with_threads(store, edges, scheduler, start_worker):
    """They share a process, but not what they keep."""
    how = {"backlink": True, "allocation": True}
    start_worker(threads=2)
    start_worker(threads=2)
    with clusters.open_client(None, scheduler.address) as client:
        client.wait_for_workers(2)
        found = run(SpanningForest(str(store)), client=client)
        paths = shortest_paths(store, [(3, 5), (300, 400)], client=client, **how)
    check(store, edges)
    assert found.report.settings["cluster"]["threads"] == 4
    cells = {name: whole(layer) for name, layer in paths.layers.items()}
    alone = shortest_paths(store, [(3, 5), (300, 400)], overwrite=True, **how)
    assert all(same(cells[name], whole(layer)) for name, layer in alone.layers.items())


GONE = "the scheduler is gone.*; --resume continues"


@pytest.fixture(params=["kill", "stop"])
def lose(request, by_hand, monkeypatch):
    """A progress callback that makes the scheduler die or hang, at a share of the work."""
    seen = []

    def lose_at(share):
        def progress(cells, total):
            before = sum(seen)
            seen.append(cells)
            if before < share * total <= before + cells:
                getattr(by_hand, request.param)()
                if request.param == "stop":
                    monkeypatch.setattr(connection, "CONNECT", 0.5)

        return progress

    return lose_at


@pytest.mark.parametrize("share", [1e-9, 1])
def test_a_scheduler_dies(store, edges, by_hand, lose, share):
    """At first, and when there is only left to count who died."""
    with (
        clusters.open_client(None, by_hand.address) as client,
        pytest.raises(ClusterError, match=GONE),
    ):
        run(SpanningForest(str(store)), client=client, place=Here(lose(share)))
    assert run(SpanningForest(str(store)), resume=True).report.result["blocks_resumed"] > 0
    check(store, edges)


def test_a_scheduler_dies_while_blocks_are_visited(store, by_hand, lose, monkeypatch):
    monkeypatch.setattr(solve, "CHECKPOINT", 0.0)
    how = {"backlink": True, "allocation": True}
    with (
        clusters.open_client(None, by_hand.address) as client,
        pytest.raises(ClusterError, match=GONE),
    ):
        shortest_paths(store, [(3, 5)], client=client, progress=lose(0.4), **how)
    found = shortest_paths(store, [(3, 5)], resume=True, **how)
    assert found.report.result["blocks_resumed"] > 0
    cells = {name: whole(layer) for name, layer in found.layers.items()}
    alone = shortest_paths(store, [(3, 5)], overwrite=True, **how)
    assert all(same(cells[name], whole(layer)) for name, layer in alone.layers.items())
    assert not (store / ".incomplete").exists()


@pytest.mark.parametrize("question", ["who works", "what can they", "result", "who died"])
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_scheduler_dies_before_it_answers(store, by_hand, monkeypatch, question, how):
    """Each question that a run asks, and that Dask might ask for ever."""
    name = {"who works": "_look", "what can they": "_ask", "who died": "_again"}.get(question)

    def lose(*_):
        getattr(by_hand, how)()
        monkeypatch.setattr(connection, "CONNECT", 0.5)
        monkeypatch.setattr(clusters, "ANSWER", 0.5)

    def lose_before(self, *args):
        lose()
        return before(self, *args)

    def lose_after(self, ready):
        if found := before(self, ready):
            lose()
        return found

    before = getattr(clusters.Cluster, name or "_next")
    with clusters.open_client(None, by_hand.address) as client:
        client.wait_for_workers(2)
        monkeypatch.setattr(clusters.Cluster, name or "_next", lose_before if name else lose_after)
        monkeypatch.setattr(clusters, "LOOK", 0.2)
        with pytest.raises(ClusterError, match=GONE):
            in_workers(client, store, print, [0])


STOPPED = """
import os, signal, sys
from terrain_gpu import ClusterError, slope
from terrain_gpu.engine import cluster, connection

address, pid, store = sys.argv[1:]
with cluster.open_client(None, address) as client:
    def stop(cells, total):
        os.kill(int(pid), signal.SIGSTOP)
        connection.CONNECT = connection.GREET = 0.5
    try:
        slope(store, client=client, progress=stop)
    except ClusterError as error:
        print(error)
try:
    with cluster.open_client(None, address):
        pass
except ClusterError as error:
    print(error)
"""


def test_a_process_ends_though_the_scheduler_hangs(store, by_hand):
    words = [STOPPED, by_hand.address, str(by_hand.process.pid), str(store)]
    ended = subprocess.run(
        [sys.executable, "-c", *words], capture_output=True, text=True, check=True
    )
    told = f"{by_hand.address}: the scheduler is gone or stopped: no answer for 0.5 s; --resume"
    gone, refused = ended.stdout.splitlines()
    assert gone.startswith(told)
    assert refused.startswith(f"{by_hand.address}: no scheduler answers within 0.5 s; start")
    assert ended.stderr == ""


DRIVER = """
import os, signal, sys
from terrain_gpu.engine.cluster import open_client
from terrain_gpu.engine.run import Here, run
from terrain_gpu.engine.worker import Job, do_each
from terrain_gpu.spanning_tree.operation import SpanningForest

seen = 0
def kill(cells, total):
    global seen
    seen += cells
    if seen >= 0.4 * total:
        os.kill(os.getpid(), signal.SIGKILL)

with open_client(None, sys.argv[2]) as client:
    run(SpanningForest(sys.argv[1]), client=client, place=Here(kill))
"""


def test_whoever_started_the_run_dies(store, edges, by_hand):
    ended = subprocess.run([sys.executable, "-c", DRIVER, store, by_hand.address], check=False)
    assert ended.returncode == -signal.SIGKILL
    with processes(3) as client:
        found = run(SpanningForest(str(store)), client=client, resume=True)
    assert found.report.result["blocks_resumed"] > 0
    check(store, edges)


PATHS = DRIVER.replace(
    "run(SpanningForest(sys.argv[1]), client=client, place=Here(kill))",
    "shortest_paths(sys.argv[1], [(3, 5)], backlink=True, client=client, progress=kill)",
).replace(
    "import open_client",
    "import open_client\n"
    "from terrain_gpu import shortest_paths\n"
    "from terrain_gpu.paths.cost_distance import solve\n"
    "solve.CHECKPOINT = 0.0  # seconds",
)


WORKERS = """
import os, signal, sys
from terrain_gpu import shortest_paths, slope
from terrain_gpu.engine import cluster, forks

forks.start_server(("terrain_gpu.paths.cost_distance.operation",))
with cluster.open_client(2, None) as client:
    print(*client.run(os.getpid).values(), *{pid for pid in client.run(os.getppid).values()})
    sys.stdout.flush()
    def kill(cells, total):
        os.kill(os.getpid(), signal.SIGKILL)
    shortest_paths(sys.argv[1], [(3, 5)], client=client, progress=kill)
"""


def test_no_worker_outlives_who_started_it(store):
    """Nor does the server that they were forked from."""
    ended = subprocess.run(
        [sys.executable, "-c", WORKERS, store], check=False, stdout=subprocess.PIPE
    )
    assert ended.returncode == -signal.SIGKILL
    pids = set(map(int, ended.stdout.split()))
    assert len(pids) == 3
    end = time.monotonic() + HANGS
    while pids := {pid for pid in pids if is_running(pid)}:
        assert time.monotonic() < end
        time.sleep(0.02)


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_whoever_looks_for_paths_dies(store, by_hand):
    """While the blocks are visited."""
    ended = subprocess.run([sys.executable, "-c", PATHS, store, by_hand.address], check=False)
    assert ended.returncode == -signal.SIGKILL
    with clusters.open_client(None, by_hand.address) as client:
        found = shortest_paths(store, [(3, 5)], backlink=True, client=client, resume=True)
    assert found.report.result["blocks_resumed"] > 0
    cells = {name: whole(layer) for name, layer in found.layers.items()}
    alone = shortest_paths(store, [(3, 5)], backlink=True, overwrite=True)
    assert all(same(cells[name], whole(layer)) for name, layer in alone.layers.items())
    assert not (store / ".incomplete").exists()


def test_the_command_is_killed_and_goes_on_alone(store, edges, by_hand):
    """It pauses by itself when all blocks are written and none is patched."""
    command = f"compute-mst {store} --scheduler {by_hand.address}"
    run = fork(store.parent, command, Pause("os.rename", "gone-lent", 1, 0))
    wait_for_pause(run)
    run.kill()
    run.communicate()
    assert run.returncode == -signal.SIGKILL
    alone = spawn(f"compute-mst {store} --resume --json -")
    assert json.loads(alone.stdout)["result"]["blocks_resumed"] == 8 * 9
    check(store, edges)


def in_workers(client, store, function, items):
    """``function(item)`` in workers, in any order, and what the report tells."""
    cluster = clusters.Cluster(client, str(store))
    job = pickle.dumps(Job(None, None, None, [], run=cluster._run_id))
    found = list(cluster._run(do_each, job, ((function, item) for item in items)))
    return found, cluster.settings()


def die_once(operation, folder, mark):
    """Kill this process, unless that has been done before."""
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return mark.name


def test_what_died_with_its_worker_is_told(store, tmp_path, cluster):
    found, told = in_workers(cluster, store, die_once, [tmp_path / "one"])
    assert found == ["one"]
    assert told["tasks"] == told["retries"] == 1
    (one,) = told["each"].values()
    assert one["tasks"] == 1
    assert 0 < one["processor_seconds"] < one["seconds"] + 1
    assert one["host"] == socket.gethostname()
    assert one["bytes_read"] >= 0
    assert told["worker_peak_rss_bytes"] == one["peak_rss_bytes"] > 20 * MB
    assert told["bytes_sent"] > len(str(tmp_path))
    assert told["bytes_received"] > 0


BEGUN = set()


def load_once(operation, folder, seconds):
    """Work for a tenth of so many seconds; the first time in a process, so many longer."""
    end = time.thread_time() + seconds * (0.1 if seconds in BEGUN else 1.1)
    BEGUN.add(seconds)
    while time.thread_time() < end:
        pass


def test_what_first_tasks_took_for_more_is_told(store, cluster):
    """Not of the only task of a phase, which none is compared with."""
    in_workers(cluster, store, load_once, [0.01] * 20)  # this module is imported
    told = in_workers(cluster, store, load_once, [0.5] * 20)[1]
    assert told["loading_seconds"] == pytest.approx(0.5 * len(told["each"]), rel=0.2)
    again = in_workers(cluster, store, load_once, [0.5] * 20)[1]
    assert again["loading_seconds"] == pytest.approx(0, abs=0.2)
    assert in_workers(cluster, store, load_once, [0.5])[1]["loading_seconds"] is None


def test_a_second_phase_of_the_same_job_loads_too(store, cluster):
    """What is called travels with the items."""
    runs = clusters.Cluster(cluster, str(store))
    job = pickle.dumps(Job(None, None, None, [], run=runs._run_id))
    for seconds in (0.011, 0.3, 0.4):
        list(runs._run(do_each, job, ((load_once, seconds) for _ in range(20))))
        told = runs.settings()
    expected = (0.3 + 0.4) * len(told["each"])
    assert told["loading_seconds"] == pytest.approx(expected, rel=0.3)


def many_events(dask_scheduler):
    for _ in range(1000):
        dask_scheduler.log_event("all", {})


def test_the_dead_are_counted_after_a_thousand_events(store, tmp_path, cluster, monkeypatch):
    """The scheduler keeps no more of all together, and a result is one."""
    count = clusters.Cluster._again

    def late(self, name):
        self.client.run_on_scheduler(many_events)
        return count(self, name)

    monkeypatch.setattr(clusters.Cluster, "_again", late)
    assert in_workers(cluster, store, die_once, [tmp_path / "one"])[1]["retries"] == 1


def length(operation, folder, item):
    return len(item)


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("started", ["with the command", "by hand"])
def test_what_was_sent_does_not_stay_in_memory(store, request, started):
    """Dask keeps the last 1000 messages of each stream, unless told otherwise: here 320 MB."""
    if started == "by hand":
        opened = clusters.open_client(None, request.getfixturevalue("by_hand").address)
    else:
        opened = processes(2)
    with opened as client:
        in_workers(client, store, length, [b""])
        tasks = clusters.Tasks(
            clusters.Cluster(client, str(store)), do_each, pickle.dumps(Job(None, None, None, []))
        )
        messages = (os.urandom(800_000) for _ in range(400))

        def more():
            for message in islice(messages, 4 - len(tasks.running)):
                tasks.submit([(length, message)])

        before = resident()
        assert [count for (count,), *_ in tasks.results(more)] == [800_000] * 400
        assert resident() - before < 60 * MB


def meet(operation, folder, place):
    """Wait for another process that waits too."""
    (place / str(os.getpid())).touch()
    end = time.monotonic() + HANGS
    while len(found := os.listdir(place)) < 2:
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def test_workers_that_join_later_take_part(store, tmp_path, scheduler, start_worker, monkeypatch):
    monkeypatch.setattr(clusters, "LOOK", 0.1)
    start_worker()
    with clusters.open_client(None, scheduler.address) as client:
        client.wait_for_workers(1)
        cluster = clusters.Cluster(client, str(store))
        start_worker()
        (place := tmp_path / "place").mkdir()
        job = pickle.dumps(Job(None, None, None, []))
        list(cluster._run(do_each, job, iter([(meet, place)] * 8)))
    assert len(cluster.settings()["each"]) == 2


def die(operation, folder, item):
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_last_worker_dies(store, scheduler, start_worker, monkeypatch):
    start_worker()
    with clusters.open_client(None, scheduler.address) as client:
        client.wait_for_workers(1)
        monkeypatch.setattr(clusters, "WAIT", 0.3)
        monkeypatch.setattr(clusters, "LOOK", 0.1)
        with pytest.raises(ClusterError, match=r"there is no worker; start some .*; --resume"):
            in_workers(client, store, die, [0])


def test_a_task_that_kills_its_workers(store, monkeypatch, tmp_path):
    monkeypatch.setattr(connection, "DEATHS", 0)
    with (
        processes(2) as client,
        pytest.raises(ClusterError, match=r"gave up on a task after 1 worker that"),
    ):
        in_workers(client, store, die, [0])


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"version": "9.9"}, ClusterError, "has terrain_gpu 0.1.0, not 9.9; install the same"),
        ({"folder": "/no/such"}, ClusterError, "does not see /no/such; the store must lie in"),
        ({"threads": 0}, ClusterError, "has 1 thread, but the run plans for 0; start it with"),
        ({"memory": 10**15}, PlanError, "may use [0-9]+ MB, .* needs 1000000000 MB there"),
    ],
)
def test_workers_that_join_later_are_asked_too(store, cluster, wrong, error, message):
    """With the first task that they get."""
    connected = clusters.Cluster(cluster, str(store))
    connected._needs = connected._needs._replace(**wrong)
    job = pickle.dumps(Job(None, None, None, [wrong]))
    with pytest.raises(error, match=message):
        list(connected._run(do_each, job, iter([(print, 0)])))


def test_workers_whose_own_limit_is_less(store, scheduler, start_worker):
    """Dask would pause them forever."""
    start_worker("400MB")
    with clusters.open_client(None, scheduler.address) as client:
        large = SimpleNamespace(
            plan=lambda machine: SimpleNamespace(worker_memory=machine.memory_limit - 1)
        )
        message = (
            r"^worker tcp://\S* on \S+ has a memory limit of 400 MB in Dask, which pauses it at "
            r"320 MB, but the run needs 1000 MB there; start the worker with --memory-limit 1250MB "
            r"or more, or give the run a smaller one$"
        )
        connected = clusters.Cluster(client, str(store))
        with pytest.raises(PlanError, match=message):
            connected.plan(large, Machine.of(10**9))
        assert connected.limit(None) == 320 * MB


@pytest.mark.parametrize("given", [None, "2GB"])
def test_workers_whose_own_limit_is_less_than_any_run_needs(
    store, scheduler, start_worker, given, monkeypatch
):
    """The message tells the least limit of theirs, with which the run then works."""
    monkeypatch.setattr(planner, "LEAST_WRITERS", 1)  # as in a worker
    monkeypatch.setattr(clusters, "default_memory_limit", lambda: 10**9)
    start_worker("200MB")
    with clusters.open_client(None, scheduler.address) as client:
        with pytest.raises(PlanError, match=r"^worker \S+ on .* 200 MB in Dask, .*") as found:
            slope(store, client=client, memory_limit=given)
        least = re.search(
            r"start the worker with --memory-limit (\d+)MB or more$", str(found.value)
        )
        assert least, found.value
        client.retire_workers()
    for limit in (int(least[1]) - 2, int(least[1])):
        start_worker(f"{limit}MB")
        with clusters.open_client(None, scheduler.address) as client:
            if limit < int(least[1]):
                with pytest.raises(PlanError, match=rf"--memory-limit {least[1]}MB or more$"):
                    slope(store, client=client)
                client.retire_workers()
            else:
                slope(store, client=client)


def test_workers_that_join_later_with_a_limit_that_is_less(store, scheduler, start_worker):
    start_worker("400MB")
    with clusters.open_client(None, scheduler.address) as client:
        connected = clusters.Cluster(client, str(store))
        connected._needs = connected._needs._replace(memory=321 * MB)
        job = pickle.dumps(Job(None, None, None, []))
        with pytest.raises(PlanError, match=r"400 MB in Dask, .* --memory-limit 402MB or more, or"):
            list(connected._run(do_each, job, iter([(print, 0)])))


def test_workers_need_not_hold_what_the_run_does(store, cluster):
    connected = clusters.Cluster(cluster, str(store))
    plan = replace(
        Slopes(str(store), Slope()).plan(Machine.of("1GB", 1)), memory=10**15, worker_memory=10**8
    )
    assert connected.plan(SimpleNamespace(plan=lambda machine: plan), Machine.of(10**16)) == plan
    wide = replace(plan, worker_memory=10**15)
    with pytest.raises(PlanError, match=r"needs 1000000000 MB there"):
        connected.plan(SimpleNamespace(plan=lambda machine: wide), Machine.of(10**16))


def test_networks(tmp_path, cluster, store):
    minimum_spanning_tree(store)
    alone, beside = tmp_path / "alone.geojson", tmp_path / "beside.geojson"
    extract_network(store, alone, min_length=100)
    killed = []

    def kill(cells, total):
        if not killed:
            killed.append(kill_a_worker(cluster))

    found = extract_network(store, beside, min_length=100, client=cluster, progress=kill)
    assert found.report.settings["cluster"]["tasks"] > 0
    assert found.lines > 10
    assert killed
    assert beside.read_bytes() == alone.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"s.zarr", alone.name, beside.name}


def test_a_run_takes_back_what_a_killed_one_has_lent(store, tmp_path):
    source = TileStore.open(store).layer("elevation")

    def create(resume):
        return create_layer(
            tmp_path / "o.zarr", "o", source.grid, "u1", block_size=64, resume=resume
        )

    cells = np.ones((64, 64), np.uint8)
    with create(False) as writer:
        late = writer.lent(lent_folder(writer.spill))
        late.write_block(0, 0, cells)
        writer.record(late.lines.pop())
    with create(True) as writer:
        with pytest.raises(OSError, match="cannot be written"):
            late.write_block(0, 0, cells * 2)
        assert same(writer.read_block(0, 0), cells)


def test_what_a_given_up_worker_writes_late_does_not_arrive(store, tmp_path):
    with pytest.raises(Stop):
        run(SpanningForest(str(store)), threads=1, place=Here(stop_at(0.1)))
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
    monkeypatch.setattr(terrain_gpu, "__version__", "9.9")
    with pytest.raises(ClusterError, match=r"has terrain_gpu 0.1.0, not 9.9; install the same"):
        slope(store, client=cluster)


def test_workers_that_do_not_see_the_store(cluster, tmp_path):
    with pytest.raises(ClusterError, match=r"does not see .*; the store must lie in a folder that"):
        clusters.Cluster(cluster, str(tmp_path / "elsewhere"))


def test_a_scheduler_without_workers(store, scheduler, monkeypatch, caplog):
    """It is told at once. Nothing has begun, so nothing can be resumed."""
    monkeypatch.setattr(clusters, "WAIT", 0.1)
    with (
        clusters.open_client(None, scheduler.address) as client,
        pytest.raises(
            ClusterError,
            match=f"there is no worker; start some .dask worker {scheduler.address}.$",
        ),
    ):
        slope(store, client=client)
    assert caplog.messages == [f"{scheduler.address}: no worker yet; waiting for 0.1 s in all"]


def test_more_workers_than_the_machine_has_room_for(monkeypatch, caplog):
    """Nine hundred of them kept a host busy for minutes."""
    least = connection.BASELINE + connection.OVERHEAD
    monkeypatch.setattr(connection, "available_threads", lambda: 8)
    for there, remedy in ((least - 1, "leave out --workers"), (3 * least, "start 3$")):
        monkeypatch.setattr(connection, "machine_memory", lambda there=there: there)
        message = rf"--workers 900: workers need .* before .*, but only .* is available; {remedy}"
        with pytest.raises(InputError, match=message), clusters.open_client(900, None):
            pass
    connection._check_number(3)
    monkeypatch.setattr(connection, "available_threads", lambda: 1)
    monkeypatch.setattr(connection, "machine_memory", lambda: 10**12)
    connection._check_number(1)
    assert not caplog.messages
    connection._check_number(2)
    assert caplog.messages == ["--workers 2: more than there are processors (1)"]


def test_no_scheduler(monkeypatch, caplog):
    """It is told soon, and ends after a third of the time that a busy one may take later."""
    assert 2 * connection.SAY < connection.GREET <= connection.CONNECT / 3
    monkeypatch.setattr(connection, "SAY", 0.1)
    monkeypatch.setattr(connection, "GREET", 0.3)
    with (
        pytest.raises(ClusterError, match=r"tcp://127.0.0.1:1: no scheduler answers within 0.3 s"),
        clusters.open_client(None, "tcp://127.0.0.1:1"),
    ):
        pass
    assert caplog.messages == ["tcp://127.0.0.1:1: no answer yet; waiting for 0.3 s in all"]


def test_something_else_answers():
    """Dask takes a greeting of SSH for the number of parts of a message, and their lengths."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = "{}:{}".format(*server.getsockname())
        greeter = Thread(target=lambda: server.accept()[0].sendall(b"SSH-2.0-OpenSSH_9.2\r\n" * 9))
        greeter.start()
        with (
            pytest.raises(ClusterError, match=f"{address}: the server at this address is not a Da"),
            clusters.open_client(None, address),
        ):
            pass
        greeter.join()


def test_a_scheduler_with_certificates(tmp_path):
    """They come from Dask's settings, as for its own client."""
    security, settings = Security.temporary(), {}
    for name, text in (
        ("ca-file", security.tls_ca_file),
        ("client.cert", security.tls_client_cert),
        ("client.key", security.tls_client_key),
    ):
        (tmp_path / name).write_text(text)
        settings[f"distributed.comm.tls.{name}"] = str(tmp_path / name)
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=0, security=security, protocol="tls://", dashboard_address=None
        ) as cluster,
        clusters.open_client(None, cluster.scheduler_address) as client,
    ):
        assert client.scheduler.address.startswith("tls://")


def test_no_dask(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(ClusterError, match=r"pip install 'terrain_gpu\[dask\]'"),
        clusters.open_client(2, None),
    ):
        pass


def test_a_worker_that_does_not_answer(store, scheduler, start_worker, monkeypatch):
    start_worker()
    with clusters.open_client(None, scheduler.address) as client:
        client.wait_for_workers(1)
        monkeypatch.setattr(clusters, "ANSWER", 0.3)
        (pid,) = client.run(os.getpid).values()
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(ClusterError, match="a worker does not answer; stop it"):
            slope(store, client=client)


def test_the_dashboard_is_named(store, cluster, caplog):
    caplog.set_level(logging.INFO, "terrain_gpu")
    cluster.wait_for_workers(2)  # another test may have killed one
    slope(store, client=cluster)
    (link,) = re.findall(r"2 worker.*; dashboard: (http://127.0.0.1:\d+)/status", caplog.text)
    with urllib.request.urlopen(f"{link}/health", timeout=HANGS) as answer:
        assert answer.read() == b"ok"


def test_workers_know_the_environment(monkeypatch):
    """Also if the server that they are forked from is older than a variable."""
    with processes(1):
        pass
    monkeypatch.setenv("TERRAIN_GPU_TEST", "new")
    with processes(1) as client:
        assert [*client.run(os.getenv, "TERRAIN_GPU_TEST").values()] == ["new"]


STARTED = """
import os, signal, sys
from terrain_gpu.engine import cluster, forks

def blocked():
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])

def threads(pid):
    return len(os.listdir(f"/proc/{pid}/task"))

def new_pages():
    import numpy as np, resource
    before = 0
    for k in range(25):
        np.ones(1 << 18)  # 512 pages
        before = before if k > 4 else resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

forks.start_server(
    ("terrain_gpu.spanning_tree.operation", "terrain_gpu.hydrology.accumulate.operation")
)
with cluster.open_client(1, None) as client:
    (server,) = client.run(os.getppid).values()
    assert threads(server) == 1  # a fork copies the locks of other threads, and they stay locked
    assert all(client.run(blocked).values())
    assert max(client.run(new_pages).values()) < 1000  # freed arrays are used again
assert not blocked()
assert "pandas" not in sys.modules  # which Dask imports if it may
"""


def test_only_who_started_workers_hears_an_interrupt():
    """A terminal signals all."""
    # What Dask sets for the workers of other tests stays in the environment.
    own = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    subprocess.run([sys.executable, "-c", STARTED], check=True, env=own)


def test_a_client_that_is_closed(store, scheduler):
    with clusters.open_client(None, scheduler.address) as client:
        pass
    with pytest.raises(ClusterError, match="the client is closed; give a connected one"):
        slope(store, client=client)


def test_a_client_is_for_stores_and_cpus(store):
    asynchronous = SimpleNamespace(asynchronous=True, scheduler_info=None)
    for wrong in (5, "tcp://127.0.0.1:1", asynchronous):
        with pytest.raises(InputError, match=r"client .*distributed.Client"):
            slope(store, client=wrong)


def test_a_client_with_threads(tmp_path):
    """As `--workers` with `--threads`, for all functions, before any work."""
    client = SimpleNamespace(asynchronous=False, scheduler_info=None)
    functions = [getattr(terrain_gpu, name) for name in terrain_gpu.__all__]
    functions = filter(inspect.isfunction, functions)  # set_options is a class
    takes = [f for f in functions if "client" in inspect.signature(f).parameters]
    assert len(takes) > 20
    for function in takes:
        needed = {
            name: str(tmp_path / name)
            for name, one in inspect.signature(function).parameters.items()
            if one.default is one.empty or name in ("path", "output")
        }
        with pytest.raises(InputError, match=r"^threads 3: give None with a client, whose workers"):
            function(**needed, threads=3, client=client)


def test_the_plan_has_room_for_dask(store, cluster, monkeypatch):
    monkeypatch.setattr(planner, "LEAST_WRITERS", 1)  # as in a worker
    alone = slope(store, threads=1, overwrite=True)
    found = [alone, slope(store, overwrite=True, client=cluster)]
    alone, beside = (one.report.settings["plan"]["memory"] for one in found)
    assert beside == alone + 60 * MB
    with pytest.raises(PlanError, match="give at least"):
        slope(store, client=cluster, memory_limit=beside - MB)


@pytest.mark.parametrize(
    "command",
    [
        "compute-mst s.zarr",
        "compute-sssp s.zarr --source-rowcol 3,5 --allocation a.tif",
        "terrain-gpu slope s.zarr",
    ],
)
def test_the_least_limit_holds_in_every_process(tmp_path, command):
    make_store(tmp_path / "s.zarr", heights((1100, 900)), -1, 512)
    command = f"{command} --workers 2 --overwrite -q --json r.json"
    limit, peak = within(tmp_path, command, 200 * MB)
    workers = json.loads((tmp_path / "r.json").read_text())["settings"]["cluster"]
    assert peak <= limit
    assert workers["workers"] == 2
    assert 0 < workers["worker_peak_rss_bytes"] <= limit


def test_commands(store, by_hand):
    with clusters.open_client(None, by_hand.address) as client:
        client.wait_for_workers(1)  # it would be told that there is none yet
    done = spawn(f"terrain-gpu slope {store} --scheduler {by_hand.address}")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert same(
        whole(TileStore.open(store).layer("slope")),
        whole(run(Slopes(str(store), Slope(into="other"))).layers["other"]),
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("--workers 2 --threads 2", 2, "--threads cannot be combined with --workers"),
        ("--workers 2 --scheduler tcp://127.0.0.1:1", 2, "cannot be combined with --scheduler"),
        ("--workers 0", 2, "--workers"),
        ("--scheduler nonsense", 2, "nonsense: not an address; write for example tcp://"),
        (
            "--scheduler http://h:1",
            2,
            "does not know http://; write tcp://h:1, or the address that the scheduler",
        ),
        ("--scheduler ucx://h:1", 2, "does not know ucx://; write tcp://h:1"),
        ("--scheduler tls://h:1", 2, "needs certificates; name their files in Dask's settings"),
    ],
)
def test_wrong_options(store, words, code, message):
    done = spawn(f"terrain-gpu slope {store} {words}")
    assert done.returncode == code
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
