"""Benchmark of isochrones beside GDAL, and of paths beside GRASS r.path.

    python scripts/bench_isochrones.py [--side 4096] [--breaks 8] [--paths 1000] [--grass]
                                       [--work FOLDER]

Seconds of walking over the terrain of bench_sssp.py become bands and lines at quantiles, in
GeoPackages: by `contours`, by gdal_contour, and, as areas along the edges of cells, by
gdal_polygonize of a classified raster. Processor seconds of each process are told, and wall
seconds, which depend on what else runs. Areas of bands are compared. With --grass, least-cost paths
to random cells, by ShortestPaths.paths and by r.path from the directions of r.cost, made before.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import rasterio
from bench_convert import versions
from bench_sssp import raster, store_of

from terrain_gpu import calc, export_layer, shortest_paths

CONTOURS = "from terrain_gpu.cli.main import group; group()"


def timed(command: list[str]) -> tuple[float, float]:
    """Processor and wall seconds of a process."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def told(what: str, seconds: tuple[float, float], file: Path) -> None:
    size = file.stat().st_size / 1e6
    print(f"{what}: processors {seconds[0]:.1f} s, wall {seconds[1]:.1f} s, {size:.0f} MB",
          flush=True)  # fmt: skip


def areas_of(file: Path, layer: str, field: str) -> dict[float, float]:
    """Total area of the polygons of each value of a field, by GDAL."""
    query = f"SELECT {field} AS v, SUM(ST_Area(geom)) AS a FROM {layer} GROUP BY {field}"
    out = subprocess.run(
        ["ogrinfo", str(file), "-dialect", "sqlite", "-sql", query],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    numbers = [float(line.split("=")[1]) for line in out.splitlines() if " = " in line]
    return dict(zip(numbers[::2], numbers[1::2], strict=True))


def isochrones(store: Path, work: Path, levels: list[float]) -> None:
    """Bands and lines of the layer distance."""
    tif, classes = work / "distance.tif", work / "classes.tif"
    export_layer(store, tif, layer="distance", overwrite=True)
    bands = " + ".join(f"(distance > {level!r})" for level in levels)
    calc(store, bands, into="bands", dtype="uint8", overwrite=True)
    export_layer(store, classes, layer="bands", overwrite=True)
    mine, theirs, cells = (work / f"{name}.gpkg" for name in ("mine", "theirs", "cells"))
    breaks = ",".join(map(repr, levels))
    command = [sys.executable, "-c", CONTOURS, "contours", str(store), str(mine), "-q"]
    command += ["--layer", "distance", "--overwrite", "--breaks", breaks]
    for areas in (True, False):
        kind = "bands" if areas else "lines"
        told(f"contours, {kind}", timed([*command, *(["--polygons"] if areas else [])]), mine)
        theirs.unlink(missing_ok=True)
        peer = ["gdal_contour", *(["-p", "-amax", "upper"] if areas else ["-a", "level"])]
        peer += ["-fl", *breaks.split(","), str(tif), str(theirs)]
        told(f"gdal_contour, {kind}", timed(peer), theirs)
        if areas:
            cells.unlink(missing_ok=True)
            peer = ["gdal_polygonize.py", str(classes), "-f", "GPKG", str(cells), "cells", "band"]
            told("gdal_polygonize of classes", timed(peer), cells)
            own, other = areas_of(mine, "contours", "upper"), areas_of(cells, "cells", "band")
            right = [other[k] for k in range(len(levels))]
            assert np.allclose([own[level] for level in levels], right, rtol=1e-9)
            print(f"areas of {len(levels)} bands are those of gdal_polygonize", flush=True)


def paths(store: Path, work: Path, data: np.ndarray, count: int) -> None:
    """Cells of paths to random cells, beside r.path from directions of r.cost."""
    side, rng = len(data), np.random.default_rng(3)
    ends = rng.integers(0, side, (count, 2))
    middle = side // 2, side // 2
    how = {"cost": "friction", "friction": "elevation", "backlink": True, "overwrite": True}
    found = shortest_paths(store, [middle], **how, into="cost")
    before, start = time.process_time(), time.perf_counter()
    lines = found.paths([tuple(map(int, end)) for end in ends], [middle])
    used, wall = time.process_time() - before, time.perf_counter() - start
    vertices = sum(len(line.cells) for line in lines)
    print(f"{count} paths, {vertices:,} cells: processors {used:.2f} s, wall {wall:.2f} s")
    np.asarray(data, np.float64).tofile(work / "f")
    region = f"north={side} south=0 east={side} west=0 rows={side} cols={side}"
    points = "\n".join(f"{c + 0.5}|{side - r - 0.5}" for r, c in ends.tolist())
    (work / "points").write_text(points)
    script = f"""set -e
r.in.bin -d input={work}/f output=f anull=nan {region} --q
g.region raster=f
v.in.ascii input={work}/points output=ends format=point x=1 y=2 --q
r.cost input=f output=d outdir=dir start_coordinates={side // 2 + 0.5},{side - side // 2 - 0.5} --q
times
r.path input=dir format=degree vector_path=lines start_points=ends --q
times
"""
    command = ["grass", "--tmp-location", "XY", "--exec", "bash", "-c", script]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines_of_times = [line for line in out.splitlines() if "m" in line and line.endswith("s")]
    print(f"r.path: shell and its children before and after: {lines_of_times}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--breaks", type=int, default=8)
    parser.add_argument("--paths", type=int, default=1000)
    parser.add_argument("--grass", action="store_true")
    parser.add_argument("--work", type=Path, default=Path("bench-work"))
    arguments = parser.parse_args()
    work, side = arguments.work.absolute(), arguments.side
    work.mkdir(parents=True, exist_ok=True)
    for tool in ("gdal_contour", "gdal_polygonize.py", "ogrinfo"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is missing: install gdal-bin")
    data = raster(work, "f", side)
    store = store_of(work, "f", data)
    shortest_paths(store, [(side // 2, side // 2)], cost="tobler", overwrite=True)
    export_layer(store, work / "distance.tif", layer="distance", overwrite=True)
    with rasterio.open(work / "distance.tif") as file:
        some = file.read(1, out_shape=(512, 512))
    shares = np.linspace(0, 0.9, arguments.breaks + 1)[1:]
    isochrones(store, work, [round(float(q), 1) for q in np.nanquantile(some, shares)])
    if arguments.grass:
        paths(store, work, data, arguments.paths)
    print(versions(), f"load {os.getloadavg()[0]:.0f}")


if __name__ == "__main__":
    main()
