"""Kernels that numba caches on disk: where it can, and with others compiling at the same time."""

from __future__ import annotations

import ast
import errno
import importlib
import multiprocessing
import os
import sys
import time

import numba
import numpy as np
import pytest
from numba.core import caching, config
from test_mst import make_store

import terrain_gpu
from terrain_gpu import compiled
from terrain_gpu.compiled import jit, known_types, tell_compiling
from terrain_gpu.hydrology.accumulate import operation as accumulation
from terrain_gpu.hydrology.network import operation as network_problem

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


def compile_at_once(folder, together, misses):
    """Compile a kernel that the others compile, too."""
    config.CACHE_DIR = folder
    kernel = jit(more)
    kernel._cache._impl.reduce = slow_reduce(kernel._cache._impl.reduce)
    together.wait(HANGS)
    assert kernel(1) == 2
    with misses.get_lock():
        misses.value += sum(kernel.stats.cache_misses.values())


def slow_reduce(reduce):
    def slow(data):
        time.sleep(0.5)  # time for others to begin
        return reduce(data)

    return slow


def test_processes_wait_for_what_another_one_compiles(tmp_path):
    spawn = multiprocessing.get_context("spawn")
    together, misses = spawn.Barrier(3), spawn.Value("q")
    given = (str(tmp_path), together, misses)
    processes = [spawn.Process(target=compile_at_once, args=given) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 3
    assert misses.value == 1
    assert not list(tmp_path.rglob("*.turn"))


def test_nobody_waits_for_ever_for_a_process_that_compiles(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiled, "LONGEST", 0.1)
    stopped = jit(more)
    assert stopped._cache.load_overload((numba.int64,), stopped.targetctx) is None
    started = time.monotonic()
    assert jit(more)(1) == 2
    assert time.monotonic() - started > compiled.LONGEST


def test_an_interrupted_compilation_keeps_nobody_waiting(tmp_path, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    kernel = jit(more)
    with monkeypatch.context() as patch:
        patch.setattr(kernel._compiler, "compile", interrupt)
        with pytest.raises(KeyboardInterrupt):
            kernel(1)
    assert not list(tmp_path.rglob("*.turn"))
    other = jit(more)
    assert other(1) == kernel(1) == 2
    assert sum(other.stats.cache_misses.values()) == 1


def test_kernels_are_kept_where_nothing_can_be_locked(tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("terrain_gpu.compiled.fcntl.flock", refuse)
    assert jit(more)(1) == 2
    again = jit(more)
    assert again(1) == 2
    assert not again.stats.cache_misses


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("fails", ["open", "mkdir"])
def test_a_cache_on_a_full_disk(tmp_path, monkeypatch, caplog, number, fails):
    """The kernel runs, compiled for this process; one warning names the folder."""

    def refuse(*args, **more):
        raise OSError(number, os.strerror(number))

    compiled._warn_not_kept.cache_clear()
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    kernel = jit(more)
    if fails == "open":
        monkeypatch.setattr(caching.IndexDataCacheFile, "_open_for_write", refuse)
    else:
        monkeypatch.setattr(kernel._cache._impl.locator, "ensure_cache_path", refuse)
    assert (kernel(1), kernel(1.5)) == (2, 2.5)
    (told,) = caplog.messages
    assert told.startswith(f"{tmp_path}/")
    assert "compiled kernels cannot be kept: " in told
    assert "NUMBA_CACHE_DIR" in told
    assert not list(tmp_path.rglob("*.turn"))


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", [b"", bytes(4000), None])
def test_a_damaged_or_unreadable_cache_is_not_used(tmp_path, monkeypatch, ending, damage):
    """A power cut leaves zeros or nothing; None: a folder, which no open reads, also for root."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    jit(more)(1)
    for path in tmp_path.rglob(f"*.{ending}"):
        if damage is None:
            path.unlink()
            path.mkdir()
        else:
            path.write_bytes(damage)
    compiled._warn_not_kept.cache_clear()
    again = jit(more)
    assert again(1) == 2
    assert again.stats.cache_misses


KERNEL = """\
from terrain_gpu.compiled import jit

from . import other
from .helpers import STEP, add


@jit
def kernel(x):
    return add(x) + STEP
"""

HELPERS = """\
from numba.extending import register_jitable

STEP = 100


@register_jitable
def add(x):
    return x + 1
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose kernel calls another module; loads it as a new process would."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    for name, text in (("__init__", ""), ("kernel", KERNEL), ("helpers", HELPERS), ("other", "")):
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(compiled, "PACKAGE", folder)

    def load(started=None):
        for name in [name for name in sys.modules if name.split(".")[0] == "kernels"]:
            del sys.modules[name]
        for cached in (compiled.digest_of, compiled._read, compiled._imports):
            cached.cache_clear()
        monkeypatch.setattr(compiled, "STARTED", started or time.time() + 1)
        return folder, importlib.import_module("kernels.kernel").kernel

    yield load
    load()


def changed(file, old, new):
    file.write_text(file.read_text().replace(old, new))


def test_a_kernel_is_compiled_again_when_what_it_calls_has_changed(package):
    folder, first = package()
    assert first(1) == 102
    kept = sorted(folder.rglob("*.nb?"))
    for old, new, found in (("x + 1", "x + 2", 103), ("STEP = 100", "STEP = 200", 203)):
        changed(folder / "helpers.py", old, new)
        _, again = package()
        assert known_types(again) == []
        assert again(1) == found
    changed(folder / "kernel.py", "\n\n@jit", "\n# More lines.\n\n\n@jit")
    assert package()[1](1) == 203
    assert sorted(folder.rglob("*.nb?")) == kept  # nothing old is left


def test_what_was_kept_may_name_a_class_that_is_gone(package):
    """As after an upgrade, where a kernel took a NamedTuple that has another name now."""
    folder, _ = package()
    text = "import typing\n\n\nclass Old(typing.NamedTuple):\n    x: int\n\n\n"
    (folder / "helpers.py").write_text(text + HELPERS)
    changed(folder / "kernel.py", "add(x)", "add(x.x)")
    _, first = package()
    assert first(sys.modules["kernels.helpers"].Old(1)) == 102
    changed(folder / "helpers.py", "Old", "New")
    _, again = package()
    assert again(sys.modules["kernels.helpers"].New(1)) == 102


def test_a_kernel_is_not_compiled_again_when_something_else_has_changed(package):
    folder, first = package()
    first(1)
    (folder / "unused.py").write_text("x = 1")
    changed(folder / "__init__.py", "", "from .other import *")
    _, again = package()
    assert again(1) == 102
    assert not again.stats.cache_misses


def test_a_process_that_is_older_than_the_sources_neither_reads_nor_keeps_kernels(package):
    folder, kernel = package(started=time.time() - 60)
    assert kernel(1) == 102
    assert not list(folder.rglob("*.nb?"))
    package()[1](1)
    _, older = package(started=time.time() - 60)
    assert older(1) == 102
    assert older.stats.cache_misses


def test_sources_of_a_time_to_come_are_kept(package, monkeypatch):
    """A clock was wrong when they were installed, or is now."""
    assert package()[1](1) == 102
    _, again = package(started=time.time() - 60)
    now = time.time()
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: now - 7200)
        assert again(1) == 102
    assert not again.stats.cache_misses


def test_kernels_beside_a_package_that_is_not_writable_are_read(package, tmp_path, monkeypatch):
    _, first = package()
    first(1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    others = [kind for kind in caching.CacheImpl._locator_classes if "InTree" not in kind.__name__]
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", others)
    _, kernel = package()
    assert len(known_types(kernel)) == 1
    assert kernel(1) == 102
    assert not kernel.stats.cache_misses
    assert not list((tmp_path / "user").rglob("*.nb?"))
    kernel(1.5)  # was not compiled by whoever installed it
    assert len(list((tmp_path / "user").rglob("*.nbc"))) == 1
    _, again = package()
    assert len(known_types(again)) == 2
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "named"))
    _, again = package()
    assert known_types(again) == []


def test_the_modules_that_kernels_import_are_found_as_by_a_parser():
    kernels = [path for path in compiled.PACKAGE.rglob("*.py") if "\n@jit" in path.read_text()]
    assert len(kernels) > 50
    for path in {path for kernel in kernels for path in compiled.sources_of(kernel)}:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ImportFrom) and node.level:
                home = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
                named = {name.name: home for name in node.names}
                assert named.items() <= compiled._imports(path).items(), path
