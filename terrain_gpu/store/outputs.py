"""Output files that appear under their names only when complete.

A file is written in a hidden folder next to its target and renamed into place. The writer holds a
lock on the folder. Folders left by killed writers are removed by the next writer of a file with the
same name. Files that belong `together` are renamed when all of them are complete. Sidecars, which
GDAL reads with a file, are published and replaced with it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from ..errors import OutputError, ReprojectionError, TerrainError
from .temporary import left_folders, locked_folder, remove_temporary

log = logging.getLogger(__name__)

NOTHING = "nothing was replaced"
"""The note about older files in an error message, if no results are complete."""

_SIDECARS = {
    ".tif": (".aux.xml", ".ovr", ".msk"),
    ".tiff": (".aux.xml", ".ovr", ".msk"),
    ".gpkg": ("-journal", "-wal", "-shm"),
}
"""Suffixes of files that GDAL and SQLite read together with a file."""


def sidecars(target: Path) -> list[Path]:
    """Existing files that would be read together with a file of this name."""
    endings = _SIDECARS.get(target.suffix.lower(), ())
    # With its suffix, a name may be too long; os.path.isfile then returns False.
    return [path for end in endings if os.path.isfile(path := Path(f"{target}{end}"))]


class Output:
    """A file that is written in its own folder until it is published.

    Use it as a context manager. Without `publish`, nothing of the file remains.

    Parameters
    ----------
    target
        Absolute path of the file.
    alone
        Whether `publish` moves the file at once, even within `together`.

    Attributes
    ----------
    folder
        Folder to write in, under any names. Its path has no characters that a library could
        misinterpret, even if `target` has, and is valid only in this process.
    shared_folder
        The same folder, under the path that other processes see.

    Raises
    ------
    OutputError
        when the folder cannot be created.
    """

    def __init__(self, target: Path, *, alone: bool = False) -> None:
        self.target, self._alone, self._held = target, alone, False
        with output_errors(target):
            clean_up(target)
            remove_temporary(target.parent)
            self.shared_folder, self._lock = locked_folder(target.parent, _stem(target))
        # Libraries interpret characters such as ! and ; in paths.
        plain = Path(f"/proc/self/fd/{self._lock}")
        self.folder = plain if plain.is_dir() else self.shared_folder

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def publish(self, part: Path) -> None:
        """Sync a file in the folder and move it to the target, replacing any older file.

        Its sidecars are moved as well. Within `together`, all are moved at its end.
        """
        group = None if self._alone else _GROUP.get()
        with output_errors(self.target):
            for path in (part, *sidecars(part)):
                with open(path, "rb+") as file:
                    os.fsync(file.fileno())
        if group is None:
            self.move(part)
        else:
            self._held = True
            group.held.append((self, part))

    def move(self, part: Path) -> None:
        """Move a file that is complete and synced to the target, and its sidecars.

        They cannot all be moved at once. So that no file is ever read with the sidecars of another
        one, an older file is set aside first, with its sidecars; the new file is moved last. After
        a kill in between there is no file, and `clean_up` restores the older one.
        """
        self._held = False
        with output_errors(self.target):
            if len(several := [*sidecars(part), part]) > 1 or sidecars(self.target):
                self._move_several(several)
            else:
                os.replace(part, self.target)
            sync_folder(self.target.parent)

    def _move_several(self, parts: list[Path]) -> None:
        aside = self.shared_folder / _ASIDE
        aside.mkdir()
        try:
            for path in (self.target, *sidecars(self.target)):
                if os.path.lexists(path):
                    os.replace(path, aside / path.name)
            sync_folder(self.target.parent)
            aside.rename(self.shared_folder / _ALL_ASIDE)
            for path in parts:
                if path == parts[-1]:
                    sync_folder(self.target.parent)
                ending = path.name.removeprefix(parts[-1].name)
                os.replace(path, f"{self.target}{ending}")
        except BaseException:
            _put_back(self.shared_folder, self.target)
            raise

    def close(self) -> None:
        """Remove the folder with everything not published, unless its file is yet to be moved."""
        if self._held or self._lock < 0:
            return
        shutil.rmtree(self.shared_folder, ignore_errors=True)
        # Close it only once: another thread may open a file with the same descriptor.
        lock, self._lock = self._lock, -1
        os.close(lock)


_ASIDE, _ALL_ASIDE = "aside", "all-aside"
"""Folder with an older file and its sidecars, in that of the new one; its name when complete."""


def _stem(target: Path) -> str:
    return ".terrain_gpu-" + hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]


def clean_up(target: Path) -> None:
    """Remove folders left by killed writers of a file, and restore the older file."""
    for folder in left_folders(target.parent, _stem(target)):
        if _put_back(folder, target):
            log.warning("%s: restored, because the process replacing it was killed", target)
        log.info("%s: removed, because the process that wrote it has ended", folder)


def _put_back(folder: Path, target: Path) -> bool:
    """Undo an incomplete `Output.move`; return whether there was an older file."""
    if os.path.lexists(target):  # complete, or written by another program since
        return False
    older = [*folder.glob(f"{_ASIDE}/*"), *folder.glob(f"{_ALL_ASIDE}/*")]
    if (folder / _ALL_ASIDE).is_dir():
        for path in sidecars(target):
            path.unlink()
    for path in sorted(older, reverse=True):  # the file last
        os.replace(path, target.with_name(path.name))
    return bool(older)


class Together:
    """The files of one step, which are moved into place at its end; see `together`.

    Parameters
    ----------
    again
        How to continue when only some results are complete, for the message; "" if impossible.
    passing
        A folder that is removed at the end, so its content is not a result. None if there is none.

    Attributes
    ----------
    held
        Files to move, each with its temporary path.
    complete
        Files and layers that are in place.
    """

    def __init__(self, again: str, passing: Path | None) -> None:
        self.held: list[tuple[Output, Path]] = []
        self.complete: list[str] = []
        self._again, self.passing = again, passing

    def add(self, result: str | os.PathLike[str]) -> None:
        """Register a result that is in place."""
        if self.passing is None or self.passing not in Path(os.path.realpath(result)).parents:
            self.complete.append(os.fspath(result))

    def move(self) -> None:
        """Move all files into place."""
        for output, part in self.held:
            output.move(part)
            self.add(output.target)

    def close(self) -> None:
        """Remove the folders of all files."""
        for output, _ in self.held:
            output._held = False
            output.close()

    def explained(self, error: OutputError) -> OutputError:
        """The error, with the results that are in place added to its message."""
        names = list(dict.fromkeys(self.complete))
        if not names or not str(error).endswith(NOTHING):
            return error
        verb = "are" if len(names) > 1 else "is"
        again = f"; {self._again}" if self._again else "; other files are unchanged"
        said = f"{', '.join(names)} {verb} complete{again}"
        return OutputError(str(error).removesuffix(NOTHING) + said)


_GROUP: ContextVar[Together | None] = ContextVar("files that are moved together", default=None)


@contextmanager
def together(
    again: str = "", *, passing: str | os.PathLike[str] | None = None, apart: bool = False
) -> Iterator[None]:
    """Move the files that the body publishes into place at its end, when all are complete.

    If one fails, none is moved. Within an outer `together`, the files are moved at the end of the
    outer one, unless they are to be moved `apart`, with a layer that is not in a `passing` folder.

    Parameters
    ----------
    again, passing
        As for `Together`.

    Raises
    ------
    OutputError
        when a file cannot be moved, or from the body; the message lists the complete results.
    """
    outer = _GROUP.get()
    if outer is not None and not (apart and outer.passing is None):
        yield
        return
    group = Together(again, None if passing is None else Path(os.path.realpath(passing)))
    token = _GROUP.set(group)
    try:
        yield
        group.move()
    except OutputError as error:
        if outer is not None:
            raise  # the outer one explains it
        raise group.explained(error) from error.__cause__
    finally:
        _GROUP.reset(token)
        group.close()
        if outer is not None:
            outer.complete += group.complete


def complete_file(target: Path) -> Path:
    """The current path of a published file, which `together` may not have moved yet."""
    group = _GROUP.get()
    waiting = {} if group is None else {output.target: part for output, part in group.held}
    return waiting.get(target, target)


def add_complete(result: str | os.PathLike[str]) -> None:
    """Register with `together` a result that is in place."""
    if (group := _GROUP.get()) is not None:
        group.add(result)


@contextmanager
def whole_file(target: Path, *, alone: bool = False) -> Iterator[Path]:
    """Temporary path for a file that is moved to `target` when complete.

    Its extension is that of `target`, in lower case. A file that is `alone` is moved at once, even
    within `together`.

    Raises
    ------
    OutputError
        when the file cannot be written. Other errors are not changed.
    """
    with Output(target, alone=alone) as output:
        part = output.folder / ("part" + target.suffix.lower())
        with output_errors(target):
            yield part
        output.publish(part)


@contextmanager
def output_errors(target: Path) -> Iterator[None]:
    """Turn system and library errors in the body into an `OutputError` that names the file."""
    try:
        yield
    except ReprojectionError as error:
        error.name_file(target)
        raise
    except TerrainError:
        raise
    except (OSError, RuntimeError) as error:
        raise output_error(target, error) from error


def output_error(target: Path, error: BaseException) -> OutputError:
    """The `OutputError` for a file; any older version is unchanged."""
    reason = re.sub(r"\s+", " ", str(error.__cause__ or error))
    reason = getattr(error, "strerror", None) or reason
    full = getattr(error, "errno", None) == errno.ENOSPC or os.strerror(errno.ENOSPC) in reason
    with contextlib.suppress(OSError):
        full = full or free_space(target) < 1 << 20
    if full:
        return OutputError(f"{target}: no space left on the disk; {NOTHING}")
    return OutputError(f"{target}: cannot be written: {reason}; {NOTHING}")


def free_space(path: Path) -> int:
    """Free space on the disk of `path`, in bytes."""
    disk = os.statvfs(path.parent)
    return disk.f_bavail * disk.f_frsize


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
