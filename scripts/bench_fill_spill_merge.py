"""Time and memory of fill-spill-merge beside depressions, over rough terrain of floats.

python scripts/bench_fill_spill_merge.py 4096 --threads 2

With --peer, also RichDEM's, see `fill_spill_merge_of_richdem.cpp`, and how many depths differ.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import click
import numpy as np
from make_terrain import terrain_window

import terrain_gpu
from terrain_gpu.grid import GridSpec


def make(store: Path, side: int) -> None:
    """Terrain of square cells with a ring of low ones, which all water reaches."""
    grid = GridSpec(side, side, (1.0, 0.0, 0.0, 0.0, -1.0, 0.0), "", "")
    with terrain_gpu.create_layer(store, "elevation", grid, np.dtype(np.float32)) as target:
        for at in target.blocks.ids():
            r0, r1, c0, c1 = target.block_window(*at)
            cells = terrain_window(r0, r1, c0, c1, dtype="float32", roughness=0.5)
            row, col = np.arange(r0, r1) % (side - 1), np.arange(c0, c1) % (side - 1)
            cells[(row == 0)[:, None] | (col == 0)] = -1e6
            target.write_block(*at, np.ascontiguousarray(cells))
        target.commit()


def compare(program: str, folder: Path, rain: float, found: terrain_gpu.Layer) -> str:
    """Run the peer over the heights in `folder`, and compare its depths with a layer."""
    rows, cols = found.grid.shape
    words = [program, folder / "z", str(rows), str(cols), repr(rain), folder / "w"]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()[-1]
    inner = slice(1, -1), slice(1, -1)
    theirs = np.fromfile(folder / "w").reshape(rows, cols)[inner]
    ours = found.read_window(*found.grid.window)[inner]
    differ = np.abs(ours - theirs) > 1e-4 * np.maximum(1, theirs)
    volumes = f"volumes {theirs.sum():,.0f} and {ours.sum(dtype=float):,.0f}"
    return f"peer {said} s, {np.count_nonzero(differ):,} depths differ, {volumes}"


@click.command()
@click.argument("side", type=int)
@click.option("--threads", type=int, default=None)
@click.option("--peer", default=None, help="Program built from fill_spill_merge_of_richdem.cpp.")
def main(side: int, threads: int | None, peer: str | None) -> None:
    """Run both over SIDE x SIDE cells, with rains of 1 cm, 1 m and 20 m."""
    with tempfile.TemporaryDirectory() as name:
        folder, store = Path(name), Path(name) / "s.zarr"
        make(store, side)
        if peer:
            layer = terrain_gpu.TileStore.open(store).layer("elevation")
            layer.read_window(*layer.grid.window).astype(np.float64).tofile(folder / "z")
        terrain_gpu.flow_direction(store, threads=threads)
        runs = {"depressions": terrain_gpu.depressions(store, threads=threads)}
        said = {}
        for rain in (0.01, 1.0, 20.0):
            run = runs[f"rain {rain}"] = terrain_gpu.fill_spill_merge(
                store, rain=rain, threads=threads, verify=True, overwrite=True
            )
            if peer:
                said[f"rain {rain}"] = compare(peer, folder, rain, run.layers["water"])
        for what, run in runs.items():
            seconds = {phase: round(each, 2) for phase, each in run.report.seconds.items()}
            peak = f"{run.report.peak_rss_bytes / 1e6:.0f} MB at most"
            click.echo(", ".join(filter(None, (f"{what}: {seconds}", peak, said.get(what)))))


if __name__ == "__main__":
    main()
