"""Time the start of programs: help, first runs with an empty cache of kernels, second runs.

    python scripts/bench_startup.py [--rounds N] [--repo FOLDER]...

Prints seconds of the processor (user and system) and wall, least of the rounds, of commands over a
raster of 256 x 256 int16. First runs take one round. With --repo, other checkouts, such as one of
an older commit, run in turn with this one: name their folders.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from terrain_gpu import GridSpec, create_layer

COMMANDS = (
    "--help",
    "compute-mst --help",
    "info STORE",
    "compute-mst STORE --overwrite",
    "compute-sssp STORE --source-rowcol 9,9 --overwrite",
    "accumulate STORE --overwrite",
    "slope STORE --overwrite",
    "compute-mst STORE --weight flow --overwrite",
    "flow-direction STORE --overwrite",
    "flow-accumulation STORE --overwrite",
    "streams STORE --threshold 500 --overwrite",
)


def make_store(path: Path) -> None:
    row, col = np.ogrid[:256, :256]
    heights = (300 + 90 * np.sin(row / 9) * np.cos(col / 7) + row + (row * col) % 5).astype("i2")
    grid = GridSpec(256, 256, (30.0, 0.0, 5e5, 0.0, -30.0, 5e6))
    with create_layer(path, "elevation", grid, "int16", block_size=256) as writer:
        writer.write_block(0, 0, heights)
        writer.commit()


def timed(repo: Path, words: list[str], cache: Path) -> tuple[float, float]:
    """Seconds of the processor and of the clock."""
    program = "from terrain_gpu.cli.main import main; main()"
    paths = {"PYTHONPATH": str(repo), "NUMBA_CACHE_DIR": str(cache)}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=cache.parent,
        env=os.environ | paths,
        check=False,
        capture_output=True,
        text=True,
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repo", type=Path, action="append", default=[])
    given = parser.parse_args()
    repos = [Path(__file__).resolve().parents[1], *(repo.resolve() for repo in given.repo)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_store(folder / "s.zarr")
        print("| command | checkout | first: processor | wall | later: processor | wall |")
        print("| --- | --- | --- | --- | --- | --- |")
        for command in COMMANDS:
            words = command.replace("STORE", str(folder / "s.zarr")).split()
            caches = [folder / str(k) for k in range(len(repos))]
            first = [timed(repo, words, cache) for repo, cache in zip(repos, caches, strict=True)]
            later = [
                [timed(repo, words, cache) for repo, cache in zip(repos, caches, strict=True)]
                for _ in range(given.rounds)
            ]
            for k, repo in enumerate(repos):
                least = [min(one[k][i] for one in later) for i in (0, 1)]
                cells = " | ".join(f"{seconds:.2f}" for seconds in (*first[k], *least))
                print(f"| {command} | {repo.name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
