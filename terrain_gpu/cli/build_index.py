"""terrain-gpu build-index: build the distance index of a store."""

from __future__ import annotations

from typing import Any, get_args

import click

from ..arguments import IndexMethod, IndexTile
from . import compute_sssp, options
from .working import warn_if_empty

tile_option = click.option(
    "--tile",
    type=click.Choice([str(side) for side in get_args(IndexTile)]),
    callback=lambda ctx, param, value: int(value),
    default="64",
    show_default=True,
    help="Side of the tiles, in cells. Larger ones take longer to build and less time to query.",
)

levels_option = click.option(
    "--levels",
    type=click.IntRange(0, 9),
    default=0,
    show_default=True,
    help="Levels above the tiles: squares of 2, 4, 8, ... tiles on a side. With integer costs and "
    "minimax, queries between distant places then take a half to a sixth of the time.",
)


@click.command("build-index")
@click.argument("store", metavar="STORE")
@compute_sssp.cost_options
@options.connectivity_option
@options.layer_option
@tile_option
@levels_option
@click.option(
    "--method",
    type=click.Choice(get_args(IndexMethod)),
    default="relax",
    show_default=True,
    help="How distances inside tiles are computed. For comparison, on a GPU: relax-array (sweeps "
    "with an updating array) or tournament (Dijkstra, a tournament tree for each tile).",
)
@options.memory_limit_option
@options.threads_option
@options.backend_option
@options.device_option
@options.gpu_memory_limit_option
@options.cluster_options("paths.distance_index.operation")
@options.verify_option
@options.scratch_option
@options.overwrite_option
@options.progress_option
@options.json_option
@options.verbosity_options
@options.version_option
def command(
    store: str,
    no_corner_cutting: bool,
    json_target: str | None,
    **settings: Any,
) -> None:
    """Build the distance index of STORE, for query-index and compute-sssp --method index.

    The index holds the distances between the rim cells of every tile, for one cost model: about 1
    byte per cell for integer costs, 6 to 20 for others. The same command continues a build that was
    interrupted.

    \b
    terrain-gpu build-index dem.zarr --cost tobler
    terrain-gpu query-index dem.zarr --from -84.2,36.5 --to -84.1,36.6
    """
    from ..engine.plan import format_size
    from ..paths.distance_index import build_index

    warn_if_empty(store, settings)
    advice = "finished blocks are kept, the same command continues"
    with options.if_interrupted(advice), options.progress_of("distance index") as progress:
        report = build_index(
            store,
            corner_cutting=not no_corner_cutting,
            progress=progress,
            **settings,
        )
    options.write_json(report.to_json(), json_target)
    found = report.result
    options.say(
        f"{store}: distance index, {format_size(found['bytes'])}, {found['bytes_per_cell']} bytes "
        f"per cell, "
        + (f"{report.seconds['total']:.2f} s" if found["built"] else "already built")
        + compute_sssp.cost_by_friction(settings)
        + (", verified" if settings["verify"] else ""),
        json_target,
    )
