"""Overviews: coarser levels of a store, each a store of its own in the folder ``overviews``.

Cells of ``STORE/overviews/2`` are twice as wide and high as those of STORE, and so on for 4, 8, ...
The group of STORE lists the levels according to the convention "multiscales".
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import StoreError
from ..grid import GridSpec
from .coordinates import write_group
from .files import output_errors, sync_folder, write_whole
from .layer import Layer
from .metadata import FOLDER_OF_LEVELS, MULTISCALES, TileStore, plain_group, without_consolidated
from .objects import ObjectPath
from .swap import beside, exclusive, is_locked, is_marked, is_ours

SMALLEST = 256
"""The coarsest level has at most this number of rows and columns."""


def factors_of(grid: GridSpec) -> list[int]:
    """The number of cells of a grid along a side of a cell of each level: 2, 4, 8, ..."""
    factors: list[int] = []
    side = max(grid.shape)
    while side > SMALLEST:
        factors.append(2 ** (len(factors) + 1))
        side = -(-side // 2)
    return factors


def coarser(grid: GridSpec) -> GridSpec:
    """The grid of cells twice as wide and high; the last ones may extend beyond the raster."""
    a, b, c, d, e, f = grid.transform
    shape = [-(-side // 2) for side in grid.shape]
    return replace(grid, rows=shape[0], cols=shape[1], transform=(2 * a, b, c, d, 2 * e, f))


def place_of(root: Any, factor: int) -> Any:
    """The folder of a level; of the store itself for 1."""
    return root if factor == 1 else root / FOLDER_OF_LEVELS / str(factor)


def root_of(level: Any) -> tuple[Any, int]:
    """The store that a level belongs to, and the factor of the level that it was made from."""
    return level.parent.parent, int(level.name) // 2


def is_level(path: Any) -> bool:
    """Whether a store is a level of another."""
    return path.parent.name == FOLDER_OF_LEVELS and path.name.isdecimal() and int(path.name) > 1


def levels_of(store: TileStore) -> Iterator[tuple[int, TileStore]]:
    """Yield the factors and stores of the levels that exist, the finest first."""
    factor = 2
    while is_marked(place := place_of(store.path, factor)):
        yield factor, TileStore.open(place)
        factor *= 2


def overviews_of(store: TileStore, name: str) -> tuple[list[int], list[int]]:
    """Factors of the overviews of a layer: those made from its current cells, and others."""
    return fresh_of(store.layer(name), levels_of(store))


def fresh_of(layer: Layer, levels: Iterable[tuple[int, TileStore]]) -> tuple[list[int], list[int]]:
    """The same as `overviews_of`, for these levels of its store."""
    fresh: list[int] = []
    other: list[int] = []
    identity = layer.identity
    for factor, level in levels:
        finer = made_from(level, layer.name)
        if finer is None:
            continue
        whole = finer == identity
        (fresh if whole else other).append(factor)
        identity = level.layer(layer.name).identity if whole else ""
    return fresh, other


def made_from(level: TileStore, name: str) -> str | None:
    """Digest of the layer that an overview was made from, "" if damaged; None for others."""
    with contextlib.suppress(StoreError):
        layer = level.find(name)
        settings = layer.info.get("settings") if layer else None
        if not isinstance(settings, dict) or "overview_of" not in settings:
            return None
        return str(settings.get("finer"))
    return ""


def begin_level(root: Any, factor: int, grid: GridSpec) -> None:
    """Make the store of a level, without layers, unless there is one."""
    place = place_of(root, factor)
    folder = place.parent
    if isinstance(place, ObjectPath):
        from .bucket import make_group

        make_group(place, grid)
        (folder / "zarr.json").create(plain_group())
        return
    with output_errors(root), exclusive(root):
        if is_marked(place):
            return
        if is_marked(folder):
            raise StoreError(
                f"{folder}: is a layer, but this name is now reserved for overviews; rename its "
                "folder"
            )
        if not (folder / "zarr.json").exists():
            folder.mkdir(exist_ok=True)
            write_whole(folder / "zarr.json", plain_group())
        new = beside(place, "new")
        shutil.rmtree(new, ignore_errors=True)
        write_group(new, grid)
        os.rename(new, place)
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


def _listed(asset: str, grid: GridSpec) -> dict[str, Any]:
    return {
        "asset": asset,
        "spatial:shape": list(grid.shape),
        "spatial:transform": [float(v) for v in grid.transform],
    }


def drop_overviews(root: Any, name: str) -> None:
    """Remove the overviews of a layer that was replaced or removed."""
    if is_marked(place_of(root, 2)):
        with contextlib.suppress(StoreError):  # a run is writing them, and records the old cells
            _remove_from_levels(TileStore.open(root), [name])


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
        return _remove_from_levels(store, names)
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


def _remove_from_levels(store: TileStore, names: list[str]) -> list[str]:
    from .manage import remove_layers

    had: set[str] = set()
    for _, level in levels_of(store):
        # Others were computed in the level itself.
        if names_found := [
            n for n in level.layers if n in names and made_from(level, n) is not None
        ]:
            remove_layers(level, names_found, force=True)
        had |= set(names_found)
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
