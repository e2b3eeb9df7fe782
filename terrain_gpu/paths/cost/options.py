"""Options of tools that find paths: the rules of a step, and the rasters that these read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...arguments import check, raster_or_layer, text
from ...tool import InputLayer, option, reads
from .formula.presets import PRESETS
from .formula.tree import NAMES
from .models import MODELS, cost_text

if TYPE_CHECKING:
    from ...io.labelled import LayerLike
    from .resolve import VerticalFactor
else:
    LayerLike = VerticalFactor = Any  # which need the store

__all__ = ["LayerLike", "VerticalFactor"]


def cost() -> Any:
    """The model of costs, a formula, or a `Cost`."""
    return option(
        default=None,
        form="cost",
        check=cost_text,
        help="Cost of a step: absdiff |dz|; friction: mean friction x length; surface: length on "
        "the surface; tobler and langmuir: seconds of walking. minimax: a path costs its highest "
        f"cell. PRESET: {', '.join(PRESETS)}. FORMULA: of {', '.join(NAMES)}, such as "
        "'length * exp(abs(slope))'.  [default: friction with --friction, else absdiff]",
        python='"absdiff", "friction", "surface", "tobler", "langmuir" or "minimax"; see '
        '`paths.cost.models`. Or one of `paths.cost.formula.presets`, such as "herzog". Or a '
        'formula, such as ``"length * exp(abs(slope))"``; see `paths.cost.formula.tree` for its '
        "syntax. Or a `Cost`, which also has other rules of steps. A step whose cost is NaN or "
        "infinite does not exist. A formula may name one layer of the store, instead of "
        '{friction}. When None: "friction" if frictions are given, otherwise "absdiff".',
    )


def friction(*, arrays: bool = True) -> Any:
    """The layer of frictions."""
    return option(
        default=None,
        metavar="LAYER|RASTER",
        check=raster_or_layer if arrays else text,
        help="Layer of frictions, 0 or more, or an aligned raster. Required by {cost} friction "
        "(name {layer} itself if that holds them); a term of langmuir, a factor for other models, "
        "refused by minimax. Formulas use it by name, or by the name of a layer without this "
        "option.",
        python=f"Layer of the store{', or array,' * arrays} of frictions >= 0. The model "
        '"friction" needs it; if the raster itself holds frictions, name its layer'
        f"{', or pass the same array,' * arrays} here as well.",
    )


def barriers(*, arrays: bool = True) -> Any:
    """The layer of barriers."""
    return option(
        default=None,
        metavar="LAYER|FILE",
        check=raster_or_layer if arrays else text,
        help="Layer whose non-zero cells are impassable; or an aligned raster, or a vector file, "
        "all that whose lines and polygons touch is impassable; paths may slip through a line that "
        "passes through corners of cells, unless --no-corner-cutting forbids it.",
        python=f"Layer{' or array' * arrays}; cells with a value other than 0 are absent.",
    )


def parameters() -> Any:
    """Parameters of the model, or of a formula."""
    rows = [(name, [*row.parameters]) for name, row in MODELS.items()]
    rows += [(name, [*row.parameters]) for name, row in PRESETS.items()]
    return option(
        default=None,
        form="parameters",
        check=check,
        help="".join(f"For {name}: {', '.join(own)}. " for name, own in rows if own)
        + "For a formula: the value of a name in it. Repeatable.",
        python='Parameters of the model, such as ``{"lam": 0.5}`` for langmuir; for a formula, '
        "values of names in it.",
    )


def reverse(
    *,
    help: str = "Cost of going to the source instead of from it.",
    python: str = "Compute the cost of going to the source, for costs that depend on direction.",
) -> Any:
    """Whether costs are those of going to the sources."""
    return option(default=False, help=help, python=python)


def max_slope() -> Any:
    """The steepest step."""
    return option(
        default=None,
        metavar="SLOPE",
        check=check,
        help="Steps with a slope |dz| / length above this are impassable: 1 is 45 degrees.",
        python="Slope dz / length, up or down, above which a step does not exist; distances are "
        "then float64.",
    )


def vertical_factor() -> Any:
    """Factors of the cost by slope."""
    return option(
        default=None,
        metavar="TABLE",
        form="table to read",
        check=check,
        help="Factors of the cost of steps that rise at an angle: lines of an angle in degrees, "
        "negative downhill, and its factor. Steps at other angles are impassable.",
        python="Factors of the cost of steps by their angle of slope, negative downhill: a text "
        "file of angles in degrees and factors, or a sequence of such pairs. Between them, factors "
        "are interpolated; a step at an angle outside the table does not exist. For formulas and "
        "all models except langmuir and minimax.",
    )


def corner_cutting() -> Any:
    """Whether steps may cut corners."""
    return option(
        default=True,
        form="no corner cutting",
        help="Forbid a diagonal step between two cells that are nodata or barriers.",
        python="False forbids diagonal steps between two absent cells.",
    )


def connectivity() -> Any:
    """Neighbours of a cell."""
    return option(
        default=8,
        help="Neighbours per cell: 8 includes the diagonal ones, and 16 knight's moves as well.",
        python="8 or 4; or 16, with knight's moves, which pass through the middle of the edge "
        "between two cells and cost as much as two steps of half the length. With 16, distances "
        'are float64, and the method must be "relax".',
    )


def metric() -> Any:
    """How paths go."""
    return option(
        default="steps",
        help="Paths go from neighbour to neighbour (steps), or in any direction (continuous): for "
        "{cost} friction, distances only.",
        python='"steps": paths go from neighbour to neighbour. "continuous": paths go in any '
        "direction, by the eikonal equation ``|grad T| = friction``, see `paths.cost.continuous`; "
        'this needs cost "friction", frictions above 0, method "relax" and {connectivity} 8, and '
        "computes only distances.",
    )


def wrap() -> Any:
    """Whether the last column meets the first one."""
    return option(
        default="auto",
        help="Join the last column to the first one: auto, where a geographic raster spans 360 "
        "degrees; yes, also where it does so only within half a column, or else refuse.",
        python="Whether the last column is joined to the first one, so that paths cross this seam. "
        '"auto": if the CRS is geographic and the columns span 360 degrees, within a hundredth of '
        'a column. "yes" raises an error for a raster that is projected or whose sides are more '
        "than half a column apart; an array has no CRS and is joined. Paths never cross a pole.",
    )


def rasters(asked: Any) -> list[InputLayer]:
    """The layers of frictions and of barriers that a tool reads; arrays are refused later."""
    named = {name: getattr(asked, name) for name in ("friction", "barriers")}
    return [InputLayer(one, option=name) for name, one in named.items() if isinstance(one, str)]


def layer() -> Any:
    """The layer of elevations."""
    return reads(default="elevation", help="Layer of the store.")
