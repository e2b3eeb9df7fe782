"""terrain-gpu streams: channels with orders, from flow directions and accumulation."""

from __future__ import annotations

from typing import Any, get_args

import click

from ..arguments import StreamOrder
from . import options
from .flow_accumulation import directions_option
from .operations import also_export, refuse_output
from .places import refuse_shared_files

ORDERS = get_args(StreamOrder)


@click.command("streams")
@click.argument("store", metavar="STORE")
@click.option(
    "--threshold",
    required=True,
    metavar="N|AREA",
    help="Least sum of a channel: a number of cells such as 1000, or an area such as 5km2, 300ha "
    "or 90000m2.",
)
@directions_option
@click.option(
    "--accumulation",
    default="flow_accumulation",
    show_default=True,
    metavar="NAME",
    help="Layer of what drains through each cell along them, in cells or areas.",
)
@click.option(
    "--order",
    type=click.Choice(ORDERS),
    metavar="ORDER",
    default="strahler",
    show_default=True,
    help=f"Which to write: {', '.join(ORDERS)} (the number of the link).",
)
@click.option(
    "--into",
    default="streams",
    show_default=True,
    metavar="NAME",
    help="Layer to write the orders to.",
)
@click.option(
    "--lines",
    metavar="LINES.geojson|.gpkg",
    help="Also write the links as lines, with their lengths, slopes, orders and Pfafstetter codes.",
)
@click.option(
    "--layer",
    default="elevation",
    show_default=True,
    metavar="NAME",
    help="Layer of elevations, for the slopes of lines.",
)
@click.option("-o", "--output", metavar="RASTER.tif", help="Also write the layer as a raster.")
@options.memory_limit_option
@options.threads_option
@options.cluster_options("drainage.channels.problem", "drainage.channels.line_problem")
@options.verify_option
@options.resume_option
@options.overwrite_option
@options.json_option
@options.verbosity_options
def command(store: str, output: str | None, json_target: str | None, **settings: Any) -> None:
    """Find the channels of STORE, the cells through which at least a threshold drains.

    Channels are divided into links, from heads and junctions to the next junction or outlet. The
    layer holds the order of each channel cell, 0 elsewhere.

    \b
    terrain-gpu streams dem.zarr --threshold 1000
    terrain-gpu streams dem.zarr --threshold 5km2 --lines streams.gpkg
    """
    from ..drainage import streams
    from ..progress import bar

    files = {"--lines": settings["lines"], "--output": output, "--json": json_target}
    refuse_shared_files({}, files)
    refuse_output(output, overwrite=settings["overwrite"])
    advice = "finished blocks are kept, --resume continues"
    with options.if_interrupted(advice), bar("streams", quiet=options.quiet()) as progress:
        found = streams(store, progress=progress, **settings)
    report = found.report
    also_export(found.layer, output, report, settings)
    options.write_json(report.to_json(), json_target)
    options.say(
        f"{store}: layer {found.layer.name}, {found.links:,} link{'s' * (found.links != 1)} of "
        f"{found.cells:,} cells, length {found.length:.10g}, from {found.heads:,} "
        f"head{'s' * (found.heads != 1)} to {found.outlets:,} outlet{'s' * (found.outlets != 1)}, "
        f"{report.seconds['total']:.2f} s" + (", verified" if settings["verify"] else ""),
        json_target,
    )
