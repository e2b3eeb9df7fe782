"""Temporary folders. Those left by a killed process are removed by the next process there.

A process holds a lock on each of its folders; the lock ends with the process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger(__name__)


class TemporaryFolder:
    """A folder that is removed at the end; as a context manager, it returns its path.

    Parameters
    ----------
    place
        Folder to create it in.

    Raises
    ------
    OSError
        when it cannot be created.
    """

    def __init__(self, parent: str | os.PathLike[str]) -> None:
        remove_temporary(Path(parent))
        self._folder, self._lock = locked_folder(Path(parent), _stem())
        self._owner = os.getpid()
        # A run locks the folder that its store is in, so this cannot be the one locked here.
        self.path = self._folder / "work"
        self.path.mkdir()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder, unless this is a forked process, which does not own it."""
        if os.getpid() == self._owner and self._lock >= 0:
            lock, self._lock = self._lock, -1
            shutil.rmtree(self._folder, ignore_errors=True)
            os.close(lock)


def remove_temporary(parent: Path) -> None:
    """Remove the temporary folders that killed processes left in a folder, and warn of each."""
    for folder in left_folders(parent, _stem()):
        log.warning("%s: removed this temporary folder, left by a killed run", folder)


def _stem() -> str:
    """The first part of folder names; with the host name, as locks of others may be invisible."""
    return f".terrain-gpu-{hashlib.sha256(os.uname().nodename.encode()).hexdigest()[:8]}"


def locked_folder(parent: Path, stem: str) -> tuple[Path, int]:
    """Create a folder ``STEM-XXXXXXXX``, and lock it; return its path and the lock."""
    while True:
        folder = parent / f"{stem}-{secrets.token_hex(4)}"
        try:
            folder.mkdir(mode=0o700)
            lock = _lock(folder)
        except BaseException:  # such as an interrupt: nothing else would remove the folder
            with contextlib.suppress(OSError):
                folder.rmdir()
            raise
        if lock is not None:
            return folder, lock


def left_folders(parent: Path, stem: str) -> Iterator[Path]:
    """Yield the folders of ended processes; each is locked in the meantime, and then removed."""
    ours = re.compile(re.escape(stem) + "-[0-9a-f]{8}")
    with os.scandir(parent) as entries:
        left = [Path(entry.path) for entry in entries if ours.fullmatch(entry.name)]
    for folder in left:
        lock = _lock(folder, must=True)
        if lock is not None:
            yield folder
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _lock(folder: Path, *, must: bool = False) -> int | None:
    """Lock a folder and return its descriptor; None if another process holds or has removed it.

    Parameters
    ----------
    must
        Also return None on file systems without locks, where the lock cannot be taken.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        descriptor = os.open(folder, flags)
    except OSError:
        return None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if must or error.errno in (errno.EAGAIN, errno.EACCES):
                raise
        # Between mkdir and flock, another process may have removed it as a leftover.
        if os.path.samestat(os.fstat(descriptor), os.stat(folder)):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None
