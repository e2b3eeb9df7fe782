"""Output files that appear under their name only when whole.

A file grows in a hidden folder beside its target, which its writer holds locked, and is renamed
into place. What a killed writer leaves there is removed by the next that writes a file of the name.
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
"""Endings of what GDAL and SQLite read beside a file, even before it."""


def sidecars(target: Path) -> list[Path]:
    """What lies beside a file of this name and would be read with it."""
    endings = _SIDECARS.get(target.suffix.lower(), ())
    # Beside a name near the limit there can be none, and os.path says so.
    return [path for end in endings if os.path.isfile(path := Path(f"{target}{end}"))]


class Output:
    """A file to write, in a folder of its own until it is published.

    Use as a context manager; without `publish` nothing of it stays.

    Parameters
    ----------
    target
        Absolute path of the file.

    Attributes
    ----------
    folder
        Where to write, under any names. It has no character that a library could misunderstand,
        whatever those of `target`, and is gone with the process.
    beside
        The same folder, under the name that other processes see.

    Raises
    ------
    OutputError
        when the place cannot be written.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        with output_errors(target):
            self._stem = ".terrain_gpu-" + hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]
            self._clean_up()
            self.beside, self._lock = self._made()
        # Libraries take characters such as ! and ; in a path for syntax.
        plain = Path(f"/proc/self/fd/{self._lock}")
        self.folder = plain if plain.is_dir() else self.beside

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _made(self) -> tuple[Path, int]:
        """A new folder, and the lock on it."""
        while True:
            folder = self.target.with_name(f"{self._stem}-{secrets.token_hex(4)}")
            try:
                folder.mkdir(mode=0o700)
                lock = _locked(folder)
            except BaseException:  # an interrupt: nobody else knows of the folder yet
                with contextlib.suppress(OSError):
                    folder.rmdir()
                raise
            if lock is not None:
                return folder, lock

    def _clean_up(self) -> None:
        """Remove what writers of this name left that are no more."""
        ours = re.compile(re.escape(self._stem) + "-[0-9a-f]{8}")
        with os.scandir(self.target.parent) as entries:
            left = [e.path for e in entries if ours.fullmatch(e.name)]
        for folder in left:
            lock = _locked(Path(folder), must=True)
            if lock is not None:
                log.info("%s: removed, the process that wrote it is no more", folder)
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)

    def publish(self, part: Path) -> None:
        """Put a file of the folder, which is on the disk then, in place of any older one.

        What belongs to the older one goes before: georeferencing, overviews and journals of
        another file would be taken for those of this.
        """
        with output_errors(self.target):
            with open(part, "rb+") as file:
                os.fsync(file.fileno())
            for path in sidecars(self.target):
                path.unlink(missing_ok=True)
            os.replace(part, self.target)
            sync_folder(self.target.parent)

    def close(self) -> None:
        """Remove what was not published."""
        shutil.rmtree(self.beside, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._lock)


def _locked(folder: Path, *, must: bool = False) -> int | None:
    """A descriptor that holds a folder; None when another process holds or has removed it.

    Parameters
    ----------
    must
        Whether to be without a lock, on a file system that has none, counts as held by another.
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
        # Between mkdir and lock, whoever cleans up may have taken it for a dead one's.
        if os.path.samestat(os.fstat(found), os.stat(folder)):
            return found
    except OSError:
        pass
    os.close(found)
    return None


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """The path at which to write a file that appears as `target` only when whole.

    Its extension is that of `target`, in lower case.

    Raises
    ------
    OutputError
        when it cannot be written. Other errors pass.
    """
    with Output(target) as output:
        part = output.folder / ("part" + target.suffix.lower())
        with output_errors(target):
            yield part
        output.publish(part)


@contextmanager
def output_errors(target: Path) -> Iterator[None]:
    """Whatever the system refuses inside becomes an `OutputError` that names the file."""
    try:
        yield
    except TerrainError:
        raise
    except (OSError, RuntimeError) as error:
        raise output_error(target, error) from error


def output_error(target: Path, error: BaseException) -> OutputError:
    """`error` in words, of a file of which an older version stays."""
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
    """Make a rename in a folder last through a power cut, where the file system can."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(lock)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(lock)
