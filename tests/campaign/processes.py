"""The processes of a step: forked under a fault, waited for, and judged by how they end."""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import programs

import terrain_gpu

from .cases import Fault

CHILD = str(Path(__file__).with_name("child.py"))
PATIENCE = 150
"""Seconds after which a command hangs; kernels that were never compiled take a minute."""
NOTES = ("WARNING: ", "INFO: ", "_tiff")
"""Lines that may come before an error; the last is GDAL's TIFF library, which cannot be told."""


class Failure(Exception):
    """A broken promise: its kind, its details, and the commands up to it."""

    def __init__(self, kind: str, what: str, transcript: list[str]) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind, self.what, self.transcript = kind, what, transcript

    @property
    def signature(self) -> str:
        """What failures of one cause share: no numbers, no file names."""
        lines = [line for line in self.what.strip().splitlines() if line.strip()]
        text = " ".join(dict.fromkeys(lines[:1] + lines[-1:]))
        names = r"[/\w.-]*/[/\w.-]+|0x\w+|\d[\d.e+-]*|'[^']*'"
        return f"{self.kind}: " + re.sub(names, "~", text)[:160]


@dataclass
class Outcome:
    """How a process ended."""

    code: int
    out: str
    err: str

    @property
    def name(self) -> str:
        return {0: "done", 1: "error 1", 2: "error 2"}.get(self.code, "killed")


@functools.cache
def _server(number: int) -> programs.Server:
    """Two of them, for two writers."""
    return programs.Server(CHILD)


class Processes:
    """Runs programs in the folder of a case and keeps a transcript of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.transcript: list[str] = []

    def fail(self, kind: str, what: str) -> None:
        raise Failure(kind, what, self.transcript)

    def aside(self, words: list[str], folder: Path | None = None) -> Outcome:
        """Run one of the campaign's own programs, without faults or transcript."""
        return self._wait(_server(1).begin(folder or self.folder, ["{}", *words]))

    def run(self, words: list[str], fault: Fault | None, beside: list[str] | None) -> list[Outcome]:
        """Run one program under a fault, or two at once."""
        self.transcript.append(shlex.join(words) + (f"    # {fault}" if fault else ""))
        plan = self._plan(fault)
        first: Any
        if fault and fault.kind == "home":
            first = Homeless(self.folder, words)
        else:
            first = _server(0).begin(self.folder, [json.dumps(plan), *words])
        running = [first]
        if beside:
            self.transcript.append(shlex.join(beside) + "    # at the same time")
            running.append(_server(1).begin(self.folder, ["{}", *beside]))
        if fault and fault.kind == "kill" and fault.at < 0:
            try:
                first.communicate(timeout=-fault.at)
            except subprocess.TimeoutExpired:
                first.send_signal(signal.Signals[fault.what])
        outcomes = [self._wait(process) for process in running]
        (self.folder / "ballast").unlink(missing_ok=True)
        sent = {-signal.Signals[fault.what]} if fault and fault.kind == "kill" else set()
        for outcome in outcomes:
            self._judge(outcome, sent)
        return outcomes

    def _plan(self, fault: Fault | None) -> dict[str, Any]:
        """What the process sets up by itself; see `child.prepare`."""
        if fault is None or (fault.kind == "kill" and fault.at < 0):
            return {}
        at = int(fault.at)
        if fault.kind == "disk" and os.path.ismount(self.folder):
            room = os.statvfs(self.folder)
            size = max(0, room.f_bavail * room.f_frsize - at)
            (self.folder / "ballast").write_bytes(bytes(size))
            return {}
        always = fault.how == "always"
        return {
            "kill": {"event": {"number": at, "signal_name": fault.what}},
            "error": {"event": {"number": at, "error": fault.what, "always": always}},
            "disk": {"limits": {"RLIMIT_FSIZE": at}},
            "fsize": {"limits": {"RLIMIT_FSIZE": at}},
            "files": {"limits": {"RLIMIT_NOFILE": at}},
            "nobody": {"nobody": True},
        }.get(fault.kind, {})

    def _wait(self, process: Any) -> Outcome:
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGUSR1)  # where does it hang?
            time.sleep(1)
            process.kill()
            _, err = process.communicate()
            self.fail("hang", err)
        return Outcome(process.returncode, out, err)

    def _judge(self, found: Outcome, sent: set[int]) -> None:
        """No crash, no traceback, one line for an error."""
        code, err = found.code, found.err
        self.transcript.append(f"#   {code} {err.strip()[-500:]}")
        if code in sent:
            return
        whole = f"exit code {code}\n{err}"
        if code not in (0, 1, 2):
            self.fail("crash", whole)
        if re.search(r"Traceback|Exception ignored|Fatal Python error", err):
            self.fail("traceback", whole)
        if "Error: unexpected" in err:
            self.fail("unexpected", err)
        lines = [line for line in err.splitlines() if line and not line.startswith(NOTES)]
        if len(lines) != bool(code) or not all(line.startswith("Error: ") for line in lines):
            self.fail("message", whole)
        if code and "out of memory" in err:
            self.fail("memory", whole)


class Homeless:
    """A process started afresh, where neither the package nor the home is writable.

    So there is no place for compiled kernels. As much of `programs.Run` as is needed.
    """

    def __init__(self, folder: Path, words: list[str]) -> None:
        self.package = folder.with_name("package")
        copy = self.package / "terrain_gpu"
        compiled = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(terrain_gpu.__file__).parent, copy, ignore=compiled)
        # A copy, mounted on itself: whatever goes wrong, only the copy can be lost.
        bind = ["mount", "--bind", str(copy), str(copy)]
        self.bound = not subprocess.run(bind, check=False, capture_output=True).returncode
        if self.bound:
            subprocess.run(["mount", "-o", "remount,ro,bind", str(copy)], check=True)
        places = [str(self.package), *filter(None, sys.path)]
        home = {"HOME": "/proc/nowhere", "PYTHONPATH": os.pathsep.join(places)}
        self.process = subprocess.Popen(
            [sys.executable, CHILD, "alone", *words],
            cwd=folder,
            env={**os.environ, **home},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.send_signal, self.kill = self.process.send_signal, self.process.kill

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        try:
            return self.process.communicate(timeout=timeout)
        finally:
            if self.process.returncode is not None and self.package.exists():
                if self.bound:
                    subprocess.run(["umount", "-l", f"{self.package}/terrain_gpu"], check=True)
                shutil.rmtree(self.package)

    @property
    def returncode(self) -> int:
        return self.process.returncode
