"""compute-sssp: cost distances from sources, and least-cost paths."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

import click

from ..arguments import FloatType
from ..facts import Settings
from ..paths.cost_distance import FindShortestPaths
from ..plurals import counted
from ..tool import options_of
from . import options
from .operations import check_arguments
from .path_files import Files
from .path_forms import both_ends, cost_by_friction
from .places import Point, tell_reprojected
from .sections import program_command
from .tools import help_of, options_for
from .working import Given, files_read, store_option

if TYPE_CHECKING:
    from ..paths.cost_distance.result import ShortestPaths
    from ..store import Layer

log = logging.getLogger(__name__)

NAMED = 5
"""A message names at most this many targets."""


DECLARED = options_of(FindShortestPaths)


def declared(*names: str) -> Any:
    """Options that the tool declares."""
    return options.all_of([option for name in names for option in options_for(DECLARED[name])])


def _refuse_limits(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.BadParameter(
            "behind a cell that a source of a short range reaches first, another may go on, so one "
            "search cannot take limits of sources; run one for each limit, with --max-cost and "
            "--into, and take the least of their layers with calc, or use cost-matrix",
            ctx,
            param,
        )


@program_command(
    "compute-sssp", short_help=FindShortestPaths.short, help=help_of(FindShortestPaths)
)
@click.argument("store", metavar="STORE|RASTER")
@declared(
    *("sources", "source_edge", "cost", "friction", "barriers", "parameters", "reverse"),
    *("max_slope", "vertical_factor", "corner_cutting", "connectivity", "metric", "wrap"),
    "max_cost",
)
@click.option("--max-cost-field", hidden=True, expose_value=False, callback=_refuse_limits)
@declared("targets", "stop_at_targets")
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
@declared("backlink", "allocation")
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
@declared("layer", "into")
@store_option
@options.memory_limit_option
@options.threads_option
@options.backend_option
@options.devices_option
@options.gpu_memory_limit_option
@options.cluster_options("paths.cost_distance.operation")
@declared("method", "build_index")
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
    has_sources = bool(source or source_rowcol or sources is not None)
    has_targets = bool(target or target_rowcol or targets is not None)
    _check_options(has_sources, has_targets, path, output, dtype, settings)
    check_arguments("shortest_paths", settings)
    form = options.taken_format(settings, [output, backlink, allocation, all_ties])
    files = Files(output, backlink, allocation, all_ties, path, dtype, form)
    given = Given.of(store, files.written, settings)
    read = {
        "--sources": sources,
        "--targets": targets,
        "--vertical-factor": settings["vertical_factor"],
    }
    files.check(given.inputs | files_read(settings) | read, json_target, settings)

    import terrain_gpu

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
            found = terrain_gpu.shortest_paths(
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


def _summary(found: ShortestPaths, settings: Settings) -> str:
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
    settings: Settings,
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


def _farthest(settings: Settings, distance: Layer) -> str:
    """Return the greatest distance, from the layer's statistics, for the summary."""
    most = distance.info.get("max")
    if most is None:
        return ""
    number = f"{most:,}" if isinstance(most, int) else f"{most:.10g}"
    unit = f" {distance.attributes.get('units', '')}".rstrip()
    return f", {'highest' if settings['cost'] == 'minimax' else 'farthest'} {number}{unit}"
