"""Kernels compiled by numba: they release Python's lock, and are cached on disk where possible."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import gc
import hashlib
import inspect
import logging
import os
import pickle
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
from numba.core import event
from numba.core.caching import FunctionCache, IndexDataCacheFile

log = logging.getLogger(__name__)

PACKAGE = Path(__file__).parent
LONGEST = 120.0
"""Seconds to wait for a process that compiles; it may have been stopped."""

_FROM = re.compile(r"^from[ \t]+(\.+)([\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]*)", re.M)


_DAMAGED = OSError, AttributeError, ImportError, EOFError, ValueError, pickle.UnpicklingError
"""What reading a cache raises: it may not be read, names a class that an older version had, or a
power cut has left zeros."""


def _started() -> float:
    """When this process started, or the one that it was forked from: modules were read later."""
    now = time.time()
    with contextlib.suppress(OSError, IndexError, ValueError):
        words = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        since_boot = int(words[19]) / os.sysconf("SC_CLK_TCK")
        return min(now, now - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot)
    return now


STARTED = _started()


class _Compiling(event.Listener):
    """Collects garbage rarely while numba compiles, which makes many objects that last.

    With Python's threshold of 700 objects a sixth of the time is spent on them. numba compiles one
    kernel at a time, and others within it.
    """

    def __init__(self) -> None:
        self._before: list[tuple[int, int, int]] = []

    def on_start(self, event: event.Event) -> None:
        self._before.append(gc.get_threshold())
        if 0 < gc.get_threshold()[0] < 20_000:
            gc.set_threshold(20_000, 10, 100)

    def on_end(self, event: event.Event) -> None:
        gc.set_threshold(*self._before.pop())
        kernel = event.data.get("dispatcher")
        cache = getattr(kernel, "_cache", None)
        # numba's `is_failed` is the wrong way round.
        if isinstance(cache, _Cache) and tuple(event.data["args"]) not in kernel.overloads:
            cache.give_up()


event.register("numba:compile", _Compiling())


def jit(function: Callable[..., Any]) -> Any:
    """`numba.njit` of a kernel."""
    # Without an entry for C, which nothing calls and takes 3 % of the time to compile.
    kernel: Any = numba.njit(function, nogil=True, no_cfunc_wrapper=True)  # type: ignore[call-overload]
    # Not cached when neither the package's folder nor the user's is writable.
    with contextlib.suppress(RuntimeError):
        kernel._cache = _Cache(function)
    return kernel


class _Cache(FunctionCache):
    """numba's cache of a kernel, never stale, and safe where several processes compile at once.

    What one process compiles, others wait for: workers that start together need the same kernels.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        # Without the line where the kernel begins: else files of old versions would never go.
        line = f"-{self._impl.locator.get_disambiguator()}."
        name = ".".join(self._impl.filename_base.rsplit(line, 1))
        self._cache_file = _CacheFile(self._cache_path, name, inspect.getfile(function))
        self._turns: dict[Any, _Turn] = {}

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = super().load_overload(sig, target_context)
        if found is None and sig not in self._turns:
            self._turns[sig] = turn = _Turn(self._cache_file.turn_of(sig))
            if turn.has_waited and (found := super().load_overload(sig, target_context)):
                self._turns.pop(sig).end()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:  # such as a full disk: the kernel is in memory, and used
            _warn_not_kept(self._cache_path, error.strerror or str(error))
        finally:
            if sig in self._turns:
                self._turns.pop(sig).end()

    def give_up(self) -> None:
        """End the turn of a compilation that failed or was interrupted."""
        while self._turns:
            self._turns.popitem()[1].end()

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return *super()._index_key(sig, codegen), self._py_func.__code__.co_firstlineno


@functools.cache
def _warn_not_kept(folder: str, reason: str) -> None:
    log.warning(
        "%s: compiled kernels cannot be kept: %s; every run compiles them again, unless "
        "NUMBA_CACHE_DIR names a folder with room",
        folder,
        reason,
    )


class _Turn:
    """A turn to compile; waits while another process has it, unless that one may be stopped.

    Ends with the process at the latest.
    """

    def __init__(self, path: str) -> None:
        self.has_waited = False
        self._path, self._number = path, -1
        with contextlib.suppress(OSError):  # no folder to write to, or no locks there
            os.makedirs(os.path.dirname(path), exist_ok=True)
            self._number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            until = time.monotonic() + LONGEST
            while not self._taken() and time.monotonic() < until:
                self.has_waited = True
                time.sleep(0.02)

    def _taken(self) -> bool:
        try:
            fcntl.flock(self._number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def end(self) -> None:
        """Let the next process have it, which finds the kernel."""
        if self._number >= 0:
            with contextlib.suppress(OSError):
                os.remove(self._path)
            os.close(self._number)


class _CacheFile(IndexDataCacheFile):
    """The files of a kernel: an index, and one file of code for each signature.

    numba calls an index stale when the file of the kernel has changed, though machine code also
    contains what the kernel calls. Ours holds the digest of all sources that the file imports.

    numba reads the index, adds a line and writes it back. When two processes do this at once,
    one loses its line, and both may use the same name for their code.

    If the package's folder is not writable, what lies there, made by whoever installed it, is read,
    unless NUMBA_CACHE_DIR names another folder.
    """

    def __init__(self, folder: str, name: str, source: str) -> None:
        super().__init__(folder, name, None)
        self._source = source
        installed = os.path.join(os.path.dirname(source), "__pycache__")
        elsewhere = not numba.config.CACHE_DIR and folder != installed  # type: ignore[attr-defined]
        self._installed = _CacheFile(installed, name, source) if elsewhere else None

    def turn_of(self, sig: Any) -> str:
        """The file beside the index that is locked while a signature is compiled."""
        digest = hashlib.sha256(repr(sig).encode()).hexdigest()[:12]
        return f"{self._index_path.removesuffix('.nbi')}.{digest}.turn"

    def save(self, key: Any, data: Any) -> None:
        if digest_of(self._source):
            with _locked(self._cache_path, fcntl.LOCK_EX):
                super().save(key, data)

    def load(self, key: Any) -> Any:
        with _locked(self._cache_path, fcntl.LOCK_SH):
            try:
                found = super().load(key)
            except _DAMAGED:
                found = None
        return self._installed.load(key) if found is None and self._installed else found

    def _load_index(self) -> dict[Any, str]:
        self._source_stamp = digest_of(self._source)
        if not self._source_stamp:
            return {}
        try:
            found: dict[Any, str] = super()._load_index()
        except _DAMAGED:
            found = {}
        return found

    def keys(self) -> list[Any]:
        """Everything that this file or the installed one has."""
        return [*self._load_index(), *(self._installed.keys() if self._installed else [])]


@functools.cache
def digest_of(file: str) -> str | None:
    """Digest of a source and of all modules of the package that it imports, directly or not.

    None if one of them has changed since this process started: it may have imported another one.
    """
    total = hashlib.sha256()
    for path in sources_of(Path(file)):
        # A time still to come is that of a clock that was wrong.
        if STARTED < path.stat().st_ctime <= time.time():
            return None
        total.update(_read(path)[0])
    return total.hexdigest()


def sources_of(file: Path) -> list[Path]:
    """A source and all modules of the package that it imports, directly or not, in order."""
    found, new = {file}, [file]
    while new:
        more = _read(new.pop())[1] - found
        found |= more
        new += more
    return sorted(found)


@functools.cache
def _read(file: Path) -> tuple[bytes, frozenset[Path]]:
    """Digest of a source, and the modules of the package that it imports.

    Its text is searched, which takes a fortieth of the time of parsing it. What other packages do
    is not followed: numba's index names numba's version.
    """
    imported = _imports(file).items()
    found = [path for name, home in imported for path in _homes(home, name) if path != file]
    inside = frozenset(path for path in found if PACKAGE in path.parents)
    return hashlib.sha256(file.read_bytes()).digest(), inside


@functools.cache
def _imports(file: Path) -> dict[str, Path]:
    """The names that a source imports from its package, and where from, without suffix."""
    found = {}
    for dots, module, names in _FROM.findall(file.read_text()):
        home = file.parents[len(dots) - 1].joinpath(*module.split("."))
        found.update(dict.fromkeys(re.findall(r"\w+(?= as )|\w+", names), home))
    return found


def _homes(home: Path, name: str) -> list[Path]:
    """The files of a module of that name, or else of the module that it is imported from.

    If that is a package which has imported the name itself, then from where: modules beside that
    one do not matter.
    """
    if files := _files(home / name):
        return files
    files = _files(home)
    further = _imports(files[0]) if files and files[0].stem == "__init__" else {}
    return _homes(further[name], name) if name in further else files


def _files(module: Path) -> list[Path]:
    return [path for path in (module.with_suffix(".py"), module / "__init__.py") if path.is_file()]


@contextlib.contextmanager
def _locked(folder: str, how: int) -> Iterator[None]:
    """Hold a lock on a folder; continue without one where it cannot be locked."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # missing so far, or on a file system without locks
            number = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, number)
            fcntl.flock(number, how)
        yield


def cache_folder() -> Path | None:
    """The folder in or below which kernels of the package are kept; None if none is writable."""
    probe = jit(_read.__wrapped__)
    if not _is_kept(probe):
        return None
    folder = Path(probe._cache.cache_path)
    return PACKAGE if PACKAGE in folder.parents else folder.parent


def known_types(kernel: Any) -> list[tuple[Any, ...]]:
    """Argument types that a kernel is already compiled for, in memory or in numba's cache."""
    kept = kernel._cache._cache_file.keys() if _is_kept(kernel) else []
    return [*kernel.signatures, *(key[0] for key in kept)]


def tell_compiling(kernel: Any, what: str) -> None:
    """Log that kernels are about to be compiled."""
    for_ever = "this happens once"
    if not _is_kept(kernel):
        for_ever = "set NUMBA_CACHE_DIR to a writable folder, and this happens once"
    log.warning("compiling kernels for %s; %s", what, for_ever)


def _is_kept(kernel: Any) -> bool:
    return hasattr(kernel._cache, "_cache_file")
