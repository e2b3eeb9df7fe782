"""A Dask cluster of processes, for tests."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import forkserver, get_context
from pathlib import Path

import dask
import distributed  # noqa: F401  loads its settings; one is changed here

import terrain_gpu
from terrain_gpu.engine import cluster
from terrain_gpu.engine.run import Here, run


def share_imports() -> None:
    """Fork the workers from one process that has done the slow imports.

    It shares nothing with this process, so what is sent to them must be pickled.
    """
    ours = {getattr(terrain_gpu, name).__module__ for name in terrain_gpu.__all__}
    forkserver.set_forkserver_preload(
        ["distributed.nanny", *sorted(ours), "terrain_gpu.engine.preload"]
    )
    forkserver.ensure_running()


@contextmanager
def processes(workers):
    """A client with this many workers, which are restarted when they die."""
    share_imports()
    with (
        dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}),
        cluster.open_client(workers, None) as client,
    ):
        yield client


def kill_a_worker(client):
    """Kill one without notice, as the system does when memory is short."""
    for pid in sorted(client.run(os.getpid, on_error="ignore").values())[:1]:
        os.kill(pid, signal.SIGKILL)


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

    def stop(self):
        """As a host that hangs, or a network that drops everything: nothing is closed."""
        os.kill(self.process.pid, signal.SIGSTOP)


def start_scheduler(folder: Path) -> Daemon:
    """One that listens on the loopback, with its `address`."""
    file = folder / "scheduler.json"
    words = ("--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file))
    daemon = Daemon("scheduler", *words)
    while True:
        assert daemon.process.is_alive()
        if file.exists() and (text := file.read_text()):
            break
        time.sleep(0.02)
    daemon.address = json.loads(text)["address"]
    return daemon


def at_share(share, do):
    """Progress that does something once, at a share of the run."""
    seen = 0

    def progress(cells, total):
        nonlocal seen
        before, seen = seen, seen + cells
        if before < share * total <= seen:
            do()

    return progress


def drawn_share(most=0.95):
    """Above 0 and at most this; another one each time, unless KILL_SEED has the printed seed."""
    seed = int(os.environ.get("KILL_SEED") or random.SystemRandom().randrange(10**6))
    print(f"KILL_SEED={seed} repeats this")  # shown if the test fails
    return most * (1 - random.Random(seed).random())


def drive(operation, address, share):
    """Run an operation on a cluster, and die at a share of it."""
    os.fsync = lambda fd: None
    dead = at_share(share, lambda: os.kill(os.getpid(), signal.SIGKILL))
    with cluster.open_client(None, address) as client:
        run(operation, client=client, place=Here(dead))


def die_driving(operation, address, share, how=drive):
    """Do that in a process of its own."""
    share_imports()
    driver = get_context("forkserver").Process(target=how, args=(operation, address, share))
    driver.start()
    driver.join()
    assert driver.exitcode == -signal.SIGKILL
