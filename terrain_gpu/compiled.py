"""Kernels compiled by numba: they release Python's lock, and are cached on disk where possible."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile

log = logging.getLogger(__name__)


def jit(function: Callable[..., Any]) -> Any:
    """`numba.njit` of a kernel."""
    kernel: Any = numba.njit(function, nogil=True)
    # Not cached when neither the package's folder nor the user's is writable.
    with contextlib.suppress(RuntimeError):
        kernel._cache = _Cache(function)
    return kernel


class _Cache(FunctionCache):
    """numba's cache of a kernel, safe where several processes compile at the same time."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        source = self._impl.locator.get_source_stamp()
        self._cache_file = _CacheFile(self._cache_path, self._impl.filename_base, source)


class _CacheFile(IndexDataCacheFile):
    """The files of a kernel: an index, and one file of code for each signature.

    numba reads the index, adds a line and writes it back. When two processes do this at once,
    one loses its line, and both may use the same name for their code.
    """

    def save(self, key: Any, data: Any) -> None:
        with _locked(self._cache_path, fcntl.LOCK_EX):
            super().save(key, data)

    def load(self, key: Any) -> Any:
        with _locked(self._cache_path, fcntl.LOCK_SH):
            return super().load(key)


@contextlib.contextmanager
def _locked(folder: str, how: int) -> Iterator[None]:
    """Hold a lock on a folder; continue without one where it cannot be locked."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # missing so far, or on a file system without locks
            number = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, number)
            fcntl.flock(number, how)
        yield


def known_types(kernel: Any) -> list[tuple[Any, ...]]:
    """Argument types that a kernel is already compiled for, in memory or in numba's cache."""
    kept = kernel._cache._cache_file._load_index() if _is_kept(kernel) else {}
    return [*kernel.signatures, *(key[0] for key in kept)]


def tell_compiling(kernel: Any, what: str) -> None:
    """Log that kernels are about to be compiled."""
    for_ever = "this happens once"
    if not _is_kept(kernel):
        for_ever = "set NUMBA_CACHE_DIR to a writable folder, and this happens once"
    log.warning("compiling kernels for %s; %s", what, for_ever)


def _is_kept(kernel: Any) -> bool:
    return hasattr(kernel._cache, "_cache_file")
