"""terrain-gpu network: extract the main lines of the spanning forest as vector lines."""

from __future__ import annotations

from typing import Any

import click

from ..plurals import counted
from .places import from_file, naming, not_negative

NAME = "network"
FUNCTION = "extract_network"
NEEDS = "extract_network"
PROVEN = True
MODULES = "spanning_tree.operation", "hydrology.network.operation"
READS = ("keep",)
FILE = "LINES.geojson|.gpkg|.parquet|.fgb"
HELP = """Write the main lines of the spanning forest of STORE, or of a raster, as vector lines.

The forest (compute-mst) is computed if it is not there, then of weight flow. Each line joins two
nodes. Its attributes are start and end (cells, row x columns + column), weight (sum over its
edges), pass_height (its highest cell), length and cells.

\b
terrain-gpu network dem.zarr lines.gpkg --min-length 5000
terrain-gpu network dem.zarr ways.geojson --keep huts.geojson
"""
OPTIONS = [
    click.option(
        "--min-length",
        type=float,
        metavar="LENGTH",
        callback=not_negative,
        help="Remove dead ends shorter than this, in map units (metres in a geographic CRS); 0 "
        "removes nothing.",
    ),
    click.option(
        "--keep",
        metavar="FILE",
        help="Cells to keep and to end lines at: the points, lines and polygons of a vector file "
        "(FILE:LAYER for one layer of several), or the cells of an aligned raster that are neither "
        "0 nor nodata.",
    ),
]


def provide(
    store: Any, show: Any, how: dict[str, Any], settings: dict[str, Any]
) -> dict[str, float]:
    from ..hydrology import needs

    kept = _kept(store, settings["keep"], settings["memory_limit"])
    return needs.extract_network(store, show, how, {**settings, "keep": kept})


def run(store: Any, output: str, keep: str | None, **settings: Any) -> Any:
    from ..hydrology.network.pipeline import extract_network

    kept = _kept(store, keep, settings["memory_limit"])
    return extract_network(store, output, keep=kept, **settings)


def _kept(store: Any, keep: str | None, memory_limit: int | None) -> Any:
    """The places of --keep, if it is given."""
    if keep is None:
        return None
    with naming("--keep"):
        return from_file(store.grid, keep, memory_limit, "places to keep")


def tell(found: Any) -> str:
    unit = found.report.result["length_unit"]
    return (
        f"{counted(found.lines, 'line')} over {counted(found.cells, 'cell')}, "
        f"length {found.length:.10g} {unit}"
    )
