"""Time proofs with worker processes of one thread each against as many threads of one process."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click

FRICTION = "--source 500005,5499995 --cost friction --friction elevation"
COMMANDS = {
    "compute-mst": ["compute-mst {store}"],
    "compute-sssp": [
        "compute-sssp {store} --source 500005,5499995 --cost friction --friction elevation"
    ],
    "slope": ["terrain-gpu slope {store}"],
    "fill": ["terrain-gpu fill {store}"],
}
"""What is proven: commands, each over a store with heights alone."""


def run(words: list[str]) -> tuple[float, float]:
    """Return the seconds of a command, and those of its processors."""
    started = time.perf_counter()
    before = os.times()
    subprocess.run(words, check=True)
    after = os.times()
    used = after.children_user - before.children_user
    return time.perf_counter() - started, used + after.children_system - before.children_system


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--side", default=4096, show_default=True)
@click.option("--workers", default=2, show_default=True)
@click.option("--only", multiple=True, type=click.Choice(list(COMMANDS)))
def main(folder: Path, side: int, workers: int, only: tuple[str, ...]) -> None:
    """Make stores in FOLDER, prove their layers, and print a table."""
    folder.mkdir(parents=True, exist_ok=True)
    terrain = folder / f"terrain-{side}.zarr"
    make = Path(__file__).with_name("make_terrain.py")
    if not terrain.exists():
        subprocess.run([sys.executable, make, f"{side}x{side}", terrain], check=True)
    for name in only or COMMANDS:
        store = folder / f"{name}-{side}.zarr"
        if not store.exists():
            shutil.copytree(terrain, store)
            for command in COMMANDS[name]:
                subprocess.run([*command.format(store=store).split(), "-q"], check=True)
        report = folder / "report.json"
        verify = ["terrain-gpu", "verify", store, "--backend", "cpu", "-q", "--json", report]
        for how in (["--threads", workers], ["--workers", workers]):
            words = [str(word) for word in (*verify, *how)]
            run(words)  # kernels are compiled, cells are in memory
            seconds, processor = run(words)
            found = json.loads(report.read_text())
            each = {k: round(v, 2) for k, v in found["seconds"].items() if k != "total"}
            cluster = found["settings"].get("cluster", {})
            processor += sum(one["processor_seconds"] for one in cluster.get("each", {}).values())
            peak = cluster.get("worker_peak_rss_bytes", 0)
            sent = cluster.get("bytes_received", 0)
            print(
                f"{name:14}{' '.join(map(str, how)):14}{seconds:8.2f} s{processor:8.2f} s of "
                f"processors, {sent / 1e6:.1f} MB returned, {peak / 1e6:.0f} MB a worker; {each}",
                flush=True,
            )


if __name__ == "__main__":
    main()
