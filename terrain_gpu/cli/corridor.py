"""terrain-gpu corridor: name, help and options."""

from __future__ import annotations

from typing import Any

import click

from ..arguments import is_raster
from ..plurals import counted
from . import options
from .compute_sssp import both_ends, cost_by_friction, cost_options
from .places import misplaced_options, place_options

NAME = "corridor"
PROVEN = ON_GPUS = True
MODULES = "paths.corridor.operation", "paths.cost_distance.operation"
READS = "sources", "targets", "vertical_factor"
HELP = """Compute a least-cost corridor between places over STORE, or over a raster, or from
layers of distances.

Each cell gets the additional cost of the best path through it, compared with the best path from
the sources to the targets: the sum of its distances from both, less the least such sum. Of two or
more layers of distances of STORE, in place of sources and targets, each pair makes one corridor,
and a cell gets the least value of all pairs.

\b
terrain-gpu corridor dem.tif --sources a.gpkg --targets b.gpkg \\
    --cost tobler --within 5% -o corridor.tif
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


_PATHS = [
    *place_options(
        "--source",
        "One end of the corridor: a point in the raster's CRS. Repeatable.",
        "One end of the corridor: a cell; rows and columns count from 0. Repeatable.",
        "One end of the corridor: the points, lines and polygons of a vector file (FILE:LAYER for "
        "one layer of several), or the cells of an aligned raster that are neither 0 nor nodata.",
    ),
    *place_options(
        "--target",
        "The other end: a point in the raster's CRS. Repeatable.",
        "The other end: a cell. Repeatable.",
        "The other end: a file like that of --sources.",
    ),
    *misplaced_options,
    cost_options,
    options.path_connectivity_option,
    options.metric_option,
    options.wrap_option,
    options.layer_option,
]
"""Options of the distances from places."""

OPTIONS = [
    click.argument("distances", metavar="[DISTANCE DISTANCE...]", nargs=-1),
    *_PATHS,
    click.option(
        "--into",
        default="corridor",
        show_default=True,
        metavar="NAME",
        help="Layer to write. Distances from sources and targets go to NAME_from and NAME_to.",
    ),
    click.option(
        "--within",
        type=Within(),
        metavar="COST|PERCENT%",
        help="Only cells whose best way costs at most so much, or so many percent, more than the "
        "best path of the pair.",
    ),
]

_OWN = (
    "distances", "into", "within", "memory_limit", "threads", "client", "verify", "compress",
    "resume", "overwrite",
)  # fmt: skip
"""What `corridor` takes of the settings; the rest is about distances."""

_TOLD = f"{NAME}.told"
"""In click's context: the places whose distances are computed here, and words for the summary."""

_ENDS = ("source", "source_rowcol", "sources"), ("target", "target_rowcol", "targets")


def refuse(settings: dict[str, Any]) -> None:
    """Refuse places beside layers of distances, and paths whose parts do not add up."""
    context = click.get_current_context()
    asked = [
        f"--{name.replace('_', '-')}"
        for name in settings.keys() - {*_OWN}
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        and name not in ("kept", "output", "cog")
    ]
    if settings["distances"]:
        if is_raster(given := context.params["store"]):
            raise click.UsageError(
                f"{given} is a raster, so {' '.join(settings['distances'])} cannot be layers of "
                "it; give --sources and --targets in place of them, or convert rasters of "
                "distances into one store, with convert-dataset --layer"
            )
        if len(settings["distances"]) == 1:
            raise click.UsageError(
                f"{settings['distances'][0]}: one layer of distances; give two or more, or "
                "--sources and --targets in place of them"
            )
        if asked:
            raise click.UsageError(
                f"{min(asked)} is for distances that are computed here; leave it out, or the "
                f"layers {' '.join(settings['distances'])}"
            )
        return
    for names, what in zip(_ENDS, ("source", "target"), strict=True):
        if not any(settings[name] for name in names):
            raise click.UsageError(
                f"no {what}: give --{what} X,Y, --{what}-rowcol ROW,COL or --{what}s FILE; or two "
                "or more layers of distances"
            )
    from ..paths.cost_distance.inputs import refuse_bottleneck

    refuse_bottleneck(settings["cost"])


def provide(store: Any, show: Any, how: dict[str, Any], settings: dict[str, Any]) -> Any:
    """Compute the distances from both ends, if no layers are named; the seconds of both."""
    of_paths = {name: settings.pop(name) for name in [*settings] if name not in _OWN}
    if settings["distances"]:
        return {}
    from ..paths.cost_distance.inputs import refuse_shared, refuse_start_costs, valid_places
    from ..paths.cost_distance.pipeline import shortest_paths
    from ..prerequisites import refuse_existing

    settings["distances"] = _ends_of(settings["into"])
    refuse_existing(store, settings["distances"], settings)
    store.refuse_foreign(settings["into"], "corridor_of", "a corridor", NAME)  # as after them
    own = {name: settings[name] for name in _OWN if name not in ("distances", "into", "within")}
    begin, end = (tuple(of_paths.pop(name) for name in names) for names in _ENDS)
    of_paths |= {"id_field": None, "target_id_field": None, "cost_field": None, **own}
    places: Any = both_ends(store, begin, end, of_paths)
    inputs = [
        None if of_paths[name] is None else store.layer(of_paths[name])
        for name in ("layer", "friction", "barriers")
    ]
    cells = []
    for what, given in zip(("sources", "targets"), places, strict=True):  # before all is written
        cells.append(valid_places(inputs, given, what))
        refuse_start_costs(cells[-1], what)
    refuse_shared(*cells)
    told = cost_by_friction(of_paths)
    click.get_current_context().meta[_TOLD] = told
    of_paths["corner_cutting"] = not of_paths.pop("no_corner_cutting")
    back, seconds = of_paths.pop("reverse"), {}
    for name, ends, reverse in zip(settings["distances"], places, (back, not back), strict=True):
        with options.progress_of("shortest paths") as progress:  # a resumed run needs them, too
            found = shortest_paths(
                store, ends, into=name, reverse=reverse, progress=progress, **of_paths
            )
        seconds[name] = found.report.seconds["total"]
    return seconds


def _ends_of(into: str) -> list[Any]:
    """The layers of distances that are computed here."""
    return [f"{into}_from", f"{into}_to"]


def run(store: Any, **settings: Any) -> Any:
    from ..paths.corridor.operation import corridor

    found = corridor(store, **settings)
    if _TOLD in click.get_current_context().meta:
        found.report.result["pairs"][0] |= {"from": "sources", "to": "targets"}
    return found


def tell(found: Any) -> str:
    """Tell the least cost of each pair, and how places and cost were understood."""
    pairs = found.report.result["pairs"]
    named = [
        f"{one['from']} to {one['to']} "
        + ("without a way" if one["optimum"] is None else f"{one['optimum']:.10g}")
        for one in pairs[:3]
    ]
    more = f" and {counted(len(pairs) - 3, 'more pair', 'more pairs')}" if len(pairs) > 3 else ""
    told = click.get_current_context().meta.get(_TOLD, "")
    return f"least costs: {', '.join(named)}{more}{told}"
