"""What do worker processes cost, compared with as many threads of one process, or with its GPUs?

Programs run in turn, each in every way; the first round, which compiles, is left out. Seconds are
the totals of reports, medians and least values, and those of the first way divided by them. All
ways must write the same bytes. With --gpus, trees and distances on the GPUs of workers, beside
those of one process, and beside --cpus workers without one.

A virtual machine may return free memory to its host, and then getting it back takes longer than the
work. What runs right after another program is spared that, and workers take longer to start. So
memory is held while a program starts, and freed when its run begins.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path
from threading import Timer
from typing import NamedTuple

import numpy as np

from bench.programs import Run
from bench.programs import run as run_program
from bench.stores import add_layer, digest
from bench.table import Table
from bench.terrain import terrain_window
from bench.timing import phases

HOLD = """
import sys, time, numpy
held = numpy.ones(int(float(sys.argv[1]) * 2**27))
print(flush=True)
time.sleep(999)
"""
"""Holds so many GB, and prints a line as soon as it does."""
FREEING = 0.5
"""Seconds that freeing takes."""


class Operation(NamedTuple):
    """A command, the layers that it writes, and a command that runs once before."""

    words: str
    layers: tuple[str, ...] = ()
    before: str = ""


TREE = "compute-mst {store}"
FRICTION = (
    "compute-sssp {store} --cost friction --friction elevation --source-rowcol {middle} --overwrite"
)
OPERATIONS = {
    "friction": Operation(FRICTION, ("distance",)),
    "tree": Operation(f"{TREE} --overwrite", ("mst",)),
    "components": Operation(
        "label-components {store} --where 'elevation > 25' --overwrite", ("components",)
    ),
    "accumulate": Operation("accumulate {store} --overwrite", ("accumulation",), TREE),
    "proof of friction": Operation("verify {store} --backend cpu", before=FRICTION),
    "proof of tree": Operation("verify {store} --backend cpu", before=TREE),
    "proof of slope": Operation("verify {store} --backend cpu", before="slope {store}"),
    "proof of fill": Operation("verify {store} --backend cpu", before="fill {store}"),
}
ON_GPUS = {
    "tree": OPERATIONS["tree"],
    "distances": Operation(
        "compute-sssp {store} --source-rowcol {middle} --overwrite", ("distance",)
    ),
    "backlinks": Operation(
        "compute-sssp {store} --source-rowcol {middle} --backlink {store}.tif --overwrite",
        ("distance", "backlink"),
    ),
}


class Way:
    """Runs of an operation in one way."""

    def __init__(self, how: str, hold: float) -> None:
        self.how, self.hold = how, hold
        self.runs: list[Run] = []

    def __call__(self, words: list[str], store: Path, layers: tuple[str, ...]) -> tuple[str, ...]:
        """Run the operation, and return the digests of its layers."""
        words = [*words, *self.how.split()]
        start = self.runs[-1].spent.wall - self.runs[-1].total if self.runs else 0.0
        held = [sys.executable, "-c", HOLD, str(self.hold)]
        with subprocess.Popen(held, stdout=subprocess.PIPE) as holder:
            holder.stdout.readline()
            timer = Timer(max(start - FREEING, 0), holder.kill)
            timer.start()
            try:
                self.runs.append(run_program(*words))
            finally:
                timer.cancel()
                holder.kill()
        return tuple(digest(store, layer) for layer in layers)

    def row(self, first: Way) -> tuple:
        """The cells of a table."""
        runs = self.runs[1:]
        totals, firsts = ([one.total for one in way.runs[1:]] for way in (self, first))
        median, least = statistics.median(totals), min(totals)
        cluster = runs[-1].report["settings"].get("cluster", {})
        peak = max(runs[-1].report["peak_rss_bytes"], cluster.get("worker_peak_rss_bytes", 0))
        seconds = [one.report["seconds"] for one in runs]
        each = {key: statistics.median(one[key] for one in seconds) for key in seconds[0]}
        start = statistics.median(one.spent.wall - one.total for one in runs)
        used = statistics.median(one.spent.processor for one in runs)
        in_tasks = sum(one["processor_seconds"] for one in cluster.get("each", {}).values())
        visits = runs[-1].report["result"].get("region_visits")
        figures = median, statistics.median(firsts) / median, least, min(firsts) / least
        more = cluster.get("tasks"), cluster.get("bytes_received", 0) / 1e6, peak // 10**6, visits
        return self.how, *figures, start, used, in_tasks, *more, phases(each)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--side", type=int, default=8192)
    parser.add_argument("--block-size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--count", type=int, default=2, help="of workers, and of threads")
    parser.add_argument("--gpus", type=int, default=0, help="of workers, and of one process")
    parser.add_argument("--cpus", type=int, default=0, help="with --gpus: workers without GPUs")
    parser.add_argument("--gpu-memory-limit", help="of distances: several regions for each GPU")
    parser.add_argument("--operations", nargs="+", choices=[*OPERATIONS, *ON_GPUS])
    parser.add_argument("--hold", type=float, default=4, help="GB that are held; without GPUs")


def ways(given: argparse.Namespace, name: str) -> list[str]:
    """Options of the command in each way."""
    if not given.gpus:
        return [f"--threads {given.count}", f"--workers {given.count}"]
    limited = given.gpu_memory_limit and name != "tree"
    more = f" --gpu-memory-limit {given.gpu_memory_limit}" * bool(limited)
    devices = "0", ",".join(map(str, range(given.gpus)))
    found = [f"--backend cuda --device {device}{more}" for device in dict.fromkeys(devices)]
    for count in sorted({1, given.gpus}):
        found.append(f"--backend cuda --workers {count} --memory-limit 8GB{more}")
    return found + [f"--workers {given.cpus} --memory-limit 4GB"] * bool(given.cpus)


def run(given: argparse.Namespace) -> None:
    """Print the table."""
    side, store = given.side, given.work / "workers.zarr"
    known, dtype = (ON_GPUS, "uint16") if given.gpus else (OPERATIONS, "float32")
    table = Table(
        "operation | way | s | x | least | x | start, s | s of processors | "
        "of these in tasks of workers | tasks | MB returned | peak MB | "
        "visits of regions | s by phase"
    )

    def heights(*window: int) -> np.ndarray:
        z = terrain_window(*window, dtype=dtype)
        return z if given.gpus else 1 + 0.049 * z  # frictions of 1 to 50

    for name in given.operations or known:
        operation = known[name]
        shutil.rmtree(store, ignore_errors=True)
        how = {"shape": (side, side), "dtype": dtype, "block_size": given.block_size}
        add_layer(store, heights, **how)
        place = {"store": store, "middle": f"{side // 2},{side // 2}"}
        words = [word.format(**place) for word in shlex.split(operation.words)]
        if operation.before:
            run_program(*(word.format(**place) for word in shlex.split(operation.before)))
        hold = 0 if given.gpus else given.hold
        all_ways = [Way(how, hold) for how in ways(given, name)]
        works = [partial(way, words, store, operation.layers) for way in all_ways]
        digests = {work() for _ in range(given.rounds + 1) for work in works}
        assert len(digests) == 1, f"{name}: not the same bytes"
        for way in all_ways:
            table.row(name, *way.row(all_ways[0]))
    shutil.rmtree(store)
