"""compute-sssp: cost distances from sources, and least-cost paths."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

import click
from click.core import ParameterSource

from ..arguments import FloatType, PathMethod
from ..errors import InputError
from ..paths.cost.formula.presets import PRESETS
from ..paths.cost.formula.tree import NAMES
from ..paths.cost.models import MODELS, refuse_unknown, row_of, usual_cost
from ..plurals import counted
from . import options
from .path_files import Files
from .places import (
    Point,
    misplaced_of,
    misplaced_options,
    not_negative,
    place_options,
    places,
    tell_reprojected,
    with_cost,
)
from .working import Given, files_read, store_option

if TYPE_CHECKING:
    from ..io.places import Places
    from ..paths.cost_distance.pipeline import ShortestPaths
    from ..store import Layer, TileStore

log = logging.getLogger(__name__)

NAMED = 5
"""A message names at most this many targets."""


class CostType(click.ParamType):
    """The name of a model, or a formula; the library checks it."""

    name = "cost"

    def get_metavar(self, param: Any, ctx: Any = None) -> str:
        return f"[{'|'.join(MODELS)}|PRESET|FORMULA]"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        try:
            refuse_unknown(value)
        except InputError as error:
            self.fail(str(error), param, ctx)
        return str(value)

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(n) for n in (*MODELS, *PRESETS) if n.startswith(incomplete)]


_COST_OPTIONS: tuple[Any, ...] = (
    click.option(
        "--cost",
        type=CostType(),
        help="Cost of a step: absdiff |dz|; friction: mean friction x length; surface: length on "
        "the surface; tobler and langmuir: seconds of walking. minimax: a path costs its highest "
        f"cell. PRESET: {', '.join(PRESETS)}. FORMULA: of {', '.join(NAMES)}, such as "
        "'length * exp(abs(slope))'.  [default: friction with --friction, else absdiff]",
    ),
    click.option(
        "--friction",
        metavar="LAYER|RASTER",
        help="Layer of frictions, 0 or more, or an aligned raster. Required by --cost friction "
        "(name --layer itself if that holds them); a term of langmuir, a factor for other models, "
        "refused by minimax. Formulas use it by name, or by the name of a layer without this "
        "option.",
    ),
    click.option(
        "--barriers",
        metavar="LAYER|FILE",
        help="Layer whose non-zero cells are impassable; or an aligned raster, or a vector file, "
        "all that whose lines and polygons touch is impassable; paths may slip through a line that "
        "passes through corners of cells, unless --no-corner-cutting forbids it.",
    ),
    click.option(
        "--parameter",
        "parameters",
        type=options.Parameter(),
        metavar="NAME=VALUE",
        multiple=True,
        callback=options.named_parameters,
        help="".join(
            f"For {model.name}: {', '.join(model.parameters)}. "
            for model in MODELS.values()
            if model.parameters
        )
        + "".join(
            f"For {name}: {', '.join(preset.parameters)}. "
            for name, preset in PRESETS.items()
            if preset.parameters
        )
        + "For a formula: the value of a name in it. Repeatable.",
    ),
    click.option("--reverse", is_flag=True, help="Cost of going to the source instead of from it."),
    click.option(
        "--max-slope",
        type=float,
        metavar="SLOPE",
        callback=not_negative,
        help="Steps with a slope |dz| / length above this are impassable: 1 is 45 degrees.",
    ),
    click.option(
        "--vertical-factor",
        metavar="TABLE",
        help="Factors of the cost of steps that rise at an angle: lines of an angle in degrees, "
        "negative downhill, and its factor. Steps at other angles are impassable.",
    ),
    click.option(
        "--no-corner-cutting",
        is_flag=True,
        help="Forbid a diagonal step between two cells that are nodata or barriers.",
    ),
)


def cost_options(command: Any) -> Any:
    """Add the options that define the cost of a step and which steps exist."""
    for option in reversed(_COST_OPTIONS):
        command = option(command)
    return command


field_options = [
    click.option(
        "--id-field",
        metavar="FIELD",
        help="Field of --sources and --targets with the ids of features, instead of id: whole "
        "numbers from 1; or with their names, which are then numbered from 1.",
    ),
    click.option(
        "--target-id-field", metavar="FIELD", help="The field of --targets, if it is another one."
    ),
    click.option(
        "--cost-field",
        metavar="FIELD",
        help="Field of --sources with start costs, in place of cost.",
    ),
]


def _refuse_limits(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.BadParameter(
            "behind a cell that a source of a short range reaches first, another may go on, so one "
            "search cannot take limits of sources; run one for each limit, with --max-cost and "
            "--into, and take the least of their layers with calc, or use cost-matrix",
            ctx,
            param,
        )


@click.command("compute-sssp")
@click.argument("store", metavar="STORE|RASTER")
@options.all_of(
    place_options(
        "--source",
        "Start at this point, in the raster's CRS, with this cost (default 0). Repeatable.",
        "Start at this cell; rows and columns count from 0. Repeatable.",
        "Start at the points, lines and polygons of a vector file (FILE:LAYER for one layer of "
        "several), or at the cells of an aligned raster that are neither 0 nor nodata.",
        with_cost,
    )
)
@click.option(
    "--source-edge",
    is_flag=True,
    help="Also start at all cells on the raster's edge or beside nodata.",
)
@cost_options
@options.path_connectivity_option
@options.metric_option
@options.wrap_option
@click.option(
    "--max-cost",
    type=float,
    metavar="COST",
    callback=not_negative,
    help="Leave cells with a higher cost unreached.",
)
@click.option("--max-cost-field", hidden=True, expose_value=False, callback=_refuse_limits)
@options.all_of(
    place_options(
        "--target",
        "End of a path: a point in the raster's CRS. Repeatable.",
        "End of a path: a cell. Repeatable.",
        "Ends of paths: a file like that of --sources.",
    )
)
@options.all_of(field_options)
@options.all_of(misplaced_options)
@click.option(
    "--stop-at-targets",
    is_flag=True,
    help="Leave cells farther than the farthest target unreached.",
)
@click.option(
    "-o", "--output", metavar="DISTANCE.tif|.zarr", help="Also write the distances as a raster."
)
@click.option(
    "--dtype",
    type=click.Choice(get_args(FloatType)),
    help="Data type of the --output raster; distances are rounded to nearest.  "
    "[default: as in the store]",
)
@options.all_of(options.format_options)
@click.option(
    "--backlink",
    metavar="CODES.tif",
    help="Also compute each cell's step back towards its source, and write the D8 codes (E 1, "
    "SE 2, ... NE 128; 0 source, 255 unreached).",
)
@click.option(
    "--allocation",
    metavar="IDS.tif",
    help="Also compute the source that each cell is reached from, and write the ids.",
)
@click.option(
    "--all-ties",
    metavar="BITS.tif",
    help="Also compute all steps back on paths of the same cost, and write the sums of their D8 "
    "codes.",
)
@click.option(
    "--path",
    metavar="PATHS.geojson|.gpkg|.parquet|.fgb",
    help="Write the least-cost paths to the targets as lines.",
)
@options.layer_option
@click.option(
    "--into",
    default="distance",
    show_default=True,
    metavar="NAME",
    help="Layer to write the distances to. Backlinks and allocation then go to NAME_backlink and "
    "NAME_allocation.",
)
@store_option
@options.memory_limit_option
@options.threads_option
@options.backend_option
@options.devices_option
@options.gpu_memory_limit_option
@options.cluster_options("paths.cost_distance.operation")
@click.option(
    "--method",
    type=click.Choice(get_args(PathMethod)),
    default="relax",
    show_default=True,
    help="Algorithm: relax blocks in order, use the distance index, or run Dijkstra's algorithm "
    "inside blocks; on a GPU also the classical methods, with an array of changed cells or with "
    "one tournament tree per block. All give the same result; index within 1e-12 for real costs.",
)
@click.option(
    "--build-index",
    is_flag=True,
    help="Use the distance index; build it first if it is missing or stale.",
)
@options.verify_option
@options.compress_layers_option
@options.resume_option
@options.overwrite_option
@options.progress_option
@options.json_option
@options.verbosity_options
@options.version_option
def command(
    store: str,
    *,
    source: Sequence[Point],
    source_rowcol: Sequence[Point],
    sources: str | None,
    target: Sequence[Point],
    target_rowcol: Sequence[Point],
    targets: str | None,
    output: str | None,
    dtype: FloatType | None,
    backlink: str | None,
    allocation: str | None,
    all_ties: str | None,
    path: str | None,
    no_corner_cutting: bool,
    json_target: str | None,
    **settings: Any,
) -> None:
    """Compute the least cost from sources to each cell of STORE, as its layer "distance", or of a
    raster.

    The distances equal those of Dijkstra's algorithm: the same bits for every block size, memory
    limit and number of threads. Backlinks and allocation go to the layers of these names. With
    --into, a store holds several results.

    \b
    compute-sssp dem.zarr --source -84.2,36.5 --cost tobler
    compute-sssp dem.tif --sources huts.gpkg --cost friction \\
        --friction land.tif --barriers rivers.gpkg --no-corner-cutting -o d.tif
    compute-sssp dem.zarr --source-edge --cost minimax -o filled.tif
    """
    has_sources = bool(source or source_rowcol or sources is not None)
    has_targets = bool(target or target_rowcol or targets is not None)
    _check_options(has_sources, has_targets, path, output, dtype, settings)
    form = options.taken_format(settings, [output, backlink, allocation, all_ties])
    files = Files(output, backlink, allocation, all_ties, path, dtype, form)
    given = Given.of(store, files.written, settings)
    read = {
        "--sources": sources,
        "--targets": targets,
        "--vertical-factor": settings["vertical_factor"],
    }
    files.check(given.inputs | files_read(settings) | read, json_target, settings)

    from ..paths.cost_distance.pipeline import shortest_paths
    from ..prerequisites import refuse_existing
    from ..store import TileStore

    kept = given.advice("finished work is kept")
    with options.if_interrupted(kept), given.store(settings) as at, given.together(at):
        opened = TileStore.open(at)
        files.refuse_late(opened, settings)
        if settings["build_index"]:
            refuse_existing(opened, [settings["into"]], settings)  # before it is built
        opened = given.layers(opened, settings)
        groups = (source, source_rowcol, sources), (target, target_rowcol, targets)
        starts, ends = both_ends(opened, *groups, settings)
        with options.progress_of("shortest paths") as progress:
            found = shortest_paths(
                opened,
                starts,
                corner_cutting=not no_corner_cutting,
                targets=ends,
                backlink=any(file is not None for file in (backlink, path, all_ties)),
                allocation=allocation is not None,
                progress=progress,
                **settings,
            )
        if starts.names:
            names = {str(id_): name for id_, name in starts.names.items()}
            found.report.result["source_names"] = names
        told = tell_reprojected(found.report)
        files.write(given, found, opened, starts, ends, settings)
        summary = _summary(found, settings)
    given.name(found.report)
    options.write_json(found.report.to_json(), json_target)
    layers = ", ".join(layer.name for layer in found.layers.values())
    options.say(
        ("" if given.temporary else f"{at}: layer{'s' * (', ' in layers)} {layers}, ")
        + summary
        + told
        + files.described(found.report),
        json_target,
    )


Group = tuple[Sequence[Point], Sequence[Point], str | None]
"""Points, cells and the file of a group of options."""


def both_ends(
    store: TileStore, begin: Group, end: Group, settings: dict[str, Any]
) -> tuple[Places, Places | None]:
    """Read the sources and the targets; take the options about them out of the settings.

    A formula that names a layer is turned into one of frictions, which places need, too.
    """
    name_frictions(store, settings, settings["parameters"])
    id_field, target_field, cost_field = (
        settings.pop(name) for name in ("id_field", "target_id_field", "cost_field")
    )
    for option, field, files in (
        ("--id-field", id_field, (begin[2], end[2])),
        ("--target-id-field", target_field, (end[2],)),
        ("--cost-field", cost_field, (begin[2],)),
    ):
        if field is not None and not any(files):
            which = "--targets FILE" if option == "--target-id-field" else "--sources FILE"
            raise click.UsageError(f"{option} {field} names a field of a file: give {which}")
    outside, void = misplaced_of(settings)
    limit = settings["memory_limit"]
    own = {"id_field": id_field, "cost_field": cost_field}
    starts = places(store.grid, "--source", *begin, limit, own, outside)
    starts = _settled(store, starts, void, "sources", settings)
    if not any(end):
        return starts, None
    own = {"id_field": target_field or id_field}
    ends = places(store.grid, "--target", *end, limit, own, outside)
    return starts, _settled(store, ends, void, "targets", settings)


def name_frictions(
    store: TileStore, settings: dict[str, Any], parameters: dict[str, float]
) -> None:
    """Choose a missing cost; turn a formula that names a layer into one of frictions."""
    from ..paths.cost.resolve import with_named_layer

    if settings["cost"] is None:
        settings["cost"] = usual_cost(settings["friction"])
    if row_of(settings["cost"]).name == "formula":
        layers = {*store.layers} - {settings["layer"]}
        found = with_named_layer(settings["cost"], settings["friction"], layers, parameters)
        settings["cost"], settings["friction"] = found


def cost_by_friction(settings: dict[str, Any]) -> str:
    """Name the cost in a summary if --friction has chosen it."""
    source = click.get_current_context().get_parameter_source("cost")
    chosen = source is ParameterSource.DEFAULT and settings["friction"] is not None
    return ", cost friction" if chosen else ""


def _settled(
    store: TileStore, found: Places, void: dict[str, Any], what: str, settings: dict[str, Any]
) -> Places:
    """Move places that cannot be used, or leave them out; by default a run refuses them."""
    if void["nodata"] == "error" or not len(found):
        return found
    from ..io.settling import Ground, settle

    needed = [store.layer(settings["layer"])]
    if settings["friction"] not in (None, settings["layer"]):
        needed.append(store.layer(settings["friction"]))
    barriers = [store.layer(settings["barriers"])] if settings["barriers"] else []
    return settle(found, Ground(needed, barriers), **void, what=what)


def _summary(found: ShortestPaths, settings: dict[str, Any]) -> str:
    """Return the summary of a run."""
    return (
        f"{counted(found.reached, 'cell')} reached{_farthest(settings, found.layers['distance'])}"
        f"{options.resumed(found.report)}, "
        f"{found.report.seconds['total']:.2f} s{cost_by_friction(settings)}"
        + (", across the seam of 360 degrees" if found.report.result["wrap"] else "")
        + (", verified" if settings["verify"] else "")
    )


def _check_options(
    has_sources: bool,
    has_targets: bool,
    path: str | None,
    output: str | None,
    dtype: FloatType | None,
    settings: dict[str, Any],
) -> None:
    """Refuse combinations of options that make no sense."""
    if not (has_sources or settings["source_edge"]):
        raise click.UsageError(
            "no source: give --source X,Y, --source-rowcol ROW,COL, --sources FILE or --source-edge"
        )
    for option, wanted in (
        ("--path", path is not None),
        ("--stop-at-targets", settings["stop_at_targets"]),
    ):
        if wanted and not has_targets:
            raise click.UsageError(
                f"{option} needs targets: give --target X,Y, --target-rowcol ROW,COL or "
                "--targets FILE"
            )
    if has_targets and not (path is not None or settings["stop_at_targets"]):
        raise click.UsageError("targets need --path FILE or --stop-at-targets: give one of them")
    if settings["build_index"]:
        from ..paths.cost_distance.inputs import method_with_index

        method_with_index(settings["method"], False, build_index=True)
    if dtype and output is None:
        raise click.UsageError(f"--dtype {dtype} is the type of the --output raster: give that too")


def _farthest(settings: dict[str, Any], distance: Layer) -> str:
    """Return the greatest distance, from the layer's statistics, for the summary."""
    most = distance.info.get("max")
    if most is None:
        return ""
    number = f"{most:,}" if isinstance(most, int) else f"{most:.10g}"
    unit = f" {distance.attributes.get('units', '')}".rstrip()
    return f", {'highest' if settings['cost'] == 'minimax' else 'farthest'} {number}{unit}"
