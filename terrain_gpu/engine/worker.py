"""Functions that run in the workers of a cluster, and the messages that workers exchange."""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import pickle
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import __version__
from ..errors import ClusterError, PlanError, StoreError, TerrainError
from ..grid import Block, ceil_div
from ..plurals import counted
from ..report import peak_rss, process_io
from ..store.client import RESUMES
from ..store.objects import ObjectPath
from ..store.writer import BlockWriter
from .machine import MB, available_threads, machine_memory, memory_limits
from .operation import Operation, Phase
from .plan import StreamPlan

if TYPE_CHECKING:
    from .run import Patch

PAUSES = 0.8
"""The fraction of its memory limit at which a Dask worker pauses."""

SOON = 45.0
"""Seconds in which a worker must say whether it can read a store; less than `cluster.ANSWER`."""


class Job(NamedTuple):
    """The parts of a task that are the same for all blocks of a phase."""

    operation: Operation
    phase: Phase
    folder: Path | None
    writers: list[BlockWriter]
    plan: StreamPlan | None = None
    run: str = ""
    """Unique, since files that a worker opened for an earlier run may have been replaced."""


class ProofJob(NamedTuple):
    """The parts of a task that are the same for all blocks of a pass of a proof."""

    checks: Any
    """A `proof.Checks`, or an object with the same methods."""
    run: str
    """As in a `Job`."""


class Needs(NamedTuple):
    """Requirements for workers. Sent with each task, because workers may join late."""

    version: str
    folder: str
    """A folder that the worker must be able to access."""
    threads: int
    """The largest number of threads that it may have."""
    memory: int
    store: str = ""
    """The store, if it is in object storage: the worker must be able to read it."""
    exists: bool = False
    """Whether the store exists already, so that the worker must find it."""


class Facts(NamedTuple):
    """The answer of a worker to a query about itself."""

    host: str
    version: str | None
    sees: bool = True
    limits: tuple[tuple[str, int], ...] = ()
    """Memory limits in bytes by name; processes with the same name share that limit."""
    memory: int = 0
    threads: int = 1
    """Processors that the process may use."""
    finds: bool = True
    """Whether the worker finds the store in object storage."""
    fails: str = ""
    """Why it cannot access object storage, with a remedy."""
    own: int = 0
    """The worker's own memory limit in Dask; 0 without one."""


class BlockTask(NamedTuple):
    """A block to solve, with what it needs to know about others and which outputs to write."""

    block: Block
    context: Any
    write: tuple[bool, ...]


class Solution(NamedTuple):
    """The message of a solved block, and the manifest lines of each output that record it."""

    block: Block
    message: Any
    lines: list[list[bytes]]


class TaskFigures(NamedTuple):
    """A worker's figures for a task; `before` and `after` are the bytes read and written so far."""

    worker: str
    host: str
    seconds: float
    peak: int
    before: tuple[int, int]
    after: tuple[int, int]
    processor: float
    """Seconds of processor time of the task's thread."""
    begins: bool
    """Whether it is the thread's first task of a phase."""


class _Local(threading.local):
    """Data that a worker's thread keeps between tasks of one job."""

    def __init__(self) -> None:
        self.begun: deque[str] = deque(maxlen=16)
        """Names of the phases, see `cluster.Tasks`, that this thread had tasks of."""

    key = b""
    job: Any = None
    buffer: Any = None
    work: Any = None

    def clear(self) -> None:
        """Free what a job has opened and allocated."""
        if isinstance(self.job, Job) and self.job.operation is not None:
            self.job.operation.close()
        self.key, self.job, self.buffer, self.work = b"", None, None, None


_local = _Local()

Task = Callable[[Any, list[Any]], list[Any]]
"""Applied to a job, such as an operation, and to some of its items; returns their results."""


def task(items: bytes, function: Task, needs: Needs, packed: bytes) -> tuple[bytes, TaskFigures]:
    """Apply a function to some items in a worker; return the pickled results and figures."""
    from distributed import get_worker

    start, before, worker = time.perf_counter(), process_io() or (0, 0), get_worker()
    processor = time.thread_time()
    name = str(worker.get_current_task()).rpartition("-")[0]
    if begins := name not in _local.begun:
        _local.begun.append(name)
    key = hashlib.sha256(packed).digest()
    if _local.key != key:  # free what another job holds first
        _local.clear()
        if needs.threads < worker.state.nthreads:
            raise ClusterError(
                f"worker {worker.address} has {counted(worker.state.nthreads, 'thread')}, but "
                f"the run plans for {needs.threads}; start it with --nthreads {needs.threads}, "
                "then --resume"
            )
        worker_facts = limited(facts(needs.folder, needs.store), worker.memory_manager.memory_limit)
        refuse(worker.address, worker_facts, needs)
        _local.job, _local.key = pickle.loads(packed), key
    try:
        result = pickle.dumps(function(_local.job, pickle.loads(items)))
    except TerrainError as error:
        # Its message is complete, and its cause may be an exception that cannot be pickled.
        error.__cause__ = error.__context__ = None
        raise
    seconds = time.perf_counter() - start
    after, processor = process_io() or (0, 0), time.thread_time() - processor
    host, peak = socket.gethostname(), peak_rss()
    return result, TaskFigures(
        worker.address, host, seconds, peak, before, after, processor, begins
    )


def facts(folder: str, store: str = "") -> Facts:
    """Return the facts about this process; a store in object storage costs a request."""
    limits, identity = tuple(memory_limits().items()), (socket.gethostname(), __version__)
    answer = Facts(*identity, os.path.isdir(folder), limits, machine_memory(), available_threads())
    try:
        finds = not store or (ObjectPath(store) / "zarr.json").read() is not None
    except TerrainError as error:
        return answer._replace(fails=str(error).removesuffix(RESUMES))
    return answer._replace(finds=finds)


async def facts_in_time(folder: str, store: str) -> Facts:
    """Return the facts about this process, even if the server of the store does not answer.

    The worker can answer other queries in the meantime.
    """
    try:
        return await asyncio.wait_for(asyncio.to_thread(facts, folder, store), SOON)
    except TimeoutError:
        slow = f"{store}: the server did not answer within {SOON:g} s; check network and endpoint"
        return facts(folder)._replace(fails=slow)


def limited(worker: Facts, dask_limit: int | None) -> Facts:
    """Reduce the memory of a worker to the fraction of its own limit at which Dask pauses it."""
    return (
        worker._replace(memory=min(worker.memory, int(PAUSES * dask_limit)), own=dask_limit)
        if dask_limit
        else worker
    )


def refuse(address: str, worker: Facts, needs: Needs) -> None:
    """Reject a worker with another version, without access to the store, or with too little memory.

    Raises
    ------
    ClusterError
        If it has another version, or cannot access a folder.
    StoreError
        If it cannot read the store in object storage.
    PlanError
        If it has too little memory.
    """
    where = f"worker {address} on {worker.host}"
    if worker.version != needs.version:
        has = "no terrain_gpu" if worker.version is None else f"terrain_gpu {worker.version}"
        raise ClusterError(
            f"{where} has {has}, not {needs.version}; install the same version everywhere"
        )
    if not worker.sees:
        raise ClusterError(
            f"{where} does not see {needs.folder}; the store must lie in a folder that all hosts "
            "share, under the same path (if it is in object storage, the folder of --scratch must)"
        )
    its_own = "the worker uses the environment in which it was started, not that of the command"
    if worker.fails:
        raise StoreError(f"{where} cannot read the store: {worker.fails}; {its_own}")
    if needs.exists and not worker.finds:
        raise StoreError(
            f"{where} does not find the store {needs.store}, but the command does; start it with "
            f"the same endpoint and credentials: {its_own}"
        )
    if worker.memory < needs.memory:
        refuse_limit(address, worker, needs.memory, ", or give the run a smaller one")
        raise PlanError(
            f"{where} may use {worker.memory // MB} MB, the limit of its host, container or "
            f"batch job, but the run needs {ceil_div(needs.memory, MB)} MB there; choose a smaller "
            "--memory-limit, start fewer workers there, or raise that limit"
        )


def refuse_limit(address: str, worker: Facts, needed: int, otherwise: str = "") -> None:
    """Reject a worker if its own limit in Dask keeps it from using `needed` bytes.

    Raises
    ------
    PlanError
        If it does. The message gives the smallest sufficient limit, then `otherwise`.
    """
    if worker.own and worker.memory == int(PAUSES * worker.own) < needed:
        least = ceil_div(math.ceil(needed / PAUSES), MB)
        raise PlanError(
            f"worker {address} on {worker.host} has a memory limit of {worker.own // MB} MB in "
            f"Dask, which pauses it at {worker.memory // MB} MB, but the run needs "
            f"{ceil_div(needed, MB)} MB there; start the worker with --memory-limit {least}MB or "
            f"more{otherwise}"
        )


def solve_blocks(job: Job, groups: list[list[BlockTask]]) -> list[Solution]:
    """Solve and write blocks, those of a group read together, in a worker."""
    operation, phase, folder, writers, plan, _run = job
    assert plan is not None
    if _local.buffer is None:
        operation.open()
        _local.work, _local.buffer = operation.new_work(), operation.group_buffer(plan)
    solutions = []
    for group in groups:
        cells = operation.read_group([task.block for task in group], _local.buffer)
        for (block, context, write), data in zip(group, cells, strict=True):
            solved = operation.solve_read(phase, block, data, context, _local.work)
            message = operation.keep(phase, block, solved.known, folder)
            for writer, array, wanted in zip(writers, solved.arrays, write, strict=phase.writes):
                if wanted and array is not None:
                    writer.write_block(*block, array)
            solutions.append(Solution(block, message, _lines(writers)))
    return solutions


def patch_blocks(job: Job, patches: list[Patch]) -> list[list[list[bytes]]]:
    """Patch blocks of the first output, in a worker."""
    assert job.plan is not None
    with ThreadPoolExecutor(job.plan.writers) as pool:
        for _ in pool.map(lambda patch: job.writers[0].patch_block(*patch), patches):
            pass
    return [_lines(job.writers)]


def check_each(job: ProofJob, items: list[tuple[Any, list[Any]]]) -> list[tuple[Any, Any]]:
    """Check blocks or windows, in a worker; see `proof.check_blocks`."""
    checks = job.checks
    if _local.buffer is None:
        _local.buffer = checks.new_buffer()
    return [
        (block, checks.of(block, checks.read(block, _local.buffer), *context))
        for block, context in items
    ]


def do_each(job: Job, items: list[tuple[Callable[..., Any], Any]]) -> list[Any]:
    """Call the functions of items, in a worker."""
    return [work(job.operation, job.folder, item) for work, item in items]


def write_each(
    job: Job, items: list[tuple[Callable[..., Any], Any]]
) -> list[tuple[Any, list[list[bytes]]]]:
    """Call functions that may write blocks, in a worker."""
    return [(work(job.operation, job.writers, item), _lines(job.writers)) for work, item in items]


def _lines(writers: list[BlockWriter]) -> list[list[bytes]]:
    """Return and clear the manifest lines of blocks written since the last call."""
    lines = [writer.lines[:] for writer in writers]
    for writer in writers:
        writer.lines.clear()
    return lines
