"""Kernels that numba caches on disk: where it can, and with others compiling at the same time."""

from __future__ import annotations

import multiprocessing
import time

import numpy as np
from numba.core import caching, config
from test_mst import make_store

import terrain_gpu
from terrain_gpu.compiled import jit, known_types, tell_compiling
from terrain_gpu.drainage import accumulation, network_problem

HANGS = 600
"""Seconds after which something that must happen does not."""


def more(x):
    return x + 1


def test_kernels_that_cannot_be_kept(monkeypatch, caplog):
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    kernel = jit(more)
    tell_compiling(kernel, "tests")
    assert "kernels for tests; set NUMBA_CACHE_DIR to a writable folder" in caplog.text
    assert known_types(kernel) == []
    assert kernel(1) == 2
    assert len(known_types(kernel)) == 1


def test_kernels_that_are_kept(caplog):
    tell_compiling(jit(more), "tests")
    assert "compiling kernels for tests; this happens once" in caplog.text


def test_a_first_run_says_why_it_takes_long(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(accumulation, "known_types", lambda kernel: [])
    monkeypatch.setattr(network_problem, "known_types", lambda kernel: [])
    heights = np.random.default_rng(2).uniform(0, 9, (20, 30)).astype(np.float32)
    store = make_store(tmp_path / "s.zarr", heights, None, 64)
    lines = tmp_path / "lines.geojson"
    terrain_gpu.minimum_spanning_tree(store)
    for name, work in (
        ("accumulate", lambda: terrain_gpu.accumulate(store)),
        ("network", lambda: terrain_gpu.extract_network(store, lines, min_length=2)),
    ):
        caplog.clear()
        work()
        assert caplog.text.count(f"compiling kernels for {name}; this happens once") == 1


TYPES = ["int64", "float64", "complex128"]


def compile_beside_others(folder, kind, together):
    """Compile a kernel for a type; the others save theirs at the same time."""
    config.CACHE_DIR = folder
    caching.IndexDataCacheFile._save_index = slowly(caching.IndexDataCacheFile._save_index)
    kernel = jit(more)
    usual = kernel._cache._cache_file.save

    def save(key, data):
        together.wait(HANGS)
        usual(key, data)

    kernel._cache._cache_file.save = save
    kernel(np.dtype(kind).type(1))


def slowly(save_index):
    def save(self, overloads):
        time.sleep(0.2)  # time for races, after the index was read
        save_index(self, overloads)

    return save


def test_processes_that_compile_at_once_keep_what_each_compiled(tmp_path, monkeypatch):
    spawn = multiprocessing.get_context("spawn")
    together = spawn.Barrier(len(TYPES))
    given = [(str(tmp_path), kind, together) for kind in TYPES]
    processes = [spawn.Process(target=compile_beside_others, args=args) for args in given]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * len(TYPES)
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    kernel = jit(more)
    assert len(known_types(kernel)) == len(TYPES)
    for kind in TYPES:
        assert kernel(np.dtype(kind).type(1.5)) == np.dtype(kind).type(1.5) + 1
    assert not kernel.stats.cache_misses


def test_kernels_are_kept_where_nothing_can_be_locked(tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("terrain_gpu.compiled.fcntl.flock", refuse)
    assert jit(more)(1) == 2
    again = jit(more)
    assert again(1) == 2
    assert not again.stats.cache_misses
