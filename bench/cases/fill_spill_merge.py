"""What do fill-spill-merge and depressions take, in time and memory, compared with RichDEM?

Over rough terrain of floats, with rains of 1 cm, 1 m and 20 m. With --peer, also how many depths
differ from RichDEM's: PROGRAM is built from `bench/fill_spill_merge_of_richdem.cpp`.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import terrain_gpu
from bench.stores import add_layer, cells_of, square_cells
from bench.table import Table
from bench.terrain import terrain_window
from bench.timing import phases

RAINS = 0.01, 1.0, 20.0


def made(store: Path, side: int) -> Path:
    """Terrain of square cells with a ring of low ones, which all water reaches."""

    def heights(r0: int, r1: int, c0: int, c1: int) -> np.ndarray:
        cells = terrain_window(r0, r1, c0, c1, roughness=0.5)
        row, col = np.arange(r0, r1) % (side - 1), np.arange(c0, c1) % (side - 1)
        cells[(row == 0)[:, None] | (col == 0)] = -1e6
        return cells

    grid = square_cells((side, side), 1.0)
    return add_layer(store, heights, shape=grid.shape, dtype="float32", grid=grid)


def peer_run(program: str, folder: Path, rain: float, ours: np.ndarray) -> tuple[float, int, str]:
    """The peer over the heights in `folder`: seconds, depths that differ, and volumes of both."""
    words = [program, folder / "z", *map(str, ours.shape), repr(rain), folder / "w"]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()[-1]
    inner = slice(1, -1), slice(1, -1)
    theirs, ours = np.fromfile(folder / "w").reshape(ours.shape)[inner], ours[inner]
    differ = np.abs(ours - theirs) > 1e-4 * np.maximum(1, theirs)
    volumes = f"{theirs.sum():,.0f} and {ours.sum(dtype=float):,.0f}"
    return float(said), np.count_nonzero(differ), volumes


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--peer", metavar="PROGRAM")


def run(given: argparse.Namespace) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory(dir=given.work) as name:
        folder, store = Path(name), made(Path(name, "s.zarr"), given.side)
        if given.peer:
            cells_of(store).astype(np.float64).tofile(folder / "z")
        table = Table("work | s by phase | peak MB | peer s | depths differ | volumes")
        how = {"threads": given.threads}
        terrain_gpu.flow_direction(store, **how)

        def tell(work: str, report: terrain_gpu.Report, *peer: object) -> None:
            peak = report.peak_rss_bytes // 10**6
            table.row(work, phases(report.seconds), peak, *(peer or ("", "", "")))

        tell("depressions", terrain_gpu.depressions(store, **how).report)
        for rain in RAINS:
            found = terrain_gpu.fill_spill_merge(
                store, rain=rain, verify=True, overwrite=True, **how
            )
            peer = (
                peer_run(given.peer, folder, rain, cells_of(store, "water")) if given.peer else ()
            )
            tell(f"rain of {rain:g} m", found.report, *peer)
