"""terrain-gpu map: a map of a store in the browser."""

from __future__ import annotations

import contextlib
import os
import webbrowser
from threading import Thread
from typing import Any

import click

from . import options
from .sections import program_command
from .working import Given, store_option


@program_command("map", short_help="Show a store as a map in the browser")
@click.argument("store", metavar="STORE|RASTER")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="Port to listen on.  [default: any that is free]",
)
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@store_option
@options.memory_limit_option
@options.threads_option
@options.scratch_option
@options.progress_option
@options.verbosity_options
def command(store: str, port: int, no_browser: bool, kept: str | None, **limits: Any) -> None:
    """Show STORE, or a RASTER, as a map in the browser, until Ctrl-C.

    The map shows a hillshade and all layers with legends. A click computes the cost distance from
    there, around barriers that you draw, or the watershed upstream. Build overviews first: large
    stores then appear at once.

    Only programs on this machine that know the address can connect. Results of clicks are in a
    folder for scratch files, and are removed at the end, unless you download them or keep them as
    layers of the store. --memory-limit and --threads apply to each run that a click starts.

    \b
    terrain-gpu overviews dem.zarr
    terrain-gpu map dem.zarr
    terrain-gpu map dem.tif
    """
    from ..map import MapServer

    with (
        Given.read_only(store, {"kept": kept, **limits}) as opened,
        MapServer(opened, port=port, name=os.path.basename(store), **limits) as server,
        contextlib.suppress(KeyboardInterrupt, options.Interrupted),
    ):
        click.echo(server.url)
        options.say("Ctrl-C ends it.", "-")  # beside what a program reads
        if not no_browser:
            # A browser in the terminal waits for the first page.
            Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
        server.serve()
