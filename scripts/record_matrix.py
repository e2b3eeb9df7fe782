"""Record digests of all that the commands write, over methods, block sizes and runs.

To change code and show that nothing else changed:

    python scripts/record_matrix.py before.json
    ...
    python scripts/record_matrix.py after.json --against before.json

Stores, exports and reports are digested as they are; reports without what no two runs share
(times, memory, bytes read and written, versions). `--conversions` records conversions, exports and
networks instead, with their messages and progress.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import logging
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


STORE = "convert-dataset tiles.tif s.zarr --overwrite"
CONVERSIONS = [
    *(
        f"convert-dataset {source} s.zarr {{block}} --overwrite -v"
        for source in (
            "tiles.tif",
            "tiles.tif --threads 1 --memory-limit 200MB",
            "strips.tif --threads 3",
            "plain.tif",
            "wide.tif --nodata -1",
            "bands.tif --band 2 --compress zstd",
            "masked.tif --nodata -32768",
            "exact.tif",
            "noise.tif --round",
            "noise.tif --round --clamp-min 100 --nodata -5",
            "noise.tif --clamp-min 300.5 --compress zstd",
            "noise.tif --bounds 600900 4001000 604000 4007000",
            "noise.asc --crs EPSG:32611",
            "noise.grass --crs EPSG:32611 --threads 2",
            "west.tif east.tif",
            "east.tif west.tif --round --bounds 600900 4001000 609000 4007000",
            "west.tif far.tif --nodata -1",
            "noise.tif east.tif --threads 1",
            # Refused, at once or midway.
            "west.tif far.tif",
            "bands.tif",
            "tiles.tif nothing.tif",
            "noise.tif --round --nodata 300 --threads 1",
            "large.tif --round --threads 1",
            "tiles.tif --memory-limit 161MB",
            "tiles.tif --layer 1",
            "tiles.tif --clamp-min nan",
        )
    ),
    "convert-dataset cut.tif s.zarr --block-size 64 --threads 1 --overwrite -v",
    "convert-dataset cut.tif s.zarr --block-size 64 --threads 1 --resume -v",
    f"{STORE} --resume -v",
    f"{STORE} {{block}}",
    "convert-dataset tiles.tif s.zarr -v",
    "convert-dataset tiles.tif s.zarr --resume -v",
    "convert-dataset tiles.tif s.zarr --resume --round -v",
    "convert-dataset wide.tif s.zarr --layer friction --round -v",
    "convert-dataset noise.tif s.zarr --layer other -v",
    "convert-dataset noise.tif s.zarr --overwrite -v",
    "convert-dataset noise.tif plain.tif -v",
    "convert-dataset noise.tif nowhere/s.zarr -v",
    *(
        f"export s.zarr x.tif {rest} -v"
        for rest in (
            "",
            "--overwrite",
            "--compress deflate --overwrite",
            "--compress lzw --overwrite --threads 1",
            "--compress zstd --overwrite --bounds 600900 4001000 604000 4007000",
            "--cog --overwrite",
            "--cog --compress lzw --layer friction --overwrite",
            "--layer mst --overwrite",
            "--layer nothing --overwrite",
            "--bounds 0 0 1 1 --overwrite",
            "--memory-limit 1MB --overwrite",
        )
    ),
    "export s.zarr x.png -v",
    *(
        f"network s.zarr {rest} -v"
        for rest in (
            "n.geojson --min-length 300",
            "n.geojson --min-length 300",
            "n.geojson --min-length 0 --overwrite --threads 1",
            "n.gpkg --min-length 300 --overwrite --threads 2",
            "n.gpkg --min-length 1000 --keep keep.tif --overwrite",
            "n.json --keep keep.tif --overwrite --memory-limit 500MB",
            "n.json --min-length 1e9 --overwrite",
            "n.json --min-length 0 --overwrite --memory-limit 281MB",
        )
    ),
]
"""Beside -v, which tells messages; {block} stands for --block-size."""
STOPPED = {
    CONVERSIONS[0],
    CONVERSIONS[2],
    CONVERSIONS[14],
    "export s.zarr x.tif --compress deflate --overwrite -v",
    "network s.zarr n.geojson --min-length 0 --overwrite --threads 1 -v",
}


def sources(folder: Path) -> None:
    """Small rasters of many kinds."""
    rng = np.random.default_rng(7)
    noise = rng.uniform(0, 900, (300, 330)).astype(np.float32)
    noise[rng.random(noise.shape) < 0.1] = -9999
    hills = (noise[:300, :330] // 3).astype(np.int16)
    hills[noise == -9999] = -9999
    tiled = {"tiled": True, "blockxsize": 128, "blockysize": 128}

    def save(name: str, data: np.ndarray, nodata: float | None, *, west: int = 0, **how) -> None:
        place = rasterio.Affine(30, 0, 600000 + 30 * west, 0, -30, 4_009_000)
        shape = dict(zip(("height", "width"), data.shape[-2:], strict=True))
        shape |= {"count": 1 if data.ndim == 2 else len(data), "dtype": data.dtype.name}
        with rasterio.open(
            folder / name,
            "w",
            nodata=nodata,
            transform=place,
            **shape,
            **{"crs": "EPSG:32611"} | how,
        ) as file:
            file.write(data if data.ndim == 3 else data[None])

    save("tiles.tif", hills, -9999, compress="deflate", **tiled)
    save("strips.tif", hills, -9999, compress="lzw", blockysize=7)
    save("plain.tif", hills, -9999, blockysize=1)
    save("wide.tif", noise.astype(np.float64), -9999, compress="zstd", blockysize=300)
    save("bands.tif", np.stack((hills, hills + 1)), None, interleave="pixel", compress="deflate")
    save("exact.tif", hills.astype(np.int64) * 2**40, None, compress="deflate", **tiled)
    save("noise.tif", noise, -9999, **tiled)
    save("west.tif", noise[:, :200], -9999, **tiled)
    save("east.tif", noise[:, 150:], -9999, west=150, compress="deflate")
    save("far.tif", noise[:, 250:], -9999, west=250)
    save("large.tif", np.where(np.arange(300)[:, None] == 250, 1e12, noise), -9999, **tiled)
    save("cut.tif", noise, -9999, blockysize=1)
    save("keep.tif", ((rng.random(noise.shape) < 0.001) & (noise > 0)).astype(np.uint8), 0)
    save("masked.tif", hills, None, **tiled)
    with rasterio.open(folder / "masked.tif", "r+") as file:
        file.write_mask(hills > 100)
    data = (folder / "cut.tif").read_bytes()
    (folder / "cut.tif").write_bytes(data[: len(data) * 4 // 5])
    save("noise.asc", noise, -9999, driver="AAIGrid", crs=None)
    lines = "\n".join(" ".join("*" if v == -9999 else f"{v:.2f}" for v in row) for row in noise)
    head = "north: 4009000\nsouth: 4000000\neast: 609900\nwest: 600000\nrows: 300\ncols: 330\n"
    (folder / "noise.grass").write_text(f"{head}null: *\ntype: float\n{lines}\n")
    for path in folder.iterdir():
        os.utime(path, (10**9, 10**9))


def record_conversions(block: int) -> dict[str, object]:
    """What conversions, exports and networks leave, print and report."""
    found: dict[str, object] = {}
    here = Path.cwd()
    folder = Path(tempfile.gettempdir()) / "terrain_gpu-matrix"
    folder.mkdir()
    try:
        os.chdir(folder)
        sources(folder)
        for number, words in enumerate(CONVERSIONS):
            if words.startswith("export") and not Path("s.zarr/mst").exists():
                call("compute-mst s.zarr --overwrite")
            command = words.replace("{block}", f"--block-size {block}")
            for way in ("fresh", "stopped", "resumed") if words in STOPPED else ("fresh",):
                again = " --resume" * (way == "resumed" and "convert" in words)
                found[f"{block} {number} {way}: {words}"] = told(
                    f"{command}{again}", stop=0.4 if way == "stopped" else None
                )
    finally:
        os.chdir(here)
        shutil.rmtree(folder)
    return found


def told(words: str, *, stop: float | None) -> dict[str, object]:
    """What a command leaves, prints and reports."""
    messages: list[str] = []
    seen: list[tuple[int, int]] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    log = logging.getLogger("terrain_gpu")
    log.addHandler(handler)
    Path("r.json").unlink(missing_ok=True)
    try:
        error = call(f"{words} --json r.json", stop=stop, seen=seen)
    finally:
        log.removeHandler(handler)
    report = {"error": error} if error else json.loads(Path("r.json").read_text())
    messages = [m for m in messages if not m.startswith("compiling")]
    progress = [sum(cells for cells, _ in seen), *sorted({total for _, total in seen})]
    # How much a stopped run has done depends on how its threads are scheduled.
    part = "finished blocks are kept", "cannot resume"
    whole = stop is None and not any(words in error for words in part)
    return {
        "report": of_report(report),
        "messages": of_report(messages),
        "files": state() if whole else {},
        "progress": progress if whole and "--resume" not in words else [],
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


def call(
    words: str, *, stop: float | None = None, seen: list[tuple[int, int]] | None = None
) -> str:
    """Run a command here; return the name of the error it raised, and its text if shown."""
    from terrain_gpu import progress

    done = 0.0
    name, *more = shlex.split(words)

    def halt(cells: int, total: int) -> None:
        nonlocal done
        done += cells / total
        if seen is not None:
            seen.append((cells, total))
        if stop is not None and done >= stop:
            raise KeyboardInterrupt

    bar, progress.bar = progress.bar, _always(halt if (stop, seen) != (None, None) else silent)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            group.main([*([] if name == "terrain-gpu" else [name]), *more], standalone_mode=False)
    except (KeyboardInterrupt, SystemExit, Exception) as error:
        name = type(error).__name__
        return name if seen is None else f"{name}: {error}".replace(os.getcwd(), "")
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
    # Metadata name the cells' source, so all recordings need the same folder and times.
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
    parser.add_argument("--conversions", action="store_true", help="record these instead")
    given = parser.parse_args()
    found: dict[str, object] = {}
    for block in given.blocks:
        found |= record_conversions(block) if given.conversions else record(block, given.backend)
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
