"""The engine of a Dask cluster: workers with access to the store solve blocks.

Messages contain the operation (a few bytes) and what blocks need to know about each other, but
never cells. Workers write blocks and return the manifest lines that record them; only the process
of the run appends these to the manifest. A task may therefore run twice, or a worker die at any
moment: each block is recorded once, by the first result, and both tasks wrote the same bytes.
"""

from __future__ import annotations

import asyncio
import logging
import math
import pickle
import re
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from ..errors import ClusterError, PlanError
from ..facts import Settings
from ..grid import Block
from ..plurals import counted
from ..store import LayerWriter
from ..store.objects import ObjectPath, is_url
from ..store.scratch import scratch_folder
from ..store.swap import lent_folder, withdraw
from .connection import OVERHEAD, RESUME, address_of, answer_of, dask_errors, open_client, query
from .figures import Figures
from .machine import MB, NO_BOUND, Machine, default_memory_limit, limit_of
from .operation import Operation, Phase, State
from .plan import StreamPlan
from .worker import (
    BlockTask,
    Facts,
    Job,
    Needs,
    ProofJob,
    Task,
    TaskFigures,
    check_each,
    do_each,
    facts,
    limited,
    patch_blocks,
    refuse,
    refuse_limit,
    solve_blocks,
    task,
    write_each,
)

if TYPE_CHECKING:
    from .run import Outcome, Patch, Run

log = logging.getLogger(__name__)

TASK_SECONDS = 0.2
"""Target seconds of a task with small blocks; each costs the driver some milliseconds."""
MOST_BLOCKS = 256
"""Largest number of blocks in a task."""

LARGE = 1 << 16
"""Size, in bytes, above which data shared by all tasks are not sent with each."""

TOGETHER = 0.01
"""Seconds to wait for further results before new tasks are sent together."""

WAIT, LOOK = 30.0, 2.0
"""Seconds to wait for a worker, and between counts of the workers."""

ANSWER = 60.0
"""Seconds that workers may take to import the package."""


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
        If there is no worker, or a worker does not meet the requirements.
    StoreError
        If a worker cannot read a store in object storage.
    """

    remote = True

    def __init__(self, client: Any, store: str) -> None:
        from .. import __version__

        if client.status == "closed":
            raise ClusterError("the client is closed; give a connected one")
        self.client = client
        self.figures, self._run_id = Figures(), uuid.uuid4().hex
        self._looked, self._alone, self._chosen = -math.inf, 0.0, False
        self._where, self._room = address_of(client), dict[str, Facts]()
        # Wait for workers, since the cluster may have just been started.
        while not (workers := self._look()):
            time.sleep(0.05)
        self.threads = max(worker["nthreads"] for worker in workers.values())
        self.workers, self._needs = len(workers), Needs(__version__, store, self.threads, 0)
        if is_url(store):  # workers must also be able to access the spilled data
            exists = (ObjectPath(store) / "zarr.json").read() is not None
            self._needs = self._needs._replace(
                folder=str(scratch_folder()), store=store, exists=exists
            )
        log.info(
            "%s, threads of each: %d; dashboard: %s",
            counted(self.workers, "worker"),
            self.threads,
            self._link,
        )
        self._room = self._ask(workers)

    def settings(self) -> Settings:
        """Return the report's entries about the cluster."""
        return {"workers": self.workers, "threads": self.slots, **self.figures.as_dict()}

    def limit(self, memory_limit: int | str | None) -> int:
        """Return the memory limit of each process; None means at most the share of each worker."""
        if memory_limit is None:
            self._chosen = True
            return min(default_memory_limit(), self._least)
        return limit_of(memory_limit)

    def plan(self, operation: Operation, machine: Machine) -> StreamPlan:
        """Plan for each process. The limit applies to one process, Dask included.

        A worker with a GPU reads and writes with its share of the host's processors.
        """
        hosts = Counter(room.host for room in self._room.values())
        shares = [room.threads // hosts[room.host] for room in self._room.values()]
        threads = self.threads if machine.gpu is None else max(min(shares, default=1), 1)
        with self.planning(machine) as each:
            plan = operation.plan(replace(each, threads=threads))
        try:
            self._require(plan)
        except PlanError:
            if (room := self._least) < machine.memory_limit:
                with self.planning(
                    machine, within=True
                ) as each:  # raises if it is too small as well
                    operation.plan(replace(each, memory_limit=room, threads=threads))
            raise
        return plan

    @property
    def _least(self) -> int:
        """The bytes that every worker may use."""
        return min((room.memory for room in self._room.values()), default=NO_BOUND)

    @contextmanager
    def planning(self, machine: Machine, *, within: bool = False) -> Iterator[Machine]:
        """Plan in the body for each process of the cluster: yield what one may use.

        Parameters
        ----------
        machine
            What the process of the run may use.
        within
            Whether to plan for the memory that every worker may use, although the limit is higher.
            If `limit` was called without one, that memory is the limit, unless the default is less.

        Raises
        ------
        PlanError
            If the plan does not fit. The message names a worker if its own limit is the cause.
        """
        try:
            yield replace(machine, threads=self.threads, overhead=OVERHEAD, room=self._least)
        except PlanError as error:
            least = re.search(r"give at least (\d+) MB", str(error))
            if least and (within or (self._chosen and self._least < default_memory_limit())):
                for address, room in self._room.items():
                    refuse_limit(address, room, int(least[1]) * MB)
            raise

    def _require(self, plan: StreamPlan) -> None:
        """Reject workers with less memory than the plan needs, also those that join later."""
        self._needs = self._needs._replace(memory=plan.worker_memory or plan.memory)
        for address, room in self._room.items():
            refuse(address, room, self._needs)

    def spare(self, plan: StreamPlan) -> int:
        """Return the bytes that every worker may use in addition to a plan, and require them."""
        used = plan.worker_memory or plan.memory
        room = min(plan.memory_limit, self._least)
        self._require(replace(plan, worker_memory=max(room, used)))
        return max(room - used, 0)

    def map(self, run: Run, phase: Phase, state: State, blocks: Iterator[Block]) -> None:
        """Solve blocks in the workers; record them and add their knowledge in this process."""
        writers = list(run.writers.values())

        def wanted(block: Block) -> BlockTask:
            write = tuple(run.wanted(state, writer, block) for writer in writers)
            return BlockTask(block, state.given(phase, block), write)

        groups = run.operation.groups(run.plan, blocks)

        with (
            self._lent(run, phase, writers if phase.writes else []) as packed,
            closing(
                self._run(solve_blocks, packed, (list(map(wanted, group)) for group in groups))
            ) as solutions,
        ):
            for block, message, lines in solutions:
                run.add(phase, state, block, message)
                _record(writers, lines)
                run.tick(block)

    def patch(self, run: Run, name: str, patches: Iterable[Patch]) -> None:
        """Patch written blocks in the workers."""
        writers = [run.writers[name]]
        with (
            self._lent(run, run.operation.phases[-1], writers) as packed,
            closing(self._run(patch_blocks, packed, iter(patches))) as patched,
        ):
            for lines in patched:
                _record(writers, lines)

    def each(
        self, run: Run, work: Callable[..., Outcome], items: Iterable[object]
    ) -> Generator[Outcome, None, None]:
        """Yield ``work(operation, folder, item)`` for all items, computed in the workers."""
        with self._lent(run, run.operation.phases[-1], []) as packed:
            yield from self._run(do_each, packed, ((work, item) for item in items))

    def check(
        self, plan: StreamPlan, checks: Any, items: Iterator[tuple[Any, list[Any]]]
    ) -> Generator[tuple[Any, Any], None, None]:
        """Yield blocks or windows with the results of their checks in the workers.

        `checks` is a `proof.Checks`, or has the same methods.
        """
        self._require(plan)
        yield from self._run(check_each, pickle.dumps(ProofJob(checks, self._run_id)), items)

    @contextmanager
    def lend(self, run: Run, names: Iterable[str]) -> Iterator[LentToWorkers]:
        """Lend writers to the workers; see `run.Engine`."""
        writers = [run.writers[name] for name in names]
        with self._lent(run, run.operation.phases[-1], writers) as packed:
            yield LentToWorkers(self, packed, writers)

    @contextmanager
    def _lent(self, run: Run, phase: Phase, writers: list[LayerWriter]) -> Iterator[bytes]:
        """Yield a pickled job whose writers use a temporary folder, deleted with the job."""
        if not writers:
            yield pickle.dumps(Job(run.operation, phase, run.folder, [], run.plan, self._run_id))
            return
        folder, seen = lent_folder(run.spill), self._needs.folder
        # Other hosts may have a folder with the name of the store's folder, but not one like this.
        self._needs = self._needs._replace(folder=str(folder))
        try:
            lent = [writer.lent(folder) for writer in writers]
            yield pickle.dumps(Job(run.operation, phase, run.folder, lent, run.plan, self._run_id))
        finally:
            self._needs = self._needs._replace(folder=seen)
            withdraw(folder)

    def _look(self) -> dict[str, Any]:
        """Return the current workers; raise an error if there have been none for too long."""
        identity = query(self.client, lambda: self.client.scheduler.identity(n_workers=-1))
        self._looked, workers = time.monotonic(), identity["workers"]
        if workers:
            self.present = {a: worker["nthreads"] for a, worker in workers.items()}
            self.resources = {a: worker["resources"] for a, worker in workers.items()}
            self.slots = sum(self.present.values())
            self._alone = self._looked
        elif not self._alone:
            self._alone = self._looked
            log.warning("%s: no worker yet; waiting for %g s in all", self._where, WAIT)
        elif self._looked - self._alone > WAIT:
            start = f"there is no worker; start some (dask worker {self._where})"
            # Before the first answer from workers, there is nothing to resume.
            resume = f"; {RESUME}" if self._room else ""
            raise ClusterError(f"{self._where}: {start}{resume}")
        return workers

    def ask(self, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """Call a function in each worker; return results or exceptions by worker address."""
        call = partial(self.client.run, function, *arguments, on_error="return", asynchronous=True)
        try:
            answers = answer_of(self.client, call, ANSWER)
        except TimeoutError:
            self._look()  # it may be the scheduler that does not answer
            raise ClusterError(
                f"{address_of(self.client)}: a worker does not answer; stop it, or wait until "
                "the scheduler removes it"
            ) from None
        # Workers may die at any moment.
        answered = {
            address: answer
            for address, answer in answers.items()
            if not isinstance(answer, OSError)
        }
        for address, answer in answered.items():
            if isinstance(answer, Exception):
                raise ClusterError(
                    f"worker {address} cannot answer ({type(answer).__name__}: {answer}); install "
                    "the same versions of Python, Dask and terrain_gpu everywhere"
                )
        return answered

    def _ask(self, workers: dict[str, Any]) -> dict[str, Facts]:
        """Query each worker. Memory shared by several processes is divided among them."""
        wanted, folder, store = self._needs.version, self._needs.folder, self._needs.store

        async def ask() -> tuple[Any, ...]:  # pickled by value: workers may lack the package
            import socket

            try:
                import terrain_gpu
            except ImportError:
                return socket.gethostname(), None
            if terrain_gpu.__version__ != wanted:
                return socket.gethostname(), terrain_gpu.__version__
            from terrain_gpu.engine.worker import facts_in_time

            return tuple(await facts_in_time(folder, store))

        facts_of = {address: Facts(*answer) for address, answer in self.ask(ask).items()}
        for address, worker_facts in facts_of.items():
            refuse(address, worker_facts, self._needs)
        sharing = Counter(
            name
            for worker_facts in (*facts_of.values(), facts(folder))
            for name, _ in worker_facts.limits
        )
        for address, worker_facts in facts_of.items():
            room = min(limit // sharing[name] for name, limit in worker_facts.limits)
            dask_limit = workers.get(address, {}).get("memory_limit")
            facts_of[address] = limited(worker_facts._replace(memory=room), dask_limit)
        return facts_of

    def _run(
        self,
        function: Task,
        packed: bytes,
        items: Iterator[Any],
    ) -> Generator[Any, None, None]:
        """Yield the results of `function` for all items, which are sent in batches."""
        tasks, seconds, processor, done = Tasks(self, function, packed), 0.0, 0.0, 0
        first: list[tuple[TaskFigures, int]] = []

        def submit_more() -> None:
            count = int(TASK_SECONDS * done / seconds) if seconds else 1
            # Two tasks per thread: one waits while the other runs.
            for _ in range(2 * self.slots - len(tasks.running)):
                if not (batch := list(islice(items, min(max(count, 1), MOST_BLOCKS)))):
                    break
                tasks.submit(batch)

        for results, figures, count in tasks.results(submit_more):
            if figures.begins:  # it loads kernels
                first.append((figures, count))
            else:
                seconds, done = seconds + figures.seconds, done + count
                processor += figures.processor
            yield from results
        self.figures.began(first, processor, done)

    def _next(self, ready: SimpleQueue[Any]) -> list[Any]:
        """Wait for finished tasks; return none after a check for new and lost workers."""
        wait = self._looked + LOOK - time.monotonic()
        if wait > 0:
            with suppress(Empty):
                return [ready.get(timeout=wait)]
        self._look()
        with suppress(Empty):
            return [ready.get_nowait()]
        return []

    def _again(self, name: str) -> int:
        """Count the tasks that were reassigned because their worker had died."""

        def count(dask_scheduler: Any) -> int:
            # It keeps only the last 1000 events of all kinds, and each result is one.
            return sum(
                key.startswith(name)
                for topic, events in dask_scheduler.get_events().items()
                if topic != "all"
                for _, event in events
                if isinstance(event, dict) and event.get("action") == "remove-worker"
                for key in map(str, event.get("processing-tasks", ()))
            )

        return query(self.client, lambda: self.client.run_on_scheduler(count, asynchronous=True))

    @property
    def _link(self) -> str:
        """Return the address of Dask's dashboard."""
        from distributed.utils import format_dashboard_link

        identity = query(self.client, lambda: self.client.scheduler.identity(n_workers=0))
        port = identity["services"].get("dashboard")
        host = re.sub(r"^\w+://|:\d+$", "", address_of(self.client))
        return format_dashboard_link(host, port) if port else "none"


class LentToWorkers:
    """Work by workers that have writers; see `run.Loan`. This process records what they write."""

    def __init__(self, cluster: Cluster, packed: bytes, writers: list[Any]) -> None:
        self.cluster, self.packed, self.writers = cluster, packed, writers

    def each(
        self, work: Callable[..., Outcome], items: Iterable[object]
    ) -> Generator[Outcome, None, None]:
        """Yield ``work(operation, writers, item)`` for all items."""
        pairs = ((work, item) for item in items)
        with closing(self.cluster._run(write_each, self.packed, pairs)) as results:
            for result, lines in results:
                _record(self.writers, lines)
                yield result

    def converse(
        self, give: Callable[[str, Collection[str]], Any], waiting: int = 0
    ) -> Generator[tuple[str, Any], None, None]:
        """Yield workers and the results of the functions and items given to them."""
        cluster, tasks = self.cluster, Tasks(self.cluster, write_each, self.packed)

        def give_all() -> None:
            for address, threads in cluster.present.items():
                while tasks.of_worker[address] < threads + waiting:
                    if (work_item := give(address, cluster.present)) is None:
                        break
                    tasks.submit([work_item], address)

        def submit_more() -> None:
            give_all()
            if not (tasks.running or tasks.unsent):  # workers may have left and others joined
                while not cluster._look():
                    time.sleep(LOOK / 10)
                give_all()

        with closing(tasks.results(submit_more)) as results:
            for ((result, lines),), figures, _count in results:
                _record(self.writers, lines)
                if figures.worker not in cluster.present:
                    cluster._look()
                yield figures.worker, result


class Tasks:
    """The tasks of a phase that are in progress, and their workers.

    Attributes
    ----------
    running
        Futures, each with the number and the pickle of its items, and the worker that it was meant
        for ("" for any).
    unsent
        Tasks that were submitted but not sent yet, by worker.
    of_worker
        The number of all these tasks, by worker.
    """

    def __init__(self, cluster: Cluster, function: Task, packed: bytes) -> None:
        self.cluster, self.function, self.packed = cluster, function, packed
        self.name = f"terrain_gpu-{uuid.uuid4().hex}"
        self.running: dict[Any, tuple[int, bytes, str]] = {}
        self.unsent: defaultdict[str, list[tuple[int, bytes]]] = defaultdict(list)
        self.orphans: set[Any] = set()
        self.of_worker: Counter[str] = Counter()
        self.ready: SimpleQueue[Any] = SimpleQueue()
        self._shared: Any = None

    def submit(self, items: list[Any], worker: str = "") -> None:
        """Submit a task. If this worker dies, another one does it."""
        self._submit(len(items), pickle.dumps(items), worker)

    def _submit(self, count: int, sent: bytes, worker: str = "") -> None:
        self.unsent[worker].append((count, sent))
        self.of_worker[worker] += 1

    def shared(self, tasks: int) -> bytes:
        """Return the data shared by all tasks: pickled or, if large, the future of a task.

        Workers fetch the result of that task once. If it is lost with a worker, Dask repeats the
        task.
        """
        if len(self.packed) <= LARGE:
            self.cluster.figures.bytes_sent += tasks * len(self.packed)
            return self.packed
        if self._shared is None:
            self.cluster.figures.bytes_sent += len(self.packed)
            self._shared = self.cluster.client.submit(
                bytes, self.packed, key=f"shared-{self.name}", pure=False
            )
        return self._shared

    def _send(self) -> None:
        """Send the submitted tasks, those for the same worker together, which is faster in Dask."""
        figures, client = self.cluster.figures, self.cluster.client
        for worker, unsent in self.unsent.items():
            keys = []
            for _, sent in unsent:
                figures.sent(sent)
                keys.append(f"{self.name}-{figures.tasks}")
            workers = {"workers": [worker], "allow_other_workers": True} if worker else {}
            futures = client.map(
                task, [sent for _, sent in unsent], key=keys, pure=False, retries=0, **workers,
                function=self.function, needs=self.cluster._needs, packed=self.shared(len(unsent)),
            )  # fmt: skip
            for future, (count, sent) in zip(futures, unsent, strict=True):
                self.running[future] = count, sent, worker
                self._fetch(future)
        self.unsent.clear()

    def _fetch(self, future: Any) -> None:
        """Fetch a result as soon as it is ready; one by one, each would take some milliseconds."""
        client = self.cluster.client
        fetched = asyncio.run_coroutine_threadsafe(
            client.gather(future, asynchronous=True), client.loop.asyncio_loop
        )
        fetched.add_done_callback(lambda fetched: self.ready.put((future, fetched)))

    def _send_again(self) -> None:
        """Send the tasks of workers that have left since the last call to any other worker.

        The scheduler does this itself, except if there was no worker at all at that moment.
        """
        present = self.cluster.present
        gone = {f for f, (_, _, worker) in self.running.items() if worker and worker not in present}
        for future in gone & self.orphans:
            self.cluster.figures.retries += 1
            count, sent, _ = self._finish(future)
            self._cancel([future])
            self._submit(count, sent)
        self.orphans = gone

    def _finish(self, future: Any) -> tuple[int, bytes, str]:
        task_sent = self.running.pop(future)
        self.of_worker[task_sent[2]] -= 1
        return task_sent

    def results(
        self, submit_more: Callable[[], None]
    ) -> Generator[tuple[list[Any], TaskFigures, int], None, None]:
        """Yield results, figures and numbers of items of the tasks that `submit_more` submits."""
        cluster = self.cluster
        with dask_errors(cluster.client):
            try:
                while True:
                    submit_more()
                    self._send()
                    if not self.running:
                        break
                    if not (finished := cluster._next(self.ready)):
                        self._send_again()
                    elif len(self.running) > cluster.slots:  # no worker is idle
                        time.sleep(TOGETHER)
                        while len(finished) < cluster.slots and not self.ready.empty():
                            finished.append(self.ready.get())
                    while finished:
                        future, fetched = finished.pop()
                        if future not in self.running:  # cancelled
                            continue
                        result, figures = fetched.result()
                        count, _, _ = self._finish(future)
                        del future, fetched
                        cluster.figures.received(result, figures)
                        yield pickle.loads(result), figures, count
                cluster.figures.retries += cluster._again(self.name)
            finally:
                with suppress(ClusterError):  # then there is nothing left to cancel
                    self._cancel(list(self.running))

    def _cancel(self, futures: list[Any]) -> None:
        client = self.cluster.client
        if futures:
            query(client, lambda: client.cancel(futures, asynchronous=True, force=True))


def _record(writers: list[LayerWriter], lines: list[list[bytes]]) -> None:
    for writer, records in zip(writers, lines, strict=False):
        for line in records:
            writer.record(line)


__all__ = ["Cluster", "open_client"]
