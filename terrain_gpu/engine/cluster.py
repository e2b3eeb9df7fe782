"""The engine of a Dask cluster: workers with access to the store solve blocks.

Messages contain the operation (a few words) and what blocks need to know about each other, but
never cells. Workers write blocks and return the manifest lines that record them; only the process
of the run appends these to the manifest. So a task may run twice, or a worker die at any moment:
each block is recorded once, by the first result, and both wrote the same bytes.
"""

from __future__ import annotations

import asyncio
import logging
import math
import pickle
import re
import signal
import time
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from concurrent.futures import wait
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import islice
from multiprocessing import resource_tracker
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from ..errors import ClusterError, InputError
from ..grid import Block
from ..store.objects import is_url
from ..store.scratch import scratch_folder
from ..store.swap import lent_folder, withdraw
from . import plan as planner
from .machine import default_memory_limit
from .operation import Operation, Phase, State
from .plan import MB, StreamPlan
from .worker import (
    Facts,
    Job,
    Needs,
    Told,
    Wanted,
    do_each,
    facts,
    patch_blocks,
    refuse,
    solve_blocks,
    task,
)

if TYPE_CHECKING:
    from .run import Run

log = logging.getLogger(__name__)

OVERHEAD = 60 * MB
"""Memory of Dask in each process."""

TASK_SECONDS = 0.2
"""Target duration of a task with small blocks: each task costs the scheduler up to 1 ms."""
MOST_BLOCKS = 256
"""Most blocks of a task."""

WAIT, CONNECT, LOOK = 30.0, 30.0, 2.0
"""Seconds to wait for a worker, and for the scheduler; seconds between counts of the workers."""

POLL = 0.1
"""Seconds between checks of the connection while the driver waits for the scheduler."""

ANSWER = 60.0
"""Seconds that workers may take to import the package."""

DEATHS = 10
"""Workers that may die during a task before the task is taken for the cause."""

RESUME = "--resume continues, also on one machine"

PAUSES = 0.8
"""The share of its own memory limit at which a Dask worker pauses."""


class Figures:
    """Counts of a run's messages, and the figures that workers returned."""

    def __init__(self) -> None:
        self.tasks = self.retries = self.bytes_sent = self.bytes_received = 0
        self.done: Counter[str] = Counter()
        self.first: dict[str, Told] = {}
        self.last: dict[str, Told] = {}

    def sent(self, *parts: bytes) -> None:
        """Count a submitted task."""
        self.tasks += 1
        self.bytes_sent += sum(map(len, parts))

    def received(self, found: bytes, told: Told) -> None:
        """Count a finished task."""
        self.bytes_received += len(found)
        self.done[told.worker] += 1
        # Results of a worker's threads may arrive out of order.
        self.first[told.worker] = min(
            self.first.get(told.worker, told), told, key=lambda one: one.before
        )
        self.last[told.worker] = max(
            self.last.get(told.worker, told), told, key=lambda one: one.after
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the entries for the report."""
        return {
            "tasks": self.tasks,
            "retries": self.retries,
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
            "worker_peak_rss_bytes": max((told.peak for told in self.last.values()), default=0),
            "each": {
                worker: {
                    "host": last.host,
                    "tasks": self.done[worker],
                    "peak_rss_bytes": last.peak,
                    "bytes_read": last.after[0] - self.first[worker].before[0],
                    "bytes_written": last.after[1] - self.first[worker].before[1],
                }
                for worker, last in sorted(self.last.items())
            },
        }


class Cluster:
    """The engine that solves blocks in the workers of a Dask client.

    Parameters
    ----------
    client
        A `distributed.Client`.
    store
        The store, which all workers must be able to access.

    Raises
    ------
    ClusterError
        when there is no worker, or a worker that does not meet the requirements.
    """

    remote = True

    def __init__(self, client: Any, store: str) -> None:
        from .. import __version__

        if client.status == "closed":
            raise ClusterError("the client is closed; give a connected one")
        self.client = client
        self.figures = Figures()
        self._looked, self._alone = -math.inf, 0.0
        # Wait for workers: the cluster may have been started a moment ago.
        while not (workers := self._look()):
            time.sleep(0.05)
        self.threads = max(worker["nthreads"] for worker in workers.values())
        # For a store in object storage, workers must be able to access the spilled data instead.
        shared = str(scratch_folder()) if is_url(store) else store
        self.workers, self._needs = len(workers), Needs(__version__, shared, self.threads, 0)
        log.info("%d workers of %d threads; dashboard: %s", self.workers, self.threads, self._link)
        self._room = self._ask(workers)

    def settings(self) -> dict[str, Any]:
        """Return the report's entries about the cluster."""
        return {"workers": self.workers, "threads": self.slots, **self.figures.as_dict()}

    def limit(self, memory_limit: int | str | None) -> int:
        """Return the memory limit of each process; when None, at most each worker's share."""
        if memory_limit is None:
            return min([default_memory_limit(), *(room.memory for room in self._room.values())])
        return planner.limit_of(memory_limit)

    def plan(self, operation: Operation, memory_limit: int) -> StreamPlan:
        """Plan for each process; the limit holds for one process, Dask included."""
        with planner.of_cluster(OVERHEAD):
            plan = operation.plan(memory_limit, self.threads)
        self._needs = self._needs._replace(memory=plan.worker_memory or plan.memory)
        for address, room in self._room.items():
            refuse(address, room, self._needs)
        return plan

    def map(self, run: Run, phase: Phase, state: State, blocks: Iterator[Block]) -> None:
        """Solve blocks in the workers; record them and add their knowledge in this process."""
        writers = list(run.writers.values())

        def wanted(at: Block) -> Wanted:
            write = tuple(run.wanted(state, writer, at) for writer in writers)
            return Wanted(at, state.given(phase, at), write)

        groups = run.operation.groups(run.plan, blocks)

        with (
            self._lent(run, phase, writers if phase.writes else []) as packed,
            closing(
                self._run(solve_blocks, packed, (list(map(wanted, group)) for group in groups))
            ) as solutions,
        ):
            for at, known, lines in solutions:
                state.add(phase, at, known)
                _record(writers, lines)
                run.tick(at)

    def patch(self, run: Run, name: str, patches: Iterable[tuple[Any, ...]]) -> None:
        """Patch written blocks in the workers."""
        writers = [run.writers[name]]
        with (
            self._lent(run, run.operation.phases[-1], writers) as packed,
            closing(self._run(patch_blocks, packed, iter(patches))) as patched,
        ):
            for lines in patched:
                _record(writers, lines)

    def each(
        self, run: Run, work: Callable[..., Any], items: Iterable[Any], *, ahead: bool = True
    ) -> Generator[Any, None, None]:
        """Yield ``work(operation, folder, item)`` for all items, computed in the workers."""
        # Unlike a generator, `map` goes on after an iterator that ended for a while.
        works = map(lambda item: (work, item), items)
        with self._lent(run, run.operation.phases[-1], []) as packed:
            yield from self._run(do_each, packed, works, ahead=ahead)

    @contextmanager
    def _lent(self, run: Run, phase: Phase, writers: list[Any]) -> Iterator[bytes]:
        """Yield a pickled job whose writers use a temporary folder, deleted with the job."""
        if not writers:
            yield pickle.dumps(Job(run.operation, phase, run.folder, [], run.plan))
            return
        folder, seen = lent_folder(run.spill), self._needs.folder
        # Other hosts may have a folder of the same name as the store's; they have none like this.
        self._needs = self._needs._replace(folder=str(folder))
        try:
            lent = [writer.lent(folder) for writer in writers]
            yield pickle.dumps(Job(run.operation, phase, run.folder, lent, run.plan))
        finally:
            self._needs = self._needs._replace(folder=seen)
            withdraw(folder)

    def _look(self) -> dict[str, Any]:
        """Return the present workers; raise if there have been none for too long."""
        found = self._query(lambda: self.client.scheduler.identity(n_workers=-1))
        self._looked, workers = time.monotonic(), found["workers"]
        if workers:
            self.slots = sum(worker["nthreads"] for worker in workers.values())
            self._alone = self._looked
        elif not self._alone:
            self._alone = self._looked
        elif self._looked - self._alone > WAIT:
            where = address_of(self.client)
            raise ClusterError(
                f"{where}: there is no worker; start some (dask worker {where}); {RESUME}"
            )
        return workers

    def _ask(self, workers: dict[str, Any]) -> dict[str, Facts]:
        """Query each worker; memory shared by several processes is divided between them."""
        wanted, folder = self._needs.version, self._needs.folder

        def ask() -> tuple[Any, ...]:  # pickled by value: workers may lack the package
            import socket

            try:
                import terrain_gpu
            except ImportError:
                return socket.gethostname(), None
            if terrain_gpu.__version__ != wanted:
                return socket.gethostname(), terrain_gpu.__version__
            from terrain_gpu.engine.cluster import facts

            return tuple(facts(folder))

        try:
            answers = _answer(
                self.client,
                lambda: self.client.run(ask, on_error="return", asynchronous=True),
                ANSWER,
            )
        except TimeoutError:
            self._look()  # it may be the scheduler that does not answer
            raise ClusterError(
                f"{address_of(self.client)}: a worker does not answer; stop it, or wait until "
                "the scheduler removes it"
            ) from None
        found = {}
        for address, answer in answers.items():
            if isinstance(answer, OSError):  # the worker died, which may happen at any moment
                continue
            if isinstance(answer, Exception):
                raise ClusterError(
                    f"worker {address} cannot answer ({type(answer).__name__}: {answer}); install "
                    "the same versions of Python, Dask and terrain_gpu everywhere"
                )
            found[address] = Facts(*answer)
            refuse(address, found[address], self._needs)
        together = Counter(
            name for one in (*found.values(), facts(folder)) for name, _ in one.limits
        )
        for address, one in found.items():
            room = min(limit // together[name] for name, limit in one.limits)
            if own := workers.get(address, {}).get("memory_limit"):
                room = min(room, int(PAUSES * own))
            found[address] = one._replace(memory=room)
        return found

    def _run(
        self,
        function: Callable[[Job, list[Any]], list[Any]],
        packed: bytes,
        items: Iterator[Any],
        *,
        ahead: bool = True,
    ) -> Generator[Any, None, None]:
        """Yield the results of `function` for all items, which are sent in batches.

        Unless `ahead`, items are sent one by one, and only to threads that have nothing to do.
        """
        # Two tasks per thread: one waits while the other runs.
        most, tasks = (MOST_BLOCKS, 2) if ahead else (1, 1)
        seconds, done, name = 0.0, 0, f"terrain_gpu-{uuid.uuid4().hex}"
        patience = LOOK
        running: dict[Any, int] = {}
        ready: SimpleQueue[Any] = SimpleQueue()

        def submit() -> bool:
            count = int(TASK_SECONDS * done / seconds) if seconds else 1
            if not (some := list(islice(items, min(max(count, 1), most)))):
                return False
            sent = pickle.dumps(some)
            self.figures.sent(packed, sent)
            future = self.client.submit(
                task, function, self._needs, packed, sent,
                key=f"{name}-{self.figures.tasks}", pure=False, retries=0,
            )  # fmt: skip
            running[future] = len(some)
            future.add_done_callback(ready.put)
            return True

        with _told(self.client):
            try:
                while True:
                    while len(running) < tasks * self.slots and submit():
                        pass
                    if not running:
                        break
                    if (future := self._next(ready)) is None:
                        continue
                    if future.status == "error":
                        future.result()  # raises
                    try:
                        found, told = future.result(timeout=patience)
                    except TimeoutError:  # it died with its worker, or the scheduler is stopped
                        self._look()
                        patience *= 2
                        future.add_done_callback(ready.put)
                        continue
                    seconds, done = seconds + told.seconds, done + running.pop(future)
                    del future
                    self.figures.received(found, told)
                    yield from pickle.loads(found)
                self.figures.retries += self._again(name)
            finally:
                with suppress(ClusterError):  # then there is nothing left to cancel
                    if running:
                        self._query(
                            lambda: self.client.cancel(list(running), asynchronous=True, force=True)
                        )

    def _next(self, ready: SimpleQueue[Any]) -> Any:
        """Return a finished task, or None after checking for new and lost workers."""
        wait = self._looked + LOOK - time.monotonic()
        if wait > 0:
            with suppress(Empty):
                return ready.get(timeout=wait)
        self._look()
        with suppress(Empty):
            return ready.get_nowait()
        return None

    def _again(self, name: str) -> int:
        """Count the tasks that were reassigned because their worker had died."""

        def count(dask_scheduler: Any) -> int:
            return sum(
                key.startswith(name)
                for _, event in dask_scheduler.get_events("all")
                if isinstance(event, dict) and event.get("action") == "remove-worker"
                for key in map(str, event.get("processing-tasks", ()))
            )

        return self._query(lambda: self.client.run_on_scheduler(count, asynchronous=True))

    def _query(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Return the scheduler's answer to a call; raise if it does not answer."""
        try:
            return _answer(self.client, call, CONNECT)
        except TimeoutError:
            raise ClusterError(
                f"{address_of(self.client)}: the scheduler is gone or stopped: no answer for "
                f"{CONNECT:g} s; {RESUME}"
            ) from None

    @property
    def _link(self) -> str:
        """The address of Dask's dashboard."""
        from distributed.utils import format_dashboard_link

        port = self._query(lambda: self.client.scheduler.identity(n_workers=0))["services"].get(
            "dashboard"
        )
        host = re.sub(r"^\w+://|:\d+$", "", address_of(self.client))
        return format_dashboard_link(host, port) if port else "none"


def _record(writers: list[Any], lines: list[list[bytes]]) -> None:
    for writer, own in zip(writers, lines, strict=False):
        for line in own:
            writer.record(line)


def address_of(client: Any) -> str:
    """Return the address of a client's scheduler."""
    return getattr(getattr(client, "scheduler", None), "address", "")


def _answer(client: Any, call: Callable[[], Coroutine[Any, Any, Any]], seconds: float) -> Any:
    """Return the result of one of Dask's coroutines, which may wait for ever by themselves.

    Raises
    ------
    TimeoutError
        when this process, unless suspended, has waited so many seconds.
    ClusterError
        when the connection is lost; Dask may restore it, but not the tasks.
    """
    from distributed.comm import CommClosedError

    with _told(client):
        if client.status != "running":
            raise CommClosedError
        asked = asyncio.run_coroutine_threadsafe(call(), client.loop.asyncio_loop)
        try:
            for _ in range(math.ceil(seconds / POLL)):
                if wait([asked], POLL).done:
                    break
                if client.status != "running":
                    raise CommClosedError
            else:
                raise TimeoutError
            if isinstance(error := asked.exception(), OSError):
                raise CommClosedError from error
            return asked.result()
        finally:
            asked.cancel()


@contextmanager
def _told(client: Any) -> Iterator[None]:
    """Turn Dask's exceptions into `ClusterError`."""
    from concurrent.futures import CancelledError

    from distributed import KilledWorker
    from distributed.client import ClosedClientError
    from distributed.comm import CommClosedError

    where = address_of(client)
    try:
        yield
    except KilledWorker as error:
        raise ClusterError(
            f"{where}: a task was given up after the death of its worker "
            f"({error.allowed_failures + 1} in all); check that the hosts have the memory of "
            f"--memory-limit, and that terrain_gpu is installed there; {RESUME}"
        ) from error
    except (CommClosedError, CancelledError, ClosedClientError) as error:
        raise ClusterError(f"{where}: the scheduler is gone; {RESUME}") from error


@contextmanager
def open_client(workers: int | None, scheduler: str | None) -> Iterator[Any]:
    """Open a client for --workers or --scheduler; None without either.

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
    # Its log messages repeat our errors, or do not help the user of a command.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with dask.config.set({"distributed.scheduler.allowed-failures": DEATHS}):
        if scheduler is not None:
            if not re.fullmatch(r"(\w+://)?[^/:]+:[0-9]+", scheduler):
                raise InputError(
                    f"--scheduler {scheduler}: is not an address; write for example tcp://host:8786"
                )
            try:
                # Dask's client would wait for ever for one that is stopped.
                asyncio.run(asyncio.wait_for(_greet(scheduler), CONNECT))
                client = Client(scheduler, timeout=CONNECT, set_as_default=False)
            except (OSError, ValueError):
                raise ClusterError(
                    f"{scheduler}: no scheduler answers; start one (dask scheduler)"
                ) from None
            with _closing(client):
                yield client
            return
        with ExitStack() as stack:
            with _without_interrupts():
                cluster = LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    processes=True,
                    # The plan keeps the limit; Dask's own would kill workers that obey it.
                    memory_limit=0,
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,
                    host="127.0.0.1",
                )
                stack.enter_context(cluster)
            yield stack.enter_context(_closing(Client(cluster, set_as_default=False)))


async def _greet(scheduler: str) -> None:
    """Return when a scheduler has answered."""
    from distributed.core import rpc

    async with rpc(scheduler, timeout=CONNECT) as remote:
        await remote.identity(n_workers=0)


@contextmanager
def _closing(client: Any) -> Iterator[Any]:
    """Close a client, which may take long if the scheduler does not answer."""
    try:
        yield client
    finally:
        with suppress(TimeoutError):
            client.close(timeout=CONNECT)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Block Ctrl-C for threads and processes started in this context: their parent handles it."""
    resource_tracker.ensure_running()  # starting it inside would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


__all__ = ["Cluster", "open_client"]
