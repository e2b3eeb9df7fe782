"""Every command on workers and in object storage: byte for byte the files that it leaves on a disk.

A command that is new has to be named here.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import rasterio
import test_paths as of_paths
from bucket import files, objects
from cluster import processes
from samples import DEMS, ROOT, SAMPLE

from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.store import levels

pytestmark = pytest.mark.usefixtures("no_fsync_session")
no_fsync_session = of_paths.no_fsync_session

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
corridor {store} {a} {to} --friction friction --cost friction --into between -o {out}/between.tif
cost-matrix {store} {a} {b} --path {out}/ways.geojson -o {out}/matrix.csv
least-cost-network {store} {a} {b} --pairs delaunay -o {out}/net.geojson --table {out}/net.csv
build-index {store}
query-index {store} --from-rowcol {one} --to-rowcol {other} -o {out}/pairs.csv
overviews {store} --layer elevation --layer links --resampling mode
export {store} {out}/heights.tif
layers {store} remove averages --json {out}/layers.json
info {store}
verify {store} --backend cpu
plan {store} --for mst
"""
ALONE = {"export", "query-index", "info", "layers", "plan"}
"""Commands that do not use workers."""
ELSEWHERE = {"compile", "demo", "map"}
"""Commands without a store, or that write nothing."""
UNLIKE = {"out: layers.json"}
"""Files that tell times and places."""


CORE = {"convert-dataset", "compute-mst", "flow-direction", "basins", "compute-sssp", "export"}
"""Commands for every raster, if they need no others."""


@pytest.fixture(autouse=True, scope="module")
def levels_of_small_rasters():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(levels, "SMALLEST", 64)
        yield


def words_of(where: dict[str, Any]) -> list[list[str]]:
    return [shlex.split(line.format(**where)) for line in COMMANDS.strip().splitlines()]


def has_workers(name: str) -> bool:
    command = group.get_command(click.Context(group), name)
    return name != "plan" and any(one.name == "workers" for one in command.params)


def test_the_list_is_complete():
    named = {line.split()[0] for line in COMMANDS.strip().splitlines()}
    assert named | ELSEWHERE == set(group.list_commands(click.Context(group)))
    assert {name for name in named if not has_workers(name)} == ALONE


def test_the_guide_names_all():
    guide = (ROOT / "docs/how-to/cluster.md").read_text(encoding="utf-8")
    table, _, others = guide.partition("Install Dask")[0].partition("\n\n`export`")
    names = set(group.list_commands(click.Context(group)))
    on_workers = {name for name in names if has_workers(name)}
    assert {name for name in names if f"`{name}`" in table or f"`{name} " in table} == on_workers
    assert {name for name in names if f"`{name}`" in f"`export`{others}"} == names - on_workers


def test_the_reference_names_all():
    reference = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    told = reference.partition("#### Clusters")[2].partition("They need Dask")[0]
    names = {name for name in group.list_commands(click.Context(group)) if has_workers(name)}
    assert sorted(re.findall("`([a-z-]+)`", told)) == sorted(names)


def run_all(where: dict[str, Any], *more: str, core: bool = False) -> dict[str, bytes]:
    """Run all, and return the files of the store and those beside it."""
    out, report = Path(where["out"]), where["folder"] / "report.json"
    out.mkdir()
    for words in words_of(where):
        flow = words[0] != "compute-mst" or "flow" in words
        if core and not (words[0] in CORE and flow and not {"friction", "--path"} & set(words)):
            continue
        on_workers = more if has_workers(words[0]) else ()
        telling = [] if "--json" in words else ["--json", str(report)]
        command = [*words, *telling, *on_workers]
        code = options._guarded(lambda now=command: group.main(now, standalone_mode=False))
        assert code == 0, command
        if on_workers:
            assert json.loads(report.read_text())["settings"]["cluster"]["tasks"] > 0, command
    store = str(where["store"])
    found = objects(store) if "://" in store else files(Path(store))
    return {**found, **{f"out: {name}": data for name, data in files(out).items()}}


def assert_same_files(one: dict[str, bytes], other: dict[str, bytes]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one.keys() - UNLIKE if one[name] != other[name]] == []


def prepare(folder: Path, source: Path, side: int, dtype: str | None = None) -> dict[str, Any]:
    """The middle of a raster, at most so many cells wide and high, and what commands name."""
    with rasterio.open(source) as file:
        height, width = min(file.height, side), min(file.width, side)
        place = (file.width - width) // 2, (file.height - height) // 2
        window = rasterio.windows.Window(*place, width, height)
        data = file.read(1, window=window)
        data = data.astype(dtype or data.dtype)
        how = {"crs": file.crs, "transform": file.window_transform(window), "nodata": file.nodata}
    size = {"height": height, "width": width, "count": 1, "dtype": data.dtype}
    with rasterio.open(folder / "dem.tif", "w", driver="GTiff", **size, **how) as file:
        file.write(data, 1)
        corners = [file.xy(*cell) for cell in ((0, 0), (height - 1, width - 1))]
    good = np.isfinite(data) & (data != how["nodata"])
    cells = np.argwhere(good)
    one, other = (",".join(map(str, cells[int(share * len(cells))])) for share in (0.2, 0.7))
    line = {"type": "LineString", "coordinates": corners}
    features = [{"type": "Feature", "properties": {}, "geometry": line}]
    code = how["crs"].to_string() if how["crs"] else "EPSG:32633"
    crs = {"type": "name", "properties": {"name": code}}
    rivers = {"type": "FeatureCollection", "features": features, "crs": crs}
    (folder / "rivers.geojson").write_text(json.dumps(rivers))
    (folder / "classes.csv").write_text("class,value\n0,7\n1,\n")
    found = {"folder": folder, "raster": folder / "dem.tif", "one": one, "other": other}
    found |= {"a": f"--source-rowcol {one}", "b": f"--source-rowcol {other}"}
    found |= {"to": f"--target-rowcol {one}", "middle": float(np.median(data[good]))}
    found |= {"interval": max(np.ptp(data[good]) / 7, 1e-3), "length": how["transform"].a * 5}
    return found | {"store": folder / "s.zarr", "out": folder / "out"}


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """What the commands are given, and the files that they leave on a disk."""
    where = prepare(tmp_path_factory.mktemp("sample"), SAMPLE, 150, "float32")
    return where, run_all(where)


def test_on_workers(sample, tmp_path, cluster):
    where, expected = sample
    where = {**where, "store": tmp_path / "s.zarr", "out": tmp_path / "out"}
    found = run_all(where, "--scheduler", cluster.scheduler.address)
    assert_same_files(expected, found)


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"], indirect=True)
def test_in_a_bucket(sample, tmp_path, bucket):
    where, expected = sample
    where = {**where, "store": f"{bucket}/deep/s.zarr", "out": tmp_path / "out"}
    assert_same_files(expected, run_all(where))
    assert list((tmp_path / "scratch").iterdir()) == []


def test_real_rasters(tmp_path, bucket):
    """The middle of each, on three workers in a bucket."""
    with processes(3) as client:  # they know the bucket
        scheduler = "--scheduler", client.scheduler.address
        # The sample's commands, and more, are tested above.
        for source in [one for one in DEMS.glob("*.*") if one.suffix != ".md"] or [SAMPLE]:
            (folder := tmp_path / source.name).mkdir()
            where = prepare(folder, source, 100)
            expected = run_all(where, core=True)
            there = {"store": f"{bucket}/{source.name}.zarr", "out": folder / "there"}
            assert_same_files(expected, run_all({**where, **there}, *scheduler, core=True))
