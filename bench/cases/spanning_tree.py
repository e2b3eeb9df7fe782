"""How fast are spanning trees from store to store, against Kruskal in C++ and scipy in memory?

WORK holds `zi{side}.npy` (uint16) and `z{side}.npy` (float32, the same heights); what is missing is
made of fractal terrain. PROGRAM is run as `PROGRAM dz_i|max_i|dz_f|max_f SIDE 1`, in turn with
ours, with the folder in $PEERDATA; it must print `med=SECONDS`. Ours is the total of the report, of
runs after the one that compiles; theirs is computing only, on arrays in memory.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench import peers
from bench.stores import add_layer
from bench.table import Table
from bench.terrain import kept
from bench.timing import in_turn, timed
from terrain_gpu import minimum_spanning_tree

KINDS = {
    "dz_i": ("zi", "absdiff"),
    "max_i": ("zi", "max"),
    "dz_f": ("z", "absdiff"),
    "max_f": ("z", "max"),
}


def by_scipy(cells: np.ndarray, weight: str) -> float:
    """scipy's minimum_spanning_tree alone; its graph, with zero weights raised, is made before."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import minimum_spanning_tree as scipy_tree

    ids = np.arange(cells.size, dtype=np.int32).reshape(cells.shape)
    us, vs, ws = [], [], []
    for dr, dc in ((0, 1), (1, -1), (1, 0), (1, 1)):
        here = (slice(0, -dr or None), slice(max(0, -dc), -dc if dc > 0 else None))
        there = (slice(dr, None), slice(max(0, dc), dc if dc < 0 else None))
        a, b = cells[here].astype(np.float64).ravel(), cells[there].astype(np.float64).ravel()
        ws.append((np.maximum(a, b) if weight == "max" else np.abs(a - b)) + 1e-9)
        us.append(ids[here].ravel())
        vs.append(ids[there].ravel())
    parts = [np.concatenate(x) for x in (ws, us, vs)]
    graph = coo_matrix((parts[0], (parts[1], parts[2])), shape=(cells.size, cells.size)).tocsr()
    del us, vs, ws, parts
    return timed(scipy_tree, graph, overwrite=True)[0].wall


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--sides", type=int, nargs="+", default=[2048, 4096, 8192])
    parser.add_argument("--roughness", type=float, default=0.8, help="0.5 with a WORK of its own")
    parser.add_argument("--kruskal", metavar="PROGRAM")
    parser.add_argument("--scipy", action="store_true", help="of absdiff")
    parser.add_argument("--rounds", type=int, default=3)


def run(given: argparse.Namespace) -> None:
    """Print the table."""
    table = Table("raster, weight | ours s | M cells/s | C++ Kruskal s | ratio | scipy s | ratio")
    for kind, (name, weight) in KINDS.items():
        for side in given.sides:
            cells = kept(given.work, name, side, given.roughness)
            store = given.work / f"{name}{side}.zarr"
            if not store.exists():
                add_layer(store, cells)

            def ours(store: Path = store, weight: str = weight) -> float:
                tree = minimum_spanning_tree(store, weight=weight, overwrite=True)
                return tree.report.seconds["total"]

            works: dict[str, Callable[[], Any]] = {"ours": ours, "theirs": lambda: math.nan}
            if given.kruskal:
                works["theirs"] = partial(peers.compiled, given.kruskal, given.work, kind, side, 1)
            found = in_turn(works, given.rounds)
            mine, theirs = (statistics.median(each) for each in found.values())
            pairs = zip(found["ours"], found["theirs"], strict=True)
            ratio = statistics.median(b / a for a, b in pairs)
            wanted = given.scipy and weight == "absdiff"
            other = by_scipy(np.asarray(cells), weight) if wanted else math.nan
            speed = cells.size / mine / 1e6
            what = f"{side}^2 {cells.dtype}, {weight}"
            table.row(what, mine, speed, theirs, ratio, other, other / mine)
