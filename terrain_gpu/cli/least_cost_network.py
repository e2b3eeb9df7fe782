"""terrain-gpu least-cost-network: places joined by least-cost paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

import click

from ..arguments import NetworkPairs
from ..plurals import counted
from . import options
from .compute_sssp import cost_options
from .operations import check_arguments
from .path_forms import both_ends, cost_by_friction
from .places import (
    Point,
    misplaced_options,
    naming,
    not_negative,
    place_options,
    refuse_shared_files,
    tell_reprojected,
)
from .working import Given, files_read, store_option

if TYPE_CHECKING:
    from ..paths.least_cost_network import CostNetwork


@click.command("least-cost-network")
@click.argument("store", metavar="STORE|RASTER")
@options.all_of(
    place_options(
        "--source",
        "A place at this point, in the raster's CRS. Repeatable.",
        "A place: a cell; rows and columns count from 0. Repeatable.",
        "Places: the points, lines and polygons of a vector file (FILE:LAYER for one layer of "
        "several), or the zones of an aligned raster, whose cells hold an id, 0 or nodata.",
    )
)
@click.option(
    "--id-field",
    metavar="FIELD",
    help="Field of --sources with the ids of features, instead of id: whole numbers from 1; or "
    "with their names, which are then numbered from 1.",
)
@options.all_of(misplaced_options)
@click.option(
    "--pairs",
    type=click.Choice(get_args(NetworkPairs)),
    default="mst",
    show_default=True,
    help="Which places to join. mst: the spanning tree of least cost. delaunay: places whose areas "
    "of least cost touch. all: each with all others.",
)
@click.option(
    "--nearest",
    type=click.IntRange(1),
    metavar="K",
    help="Join each place with the K others of least cost, in place of --pairs.",
)
@cost_options
@options.path_connectivity_option
@options.wrap_option
@click.option(
    "--max-cost",
    type=float,
    metavar="COST",
    callback=not_negative,
    help="Only links of at most this cost.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="NETWORK.gpkg|.parquet|.geojson|.fgb",
    help="The lines to write.",
)
@click.option(
    "--table", metavar="TABLE.csv|.parquet", help="Also write from, to, cost, length and climb."
)
@options.layer_option
@click.option(
    "--into",
    default="nearest",
    show_default=True,
    metavar="NAME",
    help="Layer of the least cost from a place. Backlinks and ids of places go to NAME_backlink "
    "and NAME_allocation. --pairs all and --nearest write no layers.",
)
@store_option
@options.memory_limit_option
@options.threads_option
@options.backend_option
@options.devices_option
@options.gpu_memory_limit_option
@options.cluster_options(
    "paths.cost_distance.operation",
    "paths.least_cost_network.operation",
    "paths.least_cost_network.matrix",
)
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
    output: str,
    table: str | None,
    no_corner_cutting: bool,
    json_target: str | None,
    **settings: Any,
) -> None:
    """Join places by least-cost paths over STORE, or over a raster, and write the paths as lines
    with the attributes from, to, cost, length and climb.

    A spanning tree, and links of places whose areas touch, take one search from all places. Costs
    must be the same both ways for these, not for --pairs all or --nearest K.

    \b
    terrain-gpu least-cost-network dem.tif --sources towns.gpkg --cost surface \\
        -o roads.gpkg
    terrain-gpu least-cost-network dem.zarr --sources parks.gpkg --id-field name \\
        --pairs delaunay --cost friction --friction resistance -o linkages.gpkg
    """
    if not (source or source_rowcol or sources is not None):
        raise click.UsageError(
            "no place: give --source X,Y, --source-rowcol ROW,COL or --sources FILE"
        )
    check_arguments("least_cost_network", settings)
    given = Given.of(store, [output], settings)
    refuse_shared_files(
        {
            "--sources": sources,
            "--vertical-factor": settings["vertical_factor"],
            **given.inputs,
            **files_read(settings),
        },
        {"--output": output, "--table": table, "--json": json_target},
    )

    from ..io.lines import checked_target
    from ..paths.cost_matrix.table import checked_table
    from ..paths.least_cost_network import least_cost_network
    from ..store import TileStore

    with naming("--output"):
        checked_target(output, overwrite=settings["overwrite"])
    if table is not None:
        with naming("--table"):
            checked_table(table, overwrite=settings["overwrite"])

    with (
        options.if_interrupted(given.advice("finished work is kept")),
        given.store(settings) as at,
        given.together(at),
        options.progress_of("least-cost-network") as progress,
    ):
        opened = given.layers(TileStore.open(at), settings)
        settings |= {"target_id_field": None, "cost_field": None}
        begin, end = (source, source_rowcol, sources), ((), (), None)
        places, _ = both_ends(opened, begin, end, settings)
        found = least_cost_network(
            opened,
            places,
            output,
            table=table,
            corner_cutting=not no_corner_cutting,
            progress=progress,
            **settings,
        )
    report = found.report
    given.name(report)
    told = tell_reprojected(report, sources="places")
    options.write_json(report.to_json(), json_target)
    written = ", ".join(file for file in (output, table) if file is not None)
    options.say(f"{store}: {_summary(found, settings)}{told}\nwritten: {written}", json_target)


def _summary(found: CostNetwork, settings: dict[str, Any]) -> str:
    """Return the summary of a run."""
    parts = "" if found.parts == 1 else f" in {counted(found.parts, 'part')}"
    return (
        f"{counted(found.places, 'place')}{parts}, {counted(found.links, 'link')}, "
        f"{found.report.seconds['total']:.2f} s{cost_by_friction(settings)}"
        + (", across the seam of 360 degrees" if found.report.result["wrap"] else "")
        + (", verified" if settings["verify"] else "")
    )
