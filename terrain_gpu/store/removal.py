"""Remove layers from a store, and their overviews from its levels."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..errors import StoreError
from .files import output_errors, sync_folder
from .levels import levels_of, made_from, place_of
from .metadata import TileStore, drop_consolidated
from .objects import AnyPath, ObjectPath
from .swap import exclusive, is_locked, is_marked


def folder_of_runs(root: Path) -> Path:
    """The folder in which runs build the layers of a store."""
    return root / ".incomplete"


@contextlib.contextmanager
def changing(store: TileStore, names: Iterable[str]) -> Iterator[None]:
    """Hold the store while layers change, unless a run is writing one of them."""
    names = list(names)
    if isinstance(store.path, ObjectPath):
        yield
        for name in names:
            drop_overviews(store.path, name)
        return
    with output_errors(store.path), exclusive(store.path):
        for name in names:
            if is_locked(folder_of_runs(store.path) / f"{name}.jsonl"):
                raise StoreError(f"{store.path}: a run is writing {name!r}; wait until it ends")
        yield
        drop_consolidated(store.path)
    for name in names:
        drop_overviews(store.path, name)


def remove(store: TileStore, names: Sequence[str]) -> None:
    """Remove layers. Each one disappears at once; its files are deleted afterwards."""
    with changing(store, names):
        for name in names:
            layer_path = store.path / name
            if isinstance(layer_path, ObjectPath):
                (layer_path / "zarr.json").delete()
                layer_path.delete_below(object_name for object_name, _ in layer_path.walk())
                continue
            folder = folder_of_runs(store.path)
            folder.mkdir(exist_ok=True)
            gone = folder / f"{name}.removed"
            shutil.rmtree(gone, ignore_errors=True)
            os.rename(layer_path, gone)
            sync_folder(store.path)
            for left in folder.glob("*.removed"):  # also of a run that was killed
                shutil.rmtree(left)
            with contextlib.suppress(OSError):
                folder.rmdir()


def drop_overviews(root: AnyPath, name: str) -> None:
    """Remove the overviews of a layer that was replaced or removed."""
    if is_marked(place_of(root, 2)):
        with contextlib.suppress(StoreError):  # a run is writing them, and records the old cells
            remove_from_levels(TileStore.open(root), [name])


def remove_from_levels(store: TileStore, names: list[str]) -> list[str]:
    had: set[str] = set()
    for _, level in levels_of(store):
        # Others were computed in the level itself.
        if names_found := [
            n for n in level.layers if n in names and made_from(level, n) is not None
        ]:
            remove(level, names_found)
        had |= set(names_found)
    return sorted(had)
