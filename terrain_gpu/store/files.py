"""Write files of stores atomically, and turn system errors into messages."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

from ..errors import OutputError, StoreError, TerrainError
from .checksums import seal, unseal
from .objects import AnyPath
from .outputs import sync_folder

RESUME = "free some and --resume"
"""The remedy when the disk is full."""


@contextlib.contextmanager
def output_errors(path: Path) -> Iterator[None]:
    """Turn an `OSError` in the body into an `OutputError` that names `path`."""
    try:
        yield
    except OSError as error:
        if isinstance(error, TerrainError):
            raise
        raise output_error(path, error) from error


def output_error(path: Path, error: OSError) -> OutputError:
    """The `OutputError` for a system error; it names the file and the remedy."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutputError(f"{path}: no space left on the disk; {RESUME}")
    return OutputError(f"{path}: cannot be written: {error.strerror}")


@contextlib.contextmanager
def new_file(
    path: Path, temporary: Path, *, sync: bool = True, buffered: bool = True
) -> Iterator[Any]:
    """Open a file under a temporary name; it is synced and renamed to `path` when complete.

    The rename survives a power cut once the folder is synced, see `sync_folder`. Without `sync`,
    the content survives one only after `sync_files`.

    Raises
    ------
    OutputError
        when the disk is full or the file cannot be written; the temporary file is removed.
    """
    with output_errors(path), removed_on_error(temporary):
        with _opened(temporary, -1 if buffered else 0) as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        settle(temporary, path)


def settle(temporary: Path, path: Path) -> None:
    """Rename a complete file to its final path; its folder is made for the first file.

    Raises
    ------
    OutputError
        when this fails; the temporary file is removed.
    """
    with output_errors(path), removed_on_error(temporary):
        try:
            os.rename(temporary, path)
        except FileNotFoundError:  # the first file of its folder
            if not temporary.exists():
                raise  # `withdraw` removed it: the folder may belong to a finished run
            path.parent.mkdir(parents=True, exist_ok=True)
            os.rename(temporary, path)


@contextlib.contextmanager
def removed_on_error(path: Path) -> Iterator[None]:
    """Remove a file when the body fails."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def _opened(temporary: Path, buffering: int) -> Any:
    try:
        return open(temporary, "xb", buffering)
    except FileExistsError:  # left by a run that was killed
        temporary.unlink()
        return open(temporary, "xb", buffering)


def write_parts(file: AnyPath, parts: Iterable[Any]) -> None:
    """Write buffers one after another to a file that is not buffered, in one call if possible."""
    rest = [memoryview(part).cast("B") for part in parts]
    while rest:
        done = os.writev(file.fileno(), rest)
        while rest and done >= len(rest[0]):
            done -= len(rest.pop(0))
        if rest:
            rest[0] = rest[0][done:]


def remove_file(path: Path, temporary: Path) -> None:
    """Remove a file if it exists, through a temporary folder; fail if that has been removed."""
    with output_errors(path):
        try:
            os.rename(path, temporary)
        except FileNotFoundError:
            os.stat(temporary.parent)
            return
        os.unlink(temporary)


def write_whole(path: Path, data: bytes) -> None:
    """Write a small file atomically, see `new_file`."""
    with new_file(path, path.with_name(f"{path.name}.partial")) as file:
        file.write(data)


def write_sealed(path: Path, data: bytes) -> None:
    """Write a file with a checksum, by which `read_sealed` detects damage, even by a power cut.

    Several processes may write the file at the same time if they write the same data.
    """
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
    with new_file(path, partial, sync=False) as file:
        file.write(seal(data))


def read_sealed(path: Path) -> bytes:
    """Read a file written by `write_sealed`, and check it.

    Raises
    ------
    StoreError
        when the file is missing or damaged.
    """
    try:
        data = unseal(path.read_bytes())
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}; use --overwrite") from error
    if data is None:
        raise StoreError(f"{path}: damaged (its checksum differs); compute again with --overwrite")
    return data


def sync_files(paths: Iterable[Path]) -> None:
    """Sync the content of many small files in parallel, which disks handle faster."""

    def sync(path: Path) -> None:
        with output_errors(path), open(path, "rb") as file:
            os.fsync(file.fileno())

    left = iter(paths)
    with ThreadPoolExecutor(16) as pool:
        # Submitting all at once would take a kilobyte for each.
        while some := list(islice(left, 1024)):
            for _ in pool.map(sync, some):
                pass


def sync_tree(path: Path) -> None:
    """`sync_folder` for a folder and all folders within it."""
    for folder, _, _ in os.walk(path, topdown=False):
        sync_folder(Path(folder))
