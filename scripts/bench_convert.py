"""Benchmark of convert-dataset and export: speed against gdal_translate, peak memory, stored size.

    python scripts/bench_convert.py speed|memory|size [--side N] [--work FOLDER]

Peer and program run in turn, as whole processes, with all cores; the table gives medians over the
rounds, the ratio pair by pair, and for our own runs also `seconds.total` of the report (from opened
input to committed result). gdal_translate is Debian's gdal-bin.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

SCRIPTS = Path(__file__).resolve().parent
PROGRAMS = Path(sys.executable).parent
GDAL = ["gdal_translate", "-q", "-co", "TILED=YES", "-co", "NUM_THREADS=ALL_CPUS"]
GDAL += ["-co", "BIGTIFF=IF_SAFER", "--config", "GDAL_NUM_THREADS", "ALL_CPUS"]


def terrain(path: Path, side: str, *options: str) -> Path:
    if not path.exists():
        script = SCRIPTS / "make_terrain.py"
        subprocess.run([sys.executable, script, side, path, *options], check=True)
    return path


def timed(command: list) -> tuple[float, float]:
    """Seconds of wall clock and peak resident megabytes of a process."""
    start = time.perf_counter()
    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command} failed")
    return time.perf_counter() - start, usage.ru_maxrss * 1024 / 1e6


def program(name: str) -> list:
    return (
        [PROGRAMS / name] if "-" in name and name != "export" else [PROGRAMS / "terrain-gpu", name]
    )


def versions() -> str:
    import numba
    import rasterio
    import zarr

    peer = ""
    if shutil.which("gdalinfo"):
        gdal = subprocess.run(["gdalinfo", "--version"], capture_output=True, text=True, check=True)
        peer = f"; peer: {gdal.stdout.strip()}"
    return (
        f"{os.cpu_count()} x {platform.machine()} {cpu()}, Python {platform.python_version()}, "
        f"numpy {np.__version__}, numba {numba.__version__}, zarr {zarr.__version__}, rasterio "
        f"{rasterio.__version__} (GDAL {rasterio.__gdal_version__}){peer}"
    )


def cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return ""


def speed(work: Path, side: int, rounds: int) -> None:
    size = f"{side}x{side}"
    inputs = {
        "uncompressed strips": terrain(work / "raw.tif", size, "--strips"),
        "deflate tiles": terrain(work / "deflate.tif", size, "--compress", "deflate"),
    }
    print(
        f"| {size} float32 | gdal_translate s | our process s | ratio (range) "
        "| our seconds.total | ratio |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    cells = side * side
    for label, source in inputs.items():
        store, tif, report = work / "out.zarr", work / "gdal.tif", work / "report.json"
        ours = [*program("convert-dataset"), source, store, "-q", "--json", report]
        row(f"convert, {label}", [*GDAL, source, tif], ours, report, rounds, cells)
    back = work / "back.tif"
    ours = [*program("export"), store, back, "-q", "--json", report]
    row("export", [*GDAL, inputs["uncompressed strips"], tif], ours, report, rounds, cells)
    print(f"\n{versions()}")


def row(label: str, peer: list, ours: list, report: Path, rounds: int, cells: int) -> None:
    pairs = []
    for k in range(rounds + 1):
        for output in (peer[-1], ours[-4]):
            remove(output)
        pair = timed(peer)[0], timed(ours)[0]
        total = json.loads(report.read_text())["seconds"]["total"]
        if k:  # the first round warms the page cache
            pairs.append((*pair, total))
    theirs, mine, total = (statistics.median(p[k] for p in pairs) for k in range(3))
    ratios = sorted(p[0] / p[1] for p in pairs)
    print(
        f"| {label} | {theirs:.2f} | {mine:.2f} | {statistics.median(ratios):.2f} "
        f"({ratios[0]:.2f}-{ratios[-1]:.2f}) | {total:.2f} ({cells / total / 1e6:.0f} M cells/s) "
        f"| {statistics.median(p[0] / p[2] for p in pairs):.2f} |",
        flush=True,
    )


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def memory(work: Path, side: int, rounds: int) -> None:
    limit = "512MB"
    print(f"| {side} x {side} float32, --memory-limit {limit} | peak MB | seconds |")
    print("| --- | --- | --- |")
    store, back = work / "large.zarr", work / "large-back.tif"
    for label, options in (("strips", ["--strips"]), ("tiles", [])):
        source = terrain(work / f"large-{label}.tif", f"{side}x{side}", *options)
        tail = ["--memory-limit", limit, "--overwrite", "-q"]
        seconds, peak = timed([*program("convert-dataset"), source, store, *tail])
        print(f"| convert, {label} | {peak:.0f} | {seconds:.1f} |", flush=True)
        source.unlink()
    for label, options in (("GeoTIFF", []), ("COG", ["--cog"])):
        seconds, peak = timed([*program("export"), store, back, *tail, *options])
        print(f"| export, {label} | {peak:.0f} | {seconds:.1f} |", flush=True)
    shutil.rmtree(store)
    back.unlink()


def size(work: Path, side: int, rounds: int) -> None:
    print("| raster | raw MB | stored MB | ratio |\n| --- | --- | --- | --- |")
    for label, shape, options in (
        ("17 630 x 12 555 uint16", "17630x12555", ["--dtype", "uint16"]),
        (
            "8192 x 8192 float32 with coast",
            "8192x8192",
            ["--coast", "--feature-size", "2048", "--seed", "2"],
        ),
    ):
        store = work / "size.zarr"
        terrain(store, shape, *options)
        out = subprocess.run(
            [*program("terrain-gpu"), "info", store, "--json", "-"],
            capture_output=True,
            check=True,
        )
        found = json.loads(out.stdout)["result"]
        layer = found["layers"]["elevation"]
        disk = sum(f.stat().st_size for f in store.rglob("*") if f.is_file())
        empty = 1 - layer["valid_cells"] / found["cells"]
        print(
            f"| {label}, {empty:.0%} nodata | {layer['raw_bytes'] / 1e6:.0f} | {disk / 1e6:.0f} | "
            f"{disk / layer['raw_bytes']:.3f} |",
            flush=True,
        )
        shutil.rmtree(store)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["speed", "memory", "size"])
    parser.add_argument("--side", type=int, help="cells [8192 for speed, 20000 for memory]")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--work", type=Path, default=Path("bench-work"))
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    side = arguments.side or {"speed": 8192, "memory": 20_000}.get(arguments.what, 0)
    {"speed": speed, "memory": memory, "size": size}[arguments.what](
        arguments.work, side, arguments.rounds
    )


if __name__ == "__main__":
    main()
