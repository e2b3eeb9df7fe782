"""terrain-gpu export: write a layer to a raster file."""

from __future__ import annotations

from typing import Any, get_args

import click

from ..arguments import FlowEncoding
from ..engine.plan import format_size
from . import options
from .sections import program_command


@program_command("export", short_help="Write a layer as a GeoTIFF")
@click.argument("store", metavar="STORE")
@click.argument("path", metavar="OUT.tif|.zarr")
@options.layer_option
@options.bounds_option
@options.all_of(options.format_options)
@click.option(
    "--encoding",
    type=click.Choice(get_args(FlowEncoding)),
    metavar="ENCODING",
    help="Flow directions or backlinks as another program has them: "
    f"{', '.join(get_args(FlowEncoding))}.  [default: esri]",
)
@options.memory_limit_option
@options.threads_option
@options.verify_option
@options.overwrite_option
@options.progress_option
@options.json_option
@options.verbosity_options
def command(store: str, path: str, json_target: str | None, **settings: Any) -> None:
    """Write a layer of STORE to a GeoTIFF, or to another store, with the same cells."""
    from ..io.export import export_layer

    advice = f"{path} is unchanged"
    with options.if_interrupted(advice), options.progress_of("export") as progress:
        report = export_layer(store, path, progress=progress, **settings)
    options.write_json(report.to_json(), json_target)
    result = report.result
    options.say(
        f"{path}: {result['rows']} x {result['cols']} cells of {result['dtype']}, "
        f"{format_size(result['file_bytes'])}, {report.seconds['total']:.2f} s"
        + (", verified" if settings["verify"] else ""),
        json_target,
    )
