"""How fast is a raw DEM turned into directions and sums, beyond the memory limit, and proven?

    taskset -c 0-15 python -m bench flow --sides 60000 --memory-limit 8GB
    taskset -c 0,1 python -m bench flow --sides 4096 8192 16384 32768 60000 --no-proof

Fractal float32 terrain with lakes. Each command runs as users run it, in a process of its own, with
a cold disk cache where that may be dropped; seconds are those of reports. "floor" is the disk
alone: heights read in parallel, and as many bytes as the results have written with fsync. A small
raster is run first, so that kernels are compiled. With several sides, the table shows whether time
grows with the number of cells.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np

from bench.disk import cold, floor
from bench.programs import Run
from bench.programs import run as run_program
from bench.stores import add_layer, shards
from bench.table import Table
from bench.terrain import terrain_window
from bench.timing import phases

SMALL = 600
COMMANDS = "compute-mst --weight flow", "flow-direction", "flow-accumulation"
RESULTS = 1 + 4
"""Bytes of a cell's direction and sum."""


def command(words: str, store: Path, how: list[str]) -> Run:
    """Run a command over a store with a cold cache, and print its phases."""
    cold(store)
    name, *own = words.split()
    found = run_program(name, store, *own, *how, "--overwrite")
    settings = found.report["settings"]
    pool = " ".join(
        f"{key} {settings['plan'].get(key)}" for key in ("readers", "workers", "writers")
    )
    peak = f"peak {found.report['peak_rss_bytes'] / 1e6:.0f} MB"
    on = settings.get("backend", "cpu")
    print(f"{words}: {phases(found.report['seconds'])}; on {on}, {pool}; {peak}", flush=True)
    return found


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--sides", type=int, nargs="+", default=[4096, 8192, 16384])
    parser.add_argument("--block-size", type=int, default=1024)
    parser.add_argument("--memory-limit", default="8GB")
    parser.add_argument("--backend", choices=["cpu", "cuda", "auto"], default="auto")
    parser.add_argument("--more", default="", help="further options of the commands")
    parser.add_argument("--fill", action="store_true", help="filled heights, too")
    parser.add_argument("--no-proof", action="store_true")


def run(given: argparse.Namespace) -> None:
    """Print the phases of each run, then the table."""
    how = ["--memory-limit", given.memory_limit, "--backend", given.backend, *given.more.split()]
    how += [] if given.no_proof else ["--verify"]
    commands, rows = [*COMMANDS, *["fill"] * given.fill], []
    for side in (SMALL, *given.sides):
        store, block = given.work / f"flow{side}.zarr", min(given.block_size, side // 4 & -64)

        def heights(*window: int) -> np.ndarray:
            return terrain_window(*window, lakes=True)

        shutil.rmtree(store, ignore_errors=True)
        add_layer(store, heights, shape=(side, side), dtype="float32", block_size=block)
        size = RESULTS * side**2
        least = sum(floor(store, shards(store), [1 << 20] * max(1, size >> 20)))
        found = [command(words, store, how) for words in commands]
        shutil.rmtree(store)
        proofs = [each.report["seconds"].get("verify", 0.0) for each in found]
        works = [each.total - proof for each, proof in zip(found, proofs, strict=True)]
        work, used = sum(works[: len(COMMANDS)]), sum(each.spent.processor for each in found)
        filled = works[-1] if given.fill else None
        cells = side**2
        figures = work, cells / work / 1e6, least, work / least, filled, sum(proofs), used
        rows.append((f"{side}^2", *figures, used / cells * 1e9))
    print()
    table = Table(
        "raster | DEM to accumulation, s | M cells/s | floor, s | x floor | fill, s | "
        "proofs, s | processor s | ns per cell"
    )
    for row in rows[1:]:
        table.row(*row)
