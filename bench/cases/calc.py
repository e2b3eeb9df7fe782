"""What could a GPU save of calc and corridor? Both compared with a copy of the same bytes.

Two layers of float64 become one, on one thread. GB are of the cells that are read and written.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import numpy as np

from bench.stores import add_layer
from bench.table import Table
from bench.timing import timed
from terrain_gpu import calc, corridor


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--side", type=int, default=8192)


def run(given: argparse.Namespace) -> None:
    """Print the table."""
    size, rng = 8 * given.side**2, np.random.default_rng(1)
    with tempfile.TemporaryDirectory(dir=given.work) as folder:
        store = Path(folder, "s.zarr")
        for name in ("a", "b"):
            cells = rng.random((given.side, given.side)) + np.arange(given.side)  # as distances
            add_layer(store, cells, layer=f"from_{name}", nodata=np.nan)
        how = {"threads": 1, "overwrite": True}
        works = {
            "copy of a layer": lambda: shutil.copytree(
                store / "from_a", Path(folder, "copy"), dirs_exist_ok=True
            ),
            "calc a + b": lambda: calc(store, "from_a + from_b", into="sum", **how),
            "corridor": lambda: corridor(store, ["from_a", "from_b"], **how),
        }
        table = Table("work | s | s of processors | GB per processor second")
        for name, work in works.items():
            work()  # compiles kernels
            spent, _ = timed(work)
            moved = size * (2 if work is works["copy of a layer"] else 3)
            table.row(name, *spent, moved / 1e9 / spent.processor)
