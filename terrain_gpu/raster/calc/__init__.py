"""Arithmetic over layers: the tool `Calc`."""

from __future__ import annotations

from ...arguments import cell_type, real_or_word
from ...cells import DTYPES
from ...errors import ArgumentError
from ...facts import Settings
from ...tool import InputLayer, PathLike, Tool, option, tool, writes

LAYER = "calc"


def _refuse_default(settings: Settings) -> None:
    """Reject `default` without a table of classes."""
    if settings["default"] is not None and settings["reclass"] is None:
        raise ArgumentError("{default} is for classes that a table lacks: give {reclass}, too")


@tool
class Calc(Tool):
    """Compute a layer from others, cell by cell.

    An expression has layers, numbers, + - * /, comparisons, and, or, not, abs(a), sqrt(a), min(a,
    b), max(a, b), where(condition, a, b), nodata(a) and coalesce(a, b), the first that is not
    nodata. Names with a minus sign are in double quotes. The result is nodata where an input is.

    Returns
    -------
    Result
        Its layer is named {into}.

    Raises
    ------
    InputError
        when the expression or the table cannot be used, a value does not fit the type, or the table
        lacks classes, which are listed.

    Notes
    -----
    Integers are computed in 64 bits and never wrap around, real numbers in float64 by operations
    that IEEE 754 defines, so that the bits are the same on all machines. Unknown truth values are
    treated as in SQL.

    Examples
    --------
    >>> calc("dem.zarr", "where(slope > 30, 9, 1) + 0.1 * distance", into="friction")
    >>> calc("dem.zarr", "landcover", reclass="friction.csv", into="friction")
    """

    expression: str = option(
        metavar="EXPRESSION",
        argument=True,
        help='Arithmetic over layers, such as "distance + 0.5 * other".',
    )
    into: str = writes(default=LAYER, help="Layer to write.")
    dtype: str | None = option(
        default=None,
        choices=tuple(one.name for one in DTYPES),
        check=cell_type,
        help="Cell type of the layer. By default uint8 for conditions, int64 for integers, also "
        "where those of a table and {default} all are, else float64. Values are not rounded to "
        "integers, but to float32. Nodata is NaN, the largest unsigned or the smallest signed "
        "integer.",
    )
    reclass: PathLike | None = option(
        default=None,
        metavar="TABLE.csv",
        help="Look the results up in a table: lines of class and value. An empty value is none.",
    )
    default: float | str | None = option(
        default=None,
        metavar="VALUE|nodata",
        check=real_or_word("nodata"),
        help="Value for classes that are not in the table: a number, or nodata. Without it, they "
        "are an error that lists them.",
    )

    command = function = accessor = "calc"
    group = "Cells and areas"
    short = "Compute a layer with a formula of others"
    title = "Cell by cell"
    examples = """
    terrain-gpu calc dem.zarr "distance + other" --into total
    terrain-gpu calc dem.zarr "where(slope > 30, 9, 1) * friction" --into steep
    terrain-gpu calc dem.zarr landcover --reclass friction.csv --into friction
    """
    operation = ".operation:calculation"
    rules = (_refuse_default,)
    mark = "calc_of"
    proof = ".proof:verify_stored_calc"

    def inputs(self) -> tuple[InputLayer, ...]:
        """The layers of a sum, for `plan`; the operation itself parses the expression."""
        return tuple(InputLayer(name) for name in self.expression.split(" + "))

    @classmethod
    def planned(cls, options: Settings) -> Calc:
        return cls(" + ".join((options.get("layers") or 1) * ["elevation"]), dtype="float64")
