"""terrain-gpu label-components: connected components of the cells that meet a condition."""

from __future__ import annotations

from typing import Any

import click

from . import options
from .operations import also_export, refuse_output
from .places import refuse_shared_files


@click.command("label-components")
@click.argument("store", metavar="STORE")
@click.option(
    "--where",
    required=True,
    metavar="CONDITION",
    help='Condition on layers of the store, such as "elevation > 0", "0 < elevation <= 100 and not '
    '(slope > 30)" or "nodata(elevation)".',
)
@options.connectivity_option
@click.option(
    "--into",
    default="components",
    show_default=True,
    metavar="NAME",
    help="Layer to write the labels to.",
)
@click.option(
    "--table",
    metavar="FILE",
    help="Also write a table of the components' cell counts, areas and bounding boxes: .csv, "
    ".parquet, .geojson or .gpkg.",
)
@click.option("-o", "--output", metavar="LABELS.tif", help="Also write the labels as a raster.")
@options.memory_limit_option
@options.threads_option
@options.cluster_options("components.problem")
@options.verify_option
@options.resume_option
@options.overwrite_option
@options.json_option
@options.verbosity_options
def command(
    store: str,
    where: str,
    output: str | None,
    json_target: str | None,
    **settings: Any,
) -> None:
    """Label the connected components of the cells of STORE that meet a condition.

    Labels count from 1, in row-major order of each component's first cell; all other cells are 0.
    They are the same for every block size, memory limit and number of threads. A comparison
    with a nodata cell is never true.

    \b
    terrain-gpu label-components dem.zarr --where "elevation > 0" --table islands.csv
    terrain-gpu label-components dem.zarr --where "nodata(elevation)" --into voids
    """
    from ..components import label_components
    from ..progress import bar

    refuse_shared_files(
        {}, {"--table": settings["table"], "--output": output, "--json": json_target}
    )
    refuse_output(output, overwrite=settings["overwrite"])
    advice = "finished blocks are kept, --resume continues"
    with options.if_interrupted(advice), bar("components", quiet=options.quiet()) as progress:
        found = label_components(store, where, progress=progress, **settings)
    report, into = found.report, settings["into"]
    also_export(found.layer, output, report, settings)
    options.write_json(report.to_json(), json_target)
    written = [path for path in (settings["table"], output) if path]
    options.say(
        f"{store}: layer {into}, {found.count:,} component{'s' * (found.count != 1)} of "
        f"{found.cells:,} cells in all, {report.seconds['total']:.2f} s"
        + (", verified" if settings["verify"] else "")
        + (f"\nwritten: {', '.join(written)}" if written else ""),
        json_target,
    )
