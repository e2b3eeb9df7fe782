"""compute-sssp: cost distances from sources, and least-cost paths."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

import click

from ..arguments import FloatType, PathMethod
from ..paths.costs import MODELS
from . import options
from .places import Place, Point, naming, not_negative, places, refuse_shared_files

if TYPE_CHECKING:
    from ..grid import GridSpec
    from ..io.places import Places
    from ..paths import ShortestPaths
    from ..paths.trace import TracedPath
    from ..store import Layer

log = logging.getLogger(__name__)

NAMED = 5
"""Most targets that a message names."""


class _Parameter(click.ParamType):
    """NAME=VALUE."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, float]:
        name, equals, number = value.partition("=")
        try:
            if name.strip() and equals:
                return name.strip(), float(number)
        except ValueError:
            pass
        self.fail(f"{value!r} is not {self.name}, such as a=0.72", param, ctx)


def _parameters(
    ctx: click.Context, param: click.Parameter, pairs: Sequence[tuple[str, float]]
) -> dict[str, float]:
    found = dict(pairs)
    for name in found:
        if sum(other == name for other, _ in pairs) > 1:
            raise click.BadParameter(f"{name} is given twice", ctx, param)
    return found


_COST_OPTIONS: tuple[Any, ...] = (
    click.option(
        "--cost",
        type=click.Choice(tuple(MODELS)),
        default="absdiff",
        show_default=True,
        help="What a step costs: |dz|, mean friction x length, length on the surface, seconds of "
        "walking (two models); minimax: the highest cell on the way.",
    ),
    click.option(
        "--friction",
        metavar="LAYER",
        help="Layer of frictions, 0 or more: friction needs it (the name of --layer where that "
        "holds them itself), langmuir uses it as its own, minimax not, the others as a factor.",
    ),
    click.option(
        "--barriers", metavar="LAYER", help="Layer whose cells other than 0 are impassable."
    ),
    click.option(
        "--parameter",
        "parameters",
        type=_Parameter(),
        metavar="NAME=VALUE",
        multiple=True,
        callback=_parameters,
        help="".join(
            f"Of {model.name}: {', '.join(model.parameters)}. "
            for model in MODELS.values()
            if model.parameters
        )
        + "Repeatable.",
    ),
    click.option(
        "--reverse", is_flag=True, help="Cost of going to the source instead, where that differs."
    ),
    options.connectivity_option,
    click.option(
        "--no-corner-cutting",
        is_flag=True,
        help="No diagonal step between two cells that are nodata or barriers.",
    ),
)


def cost_options(command: Any) -> Any:
    """What a step costs and which steps there are."""
    for option in reversed(_COST_OPTIONS):
        command = option(command)
    return command


@click.command("compute-sssp")
@click.argument("store", metavar="STORE")
@click.option(
    "--source",
    type=Place("X,Y[,COST]"),
    metavar="X,Y[,COST]",
    multiple=True,
    help="Start here, in the raster's CRS, at this cost (0). Repeatable.",
)
@click.option(
    "--source-rowcol",
    type=Place("ROW,COL[,COST]"),
    metavar="ROW,COL[,COST]",
    multiple=True,
    help="Start in this cell, counted from 0. Repeatable.",
)
@click.option(
    "--sources",
    metavar="FILE",
    help="Start at the points, lines and polygons of a vector file (FILE:LAYER for one layer of "
    "several), or at the cells of an aligned raster that are neither 0 nor nodata.",
)
@click.option(
    "--source-edge", is_flag=True, help="Start at the raster's edge and the rim of nodata too."
)
@cost_options
@click.option(
    "--max-cost",
    type=float,
    metavar="COST",
    callback=not_negative,
    help="Leave cells that cost more unreached.",
)
@click.option(
    "--target",
    type=Place("X,Y"),
    metavar="X,Y",
    multiple=True,
    help="End of a path, in the raster's CRS. Repeatable.",
)
@click.option(
    "--target-rowcol",
    type=Place("ROW,COL"),
    metavar="ROW,COL",
    multiple=True,
    help="End of a path, a cell. Repeatable.",
)
@click.option("--targets", metavar="FILE", help="Ends of paths, a file as for --sources.")
@click.option(
    "--stop-at-targets", is_flag=True, help="Leave cells beyond the farthest target unreached."
)
@click.option(
    "-o", "--output", metavar="DISTANCE.tif", help="Also write the distances as a raster."
)
@click.option(
    "--dtype",
    type=click.Choice(get_args(FloatType)),
    help="Type of that raster's cells, rounded to nearest.  [default: as in the store]",
)
@click.option(
    "--backlink",
    metavar="CODES.tif",
    help="Also compute the steps back to the source, and write their D8 codes (E 1, SE 2, ... "
    "NE 128; 0 source, 255 unreached).",
)
@click.option(
    "--allocation",
    metavar="IDS.tif",
    help="Also compute which source each cell belongs to, and write the ids.",
)
@click.option(
    "--path",
    metavar="PATHS.geojson|.gpkg",
    help="Write the least-cost paths to the targets as lines.",
)
@options.layer_option
@options.memory_limit_option
@options.threads_option
@options.backend_option
@options.devices_option
@options.gpu_memory_limit_option
@click.option(
    "--method",
    type=click.Choice(get_args(PathMethod)),
    default="relax",
    show_default=True,
    help="The way: blocks relaxed in order, from the distance index, or with Dijkstra's algorithm "
    "inside of blocks; on a GPU also the classical ways, with an array of what changed, or many "
    "blocks with a tournament tree each. The result is the same; from the index within 1e-12 for "
    "real costs.",
)
@click.option(
    "--build-index",
    is_flag=True,
    help="Use the distance index, and build it before where it is missing or stale.",
)
@click.option("--verify", is_flag=True, help="Prove the result in another pass over the cells.")
@options.resume_option
@options.overwrite_option
@options.json_option
@options.verbosity_options
@options.version_option
def command(  # noqa: PLR0913 - the options
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
    path: str | None,
    no_corner_cutting: bool,
    json_target: str | None,
    **settings: Any,
) -> None:
    """Compute the least cost of reaching every cell of STORE from sources, as its layer "distance".

    The distances are those of Dijkstra's algorithm: the same bits for every block size, memory
    limit and number of threads. Backlinks and allocation become layers of these names.

    \b
    compute-sssp dem.zarr --source -84.2,36.5 --cost tobler -o seconds.tif
    compute-sssp dem.zarr --sources huts.geojson --cost friction --friction land
    compute-sssp dem.zarr --source-edge --cost minimax -o filled.tif
    """
    has_sources = bool(source or source_rowcol or sources is not None)
    has_targets = bool(target or target_rowcol or targets is not None)
    _check_options(has_sources, has_targets, path, output, dtype, settings)
    rasters = (
        ("distance", "--output", output),
        ("backlink", "--backlink", backlink),
        ("allocation", "--allocation", allocation),
    )
    _check_outputs(
        [(option, file) for _, option, file in rasters if file is not None],
        path,
        json_target,
        {"--sources": sources, "--targets": targets},
        overwrite=settings["overwrite"],
    )

    from ..io.export import export_layer
    from ..paths import shortest_paths
    from ..progress import bar
    from ..store import TileStore

    opened = TileStore.open(store)
    limit = settings["memory_limit"]
    starts = places(opened.grid, "--source", source, source_rowcol, sources, limit)
    ends = None
    if has_targets:
        ends = places(opened.grid, "--target", target, target_rowcol, targets, limit)
    advice = "what is finished is kept, --resume goes on"
    with options.if_interrupted(advice), bar("shortest paths", quiet=options.quiet()) as progress:
        found = shortest_paths(
            opened,
            starts,
            corner_cutting=not no_corner_cutting,
            targets=ends,
            backlink=backlink is not None or path is not None,
            allocation=allocation is not None,
            progress=progress,
            **settings,
        )
    report, layers = found.report, found.layers
    # --overwrite with --resume: a finished result stays, its files are replaced.
    advice = f"the layers {', '.join(layers)} are complete, --resume --overwrite writes the files"
    for layer, option, file in rasters:
        if not file:
            continue
        with options.if_interrupted(advice), report.phase("export"):
            export_layer(
                opened.path,
                file,
                layer=layer,
                dtype=dtype if layer == "distance" else None,
                **{name: settings[name] for name in ("memory_limit", "threads", "overwrite")},
            )
        report.result[option.removeprefix("--")] = file
    if path and ends is not None:
        with options.if_interrupted(advice), report.phase("paths"):
            lines = found.paths(ends, starts)
            report.result |= _write_paths(path, opened.grid, ends, lines, settings["overwrite"])
    options.write_json(report.to_json(), json_target)
    written = [file for _, _, file in rasters if file]
    options.say(_summary(store, found, settings, written, path), json_target)


def _write_paths(
    path: str, grid: GridSpec, ends: Places, lines: list[TracedPath], overwrite: bool
) -> dict[str, Any]:
    """Write paths to a file; what the report says of them."""
    from ..paths.output import write_paths

    missing = _unreached(path, grid, ends, lines)
    write_paths(path, lines, grid, overwrite=overwrite)
    return {"path": path, "paths": len(lines), "unreached_targets": missing}


def _summary(
    store: str,
    found: ShortestPaths,
    settings: dict[str, Any],
    written: list[str],
    path: str | None,
) -> str:
    """What a run has done, in words."""
    layers = found.layers
    if path:
        count = found.report.result["paths"]
        written = [*written, f"{path} ({count} path{'s' * (count != 1)})"]
    return (
        f"{store}: layer{'s' * (len(layers) > 1)} {', '.join(layers)}, "
        f"{found.reached:,} cells reached{_farthest(settings['cost'], layers['distance'])}, "
        f"{found.report.seconds['total']:.2f} s"
        + (", verified" if settings["verify"] else "")
        + (f"\nwritten: {', '.join(written)}" if written else "")
    )


def _check_options(
    has_sources: bool,
    has_targets: bool,
    path: str | None,
    output: str | None,
    dtype: FloatType | None,
    settings: dict[str, Any],
) -> None:
    """Refuse options that do not go together."""
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
        raise click.UsageError("targets are for --path FILE or --stop-at-targets: give one of them")
    if settings["build_index"] and settings["method"] not in ("relax", "index"):
        raise click.UsageError(f"--build-index is for --method index, not {settings['method']}")
    if dtype and output is None:
        raise click.UsageError(f"--dtype {dtype} is for the file of --output: give that too")


def _check_outputs(
    rasters: Sequence[tuple[str, str]],
    path: str | None,
    json_target: str | None,
    inputs: dict[str, str | None],
    *,
    overwrite: bool,
) -> None:
    """Refuse before the work what cannot take its results."""
    from ..io import export, lines

    outputs = dict(rasters) | ({"--path": path} if path is not None else {})
    refuse_shared_files(inputs, {**outputs, "--json": json_target})
    for option, file in outputs.items():
        with naming(option):
            checked = lines.checked_target if option == "--path" else export.checked_target
            checked(file, overwrite=overwrite)


def _unreached(
    path: str, grid: GridSpec, targets: Places, lines: Sequence[TracedPath]
) -> list[dict[str, int]]:
    """The targets without a path, with a warning that names them; an error when all are."""
    from ..errors import TerrainError
    from ..grid import cell_centres

    reached = {tuple(line.cells[-1].tolist()) for line in lines}
    missing = [
        {"target": name, "row": row, "col": col}
        for name, row, col in sorted(
            zip(*(a.tolist() for a in (targets.ids, targets.rows, targets.cols)), strict=True)
        )
        if (row, col) not in reached
    ]
    if not missing:
        return []
    import numpy as np

    shown = np.array([(one["row"], one["col"]) for one in missing[:NAMED]])
    names = ", ".join(
        f"x {x:.12g}, y {y:.12g} (row {row}, column {col})"
        for (x, y), (row, col) in zip(cell_centres(grid, shown), shown, strict=True)
    ) + (f" and {len(missing) - NAMED} more" if len(missing) > NAMED else "")
    if not lines:
        raise TerrainError(
            f"--path {path}: not written, no target is reached: {names}; look for nodata, barriers "
            "and --max-cost on the way"
        )
    log.warning("%d of %d targets not reached: %s", len(missing), len(targets), names)
    return missing


def _farthest(cost: str, distance: Layer) -> str:
    """The greatest distance for the summary, as the layer's statistics have it."""
    most = distance.info.get("max")
    if most is None:
        return ""
    number = f"{most:,}" if isinstance(most, int) else f"{most:.10g}"
    unit = f" {MODELS[cost].unit}".rstrip()
    return f", {'highest' if cost == 'minimax' else 'farthest'} {number}{unit}"
