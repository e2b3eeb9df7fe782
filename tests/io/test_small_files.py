"""Small files of text: tables, reports, coordinate systems; also from pipes and devices."""

from __future__ import annotations

import json
import os
import threading
import time

import click
import numpy as np
import pytest
import rasterio
from click.testing import CliRunner
from rasterio.crs import CRS

from terrain_gpu import TileStore
from terrain_gpu.cli.main import group
from terrain_gpu.errors import InputError
from terrain_gpu.grid import GridSpec
from terrain_gpu.io import small_files
from terrain_gpu.io.crs import read_crs
from terrain_gpu.io.places import from_vector
from terrain_gpu.io.small_files import read_small


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with a pipe, and a raster."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(small_files, "PATIENCE", 0.1)
    monkeypatch.setattr(small_files, "MOST", 1 << 20)
    for name in ("pipe", "pipe.geojson", "pipe.gpkg"):
        os.mkfifo(name)
    return tmp_path


def flat(path):
    """A raster of ones, without a coordinate system."""
    place = {"transform": rasterio.Affine(10, 0, 500000, 0, -10, 90)}
    shape = {"height": 9, "width": 9, "count": 1, "dtype": "int16"}
    with rasterio.open(path, "w", driver="GTiff", **shape, **place) as data:
        data.write(np.ones((1, 9, 9), np.int16))


def refused(line):
    """The message of a command that ends with exit code 2."""
    done = CliRunner().invoke(group, line.split(), standalone_mode=False)
    assert isinstance(done.exception, InputError | click.UsageError), (line, done)
    return str(done.exception)


def writing(path, parts, pause):
    """Write to a pipe from a thread."""

    def write():
        time.sleep(pause)
        with open(path, "wb", buffering=0) as file:
            for part in parts:
                file.write(part)
                time.sleep(pause)

    thread = threading.Thread(target=write)
    thread.start()
    return thread


def test_a_regular_file_as_by_text_mode(folder):
    data = "\ufeffa,b\r\n1,\u00fc\r\x0b\n".encode()
    (folder / "t.csv").write_bytes(data)
    assert read_small("t.csv") == (folder / "t.csv").read_text("utf-8-sig")
    (folder / "t.csv").write_bytes(b"\xff")
    with pytest.raises(UnicodeError):
        read_small("t.csv")


@pytest.mark.parametrize("pause", [0, 0.3])
def test_a_pipe_is_read_to_its_end(folder, monkeypatch, pause):
    """Also where its writer comes late, and rests."""
    monkeypatch.setattr(small_files, "PATIENCE", 10)
    thread = writing("pipe", [b"1,2\n" * 50_000, b"3,4\n"], pause)
    assert read_small("pipe") == "1,2\n" * 50_000 + "3,4\n"
    thread.join()


ODD = {
    "pipe": "a pipe that no process writes to",
    "/dev/zero": "it is longer than 1.05 MB",
    ".": "Is a directory",
    "none.csv": "o such file",
}
LINES = {
    "calc dem.tif elevation -o o.tif --reclass {}": tuple(ODD),
    "convert-dataset dem.tif s.zarr --crs {}": ("pipe", "/dev/zero", "."),
    "compute-sssp dem.tif --source-rowcol 3,3 -o o.tif --cost 1 --vertical-factor {}": tuple(ODD),
    "plan 99x99 --for mst --workers 2 --like {}": tuple(ODD),
}


@pytest.mark.parametrize("line", LINES)
def test_what_is_no_small_file_is_named(folder, line):
    flat("dem.tif")
    for path in LINES[line]:
        told = refused(line.format(path))
        assert path in told
        assert ODD[path] in told
    assert not [path for path in ("o.tif", "s.zarr") if os.path.exists(path)]


@pytest.mark.parametrize("path", ["pipe.geojson", "pipe.gpkg", "pipe"])
def test_pipes_of_features_are_refused(folder, path):
    """GDAL reads such files here and there, and more than once."""
    flat("dem.tif")
    told = refused(f"watershed dem.tif --pour-points {path} -o o.tif")
    assert f"{path}: a pipe or device; save it" in told


def test_process_substitution(folder):
    """As a shell has it: the pipe is /dev/fd/63."""
    flat("dem.tif")
    read, write = os.pipe()
    os.write(write, b"class,value\n1,7\n")
    os.close(write)
    line = f"calc dem.tif elevation -o o.tif --reclass /dev/fd/{read}"
    done = CliRunner().invoke(group, line.split())
    os.close(read)
    assert done.exit_code == 0, done.output
    with rasterio.open("o.tif") as data:
        assert (data.read(1) == 7).all()


def test_a_coordinate_system_in_a_file(folder):
    """--verify needs the file no more."""
    flat("dem.tif")
    (folder / "a.prj").write_text(CRS.from_epsg(32633).to_wkt(version="WKT1_ESRI") + "\n")
    line = "convert-dataset dem.tif s.zarr --crs a.prj --verify"
    done = CliRunner().invoke(group, line.split())
    assert done.exit_code == 0, done.output
    (folder / "a.prj").unlink()
    assert CliRunner().invoke(group, ["verify", "s.zarr"]).exit_code == 0
    assert TileStore.open("s.zarr").grid.crs_code == "EPSG:32633"


@pytest.mark.parametrize(
    "name", ["a.prj", "./a.prj", "ESRI::a.prj", "pipe", "http://127.0.0.1:9/crs", "/vsicurl/x"]
)
def test_a_file_of_others_cannot_have_another_one_read(folder, name):
    """GDAL would open, and fetch, what GeoJSON names as its coordinate system."""
    (folder / "a.prj").write_text(CRS.from_epsg(32633).to_wkt())
    text = {"type": "Point", "coordinates": [1, 1], "crs": {"properties": {"name": name}}}
    (folder / "p.geojson").write_text(json.dumps(text))
    with pytest.raises(InputError, match='cannot parse its "crs"'):
        from_vector(GridSpec(9, 9, (1, 0, 0, 0, -1, 9), ""), "p.geojson")


def test_codes_as_addresses():
    assert read_crs("http://www.opengis.net/def/crs/EPSG/0/32633") == CRS.from_epsg(32633)
