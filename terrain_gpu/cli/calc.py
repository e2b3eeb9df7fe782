"""terrain-gpu calc: name, help and options."""

from __future__ import annotations

from typing import Any

import click

from ..cells import DTYPES

NAME = "calc"
PROVEN = True
MODULES = ("raster.calc.operation",)
READS = ("reclass",)
HELP = """Compute a layer of STORE from others, cell by cell.

EXPRESSION has layers, numbers, + - * /, comparisons, and, or, not, abs(a), sqrt(a), min(a, b),
max(a, b), where(condition, a, b), nodata(a) and coalesce(a, b), the first with a value. Names with
a minus sign are in double quotes. The result is nodata where an input is.

\b
terrain-gpu calc dem.zarr "distance + other" --into total
terrain-gpu calc dem.zarr "where(slope > 30, 9, 1) * friction" --into steep
terrain-gpu calc dem.zarr landcover --reclass friction.csv --into friction
"""


class NumberOrNodata(click.ParamType):
    """A number or the word nodata."""

    name = "VALUE|nodata"

    def convert(self, value: Any, param: Any, ctx: Any) -> float | str:
        if str(value).lower() == "nodata":
            return "nodata"
        try:
            return int(value)  # exact beyond 2^53
        except ValueError:
            pass
        try:
            return float(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor nodata", param, ctx)


OPTIONS = [
    click.argument("expression", metavar="EXPRESSION"),
    click.option(
        "--into", default="calc", show_default=True, metavar="NAME", help="Layer to write."
    ),
    click.option(
        "--dtype",
        type=click.Choice([dtype.name for dtype in DTYPES]),
        help="Cell type of the layer.  [default: uint8 for conditions, int64 for integers, also of "
        "a table, else float64]",
    ),
    click.option(
        "--reclass",
        metavar="TABLE.csv",
        help="Look the results up in a table: lines of class and value. An empty value is none.",
    ),
    click.option(
        "--default",
        type=NumberOrNodata(),
        metavar="VALUE|nodata",
        help="Value for classes that are not in the table.  [default: an error that lists them]",
    ),
]


def run(store: Any, **settings: Any) -> Any:
    from ..raster.calc.operation import calc

    return calc(store, **settings)
