"""terrain-gpu overviews: coarser levels of layers, for maps."""

from __future__ import annotations

from typing import Any, get_args

import click

from ..arguments import Resampling
from . import options
from .sections import program_command


@program_command("overviews", short_help="Build overviews for zooming out")
@click.argument("store", metavar="STORE")
@click.option(
    "--layer",
    "layers",
    multiple=True,
    metavar="NAME",
    help="The layer; may be repeated.  [default: all]",
)
@click.option(
    "--resampling",
    type=click.Choice(get_args(Resampling)),
    help="How 2 x 2 cells become one.  [default: as before; else average for floats "
    "other than aspects, nearest for the rest]",
)
@click.option("--remove", is_flag=True, help="Remove the overviews instead.")
@options.memory_limit_option
@options.threads_option
@options.cluster_options("raster.overviews.operation")
@options.verify_option
@options.resume_option
@options.overwrite_option
@options.progress_option
@options.json_option
@options.verbosity_options
def command(
    store: str, layers: tuple[str, ...], remove: bool, json_target: str | None, **settings: Any
) -> None:
    """Build overviews of the layers of STORE, which programs show when they zoom out.

    Each level has cells twice as wide and high as the one before, until no side has more than 256.
    A level is a store, such as STORE/overviews/8, and every command can read it. Overviews that are
    up to date are kept. A command that replaces a layer removes its overviews.

    For integers, nearest takes the upper left cell, which suits codes and labels; choose average
    for heights in whole metres, and max for flow accumulation, so that rivers stay. Codes and
    labels, such as flow directions and basins, are never averaged.

    \b
    terrain-gpu overviews dem.zarr
    terrain-gpu overviews dem.zarr --layer accumulation --resampling max
    terrain-gpu export dem.zarr/overviews/8 small.tif
    """
    if remove:
        given = [name for name in ("resampling", "verify", "resume", "overwrite") if settings[name]]
        if given:
            raise click.UsageError(f"--remove builds nothing; leave out --{given[0]}")
        _remove(store, layers, json_target)
        return
    from ..raster.overviews import build_overviews

    with (
        options.if_interrupted("finished levels are kept, and --resume continues"),
        options.progress_of("overviews") as progress,
    ):
        report = build_overviews(store, layers=layers or None, progress=progress, **settings)
    options.write_json(report.to_json(), json_target)
    made = report.result["layers"]
    for name, one in made.items():
        told = [
            f"{what} {', '.join(f'1:{factor}' for factor in one[what])}"
            for what in ("built", "kept")
            if one[what]
        ]
        levels = "; ".join(told) or "too small for overviews"
        options.say(f"{store}: layer {name} ({one['resampling']}), {levels}", json_target)
    options.say(
        f"{report.seconds['total']:.2f} s" + (", verified" if settings["verify"] else ""),
        json_target,
    )


def _remove(store: str, layers: tuple[str, ...], json_target: str | None) -> None:
    from ..report import Report
    from ..store import TileStore
    from ..store.overviews import remove_overviews

    opened, report = TileStore.open(store), Report("overviews")
    with report.measured():
        report.cells = opened.grid.cells
        removed = remove_overviews(opened, layers or None)
    report.result = {"store": str(opened.path), "removed": removed}
    options.write_json(report.to_json(), json_target)
    options.say(f"{store}: removed overviews of {', '.join(removed) or 'no layer'}", json_target)
