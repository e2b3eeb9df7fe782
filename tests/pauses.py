"""Programs that pause by themselves, for signals at moments that do not depend on speed.

A test that waits until it sees a run midway, and only then sends a signal, may be too late.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from programs import Run

HANGS = 600
"""Seconds after which something that must happen does not."""


class Pause(NamedTuple):
    """Where a program stops as if by Ctrl-Z: at one of Python's audit events.

    Once continued it may do some more; beyond `most` it ends with exit code 99.
    """

    event: str
    path: str
    """Part of a path in the event."""

    number: int
    """Which event with such a path, from 1."""

    most: int
    """How many more may come."""

    def set_up(self) -> None:
        """In the program itself."""
        numbers = itertools.count(1)

        def hook(event: str, args: tuple[Any, ...]) -> None:
            if event == "os.rename" and not os.path.isdir(os.path.dirname(args[1])):
                return  # the first file of a folder is renamed again once there is one
            if event == self.event and any(self.path in str(part) for part in args):
                number = next(numbers)
                if number == self.number:
                    os.kill(os.getpid(), signal.SIGSTOP)
                elif number > self.number + self.most:
                    os._exit(99)

        from terrain_gpu.store import layer, writer

        # Compiled code opens and renames shards without an event.
        if self.event == "open":
            layer.shards_at_once = lambda compress: None
        writer.saves_at_once = lambda compress: None
        sys.addaudithook(hook)


def pausing(script: str, words: list[str], pause: Pause) -> list[str]:
    """The command line that starts a program as a user does, but with the pause."""
    return [sys.executable, __file__, json.dumps(pause), script, *words]


def wait_for_pause(process: Run | subprocess.Popen) -> None:
    """Wait until a program has paused; it must not end before."""
    end = time.monotonic() + HANGS
    while process.poll() is None:
        with contextlib.suppress(FileNotFoundError):  # it ended just now
            if Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                return
        assert time.monotonic() < end, "it does not pause"
        time.sleep(0.002)
    raise AssertionError(f"ended before it paused: {process.communicate()}")


def go_on(process: Run | subprocess.Popen, number: int) -> tuple[str, str]:
    """Signal a paused program, let it run to its end, and return its standard streams."""
    process.send_signal(number)
    process.send_signal(signal.SIGCONT)
    return process.communicate()


if __name__ == "__main__":
    del sys.path[0]  # the tests
    _, given, *sys.argv[:] = sys.argv
    Pause(*json.loads(given)).set_up()
    runpy.run_path(sys.argv[0], run_name="__main__")
