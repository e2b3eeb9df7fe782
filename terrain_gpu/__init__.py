"""terrain_gpu: spanning trees and cost distance on elevation rasters far larger than memory.

The public API is the names in this module. Everything loads on first use, so that importing it and
starting a command, stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .algebra import calc, corridor, rasterize
    from .components import Components, label_components
    from .drainage import (
        Accumulation,
        Network,
        Streams,
        accumulate,
        basins,
        breach,
        burn,
        depressions,
        extract_network,
        fill,
        fill_spill_merge,
        flow_accumulation,
        flow_direction,
        hand,
        streams,
        terrain_indices,
        watershed,
    )
    from .errors import (
        ClusterError,
        InputError,
        OutputError,
        PlanError,
        StoreError,
        TerrainError,
        VerificationError,
    )
    from .grid import GridSpec
    from .io.convert import convert_dataset
    from .io.export import export_layer
    from .morphometry import slope
    from .mst import SpanningTree, minimum_spanning_tree
    from .overviews import build_overviews
    from .paths import ShortestPaths, shortest_paths, tied_steps
    from .paths.index import build_index
    from .paths.index.query import IndexQuery, query_index
    from .paths.matrix import CostMatrix, cost_matrix
    from .paths.network import CostNetwork, least_cost_network
    from .report import Report
    from .store import Layer, LayerWriter, TileStore, create_layer
    from .store.manage import list_layers, remove_layers, rename_layer
    from .store.opening import open as open
    from .vectorize import Contours, Polygons, contours, polygons

_HOME = {
    "Accumulation": "drainage",
    "ClusterError": "errors",
    "Components": "components",
    "Contours": "vectorize",
    "CostMatrix": "paths.matrix",
    "CostNetwork": "paths.network",
    "GridSpec": "grid",
    "IndexQuery": "paths.index.query",
    "InputError": "errors",
    "Layer": "store",
    "LayerWriter": "store",
    "Network": "drainage",
    "OutputError": "errors",
    "PlanError": "errors",
    "Polygons": "vectorize",
    "Report": "report",
    "ShortestPaths": "paths",
    "SpanningTree": "mst",
    "StoreError": "errors",
    "Streams": "drainage",
    "TerrainError": "errors",
    "TileStore": "store",
    "VerificationError": "errors",
    "accumulate": "drainage",
    "basins": "drainage",
    "breach": "drainage",
    "build_index": "paths.index",
    "build_overviews": "overviews",
    "burn": "drainage",
    "depressions": "drainage",
    "calc": "algebra",
    "contours": "vectorize",
    "convert_dataset": "io.convert",
    "corridor": "algebra",
    "cost_matrix": "paths.matrix",
    "create_layer": "store",
    "export_layer": "io.export",
    "extract_network": "drainage",
    "fill": "drainage",
    "fill_spill_merge": "drainage",
    "flow_accumulation": "drainage",
    "flow_direction": "drainage",
    "hand": "drainage",
    "label_components": "components",
    "least_cost_network": "paths.network",
    "list_layers": "store.manage",
    "minimum_spanning_tree": "mst",
    "open": "store.opening",
    "polygons": "vectorize",
    "query_index": "paths.index.query",
    "rasterize": "algebra",
    "remove_layers": "store.manage",
    "rename_layer": "store.manage",
    "shortest_paths": "paths",
    "slope": "morphometry",
    "streams": "drainage",
    "terrain_indices": "drainage",
    "tied_steps": "paths",
    "watershed": "drainage",
}

__all__ = [
    "Accumulation",
    "ClusterError",
    "Components",
    "Contours",
    "CostMatrix",
    "CostNetwork",
    "GridSpec",
    "IndexQuery",
    "InputError",
    "Layer",
    "LayerWriter",
    "Network",
    "OutputError",
    "PlanError",
    "Polygons",
    "Report",
    "ShortestPaths",
    "SpanningTree",
    "StoreError",
    "Streams",
    "TerrainError",
    "TileStore",
    "VerificationError",
    "accumulate",
    "basins",
    "breach",
    "build_index",
    "build_overviews",
    "burn",
    "calc",
    "contours",
    "convert_dataset",
    "corridor",
    "cost_matrix",
    "create_layer",
    "depressions",
    "export_layer",
    "extract_network",
    "fill",
    "fill_spill_merge",
    "flow_accumulation",
    "flow_direction",
    "hand",
    "label_components",
    "least_cost_network",
    "list_layers",
    "minimum_spanning_tree",
    "polygons",
    "query_index",
    "rasterize",
    "remove_layers",
    "rename_layer",
    "shortest_paths",
    "slope",
    "streams",
    "terrain_indices",
    "tied_steps",
    "watershed",
]
"""What `from terrain_gpu import *` gives: all public names but `open`, which Python has, too."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
