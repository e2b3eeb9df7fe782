"""compute-mst: the minimum spanning forest of a layer."""

from __future__ import annotations

from typing import Any, get_args

import click

from ..arguments import TreeMethod
from ..mst.weights import WEIGHTS
from . import options


@click.command("compute-mst")
@click.argument("store", metavar="STORE")
@click.option(
    "-o",
    "--output",
    metavar="EDGES.tif",
    help="Also write the edges as a raster of D8 codes (E 1, SE 2, ... NE 128).",
)
@click.option(
    "--weight",
    type=click.Choice(tuple(WEIGHTS)),
    default="max",
    show_default=True,
    help="Weight of an edge: the higher of its two cells, or their absolute difference. By flow, "
    "the higher cell, and the steeper of two edges first: for drainage.",
)
@options.connectivity_option
@click.option(
    "--method",
    type=click.Choice(get_args(TreeMethod)),
    default="frozen",
    show_default=True,
    help="Algorithm; both give the same bits, contract is the reference.",
)
@options.layer_option
@options.memory_limit_option
@options.threads_option
@options.backend_option
@options.devices_option
@options.gpu_memory_limit_option
@options.cluster_options("mst.problem")
@options.verify_option
@options.resume_option
@options.overwrite_option
@options.json_option
@options.verbosity_options
@options.version_option
def command(
    store: str,
    output: str | None,
    json_target: str | None,
    **settings: Any,
) -> None:
    """Compute the minimum spanning forest of a layer of STORE, as its layer "mst".

    Edges join neighbouring cells, with the given weight; nodata cells have no edges. The
    forest is unique: the same bits for every block size, memory limit and number of threads.

    \b
    compute-mst dem.zarr
    compute-mst dem.zarr -o edges.tif --weight absdiff --memory-limit 2GB --verify
    """
    from ..mst import LAYER, minimum_spanning_tree
    from ..progress import bar

    if output:
        from ..io.export import checked_target, export_layer  # brings GDAL

        checked_target(output, overwrite=settings["overwrite"])
    advice = "finished blocks are kept, --resume continues"
    with options.if_interrupted(advice), bar("spanning tree", quiet=options.quiet()) as progress:
        tree = minimum_spanning_tree(store, progress=progress, **settings)
    report = tree.report
    if output:
        advice = f"layer {LAYER} is complete, {output} is unchanged"
        with options.if_interrupted(advice), report.phase("export"):
            export_layer(
                store,
                output,
                layer=LAYER,
                memory_limit=settings["memory_limit"],
                threads=settings["threads"],
                overwrite=settings["overwrite"],
            )
        report.result["output"] = output
    options.write_json(report.to_json(), json_target)
    options.say(
        f"{store}: layer {LAYER}, {tree.edge_count:,} edges, {tree.components:,} component"
        f"{'s' * (tree.components != 1)}, "
        f"total weight {tree.total_weight}, {report.seconds['total']:.2f} s"
        + (", verified" if settings["verify"] else ""),
        json_target,
    )
