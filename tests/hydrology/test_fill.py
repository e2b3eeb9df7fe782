"""Fill with epsilon, around depressions that stay, and to given outlets, against plain Python."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import rasterio
import reference
from contract import make_store, same, whole
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import rasters, shapes
from test_depressions import conditioned, right
from test_flow import AlongDirections, call, right_codes

from terrain_gpu import TileStore, depressions, fill, flow_accumulation, flow_direction
from terrain_gpu import minimum_spanning_tree as spanning_tree
from terrain_gpu.errors import InputError, StoreError
from terrain_gpu.grid import GridSpec
from terrain_gpu.hydrology.common.codes import DIRECTIONS
from terrain_gpu.hydrology.depressions.filling import FillAround
from terrain_gpu.hydrology.fill.epsilon import EpsilonFill
from terrain_gpu.hydrology.fill.steps import heights_of, ordinals

FIVE = np.float32(5).view(np.int32)


@st.composite
def float_rasters(draw):
    """Of float32 below its largest value; also with heights that are a few steps apart."""
    raster = draw(rasters(st.just(np.dtype("<f4")), shapes(200, 6000)))
    cells = raster.cells.copy()
    cells[cells == np.finfo(np.float32).max] = 7
    if draw(st.booleans()):
        good = reference.vertices(cells, raster.nodata)
        steps = np.abs(cells[good].astype(np.float64)) * 7 % draw(st.sampled_from([2, 9, 300]))
        cells[good] = (FIVE + steps.astype(np.int32)).view(np.float32)
    object.__setattr__(raster, "cells", cells)
    return raster


class TestEpsilonFillContract(AlongDirections):
    command = "fill s.zarr --epsilon"
    rasters = float_rasters()

    def cells(self, shape=(150, 210), dtype=np.float32):
        return super().cells(shape, dtype)

    def make(self, store):
        return EpsilonFill(str(store))

    def expected(self, data, nodata, grid):
        return [reference.filled_with_epsilon(data, right_codes(data, nodata, grid), nodata)]


class TestFillAroundContract(AlongDirections):
    command = "fill s.zarr --keep-deeper-than 20"
    proven_by_workers = False

    def make(self, store):
        return FillAround.keeping(str(store), DIRECTIONS, "filled", 20.0, None)

    def expected(self, data, nodata, grid):
        found, numbers = right(data, nodata)
        kept = [pit for pit in sorted(found) if found[pit][0] - data[pit].item() > 20]
        return [conditioned(data, nodata, found, numbers, kept)[1]]


# -- epsilon -------------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(
    raster=float_rasters(),
    connectivity=st.sampled_from([8, 4]),
    ends=st.sampled_from(["low_edge", "edge", "border", "one"]),
    block=st.sampled_from([64, 128]),
    threads=st.integers(1, 3),
)
def test_every_cell_has_a_lower_neighbour(folders, raster, connectivity, ends, block, threads):
    data, nodata = raster.cells, raster.nodata
    cells = reference.listed(reference.vertices(data, nodata))
    if ends == "one":
        ends = [cells[len(cells) // 3]] if cells else "edge"
    with folders() as folder:
        store = make_store(folder / "s.zarr", data, nodata, block)
        spanning_tree(store, weight="flow", connectivity=connectivity, backend="cpu")
        codes = whole(flow_direction(store, ends).layers[DIRECTIONS])
        found = fill(store, epsilon=True, threads=threads, verify=True)
        levels = whole(found.layers["filled"])
        downhill = flow_direction(store, ends, flats="gradient", into="down", verify=True)
        down = whole(downhill.layers["down"])
    assert same(levels, reference.filled_with_epsilon(data, codes, nodata, connectivity))
    plain, drains = reference.filled(data, codes, nodata, connectivity), codes != 255
    rise = levels[drains].astype(float) - plain[drains]
    assert (rise >= 0).all()
    assert found.found == {
        "raised_above_fill": np.count_nonzero(rise),
        "largest_rise": float(rise.max(initial=0)),
    }
    # What need not be raised is not, and only outlets have no lower neighbour.
    assert np.array_equal(down == 0, codes == 0)
    for row, col in reference.listed(drains & (codes != 0)):
        beside = [
            levels[row + r, col + c]
            for r, c in reference.TOWARD[:: 8 // connectivity]
            if 0 <= row + r < len(data) and 0 <= col + c < data.shape[1]
            and drains[row + r, col + c]
        ]  # fmt: skip
        assert min(beside) < levels[row, col]
        assert levels[row, col] == data[row, col] or levels[row, col] == above(min(beside), nodata)
        assert down[row, col] not in (0, 255)


def above(level, nodata):
    """The next float that is no nodata."""
    found = np.nextafter(level, np.float32(np.inf))
    return above(found, nodata) if found == nodata else found


def test_a_lake_that_overtops_what_is_around_it(tmp_path):
    """Steps go on over ground that is hardly higher than the lake."""
    data = np.full((150, 200), 6, np.float32)
    data[1:-1, 1:-1] = 1
    steps = np.arange(200, dtype=np.int32)[::-1] // 60
    data[70:80] = (FIVE + steps).view(np.float32)  # a bank in it: one step for 60 cells
    data[75, -1] = 5
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    spanning_tree(store, weight="flow")
    codes = whole(flow_direction(store, [(75, 199)]).layers[DIRECTIONS])
    found = fill(store, epsilon=True, verify=True)
    levels = whole(found.layers["filled"])
    assert same(levels, reference.filled_with_epsilon(data, codes))
    plain = reference.filled(data, codes)
    bank = np.s_[70:80, 1:-1]
    assert (plain[bank] == data[bank]).all()  # not under water
    assert (levels[bank] > data[bank]).any()
    assert found.found["largest_rise"] == float((levels - plain.astype(float)).max())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ordinals(dtype):
    top = np.finfo(dtype).max
    tiny = np.finfo(dtype).smallest_subnormal
    values = np.array([-top, -2, -1, -tiny, -0.0, 0.0, tiny, 1, 2, top], dtype)
    found = ordinals(values, None)
    assert (np.diff(found) > 0).tolist() == [True] * 4 + [False] + [True] * 4
    assert np.array_equal(heights_of(found, values.dtype, None), values)
    after = np.nextafter(values[:-1], dtype(np.inf))
    assert np.array_equal(heights_of(found[:-1] + 1, values.dtype, None), after)
    # Without nodata: what is on both sides of it are neighbours.
    without = ordinals(values[values != 1], 1.0)
    assert np.array_equal(heights_of(without, values.dtype, 1.0), values[values != 1])
    before = ordinals(np.nextafter(dtype(1), dtype(0))[None], 1.0)
    assert heights_of(before + 1, values.dtype, 1.0) == np.nextafter(dtype(1), dtype(2))
    assert np.array_equal(ordinals(values, math.nan), found)


def test_heights_of_float64_are_raised_by_their_own_steps(tmp_path):
    from terrain_gpu import accumulate

    data = np.random.default_rng(2).integers(0, 9, (100, 150)).astype(np.float64)
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    spanning_tree(store)
    accumulate(store, directions="ways")
    found = fill(store, directions="ways", epsilon=True, verify=True)
    codes = whole(TileStore.open(store).layer("ways"))
    levels = whole(found.layers["filled"])
    assert same(levels, reference.filled_with_epsilon(data, codes))
    assert 0 < found.found["largest_rise"] < 1e-12


def test_heights_that_have_no_room_above(tmp_path):
    data = np.full((80, 90), np.finfo(np.float32).max)
    data[40, 70] = 3
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    spanning_tree(store, weight="flow")
    flow_direction(store)
    with pytest.raises(InputError, match=r"row \d+, column \d+: the filled elevation would exceed"):
        fill(store, epsilon=True)
    assert fill(store).found == {}


def test_epsilon_needs_floats_and_leaves_nothing(dem, capsys):
    assert call("convert-dataset dem.tif s.zarr -q") == 0
    assert call("fill s.zarr --epsilon") == 2
    error = capsys.readouterr().err
    assert "elevations are int16, but --epsilon raises cells by the" in error
    assert "convert them to float32 first (gdal_translate -ot Float32, or astype)" in error
    assert call("fill s.zarr --epsilon --keep-deeper-than 3") == 2
    assert (
        "--epsilon fills every depression; it cannot be combined with --keep-deeper-than"
        in capsys.readouterr().err
    )
    assert "filled" not in TileStore.open("s.zarr").layers


def test_epsilon_from_a_raster(dem, tmp_path, capsys):
    profile = {"driver": "GTiff", "height": 100, "width": 150, "count": 1, "dtype": "float32"}
    with rasterio.open("f.tif", "w", **profile, nodata=-1) as file:
        file.write(dem.astype(np.float32), 1)
    assert call("fill f.tif --epsilon -o out.tif --verify --json r.json") == 0
    assert " above plain fill by up to " in capsys.readouterr().out
    heights = dem.astype(np.float32)
    codes = right_codes(heights, -1, GridSpec(*dem.shape))
    with rasterio.open("out.tif") as file:
        assert same(file.read(1), reference.filled_with_epsilon(heights, codes, -1))
    result = json.loads(Path("r.json").read_text())["result"]
    assert result["raised_above_fill"] > 0 < result["largest_rise"]
    assert result["block_visits"] >= 1


@pytest.mark.parametrize("method", ["dinf", "mfd", "quinn"])
def test_flow_is_divided_over_heights_with_epsilon(tmp_path, method):
    data = np.random.default_rng(5).integers(0, 7, (140, 150)).astype(np.float32)
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    spanning_tree(store, weight="flow")
    flow_direction(store)
    fill(store, epsilon=True)
    flow_accumulation(store, method=method, verify=True)


# -- depressions that stay ------------------------------------------------------------------------


@settings(max_examples=examples(40))
@given(
    raster=rasters(st.sampled_from(["<i2", "<f4"]).map(np.dtype), shapes(200, 3000), special=False),
    connectivity=st.sampled_from([8, 4]),
    depth=st.sampled_from([None, 0, 2, 3, 2500]),
    area=st.sampled_from([None, 1, "3 cells", 4, 30]),
    block=st.sampled_from([64, 256]),
)
def test_depressions_that_are_kept(folders, raster, connectivity, depth, area, block):
    data, nodata = raster.cells, raster.nodata
    outlets = reference.edge(reference.vertices(data, nodata))
    found, numbers = right(data, nodata, connectivity, outlets)
    smallest = reference.smallest_depressions(data, found, numbers, nodata, connectivity)
    sizes = {pit: 0 for pit in found}
    pits = dict(zip(numbers.values(), numbers, strict=True))
    for cell in reference.listed(smallest != 0):
        pit = pits[smallest[cell]]
        while pit in found:
            sizes[pit] += 1
            pit = found[pit][1]
    kept = [
        pit for pit in sorted(found)
        if (depth is None or found[pit][0] - data[pit].item() > depth)
        and (area is None or sizes[pit] > int(str(area).split()[0]))
    ]  # fmt: skip
    expected = conditioned(data, nodata, found, numbers, kept, connectivity)[1]
    with folders() as folder:
        store = make_store(folder / "s.zarr", data, nodata, block)
        spanning_tree(store, weight="flow", connectivity=connectivity, backend="cpu")
        flow_direction(store)
        result = fill(store, keep_deeper_than=depth, keep_larger_than=area, verify=True)
        assert same(whole(result.layers["filled"]), expected)
        if depth is None and area is None:
            assert result.found == {}
            return
        assert result.found["depressions"] == len(kept)
        # As `depressions` fills those that are left out, up to what is just as deep or large.
        least = (0.0 if depth is None else math.nextafter(depth, math.inf), 0.0)
        if area is None:
            more = depressions(store, min_depth=least[0], conditioned="c")
            assert same(whole(more.layers["c"]), expected)


def test_lakes_that_stay(tmp_path, capsys, monkeypatch):
    """Four pits: deep and large, deep, large, neither."""
    monkeypatch.chdir(tmp_path)
    data = np.full((70, 150), 20, np.int16)
    data[10:40, 10:40], data[10:12, 60:62] = 10, 10
    data[10:40, 80:120], data[50:52, 60:62] = 16, 16
    profile = {"driver": "GTiff", "height": 70, "width": 150, "count": 1, "dtype": "int16"}
    place = rasterio.Affine(10, 0, 500000, 0, -10, 5500000)
    with rasterio.open("lakes.tif", "w", **profile, transform=place, crs="EPSG:32633") as file:
        file.write(data, 1)
    assert call("convert-dataset lakes.tif s.zarr --block-size 64 -q") == 0

    def levels(words):
        assert call(f"fill s.zarr --overwrite --verify {words}") == 0
        found = whole(TileStore.open("s.zarr").layer("filled"))
        return [found[cell] == 20 for cell in ((20, 20), (10, 60), (20, 90), (50, 60))]

    assert levels("--keep-deeper-than 4") == [False, False, True, True]
    assert "2 depressions kept, depth up to 10" in capsys.readouterr().out
    assert levels("--keep-deeper-than 3.9") == [False] * 4
    assert levels("--keep-deeper-than 10") == [True] * 4  # none is deeper
    assert "0 depressions kept, " in capsys.readouterr().out
    assert levels("--keep-larger-than 1ha") == [False, True, False, True]
    assert levels("--keep-larger-than 9ha") == [True, True, False, True]  # exactly 9 ha
    assert levels("--keep-larger-than 899") == [False, True, False, True]
    assert levels("--keep-deeper-than 4 --keep-larger-than 0.01km2") == [False, True, True, True]
    assert call("verify s.zarr") == 0
    # A lake has no way out.
    capsys.readouterr()
    assert call("flow-direction s.zarr --flats gradient --into g") == 2
    assert "filled: deep or large depressions were kept, and flow" in capsys.readouterr().err
    assert call("flow-accumulation s.zarr --method mfd") == 2
    assert "fill all of them (terrain-gpu fill --into NAME)" in capsys.readouterr().err
    assert levels("") == [True] * 4


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--keep-deeper-than=-1", "-1.0 is not in the range x>=0"),
        ("--keep-larger-than 5parsec", "--keep-larger-than '5parsec': give a number of cells such"),
        ("--keep-larger-than 0ha", "--keep-larger-than '0ha': must be positive"),
    ],
)
def test_what_cannot_be_kept(dem, capsys, words, told):
    assert call("convert-dataset dem.tif s.zarr -q") == 0
    assert call(f"fill s.zarr {words}") == 2
    assert told in capsys.readouterr().err


def test_a_name_of_its_input_is_refused_before_directions(dem, capsys):
    assert call("convert-dataset dem.tif s.zarr -q") == 0
    assert call("fill s.zarr --into elevation --overwrite") == 2
    assert "(elevation) and the layers that they are computed from" in capsys.readouterr().err
    assert list(TileStore.open("s.zarr").layers) == ["elevation"]


def test_areas_need_a_unit_of_length(tmp_path):
    data = np.random.default_rng(5).integers(0, 7, (70, 80)).astype(np.int16)
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    spanning_tree(store, weight="flow")
    flow_direction(store)
    with pytest.raises(InputError, match="no coordinate system, so its unit of length is unknown"):
        fill(store, keep_larger_than="1ha")
    with pytest.raises(InputError, match="keep_deeper_than nan is not a finite number"):
        fill(store, keep_deeper_than=math.nan)
    assert fill(store, keep_larger_than=3).found["depressions"] >= 0


# -- outlets --------------------------------------------------------------------------------------


def test_fill_to_given_outlets(dem, capsys):
    assert call("fill dem.tif --outlet-rowcol 40,50 -o one.tif") == 0
    assert call("convert-dataset dem.tif s.zarr -q") == 0
    assert call("fill s.zarr") == 0
    tree = TileStore.open("s.zarr").layer("mst").identity
    capsys.readouterr()
    assert call("fill s.zarr --outlet-rowcol 40,50 --into one") == 2
    error = capsys.readouterr().err
    assert "flow_direction: these directions have the outlets 'low_edge', not those" in error
    words = "fill s.zarr --outlet-rowcol 40,50 --directions to_one --into one --json r.json"
    assert call(words) == 0
    seconds = json.loads(Path("r.json").read_text())["seconds"]
    assert "before: to_one" in seconds
    assert "before: mst" not in seconds
    store = TileStore.open("s.zarr")
    assert store.layer("mst").identity == tree
    codes = whole(store.layer("to_one"))
    assert reference.listed(codes == 0) == [(40, 50)]
    found = whole(store.layer("one"))
    assert same(found, reference.filled(dem, codes))
    with rasterio.open("one.tif") as file:
        assert same(file.read(1), found)
    for outlets in ([(40, 50)], np.array([[40, 50]])):  # in Python, too
        made = fill(Path("dem.tif"), outlets=outlets)
        assert same(whole(made.layers["filled"]), found)
    assert call(words + " --overwrite") == 0  # the same outlets
    assert call("fill s.zarr --outlet-rowcol 41,50 --directions to_one --overwrite") == 2
    assert "to_one: these directions have given outlets, not those asked" in capsys.readouterr().err
    assert call("verify s.zarr") == 0


def test_fill_to_inner_voids_and_the_coast(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = np.add.outer(np.arange(90), np.zeros(150)).astype(np.float32) + 5
    data[30:50, 40:90] = np.nan  # a lake
    data[:20, :30] = np.nan  # the sea
    data[25:28, 60:70] = 1  # drains to the lake, if that is an outlet
    data[10:15, 31:40] = 1  # drains to the sea
    make_store(Path("s.zarr"), data, None, 64)
    levels = {}
    for words in ("", "--inner-voids --directions all --into open"):
        assert call(f"fill s.zarr --verify {words}") == 0
        levels[words[:7]] = whole(TileStore.open("s.zarr").layer("open" if words else "filled"))
    plain, inner = levels.values()
    assert (plain[26, 60:70] > 25).all()
    assert (inner[26, 60:70] > 25).sum() == 0 or (inner[26, 60:70] < plain[26, 60:70] + 1).all()
    good = ~np.isnan(data)
    codes = {name: whole(TileStore.open("s.zarr").layer(name)) for name in (DIRECTIONS, "all")}
    assert set(reference.listed(codes[DIRECTIONS] == 0)) < set(reference.edge(good))
    assert (codes["all"][50, 41:89] == 0).all()
    for found, name in ((plain, DIRECTIONS), (inner, "all")):
        assert same(found, reference.filled(data, codes[name]))
    assert (
        call("fill s.zarr --inner-voids --outlet-rowcol 3,60 --directions other --into another")
        == 2
    )
    assert "--inner-voids is about the outlets on the edge" in capsys.readouterr().err
    made = fill("s.zarr", outlets="low_border", directions="python", into="of_python")
    assert same(whole(made.layers["of_python"]), inner)
    with pytest.raises(InputError, match="outlets 'coast': give cells, or one of low_edge"):
        fill("s.zarr", outlets="coast", directions="python", overwrite=True)
    with pytest.raises(StoreError, match=r"no layer 'x'; it has: .*; terrain-gpu flow-dir"):
        fill("s.zarr", directions="x")
