"""The processes of `--workers`: forks of a server, which has imported what they need.

This module imports little, so that the server starts before everything else.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker

ENVIRONMENT = {
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""What Dask sets for workers. It takes effect when a process starts, so the server needs it."""


def start_server(modules: tuple[str, ...]) -> None:
    """Start the server; it imports these modules, and those of workers, while this one goes on."""
    forkserver.set_forkserver_preload(["__main__", *modules, "terrain_gpu.engine.preload"])
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with without_interrupts():
        forkserver.ensure_running()


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Block Ctrl-C for threads and processes started in this context: their parent handles it."""
    resource_tracker.ensure_running()  # starting it inside would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def without_pandas() -> Iterator[None]:
    """Hide pandas: Dask imports it to have it in the server, which needs time and memory here."""
    if "pandas" in sys.modules:
        yield
        return
    sys.modules["pandas"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["pandas"]
