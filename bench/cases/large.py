"""How do whole commands on GPUs do with rasters that outgrow the GPU, the host, or 32 bits?

    python -m bench large thesis
    python -m bench large huge --sides 60000
    python -m bench large huge --sides 200704x100352 --limits none --devices all
    python -m bench large growth --sides 16384 30000 60000 100000 --verify mst distance

Waves and noise, uint16; each command in a process of its own, over a store with a cold cache.
thesis: its raster of 12 555 x 17 630, and a small GPU. huge: one operation after another, the disk
holds one result at a time. growth: growing sides under the same limits.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import time
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from bench.device import cupy, free
from bench.disk import cold
from bench.programs import Run
from bench.programs import run as run_program
from bench.stores import add_layer
from bench.table import Table
from bench.terrain import waves
from bench.timing import phases

BLOCK = 1024
MST = "compute-mst {} --backend cuda --overwrite"
PATHS = "compute-sssp {} --backend cuda --overwrite --source-rowcol 4096,4096"


def new_store(store: Path, rows: int, cols: int, block: int, codec: str = "none") -> None:
    """Waves and noise, made on the GPU piece by piece."""

    lock = Lock()  # threads write, but CuPy has one generator of noise

    def heights(*window: int) -> np.ndarray:
        with lock:
            z = waves(cupy, *window)
            z += cupy.random.standard_normal(z.shape, dtype=cupy.float32) * 20
            return z.astype(cupy.uint16).get()

    shutil.rmtree(store, ignore_errors=True)
    begin = time.perf_counter()
    how = {"block_size": block, "compress": None if codec == "none" else codec}
    add_layer(store, heights, shape=(rows, cols), dtype=np.uint16, **how)
    print(f"made {rows} x {cols} in {time.perf_counter() - begin:.1f} s", flush=True)
    free()


def program(command: str, store: Path) -> Run | None:
    """Run a command as users do, in its own process, on a store with a cold cache."""
    cold(store)
    try:
        found = run_program(*command.format(store).split())
    except subprocess.CalledProcessError as error:  # the next ones may do
        print(f"{command}: exit status {error.returncode}", flush=True)
        return None
    side = found.report["settings"].get("plan", {}).get("unit_rows")
    peak = found.report["peak_rss_bytes"] / 1e6
    print(f"{command}: process {found.spent.wall:.2f} s; {phases(found.report['seconds'])}; "
          f"side {side}; peak {peak:.0f} MB; {found.report['result']}", flush=True)  # fmt: skip
    return found


def thesis(given: argparse.Namespace) -> None:
    """The thesis's raster, and a small GPU."""
    store = given.work / "thesis.zarr"
    new_store(store, 12555, 17630, BLOCK)
    for weight in ("absdiff", "max"):
        program(f"{MST} --weight {weight}", store)
    for cost in ("absdiff", "surface"):
        program(f"{PATHS} --cost {cost}", store)
    new_store(store, 16384, 16384, BLOCK)
    for _ in range(2):
        for limit in ("100GB", "4GB"):
            program(f"{MST} --gpu-memory-limit {limit}", store)
            program(f"{PATHS} --gpu-memory-limit {limit}", store)


def huge(given: argparse.Namespace) -> None:
    """Ids beyond 32 bits, one operation after another: the disk holds one result at a time."""
    store = given.work / "huge.zarr"
    for shape in given.sides:
        rows, _, cols = shape.partition("x")
        new_store(store, int(rows), int(cols or rows), 2 * BLOCK, given.codec)
        for limit in given.limits:
            how = f" --device {given.devices}"
            if limit != "none":
                how += f" --memory-limit {limit} --gpu-memory-limit {limit}"
            for command, layer in ((MST, "mst"), (PATHS, "distance")):
                program(f"{command}{how} --compress-layers {given.codec}", store)
                if layer in given.verify:
                    program(f"verify {{}} --backend cuda{how}", store)
                shutil.rmtree(store / layer, ignore_errors=True)


def growth(given: argparse.Namespace) -> None:
    """Distances, and proofs, of rasters of growing size under the same limits."""
    limit, rows, store = given.limits[0], [], given.work / "growth.zarr"
    limits = f" --memory-limit {limit} --gpu-memory-limit {limit}"
    compress = f" --compress-layers {given.codec}"
    for side in map(int, given.sides):
        block = BLOCK if side <= 30000 else 2 * BLOCK
        new_store(store, side, side, block, given.codec)
        made = {"distance": f"{PATHS} {given.more}{compress}", "mst": MST + compress}
        for layer, command in made.items():
            commands = {layer: command} if layer == "distance" or layer in given.verify else {}
            if layer in given.verify:
                commands[f"proof of {layer}"] = "verify {} --backend cuda"
            for name, words in commands.items():
                if (found := program(words + limits, store)) is not None:
                    rows.append(growth_row(name, side, block, found))
            shutil.rmtree(store / layer, ignore_errors=True)
    shutil.rmtree(store, ignore_errors=True)
    print()
    table = Table(
        " | raster | regions | visits | reads of a block | relax s | finalise s | "
        "total s | ns a cell | process s | peak MB"
    )
    for row in rows:
        table.row(*row)


def growth_row(name: str, side: int, block: int, found: Run) -> list[Any]:
    """The cells of a row."""
    result, seconds = found.report["result"], found.report["seconds"]
    blocks = (-(-side // block)) ** 2
    reads = result["blocks_read"] / blocks if "blocks_read" in result else None
    cells = [name, f"{side}^2", result.get("regions"), result.get("region_visits"), reads]
    cells += [seconds.get(key) for key in ("relax", "finalise", "total")]
    cells += [found.total / side**2 * 1e9, found.spent.wall]
    return [*cells, found.report["peak_rss_bytes"] // 10**6]


WORKS = {"thesis": thesis, "huge": huge, "growth": growth}


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("what", choices=WORKS)
    parser.add_argument("--sides", nargs="+", metavar="SIDE|ROWSxCOLS", default=["60000"])
    parser.add_argument("--limits", nargs="+", default=["8GB"], help="of host and GPU; or none")
    parser.add_argument("--codec", default="none", help="of layers")
    parser.add_argument("--devices", default="0", help="GPUs, of huge")
    parser.add_argument("--verify", nargs="*", default=[], metavar="LAYER", help="prove these, too")
    parser.add_argument("--more", default="", help="options of compute-sssp, of growth")


def run(given: argparse.Namespace) -> None:
    """Print a line for each command, and a table of growth."""
    WORKS[given.what](given)
