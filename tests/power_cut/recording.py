"""Run functions under the recorder, each in a process forked from one that has imported all."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numba

import terrain_gpu

SOURCE = Path(__file__).with_name("recorder.c")


def why_not() -> str | None:
    """Why nothing can be recorded here, None when it can."""
    if sys.platform != "linux":
        return "the recorder is for Linux"
    if shutil.which("gcc") is None:
        return "no gcc to compile the recorder with"
    return None


def record(root: Path, log: Path, function: Callable[..., None], *arguments: Any) -> str | None:
    """Call a function of a module, log what it does below `root`, and return its error, if any."""
    return _server().call(root, log, function, arguments)


@functools.cache
def _server() -> _Server:
    return _Server()


class _Server:
    """The process that forks; it ends with this one."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="terrain-gpu-recorder-")
        library = Path(self.folder.name) / "recorder.so"
        flags = ["-shared", "-fPIC", "-O1", "-ldl", "-lpthread"]
        subprocess.run(["gcc", str(SOURCE), "-o", str(library), *flags], check=True)
        self.pipe, theirs = Pipe()
        words = [sys.executable, "-c", "from power_cut.recording import serve; serve()"]
        package = Path(terrain_gpu.__file__).parents[1]
        paths = [str(package), str(SOURCE.parents[1]), os.environ.get("PYTHONPATH", "")]
        self.process = subprocess.Popen(
            [*words, str(theirs.fileno()), str(library)],
            pass_fds=[theirs.fileno()],
            env={
                **os.environ,
                "LD_PRELOAD": str(library),
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                "CUDA_VISIBLE_DEVICES": "",
            },
        )
        theirs.close()

    def call(self, root: Path, log: Path, function: Callable[..., None], arguments: Any) -> Any:
        self.pipe.send((root, log, function, arguments))
        return self.pipe.recv()


def serve() -> None:
    """Run each call received in a process of its own."""
    from power_cut import cases  # noqa: F401  what the calls need

    for name in terrain_gpu.__all__:
        getattr(terrain_gpu, name)  # imports it
    numba.njit(lambda: None)()  # numba imports most of itself when it first compiles
    gc.freeze()  # a collection in the new process would touch, and so copy, all memory
    pipe, library = Connection(int(sys.argv[1])), ctypes.CDLL(sys.argv[2])
    while True:
        try:
            root, log, function, arguments = pipe.recv()
        except EOFError:
            return
        pid = os.fork()
        if pid:
            if os.waitpid(pid, 0)[1]:
                pipe.send("the recorded process died")
            continue
        error = None
        try:
            library.recorder_start(os.fsencode(root), os.fsencode(log))
            function(*arguments)
        except BaseException:
            error = traceback.format_exc()
        library.recorder_stop()
        pipe.send(error)
        os._exit(0)
