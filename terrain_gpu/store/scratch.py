"""The local folder of a run whose store is in object storage."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from ..errors import InputError, OutputError, StoreError
from .swap import withdraw

VARIABLE = "TERRAIN_GPU_SCRATCH"
"""Environment variable that names the folder; --scratch sets it."""


def scratch_folder() -> Path:
    """The folder in which each run creates its own folder.

    Raises
    ------
    InputError
        when there is no such folder.
    """
    named = os.environ.get(VARIABLE)
    folder = Path(named or tempfile.gettempdir()).absolute()
    if not folder.is_dir():
        raise InputError(
            f"{folder}: the scratch folder does not exist; create it, or set --scratch or "
            f"{VARIABLE}"
        )
    return folder


class Scratch:
    """The folder of a run, locked by one process.

    Parameters
    ----------
    run
        Id of the run: a process that resumes the run on this machine finds the same folder.
    """

    def __init__(self, run: str) -> None:
        self.folder = scratch_folder() / f"terrain_gpu-{run}"
        self.spill = self.folder / "spill"
        self.manifest = self.folder / "manifest.jsonl"
        self.temporary = self.folder / "tmp"
        self._lock = -1

    def is_held(self) -> bool:
        """Whether a live process holds the folder."""
        try:
            self._hold()
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._let_go()
        return False

    def begin(self) -> None:
        """Create the folder with an empty manifest, and lock it.

        Raises
        ------
        StoreError
            when another process holds it.
        OutputError
            when it cannot be created.
        """
        try:
            with contextlib.suppress(FileExistsError):
                self.folder.mkdir(mode=0o700)
            self._hold()
            # Workers of a run that was killed may still be alive.
            for lent in self.spill.glob("lent-*"):
                withdraw(lent)
            self.temporary.mkdir(exist_ok=True)
            self.manifest.write_bytes(b"\n")  # instead of a header
        except BlockingIOError:
            raise StoreError(
                f"{self.folder}: another run is using this folder; wait until it ends"
            ) from None
        except OSError as error:
            self._let_go()
            raise OutputError(f"{self.folder}: cannot be written: {error.strerror}") from error

    def end(self, *, keep: bool) -> None:
        """Remove the folder; with `keep`, remove only files that a later run does not need."""
        shutil.rmtree(self.temporary, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.manifest.unlink(missing_ok=True)
        if not keep:
            shutil.rmtree(self.spill, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()
        self._let_go()

    def _hold(self) -> None:
        """Lock the folder; raise OSError if it cannot be locked or belongs to another user."""
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(descriptor).st_uid != os.getuid():
                raise PermissionError(0, "it belongs to another user")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(descriptor)
            raise
        self._lock = descriptor

    def _let_go(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
