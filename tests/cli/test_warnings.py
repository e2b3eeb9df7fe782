"""Warnings that all commands share: rasters without any value, and what Mercator distorts."""

from __future__ import annotations

import json
import logging
import shlex
from pathlib import Path

import numpy as np
import pytest
import rasterio
from contract import whole
from rasterio.transform import from_origin

from terrain_gpu import TileStore, convert_dataset
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group

PLACES = "--source-rowcol 1,1 --source-rowcol 2,2"
COMMANDS = {
    "accumulate": "",
    "basins": "--table t.csv",
    "breach": "--lines l.gpkg",
    "burn": "--streams lines.geojson --depth 3",
    "calc": "'elevation + 1'",
    "compute-mst": "",
    "compute-sssp": "--source-edge",
    "contours": "out.gpkg --interval 5",
    "corridor": "--source-rowcol 1,1 --target-rowcol 2,2",
    "cost-matrix": "--source-rowcol 1,1 --target-rowcol 2,2",
    "depressions": "",
    "fill": "",
    "fill-spill-merge": "--rain 1",
    "flow-accumulation": "--areas",
    "flow-direction": "",
    "hand": "--to-outlets",
    "label-components": "--where 'elevation > 5' --table t.csv",
    "least-cost-network": f"{PLACES}",
    "network": "out.gpkg --min-length 3m",
    "polygons": "out.gpkg",
    "rasterize": "--features lines.geojson",
    "slope": "",
    "streams": "--threshold 3 --lines l.gpkg",
    "terrain-indices": "--twi twi",
    "watershed": "--pour-point-rowcol 5,5 --table t.csv",
}
"""Options of every command that takes a raster."""

FILES = {"contours", "network", "polygons"}
"""Those whose output is an argument."""

FAIL = {"burn", "corridor", "cost-matrix", "least-cost-network", "streams", "watershed"}
"""Those that need a cell with a value."""

WORDS = "has no valid cells, all are nodata (-9999); check the nodata value, band and bounds of"


def write(path, cells, crs="EPSG:32617", top=4_000_000.0):
    profile = {
        "driver": "GTiff", "height": cells.shape[0], "width": cells.shape[1], "count": 1,
        "dtype": cells.dtype, "nodata": -9999, "crs": crs,
        "transform": from_origin(500_000, top, 10, 10),
    }  # fmt: skip
    with rasterio.open(path, "w", **profile) as file:
        file.write(cells, 1)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a raster without values, and a line over it."""
    monkeypatch.chdir(tmp_path)
    write("empty.tif", np.full((40, 50), -9999, np.int16))
    line = {"type": "LineString", "coordinates": [[500_100, 3_999_900], [500_300, 3_999_700]]}
    Path("lines.geojson").write_text(
        json.dumps(
            {
                "type": "FeatureCollection",
                "crs": {"type": "name", "properties": {"name": "EPSG:32617"}},
                "features": [{"type": "Feature", "properties": {"id": 1}, "geometry": line}],
            }
        )
    )


def call(line):
    return options._guarded(lambda: group.main(shlex.split(line), standalone_mode=False))


def named_command(name, first):
    """The command line, which writes out.tif unless it has an argument for that."""
    if name in FILES:
        return f"{name} {first} {COMMANDS[name]}"
    output = "out.gpkg" if name == "least-cost-network" else "out.tif"
    output = "out.csv" if name == "cost-matrix" else output
    return f"{name} {first} {COMMANDS[name]} -o {output}"


def test_all_commands_that_take_a_raster_are_here():
    takes = {
        name
        for name in group.list_commands(None)
        for one in group.get_command(None, name).params
        if "RASTER" in str(one.metavar) and one.name == "store"
    }
    writing_nothing = {"info", "map", "verify"}
    assert takes - writing_nothing == set(COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_raster_without_a_value(place, name, capsys, caplog):
    with caplog.at_level(logging.WARNING):
        code = call(named_command(name, "empty.tif"))
    told = [one for one in caplog.messages if WORDS in one]
    assert len(told) == 1
    assert told[0].startswith("empty.tif: ")
    assert code == (2 if name in FAIL else 0), capsys.readouterr().err
    assert Path("out.tif").exists() == (code == 0 and name not in FILES)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_store_without_a_value(place, name, capsys, caplog):
    convert_dataset("empty.tif", "s.zarr")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        call(named_command(name, "s.zarr"))
    told = [one for one in caplog.messages if WORDS in one]
    assert len(told) == 1
    assert told[0].partition(":")[0].endswith("/s.zarr/elevation")


@pytest.mark.parametrize(
    ("dtype", "nodata", "words"),
    [
        ("float32", None, "all are NaN or infinite;"),
        ("float32", -1.0, "all are NaN or infinite or nodata (-1.0);"),
        ("uint8", 0, "all are nodata (0);"),
    ],
)
def test_it_says_what_the_cells_are(tmp_path, caplog, dtype, nodata, words):
    cells = np.full((3, 4), np.nan if nodata is None else nodata, dtype)
    with rasterio.open(
        tmp_path / "e.tif", "w", driver="GTiff", height=3, width=4, count=1, dtype=dtype,
        nodata=nodata, transform=from_origin(9, 9, 2, 2),
    ) as file:  # fmt: skip
        file.write(cells, 1)
    with caplog.at_level(logging.WARNING):
        convert_dataset([tmp_path / "e.tif"] * 2, tmp_path / "s.zarr")
    assert f"e.tif and 1 more: has no valid cells, {words}" in caplog.text


MEASURED = {
    "basins --table t.csv": "areas",
    "breach --lines l.gpkg": "areas lengths",
    "depressions": "areas",
    "fill": "",
    "fill --keep-larger-than 3": "",
    "fill-spill-merge --rain 1": "areas",
    "fill --keep-larger-than 1ha": "areas",
    "flow-accumulation": "",
    "flow-accumulation --areas": "areas",
    "flow-accumulation --areas --method mfd": "areas",
    "flow-direction": "",
    "hand --to-outlets": "",
    "hand --to-outlets --distance d --store k.zarr": "lengths",
    "hand --to-outlets --distance d --store k.zarr --method dinf": "lengths",
    "label-components --where 'elevation > 5'": "",
    "label-components --where 'elevation > 5' --table t.csv": "areas",
    "slope": "slopes",
    "streams --threshold 3 --lines l.gpkg": "lengths slopes",
    "terrain-indices --twi twi": "areas slopes",
    "watershed --pour-point-rowcol 5,5": "",
    "watershed --pour-point-rowcol 5,5 --table t.csv": "areas",
}
SAYS = {
    "lengths": "lengths are up to 1.73 times too long",
    "areas": "areas are up to 2.99 times too large",
    "slopes": "slopes are up to 1.73 times too gentle",
}


@pytest.mark.parametrize("crs", ["EPSG:3857", "EPSG:32617"])
@pytest.mark.parametrize("line", sorted(MEASURED))
def test_what_mercator_distorts(tmp_path, monkeypatch, caplog, line, crs):
    monkeypatch.chdir(tmp_path)
    cells = np.random.default_rng(3).integers(0, 40, (40, 50)).astype(np.int16)
    write("dem.tif", cells, crs, 7.3e6)
    name, _, words = line.partition(" ")
    with caplog.at_level(logging.WARNING):
        assert call(f"{name} dem.tif {words} -o out.tif") == 0
    told = "\n".join(one for one in caplog.messages if "Mercator" in one)
    wrong = MEASURED[line].split() if crs == "EPSG:3857" else []
    assert {one for one in SAYS if SAYS[one] in told} == set(wrong)
    assert ("reproject the raster, for example to UTM" in told) == bool(wrong)


@pytest.mark.parametrize(
    ("cell", "west", "line", "warns"),
    [
        (0.01, 7, "flow-accumulation --areas", ["directions", "areas"]),
        (0.01, 7, "compute-mst", []),  # which measures nothing
        (0.01, 7, "slope", ["slopes"]),
        (0.5, 7, "slope", []),
        (0.01, 179.8, "slope", []),
        (0.01, -180, "slope", ["slopes"]),
    ],
)
def test_degrees_without_a_coordinate_system(
    tmp_path, monkeypatch, caplog, cell, west, line, warns
):
    monkeypatch.chdir(tmp_path)
    cells = np.random.default_rng(3).integers(0, 40, (40, 50)).astype(np.int16)
    for path, crs in (("dem.tif", None), ("named.tif", "EPSG:4326")):
        with rasterio.open(
            path, "w", driver="GTiff", height=40, width=50, count=1, dtype="int16",
            nodata=-9999, crs=crs, transform=from_origin(west, 50, cell, cell),
        ) as file:  # fmt: skip
            file.write(cells, 1)
        caplog.clear()
        name, _, words = line.partition(" ")
        with caplog.at_level(logging.WARNING):
            assert call(f"{name} {path} {words} -o {(crs and 'n') or 'o'}.tif") == 0
        told = [one for one in caplog.messages if "its bounds look like degrees" in one]
        assert [one.split()[13] for one in told] == ([] if crs else warns)


def test_areas_of_lines_and_polygons_in_mercator(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    write("dem.tif", np.arange(2000, dtype=np.int16).reshape(40, 50) // 500, "EPSG:3857", 7.3e6)
    for line, wrong in (
        ("polygons dem.tif a.gpkg", "areas"),
        ("contours dem.tif b.gpkg --interval 2 --polygons", "areas"),
        ("contours dem.tif c.gpkg --interval 2", ""),
        ("network dem.tif d.gpkg --min-length 30m", "lengths"),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert call(line) == 0
        assert SAYS.get(wrong, "") in caplog.text
        assert ("Mercator" in caplog.text) == bool(wrong)


def test_a_warning_is_no_error(place):
    """What is computed from nothing is nothing, and proven as such."""
    assert call("fill empty.tif --store s.zarr --verify") == 0
    filled = TileStore.open("s.zarr").layer("filled")
    assert (whole(filled) == -9999).all()
