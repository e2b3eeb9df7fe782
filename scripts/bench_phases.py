"""Benchmark of shortest paths in three phases, by size of tiles, beside those of the 2012 thesis.

    python scripts/bench_phases.py FOLDER [--side 8192] [--tiles 16 32 64 128] [--costs absdiff]
                                   [--backend auto] [--threads N] [--rounds 2] [--pairs 40]

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
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from make_terrain import terrain_window

from terrain_gpu import GridSpec, build_index, create_layer, query_index, shortest_paths

THESIS = {
    16: ("70", "10", "50", "0.5"),
    32: ("27", "12", "17", "0.5"),
    64: ("15", "> 200", "10", "0.5"),
    128: ("> 100", "", "", ""),
}
"""Minutes of its table 5.7 for 8192^2: phase 1 on the CPU and on the GPU, phases 2 and 3."""


def write_store(store: Path, side: int, cost: str) -> None:
    """Write fractal terrain: heights as uint16, or frictions from 0.5 as float32."""
    grid = GridSpec(side, side, transform=(10.0, 0.0, 0.0, 0.0, -10.0, 0.0))
    dtype = np.float32 if cost == "friction" else np.uint16
    with create_layer(store, "elevation", grid, dtype, overwrite=True) as writer:
        for i, j in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(i, j)
            z = terrain_window(r0, r1, c0, c1, seed=1)
            cells = z / 250 + 0.5 if dtype == np.float32 else z
            writer.write_block(i, j, np.ascontiguousarray(cells.astype(dtype)))
        writer.commit()


def measured(
    rounds: int, work: Callable[..., Any], *what: Any, **how: Any
) -> tuple[Any, Callable[[str], float], float]:
    """The last result, the median seconds of a phase, and the least CPU seconds."""
    reports, used = [], []
    for _ in range(rounds + 1):  # the first one compiles
        start = time.process_time()
        found = work(*what, **how)
        used.append(time.process_time() - start)
        reports.append(getattr(found, "report", found))
    reports, used = reports[1:], used[1:]
    return found, lambda phase: statistics.median(r.seconds[phase] for r in reports), min(used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--side", type=int, default=8192)
    parser.add_argument("--tiles", type=int, nargs="+", default=[16, 32, 64, 128])
    parser.add_argument("--costs", nargs="+", default=["absdiff"])
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=40)
    how = parser.parse_args()
    side, rounds, rng = how.side, how.rounds, np.random.default_rng(1)
    ends = [list(map(tuple, rng.integers(0, side, (how.pairs, 2)).tolist())) for _ in range(2)]
    for cost in how.costs:
        store = how.folder / f"{cost}-{side}.zarr"
        write_store(store, side, cost)
        run: dict[str, Any] = {"cost": cost, "threads": how.threads, "overwrite": True}
        if cost == "friction":
            run["friction"] = "elevation"
        path = [(side // 2, side // 2)]
        print(f"\n{cost}, {side} x {side}, {how.threads} threads, seconds (CPU seconds)\n")
        for backend in dict.fromkeys((how.backend, "cpu")):
            _, phase, used = measured(rounds, shortest_paths, store, path, **run, backend=backend)
            print(f"relax, {backend}: {phase('total'):.2f} ({used:.1f})\n", flush=True)
        print(
            "| M | phase 1 | phase 2 | phase 3 | bytes per cell | a pair of many "
            "| thesis, minutes: phase 1, CPU | GPU | phase 2 | phase 3 |\n" + "| --- " * 10 + "|"
        )
        for tile in how.tiles:
            where = {"tile": tile, "backend": how.backend}
            built, phase, used = measured(rounds, build_index, store, **run, **where)
            cells = f"| {tile}^2 | {phase('build'):.2f} ({used:.1f}) "
            _, phase, used = measured(rounds, shortest_paths, store, path, **run, method="index")
            cells += f"| {phase('relax'):.2f} | {phase('finalise'):.2f} ({used:.1f}, both) "
            cells += f"| {built.result['bytes_per_cell']} "
            _, phase, used = measured(1, query_index, store, *ends)
            cells += f"| {phase('search') / how.pairs:.3f} ({used / how.pairs:.3f}) "
            print(f"{cells}| {' | '.join(THESIS.get(tile, ('',) * 4))} |", flush=True)


if __name__ == "__main__":
    main()
