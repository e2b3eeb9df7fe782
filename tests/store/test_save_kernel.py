"""Shards that are written in one call: the same files and messages as in Python."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import numba  # noqa: F401 - only where it is loaded are shards written in one call
import numpy as np
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Raster, block_sizes, rasters, same_bits
from test_store import begin, fill, padded, read, write

from terrain_gpu import OutputError, cells
from terrain_gpu.grid import TILE
from terrain_gpu.store import coding, save_kernel, writer
from terrain_gpu.store.tiles import split_bits, z_view

HILLS = Raster(np.dtype("<i2"), (257, 320), -1, "hills", "tiles")


def files_of(layer):
    paths = sorted(path for path in layer.path.rglob("*") if path.is_file())
    return {str(path.relative_to(layer.path)): path.read_bytes() for path in paths}


class Noted:
    """A function that notes the states it returns."""

    def __init__(self, function):
        self.function, self.states = function, []

    def __call__(self, *given):
        saved = self.function(*given)
        self.states.append(saved.state)
        return saved


@pytest.fixture
def states(monkeypatch):
    """What became of the shards that the kernel was given."""
    monkeypatch.setattr(save_kernel, "write_shard", noted := Noted(save_kernel.write_shard))
    return noted.states


@given(rasters(), st.sampled_from([None, *coding.NAMES]), block_sizes(256))
@settings(deadline=None, max_examples=examples(30))
def test_the_same_files(folders, no_fsync_for_all, raster, name, block):
    """Of every type, with edges, voids and odd floats; only blocks that are all fill are left."""
    with folders() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(save_kernel, "write_shard", usual := Noted(save_kernel.write_shard))
        fast = write(folder / "fast", raster, block=block, compress=name)
        there = sum(fast.shard_path(*at).exists() for at in fast.blocks.ids())
        assert usual.states.count(save_kernel.EMPTY) == fast.blocks.count - there
        assert save_kernel.FAILED not in usual.states
        patch.setattr(writer, "saves_at_once", lambda name: None)
        slow = write(folder / "slow", raster, block=block, compress=name)
        assert files_of(fast) == files_of(slow)


@pytest.fixture(scope="module")
def no_fsync_for_all():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        yield


@pytest.mark.parametrize("name", [None, *coding.NAMES])
@pytest.mark.parametrize("block", [64, 128, 256])
def test_tiles(tmp_path, states, name, block):
    """Blocks given as tiles; those of the caller are left as they are."""
    right = write(tmp_path / "right", HILLS, block=block, compress=name)
    with begin(tmp_path / "s", HILLS, block=block, compress=name) as target:
        for i, j in target.blocks.ids():
            whole = padded(target, HILLS.cells, i, j)
            tiles = np.empty(((block // TILE) ** 2, TILE, TILE), whole.dtype)
            np.copyto(z_view(tiles), split_bits(whole))
            before = tiles.copy()
            target.write_tiles(i, j, tiles)
            assert same_bits(tiles, before)
        found = target.commit()
    assert files_of(found) == files_of(right)
    assert set(states) <= {save_kernel.SAVED, save_kernel.WRITTEN, save_kernel.EMPTY}


def test_rows_with_gaps_and_many_threads(tmp_path, states):
    """Threads share a writer, but no memory; rows need not lie side by side."""
    raster = Raster(np.dtype("<f4"), (1024, 1024), None, "hills", "none")
    wide = np.repeat(raster.cells, 2, axis=1)[:, ::2]
    with begin(tmp_path / "s", raster, block=64, compress="blosc-lz4") as target:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda at: fill(target, wide, [at]), target.blocks.ids()))
        target.commit()
    assert same_bits(read(tmp_path / "s"), raster.cells)
    assert len(states) == 256


def test_blocks_that_are_all_fill(tmp_path, states, monkeypatch):
    """They are seen to be so once, without a second copy; a shard that was there is removed."""
    with begin(tmp_path / "s", HILLS, block=256) as target:
        fill(target, HILLS.cells, [(0, 1)])
        monkeypatch.setattr(writer.BlockWriter, "_tiled", None)
        fill(target, np.full_like(HILLS.cells, -1))
        there = [target.shard_path(*at).exists() for at in target.blocks.ids()]
        found = target.commit()
    assert there == [False] * 4
    assert states[1:] == [save_kernel.EMPTY] * 4
    assert found.statistics() == {"valid_cells": 0, "min": None, "max": None}
    assert (read(tmp_path / "s") == -1).all()


def test_a_block_that_is_all_fill_fails_without_the_temporary_folder(tmp_path, states):
    with begin(tmp_path / "s", HILLS, block=256) as target:
        (tmp_path / "s.incomplete/.incomplete/elevation.tmp").rmdir()
        with pytest.raises(OutputError, match="0/0: cannot be written: No such file"):
            fill(target, np.full_like(HILLS.cells, -1), [(0, 0)])
    assert states == [save_kernel.EMPTY]


def test_read_only_cells_need_no_other_kernel(tmp_path):
    fixed = HILLS.cells.copy()
    fixed.flags.writeable = False
    with begin(tmp_path / "s", HILLS, block=64) as target:
        fill(target, HILLS.cells)
        before = len(save_kernel._save.signatures)
        for at in target.blocks.ids():
            r0, r1, c0, c1 = target.block_window(*at)
            target.write_block(*at, fixed[r0:r1, c0:c1])
        whole = np.zeros((64, 64), HILLS.dtype)
        whole.flags.writeable = False
        target.write_block(0, 0, whole)
        assert len(save_kernel._save.signatures) == before


@given(raster=rasters())
@settings(deadline=None, max_examples=examples(50))
def test_ranges(raster):
    """Also of NaN, infinities and -0.0; the same statistics as numpy's."""
    flat = np.ascontiguousarray(raster.cells).reshape(-1)
    kind, ends = flat.dtype.kind, np.empty(2, flat.dtype)
    what = flat.itemsize, kind == "u", kind == "f"
    save_kernel._find_range(what, save_kernel._views(flat), save_kernel._views(ends))
    for nodata in (None, raster.nodata, flat[0]):
        right = cells.stats(flat, nodata)
        assert cells.stats(flat, nodata, ends) == right
        found = save_kernel.stats(flat, nodata, ends)
        assert found == right
        assert [str(found.low), str(found.high)] == [str(right.low), str(right.high)]


def test_zero_has_one_sign():
    """As least and greatest cell, whichever comes first."""
    for data in ([0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0]):
        found = cells.stats(np.array(data), None)
        assert [str(found.low), str(found.high)] == ["0.0", "0.0"]


CALLS = "open", "write", "fsync", "close", "rename", "unlink"


def with_call(monkeypatch, name, function, arguments):
    """Have the kernel call a Python function for one of the system's."""
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * arguments)
    made, found = kind(function), list(save_kernel._calls())
    found[CALLS.index(name)] = ctypes.cast(made, ctypes.c_void_p).value
    monkeypatch.setattr(save_kernel, "_calls", lambda keep=made: tuple(found))


@pytest.mark.parametrize("name", [None, "zstd"])
@pytest.mark.parametrize(
    ("call", "arguments", "state"),
    [
        ("open", 3, save_kernel.FAILED),
        ("write", 3, save_kernel.FAILED),
        ("fsync", 1, save_kernel.FAILED),
        ("close", 1, save_kernel.FAILED),
        ("rename", 2, save_kernel.WRITTEN),
    ],
)
def test_calls_that_fail(tmp_path, monkeypatch, states, name, call, arguments, state):
    """Python does again what the kernel could not, and nothing else is left."""
    monkeypatch.setattr(writer, "SMALL", 0)
    with_call(monkeypatch, call, lambda *given: -1, arguments)
    found = write(tmp_path / "s", HILLS, block=128, compress=name)
    assert set(states) <= {state, save_kernel.EMPTY}
    assert same_bits(read(tmp_path / "s"), HILLS.cells)
    monkeypatch.undo()
    assert files_of(found) == files_of(write(tmp_path / "right", HILLS, block=128, compress=name))


@pytest.mark.parametrize("name", [None, "blosc-lz4"])
def test_writes_of_a_few_bytes(tmp_path, monkeypatch, states, name):
    def write_some(fd, at, size):
        return os.write(fd, ctypes.string_at(at, min(size, 999)))

    with_call(monkeypatch, "write", write_some, 3)
    write(tmp_path / "s", HILLS, block=128, compress=name)
    assert save_kernel.FAILED not in states
    assert same_bits(read(tmp_path / "s"), HILLS.cells)


def test_a_codec_that_fails(tmp_path, monkeypatch, states):
    """Python tries again with the block, which is still there."""
    functions = save_kernel.codec_kernel._functions("zstd")
    failing = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 6)(lambda *given: 0)
    broken = functions._replace(code=failing)
    monkeypatch.setattr(save_kernel.codec_kernel, "_functions", lambda codec: broken)
    with pytest.raises(RuntimeError, match="zstd failed to compress a tile"):
        write(tmp_path / "s", HILLS, compress="zstd")
    assert save_kernel.FAILED in states


def test_a_file_that_may_not_grow(tmp_path):
    """An error that Python meets, too: its message names the file, and no part of it is left."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with begin(tmp_path / "s", HILLS, block=256) as target:
        fill(target, HILLS.cells, [(0, 0)])
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
        try:
            with pytest.raises(OutputError, match="0/1: cannot be written: File too large"):
                fill(target, HILLS.cells, [(0, 1)])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert not list((tmp_path / "s.incomplete/.incomplete/elevation.tmp").iterdir())
        fill(target, HILLS.cells)
        target.commit()
    assert same_bits(read(tmp_path / "s"), HILLS.cells)


def test_a_temporary_file_that_a_killed_run_left(tmp_path, states):
    with begin(tmp_path / "s", HILLS, block=256) as target:
        left = tmp_path / "s.incomplete/.incomplete/elevation.tmp/0-0"
        left.write_bytes(b"half of a shard")
        fill(target, HILLS.cells)
        target.commit()
    assert states[0] == save_kernel.FAILED
    assert same_bits(read(tmp_path / "s"), HILLS.cells)


def test_a_folder_in_the_way(tmp_path, states):
    with begin(tmp_path / "s", HILLS, block=256) as target:
        target.shard_path(0, 0).mkdir(parents=True)
        with pytest.raises(OutputError, match="0/0: cannot be written: Is a directory"):
            fill(target, HILLS.cells, [(0, 0)])
        assert not list((tmp_path / "s.incomplete/.incomplete/elevation.tmp").iterdir())
    assert states == [save_kernel.WRITTEN]


def test_where_it_cannot_be(monkeypatch):
    assert writer.saves_at_once(None) is save_kernel
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "numba")
        assert writer.saves_at_once(None) is None
    monkeypatch.setattr(save_kernel, "can", lambda name: False)
    assert writer.saves_at_once("zstd") is None


@pytest.mark.parametrize("name", [None, "zstd"])
def test_large_shards_are_synced(tmp_path, monkeypatch, name):
    """Others are, too, before the commit: by Python, together."""
    found, synced = write(tmp_path / "s", HILLS, block=128, compress=name), []
    sizes = [path.stat().st_size for path in (found.path / "c").rglob("*") if path.is_file()]
    monkeypatch.setattr(writer, "SMALL", limit := max(sizes))
    assert min(sizes) < limit
    with_call(monkeypatch, "fsync", lambda fd: synced.append(fd) or 0, 1)
    write(tmp_path / "again", HILLS, block=128, compress=name)
    assert len(synced) == sizes.count(limit)


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
@pytest.mark.parametrize("number", [1, 2, 7])
def test_kills_within_the_call(tmp_path, call, number):
    """A run that goes on does again what is not in place."""
    child = os.fork()
    if child == 0:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(writer, "SMALL", 0)
            calls = {"write": os.write, "fsync": os.fsync, "rename": os.rename}
            left = iter(range(number))

            def killed(*given):
                if next(left, None) is None:
                    os.kill(os.getpid(), signal.SIGKILL)
                if call == "write":
                    return calls[call](given[0], ctypes.string_at(*given[1:]))
                calls[call](*(map(ctypes.string_at, given) if call == "rename" else given))
                return 0

            with_call(patch, call, killed, {"write": 3, "fsync": 1, "rename": 2}[call])
            with begin(tmp_path / "s", HILLS, block=64) as target:
                fill(target, HILLS.cells)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with begin(tmp_path / "s", HILLS, block=64, resume=True) as target:
        fill(target, HILLS.cells, [at for at in target.blocks.ids() if not target.done[at]])
        found = target.commit()
    assert same_bits(read(tmp_path / "s"), HILLS.cells)
    assert files_of(found) == files_of(write(tmp_path / "right", HILLS, block=64))
