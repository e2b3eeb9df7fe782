"""The machine-readable report of a run."""

from __future__ import annotations

import ctypes
import json
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from . import __version__
from .described import Described
from .facts import Findings, Settings


def process_io() -> tuple[int, int] | None:
    """Bytes that this process has read and written through system calls; None if not on Linux."""
    try:
        with open("/proc/self/io", encoding="utf-8") as lines:
            counters = dict(line.split(": ") for line in lines)
    except OSError:
        return None
    return int(counters["rchar"]), int(counters["wchar"])


_MMAP_THRESHOLD = -3


def peak_rss() -> int:
    """Peak resident set size of this process in bytes."""
    with suppress(OSError), open("/proc/self/status", encoding="utf-8") as lines:
        # Not from getrusage, whose peak includes that of the parent process.
        for line in lines:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def trim() -> None:
    """Return freed memory that the allocator keeps, which can be as much as a phase needs."""
    with suppress(AttributeError):  # only in glibc
        ctypes.CDLL(None).malloc_trim(0)


def return_large_arrays() -> None:
    """Make the allocator return large arrays when freed; otherwise each thread keeps some."""
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 4 << 20)


@dataclass(repr=False)
class Report(Described):
    """Report of a run: written by ``--json``, returned by the library functions.

    Attributes
    ----------
    command
        Name of the command.
    cells, valid_cells
        Number of cells in the raster, and number of valid cells.
    seconds
        "total", from the opened store or input to the committed result, and one entry per phase.
    bytes_read, bytes_written
        Bytes in system calls of this process during the run; None if the system does not count
        them.
    peak_rss_bytes
        Peak resident set size of the process so far.
    settings
        The options of the run, and those chosen by the planner.
    result
        The results; the keys depend on the command.
    """

    command: str
    cells: int = 0
    valid_cells: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    bytes_read: int | None = None
    bytes_written: int | None = None
    peak_rss_bytes: int = 0
    settings: Settings = field(default_factory=dict)
    result: Findings = field(default_factory=dict)
    version: str = __version__

    def facts_shown(self) -> Findings:
        return {
            "command": self.command,
            "cells": self.cells,
            "seconds": round(self.seconds.get("total", 0.0), 3),
            **self.result,
        }

    @contextmanager
    def measured(self) -> Iterator[Report]:
        """Time the body and count its bytes as the total of the run."""
        before, start = process_io(), time.perf_counter()
        yield self
        after = process_io()
        self.seconds["total"] = time.perf_counter() - start
        if before and after:
            self.bytes_read, self.bytes_written = after[0] - before[0], after[1] - before[1]
        self.peak_rss_bytes = peak_rss()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase, and return the memory it freed to the system."""
        start = time.perf_counter()
        yield
        trim()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def add_steps_before(self, seconds: dict[str, float]) -> None:
        """Add the seconds of earlier steps that made the inputs of this run."""
        self.seconds |= {f"before: {step}": spent for step, spent in seconds.items()}

    def add_file(self, more: Report) -> None:
        """Add what a file took that was drawn after this run."""
        for name, spent in more.seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
        if self.bytes_read is not None and more.bytes_read is not None:
            self.bytes_read += more.bytes_read
        if self.bytes_written is not None and more.bytes_written is not None:
            self.bytes_written += more.bytes_written
        self.peak_rss_bytes = more.peak_rss_bytes
        self.result |= more.verified

    @property
    def verified(self) -> Findings:
        """The entries of `result` from a proof."""
        return {k: v for k, v in self.result.items() if k.startswith("verified_")}

    def to_json(self) -> str:
        """Strict JSON with the documented keys."""
        keys = (
            "command",
            "version",
            "cells",
            "valid_cells",
            "seconds",
            "bytes_read",
            "bytes_written",
            "peak_rss_bytes",
            "settings",
            "result",
        )
        return json.dumps({key: getattr(self, key) for key in keys}, indent=2, allow_nan=False)
