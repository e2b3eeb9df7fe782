"""A raster in place of a store: the same results, from a store that is temporary or kept."""

from __future__ import annotations

import contextlib
import json
import os
import re

import numpy as np
import programs
import pyogrio.raw
import pytest
import rasterio
from test_cli import call, terrain, write_tif

from terrain_gpu import TileStore
from terrain_gpu.cli import options
from terrain_gpu.errors import VerificationError
from terrain_gpu.progress import silent
from terrain_gpu.store.temporary import TemporaryFolder

ROWS = {
    "compute-mst {} --weight absdiff -o {}.tif",
    "slope {} -o {}.tif",
    'calc {} "elevation * 2" -o {}.tif',
    'label-components {} --where "elevation > 1500" --table {}.csv -o {}.tif',
    "rasterize {} --features marks.geojson -o {}.tif",
    "accumulate {} --outlet-rowcol 50,60 --areas -o {}.tif",
    "basins {} -o {}.tif",
    "network {} {}.gpkg --min-length 200",
    "polygons {} {}.gpkg --layer elevation",
    "contours {} {}.gpkg --interval 500",
    "compute-sssp {} --source-rowcol 50,60 --target-rowcol 80,90 -o {}.tif --path {}.gpkg",
    "cost-matrix {} --source-rowcol 50,60 --target-rowcol 80,90 -o {}.csv",
}


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = terrain(90, 110)
    cells[:20, :30] = -32768
    write_tif("dem.tif", cells.astype(np.int16), nodata=-32768)
    mark = {"type": "Point", "coordinates": [-400, 800]}
    feature = {"type": "Feature", "properties": {}, "geometry": mark}
    crs = {"type": "name", "properties": {"name": "EPSG:32633"}}
    text = json.dumps({"type": "FeatureCollection", "crs": crs, "features": [feature]})
    (tmp_path / "marks.geojson").write_text(text)
    return tmp_path


def contents(folder, name):
    """What a command wrote, but for the bytes that tell the time."""
    found = {}
    for path in sorted(folder.glob(f"{name}.*")):
        if path.suffix == ".tif":
            with rasterio.open(path) as file:
                found[path.suffix] = file.read(1).tolist(), file.nodata, file.transform, file.crs
        elif path.suffix == ".gpkg":
            _, _, shapes, columns = pyogrio.raw.read(path)
            found[path.suffix] = list(shapes), [column.tolist() for column in columns]
        else:
            found[path.suffix] = path.read_bytes()
    assert found
    return found


@pytest.mark.parametrize("words", sorted(ROWS))
def test_as_from_a_store(world, capfd, words):
    assert call(capfd, "convert-dataset dem.tif s.zarr")[0] == 0
    runs = {"own": "s.zarr", "raster": "dem.tif", "kept": "dem.tif", "again": "dem.tif"}
    for name, data in runs.items():
        command = words.replace("{}", data, 1).replace("{}", name)
        command += " --store k.zarr" if data == "dem.tif" and name != "raster" else ""
        command += " --overwrite" if name == "again" else ""
        code, out, err = call(capfd, f"{command} --json {name}.json")
        assert code == 0, err
        result = json.loads((world / f"{name}.json").read_text())["result"]
        (world / f"{name}.json").unlink()
        assert result.get("raster") == (None if name == "own" else "dem.tif")
        assert ("store" in result) <= (name != "raster")
        assert ".terrain-gpu" not in out + err + json.dumps(result)
        assert not list(world.glob(".terrain-gpu-*"))
    expected = contents(world, "own")
    assert all(contents(world, name) == expected for name in runs)


def test_a_kept_store_is_converted_once(world, capfd):
    assert call(capfd, "compute-mst dem.tif --store k.zarr")[0] == 0
    before = os.stat("k.zarr/elevation").st_ino
    assert call(capfd, "slope dem.tif --store k.zarr")[0] == 0
    assert call(capfd, "compute-mst dem.tif --store k.zarr --overwrite")[0] == 0
    assert os.stat("k.zarr/elevation").st_ino == before
    assert set(TileStore.open("k.zarr").layers) == {"elevation", "mst", "slope"}


def test_a_raster_that_changed(world, capfd):
    assert call(capfd, "slope dem.tif --store k.zarr")[0] == 0
    write_tif("dem.tif", terrain(90, 110).astype(np.int16) // 2, nodata=-32768)
    code, _, err = call(capfd, "compute-mst dem.tif --store k.zarr")
    assert code == 2
    assert "--store must hold dem.tif as it is now; " in err
    assert "--overwrite replaces it" in err
    assert set(TileStore.open("k.zarr").layers) == {"elevation", "slope"}
    assert call(capfd, "compute-mst dem.tif --store k.zarr --overwrite")[0] == 0
    layer = TileStore.open("k.zarr").layer("elevation")
    assert np.array_equal(layer.read_window(0, 90, 0, 110), terrain(90, 110).astype("i2") // 2)


@contextlib.contextmanager
def interrupted(phase):
    """Ctrl-C in a phase, once something of it is done."""

    def press(*counted):
        raise options.Interrupted

    @contextlib.contextmanager
    def bar(step, *, quiet=False):
        yield press if step == phase else silent

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("terrain_gpu.progress.bar", bar)
        yield


@pytest.mark.parametrize("words", sorted(ROWS))
def test_an_interrupted_conversion_tells_what_is_kept(world, capfd, words):
    line = words.format(*["dem.tif", *["x"] * words.count("{}")])
    with interrupted("convert"):
        for more in ("", " --store k.zarr"):
            code, _, err = call(capfd, line + more)
            assert code == 130
            assert re.search("interrupted; .*(kept|unchanged)", err), err


def test_an_unfinished_run_goes_on(world, capfd):
    with interrupted("slope"):
        code, _, err = call(capfd, "slope dem.tif --store k.zarr")
    assert code == 130
    assert "finished blocks are kept, --resume continues" in err
    assert call(capfd, "slope dem.tif --store k.zarr --resume -o b.tif")[0] == 0
    assert call(capfd, "slope dem.tif -o c.tif")[0] == 0
    assert contents(world, "b") == contents(world, "c")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("slope dem.tif", "dem.tif is a raster: give -o for the result, or --store to keep it"),
        ("slope dem.tif -o x.tif --resume", "--resume needs a store; give --store too"),
        *(
            (f"{command} -o x.tif", f"dem.tif is a raster: {option} b writes a second layer, which")
            for command, option in (
                ("slope dem.tif --aspect b", "--aspect"),
                ("hand dem.tif --threshold 9 --distance b", "--distance"),
                ("depressions dem.tif --conditioned b", "--conditioned"),
                ("terrain-indices dem.tif --twi a --ls b", "--ls"),
                ("accumulate dem.tif --directions b", "--directions"),
            )
        ),
        *(
            (f"{command} -o x.tif", f"dem.tif is a raster: {option} is a layer, which needs")
            for command, option in (
                ("flow-accumulation dem.tif --weights rain.tif", "--weights rain.tif"),
                ("hand dem.tif --streams rivers", "--streams rivers"),
            )
        ),
        ("slope s.zarr --store k.zarr", "--store k.zarr is for a raster, and s.zarr is not a file"),
        ("slope nix.tif --store k.zarr", "--store k.zarr is for a raster, and nix.tif is not a"),
        ("slope nix.tif -o x.tif", "nix.tif: no such raster or store"),
        ("slope nix.zarr", "nix.zarr: no such store; convert-dataset makes one"),
        ("slope dem.tif --store dem.tif", "dem.tif: is a file"),
        ("slope dem.tif --store no/k.zarr", "its folder no does not exist"),
        ("slope marks.geojson -o x.tif", "marks.geojson: not a raster"),
        ("slope dem.tif -o dem.tif --overwrite", "STORE already names this file"),
        (
            "streams dem.tif --threshold 9 -o x.gpkg",
            "-o writes a raster (.tif, .zarr); --lines writes .gp",
        ),
        ("depressions dem.tif -o x.csv", "-o writes a raster (.tif, .zarr); --table"),
        (
            "corridor dem.tif a b -o x.tif",
            "dem.tif is a raster, so a b cannot be layers of it; give ",
        ),
        ("contours dem.tif c.gpkg --interval 0", "--interval 0.0 is not a finite number above 0"),
        ("polygons k.zarr p.gpkg", "which layer? --layer names one; there are: elevation, slope"),
    ],
)
def test_wrong(world, capfd, command, says):
    assert call(capfd, "convert-dataset dem.tif s.zarr")[0] == 0
    if "k.zarr p" in command:
        assert call(capfd, "slope dem.tif --store k.zarr")[0] == 0
    before = sorted(os.listdir(world))
    code, _, err = call(capfd, command)
    assert code == 2
    assert says in err
    assert sorted(os.listdir(world)) == before


def test_a_failed_proof_says_what_is_wrong(world, capfd, monkeypatch):
    from terrain_gpu.raster.slope import operation as problem

    def fails(layer, results, *more):
        raise VerificationError(f"{results['slope'].path}: row 3, column 4: 5.0", "cells", 3, 4)

    monkeypatch.setattr(problem, "verify_slopes", fails)
    code, _, err = call(capfd, "slope dem.tif -o s.tif --verify")
    assert code == 1
    assert err.startswith("Error: dem.tif/slope: row 3, column 4: 5.0"), err
    assert not (world / "s.tif").exists()


def test_the_next_run_removes_what_a_killed_one_left(world, capfd, caplog):
    """Its temporary store, a copy of the raster; not that of a process which is alive."""

    def kill():
        killed = TemporaryFolder(world)
        (killed.path / "store.zarr").mkdir()
        os.close(killed._lock)
        return killed.path.parent

    left = kill()
    theirs = world / left.name.replace(left.name.split("-")[2], "0" * 8)  # of another machine
    theirs.mkdir()
    with TemporaryFolder(world) as alive:
        assert not left.exists()
        for words in (
            "label-components dem.tif --where elevation>1 -o l.tif",
            "export s.zarr e.tif",
        ):
            left = kill()
            assert call(capfd, words)[0] == 0
            assert set(world.glob(".terrain-gpu-*")) == {alive.parent, theirs}
            assert f"{left}: removed this temporary folder, left by a killed run" in caplog.text
            assert call(capfd, "convert-dataset dem.tif s.zarr --overwrite")[0] == 0


def test_warnings_name_the_raster_and_not_its_temporary_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    z = np.arange(400, dtype=np.float32).reshape(20, 20)
    with rasterio.open("dem.tif", "w", "GTiff", 20, 20, 1, dtype=z.dtype) as out:
        out.write(z, 1)
    ended = programs.forked("terrain-gpu terrain-indices dem.tif --twi twi -o twi.tif")
    assert ended.returncode == 0
    assert "WARNING: dem.tif: no CRS, so map units" in ended.stderr
    assert ".terrain-gpu-" not in ended.stderr


@pytest.mark.parametrize("kept", ["", "--store k.zarr"])
def test_rasters_are_described_and_verified(world, capfd, kept):
    assert call(capfd, "convert-dataset dem.tif s.zarr")[0] == 0
    wanted = call(capfd, "info s.zarr")[1].splitlines()[1:]
    code, out, _ = call(capfd, f"info dem.tif {kept} --json r.json")
    assert (code, out.splitlines()) == (0, ["dem.tif", *wanted])
    assert json.loads((world / "r.json").read_text())["result"]["store"] == "dem.tif"
    assert call(capfd, "contours dem.tif c.gpkg --interval 500")[0] == 0
    code, out, _ = call(capfd, f"verify dem.tif --file c.gpkg {kept} --json r.json")
    assert (code, "dem.tif: file c.gpkg verified" in out) == (0, True)
    assert json.loads((world / "r.json").read_text())["result"]["c.gpkg"]["verified"]
    code, out, _ = call(capfd, f"verify dem.tif {kept}")
    assert (code, "dem.tif: layer elevation verified" in out) == (0, True)
    assert os.path.exists("k.zarr") == bool(kept)


def test_what_is_neither_store_nor_raster(world, capfd):
    for words, what in (
        ("info gone.tif", "gone.tif: no such raster or store"),
        ("verify dem.tif --accept-changes x", "--accept-changes needs a store"),
        ("map s.zarr --store k.zarr", "--store k.zarr is for a raster"),
    ):
        code, _, err = call(capfd, words)
        assert (code, what in err) == (2, True), err
