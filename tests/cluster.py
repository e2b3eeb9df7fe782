"""A Dask cluster of processes, for tests."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from multiprocessing import forkserver

import dask
import distributed  # noqa: F401  loads its settings; one is changed here

import terrain_gpu
from terrain_gpu.engine import cluster


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
