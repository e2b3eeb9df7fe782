"""terrain-gpu flow-direction: D8 flow directions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click
from click.core import ParameterSource

from ..arguments import DepressionsMethod, FlatsMethod
from ..plurals import counted
from .places import above_zero, from_file, inner_voids_option, naming, outlet_options, outlets_of

if TYPE_CHECKING:
    from ..hydrology.common.outlets import Asked
    from ..store import TileStore

NAME = "flow-direction"
PROVEN = ON_GPU = True
MODULES = (
    "spanning_tree.operation",
    "hydrology.fill.operation",
    "hydrology.flow_direction.operation",
)
READS = ("burn",)
HELP = """Compute the D8 flow direction of every cell of STORE, or of a raster (then give -o).

Every cell drains to its steepest lower neighbour. Flats drain along the spanning tree, depressions
are carved at their lowest passes: all flow paths end at outlets. By default, these are cells on the
raster's edge, or beside voids that reach it, that have no lower neighbour or over which a
depression spills. Codes: E 1, SE 2, S 4, SW 8, W 16, NW 32, N 64, NE 128; 0 at outlets, 255
(nodata) where none is reached.

With --depressions fill, depressions are filled instead, and flats drain towards lower and away from
higher cells (Barnes 2014). With breach, channels are cut first (terrain-gpu breach); what is left
is carved, or filled with --flats gradient. Layers that this needs (mst, filled, breached, burned)
are computed if they are not there; --overwrite replaces those of other heights or settings, which
are refused otherwise.

\b
terrain-gpu flow-direction dem.zarr
terrain-gpu flow-direction dem.tif -o directions.tif
terrain-gpu flow-direction dem.zarr --depressions fill --into filled_way
terrain-gpu flow-direction dem.zarr --depressions breach --max-depth 5
terrain-gpu flow-direction dem.zarr --burn rivers.gpkg --burn-depth 10
"""
OPTIONS = [
    *outlet_options,
    inner_voids_option,
    click.option(
        "--depressions",
        type=click.Choice(get_args(DepressionsMethod)),
        help="How water leaves depressions.  [default: fill with --flats gradient, else carve]",
    ),
    click.option(
        "--flats",
        type=click.Choice(get_args(FlatsMethod)),
        help="How flats drain.  [default: gradient with --depressions fill, else tree]",
    ),
    click.option(
        "--max-distance",
        type=click.IntRange(1, 10_000),
        metavar="CELLS",
        help="With breach: how many rows and columns a channel may lead away.  [default: 50]",
    ),
    click.option(
        "--max-depth",
        type=float,
        callback=above_zero,
        metavar="HEIGHT",
        help="With breach: the deepest cut.  [default: no limit]",
    ),
    click.option(
        "--burn",
        metavar="FILE",
        help="Lower the heights that the lines and polygons of a vector file touch, or the cells "
        "of an aligned raster, first.",
    ),
    click.option(
        "--burn-depth",
        type=float,
        callback=above_zero,
        metavar="HEIGHT",
        help="By how much --burn lowers them.",
    ),
    click.option(
        "--layer", default="elevation", show_default=True, metavar="NAME", help="Layer of heights."
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


def refuse(settings: dict[str, Any]) -> None:
    """Refuse options of other commands that contradict each other."""
    from ..hydrology.flow_direction.operation import ways_of

    depressions, _ = ways_of(settings["depressions"], settings["flats"])
    for name in ("max_distance", "max_depth"):
        if settings[name] is not None and depressions != "breach":
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{option} needs --depressions breach: give that too")
    if bool(settings["burn"]) != (settings["burn_depth"] is not None):
        raise click.UsageError("--burn and --burn-depth need each other: give both")


def provide(
    store: TileStore, show: Any, how: dict[str, Any], settings: dict[str, Any]
) -> dict[str, float]:
    from ..hydrology import needs
    from ..hydrology.breach import Breach
    from ..hydrology.breach.operation import BreachedHeights
    from ..hydrology.burn import Burn
    from ..hydrology.burn.operation import burned
    from ..hydrology.chain import heights_in, provide_heights, refuse_tree
    from ..hydrology.flow_direction.operation import ways_of

    depressions, _ = ways_of(settings["depressions"], settings["flats"])
    how = {**how, "replace": settings["overwrite"]}
    seconds, derived = dict[str, float](), depressions == "breach" or bool(settings["burn"])
    if click.get_current_context().get_parameter_source("layer") is ParameterSource.DEFAULT:
        heights = heights_in(store, plain=derived).name
    else:
        heights = store.layer(settings["layer"]).name
    ends, burning = outlets_of(store, dict(settings)), None
    if settings["burn"]:
        with naming("--burn"):
            cells = from_file(
                store.grid, settings["burn"], how["memory_limit"], "streams", all_touched=True
            )
        depth = settings["burn_depth"]
        burning = burned(store, Burn(cells, depth, heights), "burn_depth")
    wanted = "breached" if depressions == "breach" else "burned" if settings["burn"] else heights
    if not settings["overwrite"]:
        refuse_tree(store, wanted, made=derived)  # before the work
    if burning is not None:
        seconds, heights = provide_heights(store, burning, show, **how), burning.into
    if depressions == "breach":
        asked = Breach(
            max_distance=settings["max_distance"] or 50,
            max_depth=settings["max_depth"],
            inner_voids=settings["inner_voids"],
            layer=heights,
        )
        seconds |= provide_heights(store, BreachedHeights.of(store, asked), show, **how)
        heights = asked.into
    given = {**settings, **_named(ends)}
    return {**seconds, **needs.flow_direction(store, show, how, given, heights)}


def run(store: TileStore, **settings: Any) -> Any:
    from ..hydrology.flow_direction.operation import flow_direction

    ends = outlets_of(store, settings)
    for name in ("burn", "burn_depth", "max_distance", "max_depth", "layer"):
        del settings[name]
    return flow_direction(store, **_named(ends), **settings)


def _named(ends: Asked | None) -> dict[str, Any]:
    """Outlets as arguments of `flow_direction`."""
    from ..hydrology.common.outlets import Asked

    outlets, added = ends or Asked()
    return {"outlets": outlets, "add_outlets": added}


def tell(found: Any) -> str:
    from ..hydrology.forest.source import over_heights

    cells, outlets, reached = found.found["cells"], found.found["outlets"], found.report.valid_cells
    text = f"{counted(reached, 'cell drains', 'cells drain')} to {counted(outlets, 'outlet')}"
    if cells > reached:
        text += f", {counted(cells - reached, 'reaches none', 'reach none')}"
    return text + over_heights(found)
