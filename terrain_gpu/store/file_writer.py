"""A file as the output of an operation, instead of layers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import numpy as np

from ..errors import InputError, OutputError
from ..facts import JsonObject
from .objects import refuse_url
from .outputs import Output, clean_up, output_error, output_errors, sidecars
from .swap import refuse_inside


def writable_file(path: Path, *, overwrite: bool) -> Path:
    """Check that a file can be written at this path; return its absolute path.

    Raises
    ------
    InputError
        when it exists, or when its folder does not exist.
    OutputError
        when its folder is not writable.
    """
    refuse_url(path)
    try:
        folder = path.absolute().parent
        if not path.exists() and folder.is_dir() and os.access(folder, os.W_OK):
            clean_up(path.absolute())
        exists = path.exists()
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if path.is_dir():
        raise InputError(f"{path}: is a folder")
    if exists and not (path.is_file() or path.is_symlink()):
        raise InputError(f"{path}: a pipe or device, not a file")
    if exists and not overwrite:
        raise InputError(f"{path}: exists; --overwrite replaces it")
    if not exists and (beside := sidecars(path)):
        raise InputError(
            f"{beside[0]}: belongs to an earlier {path.name} and would be read together with the "
            "new one; remove it, or choose another name"
        )
    folder = path.absolute().parent
    if not folder.is_dir():
        raise InputError(f"{path}: its folder does not exist; make it first")
    refuse_inside(path)
    if not os.access(folder, os.W_OK):
        raise OutputError(f"{path}: its folder is not writable")
    return path.absolute()


class FileWriter:
    """A file that an operation writes; it replaces an older one at `commit`, when complete.

    It has the interface of a `LayerWriter`. Without `commit`, nothing of the file remains, so a run
    that ends early cannot be resumed.

    Parameters
    ----------
    path
        Absolute path.
    blocks
        Number of rows and columns of blocks.
    """

    finished = False

    def __init__(self, path: Path, blocks: tuple[int, int]) -> None:
        self.path = path
        self.done = np.zeros(blocks, bool)
        self.keep = False

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        if "output" in vars(self):
            self.output.close()

    @cached_property
    def output(self) -> Output:
        """The temporary folder; created on first use, so that an earlier kill leaves nothing."""
        return Output(self.path)

    @property
    def part(self) -> Path:
        """The temporary path at which the file is written."""
        return self.output.folder / ("part" + self.path.suffix.lower())

    @property
    def spill(self) -> Path:
        """A folder next to the file, which is removed at the end of the run."""
        return self.output.shared_folder

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn an `OSError` in the body into an `OutputError`; both name the file.

        Without this, errors would name the temporary folder, which the user does not know.
        """
        with output_errors(self.path):
            try:
                yield
            except OutputError as error:
                if "output" not in vars(self) or not str(error).startswith(str(self.spill)):
                    raise
                raise output_error(self.path, error.__cause__ or error) from error

    def commit(self, attributes: JsonObject | None = None) -> None:
        """Move the file into place, replacing any older one."""
        self.output.publish(self.part)
