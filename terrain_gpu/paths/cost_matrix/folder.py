"""The folder of a run next to its output, and the files in it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...errors import OutputError, StoreError
from ...facts import Settings
from ...store.files import output_errors, write_parts
from ...store.outputs import whole_file

BATCH = "batch-{}.npz"
"""Name of the file of a finished batch."""


class SourceRows(NamedTuple):
    """The rows of one source, and the steps of its paths.

    Attributes
    ----------
    rows
        See `reached.row_dtype`; targets are numbers of places.
    ends
        int64 (n, 2): row and column of the last cell of each path.
    parts
        int64 (m, 3): row of the table, first byte and number of steps of each part of a path.
    steps
        File of the steps: D8 codes, starting at the target.
    """

    rows: np.ndarray
    ends: np.ndarray
    parts: np.ndarray
    steps: Path

    def codes(self, k: int) -> np.ndarray:
        """The steps of the path of a row."""
        found = [np.empty(0, np.uint8)]
        for _, first, count in self.parts[self.parts[:, 0] == k].tolist():
            found.append(np.fromfile(self.steps, np.uint8, count, offset=first))
        return np.concatenate(found)


class StepFile:
    """A file to which several threads append the steps of paths."""

    def __init__(self, path: Path) -> None:
        with output_errors(path):
            # A buffer would be written on close, where errors come too late.
            self._out = open(path, "wb", 0)  # noqa: SIM115 - closed by __exit__
        self._found: list[np.ndarray] = []
        self._path, self._size, self._lock = path, 0, threading.Lock()

    def __enter__(self) -> StepFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self._out.close()

    def add(self, which: np.ndarray, counts: np.ndarray, steps: np.ndarray) -> None:
        with self._lock, output_errors(self._path):
            write_parts(self._out, [steps.tobytes()])
            first = self._size + np.cumsum(counts) - counts
            self._size += len(steps)
            self._found.append(np.column_stack((which, first, counts))[counts > 0])

    def forget(self, which: np.ndarray) -> None:
        self._found = [part[~np.isin(part[:, 0], which)] for part in self._found]

    def parts(self) -> np.ndarray:
        """The parts sorted by path, in the order in which they were added."""
        parts = np.concatenate([np.empty((0, 3), np.int64), *self._found])
        return parts[np.argsort(parts[:, 0], kind="stable")]


@contextmanager
def run_folder(
    target: Path, settings: Settings, *, resume: bool, overwrite: bool
) -> Iterator[Path]:
    """The folder of a run next to its output; it is removed when the run is complete.

    Raises
    ------
    OutputError
        when it cannot be made, or another run is using it.
    StoreError
        when there is an unfinished run that has other settings or is not to be resumed.
    """
    folder = target.with_name(f"{target.name}.unfinished")
    about = json.dumps(settings, sort_keys=True, default=str)
    with output_errors(folder):
        folder.mkdir(exist_ok=True)
        lock = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise OutputError(f"{folder}: another run is using it; wait until it ends") from None
        record = folder / "run.json"
        again = resume and record.exists() and record.read_text() == about
        if not again:
            _refuse_left(folder, record, resume=resume, overwrite=overwrite)
        try:
            if not again:
                _empty(folder)
                with whole_file(record, alone=True) as part:
                    part.write_text(about)
            yield folder
        except BaseException:
            if not any(folder.glob(BATCH.format("*"))):  # nothing to resume from
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _refuse_left(folder: Path, record: Path, *, resume: bool, overwrite: bool) -> None:
    """Reject a folder with work that would be lost, or that is not the folder of a run."""
    if not record.exists():
        if any(not left.name.startswith(".terrain_gpu-") for left in folder.iterdir()):
            raise OutputError(
                f"{folder}: is not the folder of a run; move it, or name another table"
            )
    elif resume and not overwrite:
        raise StoreError(
            f"{folder}: left by a run with other settings or inputs; use the same ones to resume, "
            "or start again with --overwrite"
        )
    elif not overwrite:
        raise StoreError(
            f"{folder}: left by an unfinished run; --resume continues it, --overwrite starts again"
        )


def _empty(folder: Path) -> None:
    for left in folder.iterdir():
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink()
