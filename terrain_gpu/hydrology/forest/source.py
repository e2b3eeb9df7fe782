"""The spanning forest of a store, and the elevations it was computed from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ...errors import StoreError
from ...grid.neighbours import BACKLINKS, FLOW_DIRECTIONS, KNIGHT_BACKLINKS
from ...io.labelled import HEIGHTS
from ...spanning_tree import LAYER
from ...spanning_tree.weights import WEIGHTS, Weight
from ...store import Layer, TileStore
from ..common.relative import base_of


@dataclass(frozen=True)
class Forest:
    """A spanning forest.

    Attributes
    ----------
    store
        The store that holds it.
    cells, edges
        The elevation layer, and the layer of forward edges.
    weight
        The edge weight.
    """

    store: TileStore
    cells: Layer
    edges: Layer
    weight: Weight

    @property
    def connectivity(self) -> int:
        """Number of neighbours that edges connect to, 8 or 4."""
        return 4 if self.edges.info["settings"].get("connectivity") == 4 else 8

    @property
    def identity(self) -> dict[str, str]:
        """Identities of both layers. A run is resumed only if they have not changed."""
        return {layer.name: layer.identity for layer in (self.cells, self.edges)}


def open_forest(store: str | os.PathLike[str] | TileStore) -> Forest:
    """Open the spanning forest of a store.

    Raises
    ------
    StoreError
        If there is none, or the elevations have changed since it was computed.
    """
    opened = store if isinstance(store, TileStore) else TileStore.open(store)
    if LAYER not in opened:
        raise StoreError(f"{opened.path}: has no spanning forest; compute-mst makes it")
    edges = opened.layer(LAYER)
    settings = edges.info.get("settings")
    again = "compute it again (compute-mst --overwrite)"
    try:
        name, weight, of = settings["layer"], settings["weight"], settings["of"]  # type: ignore[index]
        complete = weight in WEIGHTS and isinstance(of, dict) and name in opened
        complete = complete and isinstance(edges.info["result"], dict)
    except (TypeError, KeyError):
        complete = False
    if not complete:
        raise StoreError(f"{edges.path}: does not say what it was computed from; {again}")
    cells = opened.layer(name)
    if not opened.holds(name, of.get(name)):
        raise StoreError(
            f"{edges.path}: computed from other cells than {cells.path} holds now; {again}"
        )
    if edges.block_size != cells.block_size:
        raise StoreError(f"{edges.path}: its block size is not that of {cells.path}; {again}")
    return Forest(opened, cells, edges, Weight.on(cells.grid, weight, cells.dtype))


def heights_in(store: TileStore) -> Layer:
    """Return the default elevation layer: `HEIGHTS`, or the layer that the tree was computed from.

    Raises
    ------
    StoreError
        If the store has neither.
    """
    if HEIGHTS in store:
        return store.layer(HEIGHTS)
    if LAYER not in store:
        raise StoreError(
            f"{store.path}: no layer {HEIGHTS!r}; it has: {', '.join(store.layers) or 'none'}; "
            "name the elevations (flow-direction --layer NAME)"
        )
    name = (store.layer(LAYER).info.get("settings") or {}).get("layer", "")
    return store.layer(name) if name in store else open_forest(store).cells  # may be stale


def heights_of_tree(store: TileStore, name: str | None = None) -> str:
    """Return the name of the elevation layer for a spanning forest that flow follows.

    `name` is the layer asked for; None means that of `heights_in`.

    Raises
    ------
    StoreError
        If the layer holds something other than elevations.
    """
    heights = store.layer(name) if name else heights_in(store)
    if (encoding := heights.info.get("encoding")) == FLOW_DIRECTIONS:
        raise StoreError(
            f"{heights.path}: holds flow directions, not elevations; convert them to a layer "
            "in the store of the elevations (convert-dataset --layer codes) and give --directions "
            "codes"
        )
    if encoding:
        holds = "backlinks" if encoding in (BACKLINKS, KNIGHT_BACKLINKS) else encoding
        raise StoreError(
            f"{heights.path}: holds {holds}, not elevations; name the elevations "
            "(flow-direction --layer NAME)"
        )
    return heights.name


def refuse_wide(tool: Any, store: TileStore) -> None:
    """Reject integer elevations that span too wide a range, if directions must be computed.

    Parameters
    ----------
    tool
        A tool that reads `directions`.

    Raises
    ------
    InputError
        If the elevations span too wide a range for float64.
    """
    if tool.directions not in store:
        base_of(heights_in(store))


def open_drained(
    store: str | os.PathLike[str] | TileStore,
    purpose: str,
    weights: tuple[str, ...] = ("flow", "max"),
) -> Forest:
    """Open the spanning forest of a store for drainage along it.

    Raises
    ------
    StoreError
        As for `open_forest`, and if its weight is not one of `weights`, which `purpose` needs.
    """
    forest = open_forest(store)
    if forest.weight.name not in weights:
        raise StoreError(
            f"{forest.edges.path}: computed with weight {forest.weight.name}, but {purpose} needs "
            f"weight {' or '.join(weights)}; compute it again (compute-mst --weight flow "
            "--overwrite)"
        )
    return forest


def heights_of(layer: Layer) -> str:
    """Return the elevation layer that a result of drainage came from; `HEIGHTS` if unknown."""
    settings = layer.info.get("settings") or {}
    if "filled" in settings:
        filled = TileStore.open(layer.path.parent).find(settings["filled"])
        settings = (filled and filled.info.get("settings")) or {}
    named = [settings[key] for key in ("fill_of", "depressions_of", "water_of") if key in settings]
    names = named or [name for name in settings.get("of") or () if name != LAYER]
    return str(names[0]) if len(names) == 1 else HEIGHTS


def over_heights(result: Any) -> str:
    """Return text for a summary that names the elevation layer; empty if it is `HEIGHTS`."""
    name = heights_of(next(iter(result.layers.values())))
    return "" if name == HEIGHTS else f", from the elevations of layer {name}"


def open_filled(store: TileStore, name: str) -> Layer:
    """Open a layer of filled elevations, from which water can flow out everywhere.

    Raises
    ------
    StoreError
        If there is none, it was not made by `fill`, or depressions were kept.
    """
    if name not in store:
        raise StoreError(
            f"{store.path}: has no layer {name!r} of filled elevations; terrain-gpu fill makes it"
        )
    layer = store.layer(name)
    settings = layer.info.get("settings") or {}
    if "fill_of" not in settings:
        raise StoreError(f"{layer.path}: not made by fill, so flow might not reach an outlet")
    if "keep_depth" in settings:
        raise StoreError(
            f"{layer.path}: deep or large depressions were kept, and flow does not leave them; "
            "fill all of them (terrain-gpu fill --into NAME), and give that layer (--filled NAME)"
        )
    return layer
