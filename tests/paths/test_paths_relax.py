"""Relaxation when something fails: it ends with the error, and no thread waits for ever."""

from __future__ import annotations

import errno
import os
import threading
import time

import numpy as np
import pytest
from test_paths import fields_in_memory, make_layers

from terrain_gpu import GridSpec, InputError, OutputError, shortest_paths
from terrain_gpu.grid import BlockGrid
from terrain_gpu.grid.lengths import step_lengths
from terrain_gpu.io.places import from_rowcol
from terrain_gpu.paths.cost import fields
from terrain_gpu.paths.cost.models import CostModel
from terrain_gpu.paths.cost.terrain import Raster, Terrain
from terrain_gpu.paths.cost_distance import operation as problem
from terrain_gpu.paths.proof import upper_limit
from terrain_gpu.paths.relax.counts import Visits
from terrain_gpu.paths.relax.relaxation import Relaxation
from terrain_gpu.store.spill import Slots

SECONDS = 600
"""After which a thread counts as waiting for ever."""

HEIGHTS = np.random.default_rng(3).integers(0, 99, (128, 192)).astype(np.uint8)


def new_paths(folder, capacity):
    """A relaxation of `HEIGHTS` in six blocks from the first cell."""
    grid, blocks = GridSpec(*HEIGHTS.shape), BlockGrid(*HEIGHTS.shape, 64)
    model = CostModel("absdiff", False, {})
    dtype = model.distance_dtype(HEIGHTS.dtype)
    sources = from_rowcol(grid, [(0, 0)])
    raster = Raster(HEIGHTS, "heights")
    ground = Terrain(blocks, model, raster, None, None, step_lengths(grid), sources, dtype)
    farthest = upper_limit(None, dtype)
    paths = Relaxation(
        ground, model.kernel, (True, True, False), dtype, farthest, capacity, folder / "fields"
    )
    for at, key in ground.starts():
        paths.start(at, dtype.type(key))
    return paths


def in_threads(*bodies):
    """What each body returns or raises, all run at once; fails if one does not end."""
    found = [None] * len(bodies)

    def run(k):
        try:
            found[k] = bodies[k]()
        except BaseException as error:
            found[k] = error

    threads = [threading.Thread(target=run, args=(k,), daemon=True) for k in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"
    return found


def distances(paths, at):
    with paths.solved(at) as field:
        return paths.interior(paths.blocks.window(*at), field.distances).copy()


def disk_full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_field_that_cannot_be_saved_is_not_waited_for_nor_lost(tmp_path, monkeypatch):
    expected = shortest_paths(HEIGHTS, [(0, 0)], block_size=64).distance()
    paths = new_paths(tmp_path, capacity=1)
    paths.run(1)
    (held,) = paths._fields
    paths._fields[held].dirty = True
    paths._slots.sums.pop(paths._slot(held), None)  # it exists only in memory
    other = next(at for at in paths.blocks.ids() if at != held)
    saving, waited_for = threading.Event(), threading.Event()
    wait = paths._lock.wait

    def save(*_):
        saving.set()
        assert waited_for.wait(SECONDS)
        disk_full()

    def waiting(*how):
        waited_for.set()
        return wait(*how)

    def second():
        assert saving.wait(SECONDS)
        return distances(paths, held)

    monkeypatch.setattr(Slots, "save", save)
    monkeypatch.setattr(paths._lock, "wait", waiting)
    failed, found = in_threads(lambda: distances(paths, other), second)
    assert isinstance(failed, OSError)
    assert failed.errno == errno.ENOSPC
    r0, r1, c0, c1 = paths.blocks.window(*held)
    np.testing.assert_array_equal(found, expected[r0:r1, c0:c1])
    monkeypatch.undo()
    r0, r1, c0, c1 = paths.blocks.window(*other)
    np.testing.assert_array_equal(distances(paths, other), expected[r0:r1, c0:c1])
    paths.close()


def test_a_visit_that_fails_leaves_no_block_busy(tmp_path):
    paths = new_paths(tmp_path, capacity=3)
    usual, calls = paths.operator, []

    def operator(*how):
        calls.append(how)
        if len(calls) == 4:
            raise ZeroDivisionError
        return usual(*how)

    paths.operator = operator
    (failed,) = in_threads(lambda: paths.run(2))
    assert isinstance(failed, ZeroDivisionError)
    for found in in_threads(*(lambda at=at: distances(paths, at) for at in paths.blocks.ids())):
        assert isinstance(found, np.ndarray)
    paths.close()


def test_threads_that_cannot_be_started(tmp_path, monkeypatch):
    paths = new_paths(tmp_path, capacity=3)
    usual, started = threading.Thread.start, []

    def start(self):
        if self.name.startswith("terrain_gpu-"):
            started.append(self)
            if len(started) == 3:
                raise RuntimeError("can't start new thread")
        usual(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    (failed,) = in_threads(lambda: paths.run(4))
    assert str(failed) == "can't start new thread"
    assert not any(thread.is_alive() for thread in started)
    assert not [t.name for t in threading.enumerate() if t.name.startswith("terrain_gpu-")]
    paths.close()


@pytest.mark.parametrize("saved", [0, 1, 4, 9])
def test_a_disk_that_fills_up_ends_the_run_with_the_error(tmp_path, monkeypatch, no_fsync, saved):
    """During the relaxation or after it, whatever threads are waiting for."""
    make_layers(tmp_path / "s.zarr", 64, elevation=HEIGHTS)
    how = {"backlink": True, "threads": 2}
    usual, calls = Slots.save, []

    def save(self, *what):
        calls.append(what)
        if len(calls) > saved:
            # The message of `Slots`.
            raise OutputError(f"{self.path}: no space left on the disk; free some and --resume")
        usual(self, *what)

    with monkeypatch.context() as patch, fields_in_memory(2):
        patch.setattr(Slots, "save", save)
        (failed,) = in_threads(lambda: shortest_paths(tmp_path / "s.zarr", [(0, 0)], **how))
    assert isinstance(failed, OutputError)
    found = shortest_paths(tmp_path / "s.zarr", [(0, 0)], **how, resume=True)
    expected = shortest_paths(HEIGHTS, [(0, 0)], backlink=True)
    np.testing.assert_array_equal(found.distance(), expected.distance())
    np.testing.assert_array_equal(found.backlink(), expected.backlink())


class Slow(int):
    """A count whose increments other threads can interrupt."""

    def __add__(self, more):
        time.sleep(1e-4)
        return Slow(int(self) + more)


@pytest.mark.parametrize("method", ["relax", "index"])
def test_counts_of_several_threads_are_all_there(tmp_path, monkeypatch, no_fsync, method):
    make_layers(tmp_path / "s.zarr", 64, elevation=np.tile(HEIGHTS, (3, 2)))
    made, moved = [], {"spilled": [], "loaded": []}

    def slow(self, usual=Relaxation.__post_init__):
        usual(self)
        self.visits = Visits(*[Slow()] * 6)
        made.append(self.visits)

    def counted(name, usual):
        def call(self, slot, array):
            moved[name].append(array.nbytes)
            return usual(self, slot, array)

        return call

    with monkeypatch.context() as patch, fields_in_memory(4):
        patch.setattr(Relaxation, "__post_init__", slow)
        patch.setattr(Slots, "save", counted("spilled", Slots.save))
        patch.setattr(Slots, "load", counted("loaded", Slots.load))
        shortest_paths(
            tmp_path / "s.zarr",
            [(0, 0), (383, 383)],
            threads=4,
            method=method,
            build_index=method == "index",
        )
    visits = max(made, key=lambda one: one.blocks)  # the other is from a rehearsal
    assert visits.seen == 384**2
    assert visits.blocks >= 36
    assert visits.spilled == sum(moved["spilled"])
    assert visits.loaded == sum(moved["loaded"])
    assert (visits.loaded > 0) == (method == "relax")


def test_a_failed_rehearsal_is_repeated(tmp_path, monkeypatch):
    """Kernels that were not loaded are loaded before the next run, while memory is free."""
    make_layers(tmp_path / "s.zarr", 64, elevation=HEIGHTS)
    tried, run_in_memory = [], problem.run_in_memory

    def first_fails(*given, **how):
        tried.append(1)
        if len(tried) <= 3:  # one for each height
            raise InputError("not this")
        return run_in_memory(*given, **how)

    monkeypatch.setattr(problem, "_rehearsed", set())
    monkeypatch.setattr(problem, "run_in_memory", first_fails)
    for tries in (3, 4, 4):
        shortest_paths(tmp_path / "s.zarr", [(0, 0)], backend="cpu", overwrite=True)
        assert len(tried) == tries


def test_kept_pages_are_no_more_than_were_in_use():
    """Fields of blocks at the edge have other sizes; a plan counts one field, not one of each."""
    fields.forget_spare_pages()
    most = 0
    for shapes in ([64, 512], [128, 256], [64, 512], [192], [64, 512], [64, 128, 384]):
        held = [fields.pages((rows, 4096), np.dtype(np.uint8)) for rows in shapes]
        most = max(most, 4096 * sum(shapes))
        spare = sum(size * len(kept) for size, kept in fields._spare.items())
        assert 4096 * sum(shapes) + spare <= most
        del held
    fields.forget_spare_pages()
