"""terrain-gpu plan: what a memory limit means for a raster, without touching a cell."""

from __future__ import annotations

import os
import re
from typing import Any

import click

from ..errors import InputError
from ..grid import MAX_SIDE
from . import options


@click.command("plan")
@click.argument("what", metavar="STORE|ROWSxCOLS")
@click.option(
    "--dtype", metavar="TYPE", help="Type of the cells.  [default: the store's, else float32]"
)
@click.option(
    "--for",
    "purpose",
    type=click.Choice(["convert", "mst"]),
    default="convert",
    show_default=True,
    help="What to plan: the conversion, or the spanning tree of its result.",
)
@options.layer_option
@click.option(
    "--block-size",
    type=click.IntRange(64, 8192),
    metavar="N",
    help="Side of a block in cells.  [default: planned]",
)
@options.memory_limit_option
@options.threads_option
@options.json_option
@options.verbosity_options
def command(
    what: str,
    dtype: str | None,
    purpose: str,
    layer: str,
    block_size: int | None,
    memory_limit: int | None,
    threads: int | None,
    json_target: str | None,
) -> None:
    """Predict memory, passes and bytes of a run on a raster that need not exist yet."""
    from ..cells import layer_dtype
    from ..convert import plan_for_shape
    from ..report import Report

    shape = re.fullmatch(r"([0-9]{1,99})x([0-9]{1,99})", what)
    if not shape and not os.path.exists(what):
        raise InputError(f"{what[:60]}: neither a store nor ROWSxCOLS such as 10000x20000")
    if shape:
        rows, cols = int(shape[1]), int(shape[2])
        if not (0 < rows <= MAX_SIDE and 0 < cols <= MAX_SIDE):
            raise InputError(f"{what}: sides run from 1 to {MAX_SIDE} cells")
    else:
        from ..store import TileStore

        source = TileStore.open(what).layer(layer)
        rows, cols = source.grid.shape
        dtype = dtype or source.dtype.name
        block_size = block_size or source.block_size
    cells = layer_dtype(dtype or "float32")
    limits: dict[str, Any] = {"memory_limit": memory_limit, "threads": threads}
    report = Report("plan", cells=rows * cols, settings={"for": purpose})
    with report.measured():
        if purpose == "convert" or not block_size:
            plan = plan_for_shape(rows, cols, cells, block_size=block_size, **limits)
            block_size = plan.block_size
        if purpose == "mst":
            from ..mst import plan_spanning_tree

            plan = plan_spanning_tree(rows, cols, cells, block_size, **limits)
    report.result = plan.as_dict()
    options.write_json(report.to_json(), json_target)
    if json_target != "-":
        options.say(plan.describe())
