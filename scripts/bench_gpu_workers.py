"""Time spanning trees and distances on the GPUs of workers, beside those of one process, and CPUs.

    python scripts/bench_gpu_workers.py --side 30000 --gpus 2 --work /dev/shm --paths

Makes terrain, runs compute-mst, and with --paths compute-sssp, in every way, each as a program, and
prints a line for each. All must write the same bytes.
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


def run(store: Path, words: str, layers: tuple[str, ...]) -> tuple[str, ...]:
    """Run a command, print what it took, and return the digests of its layers."""
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
    side = "{unit_rows} x {unit_cols}".format(**found["settings"]["plan"])
    visits = found["result"].get("region_visits")
    tasks += f", {visits} visits of regions" if visits else ""
    program, _, *more = words.split()
    what = " ".join([program, *more])
    print(f"{what}: process {wall:.2f} s; {phases}; regions {side}{tasks}; peak {peak:.0f} MB")
    sys.stdout.flush()
    return tuple(digest(store / layer) for layer in layers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--side", type=int, default=30_000)
    parser.add_argument("--block", type=int, default=1024)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--cpus", type=int, default=0, help="Workers without GPUs; 0 for none.")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("/tmp"))
    parser.add_argument("--paths", action="store_true", help="Also distances.")
    parser.add_argument("--backlinks", action="store_true", help="With backlinks.")
    parser.add_argument("--gpu-memory-limit", help="For distances: several regions for each GPU.")
    parser.add_argument("--warm", action="store_true", help="All kernels are compiled.")
    given = parser.parse_args()
    if not given.warm:
        print("first a small raster, so that kernels are compiled", flush=True)
        small = [*sys.argv, "--side", "3000", "--block", "256", "--rounds", "1", "--warm"]
        subprocess.run([sys.executable, *small], check=True)
    store = given.work / "workers.zarr"
    make_store(store, given.side, given.block)
    numbers = ",".join(map(str, range(given.gpus)))
    cuda = "--backend cuda"

    def compare(command: str, *layers: str, more: str = "") -> None:
        ways = [f"{command} {cuda} --device {device}{more}" for device in ("0", numbers)]
        counts = sorted({1, given.gpus})
        ways += [f"{command} {cuda} --workers {n} --memory-limit 8GB{more}" for n in counts]
        ways += [f"{command} --workers {given.cpus} --memory-limit 4GB"] * bool(given.cpus)
        found = {run(store, words, layers) for words in ways * given.rounds}
        assert len(found) == 1, found

    compare(f"compute-mst {store}", "mst")
    if given.paths:
        more = f" --gpu-memory-limit {given.gpu_memory_limit}" if given.gpu_memory_limit else ""
        command = f"compute-sssp {store} --source-rowcol {given.side // 2},{given.side // 2}"
        command += f" --backlink {given.work / 'backlink.tif'}" * given.backlinks
        compare(command, "distance", *["backlink"] * given.backlinks, more=more)
    shutil.rmtree(store)


if __name__ == "__main__":
    main()
