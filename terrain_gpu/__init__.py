"""terrain_gpu: spanning trees and cost distance on elevation rasters far larger than memory.

The public API is the names in this module. Everything loads on first use, so that importing it and
starting a command, stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .tools import FUNCTIONS

__version__ = "0.1.0"

_HOME = {
    "Accumulation": "hydrology.accumulate.operation",
    "ClusterError": "errors",
    "Components": "raster.label_components.operation",
    "Contours": "raster.contours.lines",
    "Cost": "paths.cost.rules",
    "CostMatrix": "paths.cost_matrix.pipeline",
    "CostNetwork": "paths.least_cost_network.pipeline",
    "GridSpec": "grid",
    "IndexQuery": "paths.distance_index.query",
    "InputError": "errors",
    "Layer": "store",
    "LayerWriter": "store",
    "Network": "hydrology.network.operation",
    "OutputError": "errors",
    "PlanError": "errors",
    "Polygons": "raster.polygons.operation",
    "Report": "report",
    "ShortestPaths": "paths.cost_distance.result",
    "SpanningTree": "spanning_tree.operation",
    "StoreError": "errors",
    "Streams": "hydrology.streams.operation",
    "TerrainError": "errors",
    "TileStore": "store",
    "VerificationError": "errors",
    "build_overviews": "raster.overviews",
    "convert_dataset": "io.convert",
    "create_layer": "store",
    "export_layer": "io.export",
    "list_layers": "store.manage",
    "open": "store.opening",
    "query_index": "paths.distance_index.query",
    "remove_layers": "store.manage",
    "rename_layer": "store.manage",
    "set_options": "defaults",
    "tied_steps": "paths.ties.operation",
}

__all__ = sorted(name for name in [*_HOME, *FUNCTIONS] if name != "open")  # noqa: PLE0605
"""What `from terrain_gpu import *` gives: all public names but `open`, which Python has, too."""


def __getattr__(name: str) -> Any:
    home = "functions" if name in FUNCTIONS else _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{home}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *FUNCTIONS})
