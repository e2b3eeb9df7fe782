"""The memory and processors that this process may use."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

LEAST_LIMIT = 512 * 10**6


def default_memory_limit() -> int:
    """Return a quarter of the machine's memory, at least 512 MB."""
    return max(machine_memory() // 4, LEAST_LIMIT)


def machine_memory() -> int:
    """Return the bytes that this process may use: the machine's, its container's or batch job's."""
    return min(memory_limits().values())


def memory_limits(
    proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")
) -> dict[str, int]:
    """Return the limits in bytes on all processes of the machine, container and batch job together.

    They are the machine's memory, and limits of control groups, of version 2 (one tree) or 1 (a
    tree for memory), of this process and the enclosing groups. A batch system has a group for every
    task, inside that of the job. The names are equal in processes that share a limit.
    """
    machine = socket.gethostname()
    with suppress(OSError):  # containers have host names of their own
        machine = (proc / "sys/kernel/random/boot_id").read_text().strip()
    found = {machine: os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}
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
                    place = path if folder == top else folder
                    found[f"{machine} {place}"] = int((folder / name).read_text())
                if folder == top:
                    break
    return found


def available_threads() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
