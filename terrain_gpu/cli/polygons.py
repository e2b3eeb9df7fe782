"""terrain-gpu polygons: the areas of equal labels as polygons."""

from __future__ import annotations

from typing import Any

import click

from . import options
from .places import refuse_shared_files


@click.command("polygons")
@click.argument("store", metavar="STORE")
@click.argument("output", metavar="POLYGONS.gpkg|.geojson|.parquet")
@click.option(
    "--layer",
    required=True,
    metavar="NAME",
    help="Layer of labels: basins, watersheds, components, or any other whole numbers.",
)
@options.memory_limit_option
@options.threads_option
@options.cluster_options("vectorize.polygon_problem")
@options.overwrite_option
@options.json_option
@options.verbosity_options
def command(store: str, output: str, layer: str, json_target: str | None, **settings: Any) -> None:
    """Write the areas of equal labels of a layer of STORE as polygons.

    Each label becomes one MultiPolygon along the edges of its cells, with the attributes label,
    cells and area (square metres in a geographic CRS, else square map units).

    \b
    terrain-gpu polygons dem.zarr basins.gpkg --layer basins
    terrain-gpu polygons dem.zarr islands.geojson --layer components
    """
    from ..progress import bar
    from ..vectorize import polygons

    refuse_shared_files({}, {"POLYGONS": output, "--json": json_target})
    advice = f"{output} is unchanged"
    with options.if_interrupted(advice), bar("polygons", quiet=options.quiet()) as progress:
        found = polygons(store, output, layer=layer, progress=progress, **settings)
    options.write_json(found.report.to_json(), json_target)
    options.say(
        f"{output}: {found.labels:,} label{'s' * (found.labels != 1)}, "
        f"{found.polygons:,} polygon{'s' * (found.polygons != 1)} of {found.cells:,} cells, "
        f"{found.report.seconds['total']:.2f} s",
        json_target,
    )
