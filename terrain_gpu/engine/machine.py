"""The memory and processors available to this process and to a run."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arguments import memory, whole

if TYPE_CHECKING:
    from ..cuda.backend import Gpu

MB = 10**6
LEAST_LIMIT = 512 * MB

BASELINE = 160 * MB
"""Bytes of interpreter, libraries, GDAL's block cache, thread stacks and malloc's slack."""

GDAL_CACHE = 48 * MB
"""Bytes of GDAL's block cache, part of `BASELINE`."""

PLAIN_BASELINE = 100 * MB
"""The baseline without GDAL and compiled kernels."""

COMPILED_BASELINE = 280 * MB
"""The baseline with numba and its compiled kernels."""

CUDA_BASELINE = 700 * MB
"""Additional memory of CUDA's context and libraries."""

VECTOR_BYTES = 40 * MB
"""Additional memory of pyogrio, with its own copy of GDAL but without optional packages."""

NO_LIMIT = 2**62
"""The default limit for rasters in memory, compared with which everything else is small."""

NO_BOUND = 2**63 - 1
"""The room of a process that is not a worker: only its limit bounds it."""

DEFAULT_BLOCK = 1024

LIBRARIES = "numba", "obstore", "pyogrio", "rasterio"
"""Libraries that take memory once loaded, and are loaded only if needed."""

whole_process = False
"""Whether this process is one of our programs, so that all its packages and memory are ours."""


def owns_process() -> bool:
    """Return whether this process is one of our programs."""
    return whole_process


@dataclass(frozen=True)
class Machine:
    """The resources available to a run and those already in use: the basis of every plan.

    Attributes
    ----------
    memory_limit
        Bytes that a process may use; negative if more than the limit is already in use.
    threads
        Largest number of threads of a process.
    gpu
        The GPU to compute on, a `cuda.backend.Gpu`; None for the CPU.
    libraries
        Those of `LIBRARIES` that are loaded. None if the process is not one of our programs; the
        memory of its packages is then not counted.
    overhead
        Bytes that the software of a cluster takes in each process; 0 without a cluster.
    room
        Bytes that every worker of a cluster may use. Plans use no more than this for optional
        buffers.
    """

    memory_limit: int
    threads: int
    gpu: Any = None
    libraries: frozenset[str] | None = None
    overhead: int = 0
    room: int = NO_BOUND

    @classmethod
    def of(cls, memory_limit: int | str | None = None, threads: int | None = None) -> Machine:
        """Return what this process may use. No other function inspects the process.

        Parameters
        ----------
        memory_limit
            Bytes, or a size such as "2GB"; None for `default_memory_limit`.
        threads
            Number of threads; None for `available_threads`.

        Raises
        ------
        InputError
            If the limit is not a size, or the number of threads is not a positive integer.
        """
        limit = limit_of(memory_limit)
        count = available_threads() if threads is None else whole("threads", threads, 1)
        loaded = frozenset(name for name in LIBRARIES if name in sys.modules)
        return cls(limit, count, libraries=loaded if whole_process else None)

    def beside(self, taken: int) -> Machine:
        """Return the machine that remains if this number of bytes is in use."""
        return replace(self, memory_limit=self.memory_limit - taken)

    def on(self, gpu: Gpu | None) -> Machine:
        """Return the same machine with this GPU, or with the CPU only if None."""
        return replace(self, gpu=gpu)

    def loading(self, *libraries: str) -> Machine:
        """Return the same machine with further libraries loaded."""
        if self.libraries is None:
            return self
        return replace(self, libraries=self.libraries.union(libraries))

    @property
    def in_cluster(self) -> bool:
        """Whether workers of a cluster solve blocks. They hold no knowledge of all blocks."""
        return self.overhead > 0

    def baseline(self, block: int = DEFAULT_BLOCK, *, compiled: bool = True) -> int:
        """Return the bytes of a process before it reads a cell.

        Parameters
        ----------
        block
            The block size.
        compiled
            Whether the operation has compiled kernels; others may have been loaded before.
        """
        vectors = VECTOR_BYTES if self.has("pyogrio") else 0
        kernels = COMPILED_BASELINE if compiled else self._plain
        return kernels + self.overhead + vectors + self.objects(block)

    @property
    def _plain(self) -> int:
        """The baseline without compiled kernels, if no earlier step has loaded numba or GDAL."""
        if self.libraries is None or "numba" in self.libraries:
            return COMPILED_BASELINE
        return BASELINE if "rasterio" in self.libraries else PLAIN_BASELINE

    def objects(self, block: int) -> int:
        """Return the bytes that object storage needs, if it is used, for this block size."""
        if not self.has("obstore"):
            return 0
        from ..store.objects import bytes_held  # keeps start-up fast

        return bytes_held(block)

    def has(self, library: str) -> bool:
        """Return whether a library is loaded and its memory is counted."""
        return self.libraries is not None and library in self.libraries


def limit_of(memory_limit: int | str | None) -> int:
    """Return a memory limit in bytes; None means `default_memory_limit`.

    Raises
    ------
    InputError
        If it is not a size.
    """
    if memory_limit is None:
        return default_memory_limit()
    if isinstance(memory_limit, int | np.integer) and not isinstance(memory_limit, bool):
        return int(memory_limit)  # internal callers may pass a negative number after deductions
    return memory("memory_limit", memory_limit)


def default_memory_limit() -> int:
    """Return a quarter of the machine's memory, at least 512 MB."""
    return max(machine_memory() // 4, LEAST_LIMIT)


def machine_memory() -> int:
    """Return the bytes available to this process on its machine, in its container or batch job."""
    return min(memory_limits().values())


def memory_limits(
    proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")
) -> dict[str, int]:
    """Return the limits in bytes on all processes of the machine, container and batch job together.

    They are the machine's memory and the limits of control groups (version 2, one tree, or version
    1, a tree for memory) of this process and the enclosing groups. A batch system has a group for
    every task inside that of the job. Processes that share a limit have the same name for it.
    """
    machine = socket.gethostname()
    with suppress(OSError):  # containers have host names of their own
        machine = (proc / "sys/kernel/random/boot_id").read_text().strip()
    limits = {machine: os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}
    with suppress(OSError):
        machine += " " + os.readlink(proc / "self/ns/cgroup")
    with suppress(OSError):
        for line in (proc / "self/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds and "memory" not in kinds.split(","):
                continue
            top = groups / "memory" if kinds else groups
            name = "memory.limit_in_bytes" if kinds else "memory.max"
            inner = top / path.lstrip("/")
            for folder in (inner, *inner.parents):
                # In a container the path may be the host's: then only the top exists.
                with suppress(OSError, ValueError):
                    group = path if folder == top else folder
                    limits[f"{machine} {group}"] = int((folder / name).read_text())
                if folder == top:
                    break
    return limits


def available_threads() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
