"""Layers as stores of their own: `-o x.zarr`, and `export_layer` to one."""

import os

import numpy as np
import pytest
import xarray
import zarr
from contract import make_store
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import block_sizes, rasters, shapes, windows
from test_cli import call, terrain, write_tif

import terrain_gpu
from terrain_gpu import TileStore
from terrain_gpu.errors import InputError
from terrain_gpu.io import export


@settings(max_examples=examples(15))
@given(
    raster=rasters(shape=shapes(200, 9000)),
    block=block_sizes(256),
    compress=st.sampled_from([None, "none", "zstd"]),
    data=st.data(),
)
def test_the_cells_are_those_of_the_layer(folders, raster, block, compress, data):
    top, bottom, left, right = data.draw(st.none() | windows(raster.shape)) or (
        0, raster.shape[0], 0, raster.shape[1],
    )  # fmt: skip
    with folders() as folder:
        store = make_store(folder / "s.zarr", raster.cells, raster.nodata, block)
        grid = TileStore.open(store).grid.crop((top, bottom, left, right))
        west, south, east, north = grid.bounds
        inner = west + 0.25, south + 0.25, east - 0.25, north - 0.25
        report = terrain_gpu.export_layer(
            store, folder / "x.zarr", bounds=inner, compress=compress, verify=True
        )
        assert report.command == "export"
        assert report.result["verified_cells"] == grid.cells
        made = TileStore.open(folder / "x.zarr")
        assert made.layers == ["elevation"]
        layer = made.layer("elevation")
        assert layer.grid.same_place(grid)
        assert layer.nodata == raster.nodata or layer.nodata != layer.nodata
        cells = raster.cells[top:bottom, left:right]
        assert layer.read_window(0, *layer.grid.shape[:1], 0, layer.grid.cols).tobytes() == (
            np.ascontiguousarray(cells).tobytes()
        )
        assert zarr.open(folder / "x.zarr")["elevation"][:].tobytes() == cells.tobytes()
        with xarray.open_zarr(folder / "x.zarr", consolidated=False, mask_and_scale=False) as seen:
            assert seen.elevation.shape == cells.shape


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_tif("dem.tif", terrain(90, 110), nodata=-32768)
    write_tif("part.tif", terrain(60, 110), nodata=-32768)
    return tmp_path


def test_commands_write_them(world, capfd):
    """With what the layer says of itself, so that other commands go on from there."""
    assert call(capfd, "slope dem.tif -o dem.zarr")[0] == 0
    assert call(capfd, "slope dem.tif -o slope.tif")[0] == 0
    code, _, said = call(capfd, "flow-direction dem.tif -o dem.zarr")
    assert (code, said) == (
        2,
        "Error: dem.zarr: exists; --overwrite puts the layer into it\n",
    )
    assert call(capfd, "flow-direction dem.tif -o dem.zarr --overwrite --compress zstd")[0] == 0
    assert sorted(os.listdir()) == ["dem.tif", "dem.zarr", "part.tif", "slope.tif"]
    made = TileStore.open("dem.zarr")
    assert sorted(made.layers) == ["flow_direction", "slope"]
    assert made.layer("slope").attributes["units"] == "degree"
    assert made.layer("flow_direction").compress == "zstd"
    assert made.layer("flow_direction").info["encoding"] == "esri-d8-downstream"
    found = terrain_gpu.open("dem.zarr")
    with xarray.open_dataarray("slope.tif", engine="rasterio") as file:
        assert np.array_equal(found.slope, file[0], equal_nan=True)
    assert call(capfd, "flow-accumulation dem.zarr")[0] == 0
    assert call(capfd, "flow-accumulation dem.tif -o sums.tif --store kept.zarr")[0] == 0
    one, other = (
        TileStore.open(name).layer("flow_accumulation") for name in ("dem.zarr", "kept.zarr")
    )
    assert one.identity == other.identity
    command = "compute-sssp dem.tif --source-rowcol 80,90 -o d.zarr --backlink b.zarr --overwrite"
    assert call(capfd, command)[0] == 0
    assert TileStore.open("b.zarr").layers == ["backlink"]


@pytest.mark.parametrize(
    "command",
    [
        "slope dem.tif -o x.zarr",
        "fill dem.tif -o x.zarr",
        "compute-sssp dem.tif --source-rowcol 80,9 -o x.zarr",
        "corridor dem.tif --source-rowcol 80,9 --target-rowcol 5,5 -o x.zarr",
    ],
)
def test_a_second_run_replaces_the_first(world, capfd, command):
    """With --overwrite, also of a raster that changed; its own command takes a removed one."""
    assert call(capfd, command)[0] == 0
    (name,) = TileStore.open("x.zarr").layers
    first = TileStore.open("x.zarr").layer(name).identity
    code, _, said = call(capfd, command)
    assert (code, "exists; --overwrite" in said) == (2, True)
    assert call(capfd, f"{command} --overwrite")[0] == 0
    assert TileStore.open("x.zarr").layer(name).identity == first
    write_tif("dem.tif", terrain(90, 110)[::-1] // 2, nodata=-32768)
    assert call(capfd, f"{command} --overwrite")[0] == 0
    assert TileStore.open("x.zarr").layer(name).identity != first
    assert call(capfd, "convert-dataset dem.tif x.zarr")[0] == 0
    within = command.replace("dem.tif", "x.zarr").partition(" -o")[0]
    code, _, said = call(capfd, f"{within} --overwrite")
    assert code == 2
    assert f"terrain-gpu layers {world}/x.zarr remove {name})" in said
    assert call(capfd, f"layers x.zarr remove {name}")[0] == 0
    assert call(capfd, within)[0] == 0
    assert list(TileStore.open("x.zarr").layers)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("slope dem.tif -o x.zarr --cog", "x.zarr: cog applies only to GeoTIFF; leave it out, or"),
        ("slope dem.tif -o x.zarr --compress lzw", "x.zarr: compress lzw applies only to GeoTIFF"),
        (
            "compute-sssp dem.tif --source-rowcol 80,90 -o x.zarr --dtype float32",
            "dtype float32 applies only",
        ),
        (
            "slope part.tif -o dem.zarr --overwrite",
            "dem.zarr: is a store with another grid, of 90 x 110",
        ),
        ("slope dem.zarr -o dem.zarr --overwrite", "STORE already names this file"),
        (
            "export dem.zarr x.zarr --encoding grass",
            "x.zarr: encoding grass applies only to GeoTIFF",
        ),
        ("export dem.zarr no/x.zarr", "no/x.zarr: its folder no does not exist; make it first"),
        ("export dem.zarr dem.tif/x.zarr", "its folder dem.tif does not exist"),
        ("export dem.zarr dem.zarr/x.zarr", "is inside the store"),
        ("export dem.zarr folder.zarr", "folder.zarr: is a folder, but not a store"),
    ],
)
def test_wrong(world, capfd, command, says):
    assert call(capfd, "convert-dataset dem.tif dem.zarr")[0] == 0
    os.mkdir("folder.zarr")
    code, _, said = call(capfd, command)
    assert (code, says in said) == (2, True), said
    assert not os.path.exists("x.zarr")


def test_a_killed_export_goes_on(world, capfd, monkeypatch):
    """--overwrite of what a killed run left; an older layer stays until the new one is complete."""
    assert call(capfd, "convert-dataset dem.tif dem.zarr")[0] == 0
    assert call(capfd, "slope dem.zarr -o x.zarr")[0] == 0
    before = TileStore.open("x.zarr").layer("slope").identity
    assert call(capfd, "calc dem.zarr 'slope * 2' --into twice")[0] == 0

    def fails(*args, **more):
        raise InputError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr("terrain_gpu.io.layer_input.LayerInput.read", fails)
        with pytest.raises(InputError, match="stopped"):
            export.export_layer("dem.zarr", "x.zarr", layer="twice", overwrite=True)
    assert TileStore.open("x.zarr").layer("slope").identity == before
    assert call(capfd, "export dem.zarr x.zarr --layer twice --overwrite")[0] == 0
    assert sorted(TileStore.open("x.zarr").layers) == ["slope", "twice"]


def test_in_a_bucket(world, bucket, capfd, monkeypatch):
    """Also without a folder for scratch files: the raster's store is not made beside a URL."""
    monkeypatch.delenv("TERRAIN_GPU_SCRATCH", raising=False)
    assert call(capfd, f"slope dem.tif -o {bucket}/x.zarr")[0] == 0
    assert call(capfd, "slope dem.tif -o x.zarr")[0] == 0
    one, other = (TileStore.open(at).layer("slope") for at in (f"{bucket}/x.zarr", "x.zarr"))
    assert one.identity == other.identity
    code, _, said = call(capfd, f"slope dem.tif -o {bucket}/x.zarr")
    assert (code, "exists; --overwrite puts the layer into it" in said) == (2, True)
    assert sorted(os.listdir()) == ["dem.tif", "part.tif", "scratch", "x.zarr"]
    assert os.listdir("scratch") == []


def test_a_stopped_export_of_something_else(world, capfd, monkeypatch):
    """--overwrite starts again; a store of another grid is never replaced."""
    assert call(capfd, "convert-dataset dem.tif dem.zarr")[0] == 0
    assert call(capfd, "slope dem.zarr")[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr("terrain_gpu.io.layer_input.LayerInput.read", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            export.export_layer("dem.zarr", "x.zarr", layer="slope")
    assert (
        call(capfd, "export dem.zarr x.zarr --layer elevation --compress zstd --overwrite")[0] == 0
    )
    assert list(TileStore.open("x.zarr").layers) == ["elevation"]
    grid = TileStore.open("x.zarr").grid
    west, south, east, north = grid.bounds
    half = f"{west} {south} {(west + east) / 2} {north}"
    code, _, said = call(capfd, f"export dem.zarr x.zarr --bounds {half} --overwrite")
    assert (code, "is a store with another grid" in said) == (2, True)
    assert TileStore.open("x.zarr").grid == grid


def test_stores_of_the_same_name(world, capfd):
    """They are refused before anything is computed."""
    assert call(capfd, "convert-dataset dem.tif dem.zarr")[0] == 0
    for words in (
        "slope dem.tif -o y.zarr --store y.zarr",
        "slope dem.zarr -o dem.zarr --overwrite",
    ):
        code, _, said = call(capfd, words)
        assert (code, "already names this file" in said) == (2, True)
    assert list(TileStore.open("dem.zarr").layers) == ["elevation"]
    assert not os.path.exists("y.zarr")


def test_blocks_do_not_depend_on_what_was_there(tmp_path, no_fsync):
    cells = np.arange(90 * 110, dtype=np.int16).reshape(90, 110)
    for block in (64, 256):
        store = make_store(tmp_path / f"{block}.zarr", cells, None, block)
        terrain_gpu.export_layer(store, tmp_path / "x.zarr", overwrite=True)
        assert TileStore.open(tmp_path / "x.zarr").layer("elevation").block_size == block
