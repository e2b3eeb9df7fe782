"""Overviews: against plain Python, and as other programs read them."""

from __future__ import annotations

import json
import shutil
from functools import cache

import numpy as np
import programs
import pytest
import rasterio
import reference
import zarr
import zarr_cm.multiscales
from bucket import files, objects
from contract import OperationContract, Stop, make_store, same, stop_at, whole
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import rasters, shapes

from terrain_gpu import TileStore, build_overviews, export_layer, label_components, slope
from terrain_gpu.errors import InputError, StoreError, VerificationError
from terrain_gpu.raster.overviews import operation as problem
from terrain_gpu.raster.overviews.operation import Overview
from terrain_gpu.raster.overviews.proof import _reduced
from terrain_gpu.raster.overviews.reduce import METHODS, reduce
from terrain_gpu.store import levels
from terrain_gpu.store.levels import coarser, levels_of, overviews_of, place_of
from terrain_gpu.store.manage import remove_layers, rename_layer
from terrain_gpu.store.overviews import begin_level, remove_overviews

pytestmark = pytest.mark.usefixtures("no_fsync")

AVERAGED = st.sampled_from([np.dtype(f"<{kind}") for kind in ["u1", "i2", "i4", "u4", "f4", "f8"]])


@pytest.fixture
def deep(monkeypatch):
    """Levels down to 16 cells a side."""
    monkeypatch.setattr(levels, "SMALLEST", 16)


class TestOverview(OperationContract):
    """One level, of averages."""

    representative = True
    command = "overviews s.zarr --layer elevation --resampling average"
    rasters = rasters(AVERAGED, shapes(200, 20_000))
    identified = False

    def prepare(self, store):
        begin_level(store, 2, coarser(TileStore.open(store).grid))

    def make(self, store):
        return Overview(str(place_of(store, 2)), "elevation", "average")

    def expected(self, data, nodata, grid):
        return [reference.overview(data, nodata, "average")]

    def cells(self, shape=(290, 410), dtype=np.int16):
        return super().cells(shape, dtype)

    def outputs(self, store):
        return super().outputs(place_of(store, 2))

    def provable(self, store):
        return {TileStore.open(place_of(store, 2)).grid.cells}

    def there(self, store):
        level = place_of(store, 2)
        return {f"overviews/2/{name}" for name in TileStore.open(level).layers}


@pytest.mark.parametrize("how", METHODS)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_reduced_as_by_plain_python(how, data):
    kinds = AVERAGED if how == "average" else None
    raster = data.draw(rasters(kinds, shapes(90, 2000)))
    right = reference.overview(raster.cells, raster.nodata, how)
    found = np.empty_like(right)
    reduce(raster.cells, raster.nodata, how, found)
    assert same(found, right)
    assert same(np.ascontiguousarray(_reduced(raster.cells, raster.nodata, how)), right)


def test_averages_that_floats_do_not_hold():
    most = np.finfo(np.float64).max
    cells = np.array([[most, most], [most, most / 2]])
    found = np.empty((1, 1))
    reduce(cells, None, "average", found)
    assert found[0, 0] == most / 4 * 3 + most / 8


def pyramid(cells, nodata, how):
    found = [cells]
    while max(found[-1].shape) > levels.SMALLEST:
        found.append(reference.overview(found[-1], nodata, how))
    return found[1:]


@cache
def heights():
    return np.random.default_rng(3).normal(500, 100, (130, 75)).astype(np.float32)


@pytest.fixture
def store(tmp_path, deep):
    return make_store(tmp_path / "dem.zarr", heights(), None, 64)


def check(store, how="average"):
    found = list(levels_of(TileStore.open(store)))
    right = pyramid(heights(), None, how)
    assert [factor for factor, _ in found] == [2, 4, 8, 16]
    for (_, level), cells in zip(found, right, strict=True):
        assert same(whole(level.layer("elevation")), cells)


@pytest.mark.parametrize("how", [None, *METHODS])
def test_all_levels(store, how):
    told = []
    report = build_overviews(
        store, resampling=how, verify=True, progress=lambda *one: told.append(one)
    )
    check(store, how or "average")
    assert report.result["layers"]["elevation"]["built"] == [2, 4, 8, 16]
    assert sum(done for done, _ in told) == told[-1][1]
    assert overviews_of(TileStore.open(store), "elevation") == ([2, 4, 8, 16], [])


def test_integers_are_not_averaged_unless_asked(tmp_path, deep):
    cells = heights().astype(np.int64)
    store = make_store(tmp_path / "s.zarr", cells, None, 64)
    build_overviews(store)
    level = TileStore.open(place_of(store, 2))
    assert same(whole(level.layer("elevation")), np.ascontiguousarray(cells[::2, ::2]))
    with pytest.raises(InputError, match="int64, whose averages are not exact; choose nearest"):
        build_overviews(store, resampling="average")


def test_directions_are_not_averaged(tmp_path):
    """The mean of 350 and 10 degrees is not 180; neither in a store nor in a file."""
    rows, cols = np.indices((520, 520))
    store = make_store(tmp_path / "s.zarr", 5.0 * rows + cols % 7, None, 64)
    slope(store, aspect="facing")
    aspects = whole(TileStore.open(store).layer("facing"))
    assert build_overviews(store, layers=["facing"]).result["layers"]["facing"] == {
        "resampling": "nearest", "built": [2, 4], "kept": [],
    }  # fmt: skip
    level = whole(TileStore.open(place_of(store, 2)).layer("facing"))
    assert same(level, np.ascontiguousarray(aspects[::2, ::2]))
    label_components(store, "facing > 180")
    labels = whole(TileStore.open(store).layer("components"))
    for name, cells in (("facing", aspects), ("components", labels)):
        export_layer(store, file := tmp_path / f"{name}.tif", layer=name, dtype="float32", cog=True)
        with rasterio.open(file, overview_level=0) as level:
            found = level.read(1)
            assert np.isin(found[np.isfinite(found)], cells).all()


def test_averages_of_labels_that_an_older_version_made(tmp_path, deep, monkeypatch):
    cells = np.arange(60 * 70).reshape(60, 70) % 9
    store = make_store(tmp_path / "s.zarr", cells.astype(np.float32), None, 64)
    label_components(store, "elevation > 4")
    monkeypatch.setattr(problem, "is_coded", lambda layer: False)
    build_overviews(store, layers=["components"], resampling="average")
    monkeypatch.undo()
    monkeypatch.setattr(levels, "SMALLEST", 16)
    ended = programs.forked(f"terrain-gpu verify {place_of(store, 2)}")
    assert (ended.returncode, "averages of codes" in ended.stderr) == (2, True), ended.stderr
    made = build_overviews(store, layers=["components"]).result["layers"]["components"]
    assert (made["resampling"], made["built"]) == ("nearest", [2, 4, 8])


def test_what_is_there_is_kept(store):
    build_overviews(store, layers=["elevation"])
    before = {path: path.stat().st_mtime_ns for path in (store / "overviews").rglob("c/*/*")}
    assert before
    assert build_overviews(store).result["layers"]["elevation"]["kept"] == [2, 4, 8, 16]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    # Another way of making them is another overview.
    assert build_overviews(store, resampling="max").result["layers"]["elevation"]["kept"] == []
    check(store, "max")
    assert build_overviews(store).result["layers"]["elevation"]["kept"] == [2, 4, 8, 16]
    shutil.rmtree(store / "overviews/4/elevation/c")  # which is found when it is read
    assert build_overviews(store, resampling="max", overwrite=True)
    check(store, "max")


def test_stopped_and_resumed(store):
    for share in (0.3, 0.9):
        with pytest.raises(Stop):
            build_overviews(store, threads=1, resume=True, progress=stop_at(share))
    build_overviews(store, resume=True)
    check(store)


def test_on_a_cluster(store, cluster):
    build_overviews(store, client=cluster, verify=True)
    check(store)


def test_they_go_with_their_layer(store):
    slope(store)
    build_overviews(store)
    opened = TileStore.open(store)
    slope(store, overwrite=True)
    assert overviews_of(opened, "slope") == ([], [])
    assert overviews_of(opened, "elevation")[0]
    build_overviews(store)
    rename_layer(opened, "slope", "steep")
    assert not any("slope" in level.layers for _, level in levels_of(opened))
    build_overviews(store, layers=["steep"])
    remove_layers(opened, ["steep"])
    assert [level.layers for _, level in levels_of(opened)] == [["elevation"]] * 4


def test_stale_ones_are_told(store, tmp_path):
    build_overviews(store)
    other = make_store(tmp_path / "other.zarr", heights() + 1, None, 64)
    shutil.rmtree(store / "elevation")
    shutil.copytree(other / "elevation", store / "elevation")
    assert overviews_of(TileStore.open(store), "elevation") == ([], [2, 4, 8, 16])
    told = programs.forked(f"terrain-gpu info {store}")
    assert "levels  others are STALE; build them again" in told.stdout
    told = programs.forked(f"terrain-gpu verify {store}")
    assert told.returncode
    assert "made from other cells than" in told.stderr
    build_overviews(store)
    assert overviews_of(TileStore.open(store), "elevation") == ([2, 4, 8, 16], [])


def test_a_wrong_cell_is_found(store, monkeypatch):
    def wrong(values, valid, nodata):
        return np.nextafter(average(values, valid, nodata), np.float32(np.inf))

    average = METHODS["average"]
    monkeypatch.setitem(METHODS, "average", wrong)
    with pytest.raises(VerificationError, match="where average gives"):
        build_overviews(store, verify=True)
    assert overviews_of(TileStore.open(store), "elevation") == ([], [])
    build_overviews(store)
    told = programs.forked(f"terrain-gpu verify {store}")
    assert told.returncode == 1
    assert "layer overviews/2/elevation is wrong" in told.stdout


# -- other programs --------------------------------------------------------------------------------


def test_the_convention(store):
    build_overviews(store)
    group = zarr.open_group(store, mode="r")
    assert [one["name"] for one in group.attrs["zarr_conventions"]][-1] == "multiscales"
    zarr_cm.multiscales.validate_node_metadata(json.loads((store / "zarr.json").read_text()))
    layout = group.attrs["multiscales"]["layout"]
    assert [one["asset"] for one in layout] == [".", *(f"overviews/{k}" for k in (2, 4, 8, 16))]
    finest, *others = layout
    assert finest["spatial:shape"] == [130, 75]
    for before, one in zip(layout, others, strict=False):
        assert one["derived_from"] == before["asset"]
        level = group[one["asset"]]
        assert level["elevation"].shape == tuple(one["spatial:shape"])
        assert level.attrs["spatial:transform"] == one["spatial:transform"]
        a, b, c, d, e, f = before["spatial:transform"]
        scale = one["transform"]["scale"]
        assert one["spatial:transform"] == [a * scale[1], b, c, d, e * scale[0], f]
    for cells, one in zip(pyramid(heights(), None, "average"), others, strict=True):
        assert same(group[one["asset"]]["elevation"][:], cells)
    assert set(dict(group.arrays())) == {"elevation", "x", "y", "spatial_ref"}
    build_overviews(store)
    assert group.attrs["multiscales"]["layout"] == layout


def test_removed(store):
    before = json.loads((store / "zarr.json").read_text())
    build_overviews(store)
    told = programs.forked(f"terrain-gpu overviews {store} --remove --layer elevation")
    assert told.stdout.endswith("removed overviews of elevation\n")
    told = programs.forked(f"terrain-gpu overviews {store} --remove")
    assert told.stdout.endswith("removed overviews of no layer\n")
    assert not (store / "overviews").exists()
    assert json.loads((store / "zarr.json").read_text()) == before


def test_in_a_bucket(store, bucket):
    url = f"{bucket}/dem.zarr"
    make_store(url, heights(), None, 64)
    build_overviews(url, verify=True)
    build_overviews(store)
    assert objects(url) == files(store)
    assert build_overviews(url).result["layers"]["elevation"]["kept"] == [2, 4, 8, 16]
    slope(url)
    build_overviews(url)
    slope(url, overwrite=True)
    opened = TileStore.open(url)
    assert [level.layers for _, level in levels_of(opened)] == [["elevation"]] * 4
    remove_layers(opened, ["slope"])
    assert remove_overviews(opened) == ["elevation"]
    remove_overviews(TileStore.open(store))
    assert objects(url) == files(store)


def test_layers_computed_in_a_level_are_not_replaced(store):
    build_overviews(store)
    slope(store / "overviews/2")
    slope(store)
    with pytest.raises(InputError, match="layer 'slope' does not hold overviews"):
        build_overviews(store, overwrite=True)
    level = TileStore.open(place_of(store, 2)).layer("slope")
    assert level.info["settings"]["slope_of"] == "elevation"
    assert programs.forked(f"terrain-gpu verify {store}").returncode == 0


def test_only_levels_are_removed(store):
    folder = store / "overviews"
    slope(store, into="overviews_")
    (store / "overviews_").rename(folder)  # as an earlier version called a layer
    with pytest.raises(StoreError, match="is a layer, but this name is now reserved"):
        build_overviews(store)
    assert remove_overviews(TileStore.open(store)) == []
    assert (folder / "zarr.json").exists()
    folder.rename(store / "other")
    build_overviews(store, layers=["elevation"])
    (folder / "mine").mkdir()
    remove_overviews(TileStore.open(store))
    assert [path.name for path in folder.iterdir()] == ["mine"]
    assert "multiscales" not in zarr.open_group(store, mode="r").attrs


@pytest.mark.parametrize("left", [(2, 4), ()])
def test_a_removal_that_was_interrupted(store, left):
    before = files(store)
    build_overviews(store)
    for factor in (16, 8, 4, 2):
        if factor not in left:
            shutil.rmtree(place_of(store, factor))
    if not left:
        shutil.rmtree(store / "overviews")
    remove_overviews(TileStore.open(store))
    assert files(store) == before


def test_levels_that_a_run_writes_are_not_removed(store):
    def remove(cells, total):
        with pytest.raises(StoreError, match="a run is writing 'elevation'"):
            remove_overviews(TileStore.open(store))

    build_overviews(store, progress=remove)
    check(store)


def test_wrong_input(store):
    build_overviews(store)
    with pytest.raises(StoreError, match=r"an overview of .*dem.zarr; build the overviews of that"):
        build_overviews(store / "overviews/2")
    with pytest.raises(StoreError, match="no layer 'nix'; it has: elevation"):
        build_overviews(store, layers=["nix"])
    small = make_store(store.parent / "small.zarr", np.zeros((3, 3), np.int16), None, 64)
    with pytest.raises(StoreError, match="no layer 'nix'; it has: elevation"):
        build_overviews(small, layers=["nix"], resampling="mode")
    with pytest.raises(StoreError, match="no layer 'nix'; it has: elevation"):
        remove_overviews(TileStore.open(store), ["nix"])
    told = programs.forked(f"terrain-gpu overviews {store} --remove --verify")
    assert (told.returncode, "--remove builds nothing; leave out --verify" in told.stderr) == (
        2,
        True,
    )
    with pytest.raises(InputError, match="layers 'elevation': give a list of names of layers"):
        build_overviews(store, layers="elevation")
    with pytest.raises(InputError, match="resampling 'bilinear'"):
        build_overviews(store, resampling="bilinear")
