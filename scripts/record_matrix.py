"""Digests of all that the commands write, over a matrix of methods, block sizes and runs.

To change code and show that nothing else changed:

    python scripts/record_matrix.py before.json
    ...
    python scripts/record_matrix.py after.json --against before.json

Stores, exports and reports are digested as they are; of reports all but what no two runs share
(times, memory, bytes read and written, versions).
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import rasterio

from terrain_gpu.cli.main import group
from terrain_gpu.progress import silent

CONVERT = "convert-dataset {raster} s.zarr --block-size {block} --overwrite"
FRICTION = "convert-dataset f.tif s.zarr --layer friction --overwrite"
TREES = [
    f"compute-mst s.zarr --weight {weight} --method {method} --connectivity {connectivity}"
    for weight in ("max", "absdiff")
    for method in ("frozen", "contract")
    for connectivity in (4, 8)
]
PATHS = [
    f"compute-sssp s.zarr --source-rowcol 3,5 --source-rowcol 90,60 {rest}"
    for rest in (
        "-o d.tif --backlink b.tif --allocation a.tif",
        "--cost surface --backlink b.tif",
        "--cost tobler --reverse",
        "--cost langmuir --method dijkstra",
        "--cost minimax --allocation a.tif",
        "--cost friction --friction friction --connectivity 4",
        "--cost friction --friction friction --no-corner-cutting",
        "--target-rowcol 10,10 --stop-at-targets",
        "--max-cost 400",
        "--cost friction --friction friction --build-index",
        "--cost friction --friction friction --method index",
    )
]
PROOF = "terrain-gpu verify s.zarr"
RESUMED = {
    "compute-mst s.zarr --weight max --method frozen --connectivity 8",
    PATHS[2],
    "label-components s.zarr --where 'elevation > 300'",
}
REST = [
    "compute-mst s.zarr --weight max -o e.tif --verify",
    "terrain-gpu verify s.zarr --data",
    "label-components s.zarr --where 'elevation > 300' --table t.geojson",
    "label-components s.zarr --where 'elevation > 300' --connectivity 4 --table t.csv",
    "accumulate s.zarr --directions directions",
    "accumulate s.zarr --areas",
    "network s.zarr n.geojson --min-length 300",
    "export s.zarr x.tif --compress deflate",
    "export s.zarr c.tif --cog",
    "export s.zarr m.tif --layer mst",
    "info s.zarr",
    "plan 20000x30000 --memory-limit 2GB --threads 3 --for mst",
    "plan 20000x30000 --memory-limit 2GB --threads 3 --for sssp",
    "plan 20000x30000 --memory-limit 2GB --threads 3 --for convert",
]
UNEQUAL = {
    "seconds",
    "bytes_read",
    "bytes_written",
    "peak_rss_bytes",
    "versions",
    "machine",
    "started",
    "cells_per_second",
    "peak",
    "spilled_bytes",
    "loaded_bytes",
    "block_visits_per_block",
    "tile_visits_per_tile",
    "row_passes_per_visit",
    "gpu_memory_bytes",
    "region_visits",
    "waves",
    "memory_limit",
    "blocks_resumed",
}


def rasters(folder: Path) -> list[str]:
    """Small rasters: real heights, noise with voids, flats."""
    sample = Path(__file__).parent.parent / "data/jacksboro.tif"
    with rasterio.open(sample) as data:
        profile, cells = data.profile, data.read(1)
    names = []
    rng = np.random.default_rng(7)
    noise = rng.uniform(0, 900, (200, 330)).astype(np.float32)
    noise[rng.random(noise.shape) < 0.1] = -9999
    flats = (np.add.outer(np.arange(300), np.arange(170)) // 40 * 10).astype(np.int16)
    flats[100:140, 20:90] = -9999
    for name, some in (("real", cells[:400, :500]), ("noise", noise), ("flats", flats)):
        profile.update(dtype=some.dtype, height=some.shape[0], width=some.shape[1])
        profile.update(nodata=profile["nodata"] if name == "real" else -9999)
        for part, values in (("", some), ("f", rng.integers(1, 9, some.shape))):
            with rasterio.open(folder / f"{name}{part}.tif", "w", **profile) as file:
                file.write(values.astype(some.dtype), 1)
            os.utime(folder / f"{name}{part}.tif", (10**9, 10**9))
        names.append(name)
    return names


def call(words: str, *, stop: float | None = None) -> str:
    """Run a command here; the name of the error that it raised, if any."""
    from terrain_gpu import progress

    done = 0.0
    name, *more = shlex.split(words)

    def halt(cells: int, total: int) -> None:
        nonlocal done
        done += cells / total
        if stop is not None and done >= stop:
            raise KeyboardInterrupt

    bar, progress.bar = progress.bar, _always(halt if stop is not None else silent)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            group.main([*([] if name == "terrain-gpu" else [name]), *more], standalone_mode=False)
    except (KeyboardInterrupt, SystemExit, Exception) as error:
        return type(error).__name__
    finally:
        progress.bar = bar
    return ""


def _always(shown):
    @contextlib.contextmanager
    def bar(label, *, quiet=False):
        yield shown

    return bar


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def of_report(value: object) -> object:
    """What two runs share."""
    if isinstance(value, dict):
        return {k: of_report(v) for k, v in sorted(value.items()) if k not in UNEQUAL}
    if isinstance(value, list):
        return [of_report(v) for v in value]
    if isinstance(value, str):
        return value.replace(os.getcwd(), "")
    return value


def state() -> dict[str, str]:
    """Digests of all files of the folder."""
    found: dict[str, str] = {}
    for path in sorted(Path().rglob("*")):
        if (path.is_file() and path.suffix != ".json") or path.name in ("zarr.json", "t.json"):
            data = path.read_bytes().replace(os.getcwd().encode(), b"")
            found[str(path)] = digest(data)
    return found


def record(block: int, backend: str) -> dict[str, object]:
    """What a series of commands leaves, for all rasters."""
    found: dict[str, object] = {}
    here = Path.cwd()
    # Metadata tell where the cells came from: the same folder and times for all recordings.
    folder = Path(tempfile.gettempdir()) / "terrain_gpu-matrix"
    folder.mkdir()
    try:
        os.chdir(folder)
        for name in rasters(folder):
            shutil.rmtree("s.zarr", ignore_errors=True)
            shutil.copy2(f"{name}f.tif", "f.tif")
            shutil.copy2(f"{name}.tif", "raster.tif")
            commands = [CONVERT.format(raster="raster.tif", block=block), FRICTION]
            for words in [*commands, *TREES, PATHS[0], PROOF, *PATHS[1:], *REST]:
                own = words.split()[0]
                more = ""
                if own in ("compute-mst", "compute-sssp") or words == PROOF:
                    more += f" --backend {backend}"
                if own not in ("info", "plan", "terrain-gpu"):
                    more += " --overwrite" * ("--overwrite" not in words)
                for run in ("fresh", "resumed") if words in RESUMED else ("fresh",):
                    if run == "resumed":
                        stopped = call(f"{words}{more}", stop=0.4)
                        assert stopped, f"{words} was not stopped"
                        more = f"{more} --resume"
                    Path("r.json").unlink(missing_ok=True)
                    error = call(f"{words}{more} --json r.json")
                    report = error or json.loads(Path("r.json").read_text())
                    key = f"{name} {block} {backend} {run}: {words}"
                    found[key] = {"report": of_report(report), "files": state()}
    finally:
        os.chdir(here)
        shutil.rmtree(folder)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--backend", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--blocks", type=int, nargs="+", default=[64, 128, 1024])
    given = parser.parse_args()
    found: dict[str, object] = {}
    for block in given.blocks:
        found |= record(block, given.backend)
    given.output.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(f"{len(found)} runs")
    if given.against is None:
        return 0
    before = json.loads(given.against.read_text())
    changed = [
        key for key in sorted(before.keys() | found.keys()) if before.get(key) != found.get(key)
    ]
    for key in changed:
        print("differs:", key, file=sys.stderr)
    return bool(changed)


if __name__ == "__main__":
    raise SystemExit(main())
