"""What a run in object storage keeps on a disk of this machine."""

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
"""Names the folder; --scratch sets it."""


def scratch_folder() -> Path:
    """Where runs make folders of their own.

    Raises
    ------
    InputError
        when there is no such folder.
    """
    named = os.environ.get(VARIABLE)
    folder = Path(named or tempfile.gettempdir()).absolute()
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder for scratch files (--scratch, {VARIABLE})")
    return folder


class Scratch:
    """The folder of a run, which one process holds.

    Parameters
    ----------
    run
        Its id: whoever resumes it on this machine finds the folder again.
    """

    def __init__(self, run: str) -> None:
        self.folder = scratch_folder() / f"terrain_gpu-{run}"
        self.spill = self.folder / "spill"
        self.manifest = self.folder / "manifest.jsonl"
        self.temporary = self.folder / "tmp"
        self._lock = -1

    def is_held(self) -> bool:
        """Whether a living process is at work in it."""
        try:
            self._hold()
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._let_go()
        return False

    def begin(self) -> None:
        """Make it, with an empty manifest, and hold it.

        Raises
        ------
        StoreError
            when another process does.
        OutputError
            when it cannot be made.
        """
        try:
            with contextlib.suppress(FileExistsError):
                self.folder.mkdir(mode=0o700)
            self._hold()
            # Workers of a run that was killed may still be alive.
            for lent in self.spill.glob("lent-*"):
                withdraw(lent)
            self.temporary.mkdir(exist_ok=True)
            self.manifest.write_bytes(b"\n")  # in place of a header
        except BlockingIOError:
            raise StoreError(f"{self.folder}: another run is at work here") from None
        except OSError as error:
            self._let_go()
            raise OutputError(f"{self.folder}: cannot be written: {error.strerror}") from error

    def end(self, *, keep: bool) -> None:
        """Remove it, or what a later run does not need."""
        shutil.rmtree(self.temporary, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.manifest.unlink(missing_ok=True)
        if not keep:
            shutil.rmtree(self.spill, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()
        self._let_go()

    def _hold(self) -> None:
        """Lock it; an OSError when that cannot be, or when it is not ours."""
        found = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(found).st_uid != os.getuid():
                raise PermissionError(0, "it belongs to another user")
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(found)
            raise
        self._lock = found

    def _let_go(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
