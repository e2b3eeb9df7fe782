"""Open the arrays and groups of a store with zarr-python."""

from __future__ import annotations

import copy
import functools
import os
from pathlib import Path
from typing import Any

import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.errors import ContainsArrayError

from ..errors import StoreError
from ..facts import JsonObject
from .objects import ObjectPath

DESCRIBED = "units", "long_name", "standard_name", "scale_factor", "add_offset"
"""Attributes of a layer that its DataArray and copies of the layer have as well."""


def metadata_at(path: Path) -> bytes | None:
    """The zarr.json of the array or group at a path; None if it is missing in object storage."""
    if isinstance(path, ObjectPath):
        content = (path / "zarr.json").read()
        return None if content is None else content[0]
    return (path / "zarr.json").read_bytes()


@functools.lru_cache(256)
def parsed(opener: Any, metadata: bytes) -> Any:
    """The array or group with these metadata, checked by zarr; its content is shared.

    zarr takes a millisecond and several threads to open one, and each command opens dozens.
    """
    held = {"zarr.json": default_buffer_prototype().buffer.from_bytes(metadata)}
    return opener(held, mode="r", zarr_format=3)


def attributes_of(node: Any) -> JsonObject:
    """A copy of the attributes of an array or group."""
    return copy.deepcopy(node.attrs.asdict())


def open_group(path: Path) -> Any:
    """Open a group.

    Raises
    ------
    StoreError
        when there is none, or its metadata are damaged.
    """
    metadata = None
    if isinstance(path, ObjectPath):
        metadata = metadata_at(path)
        if metadata is None:
            raise StoreError(f"{path}: no such store; convert-dataset makes one")
    elif not path.exists():
        if path.suffix not in ("", ".zarr"):
            raise StoreError(f"{path}: no such file; name a raster or a store")
        raise StoreError(f"{path}: no such store; convert-dataset makes one")
    elif not path.is_dir():
        raise StoreError(
            f"{path}: a file, not a store; convert-dataset makes one (in Python: convert_dataset)"
        )
    elif not _has_metadata(path):
        raise StoreError(f"{path}: not a store (it has no zarr.json); convert-dataset makes one")
    return _open(path, zarr.open_group, metadata)


def find_array(path: Path) -> Any:
    """Open an array; None if there is none.

    Raises
    ------
    StoreError
        when its metadata cannot be read, or are damaged.
    """
    metadata = None
    if isinstance(path, ObjectPath):
        metadata = metadata_at(path)
        if metadata is None:
            return None
    elif not _has_metadata(path):
        return None
    try:
        return _open(path, zarr.open_array, metadata)
    except StoreError as error:
        # It has disappeared since: another process is replacing it.
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def _open(path: Path, opener: Any, metadata: bytes | None) -> Any:
    try:
        return parsed(opener, metadata_at(path) if metadata is None else metadata)
    except ContainsArrayError as error:
        raise StoreError(f"{path}: an array, not a store; name the folder above it") from error
    except PermissionError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    except Exception as error:  # on malformed JSON, zarr raises errors of many types
        raise StoreError(
            f"{path}/zarr.json: damaged metadata ({type(error).__name__}: {error}); convert again"
        ) from error


def _has_metadata(path: Path) -> bool:
    """Whether a folder has a zarr.json, or may have one that this user is not allowed to see."""
    try:
        os.stat(path / "zarr.json")
    except PermissionError:
        return True
    except OSError:
        return False
    return True
