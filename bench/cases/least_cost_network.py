"""How much faster is least-cost-network than the tree of all pairs, ours and scikit-image's?

Frictions of fractal terrain; points are random. The tree of all pairs is Kruskal's over the costs
of cost-matrix, all pairs; it must have the same cost. scikit-image searches from two points, and
its time is multiplied.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

import numpy as np

from bench import peers
from bench.stores import add_layer
from bench.table import Table
from bench.terrain import kept
from bench.timing import Spent, phases, timed
from terrain_gpu import TileStore, cost_matrix, least_cost_network


def tree_of(table: dict[str, np.ma.MaskedArray]) -> float:
    """The cost of the spanning tree over all pairs."""
    ends = table["source"].tolist(), table["target"].tolist()
    edges = sorted(zip(table["cost"].tolist(), *ends, strict=True))
    part = {name: name for name in ends[0]}
    found = []
    for cost, a, b in edges:
        if part[a] != part[b]:
            found.append(cost)
            old, new = part[b], part[a]
            part = {name: new if own == old else own for name, own in part.items()}
    return math.fsum(found)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--points", type=int, default=100)
    peers.skimage_option(parser)


def run(given: argparse.Namespace) -> None:
    """Print the table."""
    side = given.side
    cells = np.array(kept(given.work, "f", side))
    rng = np.random.default_rng(5)
    points = list(map(tuple, rng.integers(0, side, (given.points, 2)).tolist()))
    how = {"cost": "friction", "friction": "elevation"}
    columns = f"{len(points)} places", "s", "x", "s of processors", "x", "links", "s by phase"
    with tempfile.TemporaryDirectory(dir=given.work) as made:
        folder = Path(made)
        warm = add_layer(folder / "w.zarr", cells[:300, :300])
        store, file = add_layer(folder / "s.zarr", cells), folder / "n.gpkg"
        least_cost_network(warm, [(1, 1), (9, 9)], file, backend="cpu", **how)
        cost_matrix(warm, [(1, 1), (9, 9)], **how)
        own = {"backend": "cpu", "overwrite": True, **how}
        first, tree = timed(least_cost_network, store, points, file, pairs="mst", into="mst", **own)
        table = Table(*columns)

        def row(what: str, spent: Spent, links: object = "", seconds: object = "") -> None:
            wall, processor = spent.wall / first.wall, spent.processor / first.processor
            table.row(what, spent.wall, wall, spent.processor, processor, links, seconds)

        row("mst", first, tree.links, phases(tree.report.seconds))
        spent, found = timed(
            least_cost_network, store, points, file, pairs="delaunay", into="delaunay", **own
        )
        row("delaunay", spent, found.links, phases(found.report.seconds))
        spent, matrix = timed(cost_matrix, TileStore.open(store), points, **how)
        cost = tree.report.result["cost"]
        assert math.isclose(tree_of(matrix.columns()), cost, rel_tol=1e-12)
        row("all pairs by cost-matrix", spent)
    if given.skimage:
        one = peers.skimage(given.skimage, given.work / f"f{side}.npy", points[0], 2)
        row("scikit-image, one place x places", Spent(one * len(points), one * len(points)))
