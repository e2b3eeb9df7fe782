"""Time and memory of fill-spill-merge beside depressions, over rough terrain of floats.

python scripts/bench_fill_spill_merge.py 4096 --threads 2
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
import numpy as np
from make_terrain import terrain_window

import terrain_gpu
from terrain_gpu.grid import GridSpec


@click.command()
@click.argument("side", type=int)
@click.option("--threads", type=int, default=None)
def main(side: int, threads: int | None) -> None:
    """Run both over SIDE x SIDE cells, with rains of 1 cm, 1 m and 20 m."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "s.zarr"
        grid = GridSpec(side, side, (10.0, 0.0, 0.0, 0.0, -10.0, 0.0), "", "")
        with terrain_gpu.create_layer(store, "elevation", grid, np.dtype(np.float32)) as target:
            for at in target.blocks.ids():
                cells = terrain_window(*target.block_window(*at), dtype="float32", roughness=0.5)
                target.write_block(*at, np.ascontiguousarray(cells))
            target.commit()
        terrain_gpu.flow_direction(store, threads=threads)
        runs = {"depressions": terrain_gpu.depressions(store, threads=threads)}
        for rain in (0.01, 1.0, 20.0):
            runs[f"rain {rain}"] = terrain_gpu.fill_spill_merge(
                store, rain=rain, threads=threads, verify=True, overwrite=True
            )
        for name, run in runs.items():
            seconds = {phase: round(each, 2) for phase, each in run.report.seconds.items()}
            click.echo(f"{name}: {seconds}, {run.report.peak_rss_bytes / 1e6:.0f} MB at most")


if __name__ == "__main__":
    main()
