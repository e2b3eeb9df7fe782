"""Whole programs, as users run them: what they take, and what their reports say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench.timing import Spent

ROOT = Path(__file__).parents[1]
START = "from terrain_gpu.cli.main import main; main()"


class Run(NamedTuple):
    """Seconds of a process and its children, bytes at its peak, and its report."""

    spent: Spent
    peak: int
    report: dict[str, Any]

    @property
    def total(self) -> float:
        """From opened input to committed result, without the start of the program."""
        return self.report["seconds"]["total"]


def command(*words: object) -> list[str]:
    """The words that start a command of this checkout, installed or not."""
    return [sys.executable, "-c", START, *map(str, words)]


def process(words: list[str], **how: Any) -> tuple[Spent, int]:
    """Seconds of a process and its children, and bytes at its peak."""
    begin = time.perf_counter()
    started = subprocess.Popen(words, **how)
    _, status, usage = os.wait4(started.pid, 0)
    wall, started.returncode = time.perf_counter() - begin, os.waitstatus_to_exitcode(status)
    if started.returncode:
        raise subprocess.CalledProcessError(started.returncode, words)
    return Spent(wall, usage.ru_utime + usage.ru_stime), usage.ru_maxrss * 1024


def run(*words: object) -> Run:
    """Run a command of this checkout."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        spent, peak = process(command(*words, "-q", "--json", report), env=env)
        return Run(spent, peak, json.loads(report.read_text()))
