"""terrain-gpu accumulate: drainage accumulation along the spanning forest."""

from __future__ import annotations

from typing import Any

import click

from . import options
from .operations import also_export, refuse_output
from .places import given_outlets, outlet_options, refuse_shared_files


@click.command("accumulate")
@click.argument("store", metavar="STORE")
@options.all_of(outlet_options)
@click.option(
    "--areas",
    is_flag=True,
    help="Sum areas instead of cells, in square map units (square metres in a geographic CRS).",
)
@click.option(
    "--into",
    default="accumulation",
    show_default=True,
    metavar="NAME",
    help="Layer to write the sums to.",
)
@click.option(
    "--directions",
    metavar="NAME",
    help="Also write this layer: D8 codes of the downstream steps (E 1, SE 2, ... NE 128; 0 "
    "outlet, 255 no outlet reached).",
)
@click.option("-o", "--output", metavar="SUMS.tif", help="Also write the accumulation as a raster.")
@options.memory_limit_option
@options.threads_option
@options.cluster_options("drainage.accumulation")
@options.verify_option
@options.resume_option
@options.overwrite_option
@options.json_option
@options.verbosity_options
def command(
    store: str,
    output: str | None,
    json_target: str | None,
    **settings: Any,
) -> None:
    """Sum the cells or areas that drain through each cell of STORE along its spanning forest.

    The forest (compute-mst) is rooted at the outlets: by default, all cells on the raster's edge
    or beside nodata. The heaviest edge between two outlets is the divide. Each cell of the result
    is the sum over all cells upstream, itself included; 0 if no outlet is reached.

    \b
    terrain-gpu accumulate dem.zarr
    terrain-gpu accumulate dem.zarr --outlets gauges.geojson --areas -o upstream.tif
    """
    from ..drainage import accumulate
    from ..progress import bar
    from ..store import TileStore

    inputs = {"--outlets": settings["outlets"]}
    refuse_shared_files(inputs, {"--output": output, "--json": json_target})
    opened = TileStore.open(store)
    given = given_outlets(opened.grid, settings)
    refuse_output(output, overwrite=settings["overwrite"])
    advice = "finished blocks are kept, --resume continues"
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
