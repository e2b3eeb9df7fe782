"""How long `calc` and `corridor` compute, beside copying the same bytes: what a GPU could save.

    python scripts/bench_calc.py [--side 8192] [--work FOLDER]

Two layers of float64 become one, in FOLDER, on one thread. Processor seconds and GB/s of the cells
that are read and written: of the plain copy of a layer's files, and of both commands.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from terrain_gpu import GridSpec, calc, corridor, create_layer


def made(store: Path, name: str, side: int) -> None:
    """A layer of random cells, sorted in rows, as distances grow."""
    rng = np.random.default_rng(len(name))
    with create_layer(store, name, GridSpec(side, side), np.float64, nodata=np.nan) as writer:
        for at in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(*at)
            cells = rng.random((r1 - r0, c1 - c0)) + np.arange(c0, c1)
            writer.write_block(*at, cells)
        writer.commit()


def told(what: str, moved: int, work: Callable[[], Any]) -> None:
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    work()
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    speed = moved / 1e9 / (user + system)
    print(f"{what:24} user {user:5.2f} s, system {system:5.2f} s, wall {wall:5.2f} s: "
          f"{speed:.2f} GB per processor second", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--side", type=int, default=8192)
    parser.add_argument("--work", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.work) as folder:
        store, size = Path(folder, "s.zarr"), 8 * given.side**2
        for name in ("from_a", "from_bb"):
            made(store, name, given.side)
        how: dict[str, Any] = {"threads": 1, "overwrite": True}
        commands: list[tuple[str, Callable[[], Any]]] = [
            ("calc a + b", lambda: calc(store, "from_a + from_bb", into="sum", **how)),
            ("corridor", lambda: corridor(store, ["from_a", "from_bb"], **how)),
        ]
        for _, work in commands:
            work()  # compiles kernels
        copy = Path(folder, "copy")
        told("copy of a layer", 2 * size, lambda: shutil.copytree(store / "from_a", copy))
        for name, work in commands:
            told(name, 3 * size, work)


if __name__ == "__main__":
    main()
