"""terrain-gpu corridor: name, help and options."""

from __future__ import annotations

from typing import Any

import click

NAME = "corridor"
PROVEN = True
LAYERS_ONLY = True
MODULES = ("algebra.corridors",)
HELP = """Compute a least-cost corridor from layers of distances of STORE.

For two layers, each cell gets the sum of both less the least sum: how much more than the best path
between the places the best way through the cell costs. Of more layers, each pair is one corridor,
and a cell gets the least value of all pairs.

\b
compute-sssp dem.zarr --source -84.2,36.5 --into from_a
compute-sssp dem.zarr --source -84.3,36.6 --into from_b
terrain-gpu corridor dem.zarr from_a from_b --within 5% -o corridor.tif
"""


class Within(click.ParamType):
    """A number, or a percentage."""

    name = "COST|PERCENT%"

    def convert(self, value: Any, param: Any, ctx: Any) -> float | str:
        if isinstance(value, float | int):
            return value
        try:
            number = float(value.removesuffix("%"))
        except ValueError:
            self.fail(f"{value!r} is neither a number nor a percentage such as 5%", param, ctx)
        return str(value) if value.endswith("%") else number


OPTIONS = [
    click.argument("distances", metavar="DISTANCE DISTANCE...", nargs=-1, required=True),
    click.option(
        "--into", default="corridor", show_default=True, metavar="NAME", help="Layer to write."
    ),
    click.option(
        "--within",
        type=Within(),
        metavar="COST|PERCENT%",
        help="Only cells whose best way costs at most so much, or so many percent, more than the "
        "best path of the pair.",
    ),
]


def run(store: Any, **settings: Any) -> Any:
    from ..algebra.corridors import corridor

    return corridor(store, **settings)


def tell(found: Any) -> str:
    """Tell the least cost of each pair."""
    pairs = found.report.result["pairs"]
    named = [
        f"{one['from']} to {one['to']} "
        + ("without a way" if one["optimum"] is None else f"{one['optimum']:.10g}")
        for one in pairs[:3]
    ]
    more = f" and {len(pairs) - 3:,} more pairs" if len(pairs) > 3 else ""
    return f"least costs: {', '.join(named)}{more}"
