"""Files of stores that are whole or not there, and what the system says when they cannot be."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from ..errors import OutputError, StoreError, TerrainError
from .checksums import seal, unseal
from .outputs import sync_folder


@contextlib.contextmanager
def output_errors(path: Path) -> Iterator[None]:
    """Whatever the system refuses inside becomes an `OutputError` that names `path`."""
    try:
        yield
    except OSError as error:
        if isinstance(error, TerrainError):
            raise
        raise output_error(path, error) from error


def output_error(path: Path, error: OSError) -> OutputError:
    """`error` as an `OutputError` that names the file and the remedy."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutputError(f"{path}: no space left on the disk; free some and --resume")
    return OutputError(f"{path}: cannot be written: {error.strerror}")


@contextlib.contextmanager
def new_file(path: Path, temporary: Path, *, sync: bool = True) -> Iterator[BinaryIO]:
    """A file under a temporary name; synced and renamed to `path` once it is written whole.

    The rename lasts through a power cut once the folder is synced, see `sync_folder`. Without
    `sync` the content does not either, until `sync_files`.

    Raises
    ------
    OutputError
        when the disk is full or the place cannot be written; the temporary file is gone.
    """
    with output_errors(path):
        try:
            temporary.unlink(missing_ok=True)  # of a run that was killed
            with open(temporary, "xb") as file:
                yield file
                file.flush()
                if sync:
                    os.fsync(file.fileno())
            try:
                os.rename(temporary, path)
            except FileNotFoundError:  # the first of its folder
                path.parent.mkdir(parents=True, exist_ok=True)
                os.rename(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def remove_file(path: Path, temporary: Path) -> None:
    """Remove a file if it is there, by way of a temporary folder: where that is gone, it stays."""
    with output_errors(path):
        try:
            os.rename(path, temporary)
        except FileNotFoundError:
            os.stat(temporary.parent)
            return
        os.unlink(temporary)


def write_whole(path: Path, data: bytes) -> None:
    """A small file, written by `new_file`."""
    with new_file(path, path.with_name(f"{path.name}.partial")) as file:
        file.write(data)


def write_sealed(path: Path, data: bytes) -> None:
    """A file that `read_sealed` tells from a damaged one, also after a power cut.

    Several processes may write it at once, if they write the same.
    """
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
    with new_file(path, partial, sync=False) as file:
        file.write(seal(data))


def read_sealed(path: Path) -> bytes:
    """The data of `write_sealed`.

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
    """Have the content of many small files on the disk, which takes it in turns of many."""

    def sync(path: Path) -> None:
        with output_errors(path), open(path, "rb") as file:
            os.fsync(file.fileno())

    with ThreadPoolExecutor(16) as pool:
        for _ in pool.map(sync, paths):
            pass


def sync_tree(path: Path) -> None:
    """`sync_folder` of a folder and all folders inside."""
    for folder, _, _ in os.walk(path, topdown=False):
        sync_folder(Path(folder))
