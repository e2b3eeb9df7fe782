"""Flow directions and what follows them, block by block, against plain Python."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
import rasterio
import reference
from contract import OperationContract, make_store, same, verify, whole
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from strategies import TERRAINS, has_no_largest, rasters, shapes

from terrain_gpu import (
    TileStore,
    accumulate,
    convert_dataset,
    create_layer,
    fill,
    flow_accumulation,
    flow_direction,
    minimum_spanning_tree,
    streams,
    watershed,
)
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.errors import InputError, StoreError
from terrain_gpu.grid import GridSpec
from terrain_gpu.grid.lengths import area_units, step_lengths
from terrain_gpu.hydrology.common.codes import DIRECTIONS
from terrain_gpu.hydrology.fill.operation import PlainFill
from terrain_gpu.hydrology.flow_accumulation.operation import FlowSums
from terrain_gpu.hydrology.flow_direction.operation import TreeDirections

types = st.sampled_from(["<i2", "<f4", "<u4"]).map(np.dtype)
small = rasters(types, shapes(200, 6000))
moderate = rasters(types, shapes(200, 6000), special=False, terrains=TERRAINS[:-1])
"""Without extreme values: next to them, costs and weights would be lost, which is refused."""
wide = st.sampled_from(["<i2", "<f4", "<u4", "<f8", "<i8"]).map(np.dtype)
of_any_type = rasters(wide, shapes(200, 6000)).filter(has_no_largest)


@pytest.fixture(scope="session", autouse=True)
def no_fsync_in_flow():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        yield


# Hypothesis gives the contracts of all operations the same rasters.
@reference.remembered(40)
def right_codes(data, nodata, grid):
    low = reference.edge(reference.vertices(data, nodata))
    tree = reference.rooted(data, "flow", [], nodata, lengths=step_lengths(grid), low=low)
    return reference.drained(data.shape, *tree, np.ones(len(data), int))[1]


class TestFlowDirectionContract(OperationContract):
    command = "flow-direction s.zarr"
    rasters = of_any_type

    def prepare(self, store):
        minimum_spanning_tree(store, weight="flow", backend="cpu")

    def make(self, store):
        return TreeDirections(str(store))

    def expected(self, data, nodata, grid):
        return [right_codes(data, nodata, grid)]


class AlongDirections(OperationContract):
    rasters = small

    def prepare(self, store):
        minimum_spanning_tree(store, weight="flow", backend="cpu")
        flow_direction(store)


class TestFlowAccumulationContract(AlongDirections):
    representative = True
    command = "flow-accumulation s.zarr"

    def make(self, store):
        return FlowSums(str(store))

    def expected(self, data, nodata, grid):
        codes = right_codes(data, nodata, grid)
        return [reference.flow_sums(codes, np.ones(len(data), int)).astype(np.uint32)]


class TestFillContract(AlongDirections):
    representative = True
    command = "fill s.zarr"

    def make(self, store):
        return PlainFill(str(store))

    def expected(self, data, nodata, grid):
        return [reference.filled(data, right_codes(data, nodata, grid), nodata)]


# -- directions ----------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(
    raster=rasters(types, shapes(200, 6000)),
    connectivity=st.sampled_from([8, 4]),
    block=st.sampled_from([64, 128]),
    name=st.sampled_from(["low_edge", "low_border", "edge", "border"]),
    added=st.lists(st.integers(0, 10**6), max_size=3),
)
def test_outlets_by_name_and_added_ones(folders, raster, connectivity, block, name, added):
    with folders() as folder:
        data, nodata = raster.cells, raster.nodata
        store = make_store(folder / "s.zarr", data, nodata, block)
        minimum_spanning_tree(store, weight="flow", connectivity=connectivity)
        good = reference.vertices(data, nodata)
        cells = reference.listed(good)
        more = sorted({cells[k % len(cells)] for k in added}) if cells else []
        found = flow_direction(store, name, add_outlets=more or None, verify=True)
        codes = whole(found.layers[DIRECTIONS])
        outlets, low = reference.named_outlets(name, good, more)
        lengths = step_lengths(TileStore.open(store).grid)
        tree = reference.rooted(data, "flow", outlets, nodata, connectivity, lengths, low)
        assert same(codes, reference.drained(data.shape, *tree, np.ones(len(data), int))[1])
        assert found.found == {"cells": good.sum(), "outlets": (codes == 0).sum()}
        assert found.report.valid_cells == (codes != 255).sum()
        filled = whole(fill(store, verify=True).layers["filled"])
        assert same(filled, reference.filled(data, codes, nodata, connectivity))


def test_a_dem_clipped_to_a_catchment_drains_to_its_mouth(tmp_path):
    noise = np.random.default_rng(3).normal(size=(150, 140))
    rough = ndimage.gaussian_filter(noise, 6).astype(np.float32)
    whole_dem = make_store(tmp_path / "whole.zarr", rough, None, 64)
    minimum_spanning_tree(whole_dem, weight="flow")
    flow_direction(whole_dem)
    smooth = whole(fill(whole_dem, epsilon=True).layers["filled"])  # without depressions
    flow_direction(whole_dem, flats="gradient", into="down")
    sums = whole(flow_accumulation(whole_dem, directions="down").layers["flow_accumulation"])
    inner = sums[5:-5, 5:-5]
    mouth = tuple(5 + one for one in np.unravel_index(inner.argmax(), inner.shape))
    found = watershed(whole_dem, [mouth], directions="down")
    inside = whole(found.layers["watershed"]) == 1
    assert inside.sum() == sums[mouth] > 1000
    clipped = np.where(inside, smooth, np.nan)
    store = make_store(tmp_path / "s.zarr", clipped, None, 64)
    minimum_spanning_tree(store, weight="flow")
    for outlets, into, all_of_it in (("low_edge", "flow_direction", True), ("edge", "old", False)):
        codes = whole(flow_direction(store, outlets, into=into, verify=True).layers[into])
        sums = flow_accumulation(store, directions=into, into=f"{into}_sums")
        at_mouth = whole(sums.layers[f"{into}_sums"])[mouth]
        assert (at_mouth == inside.sum()) == all_of_it
        assert (reference.listed(codes == 0) == [mouth]) == all_of_it


def test_an_inner_void_is_an_outlet_only_if_asked(tmp_path):
    data = np.add.outer(np.arange(200), np.zeros(200)).astype(np.float32)
    data[100:120, 60:130] = np.nan  # across blocks
    data[110, 100] = -5  # an island in it
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    minimum_spanning_tree(store, weight="flow")
    found = flow_direction(store, verify=True)
    codes = whole(found.layers[DIRECTIONS])
    assert found.report.valid_cells == found.found["cells"] - 1
    assert codes[110, 100] == 255
    assert (codes[99, 60:130] != 0).all()
    asked = flow_direction(store, "border", into="border", verify=True)
    codes = whole(asked.layers["border"])
    assert (codes[99, 60:130] == 0).all()
    low = whole(flow_direction(store, "low_border", into="low", verify=True).layers["low"])
    assert (low[99, 60:130] != 0).all()  # the ground falls to the north
    assert (low[120, 61:129] == 0).all()
    assert low[110, 100] == 0
    assert asked.report.valid_cells == asked.found["cells"]
    one = flow_direction(store, [(7, 3)], into="one")
    assert (whole(one.layers["one"]) == 0).sum() == 1
    with pytest.raises(InputError, match="outlets 'sea': give cells, or one of low_edge, low_"):
        flow_direction(store, "sea", overwrite=True)


def test_heights_that_say_to_have_no_voids(tmp_path):
    """Without voids there is no pass over them; what a layer says is checked."""
    data = np.random.default_rng(4).integers(1, 9, (150, 130)).astype(np.int16)
    full = make_store(tmp_path / "full.zarr", data, 0, 64)
    minimum_spanning_tree(full, weight="flow")
    assert "voids" not in flow_direction(full, verify=True).report.seconds
    data[70:80, 60:70] = 0
    store = make_store(tmp_path / "s.zarr", data, 0, 64)
    minimum_spanning_tree(store, weight="flow")
    assert "voids" in flow_direction(store, verify=True).report.seconds
    header = Path(store) / "elevation" / "zarr.json"
    known = json.loads(header.read_text())
    own = known["attributes"]["terrain_gpu"]
    own["valid_cells"] = data.size
    del own["checksum"]
    header.write_text(json.dumps(known))
    with pytest.raises(StoreError, match="recorded as having no nodata, but only 19,400 of 19,500"):
        flow_direction(store, overwrite=True)


def test_directions_need_a_tree_of_weight_flow(tmp_path):
    data = np.random.default_rng(1).integers(0, 9, (70, 80)).astype(np.int16)
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    minimum_spanning_tree(store)
    with pytest.raises(StoreError, match="of weight max, not flow; flow-direction --overwrite"):
        flow_direction(store)


# -- given directions ----------------------------------------------------------------------------


def store_of_codes(path, codes, block=64, nodata=255, grid=None, name="codes"):
    grid = grid or GridSpec(*codes.shape)
    with create_layer(path, name, grid, codes.dtype, nodata=nodata, block_size=block) as target:
        for at in target.blocks.ids():
            r0, r1, c0, c1 = target.block_window(*at)
            target.write_block(*at, np.ascontiguousarray(codes[r0:r1, c0:c1]))
        target.commit()
    return path


@st.composite
def acyclic_codes(draw):
    """Directions down a random surface, off the raster, into cells without one, or nowhere."""
    rows, cols = draw(shapes(200, 6000))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    height = rng.permutation(rows * cols).reshape(rows, cols)
    if draw(st.booleans()):  # long ways
        height = np.add.outer(np.arange(rows), np.arange(cols)) * rows * cols + height
    k = rng.integers(0, 8, height.shape)
    steps = np.array(reference.TOWARD)[k]
    there = np.indices(height.shape).transpose(1, 2, 0) + steps
    inside = ((there >= 0) & (there < height.shape)).all(axis=2)
    beyond = height[tuple(np.where(inside[..., None], there, 0).transpose(2, 0, 1))]
    codes = np.where(~inside | (beyond < height), 1 << k, 0).astype(np.uint8)
    if draw(st.booleans()):  # outlets to which all their neighbours drain
        r, c = rng.integers(1, 4, 2)
        codes[r::4, c::4] = 0
        for toward, (down, right) in enumerate(reference.TOWARD):
            codes[r + down :: 4, c + right :: 4] = 1 << (toward + 4) % 8
    codes[rng.random(codes.shape) < draw(st.sampled_from([0, 0.02, 0.3]))] = 255
    return codes


@settings(max_examples=examples(60))
@given(
    codes=acyclic_codes(),
    block=st.sampled_from([64, 128, 256]),
    threads=st.integers(1, 3),
    exclude=st.booleans(),
)
def test_accumulation_along_given_directions(folders, codes, block, threads, exclude):
    with folders() as folder:
        store = store_of_codes(folder / "s.zarr", codes, block)
        found = flow_accumulation(
            store, directions="codes", exclude_self=exclude, threads=threads, verify=True
        )
        sums = reference.flow_sums(codes, np.ones(len(codes), int)).astype(np.int64)
        right = np.where(codes == 255, -1, sums - 1) if exclude else sums.astype(np.uint32)
        assert same(whole(found.layers["flow_accumulation"]), right)


@settings(max_examples=examples(40))
@given(codes=acyclic_codes(), block=st.sampled_from([64, 128, 256]), threads=st.integers(1, 3))
def test_counts_of_edge_cells_upstream(folders, codes, block, threads):
    how = {"directions": "codes", "edge_cells": True, "threads": threads, "verify": True}
    with folders() as folder:
        store = store_of_codes(folder / "s.zarr", codes, block)
        found = flow_accumulation(store, **how).layers["upstream_edge_cells"]
        right = reference.flow_sums(codes, np.ones(len(codes), int), reference.edge_cells(codes))
        assert same(whole(found), np.where(codes == 255, -1, right.astype(np.int32)))
        assert verify(store) == (0, {"upstream_edge_cells"})


def test_edge_cells_are_counted_alone(tmp_path):
    store = make_store(tmp_path / "s.zarr", np.zeros((70, 80), np.int16), None, 64)
    others = {"method": "dinf", "weights": "elevation", "statistic": "mean", "areas": True}
    for key, value in {**others, "exclude_self": True}.items():
        with pytest.raises(InputError, match="edge_cells counts cells along D8 directions"):
            flow_accumulation(store, edge_cells=True, **{key: value})
    assert TileStore.open(store).layers == ["elevation"]


def test_counts_of_edge_cells_are_no_sums(tmp_path):
    store = store_of_codes(tmp_path / "s.zarr", np.full((70, 80), 1, np.uint8), 64)
    flow_accumulation(store, directions="codes", edge_cells=True, into="counts")
    how = {"directions": "codes", "accumulation": "counts"}
    with pytest.raises(StoreError, match="counts: counts cells on the edge of the data"):
        streams(store, 9, **how)
    with pytest.raises(StoreError, match="counts: counts cells on the edge of the data"):
        watershed(store, [(3, 3)], snap=2, **how)


def test_areas_on_the_ellipsoid(tmp_path):
    from rasterio.crs import CRS

    grid = GridSpec(150, 90, (0.1, 0, 7, 0, -0.1, 60), CRS.from_epsg(4326).to_wkt(), "")
    codes = np.full((150, 90), 4, np.uint8)
    codes[:, 40:] = 16
    store = store_of_codes(tmp_path / "s.zarr", codes, grid=grid)
    units, unit = area_units(grid)
    sums = reference.flow_sums(codes, units).astype(np.int64)
    found = flow_accumulation(store, directions="codes", areas=True, verify=True)
    assert same(whole(found.layers["flow_accumulation"]), sums * unit)
    found = flow_accumulation(
        store, directions="codes", areas=True, exclude_self=True, into="above", verify=True
    )
    assert same(whole(found.layers["above"]), (sums - units[:, None]) * unit)


@pytest.mark.parametrize("outlets", [[(64, 64)], [(20, 20)], [(20, 20), (64, 64), (63, 10)]])
def test_an_outlet_in_the_midst_of_a_funnel(tmp_path, outlets):
    """All eight neighbours drain to it; as to a sinkhole, or the gauge of a closed basin."""
    row, col = np.indices((100, 90))
    data = np.min([np.hypot(row - r, col - c) for r, c in outlets], axis=0).astype(np.float32)
    store = make_store(tmp_path / "s.zarr", data, None, 64, cell=(10.0, 10.0))
    minimum_spanning_tree(store, weight="flow")
    codes = whole(flow_direction(store, outlets, verify=True).layers[DIRECTIONS])
    for r, c in outlets:
        assert [codes[r + i, c + j] for i, j in reference.TOWARD] == [16, 32, 64, 128, 1, 2, 4, 8]
    sums = whole(flow_accumulation(store, verify=True).layers["flow_accumulation"])
    assert np.array_equal(sums, reference.flow_sums(codes, np.ones(100, int)))
    assert sums[tuple(zip(*outlets, strict=True))].sum() == data.size
    assert same(whole(fill(store, verify=True).layers["filled"]), data)
    for method in ("dinf", "mfd"):
        found = flow_accumulation(store, method=method, into=method, verify=True)
        divided = whole(found.layers[method])
        assert divided[codes == 0].sum() == data.size


def test_a_way_through_all_blocks(tmp_path):
    rows, cols = 139, 200
    codes = np.full((rows, cols), 1, np.uint8)
    codes[1::2] = 16
    codes[::2, -1] = codes[1::2, 0] = 4
    store = store_of_codes(tmp_path / "s.zarr", codes)
    found = flow_accumulation(store, directions="codes", verify=True)
    assert whole(found.layers["flow_accumulation"]).max() == rows * cols


@pytest.mark.parametrize(
    "ring",
    [
        [(10, 10, 1), (10, 11, 4), (11, 11, 16), (11, 10, 64)],
        [(10, 63, 1), (10, 64, 4), (11, 64, 16), (11, 63, 64)],
        [(63, 63, 1), (63, 64, 4), (64, 64, 16), (64, 63, 64)],
    ],
    ids=["in a block", "of two blocks", "of four"],
)
def test_circles_are_refused(tmp_path, ring):
    codes = np.full((130, 140), 0, np.uint8)
    for row, col, code in ring:
        codes[row, col] = code
    store = store_of_codes(tmp_path / "s.zarr", codes)
    cells = "|".join(f"row {row}, column {col}" for row, col, _ in ring)
    with pytest.raises(StoreError, match=rf"({cells}): directions form a loop"):
        flow_accumulation(store, directions="codes")
    assert TileStore.open(store).layers == ["codes"]


def test_what_is_no_direction_is_refused(tmp_path):
    codes = np.zeros((70, 80), np.uint8)
    codes[65, 3] = 3
    store = store_of_codes(tmp_path / "s.zarr", codes)
    with pytest.raises(StoreError, match=r"codes: row 65, column 3: 3 is not a D8 code \(E 1, "):
        flow_accumulation(store, directions="codes")
    with pytest.raises(StoreError, match=r"no layer 'ways'; it has: .*; terrain-gpu flow-dir"):
        flow_accumulation(store, directions="ways")
    with pytest.raises(StoreError, match="no layer 'elevation'; it has: codes"):
        flow_accumulation(store)
    data = np.zeros((70, 80))
    other = make_store(tmp_path / "t.zarr", data, None, 64)
    with pytest.raises(StoreError, match="holds float64, but flow directions are D8 codes of uin"):
        flow_accumulation(other, directions="elevation")


def test_another_nodata_value(tmp_path):
    codes = np.full((70, 80), 1, np.uint8)
    codes[5, 70] = codes[6, 71] = 247
    store = store_of_codes(tmp_path / "s.zarr", codes, nodata=247)
    found = flow_accumulation(store, directions="codes", verify=True)
    codes[codes == 247] = 255
    right = reference.flow_sums(codes, np.ones(70, int)).astype(np.uint32)
    assert same(whole(found.layers["flow_accumulation"]), right)


# -- fill ----------------------------------------------------------------------------------------


def test_other_outlets_need_no_other_tree(tmp_path):
    data = np.random.default_rng(4).integers(0, 99, (100, 150)).astype(np.int16)
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    minimum_spanning_tree(store, weight="flow")
    flow_direction(store, [(40, 50)])
    found = fill(store, verify=True)
    codes = whole(TileStore.open(store).layer(DIRECTIONS))
    assert (codes == 0).sum() == 1
    assert same(whole(found.layers["filled"]), reference.filled(data, codes))


def test_fill_needs_ways_over_the_lowest_passes(tmp_path):
    data = np.random.default_rng(4).integers(0, 99, (100, 150)).astype(np.int16)
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    store_of_codes(store, np.zeros((100, 150), np.uint8), grid=TileStore.open(store).grid)
    minimum_spanning_tree(store)
    with pytest.raises(
        StoreError, match="codes: not made by flow-direction, so its flow paths need not"
    ):
        fill(store, directions="codes")
    accumulate(store, directions="ways")  # of weight max: its passes are as low
    found = fill(store, directions="ways", verify=True)
    codes = whole(TileStore.open(store).layer("ways"))
    assert same(whole(found.layers["filled"]), reference.filled(data, codes))
    minimum_spanning_tree(store, weight="flow", overwrite=True)
    with pytest.raises(StoreError, match="ways: computed from other cells than"):
        fill(store, directions="ways", overwrite=True)


# -- commands ------------------------------------------------------------------------------------


def call(words):
    return options._guarded(lambda: group.main(words.split(), standalone_mode=False))


def test_from_a_raster_to_a_raster(dem, tmp_path, capsys):
    before = set(os.listdir(tmp_path))
    for name in ("fill", "flow-direction", "flow-accumulation"):
        assert call(f"{name} dem.tif -o {name}.tif") == 0
    assert set(os.listdir(tmp_path)) - before == {
        "fill.tif", "flow-direction.tif", "flow-accumulation.tif"
    }  # fmt: skip
    assert "15,000 cells drain to 113 outlets, " in capsys.readouterr().out
    with rasterio.open("flow-direction.tif") as file:
        codes = file.read(1)
    with rasterio.open("fill.tif") as file:
        assert same(file.read(1), reference.filled(dem, codes))
        assert file.crs.to_epsg() == 32633
    with rasterio.open("flow-accumulation.tif") as file:
        assert np.array_equal(file.read(1), reference.flow_sums(codes, np.ones(100, int)))
    assert call("fill dem.tif") == 2
    assert "dem.tif is a raster: give -o for the result, or --store" in capsys.readouterr().err
    assert call("fill dem.tif -o x.tif --resume") == 2
    assert "--resume needs a store" in capsys.readouterr().err


THEIRS = {
    "esri": (1, 2, 4, 8, 16, 32, 64, 128, 0),
    "grass": (8, 7, 6, 5, 4, 3, 2, 1, 0),  # r.watershed: times 45 degrees from E, against the clock
    "taudem": (1, 8, 7, 6, 5, 4, 3, 2, 255),  # from E, against the clock
    "whitebox": (2, 4, 8, 16, 32, 64, 128, 1, 0),  # D8Pointer: bits from NE, clockwise
    "saga": (2, 3, 4, 5, 6, 7, 0, 1, 255),  # Fill Sinks (Wang & Liu): from N, clockwise
    "ldd": (6, 3, 2, 1, 4, 7, 8, 9, 5),  # PCRaster: the keys of a keypad
    "esri-backlink": (1, 2, 3, 4, 5, 6, 7, 8, 0),  # Cost Back Link: from E, clockwise
    "esri-degrees": (90, 135, 180, 225, 270, 315, 360, 45, 0),  # azimuths; 360 is N
    "r.cost": (360, 315, 270, 225, 180, 135, 90, 45, 0),  # from E, against the clock
}
"""E, SE, S, SW, W, NW, N, NE, outlet."""


@pytest.mark.parametrize("encoding", THEIRS)
@pytest.mark.parametrize("more", ["", " --cog", " --bounds 500100 5498000 500900 5499500"])
def test_directions_as_other_programs_have_them(dem, capsys, encoding, more):
    dem[20:40, 30:50] = -1
    store = make_store(Path("s.zarr"), dem, -1, 64)
    minimum_spanning_tree(store, weight="flow")
    flow_direction(store)
    words = f"export s.zarr x.tif --layer flow_direction --encoding {encoding} --verify{more}"
    codes = whole(TileStore.open(store).layer(DIRECTIONS))
    if "bounds" in more:
        bounds = tuple(map(float, more.split()[1:]))
        r0, r1, c0, c1 = TileStore.open(store).grid.window_of(bounds)
        codes = codes[r0:r1, c0:c1]
    assert call(words) == 0
    degrees = encoding in ("esri-degrees", "r.cost")
    right = np.where(codes == 255, -1, codes.astype("int16")) if degrees else codes.copy()
    for code, theirs in zip([1, 2, 4, 8, 16, 32, 64, 128, 0], THEIRS[encoding], strict=True):
        right[codes == code] = theirs
    with rasterio.open("x.tif") as file:
        assert np.array_equal(file.read(1), right)
        assert (file.nodata, file.dtypes[0]) == ((-1, "int16") if degrees else (255, "uint8"))
        assert file.tags(1)["FLOW_DIRECTION_ENCODING"] == encoding
    assert call("verify s.zarr --file x.tif --layer flow_direction") == 0
    with rasterio.open("x.tif", "r+", IGNORE_COG_LAYOUT_BREAK="YES") as file:
        file.write(np.full((1, 1), 77, right.dtype), 1, window=((3, 4), (5, 6)))
    assert call("verify s.zarr --file x.tif --layer flow_direction") == 1
    assert "x.tif: row 3, column 5: 77 instead of" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", THEIRS)
@pytest.mark.parametrize("tagged", [True, False])
def test_directions_of_other_programs_are_recoded(dem, caplog, encoding, tagged):
    """TauDEM and SAGA have no value for outlets; tags tell what `export` wrote."""
    dem[20:40, 30:50] = -1
    store = make_store(Path("s.zarr"), dem, -1, 64)
    minimum_spanning_tree(store, weight="flow")
    codes = whole(flow_direction(store).layers[DIRECTIONS])
    assert call(f"export s.zarr x.tif --layer flow_direction --encoding {encoding}") == 0
    option = "" if tagged else f" --encoding {encoding}"
    if not tagged:
        with rasterio.open("x.tif", "r+") as file:
            file.update_tags(1, FLOW_DIRECTION_ENCODING="")
    assert call(f"convert-dataset x.tif s.zarr --layer codes --verify --json r.json{option}") == 0
    assert json.loads(Path("r.json").read_text())["result"]["encoding"] == encoding
    recoded = TileStore.open("s.zarr").layer("codes")
    lost = encoding in ("taudem", "saga")
    assert (recoded.nodata, recoded.dtype) == (255, np.uint8)
    assert np.array_equal(whole(recoded), np.where((codes == 0) & lost, 255, codes))
    back = encoding in ("esri-backlink", "esri-degrees", "r.cost")
    assert recoded.info["encoding"] == ("esri-d8-backlink" if back else "esri-d8-downstream")
    assert call("verify s.zarr") == 0
    assert call("flow-accumulation s.zarr --directions codes --into sums --verify") == 0
    assert "encoding" not in caplog.text
    sums = reference.flow_sums(whole(recoded), np.ones(len(codes), int))
    assert np.array_equal(whole(TileStore.open("s.zarr").layer("sums")), sums)


def raster_of(codes, name="x.tif", nodata=None, tag=None):
    """Write directions as another program does."""
    rows, cols = codes.shape
    where = {"crs": "EPSG:32632", "transform": rasterio.Affine(10, 0, 5e5, 0, -10, 55e5)}
    how = {"dtype": codes.dtype.name, "width": cols, "height": rows, "count": 1, "nodata": nodata}
    with rasterio.open(name, "w", **where, **how) as file:
        file.write(codes, 1)
        if tag:
            file.update_tags(1, FLOW_DIRECTION_ENCODING=tag)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "float32", "float64"])
@pytest.mark.parametrize(
    ("encoding", "more"), [("grass", -1), ("taudem", -1), ("saga", -1), ("r.cost", math.nan)]
)
def test_wider_types_and_other_nodata_of_directions(tmp_path, monkeypatch, dtype, encoding, more):
    """Negative directions of r.watershed lead off the map; NaN and -1 are none of others."""
    monkeypatch.chdir(tmp_path)
    if dtype == "int8" and encoding == "r.cost":
        return
    theirs = [value for value in THEIRS[encoding] if value != 255]
    row = np.array([*theirs, 111, -1], dtype)
    if math.isnan(more) and row.dtype.kind == "f":
        row[-1] = more
    raster_of(np.tile(row, (65, 7)), nodata=111)
    assert call(f"convert-dataset x.tif s.zarr --layer codes --encoding {encoding} --verify") == 0
    last = 128 if encoding == "grass" else 255  # E against the clock: 1 is NE
    right = [*[1, 2, 4, 8, 16, 32, 64, 128, 0][: len(theirs)], 255, last]
    assert np.array_equal(whole(TileStore.open("s.zarr").layer("codes")), np.tile(right, (65, 7)))


def test_directions_in_a_wrong_encoding_are_named(tmp_path, monkeypatch, capsys, caplog):
    monkeypatch.chdir(tmp_path)
    codes = np.full((70, 80), 6, np.uint8)
    codes[66, 70] = 9
    raster_of(codes, tag="grass")

    def refused(words):
        capsys.readouterr()
        assert call(f"convert-dataset {words}") == 2
        return capsys.readouterr().err

    message = "x.tif: row 66, column 70: value 9 is not a direction in encoding 'grass' (8, 7, 6, "
    assert message in refused("x.tif s.zarr --layer codes")
    assert "--clamp-min cannot be applied" in refused("x.tif s.zarr --clamp-min 1 --overwrite")
    raster_of(codes, "t.tif", tag="tardem")
    assert "t.tif: its tag FLOW_DIRECTION_ENCODING names an unknown" in refused("t.tif t.zarr")
    assert "the encodings grass and tardem" in refused("x.tif t.tif t.zarr")
    raster_of(codes, "n.tif", tag="nextxy")
    assert "n.tif: encoding 'nextxy' has two bands" in refused("n.tif t.zarr")
    assert call("convert-dataset x.tif l.zarr --layer codes --encoding ldd --verify") == 0
    assert caplog.text.count("its tag FLOW_DIRECTION_ENCODING says grass; it is read as ldd") == 1
    assert set(np.unique(whole(TileStore.open("l.zarr").layer("codes")))) == {1, 128}


def test_directions_of_no_known_encoding_are_taken_as_ours_with_a_warning(dem, capsys, caplog):
    """Whole numbers do not tell it; other layers than directions are refused."""
    make_store(Path("s.zarr"), dem, None, 64)
    raster_of(np.full((30, 40), 2, np.uint8))
    assert call("convert-dataset x.tif t.zarr --layer codes") == 0
    assert call("flow-accumulation t.zarr --directions codes") == 0
    assert (
        caplog.text.count("names the encoding of its directions; they are treated as Esri's") == 1
    )
    assert call("convert-dataset x.tif u.zarr --layer codes") == 0
    assert call("export u.zarr y.tif --layer codes --encoding taudem") == 0
    assert caplog.text.count("u.zarr/codes: no tag names the encoding of its directions") == 1
    assert call("compute-mst s.zarr --weight flow") == 0
    assert call("flow-accumulation s.zarr --directions mst") == 2
    assert "mst: holds forward edges, not flow directions" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    ["flow-accumulation x.tif", "fill x.tif", "flow-direction x.tif", "accumulate x.tif"],
)
def test_directions_are_not_taken_for_heights(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    raster_of(np.full((30, 40), 1, np.uint8), tag="grass")
    assert call(f"{words} -o y.tif") == 2
    assert (
        "x.tif: holds flow directions, not elevations; convert them to a layer"
        in capsys.readouterr().err
    )
    with pytest.raises(StoreError, match="holds flow directions, not elevations"):
        flow_accumulation("x.tif")
    assert not Path("y.tif").exists()


def test_dataarrays_tell_the_encoding_of_directions(tmp_path):
    """rioxarray has the tags of a band as attributes."""
    xarray = pytest.importorskip("xarray")
    codes = np.full((20, 30), 4, np.uint8)
    array = xarray.DataArray(codes, dims=("y", "x"), attrs={"FLOW_DIRECTION_ENCODING": "whitebox"})
    report = convert_dataset(array, tmp_path / "s.zarr", layer="codes")
    layer = TileStore.open(tmp_path / "s.zarr").layer("codes")
    assert (report.result["encoding"], np.unique(whole(layer)).tolist()) == ("whitebox", [2])


def test_only_directions_have_an_encoding(dem, capsys):
    make_store(Path("s.zarr"), dem, None, 64)
    assert call("export s.zarr x.tif --encoding grass") == 2
    assert "'elevation' does not hold flow directions, so" in capsys.readouterr().err
    codes = np.full((70, 80), 1, np.uint8)
    codes[3, 4] = 7
    store_of_codes(Path("t.zarr"), codes)
    assert call("export t.zarr x.tif --layer codes --encoding ldd") == 2
    assert "codes: 7 at row 3, column 4 is not a flow direction" in capsys.readouterr().err
    assert not Path("x.tif").exists()


def test_errors_name_the_raster_and_leave_nothing(dem, tmp_path, capsys):
    before = set(os.listdir(tmp_path))
    assert call("fill dem.tif --epsilon -o x.tif") == 2
    assert "Error: dem.tif: elevations are int16, but --epsilon" in capsys.readouterr().err
    assert set(os.listdir(tmp_path)) == before
    assert call("fill dem.tif -o x.tif --json report.json") == 0
    result = json.loads(Path("report.json").read_text())["result"]
    assert (result["raster"], result["output"], "store" in result) == ("dem.tif", "x.tif", False)


def test_a_raster_without_values(dem, capsys):
    store = make_store(Path("s.zarr"), np.full((70, 80), -1, np.int16), -1, 64)
    assert call(f"flow-direction {store} --verify") == 0
    assert "layer flow_direction, 0 cells drain to 0 outlets, " in capsys.readouterr().out
    for name in ("flow-accumulation", "fill"):
        assert call(f"{name} {store} --verify") == 0
    assert (whole(TileStore.open(store).layer("filled")) == -1).all()


def test_options_of_outlets(dem, capsys):
    assert call("convert-dataset dem.tif s.zarr -q") == 0
    for words, count in (
        ("flow-direction s.zarr --force-outward --into every", 496),
        ("flow-direction s.zarr --outlet-rowcol 50,50 --add-outlets --into more", 114),
        ("accumulate s.zarr --outlet-rowcol 50,50 --add-outlets --directions codes", 114),
        ("accumulate s.zarr --force-outward --into forced", 496),
        ("flow-direction s.zarr --depressions fill --into filled_way", 113),
    ):
        capsys.readouterr()
        assert call(words) == 0
        assert f"15,000 cells drain to {count} outlets" in capsys.readouterr().out
    assert call("verify s.zarr") == 0
    for words, message in (
        ("--add-outlets", "--add-outlets: there are none to add; give --outlet"),
        ("--outlet-rowcol 5,5 --force-outward", "--force-outward is about the outlets on the edge"),
    ):
        assert call(f"flow-direction s.zarr {words} --into other") == 2
        assert message in capsys.readouterr().err


def test_what_is_missing_is_computed(dem, capsys):
    assert call("convert-dataset dem.tif s.zarr") == 0
    assert call("flow-accumulation s.zarr --json report.json") == 0
    report = json.loads(Path("report.json").read_text())
    assert {"before: mst", "before: flow_direction"} < report["seconds"].keys()
    layers = ["elevation", "flow_accumulation", "flow_direction", "mst"]
    assert TileStore.open("s.zarr").layers == layers
    assert call("verify s.zarr") == 0
    out = capsys.readouterr().out
    assert "layer flow_accumulation verified, 15,000 cells that drain" in out
    assert "layer flow_direction verified, 15,000 cells drain to 113 outlets" in out
    assert call("fill s.zarr --directions other") == 2
    assert "no layer 'other'; it has: elevation" in capsys.readouterr().err
    words = "flow-direction s.zarr --outlet-rowcol 5,5 --inner-voids --overwrite"
    assert call(words) == 2
    assert "--inner-voids is about the outlets on the edge" in capsys.readouterr().err
    assert call("flow-direction s.zarr --outlet-rowcol 5,5 --overwrite") == 0
    assert "15,000 cells drain to 1 outlet, " in capsys.readouterr().out
    assert call("verify s.zarr") == 2  # made from other directions


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("flow-direction s.zarr --into taken", "'taken' does not hold results of flow-direction"),
        ("flow-accumulation s.zarr --into taken", "layer 'taken' does not hold results of"),
        ("fill s.zarr --into taken", "layer 'taken' does not hold results of"),
        ("basins s.zarr --into taken", "layer 'taken' does not hold results of"),
        (
            "watershed s.zarr --pour-point-rowcol 3,3 --into taken",
            "layer 'taken' does not hold results of",
        ),
        ("streams s.zarr --threshold 9 --into taken", "layer 'taken' does not hold results of"),
        ("hand s.zarr --threshold 9 --distance taken", "layer 'taken' does not hold results of"),
        ("terrain-indices s.zarr --twi twi --ls taken", "layer 'taken' does not hold results of"),
        ("streams s.zarr --threshold 9 --lines dem.tif.geojson", "geojson: exists; --overwrite"),
        ("basins s.zarr --table no/t.csv", "no/t.csv"),
        ("streams s.zarr --threshold 9parsec", "threshold '9parsec': give a number of cells"),
        ("hand s.zarr --threshold 0ha", "threshold '0ha': must be positive"),
        (
            "watershed s.zarr --pour-point-rowcol 3,3 --snap inf",
            "--snap inf is not a finite number",
        ),
        ("watershed s.zarr --pour-point-rowcol 3,3 --snap 9 --snap-area x", "x: a field needs --p"),
    ],
)
def test_what_is_in_the_way_is_refused_before_the_work(dem, capsys, words, told):
    assert call("convert-dataset dem.tif s.zarr -q") == 0
    assert call("convert-dataset dem.tif s.zarr --layer taken -q") == 0
    Path("dem.tif.geojson").write_text("{}")
    assert call(words) == 2
    assert told in capsys.readouterr().err
    assert TileStore.open("s.zarr").layers == ["elevation", "taken"]
