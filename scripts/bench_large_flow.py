"""Time hydrology of a raster beyond the memory limits: raw DEM to directions and sums, proven.

    taskset -c 0-15 python scripts/bench_large_flow.py 60000 --work /tmp --memory-limit 8GB
    taskset -c 0,1 python scripts/bench_large_flow.py 4096 8192 16384 32768 60000 --no-proof

With several sides, the last table shows whether time grows with the number of cells.

Makes fractal float32 terrain with lakes, and runs each command as users do, in a process of its
own, with a cold disk cache where that may be dropped. Seconds of the proofs are given apart. A
small raster is run first, so that kernels are compiled.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

SMALL = 600
COMMANDS = "compute-mst --weight flow", "flow-direction", "flow-accumulation"


def make(side: int, store: Path, block: int) -> None:
    """Write the store of heights."""
    shutil.rmtree(store, ignore_errors=True)
    script = Path(__file__).with_name("make_terrain.py")
    words = f"{script} {side}x{side} {store} --lakes --block-size {block}".split()
    begin = time.perf_counter()
    subprocess.run([sys.executable, *words], check=True)
    print(f"made {side} x {side} in {time.perf_counter() - begin:.1f} s", flush=True)


def processors() -> float:
    """Seconds of processors that finished processes have used, with their start."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(command: str, store: Path, more: list[str], show: bool) -> tuple[float, float, float]:
    """Run a command; return its seconds, those of its proof, and of processors in all."""
    os.sync()
    with contextlib.suppress(OSError):
        Path("/proc/sys/vm/drop_caches").write_text("3")
    report = store.with_suffix(".json")
    start = "from terrain_gpu.cli.main import main as f; f()"
    name, *own = command.split()
    words = [name, str(store), *own, *more, "--overwrite", "-q", "--json", str(report)]
    before = processors()
    subprocess.run([sys.executable, "-c", start, *words], check=True)
    used = processors() - before
    found = json.loads(report.read_text())
    seconds, plan = found["seconds"], found["settings"]["plan"]
    proof = seconds.get("verify", 0.0)
    if show:
        phases = " ".join(f"{key} {value:.2f}" for key, value in seconds.items())
        pool = " ".join(f"{key} {plan[key]}" for key in ("readers", "workers", "writers"))
        on = found["settings"].get("backend", "cpu")
        peak = found["peak_rss_bytes"] / 1e6
        print(f"{command}: {phases}; on {on}, {pool}; peak {peak:.0f} MB", flush=True)
    return seconds["total"] - proof, proof, used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sides", type=int, nargs="+")
    parser.add_argument("--work", type=Path, default=Path("/tmp"))
    parser.add_argument("--block-size", type=int, default=1024)
    parser.add_argument("--memory-limit", default="8GB")
    parser.add_argument("--more", default="", help="Further options of the commands.")
    parser.add_argument("--no-proof", action="store_true")
    asked = parser.parse_args()
    more = ["--memory-limit", asked.memory_limit, *asked.more.split()]
    more += [] if asked.no_proof else ["--verify"]
    print(f"float32, {len(os.sched_getaffinity(0))} cores")
    rows = []
    for side in (SMALL, *asked.sides):
        store = asked.work / f"side{side}.zarr"
        make(side, store, min(asked.block_size, side // 4 & -64))
        found = [run(command, store, more, side != SMALL) for command in COMMANDS]
        shutil.rmtree(store)
        work, proof, used = map(sum, zip(*found, strict=True))
        rows.append((f"{side}^2", work, side**2 / work / 1e6, proof, used, used / side**2 * 1e9))
    print("| raster | DEM to accumulation, s | M cells/s | proofs, s | processor s | ns per cell |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, *figures in rows[1:]:
        print(f"| {name} | {' | '.join(f'{one:.1f}' for one in figures)} |")


if __name__ == "__main__":
    main()
