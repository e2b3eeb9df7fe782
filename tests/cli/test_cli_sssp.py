"""compute-sssp as a user meets it: options, files, reports, and wrong inputs one by one."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyogrio
import pytest
import rasterio
from programs import forked, spawn
from rasterio.transform import from_origin

import terrain_gpu
from terrain_gpu import shortest_paths
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.errors import InputError
from terrain_gpu.io.export import export_layer
from terrain_gpu.io.places import from_rowcol
from terrain_gpu.paths.cost.models import MODELS

ROWS, COLS, CELL = 150, 130, 10.0
WEST, NORTH = -500.0, 900.0
VOID = -9999
WALLED = 100, 20
"""A cell that the layer of barriers shuts in."""
NODATA = 5, 5
KEYS = [
    "command",
    "version",
    "cells",
    "valid_cells",
    "seconds",
    "bytes_read",
    "bytes_written",
    "peak_rss_bytes",
    "settings",
    "result",
]
OPTIONS = (
    "source source-rowcol sources source-edge cost friction barriers parameter reverse max-slope "
    "vertical-factor no-corner-cutting connectivity metric wrap max-cost target target-rowcol "
    "targets id-field target-id-field cost-field outside on-nodata snap stop-at-targets "
    "output dtype cog compress backlink allocation all-ties path layer into store memory-limit "
    "threads backend device gpu-memory-limit workers scheduler method build-index verify "
    "compress-layers resume scratch overwrite progress json quiet verbose version help help-all"
)


def call(capfd, command: str) -> tuple[int, str, str]:
    """Run a command of the group in this process: exit code, standard output, standard error."""
    capfd.readouterr()
    code = options._guarded(lambda: group.main(shlex.split(command), standalone_mode=False))
    return (code, *capfd.readouterr())


def fine(capfd, command: str) -> dict:
    """Run compute-sssp, which must succeed; return its report."""
    code, out, err = call(capfd, f"compute-sssp {command} --json -")
    assert code == 0, err
    return json.loads(out)


def heights() -> np.ndarray:
    """Smooth enough for walking, with a hole."""
    y, x = np.mgrid[:ROWS, :COLS] / 20
    rough = np.random.default_rng(3).normal(0, 1.5, (ROWS, COLS))
    data = (300 + 60 * np.sin(x) * np.cos(y) + rough).astype(np.int16)
    data[:20, :30] = VOID
    return data


def friction() -> np.ndarray:
    return np.random.default_rng(4).uniform(0.5, 4, (ROWS, COLS)).astype(np.float32)


def barriers() -> np.ndarray:
    data = np.zeros((ROWS, COLS), np.uint8)
    data[60, 10:] = 1  # a wall with one way around it
    row, col = WALLED
    data[row - 3 : row + 4, col - 3 : col + 4] = 1
    data[row - 2 : row + 3, col - 2 : col + 3] = 0
    np.fill_diagonal(data[80:110, 60:90], 1)  # corners to cut
    return data


def write_tif(path, data, *, crs="EPSG:32633", west=WEST, **profile) -> None:
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        height=data.shape[0],
        width=data.shape[1],
        count=1,
        dtype=data.dtype,
        crs=crs,
        transform=from_origin(west, NORTH, CELL, CELL),
        **profile,
    ) as out:
        out.write(data, 1)


def read_tif(path) -> np.ndarray:
    with rasterio.open(path) as data:
        return data.read(1)


def xy(row: float, col: float) -> tuple[float, float]:
    """Centre of a cell."""
    return WEST + (col + 0.5) * CELL, NORTH - (row + 0.5) * CELL


def write_points(path, points, **fields) -> None:
    """GeoJSON of (row, col), in the CRS of the raster."""
    features = [
        {
            "type": "Feature",
            "properties": {name: values[k] for name, values in fields.items()},
            "geometry": {"type": "Point", "coordinates": xy(*point)},
        }
        for k, point in enumerate(points)
    ]
    crs = {"type": "name", "properties": {"name": "EPSG:32633"}}
    Path(path).write_text(
        json.dumps({"type": "FeatureCollection", "crs": crs, "features": features})
    )


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    world = tmp_path_factory.mktemp("world")
    write_tif(world / "dem.tif", heights(), nodata=VOID)
    write_tif(world / "friction.tif", friction())
    write_tif(world / "walls.tif", barriers())
    for file, layer in (("dem", "elevation"), ("friction", "friction"), ("walls", "walls")):
        terrain_gpu.convert_dataset(
            [str(world / f"{file}.tif")], world / "s.zarr", layer=layer, block_size=64
        )
    write_points(world / "huts.geojson", [(30, 40), (140, 100)], id=[7, 9], cost=[0.0, 50.0])
    marks = np.zeros((ROWS, COLS), np.uint8)
    marks[30:33, 40] = 4
    marks[140, 100] = 6
    write_tif(world / "marks.tif", marks)
    return world


@pytest.fixture
def world(template, tmp_path, monkeypatch):
    """A fresh copy of the world, as the current folder."""
    shutil.copytree(template, tmp_path / "w")
    monkeypatch.chdir(tmp_path / "w")
    return tmp_path / "w"


def solved(sources, **how):
    """The same by the library, over arrays."""
    for name, data in (("friction", friction()), ("barriers", barriers())):
        if how.get(name):
            how[name] = data
    z = heights()
    if how.get("cost") == "friction":
        how.setdefault("friction", z)
    return shortest_paths(
        z,
        sources,
        nodata=VOID,
        cell_size=(CELL, CELL),
        backlink=True,
        allocation=True,
        **how,
    )


def layer(name: str) -> np.ndarray:
    found = terrain_gpu.TileStore.open("s.zarr").layer(name)
    return found.read_window(*found.grid.window)


# -- help ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["compute-sssp", "terrain-gpu compute-sssp"])
def test_help(name):
    done = spawn(f"{name} --help-all")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: {name} [OPTIONS] STORE|RASTER\n")
    assert max(map(len, done.stdout.splitlines())) <= 80
    shown = re.findall(r"^  (?:-\w, )?--([a-z-]+)", done.stdout, re.M)
    assert sorted(shown) == sorted(OPTIONS.split())
    assert spawn("compute-sssp --version").stdout == f"terrain_gpu {terrain_gpu.__version__}\n"


def test_help_names_the_parameters(capfd):
    code, out, _ = call(capfd, "compute-sssp --help")
    assert code == 0
    assert ", ".join(MODELS["langmuir"].parameters) in " ".join(out.split())


# -- the way through -----------------------------------------------------------------------------


def test_the_way_through_as_a_process(world):
    done = spawn(
        f"compute-sssp s.zarr --source {xy(30, 40)[0]},{xy(30, 40)[1]} --source-rowcol 140,100,25 "
        "--cost tobler -o d.tif --backlink b.tif --allocation a.tif --target-rowcol 149,0 "
        "--path p.geojson --json r.json"
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr or "compiling" in done.stderr
    assert re.fullmatch(
        r"s\.zarr: layers distance, backlink, allocation, 18,900 cells reached, "
        r"farthest [\d.]+ s, \d+\.\d\d s\nwritten: d\.tif, b\.tif, a\.tif, p\.geojson \(1 path\)\n",
        done.stdout,
    )
    wanted = solved([(30, 40), (140, 100, 25)], cost="tobler")
    for name, file, nodata in (
        ("distance", "d.tif", math.nan),
        ("backlink", "b.tif", 255),
        ("allocation", "a.tif", 0),
    ):
        data = getattr(wanted, name)()
        assert np.array_equal(layer(name), data, equal_nan=data.dtype.kind == "f")
        with rasterio.open(file) as found, rasterio.open("dem.tif") as dem:
            assert np.array_equal(found.read(1), data, equal_nan=data.dtype.kind == "f")
            assert found.dtypes == (data.dtype.name,)
            assert (found.crs, found.transform) == (dem.crs, dem.transform)
            assert found.nodata == nodata or math.isnan(found.nodata) == math.isnan(nodata)
    assert f"farthest {np.nanmax(wanted.distance()):.10g} s" in done.stdout
    lines = json.loads(Path("p.geojson").read_text())["features"]
    path = wanted.path(149, 0)
    assert lines[0]["properties"]["cost"] == wanted.distance()[149, 0]
    assert lines[0]["properties"]["cells"] == len(path)
    assert lines[0]["properties"]["source"] == wanted.allocation()[149, 0]
    assert list(json.loads(Path("r.json").read_text())) == KEYS


MODES = {
    "--cost absdiff": {},
    "--cost absdiff --connectivity 4": {"connectivity": 4},
    "--cost absdiff --friction friction": {"cost": "absdiff", "friction": True},
    "--cost friction --friction friction": {"cost": "friction", "friction": True},
    "--cost friction --friction elevation": {"cost": "friction"},
    "--cost surface --barriers walls": {"cost": "surface", "barriers": True},
    "--cost surface --barriers walls --no-corner-cutting": {
        "cost": "surface",
        "barriers": True,
        "corner_cutting": False,
    },
    "--cost tobler --reverse": {"cost": "tobler", "reverse": True},
    "--cost langmuir --parameter a=0.9 --parameter lam=0.5 --friction friction": {
        "cost": "langmuir",
        "parameters": {"a": 0.9, "lam": 0.5},
        "friction": True,
    },
    "--cost minimax --source-edge": {"cost": "minimax", "source_edge": True},
    "--cost tobler --max-cost 700": {"cost": "tobler", "max_cost": 700},
    "--cost absdiff --max-cost 40.5": {"max_cost": 40.5},
}


@pytest.mark.parametrize("words", MODES)
def test_options_are_those_of_the_library(world, capfd, words):
    wanted = solved([(30, 40), (140, 100, 3)], **MODES[words])
    report = fine(
        capfd,
        f"s.zarr --source-rowcol 30,40 --source-rowcol 140,100,3 {words} -o d.tif --backlink b.tif "
        "--allocation a.tif",
    )
    distance = wanted.distance()
    assert np.array_equal(read_tif("d.tif"), distance, equal_nan=distance.dtype.kind == "f")
    assert np.array_equal(read_tif("b.tif"), wanted.backlink())
    assert np.array_equal(read_tif("a.tif"), wanted.allocation())
    assert report["result"]["reached"] == wanted.reached
    for name, value in MODES[words].items():
        if name not in ("friction", "barriers"):
            assert report["settings"][name] == value
    beside = "--friction friction" in words
    assert report["settings"]["friction"] == ("friction" if beside else None)


def test_another_layer(world, capfd):
    fine(capfd, "s.zarr --layer friction --cost friction --friction friction --source-rowcol 3,3")
    f = friction()
    wanted = shortest_paths(f, [(3, 3)], cost="friction", friction=f, cell_size=(CELL, CELL))
    assert np.array_equal(layer("distance"), wanted.distance())


def test_only_what_is_asked_for(world, capfd):
    code, out, err = call(capfd, "compute-sssp s.zarr --source-rowcol 30,40")
    assert (code, err) == (0, "")
    most = solved([(30, 40)]).distance()
    most = most[most < 2**32 - 1].max()
    assert re.fullmatch(
        rf"s\.zarr: layer distance, 18,900 cells reached, farthest {most:,}, \d+\.\d\d s\n", out
    )
    assert terrain_gpu.TileStore.open("s.zarr").layers == [
        "distance",
        "elevation",
        "friction",
        "walls",
    ]


def test_negative_coordinates_need_no_equals_sign(world, capfd):
    assert xy(30, 40)[0] < 0
    row, col = 30, 40
    x, y = xy(row, col)
    for words in (f"--source {x},{y}", f"--source={x},{y}", f"--source '{x}, {y}'"):
        fine(capfd, f"s.zarr {words} --target {x},{y} --stop-at-targets --overwrite")
        assert layer("distance")[row, col] == 0


def test_float_types_of_the_file(world, capfd):
    command = "s.zarr --source-rowcol 30,40 --overwrite -o d.tif"
    fine(capfd, f"{command} --cost surface --dtype float32")
    with rasterio.open("d.tif") as found:
        assert found.dtypes == ("float32",)
        assert math.isnan(found.nodata)
        wanted = solved([(30, 40)], cost="surface").distance()
        assert np.array_equal(found.read(1), wanted.astype(np.float32), equal_nan=True)
    whole = solved([(30, 40)]).distance()
    for kind in ("float32", "float64"):
        fine(capfd, f"{command} --dtype {kind}")
        found = read_tif("d.tif")
        assert found.dtype == kind
        assert np.array_equal(np.isnan(found), whole == 2**32 - 1)
        assert np.array_equal(found[~np.isnan(found)], whole[whole < 2**32 - 1].astype(kind))


def test_a_value_beyond_the_type_of_the_file(world):
    grid = terrain_gpu.TileStore.open("s.zarr").grid
    with terrain_gpu.create_layer("s.zarr", "big", grid, "float64", block_size=64) as writer:
        for i, j in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(i, j)
            data = np.full((r1 - r0, c1 - c0), 1e38)
            if (i, j) == (1, 1):
                data[3, 4] = -1e39
            writer.write_block(i, j, data)
        writer.commit()
    with pytest.raises(
        terrain_gpu.InputError, match=r"big: -1e\+39 at row 67, column 68 is beyond"
    ):
        export_layer("s.zarr", "big.tif", layer="big", dtype="float32")
    assert not Path("big.tif").exists()
    with pytest.raises(terrain_gpu.InputError, match="dtype 'int8' is not known; use float64 or"):
        export_layer("s.zarr", "big.tif", layer="big", dtype="int8")
    report = export_layer("s.zarr", "big.tif", layer="big", dtype="float64")
    assert report.result["nodata"] is None
    assert read_tif("big.tif")[67, 68] == -1e39


# -- sources and targets -------------------------------------------------------------------------


def test_sources_of_a_vector_file(world, capfd):
    report = fine(capfd, "s.zarr --sources huts.geojson --cost surface --allocation a.tif")
    wanted = solved([(30, 40), (140, 100, 50)], cost="surface")
    assert np.array_equal(layer("distance"), wanted.distance(), equal_nan=True)
    assert np.array_equal(read_tif("a.tif"), np.array([0, 7, 9])[wanted.allocation()])
    assert report["result"]["sources"] == 2


def test_sources_of_one_layer_of_several(world, capfd):
    for name, places in (("huts", [xy(30, 40)]), ("peaks", [xy(90, 90), xy(140, 100)])):
        points = np.array([b"\x01\x01\0\0\0" + np.array(p).tobytes() for p in places], object)
        pyogrio.raw.write(
            "places.gpkg",
            points,
            [],
            [],
            layer=name,
            driver="GPKG",
            geometry_type="Point",
            crs="EPSG:32633",
            append=Path("places.gpkg").exists(),
        )
    fine(capfd, "s.zarr --sources places.gpkg:peaks --allocation a.tif")
    wanted = solved([(90, 90), (140, 100)])
    assert np.array_equal(layer("distance"), wanted.distance())
    assert np.array_equal(read_tif("a.tif"), wanted.allocation())
    code, _, err = call(capfd, "compute-sssp s.zarr --sources places.gpkg --overwrite")
    assert code == 2
    assert "--sources: places.gpkg: has several layers; name one of huts, peaks" in err
    code, _, err = call(capfd, "compute-sssp s.zarr --sources places.gpkg:lakes --overwrite")
    assert code == 2
    assert "places.gpkg: has no layer 'lakes'" in err


def test_sources_of_a_raster(world, capfd):
    fine(capfd, "s.zarr --sources marks.tif --allocation a.tif")
    wanted = solved([(30, 40), (31, 40), (32, 40), (140, 100)])
    assert np.array_equal(layer("distance"), wanted.distance())
    assert np.array_equal(read_tif("a.tif"), np.array([0, 4, 4, 4, 6])[wanted.allocation()])


def test_points_are_numbered_behind_those_of_the_file(world, capfd):
    x, y = xy(90, 90)
    fine(
        capfd,
        f"s.zarr --source-rowcol 100,3 --sources huts.geojson --source {x},{y} --allocation a.tif",
    )
    ids = read_tif("a.tif")
    assert [ids[30, 40], ids[90, 90], ids[100, 3]] == [7, 10, 11]


def test_edge_sources_alone_fill_depressions(world, capfd):
    code, out, _ = call(capfd, "compute-sssp s.zarr --source-edge --cost minimax -o filled.tif")
    assert code == 0
    assert ", highest " in out
    filled = read_tif("filled.tif")
    data = heights()
    there = data != VOID
    assert np.array_equal(np.isnan(filled), ~there)
    assert (filled[there] >= data[there]).all()
    assert np.array_equal(filled[0, 30:], data[0, 30:])


def test_paths_to_files_of_both_kinds(world, capfd):
    write_points("ends.geojson", [(149, 0), (60, 5)], id=[3, 5])
    command = "s.zarr --sources huts.geojson --cost tobler --targets ends.geojson"
    report = fine(capfd, f"{command} --target-rowcol 80,120 --path p.geojson")
    assert (report["result"]["path"], report["result"]["paths"]) == ("p.geojson", 3)
    assert report["result"]["unreached_targets"] == []
    assert report["result"]["layers"] == ["distance", "backlink"]
    wanted = solved([(30, 40), (140, 100, 50)], cost="tobler")
    lines = json.loads(Path("p.geojson").read_text())["features"]
    found = {line["properties"]["target"]: line["properties"] for line in lines}
    assert found.keys() == {3, 5, 6}
    for name, (row, col) in ((3, (149, 0)), (5, (60, 5)), (6, (80, 120))):
        assert found[name]["cost"] == wanted.distance()[row, col]
        assert found[name]["source"] == [0, 7, 9][wanted.allocation()[row, col]]
        assert found[name]["cells"] == len(wanted.path(row, col))
    fine(capfd, f"{command} --target-rowcol 80,120 --path p.gpkg --overwrite")
    meta, _, shapes, columns = pyogrio.raw.read("p.gpkg", layer="paths")
    assert meta["crs"] == "EPSG:32633"
    assert len(shapes) == 3
    costs = columns[list(meta["fields"]).index("cost")]
    assert sorted(costs) == sorted(one["cost"] for one in found.values())


def test_every_target_has_its_path_also_in_a_cell_of_others(world, capfd):
    """Two of eleven huts once shared a cell, and only ten paths were written, silently."""
    places = [(10 * k + 20, 7 * k + 30) for k in range(1, 10)]
    write_points("ends.geojson", [*places, places[4], places[4]], id=[*range(10, 19), 99, 5])
    for file in ("p.geojson", "p.gpkg"):
        command = f"s.zarr --source-rowcol 30,40 --targets ends.geojson --path {file} --overwrite"
        report = fine(capfd, f"{command} --target-rowcol 70,65")
        assert (report["result"]["paths"], report["result"]["unreached_targets"]) == (12, [])
    lines = json.loads(Path("p.geojson").read_text())["features"]
    assert {line["properties"]["target"] for line in lines} == {*range(10, 19), 99, 5, 100}
    same = [line for line in lines if line["properties"]["target"] in (14, 99, 5, 100)]
    assert len(same) == 4
    assert all(line["geometry"] == same[0]["geometry"] for line in same)
    assert all(line["properties"]["cost"] == same[0]["properties"]["cost"] for line in same)
    found = solved([(30, 40)])
    targets = from_rowcol(found.grid, [(70, 65), (90, 4), (70, 65)])
    paths = found.paths(targets, from_rowcol(found.grid, [(30, 40), (30, 40)]))
    assert [(p.source, p.target) for p in paths] == [(1, 1), (1, 2), (1, 3)]
    assert np.array_equal(paths[0].cells, paths[2].cells)


def test_several_results_in_one_store(world, capfd):
    fine(capfd, "s.zarr --source-rowcol 30,40 --backlink b0.tif")
    before = layer("distance"), layer("backlink")
    command = "s.zarr --source-rowcol 140,100 --cost tobler --into walk --verify"
    report = fine(
        capfd,
        f"{command} -o d.tif --allocation a.tif --target 4e5,5e6 --path p.gpkg".replace(
            "4e5,5e6", "{:.3f},{:.3f}".format(*xy(149, 0))
        ),
    )
    assert report["result"]["layers"] == ["walk", "walk_backlink", "walk_allocation"]
    wanted = solved([(140, 100)], cost="tobler")
    assert np.array_equal(layer("walk"), wanted.distance(), equal_nan=True)
    assert np.array_equal(read_tif("d.tif"), layer("walk"), equal_nan=True)
    assert np.array_equal(layer("walk_backlink"), wanted.backlink())
    assert np.array_equal(read_tif("a.tif"), wanted.allocation())
    assert np.array_equal(layer("distance"), before[0])
    assert np.array_equal(layer("backlink"), before[1])
    code, out, _ = call(capfd, "verify s.zarr --backend cpu")
    assert code == 0
    assert "layers distance, backlink verified" in out
    assert "layers walk, walk_backlink, walk_allocation verified" in out
    assert fine(capfd, f"{command} --resume")["result"]["layers"] == ["walk"]
    code, _, err = call(capfd, f"compute-sssp {command}")
    assert (code, "layer 'walk' exists" in err) == (2, True)
    shutil.rmtree("s.zarr/walk")
    code, _, err = call(capfd, "verify s.zarr --backend cpu")
    assert (code, "no layer 'walk'" in err) == (2, True)
    for name, words in (
        ("elevation", "must have different names"),
        ("friction", "does not hold distances"),
        ("backlink", "this layer holds other results"),
        ("no/name", "layer name 'no/name'"),
        ("a" * 60, "_backlink' has 69 characters, but at most 64 are allowed"),
    ):
        code, _, err = call(
            capfd, f"compute-sssp s.zarr --source-rowcol 30,40 --into {name} --backlink x.tif"
        )
        assert (code, words in err) == (2, True), err
    with pytest.raises(InputError, match="into names a layer of a store"):
        shortest_paths(heights(), [(0, 0)], into="walk")


def test_names_of_places_in_their_order(world, capfd):
    write_points("huts.geojson", [(140, 100), (30, 40)], name=["Süd", "Nord"], wait=[50.0, 0])
    ends = [(149, 0), (20, 100), (60, 5), (20, 100)]
    write_points("ends.geojson", ends, ref=["d", "b", "c", "a"])
    command = "s.zarr --sources huts.geojson --cost tobler --targets ends.geojson --id-field name"
    wanted = solved([(140, 100, 50), (30, 40)], cost="tobler")
    for file in ("p.geojson", "p.gpkg"):
        words = f"{command} --target-id-field ref --cost-field wait --path {file} --overwrite"
        result = fine(capfd, words)["result"]
        assert (result["paths"], result["source_names"]) == (4, {"1": "Süd", "2": "Nord"})
    lines = [line["properties"] for line in json.loads(Path("p.geojson").read_text())["features"]]
    assert [line["target_name"] for line in lines] == ["d", "b", "c", "a"]
    assert [line["target"] for line in lines] == [1, 2, 3, 4]
    for line, (row, col) in zip(lines, ends, strict=True):
        assert line["cost"] == wanted.distance()[row, col]
        assert line["source_name"] == ["", "Süd", "Nord"][line["source"]]
        assert line["source"] == wanted.allocation()[row, col]
    meta, _, _, columns = pyogrio.raw.read("p.gpkg", layer="paths")
    found = dict(zip(meta["fields"], columns, strict=True))
    assert found["target_name"].tolist() == ["d", "b", "c", "a"]
    assert found["source_name"].tolist() == [line["source_name"] for line in lines]
    for words, what in (
        ("--id-field nam", "--sources: huts.geojson: its features have no field 'nam', only"),
        ("--id-field name", "--targets: ends.geojson: its features have no field 'name', only ref"),
    ):
        text = f"compute-sssp {command} --overwrite --path q.gpkg".replace("--id-field name", words)
        code, _, err = call(capfd, text)
        assert (code, what in err) == (2, True), err
    code, _, err = call(capfd, "compute-sssp s.zarr --sources marks.tif --id-field x --overwrite")
    assert (code, "marks.tif: a raster has no field 'x'; give a vector file" in err) == (2, True)


def test_places_that_cannot_be_used(world, capfd):
    """One feature on nodata once stopped a run over 17 517 cells."""
    west, north = xy(-3, 20)
    outside = f"--source={west},{north} --source-rowcol {NODATA[0]},{NODATA[1]}"
    command = f"s.zarr --source-rowcol {WALLED[0]},{WALLED[1]} --source-rowcol 30,40 {outside}"
    command += " --barriers walls --allocation a.tif --overwrite"
    code, _, err = call(capfd, f"compute-sssp {command} --on-nodata skip")
    assert (code, "outside the raster" in err) == (2, True)
    code, _, err = call(capfd, f"compute-sssp {command} --outside skip")
    assert (code, "given cells are nodata: row" in err) == (2, True)
    assert "nearest usable cell: row" in err
    fine(capfd, f"{command} --outside skip --on-nodata skip")
    assert set(np.unique(read_tif("a.tif")).tolist()) <= {0, 2, 3}
    fine(capfd, f"{command} --snap 15")
    assert {3, 4} <= set(np.unique(read_tif("a.tif")).tolist())
    code, _, err = call(capfd, f"compute-sssp {command} --id-field x")
    assert (code, "--id-field x names a field of a file" in err) == (2, True)
    for words, what in (
        ("--on-nodata snap", "--on-nodata snap needs a distance: give --snap, such as 3px"),
        ("--snap 3 --on-nodata skip --outside error", "--snap: nothing is snapped"),
        ("--snap 0px", "give a distance of 1 to 1000 cells"),
    ):
        code, _, err = call(capfd, f"compute-sssp {command} {words}")
        assert (code, what in err) == (2, True), err


@pytest.mark.parametrize("program", ["compute-sssp", "cost-matrix", "least-cost-network"])
@pytest.mark.parametrize("end", ["source", "target"])
def test_places_on_barriers(world, capfd, program, end):
    """By default they are refused, wherever they are given; the file and the features are named."""
    walls = (barriers() != 0) & (heights() != VOID)
    walls[:20] = walls[:, :20] = False
    near = np.argwhere(walls & ~np.roll(walls, 1, 0) & (np.roll(heights(), 1, 0) != VOID))[:2]
    two, three = (tuple(cell) for cell in near.tolist()[::-1])
    write_points("bad.geojson", [(30, 40), two, three])
    write_points("void.geojson", [(30, 40), NODATA])
    write_points("good.geojson", [(30, 40), (31, 40)])

    def run(name, *more):
        files = {"source": "good.geojson", "target": "good.geojson", end: f"{name}.geojson"}
        begin, ends = files["source"], files["target"]
        words = f"{program} s.zarr --barriers walls --cost surface --overwrite {' '.join(more)} "
        words += {
            "compute-sssp": f"--sources {begin} --targets {ends} --stop-at-targets",
            "cost-matrix": f"--sources {begin} --targets {ends} -o m.csv",
            "least-cost-network": f"--sources {name}.geojson -o n.geojson",
        }[program]
        return call(capfd, words)

    code, out, err = run("bad")
    assert (code, out) == (2, "")
    assert "bad.geojson: 2 of 3 given cells are barriers in " in err
    assert f"s.zarr/walls: feature 3 at row {three[0]}, column {three[1]} (" in err
    assert f"nearest usable cell: row {three[0] - 1}, column {three[1]}, 1 cell away), " in err
    assert f", feature 2 at row {two[0]}, column {two[1]} (" in err
    assert "(--snap DISTANCE of the command), or leave them out (--on-nodata skip)" in err
    code, out, err = run("void")
    assert (code, out) == (2, "")
    assert "void.geojson: 1 of 2 given cells are nodata in " in err
    assert f"s.zarr/elevation: feature 2 at row {NODATA[0]}, column {NODATA[1]} (" in err
    assert run("bad", "--snap", "30m")[0] == 0
    if program != "least-cost-network":  # which needs two places
        assert run("bad", "--on-nodata", "skip")[0] == 0


def test_sources_in_one_cell_are_told(world):
    done = forked(
        "compute-sssp s.zarr --source-rowcol 30,40,5 --source-rowcol 30,40,2 --source-rowcol "
        "30,40,2 --source-rowcol 60,40 --cost tobler --allocation a.tif"
    )
    assert done.returncode == 0
    assert done.stderr == (
        "WARNING: 2 of 4 sources ignored, because another one in the same cell has a lower start "
        "cost or id: 3 at row 30, column 40 (but 2), 1 at row 30, column 40 (but 2)\n"
    )
    assert set(np.unique(read_tif("a.tif"))) == {0, 2, 4}
    assert layer("distance")[30, 40] == 2


def test_heights_are_frictions_only_when_named_such(world, capfd):
    """They were once silently taken for frictions where no layer was given."""
    for command in (
        "compute-sssp s.zarr --source-rowcol 30,40 --overwrite",
        "compute-sssp s.zarr --source-rowcol 30,40 --overwrite --build-index",
        "build-index s.zarr",
        "plan s.zarr --for sssp",
        "plan 900x900 --for sssp",
    ):
        code, out, err = call(capfd, f"{command} --cost friction")
        assert (code, out) == (2, "")
        assert "needs frictions: set --friction to their layer or file" in err
        assert "which may be 'elevation' itself" in err
        code, out, err = call(capfd, f"{command} --cost friction --friction elevation")
        assert (code, err) == (0, "")
    z = heights().astype(np.float64)
    with pytest.raises(InputError, match="which may be data itself"):
        shortest_paths(z, [(30, 40)], cost="friction", nodata=VOID)
    found = shortest_paths(z, [(30, 40)], cost="friction", friction=z, nodata=VOID)
    alone = shortest_paths(z, [(30, 40)], cost="surface", nodata=VOID)
    plans = [run.report.settings["plan"]["memory"] for run in (found, alone)]
    assert plans[0] == plans[1]  # one raster is read


def test_unreached_targets_are_named(world):
    done = forked(
        "compute-sssp s.zarr --source-rowcol 30,40 --barriers walls --target-rowcol 100,20 "
        "--target-rowcol 149,0 --path p.geojson --json r.json"
    )
    assert done.returncode == 0
    assert done.stdout.endswith("p.geojson (1 path)\n")
    x, y = xy(*WALLED)
    assert done.stderr.endswith(
        f"WARNING: 1 of 2 targets not reached: x {x:g}, y {y:g} (row 100, column 20)\n"
    )
    result = json.loads(Path("r.json").read_text())["result"]
    assert result["unreached_targets"] == [{"target": 1, "row": 100, "col": 20}]
    assert len(json.loads(Path("p.geojson").read_text())["features"]) == 1


def test_no_target_reached(world, capfd):
    inside = " ".join(f"--target-rowcol 100,{col}" for col in (18, 19, 20, 21, 22))
    code, out, err = call(
        capfd,
        f"compute-sssp s.zarr --source-rowcol 30,40 --barriers walls {inside} "
        "--target-rowcol 99,20 --path p.geojson --json r.json",
    )
    assert (code, out) == (1, "")
    assert err.startswith(
        "Error: --path p.geojson: not written, no target is reached: x -315, y -105 (row 100, "
        "column 18), x -305, "
    )
    assert (
        "(row 100, column 22) and 1 more; check for nodata and barriers on the way, and --max-cost"
        in err
    )
    assert not Path("p.geojson").exists()
    assert not Path("r.json").exists()
    assert layer("backlink")[100, 20] == 255  # the layers are there


def test_stop_at_targets(world, capfd):
    fine(
        capfd, "s.zarr --source-rowcol 75,60 --cost tobler --target-rowcol 80,70 --stop-at-targets"
    )
    near = layer("distance")
    full = solved([(75, 60)], cost="tobler").distance()
    reached = ~np.isnan(near)
    assert reached[80, 70]
    assert 0 < reached.sum() < (~np.isnan(full)).sum() / 2
    assert np.array_equal(near[reached], full[reached])
    assert (full[~reached & ~np.isnan(full)] >= full[80, 70]).all()


# -- reports and runs ----------------------------------------------------------------------------


def test_report(world, capfd):
    code, out, err = call(
        capfd,
        "compute-sssp s.zarr --source-rowcol 30,40 -o d.tif --backlink b.tif --allocation a.tif "
        "--target-rowcol 90,90 --path p.geojson --verify --json -",
    )
    assert code == 0
    assert err.startswith("s.zarr: layers distance, backlink, allocation, 18,900 cells reached")
    assert ", verified\nwritten: d.tif, b.tif, a.tif, p.geojson (1 path)\n" in err
    report = json.loads(out)  # nothing but JSON
    assert list(report) == KEYS
    assert report["command"] == "compute-sssp"
    assert report["cells"] == ROWS * COLS
    seconds = report["seconds"]
    assert {"total", "relax", "finalise", "commit", "export", "paths"} <= seconds.keys()
    result = report["result"]
    assert [result[k] for k in ("output", "backlink", "allocation", "path")] == [
        "d.tif",
        "b.tif",
        "a.tif",
        "p.geojson",
    ]
    assert result["store"] == str(world / "s.zarr")
    assert isinstance(report["settings"]["plan"]["memory_limit"], int)


def test_quiet_and_verbose(world):
    command = "compute-sssp s.zarr --source-rowcol 30,40 --overwrite -o d.tif"
    assert forked(command).returncode == 0  # compiles, if need be
    done = forked(f"{command} -q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = forked(f"{command} -v")
    assert done.returncode == 0
    assert re.search(r"^INFO: memory .* predicted peak, limit", done.stderr, re.M)


def test_replacing_only_when_asked(world, capfd):
    command = "compute-sssp s.zarr --source-rowcol 30,40"
    assert call(capfd, command)[0] == 0
    code, out, err = call(capfd, command)
    assert (code, out) == (2, "")
    assert "'distance'" in err
    assert "--overwrite" in err
    assert call(capfd, f"{command} --overwrite --cost tobler")[0] == 0
    assert layer("distance").dtype == np.float64
    # A finished run is left as it is, and its files are written again.
    code, out, err = call(capfd, f"{command} --resume --cost tobler -o d.tif")
    assert code == 0, err
    assert np.array_equal(read_tif("d.tif"), layer("distance"), equal_nan=True)


def test_same_bits_for_any_threads_and_limits(world, capfd):
    command = "s.zarr --sources huts.geojson --cost langmuir --backlink b.tif --overwrite"
    fine(capfd, f"{command} --threads 1 --memory-limit 400MB")
    first = layer("distance"), read_tif("b.tif")
    fine(capfd, f"{command} --threads 2 --memory-limit 2GB --backend cpu")
    assert np.array_equal(layer("distance"), first[0], equal_nan=True)
    assert np.array_equal(read_tif("b.tif"), first[1])


# -- wrong inputs --------------------------------------------------------------------------------

HERE = "--source-rowcol 30,40"


def nothing() -> None:
    """Only the command line is wrong."""


def text(name: str, content: str = "hello\n") -> Callable[[], None]:
    return lambda: Path(name).write_text(content) and None


def shifted() -> None:
    write_tif("shifted.tif", np.ones((ROWS, COLS), np.uint8), west=WEST + CELL)


def negative_ids() -> None:
    write_tif("negative.tif", np.full((ROWS, COLS), -3, np.int16))


def empty_marks() -> None:
    write_tif("empty.tif", np.zeros((ROWS, COLS), np.uint8))


def far_points() -> None:
    write_points("far.geojson", [(30, 40), (ROWS + 5, 3)])


def last_id() -> None:
    write_points("last.geojson", [(30, 40)], id=[2**32 - 2])


def negative_friction() -> None:
    data = friction()
    data[70, 80] = -2
    write_tif("negative.tif", data)
    terrain_gpu.convert_dataset(["negative.tif"], "s.zarr", layer="negative")


def friction_with_hole() -> None:
    data = friction()
    data[70, 80] = np.nan
    write_tif("holes.tif", data, nodata=np.nan)
    terrain_gpu.convert_dataset(["holes.tif"], "s.zarr", layer="holes")


def damaged() -> None:
    """The last block of heights is cut short."""
    path = terrain_gpu.TileStore.open("s.zarr").layer("elevation").shard_path(2, 2)
    path.write_bytes(path.read_bytes()[:-100])


class Wrong(NamedTuple):
    words: str
    """After `compute-sssp`."""
    message: tuple[str, ...]
    """What the message contains."""
    spoil: Callable[[], None] = nothing


WRONG = (
    Wrong("nix.zarr --source 1,2", ("nix.zarr: no such store",)),
    Wrong("dem.tif --source 1,2", ("dem.tif",)),
    Wrong("s.zarr", ("no source: give --source X,Y, --source-rowcol ROW,COL, --sources FILE",)),
    Wrong("s.zarr --source 1;2", ("--source", "'1;2' is not X,Y[,COST]")),
    Wrong("s.zarr --source 12", ("--source", "'12' is not X,Y[,COST]")),
    Wrong("s.zarr --source 1,2,3,4", ("--source", "'1,2,3,4' is not X,Y[,COST]")),
    Wrong("s.zarr --source ,", ("--source", "',' is not X,Y[,COST]")),
    Wrong(
        f"s.zarr {HERE} --connectivity 16 --all-ties t.tif",
        ("--all-ties takes 4 or 8 neighbours: give --connectivity 8",),
    ),
    Wrong("s.zarr --source=-1e9,5", ("--source: outside the raster", "x -1000000000.0, y 5.0")),
    Wrong("s.zarr --source nan,5", ("--source: ", "nan, 5.0 are not finite")),
    Wrong("s.zarr --source -95,595,-2", ("--source: ", "start cost -2.0 is negative")),
    Wrong("s.zarr --source-rowcol 3,b", ("--source-rowcol", "'3,b' is not ROW,COL[,COST]")),
    Wrong(
        "s.zarr --source-rowcol 3.5,4",
        (
            "--source-rowcol",
            "'3.5,4': rows and columns are whole numbers; coordinates go to --source",
        ),
    ),
    Wrong(
        "s.zarr --source-rowcol 3,4 --source-rowcol 150,4",
        ("--source-rowcol: outside the raster", "rows 0 .. 149", "cell 2 (row 150, column 4)"),
    ),
    Wrong("s.zarr --source-rowcol 5,5", ("nodata", "row 5, column 5", "move them")),
    Wrong(f"s.zarr {HERE} --sources ''", ("--sources: the name of the file is empty",)),
    Wrong(f"s.zarr {HERE} --output ''", ("--output: the name of the file is empty",)),
    Wrong("s.zarr --source-rowcol 60,20 --barriers walls", ("row 60, column 20",)),
    Wrong(
        "s.zarr --source-rowcol 70,80 --friction holes", ("row 70, column 80",), friction_with_hole
    ),
    Wrong("s.zarr --sources nix.geojson", ("--sources: nix.geojson: no such file",)),
    Wrong("s.zarr --sources nix.tif", ("--sources: nix.tif: no such file",)),
    Wrong("s.zarr --sources a.geojson", ("--sources: a.geojson: not GeoJSON",), text("a.geojson")),
    Wrong("s.zarr --sources a.gpkg", ("--sources: a.gpkg: not a vector file",), text("a.gpkg")),
    Wrong("s.zarr --sources a.csv", ("--sources: a.csv: ",), text("a.csv")),
    Wrong(
        "s.zarr --sources far.geojson --outside error",
        ("far.geojson: 1 of 2", "feature 2"),
        far_points,
    ),
    Wrong("s.zarr --sources shifted.tif", ("shifted.tif: covers x -490.0", "warp"), shifted),
    Wrong("s.zarr --sources negative.tif", ("negative.tif: has value -3 at row 0",), negative_ids),
    Wrong("s.zarr --sources empty.tif", ("empty.tif: every cell is 0 or nodata",), empty_marks),
    Wrong(
        f"s.zarr --sources last.geojson {HERE}",
        ("--sources last.geojson: its id 4294967294 leaves none for --source-rowcol",),
        last_id,
    ),
    Wrong(f"s.zarr {HERE} --cost uphill", ("--cost", "'uphill'", "absdiff", "minimax")),
    Wrong(f"s.zarr {HERE} --friction nix", ("nix",)),
    Wrong(f"s.zarr {HERE} --barriers nix", ("nix",)),
    Wrong(f"s.zarr {HERE} --layer nix", ("nix",)),
    Wrong(f"s.zarr {HERE} --layer distance", ("distance",)),
    Wrong(
        f"s.zarr {HERE} --cost minimax --friction friction",
        ("--cost minimax does not use --friction",),
    ),
    Wrong(
        f"s.zarr {HERE} --friction negative",
        ("friction -2.0 at row 70, column 80 is negative",),
        negative_friction,
    ),
    Wrong(f"s.zarr {HERE} --parameter a", ("--parameter", "'a' is not NAME=VALUE")),
    Wrong(f"s.zarr {HERE} --parameter a=b", ("--parameter", "'a=b' is not NAME=VALUE")),
    Wrong(f"s.zarr {HERE} --parameter a=1 --parameter a=2", ("--parameter", "a is given twice")),
    Wrong(f"s.zarr {HERE} --parameter a=1", ("'absdiff' has no parameter 'a'",)),
    Wrong(
        f"s.zarr {HERE} --cost langmuir --parameter z=1",
        ("'langmuir' has no parameter 'z'", "slope_factor"),
    ),
    Wrong(f"s.zarr {HERE} --cost langmuir --parameter a=inf", ("parameter a=inf",)),
    Wrong(f"s.zarr {HERE} --connectivity 6", ("--connectivity", "'6'")),
    Wrong(f"s.zarr {HERE} --max-cost -1", ("--max-cost", "-1.0 is not a number of at least 0")),
    Wrong(f"s.zarr {HERE} --max-cost nan", ("--max-cost", "nan is not a number of at least 0")),
    Wrong(f"s.zarr {HERE} --max-slope -1", ("--max-slope", "-1.0 is not a finite number of at l")),
    Wrong(f"s.zarr {HERE} --max-cost far", ("--max-cost", "'far'")),
    Wrong(f"s.zarr {HERE} --path p.geojson", ("--path needs targets: give --target X,Y",)),
    Wrong(f"s.zarr {HERE} --stop-at-targets", ("--stop-at-targets needs targets",)),
    Wrong(f"s.zarr {HERE} --target 1,2", ("targets need --path FILE or --stop-at-targets",)),
    Wrong(f"s.zarr {HERE} --target 1,2,3 --stop-at-targets", ("--target", "'1,2,3' is not X,Y")),
    Wrong(
        f"s.zarr {HERE} --target 1e7,2 --path p.geojson",
        ("--target: outside the raster", "x 10000000.0, y 2.0"),
    ),
    Wrong(f"s.zarr {HERE} --target-rowcol 5,5 --path p.geojson", ("nodata", "row 5, column 5")),
    Wrong(
        f"s.zarr {HERE} --targets nix.shp --path p.geojson", ("--targets: nix.shp: no such file",)
    ),
    Wrong(f"s.zarr {HERE} -o d.png", ("--output: d.png: the name of the output must end in .tif",)),
    Wrong(f"s.zarr {HERE} -o dem.tif", ("--output: dem.tif: exists; --overwrite replaces it",)),
    Wrong(f"s.zarr {HERE} -o nix/d.tif", ("--output: nix/d.tif: its folder does not exist",)),
    Wrong(f"s.zarr {HERE} --backlink dem.tif", ("--backlink: dem.tif: exists; --overwrite",)),
    Wrong(f"s.zarr {HERE} --allocation nix/a.tif", ("--allocation: nix/a.tif: its folder",)),
    Wrong(
        f"s.zarr {HERE} --target-rowcol 9,90 --path p.shp", ("--path: p.shp: the name must end in",)
    ),
    Wrong(
        f"s.zarr {HERE} --target-rowcol 9,90 --path huts.geojson",
        ("--path: huts.geojson: exists; --overwrite replaces it",),
    ),
    Wrong(
        f"s.zarr {HERE} --dtype float32", ("--dtype float32 is the type of the --output raster",)
    ),
    Wrong(f"s.zarr {HERE} -o d.tif --dtype int8", ("--dtype", "'int8'")),
    Wrong(
        f"s.zarr {HERE} -o d.tif --backlink ./d.tif",
        ("--backlink ./d.tif: --output already names this file; name another",),
    ),
    Wrong(
        f"s.zarr {HERE} --target-rowcol 9,90 --path p.json --json p.json",
        ("--json p.json: --path already names this file; name another",),
    ),
    Wrong(
        "s.zarr --sources marks.tif -o marks.tif --overwrite",
        ("--output marks.tif: --sources already names this file; name another",),
    ),
    Wrong(f"s.zarr {HERE} --json nix/r.json", ("--json", "nix/r.json")),
    Wrong(f"s.zarr {HERE} --memory-limit 10MB", ("10 MB is too small", "give at least")),
    Wrong(f"s.zarr {HERE} --memory-limit lots", ("--memory-limit", "'lots' is not a size")),
    Wrong(f"s.zarr {HERE} --threads 0", ("--threads", "0")),
    Wrong(
        f"s.zarr {HERE} --backend cuda --method dijkstra",
        ("--method 'dijkstra' runs only on the CPU; use relax, or --backend cpu",),
    ),
    Wrong(f"s.zarr {HERE} -o d.tif", ("elevation/c/2/2",), damaged),
    Wrong(f"s.zarr {HERE} --frobnicate", ("--frobnicate",)),
    Wrong(f"s.zarr t.zarr {HERE}", ("t.zarr",)),
)


def snapshot(folder: Path) -> dict[str, str]:
    """Every path below `folder` with a digest of its content."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else "folder"
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("case", WRONG, ids=lambda case: f"{case.words}".replace("s.zarr ", ""))
def test_wrong_inputs(world, capfd, case):
    case.spoil()
    before = snapshot(world)
    code, out, err = call(capfd, f"compute-sssp {case.words}".replace(";", r"\;"))
    assert (code, out) == (2, ""), err
    assert re.fullmatch(r"Error: .*\n", err)
    for words in case.message:
        assert words in err
    assert snapshot(world) == before
