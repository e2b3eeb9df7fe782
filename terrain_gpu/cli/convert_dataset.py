"""convert-dataset: convert rasters into a layer of a store."""

from __future__ import annotations

from typing import Any, get_args

import click

from ..arguments import RoundedType
from ..engine.plan import format_size
from ..grid.neighbours import ENCODINGS
from . import options
from .sections import program_command


class Number(click.ParamType):
    """An integer if written as one, else a real number (including nan and inf)."""

    name = "value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | int:
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
        self.fail(f"{value!r} is not a number", param, ctx)


@program_command("convert-dataset", short_help="Convert rasters into a store")
@click.argument("inputs", nargs=-1, metavar="INPUT...")
@click.argument("store", metavar="STORE")
@options.layer_option
@click.option(
    "--band", type=click.IntRange(1), metavar="N", help="Band to read from multi-band rasters."
)
@click.option(
    "--block-size",
    type=click.IntRange(64, 8192),
    metavar="N",
    help="Side of a block in cells, a power of two.  [default: planned, at most 1024]",
)
@click.option("--round", "round_cells", is_flag=True, help="Round real cells to int32.")
@click.option(
    "--dtype",
    type=click.Choice(get_args(RoundedType)),
    help="Type of rounded cells.  [default: int32, for real cells]",
)
@click.option("--clamp-min", type=Number(), metavar="V", help="Raise lower values to V.")
@click.option(
    "--nodata",
    type=Number(),
    metavar="V",
    help="Treat cells of value V as nodata, and set the inputs' own nodata cells to V.",
)
@options.bounds_option
@click.option(
    "--crs",
    metavar="CRS",
    help="Coordinate system of inputs that have none: a code, WKT, a PROJ string, or a file with "
    "one of these.",
)
@click.option(
    "--encoding",
    type=click.Choice([*ENCODINGS]),
    metavar="ENCODING",
    help="Inputs hold flow directions of another program; recode them to D8 codes: "
    f"{', '.join(ENCODINGS)}.  [default: that "
    "of the tag FLOW_DIRECTION_ENCODING, if they have one]",
)
@options.memory_limit_option
@options.threads_option
@options.cluster_options("io.convert_problem")
@options.verify_option
@options.compress_option
@options.resume_option
@options.overwrite_option
@options.progress_option
@options.json_option
@options.verbosity_options
@options.version_option
def command(inputs: tuple[str, ...], store: str, json_target: str | None, **settings: Any) -> None:
    """Convert rasters into a layer of STORE, which the other commands read.

    INPUT is any raster that GDAL reads, or GRASS ASCII; several on one grid become a mosaic. Cells
    keep their type and bits unless an option changes them.

    \b
    convert-dataset dem.tif dem.zarr
    convert-dataset N46E008.hgt N46E009.hgt alps.zarr --memory-limit 1GB
    convert-dataset landcover.tif dem.zarr --layer friction
    """
    from ..io.convert import convert_dataset

    if not inputs:
        raise click.UsageError(f"only {store!r} given: give INPUT rasters, and the STORE last")
    advice = "finished blocks are kept, --resume continues"
    with options.if_interrupted(advice), options.progress_of("convert") as progress:
        report = convert_dataset(inputs, store, progress=progress, **settings)
    options.write_json(report.to_json(), json_target)
    result = report.result
    recoded = f", directions of {result['encoding']}" if "encoding" in result else ""
    options.say(
        f"{store}: layer {result['layer']}, {result['rows']} x {result['cols']} cells of "
        f"{result['dtype']}{recoded}, {report.valid_cells / report.cells:.1%} with a value, "
        f"{format_size(result['stored_bytes'])} stored ({format_size(result['raw_bytes'])} raw)"
        f"{options.resumed(report)}, "
        f"{report.seconds['total']:.2f} s" + (", verified" if settings["verify"] else ""),
        json_target,
    )
