"""terrain_gpu: spanning trees and cost distance on elevation rasters far larger than memory.

The public API is the names in this module. Everything loads on first use, so that importing it and
starting a command, stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
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
    from .hydrology.accumulate.operation import Accumulation, accumulate
    from .hydrology.basins.operation import basins
    from .hydrology.breach.operation import breach
    from .hydrology.burn.operation import burn
    from .hydrology.depressions.operation import depressions
    from .hydrology.fill.operation import fill
    from .hydrology.fill_spill_merge.operation import fill_spill_merge
    from .hydrology.flow_accumulation.operation import flow_accumulation
    from .hydrology.flow_direction.operation import flow_direction
    from .hydrology.hand.operation import hand
    from .hydrology.network.pipeline import Network, extract_network
    from .hydrology.streams.operation import Streams, streams
    from .hydrology.terrain_indices.operation import terrain_indices
    from .hydrology.watershed.operation import watershed
    from .io.convert import convert_dataset
    from .io.export import export_layer
    from .paths.corridor.operation import corridor
    from .paths.cost_distance.pipeline import ShortestPaths, shortest_paths
    from .paths.cost_matrix import CostMatrix, cost_matrix
    from .paths.distance_index import build_index
    from .paths.distance_index.query import IndexQuery, query_index
    from .paths.least_cost_network import CostNetwork, least_cost_network
    from .paths.ties.operation import tied_steps
    from .raster.calc.operation import calc
    from .raster.contours.operation import Contours, contours
    from .raster.label_components import Components, label_components
    from .raster.overviews import build_overviews
    from .raster.polygons.operation import Polygons, polygons
    from .raster.rasterize.operation import rasterize
    from .raster.slope import slope
    from .report import Report
    from .spanning_tree import SpanningTree, minimum_spanning_tree
    from .store import Layer, LayerWriter, TileStore, create_layer
    from .store.manage import list_layers, remove_layers, rename_layer
    from .store.opening import open as open

_HOME = {
    "Accumulation": "hydrology.accumulate.operation",
    "ClusterError": "errors",
    "Components": "raster.label_components",
    "Contours": "raster.contours.operation",
    "CostMatrix": "paths.cost_matrix",
    "CostNetwork": "paths.least_cost_network",
    "GridSpec": "grid",
    "IndexQuery": "paths.distance_index.query",
    "InputError": "errors",
    "Layer": "store",
    "LayerWriter": "store",
    "Network": "hydrology.network.pipeline",
    "OutputError": "errors",
    "PlanError": "errors",
    "Polygons": "raster.polygons.operation",
    "Report": "report",
    "ShortestPaths": "paths.cost_distance.pipeline",
    "SpanningTree": "spanning_tree",
    "StoreError": "errors",
    "Streams": "hydrology.streams.operation",
    "TerrainError": "errors",
    "TileStore": "store",
    "VerificationError": "errors",
    "accumulate": "hydrology.accumulate.operation",
    "basins": "hydrology.basins.operation",
    "breach": "hydrology.breach.operation",
    "build_index": "paths.distance_index",
    "build_overviews": "raster.overviews",
    "burn": "hydrology.burn.operation",
    "depressions": "hydrology.depressions.operation",
    "calc": "raster.calc.operation",
    "contours": "raster.contours.operation",
    "convert_dataset": "io.convert",
    "corridor": "paths.corridor.operation",
    "cost_matrix": "paths.cost_matrix",
    "create_layer": "store",
    "export_layer": "io.export",
    "extract_network": "hydrology.network.pipeline",
    "fill": "hydrology.fill.operation",
    "fill_spill_merge": "hydrology.fill_spill_merge.operation",
    "flow_accumulation": "hydrology.flow_accumulation.operation",
    "flow_direction": "hydrology.flow_direction.operation",
    "hand": "hydrology.hand.operation",
    "label_components": "raster.label_components",
    "least_cost_network": "paths.least_cost_network",
    "list_layers": "store.manage",
    "minimum_spanning_tree": "spanning_tree",
    "open": "store.opening",
    "polygons": "raster.polygons.operation",
    "query_index": "paths.distance_index.query",
    "rasterize": "raster.rasterize.operation",
    "remove_layers": "store.manage",
    "rename_layer": "store.manage",
    "shortest_paths": "paths.cost_distance.pipeline",
    "slope": "raster.slope",
    "streams": "hydrology.streams.operation",
    "terrain_indices": "hydrology.terrain_indices.operation",
    "tied_steps": "paths.ties.operation",
    "watershed": "hydrology.watershed.operation",
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
