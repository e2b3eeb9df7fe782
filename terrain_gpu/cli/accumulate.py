"""terrain-gpu accumulate: what drains through each cell of the spanning forest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from . import options
from .operations import also_export, refuse_output
from .places import Place, Point, places, refuse_shared_files


@click.command("accumulate")
@click.argument("store", metavar="STORE")
@click.option(
    "--outlet",
    type=Place("X,Y"),
    metavar="X,Y",
    multiple=True,
    help="An outlet, in the raster's CRS. Repeatable.  [default: the border of the data]",
)
@click.option(
    "--outlet-rowcol",
    type=Place("ROW,COL"),
    metavar="ROW,COL",
    multiple=True,
    help="An outlet, a cell, counted from 0. Repeatable.",
)
@click.option(
    "--outlets",
    metavar="FILE",
    help="Outlets at the points, lines and polygons of a vector file (FILE:LAYER for one layer of "
    "several), or at the cells of an aligned raster that are neither 0 nor nodata.",
)
@click.option(
    "--areas",
    is_flag=True,
    help="Sum areas in square map units, in a geographic CRS square metres, instead of cells.",
)
@click.option(
    "--into",
    default="accumulation",
    show_default=True,
    metavar="NAME",
    help="Layer that receives the sums.",
)
@click.option(
    "--directions",
    metavar="NAME",
    help="Also make this layer: D8 codes downstream (E 1, SE 2, ... NE 128; 0 outlet, 255 none "
    "reached).",
)
@click.option("-o", "--output", metavar="SUMS.tif", help="Also write the accumulation as a raster.")
@options.memory_limit_option
@options.threads_option
@options.cluster_options
@options.verify_option
@options.resume_option
@options.overwrite_option
@options.json_option
@options.verbosity_options
def command(
    store: str,
    outlet: Sequence[Point],
    outlet_rowcol: Sequence[Point],
    outlets: str | None,
    output: str | None,
    json_target: str | None,
    **settings: Any,
) -> None:
    """Sum what drains through each cell of STORE along its spanning forest.

    The forest (compute-mst) is rooted at outlets: the cells at the raster's edge and beside nodata,
    or those given. Between two outlets the heaviest edge is the divide. Every cell of the result
    has what is upstream of it, itself included; 0 where no outlet is reached.

    \b
    terrain-gpu accumulate dem.zarr
    terrain-gpu accumulate dem.zarr --outlets gauges.geojson --areas -o upstream.tif
    """
    from ..drainage import accumulate
    from ..progress import bar
    from ..store import TileStore

    refuse_shared_files({"--outlets": outlets}, {"--output": output, "--json": json_target})
    opened = TileStore.open(store)
    given = None
    if outlet or outlet_rowcol or outlets is not None:
        limit = settings["memory_limit"]
        given = places(opened.grid, "--outlet", outlet, outlet_rowcol, outlets, limit)
    refuse_output(output, overwrite=settings["overwrite"])
    advice = "finished blocks are kept, --resume goes on"
    with options.if_interrupted(advice), bar("accumulate", quiet=options.quiet()) as progress:
        found = accumulate(opened, given, progress=progress, **settings)
    report = found.report
    also_export(found.layer, output, report, settings)
    options.write_json(report.to_json(), json_target)
    missing = report.valid_cells - found.reached
    options.say(
        f"{store}: layer{'s' * (len(report.result['layers']) > 1)} "
        f"{', '.join(report.result['layers'])}, {found.reached:,} cells drain to "
        f"{found.outlets:,} outlet{'s' * (found.outlets != 1)}"
        + (f", {missing:,} reach none" if missing else "")
        + f", {report.seconds['total']:.2f} s"
        + (", verified" if settings["verify"] else ""),
        json_target,
    )
