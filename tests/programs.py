"""The programs as separate processes: started as a user does, or forked from a server.

A start spends a second on imports. Tests that need many processes, with real signals, streams and
exit codes, but not the start itself, get them from a server that has imported everything.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import numba
from pauses import Pause

import terrain_gpu
from terrain_gpu.cli import main


def program(name: str) -> list[str]:
    """The program installed beside this Python, or what it would run."""
    script = Path(sys.executable).parent / name
    if script.exists():
        return [str(script)]
    return [sys.executable, "-c", f"from terrain_gpu.cli.main import {function(name)} as f; f()"]


def function(name: str) -> str:
    """What a program calls in `terrain_gpu.cli.main`."""
    return "main" if name == "terrain-gpu" else name.replace("-", "_")


def spawn(command: str, **more) -> subprocess.CompletedProcess:
    """Start a program and wait for its end."""
    name, *words = shlex.split(command)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run([*program(name), *words], check=False, text=True, **{**pipes, **more})


def fork(folder: Path, command: str, pause: Pause | None = None) -> Run:
    """Fork a program, in that folder."""
    return server().start(folder, command, pause)


def forked(command: str) -> subprocess.CompletedProcess:
    """Fork a program, in this folder, and wait for its end."""
    run = fork(Path.cwd(), command)
    out, err = run.communicate()
    return subprocess.CompletedProcess(command, run.returncode, out, err)


@functools.cache
def server() -> Server:
    """The server, started at the first call."""
    return Server()


class Server:
    """The server process; it ends with this one.

    Parameters
    ----------
    script
        What it runs: it calls `serve`, which returns in every forked process.
    """

    def __init__(self, script: str = __file__) -> None:
        self.pipe, theirs = Pipe()
        self.streams = Path(tempfile.mkdtemp(prefix="terrain-gpu-streams-"))
        words = [sys.executable, script, str(theirs.fileno()), str(self.streams)]
        self.process = subprocess.Popen(words, pass_fds=[theirs.fileno()])
        theirs.close()
        self.pipe.recv()  # it is ready
        self.run: Run | None = None

    def start(self, folder: Path, command: str, pause: Pause | None = None) -> Run:
        if self.run and self.run.poll() is None:  # a test failed before its end
            self.run.kill()
            self.run.communicate()
        return self.begin(folder, shlex.split(command), pause)

    def begin(self, folder: Path, words: list[str], pause: Pause | None = None) -> Run:
        """Fork a program with this command line; one at a time."""
        self.pipe.send((str(folder), words, tuple(pause or ())))
        self.run = Run(self.pipe, self.streams)
        return self.run


class Run:
    """A forked program: as much of `subprocess.Popen` as the tests use."""

    def __init__(self, pipe: Connection, streams: Path) -> None:
        self.pipe, self.streams = pipe, streams
        self.pid = pipe.recv()
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and self.pipe.poll():
            self.returncode = self.pipe.recv()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Standard output and standard error, after the end."""
        if self.returncode is None:
            if not self.pipe.poll(timeout):
                raise subprocess.TimeoutExpired([], timeout or 0)
            self.returncode = self.pipe.recv()
        return (self.streams / "out").read_text(), (self.streams / "err").read_text()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            # It may have ended just now, as with subprocess.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _wait_and_fork(pipe: Connection, streams: Path) -> None:
    """For each command received, return in a new process that is to run it."""
    pipe.send("ready")
    while True:
        try:
            folder, words, pause = pipe.recv()
        except EOFError:
            shutil.rmtree(streams)
            sys.exit()
        pid = os.fork()
        if pid == 0:
            break
        pipe.send(pid)
        pipe.send(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    pipe.close()
    os.chdir(folder)
    sys.argv[:] = words
    for target, path in enumerate((os.devnull, streams / "out", streams / "err")):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, target)
        os.close(file)
    if pause:
        Pause(*pause).set_up()


def serve() -> None:
    """Import everything, wait for commands, and return in a new process for each."""
    for name in terrain_gpu.__all__:
        getattr(terrain_gpu, name)  # imports it
    numba.njit(lambda: None)()  # numba imports most of itself when it first compiles
    gc.freeze()  # a collection in the new process would touch, and so copy, all memory
    _wait_and_fork(Connection(int(sys.argv[1])), Path(sys.argv[2]))


if __name__ == "__main__":
    serve()
    if sys.argv[0] == "rio":
        from rasterio.rio.main import main_group

        main_group(prog_name="rio")
    getattr(main, function(sys.argv[0]))()
