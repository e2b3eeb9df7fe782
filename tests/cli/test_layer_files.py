"""Files in place of layers: the same results as from layers made of them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess

import numpy as np
import pytest
import rasterio
from contract import make_store
from rasterio.transform import Affine
from test_cli import call, terrain, write_tif

from terrain_gpu import GridSpec, TileStore
from terrain_gpu.io.places import as_places
from terrain_gpu.raster.rasterize.operation import open_corner


def write_lines(path, *lines):
    features = [
        {
            "type": "Feature",
            "properties": {},
            "geometry": {"type": "LineString", "coordinates": line},
        }
        for line in lines
    ]
    crs = {"type": "name", "properties": {"name": "EPSG:32633"}}
    found = {"type": "FeatureCollection", "crs": crs, "features": features}
    path.write_text(json.dumps(found))


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = terrain(90, 110)
    write_tif("dem.tif", cells.astype(np.int16), nodata=-32768)
    rng = np.random.default_rng(1)
    write_tif("land cover.tif", rng.integers(1, 9, cells.shape).astype(np.float32), nodata=-1)
    walls = np.zeros(cells.shape, np.uint8)
    walls[10:80, 30] = 1
    write_tif("walls.tif", walls)
    write_lines(tmp_path / "rivers.geojson", [[-200, 850], [-190, 120]], [[0, 850], [300, 800]])
    return tmp_path


@pytest.mark.parametrize("barriers", ["walls.tif", "rivers.geojson"])
def test_as_from_layers(world, capfd, barriers):
    made = [
        "convert-dataset dem.tif s.zarr",
        "convert-dataset 'land cover.tif' s.zarr --layer land_cover",
        "convert-dataset walls.tif s.zarr --layer walls",
        "rasterize s.zarr --features rivers.geojson --into rivers",
        f"compute-sssp s.zarr --friction land_cover --barriers {barriers.partition('.')[0]} "
        "--source-rowcol 50,60 --target-rowcol 80,5 --cost friction -o own.tif --path own.geojson",
        "convert-dataset dem.tif t.zarr",
    ]
    for command in made:
        assert call(capfd, command)[0] == 0
    rest = (
        f"--friction 'land cover.tif' --barriers {barriers} --source-rowcol 50,60 "
        "--target-rowcol 80,5 --cost friction"
    )
    for number, data in enumerate(("t.zarr", "dem.tif", "dem.tif --store k.zarr", "k.zarr")):
        into = "--into again" if data == "k.zarr" else ""
        command = f"compute-sssp {data} {rest} {into} -o {number}.tif --path {number}.geojson"
        code, out, err = call(capfd, f"{command} --json {number}.json")
        assert code == 0, err
        result = json.loads((world / f"{number}.json").read_text())["result"]
        assert (result["friction"], result["barriers"]) == ("land cover.tif", barriers)
        assert ".terrain-gpu" not in out + err + json.dumps(result)
        assert (world / f"{number}.geojson").read_bytes() == (world / "own.geojson").read_bytes()
        with rasterio.open("own.tif") as own, rasterio.open(f"{number}.tif") as file:
            assert own.read(1).tobytes() == file.read(1).tobytes()
    assert not list(world.glob(".terrain-gpu-*"))
    wall = barriers.partition(".")[0]
    found = {"distance", "backlink", "again", "again_backlink"}
    assert set(TileStore.open("k.zarr").layers) == {"elevation", "land_cover", wall} | found


@pytest.mark.parametrize(
    "command",
    [
        "cost-matrix {} --source-rowcol 50,60 --target-rowcol 80,5 -o {}.csv",
        "corridor {} --source-rowcol 50,60 --target-rowcol 80,5 -o {}.tif",
        "least-cost-network {} --source-rowcol 50,60 --source-rowcol 80,5 -o {}.geojson",
    ],
)
def test_of_other_commands(world, capfd, command):
    for words in (
        "convert-dataset dem.tif s.zarr",
        "convert-dataset 'land cover.tif' s.zarr --layer land_cover",
        "rasterize s.zarr --features rivers.geojson --into rivers",
    ):
        assert call(capfd, words)[0] == 0
    own = command.format("s.zarr", "own") + " --friction land_cover --barriers rivers"
    files = command.format("dem.tif", "files")
    files += " --friction 'land cover.tif' --barriers rivers.geojson"
    for words in (own, files):
        code, _, err = call(capfd, f"{words} --cost friction")
        assert code == 0, err
    (one,), (two,) = world.glob("own.*"), world.glob("files.*")
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize("command", ["compute-sssp", "cost-matrix", "corridor"])
def test_a_river_through_corners_is_told(world, capfd, caplog, command):
    """Diagonally from centre to centre, as flow directions lead: each step is through a corner."""
    with rasterio.open("dem.tif") as file:
        centres = [file.xy(k, k) for k in range(90)]
    write_lines(world / "diagonal.geojson", centres)
    out = "t.csv" if command == "cost-matrix" else "t.tif"
    ends = "--source-rowcol 80,2 --target-rowcol 2,80"
    ends += " --stop-at-targets" if command == "compute-sssp" else ""
    for more, told in (("", 1), ("--no-corner-cutting", 0), ("--connectivity 4", 0)):
        line = f"{command} dem.tif {ends} --barriers diagonal.geojson {more} -o {out} --overwrite"
        caplog.clear()
        code, _, err = call(capfd, line)
        assert code == 0, err
        assert caplog.text.count("--no-corner-cutting forbids it") == told, caplog.text
    caplog.clear()
    write_lines(world / "beside.geojson", [[x + 1.7, y] for x, y in centres])
    assert call(capfd, line.replace("diagonal", "beside").replace("--connectivity 4", ""))[0] == 0
    assert "corner" not in caplog.text


def test_the_first_open_corner_is_found(tmp_path):
    rng = np.random.default_rng(4)
    for share in (0.02, 0.1, 0.5):
        marked, void = rng.random((7, 5)) < share, rng.random((7, 5)) < 0.2
        make_store(tmp_path / f"{share}.zarr", np.where(void, -1, 3).astype(np.int16), -1, 64)
        heights = TileStore.open(tmp_path / f"{share}.zarr").layer("elevation")
        closed = marked | void
        places = as_places(GridSpec(7, 5), np.argwhere(marked), "cells")
        expected = next(
            (
                (r, c)
                for r, c in np.argwhere(marked[:-1]).tolist()
                for d in (c - 1, c + 1)
                if 0 <= d < 5 and marked[r + 1, d] and not (closed[r + 1, c] or closed[r, d])
            ),
            None,
        )
        assert open_corner(places, heights) == expected


PAIR = "--source-rowcol 50,60 --source-rowcol 80,5"
COSTED = {
    "compute-sssp": "compute-sssp s.zarr --source-rowcol 50,60 -o {}.tif",
    "cost-matrix": f"cost-matrix s.zarr {PAIR} -o {{}}.csv",
    "least-cost-network": f"least-cost-network s.zarr {PAIR} -o {{}}.geojson",
    "build-index": "build-index s.zarr",
    "plan": "plan s.zarr --for sssp",
}


@pytest.mark.parametrize("name", COSTED)
def test_friction_is_the_cost_where_none_is_given(world, capfd, name):
    for words in ("dem.tif s.zarr", "'land cover.tif' s.zarr --layer land_cover"):
        assert call(capfd, f"convert-dataset {words}")[0] == 0
    # As stated: the same for the first two, another for the third; without friction, heights.
    given = {
        "own": "--friction land_cover",
        "stated": "--friction land_cover --cost friction",
        "weighted": "--friction land_cover --cost absdiff",
        "heights": "",
        "climb": "--cost absdiff",
    }
    found, said = {}, {}
    for key, words in given.items():
        again = "" if name == "plan" else "--overwrite"
        code, out, err = call(capfd, f"{COSTED[name].format(key)} {words} {again} --json r.json")
        assert code == 0, err
        report = json.loads((world / "r.json").read_text())
        file = next(world.glob(f"{key}.*"), None)
        tables = "compute-sssp", "cost-matrix", "least-cost-network"
        found[key] = file.read_bytes() if name in tables else report["result"]
        said[key] = out + err
        if name == "build-index":
            shards = (world / "s.zarr/distance_index/c").rglob("*")
            found[key] = [one.read_bytes() for one in shards if one.is_file()]
    assert found["own"] == found["stated"]
    assert found["heights"] == found["climb"] != found["own"]
    if name != "plan":
        assert found["own"] != found["weighted"]
        assert [key for key in given if ", cost friction" in said[key]] == ["own"]


def test_a_formula_that_names_the_file(world, capfd):
    start = "compute-sssp dem.tif --friction 'land cover.tif' --source-rowcol 50,60"
    assert call(capfd, f"{start} --cost 'length * land_cover' -o a.tif")[0] == 0
    assert call(capfd, f"{start} --cost friction -o b.tif")[0] == 0
    with rasterio.open("a.tif") as one, rasterio.open("b.tif") as two:
        assert np.allclose(one.read(1), two.read(1), rtol=1e-12)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("--friction off.tif", "--friction: off.tif: covers x -500.0 .. 600.0, y "),
        ("--friction nix.tif", "--friction: nix.tif: no such file"),
        ("--friction land", "--friction land: "),
        ("--friction land", "has no layer 'land'; it has: elevation; name a file with its exten"),
        ("--barriers 2.5", "--barriers 2.5: "),
        ("--friction rivers.geojson", "a vector file, and frictions are a raster; `terrain-gpu ra"),
        ("--friction sub/elevation.tif", "layer 'elevation', which it would become, holds someth"),
        ("--friction walls.tif --barriers nix.gpkg", "--barriers: nix.gpkg: no such file"),
        ("--friction walls.tif -o walls.tif --overwrite", "--friction already names this file"),
    ],
)
@pytest.mark.parametrize("data", ["dem.tif", "s.zarr"])
def test_wrong(world, capfd, data, given, says):
    assert call(capfd, "convert-dataset dem.tif s.zarr")[0] == 0
    (world / "sub").mkdir()
    shutil.copy("walls.tif", "sub/elevation.tif")
    with rasterio.open("walls.tif") as file:
        profile = file.profile | {"transform": file.transform @ Affine.translation(0, 5)}
        with rasterio.open("off.tif", "w", **profile) as moved:
            moved.write(file.read())
    before = {*os.listdir(world), *os.listdir("s.zarr")}
    output = "" if "-o" in given else "-o x.tif"
    code, _, err = call(
        capfd, f"compute-sssp {data} {given} --cost friction --source-rowcol 5,6 {output}"
    )
    assert code == 2
    assert says in err
    assert {*os.listdir(world), *os.listdir("s.zarr")} - before <= {"walls"}


def test_the_command_that_aligns_a_raster(world, capfd):
    """Of any grid that gdalwarp can make; what it writes is taken."""
    if shutil.which("gdalwarp") is None:
        pytest.skip("needs gdalwarp")
    with rasterio.open("walls.tif") as file:
        profile = file.profile | {"transform": Affine(7.3, 0, -600.1, 0, -7.3, 950.7)}
        profile |= {"width": 190, "height": 150}
        with rasterio.open("off.tif", "w", **profile) as moved:
            moved.write(np.ones((1, 150, 190), np.uint8))
    words = "compute-sssp dem.tif --friction {} --cost friction --source-rowcol 5,6 -o x.tif"
    code, _, err = call(capfd, words.format("off.tif"))
    assert code == 2
    line = shlex.split(err.partition("first: ")[2])
    assert line[-1] == "off_fitted.tif"
    subprocess.run(line, check=True, capture_output=True)
    assert call(capfd, words.format("off_fitted.tif"))[0] == 0


def test_rasters_whose_rows_count_northwards(world, capfd):
    """Named as such, not by equal bounds; gdalwarp cannot make one."""
    with rasterio.open("walls.tif") as file:
        north = file.bounds.bottom
        profile = file.profile | {"transform": Affine(10, 0, file.bounds.left, 0, 10, north)}
        assert file.transform.e == -10
        with rasterio.open("turned.tif", "w", **profile) as turned:
            turned.write(file.read()[:, ::-1])
    words = "compute-sssp {} --friction {} --cost friction --source-rowcol 5,6 -o x.tif"
    code, _, err = call(capfd, words.format("dem.tif", "turned.tif"))
    assert code == 2
    assert "turned.tif: has its rows or columns in the opposite order; warp it" in err
    code, _, err = call(capfd, words.format("turned.tif", "walls.tif"))
    assert code == 2
    assert "walls.tif: has its rows or columns in the opposite order; the rows of the raster" in err
    assert call(capfd, words.format("turned.tif", "turned.tif"))[0] == 0


def test_a_raster_that_covers_less_and_has_no_nodata_value(world, capfd):
    """gdalwarp writes 0 there, which costs nothing."""
    with rasterio.open("walls.tif") as file:
        for name, nodata in (("bare.tif", None), ("told.tif", 255)):
            size = {"height": file.height - 3, "nodata": nodata}
            with rasterio.open(name, "w", **file.profile | size) as less:
                less.write(file.read()[:, :-3])
    words = "compute-sssp dem.tif --friction {} --cost friction --source-rowcol 5,6 -o x.tif"
    told = "cells that it does not cover become 0 (use -dstnodata"
    assert told in call(capfd, words.format("bare.tif"))[2]
    assert told not in call(capfd, words.format("told.tif"))[2]


def test_a_file_that_changed(world, capfd):
    """Its layer is not taken; the message tells how to remove it."""
    words = "compute-sssp dem.tif --friction walls.tif --source-rowcol 5,6 --store s.zarr"
    assert call(capfd, words)[0] == 0
    with rasterio.open("walls.tif") as file:
        profile, cells = file.profile, file.read()
    with rasterio.open("walls.tif", "w", **profile) as file:
        file.write(cells + 1)
    code, _, err = call(capfd, f"{words} --overwrite")
    assert code == 2
    line = re.search("if that is what the file was before, terrain-gpu (.*?);", err)[1]
    code, _, err = call(capfd, line)
    assert code == 0, err
    code, _, err = call(capfd, f"{words} --overwrite")
    assert code == 0, err


def test_no_command_makes_a_grid_that_counts_otherwise():
    for a, e in ((-1, -1), (1, 1)):
        assert GridSpec(2, 3, (a, 0, 0, 0, e, 0)).warp_command("a.tif") is None
    found = GridSpec(2, 3, (0.1, 0, 5, 0, -0.1, 7)).warp_command("in a folder/a b.img")
    assert shlex.split(found)[-2:] == ["in a folder/a b.img", "in a folder/a b_fitted.tif"]
    assert shlex.split(found)[1:6] == ["-te", "5.0", "6.8", repr(5 + 0.1 * 3), "7.0"]
