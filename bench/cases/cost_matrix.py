"""How much faster is a cost matrix than single runs of compute-sssp, scikit-image and r.cost?

Fractal terrain in memory; points are random, and each is a source and a target of all others.
Single runs, and those of the peers, are a sample of the sources; their times are multiplied. The
peers have 8 neighbours and friction, and run for one source.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from bench import peers
from bench.table import Table
from bench.terrain import kept
from bench.timing import Spent, phases, summed_up, timed
from terrain_gpu import cost_matrix, shortest_paths

FILES = {"friction": "f", "absdiff": "zi"}


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--singles", type=int, default=10)
    parser.add_argument("--cost", choices=FILES, default="friction")
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--connectivity", type=int, choices=[4, 8, 16], default=8)
    parser.add_argument("--gpu-memory-limit")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--grass", action="store_true")
    peers.skimage_option(parser)


def run(given: argparse.Namespace) -> None:
    """Print how matrices are computed, then the table."""
    side, name = given.side, FILES[given.cost]
    cells = np.array(kept(given.work, name, side))
    rng = np.random.default_rng(5)
    points = list(map(tuple, rng.integers(0, side, (given.points, 2)).tolist()))
    how = {"cost": given.cost, "cell_size": (10.0, 10.0), "backend": given.backend}
    how["connectivity"] = given.connectivity
    small, warm = cells[:300, :300], dict(how)
    if given.cost == "friction":
        how["friction"], warm["friction"] = cells, small
    cost_matrix(small, [(1, 1), (9, 9)], **warm)
    shortest_paths(small, [(1, 1)], backlink=True, **warm)

    spents, limit = [], {"gpu_memory_limit": given.gpu_memory_limit}
    for _ in range(given.rounds):
        spent, matrix = timed(cost_matrix, cells, points, **how, **limit)
        spents.append(spent)
        report = matrix.report
        plan = {k: v for k, v in report.settings["plan"].items() if v}
        visits = report.result["tile_visits"]
        print(f"matrix: {spent}; {phases(report.seconds)}; {visits:,} visits of tiles; {plan}\n")
    best = summed_up(spents, min)
    table = Table(f"{len(points)} sources | s | x | s of processors | x")

    def row(what: str, spent: Spent, each: int) -> None:
        """Costs from this number of sources."""
        wall, processor = (seconds * len(points) / each for seconds in spent)
        table.row(what, wall, wall / best.wall, processor, processor / best.processor)

    row("matrix", best, len(points))
    costs = matrix.columns()
    sample = rng.choice(len(points), min(given.singles, len(points)), replace=False).tolist()
    for backlink in (False, True):
        spents = []
        for k in sample:
            spent, found = timed(shortest_paths, cells, [points[k]], backlink=backlink, **how)
            spents.append(spent)
            mine, distance = costs["cost"][costs["source"] == k + 1], found.distance()
            assert mine.tolist() == [distance[p].item() for n, p in enumerate(points) if n != k]
        what = "with backlinks" if backlink else "distances alone"
        row(f"{len(sample)} single runs, {what}", summed_up(spents, sum), len(sample))
    if given.connectivity == 8 and given.cost == "friction":
        if given.skimage:
            seconds = peers.skimage(given.skimage, given.work / f"{name}{side}.npy", points[0])
            row("scikit-image, one source", Spent(seconds, seconds), 1)
        if given.grass:
            with tempfile.TemporaryDirectory(dir=given.work) as folder:
                row("r.cost, one source", peers.r_cost(Path(folder), cells, points[0]), 1)
