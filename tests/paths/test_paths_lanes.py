"""GPUs that share regions, tested without a GPU: who takes what, and how it ends."""

from __future__ import annotations

import sys
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from terrain_gpu.paths.relax.gpu import lanes
from terrain_gpu.paths.relax.gpu.rims import Rims

INFINITY = 2**31 - 1


@pytest.fixture
def shared(monkeypatch):
    """A function that makes `Lanes` of some GPUs over a square of one-cell regions."""
    cupy = SimpleNamespace(cuda=SimpleNamespace(Device=lambda number: nullcontext()))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(lanes, "Lane", lambda device, *_: SimpleNamespace(device=device, at=None))
    told = []

    def make(devices, side):
        problem = SimpleNamespace(gpu=SimpleNamespace(devices=range(devices)), stagings=8)
        windows = {(i, j): (i, i + 1, j, j + 1) for i in range(side) for j in range(side)}
        found = lanes.Lanes(problem, windows, told.append)
        return found, Rims(windows, np.dtype(np.uint32))

    make.told = told
    return make


class Steps:
    """Relaxes one-cell regions: a cell becomes one more than its least neighbour."""

    def __init__(self, shared, rims):
        self.shared, self.rims = shared, rims
        self.cells = dict.fromkeys(rims.windows, INFINITY)
        self.visitors = {at: set() for at in rims.windows}
        self.busy = set()

    def __call__(self, lane, at):
        assert at not in self.busy
        self.busy.add(at)
        self.visitors[at].add(lane.device)
        self.shared.tick(1)
        ring, _ = self.rims.ring(at)
        least = 0 if at == (0, 0) else int(ring.min()) + 1
        self.cells[at] = min(self.cells[at], least)
        self.busy.remove(at)
        self.rims.put(at, np.full(4, self.cells[at], np.uint32))


@pytest.mark.parametrize(("devices", "side"), [(1, 4), (2, 5), (3, 1), (4, 2), (5, 2), (8, 6)])
def test_all_that_is_pending_is_visited(shared, devices, side):
    found, rims = shared(devices, side)
    steps = Steps(found, rims)
    rims.start((0, 0), 0)
    found.visit(rims, lambda: 10**6, steps)
    assert steps.cells == {(i, j): max(i, j) for i, j in rims.windows}
    assert found.own == (side * side <= devices)
    if found.own:
        assert all(len(visitors) == 1 for visitors in steps.visitors.values())
    assert sum(shared.told) >= side * side
    assert not rims.pending
    done = []
    found.each(rims.windows, lambda lane, at: done.append((at, lane.device)))
    assert sorted(at for at, _ in done) == sorted(rims.windows)
    if found.own:
        assert all(steps.visitors[at] == {device} for at, device in done)


def test_what_is_too_far_is_left(shared):
    found, rims = shared(3, 6)
    steps = Steps(found, rims)
    rims.start((0, 0), 0)
    found.visit(rims, lambda: 2, steps)
    reached = {at for at, value in steps.cells.items() if value <= 2}
    assert reached == {(i, j) for i, j in rims.windows if max(i, j) <= 2}
    assert not rims.pending


def test_the_first_error_ends_all(shared):
    found, rims = shared(2, 2)
    met = threading.Barrier(2)

    def fail(lane, at):
        met.wait(60)
        if lane.device:
            raise ZeroDivisionError
        while True:  # relaxes until told of the error
            found.check()

    for at in ((0, 0), (1, 1)):
        rims.start(at, 0)
    with pytest.raises(ZeroDivisionError):
        found.visit(rims, lambda: 9, fail)
    with pytest.raises(lanes.Stopped):
        found.check()


def test_ctrl_c_ends_all(shared):
    found, rims = shared(2, 2)
    told = threading.Event()

    def interrupt(cells):
        told.set()
        raise KeyboardInterrupt

    found._tick = interrupt

    def work(lane, at):
        found.tick(1)
        assert told.wait(60)
        while True:
            found.check()

    for at in rims.windows:
        rims.start(at, 0)
    with pytest.raises(KeyboardInterrupt):
        found.visit(rims, lambda: 9, work)


def test_a_region_is_held_by_who_visited_last(shared):
    found, _ = shared(2, 3)
    one, other = found.all
    found.hold(one, (0, 0), "piece")
    assert found.has(one, (0, 0))
    assert not found.has(other, (0, 0))
    found.hold(other, (0, 0), "piece")
    assert not found.has(one, (0, 0))
    found.hold(other, (1, 0), "piece")
    assert not found.has(other, (0, 0))
    found.clear()
    assert not found.has(other, (1, 0))
