"""The peak memory of a program, as the kernel counts it for that process alone."""

from __future__ import annotations

import functools
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from llvmlite.binding import ffi
from programs import program

import terrain_gpu
from terrain_gpu.engine.machine import COMPILED_BASELINE

MB = 10**6

# A process starts with the peak of the one that forked it, so a small one forks the program.
_MEASURE = """
import json, os, sys
pid = os.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
_, status, used = os.wait4(pid, 0)
code = os.waitstatus_to_exitcode(status)
sys.stdout.write("\\n" + json.dumps([code, used.ru_maxrss * 1024]))
"""

_LOAD = """
import ctypes, re, sys
ctypes.CDLL(sys.argv[1])
found = re.findall(r"Rss(?:File|Shmem):\\s+(\\d+)", open("/proc/self/status").read())
print(sum(map(int, found)))  # of a copy on a tmpfs as shared memory
"""


def measured(folder: Path, command: str, enough: int = 0) -> tuple[int, int, str]:
    """Exit code, peak resident set in bytes, and standard error of a program.

    If kernels were compiled meanwhile, which takes memory of its own, it runs once more, unless
    even that peak was not above `enough`, or the baseline where it refused a limit.
    """
    kernels = _kernels()
    code, peak, err = _run(folder, command)
    most = max(enough, COMPILED_BASELINE) if _refused(code, err) else enough
    return (code, peak, err) if peak <= most or _kernels() == kernels else _run(folder, command)


def _refused(code: int, err: str) -> re.Match | None:
    """What limit a program asks for, if it refused the one that it was given."""
    return re.search(r"give (at least|more than) ([0-9]+) ?MB", err) if code == 2 else None


def _kernels() -> set[tuple[str, int]]:
    """The compiled kernels kept beside the package's modules; a new one may replace an old one."""
    files = Path(terrain_gpu.__file__).parent.rglob("*.nbc")
    return {(file.name, file.stat().st_mtime_ns) for file in files}


def _run(folder: Path, command: str) -> tuple[int, int, str]:
    name, *words = shlex.split(command)
    small = [sys.executable, "-I", "-S", "-c", _MEASURE]
    done = subprocess.run(
        [*small, *program(name), *words], cwd=folder, capture_output=True, text=True, check=False
    )
    code, peak = json.loads(done.stdout.rpartition("\n")[2])
    return code, peak - _large_pages(), done.stderr


@functools.cache
def _large_pages() -> int:
    """Bytes of LLVM's library that are resident only because Linux caches it in large pages.

    A process maps whole pages of the cache. They are larger where a file was written in larger
    pieces, as pip does since version 24: then 60 MB more are resident, which all processes share.
    """
    library = Path(ffi.lib._name)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, library.name)
        with library.open("rb") as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 14)
        return max(0, _resident(library) - _resident(copy))


def _resident(library: Path) -> int:
    """Bytes of files that are resident in a program that has loaded a library."""
    command = [sys.executable, "-I", "-S", "-c", _LOAD, str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout) * 1024


def within(folder: Path, command: str, limit: int) -> tuple[int, int]:
    """Run a program under a limit, or under the least one above it that its plan accepts.

    Returns
    -------
    limit, peak
        In bytes.
    """
    for _ in range(8):
        code, peak, err = measured(folder, f"{command} --memory-limit {limit}B", limit)
        # Limits below the baseline are refused, but only after libraries and kernels are loaded.
        most = max(limit, COMPILED_BASELINE)
        assert peak <= most, f"{command}: refused with a peak of {peak}: {err}"
        if refused := _refused(code, err):
            limit = (int(refused[2]) + (refused[1] == "more than")) * MB
            continue
        assert code == 0, err
        return limit, peak
    raise AssertionError(f"{command}: {err}")
