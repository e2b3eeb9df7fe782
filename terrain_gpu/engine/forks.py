"""The processes of `--workers`: forks of a server that has imported what they need.

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
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""What Dask sets for workers. It takes effect when a process starts, so the server needs it.

MALLOC_TRIM_THRESHOLD_ is left out: with it, every large array would be allocated from new pages.
"""

UNUSED = "boto3", "cffi", "scipy"
"""Optional imports of our dependencies that no program needs; they cost 0.4 s and 10 MB.

rasterio asks boto3 for credentials that GDAL finds by itself; numba imports scipy for its BLAS, and
cffi in case functions use it.
"""


def leave_out_unused() -> None:
    """Make imports of `UNUSED` fail in this process."""
    for name in UNUSED:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]


def start_server(modules: tuple[str, ...]) -> None:
    """Start the server, which imports these modules and those of workers in the background."""
    first, last = "terrain_gpu.engine.unused", "terrain_gpu.engine.preload"
    forkserver.set_forkserver_preload([first, "__main__", *modules, last])
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with without_interrupts():
        forkserver.ensure_running()


def load_numba() -> None:
    """Load a kernel, if numba is loaded, since the first one makes numba import further modules."""
    if "numba" not in sys.modules:
        return
    import numpy as np

    from ..store.crc_kernel import kernel

    if kernel is not None:
        kernel(np.zeros((1, 1), np.uint64), np.zeros(1, np.int64), np.zeros(1, np.uint32))


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Block Ctrl-C for threads and processes started in this context; their parent handles it."""
    resource_tracker.ensure_running()  # starting it inside would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def without_pandas() -> Iterator[None]:
    """Hide pandas, which Dask would import for the server; that costs time and memory here."""
    if "pandas" in sys.modules:
        yield
        return
    sys.modules["pandas"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["pandas"]
