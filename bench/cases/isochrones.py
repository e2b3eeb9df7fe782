"""How fast are isochrones compared with GDAL, and paths with GRASS r.path?

Seconds of walking over fractal terrain become bands and lines at quantiles, in GeoPackages: by
`contours`, by gdal_contour, and, as areas along the edges of cells, by gdal_polygonize of a
classified raster. Areas of bands are compared. With --grass, least-cost paths to random cells, by
ShortestPaths.paths and by r.path from the directions of r.cost, made before. Peers that are not
installed are left out (Debian: gdal-bin).
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

import numpy as np

from bench import peers
from bench.programs import command, process
from bench.stores import add_layer, cells_of
from bench.table import Table
from bench.terrain import kept
from bench.timing import timed
from terrain_gpu import calc, export_layer, shortest_paths


def areas_of(file: Path, layer: str, field: str) -> dict[float, float]:
    """Total area of the polygons of each value of a field, by GDAL."""
    query = f"SELECT {field} AS v, SUM(ST_Area(geom)) AS a FROM {layer} GROUP BY {field}"
    words = ["ogrinfo", str(file), "-dialect", "sqlite", "-sql", query]
    out = subprocess.run(words, check=True, capture_output=True, text=True).stdout
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
    table = Table("bands or lines | s | s of processors | MB")

    def row(what: str, words: list[str], file: Path) -> bool:
        """Add what a program takes, if there is one."""
        if shutil.which(words[0]) is None:
            return False
        file.unlink(missing_ok=True)
        spent, _ = process(words, stdout=subprocess.DEVNULL)
        table.row(what, *spent, file.stat().st_size / 1e6)
        return True

    breaks = ",".join(map(repr, levels))
    ours = command("contours", store, mine, "-q", "--layer", "distance", "--breaks", breaks)
    row("contours, bands", [*ours, "--polygons"], mine)
    fixed = ["-fl", *map(repr, levels), str(tif), str(theirs)]
    row("gdal_contour, bands", ["gdal_contour", "-p", "-amax", "upper", *fixed], theirs)
    peer = ["gdal_polygonize.py", str(classes), "-f", "GPKG", str(cells), "cells", "band"]
    if row("gdal_polygonize of classes", peer, cells):
        own, other = areas_of(mine, "contours", "upper"), areas_of(cells, "cells", "band")
        right = [other[k] for k in range(len(levels))]
        assert np.allclose([own[level] for level in levels], right, rtol=1e-9)
    row("contours, lines", ours, mine)
    row("gdal_contour, lines", ["gdal_contour", "-a", "level", *fixed], theirs)


def paths(store: Path, work: Path, cells: np.ndarray, count: int) -> None:
    """Cells of paths to random cells, and r.path from directions of r.cost."""
    side, middle = len(cells), len(cells) // 2
    ends = np.random.default_rng(3).integers(0, side, (count, 2)).tolist()
    how = {"cost": "friction", "friction": "elevation", "backlink": True, "overwrite": True}
    found = shortest_paths(store, [(middle, middle)], **how, into="cost")
    spent, lines = timed(found.paths, [tuple(end) for end in ends], [(middle, middle)])
    table = Table(f"{count} paths | s | s of processors | cells")
    table.row("ShortestPaths.paths", *spent, sum(len(line.cells) for line in lines))
    if peers.has_grass():
        points = "\n".join(f"{c + 0.5}|{side - r - 0.5}" for r, c in ends)
        (work / "points").write_text(points)
        at = f"{middle + 0.5},{side - middle - 0.5}"
        prepare = [
            "v.in.ascii input=points output=ends format=point x=1 y=2 --q",
            f"r.cost input=z output=d outdir=dir start_coordinates={at} --q",
        ]
        walk = "r.path input=dir format=degree vector_path=lines start_points=ends --q"
        table.row("r.path", *peers.grass(work, cells, prepare, walk), "")


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--breaks", type=int, default=8)
    parser.add_argument("--paths", type=int, default=1000)
    parser.add_argument("--grass", action="store_true", help="paths, too")


def run(given: argparse.Namespace) -> None:
    """Print the tables."""
    side, cells = given.side, kept(given.work, "f", given.side)
    store = given.work / f"isochrones{side}.zarr"
    if not store.exists():
        add_layer(store, cells)
    shortest_paths(store, [(side // 2, side // 2)], cost="tobler", overwrite=True)
    some = cells_of(store, "distance")[:: max(1, side // 512), :: max(1, side // 512)]
    shares = np.linspace(0, 0.9, given.breaks + 1)[1:]
    isochrones(store, given.work, [round(float(q), 1) for q in np.nanquantile(some, shares)])
    if given.grass:
        print()
        paths(store, given.work, cells, given.paths)
