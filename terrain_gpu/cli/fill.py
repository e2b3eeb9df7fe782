"""terrain-gpu fill: fill depressions."""

from __future__ import annotations

from typing import Any

import click

from .flow_accumulation import directions_option, provide

__all__ = ["HELP", "MODULES", "NAME", "OPTIONS", "PROVEN", "provide", "run", "tell"]

NAME = "fill"
PROVEN = True
MODULES = "mst.problem", "drainage.flow", "drainage.directions"
HELP = """Fill the depressions of STORE, or of a raster (then give -o).

Every cell is raised to the level at which water leaves it for an outlet. The outlets are those of
the flow directions, which are computed if they are not there: the raster's edge, and the coast of
voids that reach it. Other outlets need other directions (flow-direction --outlets), but no other
tree.

With --epsilon, each cell is raised until a neighbour is strictly lower, by steps of floats.

\b
terrain-gpu fill dem.zarr
terrain-gpu fill dem.tif -o filled.tif
terrain-gpu fill dem.tif --epsilon -o filled.tif
"""
OPTIONS = [
    click.option(
        "--epsilon",
        is_flag=True,
        help="Raise cells until a neighbour is strictly lower; only floats.",
    ),
    directions_option,
    click.option(
        "--into",
        default="filled",
        show_default=True,
        metavar="NAME",
        help="Layer to write the filled heights to.",
    ),
]


def run(store: Any, **settings: Any) -> Any:
    from ..drainage.flow import fill

    return fill(store, **settings)


def tell(found: Any) -> str:
    from .operations import cells_with_a_value

    own, text = found.found, cells_with_a_value(found)
    if "raised_above_fill" in own:
        count, most = own["raised_above_fill"], own["largest_rise"]
        text += f", {count:,} above plain fill" + f" by up to {most:.3g}" * (count > 0)
    return text
