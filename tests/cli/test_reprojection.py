"""Positions without longitude and latitude: every command that writes or proves GeoJSON."""

from __future__ import annotations

import re
import shlex

import click
import numpy as np
import pytest
from rasterio.crs import CRS
from samples import ROOT, make_layers
from test_wrong_inputs import call, quietly, snapshot

from terrain_gpu import GridSpec
from terrain_gpu.cli.main import group
from terrain_gpu.errors import ReprojectionError
from terrain_gpu.io.reprojection import to_lonlat

BEFORE = """
label-components s --where "elevation > 50"
compute-mst t
accumulate t --directions forest
flow-accumulation s
compute-sssp s {a} --path p.fgb {b}
build-index s
"""
WRITERS = """
contours s out.geojson --interval 40
contours s out.geojson --interval 40 --polygons
polygons s out.geojson --layer components
label-components s --where "elevation > 20" --into other --table out.geojson
network t out.geojson --min-length 1
breach s --max-distance 9 --lines out.geojson
basins s --table out.geojson
depressions s --table out.geojson
fill-spill-merge s --rain 1 --table out.geojson
watershed s --pour-point-rowcol 20,20 --table out.geojson
streams s --threshold 5 --lines out.geojson
compute-sssp s {a} --into d --path out.geojson {b}
cost-matrix s {a} {b} --path out.geojson -o costs.csv
least-cost-network s {a} --source-rowcol 20,30 -o out.geojson
query-index s --from-rowcol 3,4 --to-rowcol 20,30 --path out.geojson -o pairs.csv
"""
ENDS = {"a": "--source-rowcol 3,4", "b": "--target-rowcol 20,30"}
STORED = {"contours", "polygons", "streams", "compute-sssp"}
"""Commands whose files `verify` proves."""


def commands(text):
    return text.format(**ENDS).strip().splitlines()


def make(folder, x, cells):
    """A store whose left edge is at x, in metres."""
    grid = GridSpec(*cells.shape, (100.0, 0.0, x, 0.0, -100.0, 5e6), CRS.from_epsg(32633).to_wkt())
    for name in "st":
        make_layers(folder / name, grid, {"elevation": cells})


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Folders with equal stores, within the range of the projection and beyond it."""
    cells = np.random.default_rng(3).integers(0, 100, (40, 45)).astype(np.float32)
    found = []
    with pytest.MonkeyPatch.context() as patch:
        for x in (5e5, 2.1e7):
            found.append(tmp_path_factory.mktemp("world"))
            make(found[-1], x, cells)
            patch.chdir(found[-1])
            assert [quietly(line) for line in commands(BEFORE)] == [0] * 6
    return found


def test_all_writers_are_named():
    context = click.Context(group)
    there = {
        name
        for name in group.list_commands(context)
        for one in group.get_command(context, name).params
        if ".geojson" in f"{one.metavar} {getattr(one, 'help', '')}" and "--file" not in one.opts
    }
    assert there == {line.split()[0] for line in commands(WRITERS)}


def test_coordinates_are_transformed_in_one_place():
    transforms = re.compile(r"import (?:warp|pyproj)\b|rasterio\.warp|pyproj\.")
    files = (ROOT / "terrain_gpu").rglob("*.py")
    assert [path.name for path in files if transforms.search(path.read_text())] == [
        "reprojection.py"
    ]


@pytest.mark.parametrize("line", commands(WRITERS))
def test_refused_alike_in_writing_and_in_proofs(line, stores, monkeypatch, capfd):
    near, far = stores
    monkeypatch.chdir(far)
    before = snapshot(far)
    proven = ["", " --verify"] if "query-index" not in line else [""]
    for more in proven:
        code, _, told = call(capfd, f"{line} --overwrite{more}")
        assert code == 2, told
        assert re.fullmatch(
            r"(?:WARNING.*\n)*Error: \S*out\.geojson: the position \(2\d{7}\.\d+, \d{7}\.\d+\) in "
            r"EPSG:32633 cannot be reprojected to longitude and latitude, which GeoJSON needs; "
            r"write a GeoPackage \(\.gpkg\)\n",
            told,
        ), told
    assert not [name for name in snapshot(far).keys() - before.keys() if name.endswith("geojson")]
    if shlex.split(line)[0] not in STORED:
        return
    monkeypatch.chdir(near)
    assert call(capfd, f"{line} --overwrite")[0] == 0
    (near / "out.geojson").rename(far / "near.geojson")
    monkeypatch.chdir(far)
    code, _, told = call(capfd, f"verify s --file near.geojson {layer_of(line)}")
    assert code in (1, 2)
    assert "Error: near.geojson: " in told
    assert "unexpected" not in told


def layer_of(line):
    if line.startswith("polygons"):
        return "--layer components"
    if line.startswith("compute-sssp"):
        return "--layer distance"
    return ""


def test_only_what_is_written_must_be_in_range(tmp_path, monkeypatch, capfd):
    make(tmp_path, 2.1e7, np.arange(300, dtype=np.float32)[None])
    monkeypatch.chdir(tmp_path)
    code, told, _ = call(capfd, "contours s out.geojson --interval 40 --verify")
    assert (code, told[:32]) == (0, "out.geojson: 0 lines of 0 levels")


@pytest.mark.parametrize("x", [np.nan, np.inf, 1e300])  # of the last, PROJ would not come back
def test_no_map_reaches_so_far(x):
    mercator = CRS.from_epsg(3857)
    xy = np.array([(0.0, 0.0), (1.0, 1.0), (x, 0.0), (x, x)])
    with pytest.raises(
        ReprojectionError, match=r"\((nan|inf|1e\+300), 0\.0\) in EPSG:3857"
    ) as told:
        to_lonlat(xy, mercator)
    assert told.value.number == 2
