"""Benchmark of cost-matrix against single runs of compute-sssp, scikit-image and GRASS r.cost.

    python scripts/bench_matrix.py [--side 4096] [--points 100] [--singles 10] [--skimage PYTHON]
                                   [--grass] [--cost friction] [--backend cuda] [--rounds 1]
                                   [--connectivity 16] [--work FOLDER]

The terrain is that of bench_sssp.py, in memory; points are random, and each is a source and a
target of all others. Single runs, and those of the peers, are a sample of the sources; their times
are multiplied. Both wall and processor seconds are told, because the former depend on what else
runs. PYTHON is an interpreter with scikit-image; without the options, the peers run if this one has
it, and if GRASS is installed, for one source. They have 8 neighbours, and do not run for 16.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from bench_convert import versions
from bench_sssp import CELL, KINDS, grass, raster

from terrain_gpu import cost_matrix
from terrain_gpu.paths.cost_distance.pipeline import shortest_paths

PEER = """
import sys, time
import numpy as np
from skimage.graph import MCP_Geometric
cells = np.load(sys.argv[1]).astype(np.float64)
for k in range(int(sys.argv[2])):
    at = [tuple(map(int, sys.argv[3].split(",")))]
    start = time.perf_counter()
    MCP_Geometric(cells, sampling=(10.0, 10.0)).find_costs(at)
    print(time.perf_counter() - start)
"""


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Wall and processor seconds, and the result."""
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    found = work()
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, used, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--singles", type=int, default=10)
    parser.add_argument("--cost", choices=list(KINDS), default="friction")
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--connectivity", type=int, choices=[4, 8, 16], default=8)
    parser.add_argument("--gpu-memory-limit")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--skimage")
    parser.add_argument("--grass", action="store_true")
    parser.add_argument("--work", type=Path, default=Path("bench-work"))
    arguments = parser.parse_args()
    work, side = arguments.work.absolute(), arguments.side
    work.mkdir(parents=True, exist_ok=True)
    name = KINDS[arguments.cost][0]
    data = np.array(raster(work, name, side))
    rng = np.random.default_rng(5)
    points = list(map(tuple, rng.integers(0, side, (arguments.points, 2)).tolist()))
    how = {"cost": arguments.cost, "cell_size": CELL, "backend": arguments.backend}
    how["connectivity"] = arguments.connectivity
    if arguments.cost == "friction":
        how["friction"] = data
    small = data[:300, :300]
    warm = {**how, "friction": small} if "friction" in how else how
    cost_matrix(small, [(1, 1), (9, 9)], **warm)
    shortest_paths(small, [(1, 1)], backlink=True, **warm)

    wall = used = np.inf
    limit = {"gpu_memory_limit": arguments.gpu_memory_limit}
    for _ in range(arguments.rounds):
        one, cpu, matrix = timed(lambda: cost_matrix(data, points, **how, **limit))
        wall, used = min(wall, one), min(used, cpu)
        seconds = {name: round(value, 2) for name, value in matrix.report.seconds.items()}
        plan = {k: v for k, v in matrix.report.settings["plan"].items() if v}
        visits = matrix.report.result["tile_visits"]
        print(f"cost-matrix, {len(points)} sources: wall {one:.2f} s, processors {cpu:.1f} s; "
              f"{seconds}; {visits:,} visits of tiles; {plan}", flush=True)  # fmt: skip
    table = matrix.columns()
    sample = rng.choice(len(points), arguments.singles, replace=False).tolist()
    for backlink in (False, True):
        walls, uses = 0.0, 0.0
        for k in sample:
            one, cpu, found = timed(
                lambda k=k, b=backlink: shortest_paths(data, [points[k]], backlink=b, **how)
            )
            walls, uses = walls + one, uses + cpu
            mine = table["cost"][table["source"] == k + 1]
            others = [p for n, p in enumerate(points) if n != k]
            distance = found.distance()
            assert mine.tolist() == [distance[p].item() for p in others]
        factor = len(points) / len(sample)
        what = "with backlinks" if backlink else "distances alone"
        print(f"{len(sample)} single runs, {what}, x {factor:g}: wall {walls * factor:.2f} s "
              f"({walls * factor / wall:.1f} x), processors {uses * factor:.1f} s "
              f"({uses * factor / used:.1f} x); the last: {found.report.seconds}",
              flush=True)  # fmt: skip
    python = arguments.skimage or (sys.executable if find_spec("skimage") else None)
    peers = arguments.connectivity == 8
    if python and peers:
        at = ",".join(map(str, points[0]))
        command = [python, "-c", PEER, str(work / f"{name}{side}.npy"), "1", at]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        peer = min(map(float, out.split()))
        print(f"scikit-image: {peer:.1f} s a source, {peer * len(points) / wall:.0f} x")
    if peers and (arguments.grass or shutil.which("grass")):
        peer = grass(data, side)
        print(f"r.cost: {peer:.1f} s a source, {peer * len(points) / wall:.0f} x")
    print(versions())


if __name__ == "__main__":
    main()
