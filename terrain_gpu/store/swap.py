"""Replace folders in a way that survives a kill, and decide what may be deleted."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from ..errors import InputError, StoreError
from .files import sync_folder
from .layer import KEY
from .objects import AnyPath, ObjectPath, named, read_small


def absolute(path: str | os.PathLike[str]) -> AnyPath:
    """The path without ``..`` and links, so that other names can be derived from its last part."""
    url = named(path)
    if isinstance(url, ObjectPath):
        return url
    root = Path(os.path.realpath(path))
    if not root.name:
        raise InputError(f"{os.fspath(path)}: not the path of a store; name a folder below it")
    return root


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}.{suffix}")


@contextlib.contextmanager
def exclusive(root: Path) -> Iterator[None]:
    """Hold the lock under which processes inspect a store or move one into place."""
    root.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(root.parent, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def is_locked(manifest: Path) -> bool:
    """Whether a live process holds the run of `manifest`."""
    if not manifest.exists():
        return False
    with open(manifest, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def lent_folder(spill: Path) -> Path:
    """Create a temporary folder for other processes, see `LayerWriter.lent` and `withdraw`."""
    folder = spill / f"lent-{uuid.uuid4().hex}"
    folder.mkdir(parents=True)
    return folder


def withdraw(folder: Path) -> None:
    """Remove a temporary folder, even while processes use it: their renames from it then fail."""
    gone = folder.with_name(f"gone-{folder.name}")
    with contextlib.suppress(OSError):
        os.rename(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)


def swap(new: Path, target: Path, old: Path) -> None:
    """Move `new`, which is complete, to `target`; the folder previously there is deleted last.

    `recover` completes an interrupted swap.
    """
    replaces = target.exists()
    if replaces:
        remove_ours(old)
        os.rename(target, old)
    try:
        os.rename(new, target)
    except FileNotFoundError:
        if not replaces:  # otherwise a reader has moved it already, in `recover`
            raise
    sync_folder(target.parent)
    if new.parent != target.parent:
        sync_folder(new.parent)
    if replaces:
        _remove(old)


def recover(new: Path, target: Path, old: Path) -> None:
    """Complete a swap that was interrupted, or that a reader sees in progress.

    `new` is complete before `old` is set aside, so completing the swap is always correct.
    """
    if not old.is_dir() or not is_ours(old):
        return
    for source in (new, old):
        if not target.exists() and (source / "zarr.json").exists():
            with contextlib.suppress(OSError):  # the writer was faster, or this user may only read
                os.rename(source, target)
    if target.exists():
        _remove(old)


def _remove(path: Path) -> None:
    """Delete a folder of ours, zarr.json last, so that it is still recognised after a kill."""
    with contextlib.suppress(OSError):
        for inner in path.iterdir():
            if inner.is_dir():
                shutil.rmtree(inner, ignore_errors=True)
    shutil.rmtree(path, ignore_errors=True)


def is_ours(path: Path) -> bool:
    """Whether `path` is a group or array of this package, a part of one, or an empty folder."""
    if path.parent.name == ".incomplete" or is_marked(path):
        return True
    # zarr writes files through NAME.partial; after a kill it may be the only file in the folder.
    return path.is_dir() and all(p.suffix == ".partial" for p in path.iterdir())


def is_marked(path: Path) -> bool:
    """Whether `path` has the metadata of a group or array of this package."""
    try:
        metadata = json.loads(read_small(path / "zarr.json"))
        return KEY in metadata["attributes"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def refuse_inside(path: Path) -> None:
    """Reject a path inside a store, where replacing a layer would delete it.

    Raises
    ------
    InputError
        when a folder above `path` is a store.
    """
    stores = [folder for folder in absolute(path).parents if is_marked(folder)]
    if stores:
        raise InputError(f"{path}: is inside the store {stores[-1]}; choose a path outside it")


def is_layer(path: Path) -> bool:
    """Whether --overwrite may replace `path`: a layer of ours, or one too damaged to tell."""
    with contextlib.suppress(ValueError, OSError):
        json.loads((path / "zarr.json").read_bytes())
        return is_ours(path)
    return (path / "zarr.json").is_file() or is_ours(path)


def must_be_ours(path: Path) -> None:
    if os.path.lexists(path) and not is_ours(path):
        raise StoreError(f"{path}: exists and is not a store of this program; move it")


def remove_ours(path: Path) -> None:
    must_be_ours(path)
    _remove(path)
    if path.exists():
        raise StoreError(f"{path}: must be removed but cannot be; delete it yourself")
