"""terrain-gpu cost-matrix: costs and paths between many sources and many targets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ..plurals import counted
from . import options
from .compute_sssp import cost_options, field_options
from .path_forms import both_ends, cost_by_friction
from .places import (
    Point,
    field_of,
    misplaced_options,
    naming,
    not_negative,
    place_options,
    refuse_shared_files,
    tell_reprojected,
    with_cost,
)
from .working import Given, files_read, store_option

if TYPE_CHECKING:
    from ..io.places import Places
    from ..paths.cost_matrix import CostMatrix


@click.command("cost-matrix")
@click.argument("store", metavar="STORE|RASTER")
@options.all_of(
    place_options(
        "--source",
        "A source at this point, in the raster's CRS, with this start cost (default 0). "
        "Repeatable.",
        "A source: a cell; rows and columns count from 0. Repeatable.",
        "Sources: the points, lines and polygons of a vector file (FILE:LAYER for one layer of "
        "several), or the zones of an aligned raster, whose cells hold an id, 0 or nodata.",
        with_cost,
    )
)
@options.all_of(
    place_options(
        "--target",
        "A target: a point in the raster's CRS. Repeatable.",
        "A target: a cell. Repeatable.",
        "Targets: a file like that of --sources.  [default: each source with all others]",
    )
)
@options.all_of(field_options)
@options.all_of(misplaced_options)
@cost_options
@options.path_connectivity_option
@options.wrap_option
@click.option(
    "--nearest",
    type=click.IntRange(1),
    metavar="K",
    help="Only the K targets of least cost of each source.",
)
@click.option(
    "--max-cost",
    type=float,
    metavar="COST",
    callback=not_negative,
    help="Only pairs of at most this cost.",
)
@click.option(
    "--max-cost-field",
    metavar="FIELD",
    help="Field of --sources with the most that pairs of each source may cost; with --max-cost, "
    "the lesser one counts.",
)
@click.option(
    "-o", "--output", required=True, metavar="TABLE.csv|.parquet", help="The table to write."
)
@click.option(
    "--path",
    metavar="PATHS.gpkg|.parquet|.geojson|.fgb",
    help="Also write the least-cost paths as lines.",
)
@options.layer_option
@store_option
@options.memory_limit_option
@options.threads_option
@options.backend_option
@options.device_option
@options.gpu_memory_limit_option
@options.cluster_options("paths.cost_matrix.solve")
@options.verify_option
@options.resume_option
@options.overwrite_option
@options.progress_option
@options.json_option
@options.verbosity_options
def command(
    store: str,
    *,
    source: Sequence[Point],
    source_rowcol: Sequence[Point],
    sources: str | None,
    target: Sequence[Point],
    target_rowcol: Sequence[Point],
    targets: str | None,
    output: str,
    path: str | None,
    max_cost_field: str | None,
    no_corner_cutting: bool,
    json_target: str | None,
    **settings: Any,
) -> None:
    """Compute the least cost from each of many sources to each of many targets over STORE, or over
    a raster, as a table: source, target, cost, length and climb of the path.

    All costs are those of compute-sssp, source by source, bit for bit. Pairs without a path have
    empty fields; with --nearest or a limit of costs they have no row.

    \b
    terrain-gpu cost-matrix dem.zarr --sources villages.gpkg \\
        --targets clinics.gpkg --cost tobler -o seconds.csv
    terrain-gpu cost-matrix dem.zarr --sources huts.gpkg --nearest 3 \\
        --cost tobler -o near.csv --path trails.gpkg
    """
    if not (source or source_rowcol or sources is not None):
        raise click.UsageError(
            "no source: give --source X,Y, --source-rowcol ROW,COL or --sources FILE"
        )
    if max_cost_field is not None and sources is None:
        raise click.UsageError(
            f"--max-cost-field {max_cost_field} names a field of a file: give --sources FILE"
        )
    given = Given.of(store, [output], settings)
    inputs = {"--sources": sources, "--targets": targets, **given.inputs, **files_read(settings)}
    inputs["--vertical-factor"] = settings["vertical_factor"]
    refuse_shared_files(inputs, {"--output": output, "--path": path, "--json": json_target})

    from ..paths.cost_matrix import cost_matrix
    from ..paths.cost_matrix.table import checked_paths, checked_table
    from ..store import TileStore

    for option, file, check in (
        ("--output", output, checked_table),
        ("--path", path, checked_paths),
    ):
        if file is not None:
            with naming(option):
                check(file, overwrite=settings["overwrite"])

    with (
        options.if_interrupted(given.advice("finished sources are kept")),
        given.store(settings) as at,
        given.together(at),
        options.progress_of("cost-matrix") as progress,
    ):
        opened = given.layers(TileStore.open(at), settings)
        begin, end = (source, source_rowcol, sources), (target, target_rowcol, targets)
        id_field = settings["id_field"]
        starts, ends = both_ends(opened, begin, end, settings)
        if sources is not None and max_cost_field is not None:
            with naming("--max-cost-field"):
                own = field_of(sources, max_cost_field, settings["memory_limit"], id_field)
            settings["max_cost"] = _limits(starts, own, settings["max_cost"])
        found = cost_matrix(
            opened,
            starts,
            ends,
            output=output,
            paths=path,
            corner_cutting=not no_corner_cutting,
            progress=progress,
            **settings,
        )
    report = found.report
    given.name(report)
    told = tell_reprojected(report)
    options.write_json(report.to_json(), json_target)
    options.say(_summary(store, found, settings, output, path, told), json_target)


def _limits(starts: Places, own: dict[int, float], most: float | None) -> dict[int, float]:
    """Return the limits of sources, by id: their own, and that of all."""
    every = math.inf if most is None else most
    return {one: min(own.get(one, every), every) for one in set(starts.ids.tolist())}


def _summary(
    store: str,
    found: CostMatrix,
    settings: dict[str, Any],
    output: str,
    path: str | None,
    told: str,
) -> str:
    """Return the summary of a run."""
    report, result = found.report, found.report.result
    written = f"{output} ({counted(found.rows, 'row')})"
    if path is not None:
        written += f", {path} ({counted(result['paths'], 'path')})"
    return (
        f"{store}: {counted(result['sources'], 'source')}, {counted(result['targets'], 'target')}"
        + (f", {counted(found.unreached, 'pair without a path')}" if found.unreached else "")
        + (", across the seam of 360 degrees" if result["wrap"] else "")
        + f", {report.seconds['total']:.2f} s"
        + (", verified" if "verified_steps" in result else "")
        + f"{cost_by_friction(settings)}{told}\nwritten: {written}"
    )
