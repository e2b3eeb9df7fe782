"""Kernels where numba has no folder to keep them in."""

from __future__ import annotations

from numba.core import caching

from terrain_gpu.compiled import jit, known_types, tell_compiling


def more(x):
    return x + 1


def test_kernels_that_cannot_be_kept(monkeypatch, caplog):
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    kernel = jit(more)
    tell_compiling(kernel, "tests")
    assert "kernels for tests; set NUMBA_CACHE_DIR to a folder that can be written" in caplog.text
    assert known_types(kernel) == []
    assert kernel(1) == 2
    assert len(known_types(kernel)) == 1


def test_kernels_that_are_kept(caplog):
    tell_compiling(jit(more), "tests")
    assert "compiling kernels for tests; this happens once" in caplog.text
