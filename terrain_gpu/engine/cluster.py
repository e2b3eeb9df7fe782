"""The engine of a Dask cluster: blocks are solved by workers that see the store.

What travels is an operation, which is a few words, what blocks must know of each other, and what
they leave: never cells. Workers write blocks and give back the lines that record them; only the
run itself appends these to the manifest. So a task may run twice, or a worker die at any moment:
each block is counted once, by the one that comes first, and both wrote the same bytes.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ClusterError, InputError
from ..grid import Block
from ..report import peak_rss
from ..store.writer import BlockWriter
from . import plan as planner
from .operation import Operation, Phase, State
from .plan import MB, StreamPlan

if TYPE_CHECKING:
    from .run import Run

log = logging.getLogger(__name__)

OVERHEAD = 60 * MB
"""What Dask takes in each process."""

TASK_SECONDS = 0.2
"""What a task takes at least, where blocks are small: each costs the scheduler up to a ms."""
MOST_BLOCKS = 256
"""Blocks of a task at most."""

WAIT, CONNECT = 30.0, 10.0
"""Seconds that the first worker may take, and the scheduler."""

DEATHS = 10
"""Workers that a task may lose before it is taken for the cause."""


class Job(NamedTuple):
    """What is the same for all blocks of a phase."""

    operation: Operation
    phase: Phase
    folder: Path
    writers: list[BlockWriter]


class Wanted(NamedTuple):
    """A block to solve: what it must know, and which outputs are to be written."""

    at: Block
    given: Any
    write: tuple[bool, ...]


class Solution(NamedTuple):
    """What a block has left, and the lines that record it, of each output."""

    at: Block
    known: Any
    lines: list[list[bytes]]


class _Local(threading.local):
    """What a thread of a worker keeps between tasks of one job."""

    key = b""
    job: Any = None
    buffer: Any = None
    work: Any = None


_local = _Local()


def _job(packed: bytes) -> Any:
    """The job, unpacked once in each thread; what another one worked in goes."""
    key = hashlib.sha256(packed).digest()
    if _local.key != key:
        _local.buffer = _local.work = None
        _local.job, _local.key = pickle.loads(packed), key
    return _local.job


def solve_blocks(packed: bytes, blocks: list[Wanted]) -> tuple[list[Solution], float]:
    """Solve and write blocks, in a worker; how long that took."""
    start, (operation, phase, folder, writers) = time.perf_counter(), _job(packed)
    if _local.buffer is None:
        _local.buffer, _local.work = operation.new_buffer(), operation.new_work()
    found = []
    for at, given, write in blocks:
        data = operation.read(at, _local.buffer)
        solved = operation.solve_read(phase, at, data, given, _local.work)
        known = operation.keep(phase, at, solved.known, folder)
        for writer, array, wanted in zip(writers, solved.arrays, write, strict=phase.writes):
            if wanted:
                writer.write_block(*at, array)
        found.append(Solution(at, known, _lines(writers)))
    return found, time.perf_counter() - start


def patch_blocks(packed: bytes, patches: list[tuple[Any, ...]]) -> tuple[list[list[bytes]], float]:
    """Patch blocks of the only output, in a worker."""
    start, job = time.perf_counter(), _job(packed)
    for patch in patches:
        job.writers[0].patch_block(*patch)
    return _lines(job.writers), time.perf_counter() - start


def _lines(writers: list[BlockWriter]) -> list[list[bytes]]:
    """Records of what was written since."""
    found = [writer.lines[:] for writer in writers]
    for writer in writers:
        writer.lines.clear()
    return found


class Cluster:
    """Where blocks are solved by the workers of a Dask client.

    Parameters
    ----------
    client
        A `distributed.Client`.

    Raises
    ------
    ClusterError
        when there is no worker.
    """

    def __init__(self, client: Any) -> None:
        self.client, self.tasks = client, 0
        self._probed = False
        # Before others are looked for: a cluster may have been started a moment ago.
        with _told(client):
            if not (workers := client.scheduler_info(n_workers=-1)["workers"]):
                client.wait_for_workers(1, timeout=WAIT)
                workers = client.scheduler_info(n_workers=-1)["workers"]
        self.threads = max(worker["nthreads"] for worker in workers.values())
        self.slots = sum(worker["nthreads"] for worker in workers.values())
        self.workers = len(workers)
        log.info(
            "%d workers of %d threads; dashboard: %s",
            self.workers,
            self.threads,
            client.dashboard_link or "none",
        )

    def settings(self) -> dict[str, Any]:
        """What a report says of the cluster."""
        found: dict[str, Any] = {"workers": self.workers, "threads": self.slots}
        with _told(self.client):
            peaks = self.client.run(peak_rss, on_error="ignore").values()
        return found | {"tasks": self.tasks, "worker_peak_rss_bytes": max(peaks, default=0)}

    def plan(self, operation: Operation, memory_limit: int) -> StreamPlan:
        """The plan of each process: the limit is that of one, Dask included."""
        with planner.of_cluster(OVERHEAD):
            return operation.plan(memory_limit, self.threads)

    def map(self, run: Run, phase: Phase, state: State, blocks: Iterator[Block]) -> None:
        """Solve blocks in the workers; what they found is taken here."""
        writers = list(run.writers.values())

        def wanted() -> Iterator[Wanted]:
            for at in blocks:
                write = tuple(run.wanted(state, writer, at) for writer in writers)
                yield Wanted(at, state.given(phase, at), write)

        with self._lent(run, phase, writers if phase.writes else []) as packed:
            for solutions in self._run(solve_blocks, packed, wanted()):
                for at, known, lines in solutions:
                    state.add(phase, at, known)
                    _record(writers, lines)
                    run.tick(at)

    def patch(self, run: Run, name: str, patches: Iterable[tuple[Any, ...]]) -> None:
        """Patch written blocks in the workers."""
        writers = [run.writers[name]]
        with self._lent(run, run.operation.phases[-1], writers) as packed:
            for lines in self._run(patch_blocks, packed, iter(patches)):
                _record(writers, lines)

    def each(self, run: Run, work: Callable[..., Any], items: Iterable[Any]) -> Iterator[Any]:
        """``work(operation, folder, item)`` for all items, in the workers; in any order."""
        with self._lent(run, run.operation.phases[-1], []) as packed:
            for found in self._run(_each_of, packed, ((work, item) for item in items)):
                yield from found

    @contextmanager
    def _lent(self, run: Run, phase: Phase, writers: list[Any]) -> Iterator[bytes]:
        """A job whose writers write by way of a folder that goes with it."""
        folder = run.spill / f"lent-{uuid.uuid4().hex}"
        folder.mkdir(parents=True)
        try:
            self._probe(folder)
            lent = [writer.lent(folder) for writer in writers]
            yield pickle.dumps(Job(run.operation, phase, run.spill, lent))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _probe(self, folder: Path) -> None:
        """Refuse workers of another version, and those that do not see the store."""
        if self._probed:
            return
        from .. import __version__

        text = str(folder)

        def probe() -> tuple[str | None, bool, str]:  # sent as code: workers may lack the package
            import os
            import socket

            try:
                import terrain_gpu
            except ImportError:
                return None, False, socket.gethostname()
            return terrain_gpu.__version__, os.path.isdir(text), socket.gethostname()

        with _told(self.client):
            found = self.client.run(probe)
        for address, (version, sees, host) in found.items():
            if version != __version__:
                has = "no terrain_gpu" if version is None else f"terrain_gpu {version}"
                raise ClusterError(
                    f"worker {address} on {host} has {has}, not {__version__}; install the same "
                    "version everywhere"
                )
            if not sees:
                raise ClusterError(
                    f"worker {address} on {host} does not see {folder.parent}; the store must lie "
                    "in a folder that all hosts share, under the same path"
                )
        self._probed = True

    def _run(
        self, function: Callable[..., tuple[Any, float]], packed: bytes, items: Iterator[Any]
    ) -> Iterator[Any]:
        """What `function` finds in some of the items at a time, until all are done."""
        from distributed import as_completed

        seconds, done = 0.0, 0

        def submit() -> Any:
            count = int(TASK_SECONDS * done / seconds) if seconds else 1
            if not (some := list(islice(items, min(max(count, 1), MOST_BLOCKS)))):
                return None
            self.tasks += 1
            sizes[future_key := f"terrain_gpu-{uuid.uuid4().hex}"] = len(some)
            return self.client.submit(function, packed, some, key=future_key, pure=False, retries=0)

        sizes: dict[str, int] = {}
        running = as_completed(loop=self.client.loop, raise_errors=False)
        with _told(self.client):
            try:
                # Two for each thread: one waits while the other is solved.
                for future in filter(None, (submit() for _ in range(2 * self.slots))):
                    running.add(future)
                for future in running:
                    found, took = future.result()
                    seconds, done = seconds + took, done + sizes.pop(future.key)
                    if (more := submit()) is not None:
                        running.add(more)
                    del future
                    yield found
            finally:
                left = list(running.futures)
                if left:
                    self.client.cancel(left, force=True)


def _each_of(packed: bytes, items: list[tuple[Any, Any]]) -> tuple[list[Any], float]:
    start, job = time.perf_counter(), _job(packed)
    found = [work(job.operation, job.folder, item) for work, item in items]
    return found, time.perf_counter() - start


def _record(writers: list[Any], lines: list[list[bytes]]) -> None:
    for writer, own in zip(writers, lines, strict=False):
        for line in own:
            writer.record(line)


@contextmanager
def _told(client: Any) -> Iterator[None]:
    """What Dask raises becomes a `ClusterError`."""
    from concurrent.futures import CancelledError

    from distributed import KilledWorker, TimeoutError
    from distributed.comm import CommClosedError

    where = getattr(getattr(client, "scheduler", None), "address", "")
    resume = "--resume goes on, also on one machine"
    try:
        yield
    except KilledWorker as error:
        raise ClusterError(
            f"{where}: {DEATHS} workers died at the same task; is their --memory-limit more than "
            f"the hosts have? {resume}"
        ) from error
    except (CommClosedError, CancelledError) as error:
        raise ClusterError(f"{where}: the scheduler is gone; {resume}") from error
    except (TimeoutError, OSError) as error:
        if not isinstance(error, TimeoutError):
            raise
        raise ClusterError(f"{where}: there is no worker; start some (dask worker {where})") from (
            error
        )


@contextmanager
def open_client(workers: int | None, scheduler: str | None) -> Iterator[Any]:
    """A client for --workers or --scheduler; None without either.

    Raises
    ------
    ClusterError
        when the scheduler does not answer, or Dask is not installed.
    """
    if workers is None and scheduler is None:
        yield None
        return
    if workers is not None and scheduler is not None:
        raise InputError("--workers starts processes on this machine; leave out --scheduler")
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError:
        raise ClusterError("a cluster needs Dask: pip install 'terrain_gpu[dask]'") from None
    # What it logs is told by an error, or is of no use to whoever runs a command.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with dask.config.set({"distributed.scheduler.allowed-failures": DEATHS}):
        if scheduler is not None:
            if not re.fullmatch(r"(\w+://)?[^/:]+:[0-9]+", scheduler):
                raise InputError(
                    f"--scheduler {scheduler}: is not an address; write for example tcp://host:8786"
                )
            try:
                client = Client(scheduler, timeout=CONNECT, set_as_default=False)
            except (OSError, ValueError):
                raise ClusterError(
                    f"{scheduler}: no scheduler answers; start one (dask scheduler)"
                ) from None
            with client:
                yield client
            return
        with (
            LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                # The plan keeps the limit; Dask would kill what has done nothing wrong.
                memory_limit=0,
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
                host="127.0.0.1",
            ) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            yield client


__all__ = ["Cluster", "open_client"]
