"""The streaming executor: every item once, bounded memory, errors that surface, clean stops."""

from __future__ import annotations

import _thread
import itertools
import threading
import time
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from terrain_gpu.engine import schedule
from terrain_gpu.engine.schedule import stream

HANGS = 600
"""Seconds after which something that must happen does not."""


def threads_left():
    return [t.name for t in threading.enumerate() if t.name.startswith("terrain_gpu-")]


def copy_through(count, *, buffers, readers=1, workers=1, writers=1, compute=True):
    """Stream numbers through real buffers; return what was written."""
    pool = [np.empty(1, np.int64) for _ in range(buffers)]
    written = []

    def read(item, buffer):
        buffer[0] = item
        return buffer

    def double(item, buffer):
        buffer[0] *= 2
        return buffer

    stages = {"compute": double} if compute else {}
    stream(
        range(count),
        read,
        lambda item, buffer: written.append((item, int(buffer[0]))),
        buffers=pool,
        readers=readers,
        workers=workers,
        writers=writers,
        **stages,
    )
    return written


@given(
    count=st.integers(0, 60),
    buffers=st.integers(1, 5),
    readers=st.integers(1, 4),
    workers=st.integers(1, 4),
    writers=st.integers(1, 4),
    compute=st.booleans(),
)
def test_every_item_once_with_its_own_buffer(count, buffers, readers, workers, writers, compute):
    written = copy_through(
        count, buffers=buffers, readers=readers, workers=workers, writers=writers, compute=compute
    )
    factor = 2 if compute else 1
    assert sorted(written) == [(k, factor * k) for k in range(count)]


def test_one_thread_of_each_stage_keeps_the_order():
    assert copy_through(50, buffers=3) == [(k, 2 * k) for k in range(50)]


@pytest.mark.parametrize("buffers", [1, 2, 3])
def test_no_more_items_under_way_than_buffers(buffers):
    lock, full = threading.Lock(), threading.Event()
    under_way, most = 0, 0

    def read(item, buffer):
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
            if most == buffers:
                full.set()

    def write(item, data):
        nonlocal under_way
        assert full.wait(HANGS)  # the readers do run ahead, up to the pool
        with lock:
            under_way -= 1

    stream(range(30), read, write, buffers=[None] * buffers, readers=4, writers=2)
    assert under_way == 0
    assert most == buffers


def test_items_are_taken_lazily():
    taken = []

    def endless():
        for k in itertools.count():
            taken.append(k)
            yield k

    def write(item, data):
        if item == 20:
            raise StopHere

    with pytest.raises(StopHere):
        stream(endless(), lambda i, b: b, write, buffers=[1, 2, 3])
    assert len(taken) <= 25


class StopHere(Exception):
    pass


@pytest.mark.parametrize("stage", ["items", "read", "compute", "write", "done"])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("buffers", [1, 4])
def test_an_error_in_any_stage_surfaces_and_stops_the_run(stage, threads, buffers):
    """The bound holds however the threads are scheduled."""
    reached = {name: 0 for name in ("read", "compute", "write", "done")}

    def failing(name):
        def run(item, data=None):
            reached[name] += 1
            # From the 7th on: one thread may sleep over its item while others go on.
            if name == stage and item >= 7:
                raise StopHere(name)
            return data

        return run

    def items():
        for k in range(10_000):
            if stage == "items" and k == 7:
                raise StopHere("items")
            yield k

    with pytest.raises(StopHere, match=stage):
        stream(
            items(),
            failing("read"),
            failing("write"),
            compute=failing("compute"),
            buffers=[None] * buffers,
            readers=threads,
            workers=threads,
            writers=threads,
            done=failing("done"),
        )
    assert not threads_left()
    # An item that failed keeps its buffer. Where only `done` fails, writers are held up.
    ahead = schedule._BACKLOG + threads + 1 if stage == "done" else 0
    assert max(reached.values()) <= 7 + ahead + buffers


@pytest.mark.parametrize("writers", [1, 3])
def test_writers_wait_for_a_caller_that_falls_behind(writers):
    told, ahead = [], []

    def done(item):
        if not told:
            while len(ahead) < schedule._BACKLOG + writers:
                time.sleep(0.001)
            time.sleep(0.05)  # time for races
        told.append(item)
        assert len(ahead) <= len(told) + schedule._BACKLOG + writers

    stream(
        range(500),
        lambda i, b: b,
        lambda i, d: ahead.append(i),
        buffers=[None] * 4,
        writers=writers,
        done=done,
    )
    assert sorted(told) == list(range(500))


def test_errors_of_several_threads_give_the_first_and_no_hang():
    barrier = threading.Barrier(3)

    def read(item, buffer):
        barrier.wait(HANGS)
        raise StopHere(item)

    with pytest.raises(StopHere):
        stream(range(3), read, lambda i, d: None, buffers=[1, 2, 3], readers=3)


def test_threads_that_cannot_be_started_leave_none_behind(monkeypatch):
    usual, started = threading.Thread.start, []

    def start(self):
        started.append(self)
        if len(started) == 3:
            raise StopHere("can't start new thread")
        usual(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(StopHere, match="can't start"):
        copy_through(50, buffers=2, workers=3)
    assert not threads_left()


@pytest.mark.parametrize("stage", ["read", "compute", "write"])
def test_slow_stages_are_waited_for(stage):
    def slow(name):
        def run(item, data=None):
            if name == stage:
                time.sleep(0.01)
            return data

        return run

    written = []
    stream(
        range(12),
        slow("read"),
        lambda i, d: (slow("write")(i), written.append(i)),
        compute=slow("compute"),
        buffers=[1, 2],
        readers=2,
        workers=2,
        writers=2,
    )
    assert sorted(written) == list(range(12))


def test_done_runs_in_the_callers_thread_once_for_each_item():
    seen = []
    stream(
        range(40),
        lambda i, b: b,
        lambda i, d: None,
        buffers=[1, 2],
        readers=2,
        writers=2,
        done=lambda i: seen.append((i, threading.current_thread())),
    )
    assert sorted(i for i, _ in seen) == list(range(40))
    assert {t for _, t in seen} == {threading.current_thread()}


def test_ctrl_c_stops_soon_and_finishes_what_is_written():
    started, ended = [], []

    def write(item, data):
        started.append(item)
        if item == 10:
            _thread.interrupt_main()
        time.sleep(0.001)
        ended.append(item)

    with pytest.raises(KeyboardInterrupt):
        stream(range(10_000), lambda i, b: b, write, buffers=[1, 2], writers=2)
    # Not while idle: the caller may sleep as long as it likes, then writers wait.
    assert 10 < len(started) <= 10 + 2 * schedule._BACKLOG
    assert sorted(started) == sorted(ended)


def test_ctrl_c_is_seen_while_nothing_happens(monkeypatch):
    seen = threading.Event()

    def read(item, buffer):
        _thread.interrupt_main()
        assert seen.wait(HANGS)  # a slow disk

    class Run(schedule._Streaming):
        def fail(self, error):
            super().fail(error)
            seen.set()

    monkeypatch.setattr(schedule, "_Streaming", Run)
    with pytest.raises(KeyboardInterrupt):
        stream(range(10_000), read, lambda i, d: None, buffers=[1, 2])


@pytest.mark.parametrize("at", ["__enter__", "__exit__"])
def test_ctrl_c_while_a_lock_changes_hands(monkeypatch, at):
    """Python looks for signals between taking the lock and the block that gives it back."""

    class Struck(threading.Condition):
        times = 0

        def strike(self):
            if threading.current_thread() is threading.main_thread():
                self.times += 1
                if self.times == 5:
                    raise KeyboardInterrupt

        def __enter__(self):
            found = super().__enter__()
            if at == "__enter__":
                self.strike()
            return found

        def __exit__(self, *error):
            if at == "__exit__":
                self.strike()
            super().__exit__(*error)

    class Run(schedule._Streaming):
        def __init__(self, *args, **how):
            super().__init__(*args, **how)
            self.changed = Struck(self.lock)

    monkeypatch.setattr(schedule, "_Streaming", Run)
    with pytest.raises(KeyboardInterrupt):
        copy_through(10_000, buffers=3, writers=2)
    assert not threads_left()


def test_what_a_stage_held_when_it_failed_goes_with_the_error():
    gone = threading.Event()

    def fail(item, buffer):
        held = np.empty(1)
        weakref.finalize(held, gone.set)
        raise OSError("disk")

    with pytest.raises(OSError, match="disk") as caught:
        stream(range(3), lambda i, b: b, fail, buffers=[1])
    assert not gone.is_set()
    del caught
    assert gone.is_set()


@pytest.mark.parametrize(("readers", "workers", "buffers"), [(1, 1, 1), (4, 1, 4), (3, 3, 5)])
@pytest.mark.parametrize("compute", [True, False])
def test_written_in_order_when_asked(readers, workers, buffers, compute):
    found = []

    def slow(item, data):
        time.sleep(0.002 * (item % 7 == 0))
        return item

    stream(
        range(100),
        slow,
        lambda item, data: found.append((item, data)),
        **({"compute": slow, "workers": workers} if compute else {}),
        buffers=[None] * buffers,
        readers=readers,
        ordered=True,
    )
    assert found == [(k, k) for k in range(100)]
    with pytest.raises(ValueError, match="writing in order takes one thread"):
        stream(range(3), slow, slow, buffers=[None], writers=2, ordered=True)


def test_nothing_to_do():
    assert copy_through(0, buffers=1) == []


@pytest.mark.parametrize("wrong", [{"buffers": []}, {"buffers": [1], "readers": 0}])
def test_impossible_pools_are_refused(wrong):
    with pytest.raises(ValueError, match="at least one"):
        stream(range(3), lambda i, b: b, lambda i, d: None, **wrong)
