"""Find the program terrain-gpu, and run it: progress, messages, cancel."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from glob import glob
from pathlib import Path
from typing import IO, Any

NAME = "terrain-gpu"
VARIABLE = "TERRAIN_GPU_PROGRAM"
"""The environment variable that names the program, for `qgis_process`."""

PLACES = (
    "~/.local/bin", "~/bin", "~/terrain_gpu/.venv/bin", "~/.venv/bin", "~/venv/bin",
    "~/.virtualenvs/*/bin", "~/.pyenv/versions/*/bin", "~/*conda*/bin", "~/*conda*/envs/*/bin",
    "~/*mamba*/bin", "~/*mamba*/envs/*/bin", "~/miniforge3/bin", "~/miniforge3/envs/*/bin",
    "~/.conda/envs/*/bin", "/opt/conda/bin", "/opt/conda/envs/*/bin", "/usr/local/bin",
)  # fmt: skip
"""Where environments usually are."""

INSTALL = (
    "Install it into a Python environment of its own, in a terminal:\n"
    "  python3 -m venv ~/.venv && ~/.venv/bin/pip install 'terrain_gpu[vector]'\n"
    "or name it under Settings > Options > Processing > Providers > terrain_gpu."
)
OF_QGIS = (
    "PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONEXECUTABLE", "LD_PRELOAD",
    "LD_LIBRARY_PATH", "GDAL_DATA", "GDAL_DRIVER_PATH", "PROJ_LIB", "PROJ_DATA", "QT_PLUGIN_PATH",
)  # fmt: skip
"""Variables that lead to the libraries of QGIS."""

CANCEL_WITHIN = 300.0
"""Seconds after a cancel in which the program may tidy up, before it is killed."""


class ProgramMissing(Exception):
    """There is no program."""


class ProgramFailed(Exception):
    """The program ended with an error.

    Attributes
    ----------
    code
        2 for wrong input, else 1.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def find(told: str = "") -> str:
    """Return the path of the program.

    Parameters
    ----------
    told
        The program, or the folder of its environment; else the variable TERRAIN_GPU_PROGRAM, PATH
        and `PLACES` are searched.

    Raises
    ------
    ProgramMissing
        With what to do.
    """
    for name in (told, os.environ.get(VARIABLE, "")):
        if name:
            path = Path(name).expanduser()
            for file in (path, path / "bin" / NAME, path / NAME):
                if file.is_file() and os.access(file, os.X_OK):
                    return str(file)
            raise ProgramMissing(f"{name}: no program {NAME} there.\n{INSTALL}")
    folders = [os.environ.get("PATH", os.defpath)]
    folders += [found for place in PLACES for found in sorted(glob(os.path.expanduser(place)))]
    for folder in folders:
        if found := shutil.which(NAME, path=folder):
            return found
    raise ProgramMissing(f"The program {NAME} was not found.\n{INSTALL}")


def environment() -> dict[str, str]:
    """The environment variables of the program: those of QGIS do not lead it astray."""
    return {name: value for name, value in os.environ.items() if name not in OF_QGIS}


def version(program: str) -> str:
    """Return the version of a program; "" if it is something else."""
    ended = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=False, env=environment(),
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    name, _, number = ended.stdout.strip().partition(" ")
    return number if name == "terrain_gpu" else ""


def run(
    words: Sequence[str],
    progress: Callable[[dict[str, Any]], None],
    message: Callable[[str], None],
    cancelled: Callable[[], bool],
) -> None:
    """Run a program with `--progress json` to its end.

    Parameters
    ----------
    words
        The program and its command line.
    progress
        Called with each line of progress: phase, done, total, bytes, seconds, seconds_left.
    message
        Called with every other line.
    cancelled
        Asked ten times a second; once true, the program is told to end.

    Raises
    ------
    ProgramFailed
        If it does not end with code 0; with its error message.
    """
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        encoding="utf-8", errors="replace", env=environment(),
    )  # fmt: skip
    try:
        errors = [line for line in _told(process, progress, message, cancelled)]
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            _close(stream)
    if process.returncode != 0:
        text = "\n".join(errors) or f"{words[0]} ended with code {process.returncode}"
        raise ProgramFailed(text, process.returncode)


def _told(
    process: subprocess.Popen[str],
    progress: Callable[[dict[str, Any]], None],
    message: Callable[[str], None],
    cancelled: Callable[[], bool],
) -> Iterator[str]:
    """Pass on what a process writes until its end; yield its error message, line by line."""
    lines: queue.Queue[str | None] = queue.Queue()
    for stream in (process.stdout, process.stderr):
        threading.Thread(target=_read, args=(stream, lines), daemon=True).start()
    open_streams, told, failed = 2, 0.0, False
    while open_streams:
        if not told and cancelled():
            told = time.monotonic()
            _write_cancel(process.stdin)
        if told and time.monotonic() - told > CANCEL_WITHIN:
            process.kill()
        try:
            line = lines.get(timeout=0.1)
        except queue.Empty:
            continue
        if line is None:
            open_streams -= 1
        elif (event := event_of(line)) is not None:
            progress(event)
        elif failed or line.startswith("Error: "):
            failed = True
            yield line.removeprefix("Error: ")
        else:
            message(line)


def event_of(line: str) -> dict[str, Any] | None:
    """Return what a line of progress says; None for any other line."""
    if not line.startswith('{"phase"'):
        return None
    try:
        event: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return event


def percent(event: dict[str, Any]) -> float:
    """Return how much of a phase is done."""
    return min(100.0, 100.0 * event["done"] / event["total"]) if event.get("total") else 0.0


def told_of(event: dict[str, Any]) -> str:
    """Return a phase and the time that is left, for people."""
    left = event.get("seconds_left")
    if not left:
        return str(event["phase"])
    minutes, seconds = divmod(round(left), 60)
    time_left = f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
    return f"{event['phase']}: {time_left} left"


def _read(stream: IO[str], lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line.rstrip("\n"))
    lines.put(None)


def _write_cancel(stream: IO[str] | None) -> None:
    try:
        if stream:
            stream.write("cancel\n")
            stream.flush()
    except OSError:  # it has just ended
        pass


def _close(stream: IO[str] | None) -> None:
    try:
        if stream:
            stream.close()
    except OSError:
        pass
