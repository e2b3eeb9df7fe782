"""Slots that stay in memory and are saved in the background."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from terrain_gpu.errors import StoreError
from terrain_gpu.store.spill import CodedSlots, HeldSlots

SLOTS, CELLS = 9, 40


def new_slots(path, room, threads=2, *, resume=False):
    slots = CodedSlots(path, SLOTS, 4 * CELLS, np.dtype("u4"), resume=resume)
    return HeldSlots(slots, 4 * CELLS, room, threads)


def cells_of(value, slot):
    """Other slots have other lengths."""
    return np.full(CELLS - slot, value, "u4")


def load(slots, slot):
    found = np.empty(CELLS - slot, "u4")
    slots.load(slot, found)
    return found


@given(
    st.lists(st.tuples(st.integers(0, SLOTS - 1), st.booleans()), max_size=60),
    st.integers(0, SLOTS),
    st.integers(1, 3),
)
def test_the_last_array_is_found_in_memory_and_in_the_file(tmp_path_factory, steps, room, threads):
    path = tmp_path_factory.mktemp("slots") / "slots"
    slots, expected = new_slots(path, room, threads), {}
    for value, (slot, saves) in enumerate(steps):
        if saves:
            slots.save(slot, cells_of(value, slot))
            expected[slot] = cells_of(value, slot)
        elif slot in expected:
            assert np.array_equal(load(slots, slot), expected[slot])
        assert len(slots._held) == min(room, len(expected))
    slots.sync()
    slots.close(keep=True)
    again = new_slots(path, room, resume=True)
    assert set(again._slots) == set(expected)
    for slot, cells in expected.items():
        assert np.array_equal(load(again, slot), cells)
    again.close(keep=False)
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize("room", [0, 1, 2, 5, SLOTS])
def test_threads_share_the_room(tmp_path, room):
    slots = new_slots(tmp_path / "slots", room)

    def own(slot):
        for value in range(200):
            slots.save(slot, cells_of(value, slot))
            assert np.array_equal(load(slots, slot), cells_of(value, slot))

    with ThreadPoolExecutor(SLOTS) as pool:
        list(pool.map(own, range(SLOTS)))
    slots.sync()
    for slot in range(SLOTS):
        found = np.empty(CELLS - slot, "u4")
        slots._slots.load(slot, found)
        assert np.array_equal(found, cells_of(199, slot))
    slots.close(keep=False)


class Paused(CodedSlots):
    """Saving waits until `go`; fails if `fails`."""

    def __init__(self, path):
        super().__init__(path, SLOTS, 4 * CELLS, np.dtype("u4"))
        self.begun, self.go = threading.Event(), threading.Event()
        self.fails, self.saved = False, []

    def save(self, slot, array, *, alone):
        self.begun.set()
        assert self.go.wait(30)
        if self.fails:
            raise OSError("the disk is full")
        self.saved.append(slot)
        super().save(slot, array, alone=alone)


def test_saving_does_not_wait_while_there_is_room(tmp_path):
    inner = Paused(tmp_path / "slots")
    slots = HeldSlots(inner, 4 * CELLS, 3, 1)
    slots.save(0, cells_of(1, 0))
    assert inner.begun.wait(30)
    for value in range(5):  # written once: it waits behind slot 0
        slots.save(1, cells_of(value, 1))
    assert np.array_equal(load(slots, 1), cells_of(4, 1))
    slots.save(2, cells_of(2, 2))
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(slots.save, 3, cells_of(3, 3))  # no room: waits for the file
        assert not wait([late], 0.1).done
        assert inner.saved == []
        inner.go.set()
        late.result(30)
    slots.sync()
    assert inner.saved == [0, 1, 2, 3]
    with pytest.raises(StoreError, match="damaged: slot 4"):
        load(slots, 4)
    slots.close(keep=False)


@pytest.mark.parametrize("when", ["again", "room", "sync"])
def test_a_failure_of_writing_is_raised(tmp_path, when):
    inner = Paused(tmp_path / "slots")
    inner.fails = True
    slots = HeldSlots(inner, 4 * CELLS, 1, 1)
    slots.save(0, cells_of(1, 0))
    assert inner.begun.wait(30)
    inner.go.set()
    late = {
        "again": lambda: slots.save(0, cells_of(2, 0)),
        "room": lambda: slots.save(1, cells_of(2, 1)),
        "sync": slots.sync,
    }[when]
    with pytest.raises(OSError, match="the disk is full"):
        late()
    slots.close(keep=False)


@pytest.mark.parametrize("room", [1, 2, 3])
def test_all_threads_are_told_of_a_failure(tmp_path, room):
    """None waits for the buffer of what could not be written."""
    inner = Paused(tmp_path / "slots")
    inner.fails = True
    inner.go.set()
    slots = HeldSlots(inner, 4 * CELLS, room, 1)
    errors = [None] * SLOTS

    def save(slot):
        try:
            slots.save(slot, cells_of(1, slot))
        except OSError as error:
            errors[slot] = str(error)

    threads = [threading.Thread(target=save, args=(k,), daemon=True) for k in range(SLOTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert errors.count("the disk is full") == SLOTS - room
    for _ in range(2):
        with pytest.raises(OSError, match="the disk is full"):
            slots.sync()
    slots.close(keep=False)


def test_what_could_be_written_is_synced_after_a_failure(tmp_path, monkeypatch):
    inner = Paused(tmp_path / "slots")
    inner.fails = True
    inner.go.set()
    synced = []
    monkeypatch.setattr(inner, "sync", lambda: synced.append(list(inner.saved)))
    slots = HeldSlots(inner, 4 * CELLS, 2, 1)
    slots.save(0, cells_of(1, 0))
    with pytest.raises(OSError, match="the disk is full"):
        slots._held[0][1].result(30)
    inner.fails = False
    slots.save(1, cells_of(1, 1))
    with pytest.raises(OSError, match="the disk is full"):
        slots.sync()
    assert synced == [[1]]
    slots.close(keep=False)


def test_closing_without_keeping_does_not_write_what_waits(tmp_path):
    inner = Paused(tmp_path / "slots")
    slots = HeldSlots(inner, 4 * CELLS, 3, 1)
    for slot in range(3):
        slots.save(slot, cells_of(0, slot))
    assert inner.begun.wait(30)
    threading.Timer(0.2, inner.go.set).start()
    slots.close(keep=False)
    assert inner.saved == [0]
    assert not list(tmp_path.iterdir())
