"""Output files that appear under their names only when complete.

A file is written in a hidden folder beside its target and renamed into place. The writer holds a
lock on the folder. Folders that killed writers left are removed by the next writer of a file with
the same name.
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
from contextlib import contextmanager
from pathlib import Path

from ..errors import OutputError, TerrainError

log = logging.getLogger(__name__)


_SIDECARS = {
    ".tif": (".aux.xml", ".ovr", ".msk"),
    ".tiff": (".aux.xml", ".ovr", ".msk"),
    ".gpkg": ("-journal", "-wal", "-shm"),
}
"""Suffixes of files that GDAL and SQLite read together with a file."""


def sidecars(target: Path) -> list[Path]:
    """Existing files that would be read together with a file of this name."""
    endings = _SIDECARS.get(target.suffix.lower(), ())
    # A suffix may exceed the limit of names; then os.path.isfile returns False.
    return [path for end in endings if os.path.isfile(path := Path(f"{target}{end}"))]


class Output:
    """A file to write, in a folder of its own until it is published.

    Use it as a context manager. Without `publish` nothing remains of the file.

    Parameters
    ----------
    target
        Absolute path of the file.

    Attributes
    ----------
    folder
        Folder to write in, under any names. Its path has no characters that a library could
        misinterpret, whatever those of `target`, and is valid only in this process.
    beside
        The same folder, under the path that other processes see.

    Raises
    ------
    OutputError
        when the folder cannot be created.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        with output_errors(target):
            self._stem = ".terrain_gpu-" + hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]
            self._clean_up()
            self.beside, self._lock = self._made()
        # Libraries interpret characters such as ! and ; in paths.
        plain = Path(f"/proc/self/fd/{self._lock}")
        self.folder = plain if plain.is_dir() else self.beside

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _made(self) -> tuple[Path, int]:
        """Create the folder and lock it."""
        while True:
            folder = self.target.with_name(f"{self._stem}-{secrets.token_hex(4)}")
            try:
                folder.mkdir(mode=0o700)
                lock = _locked(folder)
            except BaseException:  # such as an interrupt: nothing else knows of the folder yet
                with contextlib.suppress(OSError):
                    folder.rmdir()
                raise
            if lock is not None:
                return folder, lock

    def _clean_up(self) -> None:
        """Remove folders that dead writers of this file name left."""
        ours = re.compile(re.escape(self._stem) + "-[0-9a-f]{8}")
        with os.scandir(self.target.parent) as entries:
            left = [e.path for e in entries if ours.fullmatch(e.name)]
        for folder in left:
            lock = _locked(Path(folder), must=True)
            if lock is not None:
                log.info("%s: removed, the process that wrote it has ended", folder)
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)

    def publish(self, part: Path) -> None:
        """Sync a file of the folder and move it to the target; it replaces any older file.

        Files that belong to the older one are removed first: its georeferencing, overviews and
        journals would be read with the new file.
        """
        with output_errors(self.target):
            with open(part, "rb+") as file:
                os.fsync(file.fileno())
            for path in sidecars(self.target):
                path.unlink(missing_ok=True)
            os.replace(part, self.target)
            sync_folder(self.target.parent)

    def close(self) -> None:
        """Remove the folder, with anything not published."""
        shutil.rmtree(self.beside, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._lock)


def _locked(folder: Path, *, must: bool = False) -> int | None:
    """Lock a folder and return its descriptor; None if another process holds or has removed it.

    Parameters
    ----------
    must
        Return None also on file systems without locks, where the lock cannot be taken.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        found = os.open(folder, flags)
    except OSError:
        return None
    try:
        try:
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if must or error.errno in (errno.EAGAIN, errno.EACCES):
                raise
        # Between mkdir and flock, another process may have removed it as left over.
        if os.path.samestat(os.fstat(found), os.stat(folder)):
            return found
    except OSError:
        pass
    os.close(found)
    return None


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Temporary path for a file that is moved to `target` when complete.

    Its extension is that of `target`, in lower case.

    Raises
    ------
    OutputError
        when the file cannot be written. Other errors are not changed.
    """
    with Output(target) as output:
        part = output.folder / ("part" + target.suffix.lower())
        with output_errors(target):
            yield part
        output.publish(part)


@contextmanager
def output_errors(target: Path) -> Iterator[None]:
    """Turn system and library errors in the body into an `OutputError` that names the file."""
    try:
        yield
    except TerrainError:
        raise
    except (OSError, RuntimeError) as error:
        raise output_error(target, error) from error


def output_error(target: Path, error: BaseException) -> OutputError:
    """The `OutputError` for a file whose older version, if any, is kept."""
    reason = re.sub(r"\s+", " ", str(error.__cause__ or error))
    reason = getattr(error, "strerror", None) or reason
    full = getattr(error, "errno", None) == errno.ENOSPC or os.strerror(errno.ENOSPC) in reason
    with contextlib.suppress(OSError):
        full = full or free_space(target) < 1 << 20
    if full:
        return OutputError(f"{target}: no space left on the disk; nothing was replaced")
    return OutputError(f"{target}: cannot be written: {reason}; nothing was replaced")


def free_space(path: Path) -> int:
    """Bytes free on the disk of `path`."""
    found = os.statvfs(path.parent)
    return found.f_bavail * found.f_frsize


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut, if the file system supports it."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(lock)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(lock)
