"""Time a spanning tree on the GPUs of workers, beside the GPUs and CPUs of one process.

    python scripts/bench_gpu_workers.py --side 30000 --gpus 2 --work /dev/shm

Makes terrain, runs compute-mst in every way, each as a program, and prints a line for each. All
must write the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from make_terrain import terrain_window

from terrain_gpu import create_layer
from terrain_gpu.grid import GridSpec

PROGRAM = [sys.executable, "-c", "from terrain_gpu.cli.main import main; main()"]


def make_store(store: Path, side: int, block: int) -> None:
    """Fractal terrain, uint16."""
    shutil.rmtree(store, ignore_errors=True)
    begin, dtype = time.perf_counter(), np.dtype(np.uint16)
    with create_layer(store, "elevation", GridSpec(side, side), dtype, block_size=block) as writer:

        def write(at: tuple[int, int]) -> None:
            writer.write_block(*at, terrain_window(*writer.block_window(*at), dtype="uint16"))

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(write, writer.blocks.ids()))
        writer.commit()
    print(f"made {side} x {side} in {time.perf_counter() - begin:.1f} s", flush=True)


def digest(layer: Path) -> str:
    """Return the digest of all blocks of a layer."""
    found = hashlib.sha256()
    for file in sorted(path for path in (layer / "c").rglob("*") if path.is_file()):
        found.update(str(file.relative_to(layer)).encode() + file.read_bytes())
    return found.hexdigest()


def run(store: Path, words: str, layer: str) -> str:
    """Run a command, print what it took, and return the digest of the layer."""
    report = store.with_suffix(".json")
    command = [*PROGRAM, *words.split(), "--overwrite", "-q", "--json", str(report)]
    begin = time.perf_counter()
    subprocess.run(command, check=True)
    wall = time.perf_counter() - begin
    found = json.loads(report.read_text())
    phases = " ".join(f"{name} {seconds:.2f}" for name, seconds in found["seconds"].items())
    own = found["settings"].get("cluster", {})
    peak = max(found["peak_rss_bytes"], own.get("worker_peak_rss_bytes", 0)) / 1e6
    tasks = f", {own['tasks']} tasks" if own else ""
    side = found["settings"]["plan"]["unit_rows"]
    what = " ".join(words.split()[2:])
    print(f"{what}: process {wall:.2f} s; {phases}; side {side}{tasks}; peak {peak:.0f} MB")
    sys.stdout.flush()
    return digest(store / layer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--side", type=int, default=30_000)
    parser.add_argument("--block", type=int, default=1024)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--cpus", type=int, default=0, help="Workers without GPUs; 0 for none.")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("/tmp"))
    parser.add_argument("--paths", action="store_true", help="Also distances with all GPUs.")
    parser.add_argument("--warm", action="store_true", help="All kernels are compiled.")
    given = parser.parse_args()
    if not given.warm:
        print("first a small raster, so that kernels are compiled", flush=True)
        small = [*sys.argv, "--side", "3000", "--block", "256", "--rounds", "1", "--warm"]
        subprocess.run([sys.executable, *small], check=True)
    store = given.work / "workers.zarr"
    make_store(store, given.side, given.block)
    numbers = ",".join(map(str, range(given.gpus)))
    mst, cuda = f"compute-mst {store}", "--backend cuda"
    ways = [f"{mst} {cuda} --device 0", f"{mst} {cuda} --device {numbers}"]
    ways += [f"{mst} {cuda} --workers {n} --memory-limit 8GB" for n in sorted({1, given.gpus})]
    ways += [f"{mst} --workers {given.cpus} --memory-limit 4GB"] * bool(given.cpus)
    found = {run(store, words, "mst") for words in ways * given.rounds}
    assert len(found) == 1, found
    if given.paths:
        middle = f"--source-rowcol {given.side // 2},{given.side // 2}"
        for device in ("0", numbers):
            run(store, f"compute-sssp {store} {cuda} --device {device} {middle}", "distance")
    shutil.rmtree(store)


if __name__ == "__main__":
    main()
