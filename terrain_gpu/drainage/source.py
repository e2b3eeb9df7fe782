"""The spanning forest of a store and the cells that it was computed from."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..errors import StoreError
from ..mst import LAYER
from ..mst.weights import WEIGHTS, Weight
from ..store import Layer, TileStore


@dataclass(frozen=True)
class Forest:
    """A spanning forest.

    Attributes
    ----------
    store
        Where it is.
    cells, edges
        The layer of heights, and the layer of forward edges.
    weight
        The weight of edges.
    """

    store: TileStore
    cells: Layer
    edges: Layer
    weight: Weight

    @property
    def identity(self) -> dict[str, str]:
        """What results depend on: a run over another forest is not resumed."""
        return {layer.name: layer.identity for layer in (self.cells, self.edges)}


def open_forest(store: str | os.PathLike[str] | TileStore) -> Forest:
    """The spanning forest of a store.

    Raises
    ------
    StoreError
        when there is none, or when it was computed from other cells than the store holds now.
    """
    opened = store if isinstance(store, TileStore) else TileStore.open(store)
    if LAYER not in opened.layers:
        raise StoreError(f"{opened.path}: has no spanning forest; compute-mst makes it")
    edges = opened.layer(LAYER)
    settings = edges.info.get("settings")
    again = "compute it again (compute-mst --overwrite)"
    try:
        name, weight, of = settings["layer"], settings["weight"], settings["of"]  # type: ignore[index]
        known = weight in WEIGHTS and isinstance(of, dict) and name in opened.layers
        known = known and isinstance(edges.info["result"], dict)
    except (TypeError, KeyError):
        known = False
    if not known:
        raise StoreError(f"{edges.path}: does not say what it was computed from; {again}")
    cells = opened.layer(name)
    if not opened.holds(name, of.get(name)):
        raise StoreError(
            f"{edges.path}: computed from other cells than {cells.path} holds now; {again}"
        )
    if edges.block_size != cells.block_size:
        raise StoreError(f"{edges.path}: has other blocks than {cells.path}; {again}")
    return Forest(opened, cells, edges, Weight(weight, cells.dtype))
