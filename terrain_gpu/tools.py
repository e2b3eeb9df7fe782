"""The register of tools: where each is declared."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .tool import Tool

TOOLS = {
    "accumulate": "hydrology.accumulate:TreeAccumulation",
    "basins": "hydrology.basins:Basins",
    "breach": "hydrology.breach:Breach",
    "build-index": "paths.distance_index:BuildIndex",
    "burn": "hydrology.burn:Burn",
    "calc": "raster.calc:Calc",
    "compute-mst": "spanning_tree:MinimumSpanningTree",
    "compute-sssp": "paths.cost_distance:FindShortestPaths",
    "contours": "raster.contours:DrawContours",
    "corridor": "paths.corridor:LeastCostCorridor",
    "cost-matrix": "paths.cost_matrix:ComputeCostMatrix",
    "depressions": "hydrology.depressions:Depressions",
    "fill": "hydrology.fill:Fill",
    "fill-spill-merge": "hydrology.fill_spill_merge:FillSpillMerge",
    "flow-accumulation": "hydrology.flow_accumulation:FlowAccumulation",
    "flow-direction": "hydrology.flow_direction:FlowDirection",
    "hand": "hydrology.hand:Hand",
    "label-components": "raster.label_components:LabelComponents",
    "least-cost-network": "paths.least_cost_network:LeastCostNetwork",
    "network": "hydrology.network:ExtractNetwork",
    "polygons": "raster.polygons:DrawPolygons",
    "rasterize": "raster.rasterize:Rasterize",
    "slope": "raster.slope:Slope",
    "streams": "hydrology.streams:FindStreams",
    "terrain-indices": "hydrology.terrain_indices:TerrainIndices",
    "watershed": "hydrology.watershed:Watershed",
}
"""The class of each command's tool, as module:name."""

_NAMED = {
    "compute-mst": "minimum_spanning_tree",
    "compute-sssp": "shortest_paths",
    "network": "extract_network",
}
"""Functions whose names differ from those of their commands."""

FUNCTIONS = {_NAMED.get(command, command.replace("-", "_")): command for command in TOOLS}
"""The command of a Python function."""


def tool_of(command: str) -> type[Tool]:
    """The tool of a command."""
    module, name = TOOLS[command].split(":")
    found: type[Tool] = getattr(import_module(f".{module}", __package__), name)
    return found
