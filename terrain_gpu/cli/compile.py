"""terrain-gpu compile: compile the kernels of commands ahead of their first run."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

import click

from ..arguments import MOST_THREADS
from ..engine.machine import available_threads
from ..errors import InputError, OutputError, TerrainError
from ..plurals import counted
from ..similar import did_you_mean
from . import options
from .sections import program_command

CHAINS: tuple[dict[str, tuple[str, ...]], ...] = (
    {
        "compute-sssp": tuple(
            f"--source-rowcol 9,9 --target-rowcol 120,120 --path {{folder}}/paths.geojson {cost}"
            for cost in (
                "--cost absdiff",
                "--cost friction --friction friction",
                "--cost surface",
                "--cost tobler",
            )
        )
    },
    {
        "flow-direction": ("",),
        "flow-accumulation": ("",),
        "watershed": ("--pour-point-rowcol 64,64",),
        "basins": ("",),
        "streams": ("--threshold 20",),
        "hand": ("--threshold 20",),
        "fill": ("",),
    },
    {"compute-mst": ("--weight max", "--weight absdiff")},
    {
        "accumulate": ("",),
        "slope": ("--compress-layers blosc-lz4",),
        "label-components": ('--where "elevation > 100"',),
    },
    {
        "contours": ("{folder}/lines.geojson --interval 50",),
        "polygons": ("{folder}/areas.geojson --layer classes",),
    },
)
"""The commands, and with which options. Those of a chain run one after the other, because they
share kernels; chains run side by side, longest first."""

NAMES = tuple(name for chain in CHAINS for name in chain)
DTYPES = "int16", "uint16", "int32", "float32", "float64"
SIDE = 130
"""Of the rasters that commands run over, in cells."""


@program_command("compile", short_help="Compile kernels now rather than in the first run")
@click.argument("commands", nargs=-1, metavar="[COMMAND]...")
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    type=click.Choice(DTYPES),
    default=("int16", "float32"),
    show_default=True,
    help="Data type of the heights. Repeatable.",
)
@click.option("--verify", is_flag=True, help="Also compile the proofs that --verify runs.")
@click.option(
    "--threads",
    type=click.IntRange(1, MOST_THREADS),
    metavar="N",
    help="Number of commands at a time.  [default: all cores]",
)
@options.progress_option
@options.verbosity_options
def command(
    commands: tuple[str, ...], dtypes: tuple[str, ...], verify: bool, threads: int | None
) -> None:
    """Compile the kernels of commands now, so that no later run waits for its compiler.

    Every COMMAND, or those used most, runs over small rasters, several at a time. What is compiled
    already is not compiled again. Run it after an installation or an upgrade; with the rights of
    whoever installs, it serves all users.

    \b
    terrain-gpu compile
    terrain-gpu compile compute-sssp --dtype uint16
    """
    if unknown := [name for name in commands if name not in NAMES]:
        raise InputError(
            f"no kernels of {unknown[0]!r} to compile; choose from {', '.join(NAMES)}"
            f"{did_you_mean(unknown[0], NAMES)}"
        )
    before, start = _kept(), time.perf_counter()
    chosen = commands or NAMES
    chains = [{name: chain[name] for name in chain if name in chosen} for chain in CHAINS]
    jobs = [(chain, dtype) for chain in chains if chain for dtype in dict.fromkeys(dtypes)]
    with (
        tempfile.TemporaryDirectory(prefix="terrain-gpu-") as folder,
        _pool(threads or available_threads()) as pool,
        options.progress_of("compile") as progress,
    ):
        runs = []
        for k, (chain, dtype) in enumerate(jobs):
            place = Path(folder) / str(k)
            place.mkdir()
            _make_store(place / "store.zarr", dtype)
            runs.append(pool.submit(_run, chain, place, verify))
        for run in as_completed(runs):  # so that the first error ends it
            run.result()
            progress(SIDE**2, len(jobs) * SIDE**2)
    made = len(_kept() - before)
    options.say(
        f"{counted(made, 'kernel')} compiled for {', '.join(dict.fromkeys(dtypes))} in "
        f"{time.perf_counter() - start:.0f} s"
    )


def _kept() -> set[tuple[Path, int]]:
    """The files of machine code, and when they were written: new code may replace old."""
    from ..compiled import PACKAGE, cache_folder

    folder = cache_folder()
    if folder is None:
        raise OutputError(
            f"{PACKAGE}: no folder for compiled kernels is writable; set NUMBA_CACHE_DIR to one"
        )
    return {(file, file.stat().st_mtime_ns) for file in folder.rglob("*.nbc")}


@contextmanager
def _pool(size: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that wait for processes; after an error, no other process is started."""
    pool = ThreadPoolExecutor(size)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _run(chain: dict[str, tuple[str, ...]], folder: Path, verify: bool) -> None:
    """Run the commands of a chain, each as a process."""
    for words in command_lines(chain, folder, verify):
        program = "from terrain_gpu.cli.main import main; main()"
        # Safe path: modules beside the user's files are not ours.
        done = subprocess.run(
            [sys.executable, "-P", "-c", program, *words],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise TerrainError(f"{shlex.join(words)}: {lines[-1].removeprefix('Error: ')}")


def command_lines(
    chain: dict[str, tuple[str, ...]], folder: Path, verify: bool
) -> Iterator[list[str]]:
    """The words of each command of a chain, over the store in a folder."""
    from .main import group

    for name, runs in chain.items():
        for given in runs:
            words = [word.format(folder=folder) for word in shlex.split(given)]
            proven = verify and any(one.name == "verify" for one in group.commands[name].params)
            more = ["--verify"] * proven
            yield [name, str(folder / "store.zarr"), *words, "--overwrite", *more]


def _make_store(path: Path, dtype: str) -> None:
    """Heights of nine blocks with pits and a lake without heights; friction and classes."""
    import numpy as np

    from ..grid import GridSpec
    from ..store import create_layer

    row, col = np.ogrid[:SIDE, :SIDE]
    heights = (300 + 90 * np.sin(row / 9) * np.cos(col / 7) + row + (row * col) % 5).astype(dtype)
    heights[40:60, 70:90] = 0
    friction = (1 + (row + col) % 3).astype(np.float32)
    layers = {"elevation": heights, "friction": friction, "classes": (heights > 300).astype("u1")}
    grid = GridSpec(SIDE, SIDE, (30.0, 0.0, 5e5, 0.0, -30.0, 5e6))
    for name, data in layers.items():
        with create_layer(path, name, grid, data.dtype, nodata=0, block_size=64) as writer:
            for i, j in writer.blocks.ids():
                row0, row1, col0, col1 = writer.block_window(i, j)
                writer.write_block(i, j, data[row0:row1, col0:col1])
            writer.commit()
