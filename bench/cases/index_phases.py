"""What do the three phases of shortest paths take, by size of tiles, against the thesis of 2012?

Phase 1 is `build-index`: the distances between the rim cells of each tile. Phase 2 is a search over
the rims, phase 3 fills the tiles: both `compute-sssp --method index`, from the middle cell. `relax`
has no phase 1, and is timed beside. For each size of tiles also bytes of the index for each cell,
and seconds for each of many pairs of places. Medians after a round that compiles; wall seconds, and
CPU seconds of the process.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.stores import add_layer
from bench.table import Table
from bench.terrain import fractal
from bench.timing import timed
from terrain_gpu import build_index, query_index, shortest_paths

THESIS = {
    16: ("70", "10", "50", "0.5"),
    32: ("27", "12", "17", "0.5"),
    64: ("15", "> 200", "10", "0.5"),
    128: ("> 100", "", "", ""),
}
"""Minutes of its table 5.7 for 8192^2: phase 1 on the CPU and on the GPU, phases 2 and 3."""


def measured(
    rounds: int, work: Callable[..., Any], *what: Any, **how: Any
) -> tuple[Any, Callable[[str], float], float]:
    """The last result, the median seconds of a phase, and the least CPU seconds."""
    reports, used = [], []
    for _ in range(rounds + 1):  # the first one compiles
        spent, found = timed(work, *what, **how)
        used.append(spent.processor)
        reports.append(getattr(found, "report", found))
    reports, used = reports[1:], used[1:]
    return found, lambda phase: statistics.median(r.seconds[phase] for r in reports), min(used)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--side", type=int, default=8192)
    parser.add_argument("--tiles", type=int, nargs="+", default=[16, 32, 64, 128])
    parser.add_argument("--costs", nargs="+", default=["absdiff"])
    parser.add_argument("--backend", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=40)


def run(given: argparse.Namespace) -> None:
    """Print a table for each cost."""
    side, rounds, rng = given.side, given.rounds, np.random.default_rng(1)
    ends = [list(map(tuple, rng.integers(0, side, (given.pairs, 2)).tolist())) for _ in range(2)]
    z = fractal(side)
    for cost in given.costs:
        cells = (z / 250 + 0.5) if cost == "friction" else z.astype(np.uint16)
        store = add_layer(given.work / f"{cost}-{side}.zarr", cells, overwrite=True)
        how: dict[str, Any] = {"cost": cost, "threads": given.threads, "overwrite": True}
        if cost == "friction":
            how["friction"] = "elevation"
        path = [(side // 2, side // 2)]
        print(f"\n{cost}, {side} x {side}, {given.threads} threads, seconds (CPU seconds)\n")
        for backend in dict.fromkeys((given.backend, "cpu")):
            _, phase, used = measured(rounds, shortest_paths, store, path, **how, backend=backend)
            print(f"relax, {backend}: {phase('total'):.2f} ({used:.1f})\n", flush=True)
        table = Table(
            "M | phase 1 | phase 2 | phase 3 | bytes per cell | a pair of many | "
            "thesis, minutes: phase 1, CPU | GPU | phase 2 | phase 3"
        )
        for tile in given.tiles:
            where = {"tile": tile, "backend": given.backend}
            built, phase, used = measured(rounds, build_index, store, **how, **where)
            row = [f"{tile}^2", f"{phase('build'):.2f} ({used:.1f})"]
            _, phase, used = measured(rounds, shortest_paths, store, path, **how, method="index")
            row += [phase("relax"), f"{phase('finalise'):.2f} ({used:.1f}, both)"]
            row += [built.result["bytes_per_cell"]]
            _, phase, used = measured(1, query_index, store, *ends)
            row += [f"{phase('search') / given.pairs:.3f} ({used / given.pairs:.3f})"]
            table.row(*row, *THESIS.get(tile, ("",) * 4))
