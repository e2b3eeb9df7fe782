"""Overviews: coarser levels of a store, each a store of its own in the folder ``overviews``.

``STORE/overviews/2`` has cells twice as wide and high as those of STORE, ``STORE/overviews/4`` four
times. The group of STORE lists them according to the convention "multiscales".
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from ..errors import StoreError
from ..grid import GridSpec
from .files import output_errors, sync_folder, write_whole
from .metadata import (
    FOLDER_OF_LEVELS,
    MULTISCALES,
    TileStore,
    plain_group,
    without_consolidated,
    write_group,
)
from .objects import ObjectPath, is_there
from .swap import beside, exclusive, is_marked

SMALLEST = 256
"""The coarsest level has at most so many rows and columns."""


def factors_of(grid: GridSpec) -> list[int]:
    """How many cells of a grid lie along a side of a cell of each level: 2, 4, 8, ..."""
    found: list[int] = []
    side = max(grid.shape)
    while side > SMALLEST:
        found.append(2 ** (len(found) + 1))
        side = -(-side // 2)
    return found


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
    """Factors of the overviews of a layer: those of its present cells, and others."""
    fresh: list[int] = []
    other: list[int] = []
    identity = store.layer(name).identity
    for factor, level in levels_of(store):
        if name not in level.layers:
            continue
        try:
            layer = level.layer(name)
            settings = layer.info.get("settings")
            made_from = settings.get("finer") if isinstance(settings, dict) else None
        except StoreError:
            made_from = None
        whole = made_from == identity
        (fresh if whole else other).append(factor)
        identity = layer.identity if whole else ""
    return fresh, other


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
        while found := file.read():
            if file.replace(_with_levels(store, found[0]), found[1]) is not None:
                return  # else another program has changed it meanwhile
        return
    with output_errors(store.path), exclusive(store.path):
        write_whole(file, _with_levels(store, file.read_bytes()))
        sync_folder(store.path)


def _with_levels(store: TileStore, metadata: bytes) -> bytes:
    """The metadata of the group, with the levels that exist."""
    found = json.loads(without_consolidated(metadata) or metadata)
    own = found["attributes"]
    conventions = [
        one for one in own.get("zarr_conventions", []) if one["uuid"] != MULTISCALES["uuid"]
    ]
    own.pop("multiscales", None)
    layout = [_listed(".", store.grid)]
    for factor, level in levels_of(store):
        # From corner to corner of cells; the corner of the raster is that of all levels.
        step = {"scale": [2.0, 2.0], "translation": [0.0, 0.0]}
        more = {"derived_from": layout[-1]["asset"], "transform": step}
        layout.append(_listed(f"{FOLDER_OF_LEVELS}/{factor}", level.grid) | more)
    if len(layout) > 1:
        conventions.append(MULTISCALES)
        own["multiscales"] = {"layout": layout}
    own["zarr_conventions"] = conventions
    return json.dumps(found, indent=2).encode()


def _listed(asset: str, grid: GridSpec) -> dict[str, Any]:
    return {
        "asset": asset,
        "spatial:shape": list(grid.shape),
        "spatial:transform": [float(v) for v in grid.transform],
    }


def drop_overviews(root: Any, name: str) -> None:
    """Remove the overviews of a layer that was replaced or removed."""
    if is_there(root / FOLDER_OF_LEVELS / "zarr.json"):
        with contextlib.suppress(StoreError):  # a run is writing them, and records the old cells
            remove_overviews(TileStore.open(root), [name])


def remove_overviews(store: TileStore, names: Iterable[str] | None = None) -> list[str]:
    """Remove the overviews of some layers, or all levels; return the layers that had any.

    Raises
    ------
    StoreError
        when a run is writing them.
    OutputError
        when files cannot be removed.
    """
    from .manage import remove_layers

    wanted = None if names is None else set(names)
    had: set[str] = set()
    for _, level in levels_of(store):
        found = [name for name in level.layers if wanted is None or name in wanted]
        if found:
            remove_layers(level, found, force=True)
        had |= set(found)
    folder = store.path / FOLDER_OF_LEVELS
    if wanted is not None or not is_there(folder / "zarr.json"):
        return sorted(had)
    if isinstance(folder, ObjectPath):
        folder.delete_below(name for name, _ in folder.walk())
    else:
        with output_errors(store.path):
            shutil.rmtree(folder)
    list_levels(store)
    return sorted(had)
