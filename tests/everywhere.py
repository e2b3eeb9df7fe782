"""One line for every command of a store, and what the lines are given: see test_everywhere.py."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import click
import numpy as np
import rasterio
from scipy import ndimage

from terrain_gpu.cli.main import group

COMMANDS = """
convert-dataset {raster} {store} --block-size 64
calc {store} "where(elevation > {middle}, 2, 0.5)" --into friction
rasterize {store} --features {folder}/rivers.geojson --into rivers -o {out}/rivers.tif
calc {store} rivers --reclass {folder}/classes.csv --into classes
burn {store} --streams {folder}/rivers.geojson --depth 3
breach {store} --max-distance 9 --lines {out}/cuts.geojson
slope {store} --aspect aspect -o {out}/slope.tif
label-components {store} --where "elevation > {middle}" --table {out}/components.csv
polygons {store} {out}/polygons.geojson --layer components
contours {store} {out}/contours.geojson --interval {interval}
contours {store} {out}/areas.geojson --interval {interval} --polygons
compute-mst {store}
accumulate {store} --directions paths
network {store} {out}/lines.geojson --min-length {length}
layers {store} remove paths accumulation mst
compute-mst {store} --weight flow
flow-direction {store}
flow-direction {store} --flats gradient --into gradient
fill {store} --into filled_by_hand
fill {store} --epsilon --into sloped
flow-accumulation {store}
flow-accumulation {store} --areas --into areas
flow-accumulation {store} --weights friction --into weighted
flow-accumulation {store} --method dinf --into divided
terrain-indices {store} --twi twi --spi spi --ls ls --accumulation areas
basins {store} --table {out}/basins.csv
depressions {store} --table {out}/depressions.csv --min-depth 2 --conditioned flat
fill-spill-merge {store} --rain friction --table {out}/water.csv
streams {store} --threshold 90 --lines {out}/streams.geojson
streams {store} --threshold 90 --order link --into links
hand {store} --threshold 90 --distance far
hand {store} --threshold 90 --method dinf --into averages
watershed {store} --links links --table {out}/watersheds.csv
compute-sssp {store} {a} --into from_a --backlink {out}/b.tif --allocation {out}/a.tif
compute-sssp {store} {b} --into from_b --cost tobler --connectivity 16 --path {out}/p.geojson {to}
compute-sssp {store} {a} --into ties --all-ties {out}/ties.tif
compute-sssp {store} {b} --into by_friction --cost friction --friction friction --overwrite
corridor {store} from_a by_friction --within 5% -o {out}/corridor.tif
corridor {store} {b} {to} --friction friction --cost friction --into between -o {out}/between.tif
corridor {store} {a} {b} --pairs all --cost surface --into among --within 5% --table {out}/among.csv
cost-matrix {store} {a} {b} --path {out}/ways.geojson -o {out}/matrix.csv
least-cost-network {store} {a} {b} --pairs delaunay -o {out}/net.geojson --table {out}/net.csv
build-index {store}
query-index {store} --from-rowcol {one} --to-rowcol {other} -o {out}/pairs.csv
overviews {store} --layer elevation
overviews {store} --layer links --resampling mode
export {store} {out}/heights.tif
layers {store} remove averages --json {out}/layers.json
info {store}
verify {store} --backend cpu
plan {store} --for mst
"""
ALONE = {"export", "query-index", "info", "layers", "plan"}
"""Commands that do not use workers."""
ELSEWHERE = {"compile", "demo", "help", "map"}
"""Commands without a store, or that write nothing."""
UNLIKE = {"out: layers.json"}
"""Files that tell times and places."""


CORE = {"convert-dataset", "compute-mst", "flow-direction", "basins", "compute-sssp", "export"}
"""Commands for every raster, if they need no others."""


def words_of(where: dict[str, Any]) -> list[list[str]]:
    return [shlex.split(line.format(**where)) for line in COMMANDS.strip().splitlines()]


def has_workers(name: str) -> bool:
    command = group.get_command(click.Context(group), name)
    return name != "plan" and any(one.name == "workers" for one in command.params)


def prepare(
    folder: Path, source: Path, side: int | None = None, dtype: str | None = None
) -> dict[str, Any]:
    """A raster or its middle, at most so many cells wide and high, and what commands name."""
    with rasterio.open(source) as file:
        height, width = min(file.height, side or file.height), min(file.width, side or file.width)
        place = (file.width - width) // 2, (file.height - height) // 2
        window = rasterio.windows.Window(*place, width, height)
        data = file.read(1, window=window)
        data = data.astype(dtype or data.dtype)
        how = {"crs": file.crs, "transform": file.window_transform(window), "nodata": file.nodata}
    raster = folder / "dem.tif" if side else source
    if side:
        size = {"height": height, "width": width, "count": 1, "dtype": data.dtype}
        with rasterio.open(raster, "w", driver="GTiff", **size, **how) as file:
            file.write(data, 1)
    corners = [
        rasterio.transform.xy(how["transform"], *cell) for cell in ((0, 0), (height - 1, width - 1))
    ]
    good = np.isfinite(data) & (data != how["nodata"])
    parts, _ = ndimage.label(good)  # one island for both sources
    cells = np.argwhere(parts == 1 + np.argmax(np.bincount(parts.ravel())[1:]))
    one, other = (",".join(map(str, cells[int(share * len(cells))])) for share in (0.2, 0.7))
    line = {"type": "LineString", "coordinates": corners}
    features = [{"type": "Feature", "properties": {}, "geometry": line}]
    crs = how["crs"] and {"type": "name", "properties": {"name": how["crs"].to_string()}}
    rivers = {"type": "FeatureCollection", "features": features, "crs": crs}
    (folder / "rivers.geojson").write_text(json.dumps(rivers))
    (folder / "classes.csv").write_text("class,value\n0,7\n1,\n")
    found = {"folder": folder, "raster": raster, "one": one, "other": other}
    found |= {"a": f"--source-rowcol {one}", "b": f"--source-rowcol {other}"}
    found |= {"to": f"--target-rowcol {one}", "middle": float(np.median(data[good]))}
    found |= {"interval": max(np.ptp(data[good]) / 7, 1e-3), "length": how["transform"].a * 5}
    found |= {"cells": data.size}
    return found | {"store": folder / "s.zarr", "out": folder / "out"}
