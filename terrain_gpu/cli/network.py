"""terrain-gpu network: extract the main lines of the spanning forest as vector lines."""

from __future__ import annotations

from typing import Any

import click

from . import options
from .places import from_file, naming, not_negative, refuse_shared_files


@click.command("network")
@click.argument("store", metavar="STORE")
@click.argument("output", metavar="LINES.geojson|.gpkg")
@click.option(
    "--min-length",
    type=float,
    metavar="LENGTH",
    callback=not_negative,
    help="Remove dead ends shorter than this, in map units (metres in a geographic CRS); 0 "
    "removes nothing.",
)
@click.option(
    "--keep",
    metavar="FILE",
    help="Cells to keep and to end lines at: the points, lines and polygons of a vector file "
    "(FILE:LAYER for one layer of several), or the cells of an aligned raster that are neither 0 "
    "nor nodata.",
)
@options.memory_limit_option
@options.threads_option
@options.cluster_options("drainage.network_problem")
@options.verify_option
@options.overwrite_option
@options.json_option
@options.verbosity_options
def command(
    store: str,
    output: str,
    keep: str | None,
    json_target: str | None,
    **settings: Any,
) -> None:
    """Write the main lines of the spanning forest of STORE (compute-mst) as vector lines.

    Each line joins two nodes. Its attributes are start and end (cells, row x columns + column),
    weight (sum over its edges), pass_height (its highest cell), length and cells.

    \b
    terrain-gpu network dem.zarr lines.gpkg --min-length 5000
    terrain-gpu network dem.zarr ways.geojson --keep huts.geojson
    """
    if settings["min_length"] is None and keep is None:
        raise click.UsageError("give --min-length LENGTH, --keep FILE, or both")
    from ..drainage import extract_network
    from ..grid.lengths import length_unit
    from ..io.lines import checked_target
    from ..progress import bar
    from ..store import TileStore

    refuse_shared_files({"--keep": keep}, {"LINES": output, "--json": json_target})
    checked_target(output, overwrite=settings["overwrite"])
    opened = TileStore.open(store)
    kept = None
    if keep is not None:
        with naming("--keep"):
            kept = from_file(opened.grid, keep, settings["memory_limit"])
    advice = f"{output} is unchanged"
    with options.if_interrupted(advice), bar("network", quiet=options.quiet()) as progress:
        found = extract_network(opened, output, keep=kept, progress=progress, **settings)
    options.write_json(found.report.to_json(), json_target)
    length = f"{found.length:.10g} {length_unit(opened.grid)}"
    options.say(
        f"{output}: {found.lines:,} line{'s' * (found.lines != 1)} over {found.cells:,} cells, "
        f"length {length}, {found.report.seconds['total']:.2f} s"
        + (", verified" if settings["verify"] else ""),
        json_target,
    )
