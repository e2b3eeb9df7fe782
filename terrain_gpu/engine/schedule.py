"""The streaming executor: read, compute, write, in threads over a bounded pool of buffers.

Readers fill buffers, workers compute on them, writers drain them. A buffer returns to the pool when
its item is written, so the pool bounds memory, however fast each stage is. numpy, numba and GDAL
release the interpreter's lock, so threads suffice.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from ..grid import Block, BlockGrid

Item = TypeVar("Item")
Buffer = TypeVar("Buffer")

_POLL = 0.2
"""Seconds between the main thread's checks for Ctrl-C."""

_BACKLOG = 64
"""Largest number of written items not yet reported to the caller; then writers wait."""


def pass_on(item: object, data: Any) -> Any:
    """Compute nothing: write the data as read."""
    return data


def stream(
    items: Iterable[Item],
    read: Callable[[Item, Buffer], Any],
    write: Callable[[Item, Any], None],
    *,
    buffers: Sequence[Buffer],
    compute: Callable[[Item, Any], Any] = pass_on,
    readers: int = 1,
    workers: int = 1,
    writers: int = 1,
    ordered: bool = False,
    done: Callable[[Item], None] | None = None,
) -> None:
    """Run every item through read, compute and write; return when all are written.

    Parameters
    ----------
    items
        Consumed one by one, never collected in a list.
    read
        ``read(item, buffer)`` fills the buffer and returns the data for `compute`.
    compute
        ``compute(item, data)`` returns the result for `write`. By default no worker threads start.
    write
        ``write(item, result)``; afterwards the buffer is reused.
    buffers
        The pool: at most ``len(buffers)`` items are in progress.
    readers, workers, writers
        Number of threads of each stage.
    ordered
        Write in the order of `items`, in one thread.
    done
        Called in the caller's thread after each written item, in the order of writing. Writers
        wait if the caller falls far behind, so few items are written after it raises.

    Raises
    ------
    BaseException
        The first error of any stage, or KeyboardInterrupt, once every thread has stopped. Stages
        that are running at that moment finish; no further stage starts.
    """
    if not buffers or min(readers, workers, writers) < 1:
        raise ValueError("stream needs at least one buffer and one thread of each stage")
    if ordered and writers > 1:
        raise ValueError("writing in order takes one thread")
    run = _Streaming(iter(items), buffers, ordered=ordered)
    roles: list[tuple[Callable[[Any], None], Callable[..., Any]]]
    roles = [(run.reader, read)] * readers + [(run.writer, write)] * writers
    if compute is pass_on:
        run.to_write = run.to_compute
        workers = 0
    roles += [(run.worker, compute)] * workers
    threads = [
        threading.Thread(target=run.guard, args=role, name=f"terrain_gpu-{k}", daemon=True)
        for k, role in enumerate(roles)
    ]
    run.open_stages(readers, workers)
    try:
        for thread in threads:
            thread.start()
        while (item := run.next_written(len(threads))) is not _END:
            if done is not None:
                done(item)
    except BaseException as error:
        run.unlock()
        run.fail(error)
    finally:
        for thread in threads:
            if thread.ident is not None:  # it was started
                thread.join()
    if run.error is not None:
        failed, run.error = run.error, None
        try:
            raise failed
        finally:
            del failed  # breaks a reference cycle that would keep the frames' data alive


_END: Any = object()


class _Queue:
    """Jobs that wait for a thread; `added` is notified once for each."""

    def __init__(self, lock: threading.RLock, jobs: Iterable[Any] = ()) -> None:
        self.jobs, self.added = deque(jobs), threading.Condition(lock)


class _Streaming:
    """State of one `stream`, guarded by one lock.

    Each queue wakes one thread for one job: with dozens of threads, waking all of them at every
    step would cost more than the work.
    """

    def __init__(self, items: Any, buffers: Sequence[Any], *, ordered: bool) -> None:
        self.items = enumerate(items)
        self.ordered = ordered
        self.due = 0  # number of the next item to write
        self.lock = threading.RLock()
        self.free = _Queue(self.lock, buffers)
        self.to_compute, self.to_write = _Queue(self.lock), _Queue(self.lock)
        self.written: deque[Any] = deque()
        self.changed = threading.Condition(self.lock)  # for the caller's thread
        self.room = threading.Condition(self.lock)  # for further items in `written`
        self.source = threading.Lock()
        self.error: BaseException | None = None
        self.ended = 0
        self.reading = self.computing = 0

    def open_stages(self, readers: int, workers: int) -> None:
        self.reading, self.computing = readers, workers

    def guard(self, role: Callable[[Any], None], stage: Callable[..., Any]) -> None:
        """Run the role of a thread; an exception stops the run."""
        try:
            role(stage)
        except BaseException as error:
            self.fail(error)
        with self.changed:
            self.ended += 1
            self.changed.notify()

    def unlock(self) -> None:
        """Release the lock if Ctrl-C left it acquired: it may strike in `Condition.__enter__`."""
        with contextlib.suppress(RuntimeError):  # this thread does not hold it
            while True:
                self.changed.release()

    def fail(self, error: BaseException) -> None:
        with self.changed:
            if self.error is None:
                self.error = error
            self.wake()

    def wake(self) -> None:
        """Wake all threads after a stage has ended or the run has failed."""
        for queue in (self.free, self.to_compute, self.to_write):
            queue.added.notify_all()
        self.room.notify_all()
        self.changed.notify_all()

    def reader(self, read: Callable[..., Any]) -> None:
        try:
            while (buffer := self.take(self.free, lambda: True)) is not _END:
                # Generators are not thread-safe, but may be slow: use a lock other than `changed`.
                with self.source:
                    number, item = next(self.items, (0, _END))
                if item is _END:
                    self.put(self.free, buffer)
                    return
                self.put(self.to_compute, (number, item, buffer, read(item, buffer)))
        finally:
            with self.changed:
                self.reading -= 1
                self.wake()

    def worker(self, compute: Callable[..., Any]) -> None:
        try:
            while (job := self.take(self.to_compute, lambda: self.reading)) is not _END:
                number, item, buffer, data = job
                self.put(self.to_write, (number, item, buffer, compute(item, data)))
        finally:
            with self.changed:
                self.computing -= 1
                self.wake()

    def writer(self, write: Callable[..., Any]) -> None:
        def more_to_come() -> bool:
            return bool(self.reading or self.computing or self.to_compute.jobs)

        while (job := self.take(self.to_write, more_to_come, ordered=self.ordered)) is not _END:
            _, item, buffer, result = job
            write(item, result)
            with self.changed:
                self.due += 1
                self.put(self.free, buffer)
                self.written.append(item)
                self.changed.notify()
                while len(self.written) > _BACKLOG and self.error is None:
                    self.room.wait()

    def put(self, queue: _Queue, job: Any) -> None:
        with self.changed:
            queue.jobs.append(job)
            queue.added.notify()

    def take(
        self, queue: _Queue, more_to_come: Callable[[], object], *, ordered: bool = False
    ) -> Any:
        """Take the next job of `queue`; `_END` if the run failed or no more jobs can come."""
        jobs = queue.jobs
        with self.changed:
            while self.error is None:
                if ordered:
                    # No deadlock: the due item's reader already has a buffer.
                    job = next((job for job in jobs if job[0] == self.due), None)
                    if job is not None:
                        jobs.remove(job)
                        return job
                elif jobs:
                    return jobs.pop() if queue is self.free else jobs.popleft()
                if not more_to_come():
                    break
                queue.added.wait()
        return _END

    def next_written(self, threads: int) -> Any:
        """Return the next written item to the caller's thread; wakes up regularly for Ctrl-C."""
        with self.changed:
            while not self.written:
                if self.error is not None or self.ended == threads:
                    return _END
                self.changed.wait(_POLL)
            item = self.written.popleft()
            if len(self.written) == _BACKLOG:
                self.room.notify_all()
            return item


def missing(
    blocks: BlockGrid, is_done: Callable[[Block], bool], finished: Callable[[Block], None]
) -> Iterator[Block]:
    """Return the blocks still to do, in Z-order, after calling `finished` for the others."""
    # Report the others first, so that progress comes from one thread only.
    for block in blocks.ids():
        if is_done(block):
            finished(block)
    return (block for block in blocks.ids() if not is_done(block))
