"""compute-mst: the minimum spanning forest of a layer."""

from __future__ import annotations

from typing import Any, get_args

import click

from ..arguments import TreeMethod
from ..plurals import counted
from ..spanning_tree.weights import WEIGHTS
from . import options

NAME = "compute-mst"
FUNCTION = "minimum_spanning_tree"
PROVEN = True
ON_GPUS = PROGRAM = True
MODULES = ("spanning_tree.operation",)
HELP = """Compute the minimum spanning forest of a layer of STORE, or of a raster, as layer "mst".

Edges join neighbouring cells, with the given weight; nodata cells have no edges. The forest is
unique: the same bits for every block size, memory limit and number of threads. A raster of it (-o)
holds D8 codes: E 1, SE 2, ... NE 128.

\b
compute-mst dem.zarr
compute-mst dem.tif -o edges.tif --weight absdiff --memory-limit 2GB --verify
"""
OPTIONS = [
    click.option(
        "--weight",
        type=click.Choice(tuple(WEIGHTS)),
        default="max",
        show_default=True,
        help="Weight of an edge: the higher of its two cells, or their absolute difference. By "
        "flow, the higher cell, and the steeper of two edges first: for drainage.",
    ),
    options.connectivity_option,
    click.option(
        "--method",
        type=click.Choice(get_args(TreeMethod)),
        default="frozen",
        show_default=True,
        help="Algorithm; both give the same bits. contract is the reference; it runs on a GPU only "
        "with --backend cuda.",
    ),
    options.layer_option,
]


def refuse_output(output: str | None) -> None:
    from ..io.export import refuse_tree

    refuse_tree(output)


def run(store: Any, **settings: Any) -> Any:
    from ..spanning_tree import minimum_spanning_tree

    return minimum_spanning_tree(store, **settings)


def tell(found: Any) -> str:
    return (
        f"{counted(found.edge_count, 'edge')}, {counted(found.components, 'component')}, "
        f"total weight {found.total_weight}"
    )
