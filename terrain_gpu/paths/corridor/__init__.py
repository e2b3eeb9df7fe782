"""Least-cost corridors: the tool `LeastCostCorridor`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...arguments import CostName, PathConnectivity, PathMetric, Wrap, real, wrong
from ...errors import ArgumentError, InputError
from ...facts import Settings
from ...plurals import counted
from ...tool import InputLayer, PathLike, PlacesLike, Tool, file, option, places, tool, writes
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


def _pairs(name: str, value: Any) -> Any:
    """A word, the path of a table, or a tuple of pairs of ids or names."""
    if isinstance(value, str | os.PathLike):
        path = os.fspath(value)
        if path in ("delaunay", "all") or Path(path).suffix.lower() == ".csv":
            return path
    elif isinstance(value, list | tuple):
        pairs = [tuple(one) if isinstance(one, list | tuple) else () for one in value]
        if all(len(one) == 2 and all(isinstance(end, int | str) for end in one) for one in pairs):
            return tuple(pairs)
    raise wrong(name, value, '"delaunay", "all", a .csv file, or pairs of ids or names')


def _refuse_ends(settings: Settings) -> None:
    """Refuse a corridor without two ends, or with more than two."""
    ends = [name for name in ("sources", "targets", "pairs") if settings[name] is not None]
    if settings["distances"] and ends:
        raise ArgumentError(f"{{distances}} and {{{ends[0]}}} exclude each other: leave out one")
    if settings["pairs"] is not None and ends != ["sources", "pairs"]:
        raise ArgumentError("{pairs} are pairs of {sources}: give these, and leave out {targets}")
    if not settings["distances"] and len(ends) < 2:
        raise ArgumentError(
            "give {sources} and {targets}, {sources} and {pairs}, or two or more layers of "
            "{distances}"
        )
    refuse_bottleneck(settings["cost"])


def _refuse_table(settings: Settings) -> None:
    """Refuse tables with positions, and to replace the table that is read."""
    table, pairs = settings["table"], settings["pairs"]
    if table is None:
        return
    if Path(table).suffix.lower() not in (".csv", ".parquet"):
        raise ArgumentError(f"{{table}} {table}: name a .csv or .parquet file")
    if isinstance(pairs, str) and Path(pairs).resolve() == Path(table).resolve():
        raise ArgumentError(f"{{pairs}} and {{table}} both name {table}; name another file")


def _area(result: Any) -> str:
    """What the summary says of the cells that are within a limit."""
    within, share = (result.report.settings[name] for name in ("within", "share"))
    if within is None and share is None:
        return ""
    (layer,) = result.layers.values()
    most = f"{within:.10g}" if share is None else f"{100 * share:.10g}%"
    return f"; {counted(layer.info['valid_cells'], 'cell')} within {most}"


@tool
class LeastCostCorridor(Tool):
    """Compute a least-cost corridor between places, or from layers of distances.

    Each cell gets the additional cost of the best path through it, compared with the best path from
    the sources to the targets: the sum of its distances from both, less the least such sum.

    With {pairs}, there are corridors among many sources, such as core areas of habitat. Each pair
    has a least cost of its own, and a cell gets the least value of all pairs. Of two or more layers
    of distances, in place of sources and targets, each pair makes one corridor in the same way.

    Returns
    -------
    Result
        Its layer is named {into}: float64, in units of the distances. NaN is nodata: cells that are
        reached from neither pair, or exceed {within}. `report.result["pairs"]` has the optimum of
        each pair, None if there is no path between its sources.

    Raises
    ------
    InputError
        when there are fewer than two different layers, one does not hold distances or has a
        negative value (names the cell), or two have the same sources; with {pairs}, when costs
        differ by direction, or a pair names no source.

    Notes
    -----
    Normalised least-cost corridors: B. H. McRae, D. M. Kavanagh (2011), Linkage Mapper Connectivity
    Analysis Software.

    Examples
    --------
    >>> corridor("dem.zarr", sources=[(9, 9)], targets=[(90, 70)], cost="tobler", within="5%")

    Among many sources:

    >>> corridor("dem.zarr", sources=parks, pairs="delaunay", friction="resistance", within="5%")

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
    pairs: Sequence[tuple[int | str, int | str]] | PathLike | None = option(
        default=None,
        metavar="delaunay|all|TABLE.csv",
        check=_pairs,
        help="Corridors among the sources, in place of targets. delaunay: of sources whose areas "
        "of least cost touch. all: of each with all others. TABLE.csv: of the pairs in its fields "
        "from and to, such as a table of least-cost-network.",
        python='Corridors among the sources, in place of targets. "delaunay": of sources whose '
        'areas of least cost touch. "all": of each with all others. Or pairs of ids or names, or '
        "a .csv file with the fields from and to. Costs must be the same in both directions.",
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
        help="Layer to write. Distances from sources and targets go to NAME_from and NAME_to; with "
        "{pairs}, those from each source to NAME_ID, as far as {within} needs them, and those from "
        "the nearest one to NAME_nearest.",
    )
    within: float | str | None = option(
        default=None,
        metavar="COST|PERCENT%",
        check=_within,
        help="Only cells whose best path costs at most this much, or this percentage such as 5%, "
        "more than the best path of the pair.",
    )
    table: PathLike | None = file(
        default=None,
        kind="table",
        metavar="TABLE.csv|.parquet",
        help="Also write a table of the pairs that have a path: from, to, cost.",
    )

    command = function = "corridor"
    positional = ("distances",)
    group = "Cost distance and paths"
    short = "Compute the least-cost corridor between two places"
    style = "distance"
    examples = """
    terrain-gpu corridor dem.tif --sources a.gpkg --targets b.gpkg \\
        --cost tobler --within 5% -o corridor.tif
    terrain-gpu corridor dem.tif --sources parks.gpkg --pairs delaunay \\
        --friction resistance.tif --within 5% -o corridors.tif
    terrain-gpu corridor dem.zarr from_a from_b --within 5% -o corridor.tif
    """
    operation = ".operation:corridor_of"
    gpu = "steps before"
    rules = (_refuse_ends, _refuse_table)
    provides = ".ends:provide"
    modules = ("paths.cost_distance.operation",)
    mark = "corridor_of"
    proof = ".proof:verify_stored_corridor"

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers of distances: those named, or those that are computed from two ends."""
        return tuple(self.distances or (f"{self.into}_from", f"{self.into}_to"))

    @property
    def share(self) -> float | None:
        """The largest excess over an optimum, as a fraction of it."""
        most = self.within
        return float(most.removesuffix("%")) / 100 if isinstance(most, str) else None

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
        if not pairs:
            return "no areas of sources touch"
        named = [
            f"{one['from']} to {one['to']} "
            + ("without a way" if one["optimum"] is None else f"{one['optimum']:.10g}")
            for one in pairs[:3]
        ]
        more = len(pairs) - 3
        others = f" and {counted(more, 'more pair', 'more pairs')}" if more > 0 else ""
        return f"least costs: {', '.join(named)}{others}{_area(result)}"
