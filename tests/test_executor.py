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

from terrain_gpu.engine.schedule import stream


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
    lock = threading.Lock()
    under_way, most = 0, 0

    def read(item, buffer):
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)

    def write(item, data):
        nonlocal under_way
        time.sleep(0.002)
        with lock:
            under_way -= 1

    stream(range(30), read, write, buffers=[None] * buffers, readers=4, writers=2)
    assert under_way == 0
    assert most <= buffers
    assert most == buffers  # slow writers: the readers do run ahead, up to the pool


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
    before = threading.active_count()
    reached = []

    def failing(name):
        def run(item, data=None):
            reached.append((name, item))
            if name == stage and item == 7:
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
    assert threading.active_count() == before
    assert len(reached) < 1000


def test_errors_of_several_threads_give_the_first_and_no_hang():
    barrier = threading.Barrier(3)

    def read(item, buffer):
        barrier.wait(5)
        raise StopHere(item)

    with pytest.raises(StopHere):
        stream(range(3), read, lambda i, d: None, buffers=[1, 2, 3], readers=3)


def test_threads_that_cannot_be_started_leave_none_behind(monkeypatch):
    before, usual, started = threading.active_count(), threading.Thread.start, []

    def start(self):
        started.append(self)
        if len(started) == 3:
            raise StopHere("can't start new thread")
        usual(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(StopHere, match="can't start"):
        copy_through(50, buffers=2, workers=3)
    assert threading.active_count() == before


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


def test_ctrl_c_stops_within_two_seconds_and_finishes_what_is_written():
    started, ended = [], []

    def write(item, data):
        started.append(item)
        time.sleep(0.05)
        ended.append(item)

    threading.Timer(0.3, _thread.interrupt_main).start()
    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        stream(itertools.count(), lambda i, b: b, write, buffers=[1, 2], writers=2)
    assert time.perf_counter() - start < 2.3
    assert started
    assert sorted(started) == sorted(ended)


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
