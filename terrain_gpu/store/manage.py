"""List, rename and remove layers of a store, and find the layers that depend on them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ..arguments import checked, flag, text
from ..arguments import names as name_list
from ..errors import InputError, StoreError
from ..facts import JsonObject
from ..tools import TOOLS, tool_of
from .files import sync_folder
from .layer import Layer
from .levels import root_of
from .metadata import TileStore, write_array
from .objects import ObjectPath
from .removal import changing, folder_of_runs, remove
from .run import check_layer_name

HEIGHTS = "elevation"
"""The layer that is not removed without `force`."""

_MAKERS = {
    "ties_of": "compute-sssp",
    "overview_of": "overviews",
    "inputs": "convert-dataset",
}
"""The commands that make layers, by a setting that only their layers have; the first match."""


@cache
def makers() -> dict[str, str]:
    """The commands that make layers, by a setting that only their layers have."""
    commands = _MAKERS | {tool_of(command).mark: command for command in TOOLS}
    # Layers of other commands record outlets, too.
    return dict(sorted(commands.items(), key=lambda item: item[1] == "accumulate"))


def made_by(layer: Layer) -> str | None:
    """The command that made a layer; None if unknown."""
    settings = layer.info.get("settings")
    if not isinstance(settings, dict):
        return None
    command = next((maker for mark, maker in makers().items() if mark in settings), None)
    # Directions made by flow-direction have the same settings.
    if command == "accumulate" and "encoding" in layer.info:
        return "flow-direction"
    return command


_CODED = ("label-components", "basins", "watershed", "compute-mst", "flow-direction")


def is_coded(layer: Layer) -> bool:
    """Whether cells hold codes, labels, ranks or directions: an average of them means nothing."""
    maker, info = made_by(layer), layer.info
    if maker == "overviews":  # overviews record less
        with contextlib.suppress(StoreError):
            return is_coded(TileStore.open(root_of(layer.path.parent)[0]).layer(layer.name))
    if info.get("encoding") or info.get("holds") in ("aspect", "pour points"):
        return True
    whole = layer.dtype.kind in "iu"
    if (
        maker == "compute-sssp"
    ):  # ids of sources, and ties; integer distances have the largest number as nodata
        return whole and layer.nodata != np.iinfo(layer.dtype).max
    if maker == "depressions":
        return "holds" not in info  # conditioned elevations
    if maker == "streams":
        return info["settings"].get("order") != "shreve"  # a number of springs
    return maker in _CODED


def inputs_of(layer: Layer) -> list[str]:
    """Names of the layers that a layer was computed from, as it records."""
    settings, beside = layer.info.get("settings"), layer.info.get("beside")
    of = settings.get("of") if isinstance(settings, dict) else None
    return [*(of if isinstance(of, dict) else ()), *_names(beside)]


def dependants(store: TileStore, name: str) -> list[str]:
    """Names of the readable layers that were computed from a layer."""
    return _made_of(_inputs(store), name)


def _inputs(store: TileStore) -> dict[str, list[str]]:
    """The layers that each readable layer was computed from."""
    return {name: inputs_of(one) for name, one in store.each() if isinstance(one, Layer)}


def _made_of(inputs: dict[str, list[str]], name: str) -> list[str]:
    return [other for other, of in inputs.items() if other != name and name in of]


StoreLike = str | os.PathLike[str] | TileStore


@checked()
def list_layers(store: StoreLike) -> dict[str, JsonObject]:
    """List the layers of a store, with the commands that made them and the layers they depend on.

    Parameters
    ----------
    store
        A store, or its path.

    Returns
    -------
    dict
        By name: "dtype", "stored_bytes", "made_by" (the command; None if unknown), "from" (the
        layers that it was computed from) and "stale" (those that have changed since). For a damaged
        layer only "unreadable", the reason.

    Raises
    ------
    StoreError
        when there is no store.

    Examples
    --------
    >>> list_layers("dem.zarr")["distance"]["from"]
    ['elevation']
    """
    store = TileStore.open(store)
    listed: dict[str, JsonObject] = {}
    for name, layer in store.each():
        if isinstance(layer, StoreError):
            listed[name] = {"unreadable": str(layer)}
            continue
        listed[name] = {
            "dtype": layer.dtype.name,
            "stored_bytes": layer.info.get("stored_bytes"),
            "made_by": made_by(layer),
            "from": inputs_of(layer),
            "stale": store.stale(layer),
        }
    return listed


@checked(names=name_list, force=flag)
def remove_layers(store: StoreLike, names: Sequence[str], *, force: bool = False) -> None:
    """Remove layers of a store. Each one disappears at once; its files are deleted afterwards.

    Parameters
    ----------
    store
        A store, or its path.
    names
        Names of layers, which may be damaged.
    force
        Also remove the layer "elevation", and layers that others were computed from; those become
        stale.

    Raises
    ------
    InputError
        for such layers without `force`.
    StoreError
        when there is no such layer, or a run is writing it.
    OutputError
        when its files cannot be removed.

    Examples
    --------
    >>> remove_layers("dem.zarr", ["walk", "walk_backlink"])
    """
    store = TileStore.open(store)
    inputs = {} if force else _inputs(store)
    for name in names:
        _must_exist(store, name)
        if force:
            continue
        if others := [one for one in _made_of(inputs, name) if one not in names]:
            raise InputError(
                f"{store.path}: {_were(others)} computed from {name!r} and could not be verified "
                "without it; remove the dependent layers as well, or use --force"
            )
        if name == HEIGHTS:
            raise InputError(
                f"{store.path}: {name!r} is the main layer of the store; use --force to remove it"
            )
    remove(store, names)


@checked(old=text, new=text, force=flag)
def rename_layer(store: StoreLike, old: str, new: str, *, force: bool = False) -> list[str]:
    """Rename a layer; the backlinks and allocation of a layer of distances are renamed with it.

    Parameters
    ----------
    store
        A store, or its path.
    old, new
        The current name, and the new one.
    force
        Also rename a layer that others were computed from; those become stale.

    Returns
    -------
    list
        The new names.

    Raises
    ------
    InputError
        for an invalid layer name, and without `force` for layers that others were computed from.
    StoreError
        when there is no layer `old`, there is a layer `new`, a run is writing them, or the store is
        in object storage.
    OutputError
        when the files cannot be renamed.

    Examples
    --------
    >>> rename_layer("dem.zarr", "distance", "walk")
    ['walk', 'walk_backlink']
    """
    store = TileStore.open(store)
    _must_exist(store, old)
    if isinstance(store.path, ObjectPath):
        raise StoreError(
            f"{store.path}: objects cannot be renamed; compute {old!r} again under the new name"
        )
    partners = _partners(store, old)
    renamed = {**{name: _renamed(name, old, new) for name in partners}, old: new}
    for name in renamed.values():
        check_layer_name(store.path, name)
        if os.path.lexists(store.path / name):
            raise StoreError(
                f"{store.path}: {name!r} exists; remove it first, or choose another name"
            )
    inputs = _inputs(store)
    others = [one for name in renamed for one in _made_of(inputs, name) if one not in renamed]
    if others and not force:
        raise InputError(
            f"{store.path}: {_were(others)} computed from {old!r} and could not be verified "
            "after it is renamed; use --force to rename it anyway"
        )
    with changing(store, [*renamed, *renamed.values()]):
        # The distances last: a second attempt then finds what a killed one has left.
        for name, other in renamed.items():
            if name != old:
                _rename_beside(store, name, old, new)
            os.rename(store.path / name, store.path / other)
            sync_folder(store.path)
    return [new, *(other for name, other in renamed.items() if name != old)]


def _partners(store: TileStore, name: str) -> list[str]:
    """Names of the layers that were computed together with this one, in the same run."""
    partners = []
    for other in dependants(store, name):
        if name in _names(store.layer(other).info.get("beside")):
            partners.append(other)
    return partners


def _renamed(name: str, old: str, new: str) -> str:
    return f"{new}{name[len(old) :]}" if name.startswith(f"{old}_") else f"{new}_{name}"


def _rename_beside(store: TileStore, name: str, old: str, new: str) -> None:
    """Record the new name of the distances in a layer computed together with them."""
    layer = store.layer(name)
    digests = layer.info["beside"]
    layer.info["beside"] = {new if key == old else key: value for key, value in digests.items()}
    folder = folder_of_runs(store.path)
    temporary = folder / f"{name}.tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    write_array(layer, temporary)
    temporary.rmdir()
    with contextlib.suppress(OSError):
        folder.rmdir()


def _must_exist(store: TileStore, name: str) -> None:
    if name not in store:
        raise StoreError(
            f"{store.path}: no layer {name!r}; it has: {', '.join(store.layers) or 'none'}"
        )


def _were(names: list[str]) -> str:
    return f"{' and '.join(map(repr, names))} {'were' if len(names) > 1 else 'was'}"


def _names(recorded: Any) -> list[str]:
    return list(recorded) if isinstance(recorded, dict) else []
