"""How fast is conversion, against gdal_translate? And its peak of memory, and the size of stores.

Peer and program run in turn, as whole processes, with all cores: medians over the rounds, the ratio
pair by pair, and for ours also the total of the report, from opened input to committed result.
gdal_translate is Debian's gdal-bin; without it, ours runs alone.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path

from bench.programs import ROOT, command, process
from bench.programs import run as run_program
from bench.table import Table
from bench.timing import in_turn

GDAL = ["gdal_translate", "-q", "-co", "TILED=YES", "-co", "NUM_THREADS=ALL_CPUS"]
GDAL += ["-co", "BIGTIFF=IF_SAFER", "--config", "GDAL_NUM_THREADS", "ALL_CPUS"]


def made(path: Path, shape: str, *how: str) -> Path:
    """Terrain in a file or store, if it is not there yet."""
    if not path.exists():
        script = ROOT / "scripts" / "make_terrain.py"
        subprocess.run([sys.executable, script, shape, path, *how], check=True)
    return path


def remove(path: Path) -> None:
    """Delete a file or a store."""
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def speed(work: Path, side: int, rounds: int) -> None:
    """Conversion and export, and the peer."""
    shape, store, tif, back = (
        f"{side}x{side}",
        work / "a.zarr",
        work / "gdal.tif",
        work / "back.tif",
    )
    raw = made(work / f"raw{side}.tif", shape, "--strips")
    deflate = made(work / f"deflate{side}.tif", shape, "--compress", "deflate")
    table = Table(
        f"{shape} float32 | gdal_translate s | our process s | ratio (range) | "
        "our seconds.total | M cells/s | ratio"
    )

    def of_gdal(source: Path) -> float:
        if not shutil.which("gdal_translate"):
            return math.nan
        remove(tif)
        return process([*GDAL, str(source), str(tif)])[0].wall

    def of_us(name: str, source: Path, target: Path) -> tuple[float, float]:
        remove(target)
        found = run_program(name, source, target)
        return found.spent.wall, found.total

    for label, name, source, target, same in (
        ("convert, uncompressed strips", "convert-dataset", raw, store, raw),
        ("convert, deflate tiles", "convert-dataset", deflate, store, deflate),
        ("export", "export", store, back, raw),
    ):
        works = {"peer": partial(of_gdal, same), "ours": partial(of_us, name, source, target)}
        found = in_turn(works, rounds)
        pairs = [(theirs, *mine) for theirs, mine in zip(found["peer"], found["ours"], strict=True)]
        theirs, mine, total = map(statistics.median, zip(*pairs, strict=True))
        ratios = sorted(a / b for a, b, _ in pairs)
        ratio = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"
        ratio = "" if math.isnan(theirs) else ratio
        own = statistics.median(a / c for a, _, c in pairs)
        table.row(label, theirs, mine, ratio, total, side * side / total / 1e6, own)


def memory(work: Path, side: int, rounds: int) -> None:
    """Peaks under a limit."""
    store, back = work / "large.zarr", work / "large-back.tif"
    table = Table(f"{side} x {side} float32, --memory-limit 512MB | peak MB | s")
    how = ["--memory-limit", "512MB", "--overwrite"]
    for label, more in (("strips", ["--strips"]), ("tiles", [])):
        source = made(work / f"large-{label}.tif", f"{side}x{side}", *more)
        found = run_program("convert-dataset", source, store, *how)
        table.row(f"convert, {label}", found.peak // 10**6, found.spent.wall)
        source.unlink()
    for label, more in (("GeoTIFF", []), ("COG", ["--cog"])):
        found = run_program("export", store, back, *how, *more)
        table.row(f"export, {label}", found.peak // 10**6, found.spent.wall)
    remove(store)
    remove(back)


def size(work: Path, side: int, rounds: int) -> None:
    """Bytes on the disk and those of the cells."""
    table = Table("raster | nodata | raw MB | stored MB | ratio")
    coast = ["--coast", "--feature-size", str(side // 4), "--seed", "2"]
    for label, shape, more in (
        ("uint16", f"{2 * side}x{3 * side // 2}", ["--dtype", "uint16"]),
        ("float32 with coast", f"{side}x{side}", coast),
    ):
        store = made(work / f"size-{shape}.zarr", shape, *more)
        told = subprocess.run(
            command("info", store, "--json", "-"), capture_output=True, check=True
        )
        found = json.loads(told.stdout)["result"]
        layer = found["layers"]["elevation"]
        disk = sum(file.stat().st_size for file in store.rglob("*") if file.is_file())
        empty = f"{1 - layer['valid_cells'] / found['cells']:.0%}"
        raw = layer["raw_bytes"]
        table.row(f"{shape} {label}", empty, round(raw / 1e6), round(disk / 1e6), disk / raw)
        remove(store)


QUESTIONS = {"speed": (speed, 8192), "memory": (memory, 20_000), "size": (size, 8192)}
"""What is asked, and its usual side."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("what", choices=QUESTIONS)
    parser.add_argument("--side", type=int, help="cells; 20 000 for memory, or 8192")
    parser.add_argument("--rounds", type=int, default=7)


def run(given: argparse.Namespace) -> None:
    """Print a table."""
    work, side = QUESTIONS[given.what]
    work(given.work, given.side or side, given.rounds)
