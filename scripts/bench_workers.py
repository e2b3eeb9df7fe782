"""Time two worker processes beside two threads of one process: what a cluster costs on one host.

    python scripts/bench_workers.py [--side 8192] [--rounds 6] [--work FOLDER] [--count 2]
                                    [--operations tree friction components accumulate]

Programs run in turn over a float32 terrain, source in the middle; the first round, which compiles,
is left out. Prints medians and least values of `seconds.total` of their reports.

A virtual machine may return free memory to its host, and then getting it back takes longer than the
work. What runs right after another program is spared that, and workers take longer to start. So 4
GB are held while a program starts, and freed when its run begins.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from bench_sssp import raster, store_of

ROOT = Path(__file__).resolve().parents[1]
HOLD = "import numpy, time; held = numpy.ones(1 << 29); print(flush=True); time.sleep(999)"
"""Holds 4 GB, and prints a line as soon as it does."""
FREEING = 0.5
"""Seconds that freeing takes."""
OPERATIONS = {
    "friction": "compute-sssp STORE --cost friction --friction elevation --source-rowcol MIDDLE",
    "tree": "compute-mst STORE",
    "components": "label-components STORE --where 'elevation > 25'",
    "accumulate": "accumulate STORE",
}


def run(words: list[str], report: Path, start: float) -> dict[str, float]:
    """Run a program, whose run begins after `start` seconds.

    Returns the seconds of its phases, and as "start" all others of the program.
    """
    program = "from terrain_gpu.cli.main import main; main()"
    command = [sys.executable, "-c", program, *words, "--overwrite", "-q", "--json", str(report)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        begin = time.perf_counter()
        with subprocess.Popen(command, env=env) as started:
            time.sleep(max(start - FREEING, 0))
            holder.kill()
            if started.wait():
                raise SystemExit(f"{' '.join(words)}: exit code {started.returncode}")
    wall = time.perf_counter() - begin
    seconds: dict[str, float] = json.loads(report.read_text())["seconds"]
    return {**seconds, "start": wall - seconds["total"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--side", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--count", type=int, default=2, help="Of workers, and of threads.")
    parser.add_argument("--work", type=Path, default=Path("bench-work"))
    parser.add_argument("--operations", nargs="+", default=[*OPERATIONS], choices=[*OPERATIONS])
    given = parser.parse_args()
    work, middle = given.work.absolute(), given.side // 2
    work.mkdir(parents=True, exist_ok=True)
    store = store_of(work, "f", np.asarray(raster(work, "f", given.side)))
    print("| | workers | threads | ratio | least: workers | threads | ratio |")
    print("| --- " * 7 + "|")
    for name in given.operations:
        command = OPERATIONS[name].replace("MIDDLE", f"{middle},{middle}")
        words = [str(store) if word == "STORE" else word for word in shlex.split(command)]
        found: dict[str, list[dict[str, float]]] = {"workers": [], "threads": []}
        for _ in range(given.rounds + 1):
            for how, each in found.items():
                start = each[-1]["start"] if each else 0.0
                options = [f"--{how}", str(given.count)]
                each.append(run([*words, *options], work / "report.json", start))
        cells = []
        for of in (statistics.median, min):
            a, b = (of(one["total"] for one in each[1:]) for each in found.values())
            cells += [f"{a:.2f}", f"{b:.2f}", f"{a / b:.2f}"]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
        for how, each in found.items():
            phases = {p: statistics.median(one[p] for one in each[1:]) for p in each[1]}
            print(f"    {how}: " + " ".join(f"{p} {s:.2f}" for p, s in phases.items()), flush=True)


if __name__ == "__main__":
    main()
