"""Least-cost corridors: the tool `LeastCostCorridor`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...arguments import CostName, PathConnectivity, PathMetric, Wrap, real, wrong
from ...errors import ArgumentError, InputError
from ...facts import Settings
from ...plurals import counted
from ...tool import InputLayer, PlacesLike, Tool, option, places, tool, writes
from ..cost import options as path
from ..cost.models import refuse_bottleneck
from ..cost.options import LayerLike, VerticalFactor
from ..cost.rules import Cost

if TYPE_CHECKING:
    from ...engine.run import Result

RULES = "cost", "friction", "barriers", "parameters", "connectivity", "metric"
"""Options of paths that `plan` has, too."""


def _within(name: str, value: Any) -> float | str:
    """A finite number of at least 0, or a percentage such as "5%"."""
    percent = isinstance(value, str) and value.endswith("%")
    try:
        number = float(value[:-1]) if percent else float(real(name, value))
    except (ValueError, InputError):
        number = -1
    if not 0 <= number < math.inf:
        raise wrong(name, value, 'a number of at least 0, or a percentage such as "5%"')
    return f"{number!r}%" if percent else number


def _distances(name: str, value: Any) -> tuple[str, ...]:
    """The names of two or more different layers."""
    names = tuple(value) if isinstance(value, list | tuple) else ()
    if not all(isinstance(one, str) for one in names) or len(set(names)) < max(len(names), 2):
        raise wrong(name, value, "a list of two or more different layers")
    return names


def _refuse_ends(settings: Settings) -> None:
    """Refuse a corridor without two ends, or with more than two."""
    ends = [name for name in ("sources", "targets") if settings[name] is not None]
    if settings["distances"] and ends:
        raise ArgumentError(f"{{distances}} and {{{ends[0]}}} exclude each other: leave out one")
    if not settings["distances"] and len(ends) < 2:
        raise ArgumentError("give {sources} and {targets}, or two or more layers of {distances}")
    refuse_bottleneck(settings["cost"])


@tool
class LeastCostCorridor(Tool):
    """Compute a least-cost corridor between places, or from layers of distances.

    Each cell gets the additional cost of the best path through it, compared with the best path from
    the sources to the targets: the sum of its distances from both, less the least such sum. Of two
    or more layers of distances, in place of sources and targets, each pair makes one corridor, and
    a cell gets the least value of all pairs.

    Returns
    -------
    Result
        Its layer is named {into}: float64, in units of the distances. NaN is nodata: cells that are
        reached in fewer than two of the layers, or exceed {within}. `found["pairs"]` has the
        optimum of each pair, None if there is no path between its sources.

    Raises
    ------
    InputError
        when there are fewer than two different layers, one does not hold distances or has a
        negative value (names the cell), or two have the same sources.

    Notes
    -----
    Normalised least-cost corridors: B. H. McRae, D. M. Kavanagh (2011), Linkage Mapper Connectivity
    Analysis Software.

    Examples
    --------
    >>> corridor("dem.zarr", sources=[(9, 9)], targets=[(90, 70)], cost="tobler", within="5%")

    From layers of distances, of which one holds the costs of going there:

    >>> shortest_paths("dem.zarr", [(9, 9)], cost="tobler", into="from_a")
    >>> shortest_paths("dem.zarr", [(90, 70)], cost="tobler", reverse=True, into="to_b")
    >>> corridor("dem.zarr", ["from_a", "to_b"], within="5%")
    """

    distances: Sequence[str] | None = option(
        default=None,
        form="corridor layers",
        metavar="[DISTANCE DISTANCE...]",
        check=_distances,
        help='Two or more layers of `shortest_paths`, such as ``["from_a", "from_b"]``, in place '
        "of sources and targets. Where costs differ uphill and downhill, compute the second one "
        "with `reverse`.",
    )
    sources: PlacesLike | None = places(
        default=None,
        form="corridor sources",
        help="One end of the corridor: the points, lines and polygons of a vector file (FILE:LAYER "
        "for one layer of several), or the cells of an aligned raster that are neither 0 nor "
        "nodata.",
        python="One end of the corridor, in the same form as the sources of `shortest_paths`, "
        "without start costs.",
    )
    targets: PlacesLike | None = places(
        default=None,
        form="corridor targets",
        help="The other end: a file like that of {sources}.",
        python="The other end.",
    )
    cost: Cost | CostName | str | None = path.cost()
    friction: LayerLike | None = path.friction()
    barriers: LayerLike | None = path.barriers()
    parameters: Mapping[str, float] | None = path.parameters()
    reverse: bool = path.reverse()
    max_slope: float | None = path.max_slope()
    vertical_factor: VerticalFactor | None = path.vertical_factor()
    corner_cutting: bool = path.corner_cutting()
    connectivity: PathConnectivity = path.connectivity()
    metric: PathMetric = path.metric()
    wrap: Wrap = path.wrap()
    layer: str = path.layer()
    into: str = writes(
        default="corridor",
        help="Layer to write. Distances from sources and targets go to NAME_from and NAME_to.",
    )
    within: float | str | None = option(
        default=None,
        metavar="COST|PERCENT%",
        check=_within,
        help="Only cells whose best path costs at most this much, or this percentage such as 5%, "
        "more than the best path of the pair.",
    )

    command = function = "corridor"
    positional = ("distances",)
    group = "Cost distance and paths"
    short = "Compute the least-cost corridor between two places"
    style = "distance"
    examples = """
    terrain-gpu corridor dem.tif --sources a.gpkg --targets b.gpkg \\
        --cost tobler --within 5% -o corridor.tif
    terrain-gpu corridor dem.zarr from_a from_b --within 5% -o corridor.tif
    """
    operation = ".operation:corridor_of"
    gpu = "steps before"
    rules = (_refuse_ends,)
    provides = ".ends:provide"
    modules = ("paths.cost_distance.operation",)
    mark = "corridor_of"
    proof = ".proof:verify_stored_corridor"

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers of distances: those named, or those that are computed from the ends."""
        return tuple(self.distances or (f"{self.into}_from", f"{self.into}_to"))

    def inputs(self) -> tuple[InputLayer, ...]:
        if self.distances:
            return tuple(map(InputLayer, self.layers))
        return InputLayer(self.layer), *path.rasters(self)

    @classmethod
    def planned(cls, asked: Settings) -> LeastCostCorridor:
        """Of a number of layers, or else between places."""
        given = [name for name in (*RULES, "parameter") if asked.get(name)]
        if (count := asked.get("layers")) == 1:
            raise ArgumentError("{layers} 1: a corridor needs two or more; give that many")
        if count and given:
            raise ArgumentError(
                f"{{{given[0]}}} is for a corridor between places; leave it out, or {{layers}}"
            )
        if count:
            return cls([f"distance_{k}" for k in range(count)])
        return cls(sources=[], targets=[], **{k: asked[k] for k in given if k != "parameter"})

    @staticmethod
    def summary(result: Result) -> str:
        pairs = result.report.result["pairs"]
        named = [
            f"{one['from']} to {one['to']} "
            + ("without a way" if one["optimum"] is None else f"{one['optimum']:.10g}")
            for one in pairs[:3]
        ]
        more = len(pairs) - 3
        others = f" and {counted(more, 'more pair', 'more pairs')}" if more > 0 else ""
        return f"least costs: {', '.join(named)}{others}"
