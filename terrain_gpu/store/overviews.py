"""Make and remove the levels of a store; see `levels`.

The group of the store lists them according to the convention "multiscales".
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from ..errors import StoreError
from ..facts import JsonObject
from ..grid import GridSpec
from .bucket import make_group
from .coordinates import write_group
from .files import output_errors, sync_folder, write_whole
from .levels import FOLDER_OF_LEVELS, levels_of, place_of
from .metadata import MULTISCALES, TileStore, plain_group, without_consolidated
from .objects import AnyPath, ObjectPath
from .removal import remove_from_levels
from .swap import beside, exclusive, is_locked, is_marked, is_ours


def begin_level(root: AnyPath, factor: int, grid: GridSpec) -> None:
    """Make the store of a level, without layers, unless there is one."""
    level = place_of(root, factor)
    folder = level.parent
    if isinstance(level, ObjectPath):
        make_group(level, grid)
        (folder / "zarr.json").create(plain_group())
        return
    with output_errors(root), exclusive(root):
        if is_marked(level):
            return
        if is_marked(folder):
            raise StoreError(
                f"{folder}: is a layer, but this name is now reserved for overviews; rename its "
                "folder"
            )
        if not (folder / "zarr.json").exists():
            folder.mkdir(exist_ok=True)
            write_whole(folder / "zarr.json", plain_group())
        new = beside(level, "new")
        shutil.rmtree(new, ignore_errors=True)
        write_group(new, grid)
        os.rename(new, level)
        sync_folder(folder)


def list_levels(store: TileStore) -> None:
    """List the levels in the metadata of the group, for other programs."""
    file = store.path / "zarr.json"
    if isinstance(file, ObjectPath):
        while content := file.read():
            if file.replace(_with_levels(store, content[0]), content[1]) is not None:
                return  # if not, another program has changed it meanwhile
        return
    with output_errors(store.path), exclusive(store.path):
        write_whole(file, _with_levels(store, file.read_bytes()))
        sync_folder(store.path)


def _with_levels(store: TileStore, metadata: bytes) -> bytes:
    """The metadata of the group, with the levels that exist."""
    group = json.loads(without_consolidated(metadata) or metadata)
    attributes = group["attributes"]
    conventions = [
        one for one in attributes.get("zarr_conventions", []) if one["uuid"] != MULTISCALES["uuid"]
    ]
    attributes.pop("multiscales", None)
    layout = [_listed(".", store.grid)]
    for factor, level in levels_of(store):
        # From corner to corner of cells; the corner of the raster is that of all levels.
        step = {"scale": [2.0, 2.0], "translation": [0.0, 0.0]}
        derivation = {"derived_from": layout[-1]["asset"], "transform": step}
        layout.append(_listed(f"{FOLDER_OF_LEVELS}/{factor}", level.grid) | derivation)
    if len(layout) > 1:
        conventions.append(MULTISCALES)
        attributes["multiscales"] = {"layout": layout}
    attributes["zarr_conventions"] = conventions
    return json.dumps(group, indent=2).encode()


def _listed(asset: str, grid: GridSpec) -> JsonObject:
    return {
        "asset": asset,
        "spatial:shape": list(grid.shape),
        "spatial:transform": [float(v) for v in grid.transform],
    }


def remove_overviews(store: TileStore, names: Iterable[str] | None = None) -> list[str]:
    """Remove the overviews of some layers, or all levels; return the layers that had any.

    Raises
    ------
    StoreError
        when there is no such layer, or a run is writing overviews.
    OutputError
        when files cannot be removed.
    """
    if names is not None:
        names = list(names)
        existing = {
            *store.layers,
            *(name for _, level in levels_of(store) for name in level.layers),
        }
        for name in names:
            if name not in existing:
                store.layer(name)  # raises an error that lists the layers
        return remove_from_levels(store, names)
    had = {name for _, level in levels_of(store) for name in level.layers}
    folder = store.path / FOLDER_OF_LEVELS
    if isinstance(folder, ObjectPath):
        names_below = (name for name, _ in folder.walk())
        folder.delete_below(
            name for name in names_below if name[:1].isdigit() or name == "zarr.json"
        )
    else:
        with output_errors(store.path), exclusive(store.path):
            _remove_levels(folder)
    list_levels(store)
    return sorted(had)


def _remove_levels(folder: Path) -> None:
    """Remove levels, the coarsest first, so that an interrupted removal leaves valid levels."""
    paths = [path for path in folder.glob("[0-9]*") if path.name.split(".")[0].isdecimal()]
    for path in paths:
        for manifest in path.glob(".incomplete/*.jsonl"):
            if is_locked(manifest):
                raise StoreError(f"{path}: a run is writing {manifest.stem!r}; wait until it ends")
    for path in sorted(paths, key=lambda path: -int(path.name.split(".")[0])):
        if is_ours(path) or path.suffix == ".removed":
            gone = beside(path, "removed")
            shutil.rmtree(gone, ignore_errors=True)
            os.rename(path, gone)
            shutil.rmtree(gone)
    if folder.is_dir() and not is_marked(folder) and not any(folder.glob("[0-9]*")):
        (folder / "zarr.json").unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it holds something else
            folder.rmdir()
