"""terrain-gpu flow-direction: D8 flow directions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .places import given_outlets, outlet_options

if TYPE_CHECKING:
    from ..store import TileStore

NAME = "flow-direction"
PROVEN = True
MODULES = "mst.problem", "drainage.flow", "drainage.directions"
HELP = """Compute the D8 flow direction of every cell of STORE, or of a raster (then give -o).

Every cell drains to its steepest lower neighbour. Flats drain along the spanning tree, depressions
are carved at their lowest passes: all ways end at outlets. By default, these are the cells at the
raster's edge and beside voids that reach it. Codes: E 1, SE 2, S 4, SW 8, W 16, NW 32, N 64,
NE 128; 0 at outlets, 255 (nodata) where none is reached.

With --flats gradient, depressions are filled instead, and flats drain towards lower and away from
higher cells (Barnes 2014). Filled heights are computed if they are not there.

\b
terrain-gpu flow-direction dem.zarr
terrain-gpu flow-direction dem.tif -o directions.tif
terrain-gpu flow-direction dem.zarr --flats gradient --into gradient
"""
OPTIONS = [
    *outlet_options,
    click.option(
        "--inner-voids",
        is_flag=True,
        help="Cells beside inner voids are outlets, too.",
    ),
    click.option(
        "--flats",
        type=click.Choice(["tree", "gradient"]),
        default="tree",
        show_default=True,
        help="How flats drain, and depressions.",
    ),
    click.option(
        "--filled",
        default="filled",
        show_default=True,
        metavar="NAME",
        help="Layer of filled heights for gradients, for the same outlets.",
    ),
    click.option(
        "--into",
        default="flow_direction",
        show_default=True,
        metavar="NAME",
        help="Layer to write the directions to.",
    ),
]


def provide(
    store: TileStore, show: Any, how: dict[str, Any], settings: dict[str, Any]
) -> dict[str, float]:
    from ..drainage.chain import provide_filled, provide_tree

    if settings["flats"] == "tree":
        return provide_tree(store, show, **how)
    return provide_filled(store, settings["filled"], _outlets(store, dict(settings)), show, **how)


def run(store: TileStore, **settings: Any) -> Any:
    from ..drainage.directions import flow_direction

    ends = _outlets(store, settings)
    return flow_direction(store, ends, **settings)


def _outlets(store: TileStore, settings: dict[str, Any]) -> Any:
    """Take the outlets out of the settings."""
    given, inner_voids = given_outlets(store.grid, settings), settings.pop("inner_voids")
    if given is not None and inner_voids:
        raise click.UsageError("--inner-voids: leave it out where outlets are given")
    return given if given is not None else "border" if inner_voids else "edge"


def tell(found: Any) -> str:
    cells, outlets, reached = found.found["cells"], found.found["outlets"], found.report.valid_cells
    if not cells:
        return "no cell has a value"
    text = f"{reached:,} cells drain to {outlets:,} outlet{'s' * (outlets != 1)}"
    if cells > reached:
        text += f", {cells - reached:,} reach none"
    return text
