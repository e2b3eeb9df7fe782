"""compute-sssp: cost distances from sources, and least-cost paths."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

import click

from ..arguments import FloatType, PathMethod, Wrap
from ..errors import InputError
from ..paths.costs import MODELS, refuse_unknown, row_of
from ..paths.formula.presets import PRESETS
from ..paths.formula.tree import NAMES
from . import options
from .places import (
    Point,
    misplaced_of,
    misplaced_options,
    naming,
    not_negative,
    place_options,
    places,
    refuse_shared_files,
    with_cost,
)

if TYPE_CHECKING:
    from ..grid import GridSpec
    from ..io.places import Places
    from ..paths import ShortestPaths
    from ..paths.trace import TracedPath
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
        default="absdiff",
        show_default=True,
        help="Cost of a step: absdiff |dz|; friction: mean friction x length; surface: length on "
        "the surface; tobler and langmuir: seconds of walking. minimax: a path costs its highest "
        f"cell. PRESET: {', '.join(PRESETS)}. FORMULA: of {', '.join(NAMES)}, such as "
        "'length * exp(abs(slope))'.",
    ),
    click.option(
        "--friction",
        metavar="LAYER",
        help="Layer of frictions, 0 or more. Required by --cost friction (name --layer itself if "
        "that holds them); a term of langmuir, a factor for other models, refused by minimax. "
        "Formulas use it by name, or by the name of a layer without this option.",
    ),
    click.option("--barriers", metavar="LAYER", help="Layer whose non-zero cells are impassable."),
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
        help="Field of --sources and --targets that says what features are called, in place of id: "
        "whole numbers from 1, or else names, which ids number.",
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


@click.command("compute-sssp")
@click.argument("store", metavar="STORE")
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
@click.option(
    "--wrap",
    type=click.Choice(get_args(Wrap)),
    default="auto",
    show_default=True,
    help="Join the last column to the first one: auto, where a geographic raster spans 360 "
    "degrees; yes, also where it does so only within half a column, or else refuse.",
)
@click.option(
    "--max-cost",
    type=float,
    metavar="COST",
    callback=not_negative,
    help="Leave cells with a higher cost unreached.",
)
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
    "-o", "--output", metavar="DISTANCE.tif", help="Also write the distances as a raster."
)
@click.option(
    "--dtype",
    type=click.Choice(get_args(FloatType)),
    help="Data type of the --output raster; distances are rounded to nearest.  "
    "[default: as in the store]",
)
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
    metavar="PATHS.geojson|.gpkg",
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
@options.memory_limit_option
@options.threads_option
@options.backend_option
@options.devices_option
@options.gpu_memory_limit_option
@options.cluster_options("paths.problem")
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
    all_ties: str | None,
    path: str | None,
    no_corner_cutting: bool,
    json_target: str | None,
    **settings: Any,
) -> None:
    """Compute the least cost from sources to each cell of STORE, as its layer "distance".

    The distances equal those of Dijkstra's algorithm: the same bits for every block size, memory
    limit and number of threads. Backlinks and allocation go to the layers of these names. With
    --into, a store holds several results.

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
        ("ties", "--all-ties", all_ties),
    )
    _check_outputs(
        [(option, file) for _, option, file in rasters if file is not None],
        path,
        json_target,
        {
            "--sources": sources,
            "--targets": targets,
            "--vertical-factor": settings["vertical_factor"],
        },
        overwrite=settings["overwrite"],
    )

    from ..paths import shortest_paths
    from ..progress import bar
    from ..store import TileStore

    opened = TileStore.open(store)
    if all_ties is not None:
        _refuse_ties(opened, settings)
    given = (source, source_rowcol, sources), (target, target_rowcol, targets)
    starts, ends = both_ends(opened, *given, settings)
    advice = "finished work is kept, --resume continues"
    with options.if_interrupted(advice), bar("shortest paths", quiet=options.quiet()) as progress:
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
    report, layers = found.report, found.layers
    if starts.names:
        report.result["source_names"] = {str(id_): name for id_, name in starts.names.items()}
    if all_ties is not None:
        _add_ties(found, opened, settings)
    # --resume with --overwrite keeps a finished result and replaces its files.
    made = ", ".join(layer.name for layer in layers.values())
    advice = f"the layers {made} are complete, --resume --overwrite writes the files"
    _write_rasters(found, opened, rasters, dtype, settings, advice)
    if path and ends is not None:
        with options.if_interrupted(advice), report.phase("paths"):
            lines = found.paths(ends, starts)
            report.result |= _write_paths(path, opened.grid, ends, lines, settings["overwrite"])
    options.write_json(report.to_json(), json_target)
    written = [file for _, _, file in rasters if file]
    options.say(_summary(store, found, settings, written, path), json_target)


def _write_rasters(
    found: ShortestPaths,
    store: TileStore,
    rasters: Sequence[tuple[str, str, str | None]],
    dtype: FloatType | None,
    settings: dict[str, Any],
    advice: str,
) -> None:
    """Write the layers that are asked for to files: layer, option and file of each."""
    from ..io.export import export_layer

    for layer, option, file in rasters:
        if not file:
            continue
        with options.if_interrupted(advice), found.report.phase("export"):
            export_layer(
                store.path,
                file,
                layer=found.layers[layer].name,
                dtype=dtype if layer == "distance" else None,
                **{name: settings[name] for name in ("memory_limit", "threads", "overwrite")},
            )
        found.report.result[option.removeprefix("--").replace("-", "_")] = file


def _refuse_ties(store: TileStore, settings: dict[str, Any]) -> None:
    """Refuse, before the paths are computed, ties of 16 neighbours and a layer that exists."""
    if settings["connectivity"] == 16:
        raise click.UsageError("--all-ties takes 4 or 8 neighbours: give --connectivity 8")
    from ..errors import StoreError
    from ..paths.steps import layer_named

    name = layer_named(settings["into"], "ties")
    if name in store.layers and not (settings["overwrite"] or settings["resume"]):
        raise StoreError(f"{store.path}: layer {name!r} exists; --overwrite replaces it")


def _add_ties(found: ShortestPaths, store: TileStore, settings: dict[str, Any]) -> None:
    """Compute the layer of ties."""
    from ..paths import tied_steps

    advice = "distances and backlinks are complete, --resume continues"
    own = "memory_limit", "threads", "client", "verify", "resume", "overwrite"
    with options.if_interrupted(advice), found.report.phase("ties"):
        made = tied_steps(store, settings["into"], **{name: settings[name] for name in own})
    (found.layers["ties"],) = made.layers.values()
    found.report.result["layers"].append(found.layers["ties"].name)


Given = tuple[Sequence[Point], Sequence[Point], str | None]
"""Points, cells and the file of a group of options."""


def both_ends(
    store: TileStore, begin: Given, end: Given, settings: dict[str, Any]
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
    """Turn a formula that names a layer into one of frictions."""
    from ..paths.stated import with_named_layer

    if row_of(settings["cost"]).name == "formula":
        layers = {*store.layers} - {settings["layer"]}
        found = with_named_layer(settings["cost"], settings["friction"], layers, parameters)
        settings["cost"], settings["friction"] = found


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


def _write_paths(
    path: str, grid: GridSpec, ends: Places, lines: list[TracedPath], overwrite: bool
) -> dict[str, Any]:
    """Write paths to a file; return the entries for the report."""
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
    """Return the summary of a run."""
    layers = found.layers
    if path:
        count = found.report.result["paths"]
        written = [*written, f"{path} ({count} path{'s' * (count != 1)})"]
    return (
        f"{store}: layer{'s' * (len(layers) > 1)} "
        f"{', '.join(layer.name for layer in layers.values())}, "
        f"{found.reached:,} cells reached{_farthest(settings, layers['distance'])}, "
        f"{found.report.seconds['total']:.2f} s"
        + (", across the seam of 360 degrees" if found.report.result["wrap"] else "")
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
    if settings["build_index"] and settings["method"] not in ("relax", "index"):
        raise click.UsageError(
            f"--build-index needs --method index, not {settings['method']}: leave out one of them"
        )
    if dtype and output is None:
        raise click.UsageError(f"--dtype {dtype} is the type of the --output raster: give that too")


def _check_outputs(
    rasters: Sequence[tuple[str, str]],
    path: str | None,
    json_target: str | None,
    inputs: dict[str, str | None],
    *,
    overwrite: bool,
) -> None:
    """Refuse, before the work starts, files that the results cannot be written to."""
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
    """Return the unreached targets and log a warning that names them; raise if no path exists."""
    from ..errors import TerrainError
    from ..grid import cell_centres

    reached = {tuple(line.cells[-1].tolist()) for line in lines}
    missing = [
        {"target": targets.names.get(name, name), "row": row, "col": col}
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
            f"--path {path}: not written, no target is reached: {names}; check for nodata and "
            "barriers on the way, and --max-cost"
        )
    log.warning("%d of %d targets not reached: %s", len(missing), len(targets), names)
    return missing


def _farthest(settings: dict[str, Any], distance: Layer) -> str:
    """Return the greatest distance, from the layer's statistics, for the summary."""
    most = distance.info.get("max")
    if most is None:
        return ""
    number = f"{most:,}" if isinstance(most, int) else f"{most:.10g}"
    cost = settings["cost"]
    unit = row_of(cost).unit
    if cost == "surface" and settings["friction"] is None is settings["vertical_factor"]:
        from ..grid.lengths import length_unit

        unit = length_unit(distance.grid)
    unit = f" {unit}".rstrip()
    return f", {'highest' if cost == 'minimax' else 'farthest'} {number}{unit}"
