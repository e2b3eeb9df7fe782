"""Heights above streams and distances averaged over D-infinity flow, against plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
import rasterio
import reference
from contract import OperationContract, make_store, same, whole
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import rasters, shapes
from test_flats import lakes
from test_flow import call, right_codes, small
from test_multiflow import beside, plane, prepare, square_store
from test_multiflow import heights as types

from terrain_gpu import TileStore, flow_accumulation, flow_direction, hand
from terrain_gpu.errors import InputError, StoreError
from terrain_gpu.grid import GridSpec
from terrain_gpu.grid.lengths import step_lengths
from terrain_gpu.hydrology.divided_flow import base
from terrain_gpu.hydrology.divided_flow.visits import FlowVisits
from terrain_gpu.hydrology.hand.divided import DinfHand


def right(z, levels, codes, streams, grid, nodata=None):
    """The two layers."""
    wide = np.where(reference.vertices(z, nodata), z, math.nan).astype(float)
    how = levels, codes, streams & (codes != 255), step_lengths(grid)
    with np.errstate(over="ignore", invalid="ignore"):
        found = reference.divided_above_streams(wide, *how)
    return [np.where(np.isnan(one), -9999.0, one) for one in found]


def ends(levels, codes, grid):
    """Cells that drain and hand nothing on."""
    found, lengths = np.zeros(codes.shape, bool), step_lengths(grid)
    for cell in reference.listed(codes != 255):
        divided = codes[cell] and reference.portions(levels, codes, cell, "dinf", 1, lengths)
        found[cell] = not divided and reference.downstream(codes, *cell) is None
    return found


class TestDinfHandContract(OperationContract):
    command = "hand s.zarr --threshold 20 --distance distance --method dinf"
    rasters = small

    def prepare(self, store):
        prepare(store)
        flow_accumulation(store)

    def make(self, store):
        return DinfHand(str(store), 20.0, distance="distance")

    def expected(self, data, nodata, grid):
        codes = right_codes(data, nodata, grid)
        levels = reference.filled(data, codes, nodata)
        sums = reference.flow_sums(codes, np.ones(len(data), int))
        return right(data, levels, codes, sums >= 20, grid, nodata)


@settings(max_examples=examples(12))
@given(
    z=lakes(),
    block=st.sampled_from([64, 128, 512]),
    outlets=st.sampled_from(["edge", "border"]),
    gradient=st.booleans(),
    share=st.sampled_from([0.001, 0.03]),
)
def test_lakes_with_islands(folders, z, block, outlets, gradient, share):
    nodata = -1 if z.dtype.kind != "u" else int(np.iinfo(z.dtype).max)
    with folders() as folder:
        store = make_store(folder / "s.zarr", z, nodata, block)
        levels, codes = prepare(store, outlets, gradient)
        grid = TileStore.open(store).grid
        streams = (np.random.default_rng(z.size).random(z.shape) < share).astype(np.uint8)
        beside(store, "streams", streams)
        how = {"method": "dinf", "verify": True}
        found = hand(store, streams="streams", distance="far", **how)
        heights, distances = right(z, levels, codes, streams == 1, grid, nodata)
        assert same(whole(found.layers["hand"]), heights)
        assert same(whole(found.layers["far"]), distances)
        found = hand(store, to_outlets=True, layer="filled", into="above", distance="length", **how)
        heights, distances = right(levels, levels, codes, ends(levels, codes, grid), grid, nodata)
        assert same(whole(found.layers["above"]), heights)
        assert same(whole(found.layers["length"]), distances)
        assert (heights[codes != 255] >= 0).all()
        assert (distances[codes != 255] >= 0).all()


@settings(max_examples=examples(8))
@given(raster=rasters(types, shapes(150, 1500)), tall=st.booleans())
def test_any_heights(folders, raster, tall):
    """The largest and the least numbers that there are; and others to measure than those filled."""
    with folders() as folder:
        store = make_store(folder / "s.zarr", raster.cells, raster.nodata, 64)
        levels, codes = prepare(store)
        grid, rng = TileStore.open(store).grid, np.random.default_rng(codes.size)
        z = rng.choice([0.0, 1e308, -1e308, 7.5, math.nan], codes.shape) if tall else levels
        beside(store, "z", z)
        found = hand(store, to_outlets=True, layer="z", method="dinf", verify=True)
        heights, _ = right(z, levels, codes, ends(levels, codes, grid), grid)
        assert same(whole(found.layers["hand"]), heights)


# -- what TauDEM says ----------------------------------------------------------------------------


@pytest.mark.parametrize("degrees", [0, 15, 30, 45])
def test_on_a_plane_averages_of_both_ways(tmp_path, degrees):
    """To a stream along a column, each step goes one column on: straight, or aslant by its part."""
    z = plane(degrees, 90)
    store = square_store(tmp_path, z)
    prepare(store, "border")
    streams = np.zeros(z.shape, np.uint8)
    streams[:, 80] = 1
    beside(store, "streams", streams)
    found = hand(store, streams="streams", distance="far", method="dinf", verify=True)
    part = degrees / 45
    steps = 80 - np.arange(60, 80)
    straight, aslant = z[50, 60] - z[50, 61], z[50, 60] - z[49, 61]
    far, high = (whole(found.layers[name])[85, 60:80] for name in ("far", "hand"))
    assert far == pytest.approx(steps * (1 + part * (math.sqrt(2) - 1)), rel=1e-3)
    assert high == pytest.approx(steps * (straight + part * (aslant - straight)), rel=1e-3)


def test_no_value_where_a_part_meets_no_stream(tmp_path):
    """As TauDEM does it with its check of contamination."""
    z = np.array([[9, 9, 4], [9, 7, 5], [9, 9, 9]], np.float32)
    store = square_store(tmp_path, z)
    outlets = [cell for cell in np.ndindex(3, 3) if cell != (1, 1)]
    prepare(store, outlets)
    for both in (False, True):
        streams = np.zeros(z.shape, np.uint8)
        streams[1, 2], streams[0, 2] = 1, both
        beside(store, f"streams{both}", streams)
        found = hand(
            store, streams=f"streams{both}", into=f"hand{both}", method="dinf", verify=True
        )
        middle = whole(found.layers[f"hand{both}"])[1, 1]
        part = math.atan(0.5) / math.atan(1)
        assert middle == (pytest.approx(2 + part) if both else -9999)


def test_equal_values_have_exactly_this_average(tmp_path):
    rng = np.random.default_rng(1)
    z = (np.add.outer(np.arange(90), np.arange(80)) + rng.random((90, 80)) / 3).astype(np.float32)
    store = square_store(tmp_path, z)
    levels, codes = prepare(store)
    flat = np.where(ends(levels, codes, TileStore.open(store).grid), 0.1, 0.7)
    beside(store, "flat", flat)
    found = hand(store, to_outlets=True, layer="flat", method="dinf", verify=True)
    heights = whole(found.layers["hand"])
    assert np.unique(heights).tolist() == [0, 0.7 - 0.1]


def test_on_the_ellipsoid(tmp_path):
    from rasterio.crs import CRS
    from test_flow import store_of_codes

    rng = np.random.default_rng(4)
    grid = GridSpec(90, 130, (0.01, 0, 7, 0, -0.02, 60), CRS.from_epsg(4326).to_wkt(), "")
    z = rng.integers(0, 9999, grid.shape).astype(np.float32)
    store = store_of_codes(tmp_path / "s.zarr", z, 64, None, grid, "elevation")
    levels, codes = prepare(store)
    found = hand(store, to_outlets=True, distance="far", method="dinf", verify=True)
    _, distances = right(z, levels, codes, ends(levels, codes, grid), grid)
    assert same(whole(found.layers["far"]), distances)


# -- blocks, commands, and what is refused -------------------------------------------------------


def test_blocks_that_leave_memory(tmp_path, monkeypatch):
    """The same bits whether blocks stay in memory or not; and they do not stay."""
    z = np.random.default_rng(1).integers(0, 60, (300, 260)).astype(np.int16)
    found, loads = [], []
    for block, capacity, threads in ((512, 1, 1), (64, 100, 1), (64, 4, 3), (64, 1, 1)):
        store = make_store(tmp_path / f"{block}-{capacity}.zarr", z, None, block)
        prepare(store)
        with monkeypatch.context() as patch:
            few = lambda rims, spill, _, kept, n=capacity: FlowVisits(rims, spill, n, kept)  # noqa: E731
            patch.setattr(base, "FlowVisits", few)
            result = hand(
                store, to_outlets=True, method="dinf", distance="far", threads=threads, verify=True
            )
        found.append([whole(one) for one in result.layers.values()])
        loads.append(result.report.result["block_loads"])
    for one in found[1:]:
        assert all(map(same, one, found[0]))
    assert loads[0] == 1
    assert loads[1] == 25 < loads[2] < loads[3]


def test_from_a_raw_dem(dem, capsys):
    assert call("hand dem.tif --threshold 30 --method dinf -o hand.tif") == 0
    assert call("convert-dataset dem.tif s.zarr") == 0
    assert call("hand s.zarr --threshold 30 --distance far --method dinf") == 0
    opened = TileStore.open("s.zarr")
    names = "filled", "flow_direction", "flow_accumulation"
    levels, codes, sums = (whole(opened.layer(name)) for name in names)
    heights, distances = right(dem, levels, codes, sums >= 30, opened.grid)
    with rasterio.open("hand.tif") as file:
        assert same(file.read(1), heights)
    assert same(whole(opened.layer("far")), distances)
    capsys.readouterr()
    assert call("verify s.zarr") == 0
    told = capsys.readouterr().out
    count = np.count_nonzero(distances >= 0)
    assert f"layer hand verified, {count:,} cells above a stream" in told
    assert f"layer far verified, {count:,} cells above a stream" in told
    assert call("hand s.zarr --threshold 30 --method mfd --into no") == 2


def test_directions_that_do_not_belong_to_the_heights(tmp_path):
    z = np.random.default_rng(7).integers(0, 30, (100, 150)).astype(np.int16)
    store = make_store(tmp_path / "s.zarr", z, None, 64)
    prepare(store)
    flow_direction(store, [(50, 50)], into="inwards")
    with pytest.raises(InputError, match="to other outlets"):
        hand(store, to_outlets=True, method="dinf", directions="inwards")
    with pytest.raises(StoreError, match="not made by fill"):
        hand(store, to_outlets=True, method="dinf", filled="elevation")
    with pytest.raises(InputError, match="method 'mfd' is not known"):
        hand(store, to_outlets=True, method="mfd")
    flow_accumulation(store, method="dinf", into="divided")
    with pytest.raises(StoreError, match="divided among neighbours"):
        hand(store, 20, accumulation="divided", method="dinf")
