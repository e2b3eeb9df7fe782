"""How fast are shortest paths from store to store, against C++, r.cost and scikit-image in memory?

WORK holds `f{side}.npy` (float32 friction) and `zi{side}.npy` (uint16 heights); what is missing is
made of fractal terrain. The source is the middle cell, cells are 10 m. PROGRAM is run as
`PROGRAM heap_fr|dial_dz_i SIDE 1 1`, in turn with ours, with the folder in $PEERDATA; it must print
`med=SECONDS`. Ours is the total of the report, of runs after the one that compiles; theirs is
computing only, on arrays in memory (r.cost: from its database to its database).

`spiral` and `cascade` are frictions that make relaxation visit blocks as often as we know how, see
docs/design/bounds.md. There, visits grow with --block-size, and under a --memory-limit for few
blocks, most visits read and write the distances of a block.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from bench import peers
from bench.corridors import cascade, sources_of, spiral
from bench.stores import add_layer
from bench.table import Table
from bench.terrain import kept
from bench.timing import in_turn
from terrain_gpu import Report, shortest_paths

KINDS = {
    "friction": ("f", "heap_fr"),
    "absdiff": ("zi", "dial_dz_i"),
    "spiral": ("", ""),
    "cascade": ("", ""),
}
"""The file of cells, and what the C++ program is asked for."""


def raster(kind: str, side: int, given: argparse.Namespace) -> np.ndarray:
    """Frictions or heights."""
    if kind == "spiral":
        return spiral(side)
    if kind == "cascade":
        return cascade(side, given.block_size)
    return kept(given.work, KINDS[kind][0], side, given.roughness)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--sides", type=int, nargs="+", default=[2048, 4096, 8192])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--dijkstra", metavar="PROGRAM")
    parser.add_argument("--grass", action="store_true")
    peers.skimage_option(parser)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--roughness", type=float, default=0.8, help="0.5 with a WORK of its own")
    parser.add_argument("--block-size", type=int, default=1024)
    parser.add_argument("--memory-limit")
    parser.add_argument("--threads", type=int)


def run(given: argparse.Namespace) -> None:
    """Print the table."""
    table = Table(
        "raster, cost | ours s | M cells/s | tile visits | block visits | "
        "bytes per cell read | written | C++ s | ratio | r.cost s | ratio | "
        "scikit-image s | ratio"
    )
    for kind in given.kinds:
        for side in given.sides:
            cells, block = raster(kind, side, given), given.block_size
            store = given.work / f"paths-{kind}{side}-{block}.zarr"
            if not store.exists():
                add_layer(store, cells, block_size=block)
            how = {"memory_limit": given.memory_limit, "threads": given.threads}
            how |= {"cost": kind} if kind == "absdiff" else {"cost": "friction"}
            how |= {"friction": None if kind == "absdiff" else "elevation", "overwrite": True}
            sources, program = sources_of(kind, side, block), KINDS[kind][1]

            def ours(store: Path = store, at: list = sources, how: dict = how) -> Report:
                return shortest_paths(store, at, **how).report

            works = {"ours": ours}
            if given.dijkstra and program:
                words = given.dijkstra, given.work, program, side, 1, 1
                works["theirs"] = partial(peers.compiled, *words)
            found = in_turn(works, given.rounds)
            first, seconds = found["ours"][0], [each.seconds["total"] for each in found["ours"]]
            others = [statistics.median(found.get("theirs", [math.nan])), math.nan, math.nan]
            if kind == "friction" and given.grass:
                with tempfile.TemporaryDirectory(dir=given.work) as folder:
                    others[1] = peers.r_cost(Path(folder), cells, sources[0]).wall
            if kind == "friction" and given.skimage:
                file = given.work / f"f{side}.npy"
                others[2] = peers.skimage(given.skimage, file, sources[0])
            mine = statistics.median(seconds)
            table.row(
                f"{side}^2 {cells.dtype}, {kind}", mine, cells.size / mine / 1e6,
                first.result["tile_visits_per_tile"], first.result["block_visits_per_block"],
                (first.bytes_read or 0) / cells.size, (first.bytes_written or 0) / cells.size,
                *(figure for other in others for figure in (other, other / mine)),
            )  # fmt: skip
