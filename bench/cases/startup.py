"""How long do programs take to start: help, first runs with no compiled kernels, later runs?

Over a raster of 256 x 256 int16; the least of the rounds, and first runs take one round. With
--repo, other checkouts, such as one of an older commit, run in turn with this one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from bench.programs import ROOT, command, process
from bench.stores import add_layer, square_cells
from bench.table import Table
from bench.timing import Spent, summed_up

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


def spent(words: list[str], repo: Path, cache: Path) -> Spent:
    """What a command of a checkout takes."""
    env = os.environ | {"PYTHONPATH": str(repo), "NUMBA_CACHE_DIR": str(cache)}
    nowhere = subprocess.DEVNULL
    return process(command(*words), cwd=cache.parent, env=env, stdout=nowhere, stderr=nowhere)[0]


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commands", nargs="+", default=COMMANDS, help="STORE is the raster")
    parser.add_argument("--repo", type=Path, action="append", default=[], metavar="FOLDER")


def run(given: argparse.Namespace) -> None:
    """Print the table."""
    repos = [ROOT, *(repo.resolve() for repo in given.repo)]
    row, col = np.ogrid[:256, :256]
    heights = (300 + 90 * np.sin(row / 9) * np.cos(col / 7) + row + (row * col) % 5).astype("i2")
    table = Table("command | checkout | first: s | s of processors | later: s | of processors")
    with tempfile.TemporaryDirectory(dir=given.work) as name:
        folder = Path(name)
        grid = square_cells(heights.shape, 30.0)
        store = add_layer(folder / "s.zarr", heights, grid=grid, block_size=256)
        for line in given.commands:
            words = line.replace("STORE", str(store)).split()
            works = [partial(spent, words, repo, folder / str(k)) for k, repo in enumerate(repos)]
            first = [work() for work in works]
            later = [[work() for work in works] for _ in range(given.rounds)]
            for repo, one, more in zip(repos, first, zip(*later, strict=True), strict=True):
                table.row(line, repo.name, *one, *summed_up(more, min))
