"""Heights above streams along flow directions, block by block, against plain Python."""

from __future__ import annotations

import numpy as np
import pytest
import rasterio
import reference
from contract import make_store, same, whole
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from test_flow import AlongDirections, acyclic_codes, call, right_codes, store_of_codes

from terrain_gpu import TileStore, flow_accumulation, hand
from terrain_gpu.errors import InputError, StoreError
from terrain_gpu.grid import GridSpec
from terrain_gpu.grid.lengths import step_lengths, whole_lengths
from terrain_gpu.hydrology.hand.operation import StreamsAbove


def right(z, codes, streams, grid, nodata=None):
    """The two layers; of cells without a height, none is right."""
    units, unit = whole_lengths(grid, step_lengths(grid))
    wide = z.astype(np.float32 if np.can_cast(z.dtype, np.float32) else np.float64)
    wide[~reference.vertices(z, nodata)] = np.nan
    with np.errstate(over="ignore"):
        heights, sums = reference.above_streams(wide, codes, streams, units)
    heights[~np.isfinite(heights)] = -9999
    return heights, np.where(sums < 0, -9999.0, sums.astype(float) * unit)


class TestHandContract(AlongDirections):
    command = "hand s.zarr --threshold 20 --distance distance"

    def prepare(self, store):
        super().prepare(store)
        flow_accumulation(store)

    def make(self, store):
        return StreamsAbove(str(store), 20.0, distance="distance")

    def expected(self, data, nodata, grid):
        codes = right_codes(data, nodata, grid)
        sums = reference.flow_sums(codes, np.ones(len(data), int))
        return right(data, codes, sums >= 20, grid, nodata)


class TestToOutletsContract(AlongDirections):
    command = "hand s.zarr --to-outlets --distance flow_length"

    def make(self, store):
        return StreamsAbove(str(store), streams=None, distance="flow_length")

    def expected(self, data, nodata, grid):
        codes = right_codes(data, nodata, grid)
        return right(data, codes, ends(codes), grid, nodata)


def ends(codes):
    """Where ways end."""
    found = np.zeros(codes.shape, bool)
    for cell in reference.listed(codes != 255):
        found[cell] = reference.downstream(codes, *cell) is None
    return found


def add_layer(path, name, cells, block, nodata=None):
    return store_of_codes(path, cells, block, nodata, TileStore.open(path).grid, name)


@settings(max_examples=examples(60))
@given(
    codes=acyclic_codes(),
    block=st.sampled_from([64, 128, 256]),
    other=st.sampled_from([64, 128]),
    dtype=st.sampled_from(["i2", "u4", "i8", "f4", "f8"]),
    share=st.sampled_from([0, 0.001, 0.1]),
)
def test_hand_of_given_streams(folders, codes, block, other, dtype, share):
    rng = np.random.default_rng(codes.size)
    z = rng.integers(0, 30_000, codes.shape).astype(dtype)
    if z.dtype.kind == "f":
        z /= 7
    z[rng.random(z.shape) < 0.05] = 77
    streams = (rng.random(codes.shape) < share).astype(np.int8)
    streams[rng.random(codes.shape) < 0.01] = -1
    with folders() as folder:
        store = make_store(folder / "s.zarr", z, 77, block)
        add_layer(store, "codes", codes, other, 255)
        add_layer(store, "streams", streams, block, -1)
        found = hand(store, streams="streams", directions="codes", distance="far", verify=True)
        grid = TileStore.open(store).grid
        heights, distances = right(z, codes, streams == 1, grid, 77)
        assert same(whole(found.layers["hand"]), heights)
        assert same(whole(found.layers["far"]), distances)
        how = {"directions": "codes", "distance": "length", "into": "relief", "verify": True}
        found = hand(store, to_outlets=True, **how)
        heights, distances = right(z, codes, ends(codes), grid, 77)
        assert same(whole(found.layers["relief"]), heights)
        assert same(whole(found.layers["length"]), distances)


def test_distances_on_the_ellipsoid(tmp_path):
    from rasterio.crs import CRS

    grid = GridSpec(150, 90, (0.1, 0, 7, 0, -0.1, 60), CRS.from_epsg(4326).to_wkt(), "")
    codes = np.full((150, 90), 32, np.uint8)
    codes[:, 0] = 64
    store = store_of_codes(tmp_path / "s.zarr", codes, grid=grid)
    add_layer(store, "z", np.zeros(codes.shape), 64)
    streams = np.zeros(codes.shape, np.uint8)
    streams[0] = 1
    add_layer(store, "streams", streams, 64)
    found = hand(
        store, streams="streams", directions="codes", layer="z", distance="far", verify=True
    )
    _, _, south, diagonal = step_lengths(grid)
    far = whole(found.layers["far"])
    assert far[149, 0] == pytest.approx(south[:149].sum(), rel=1e-14)
    assert far[140, 60] == pytest.approx(diagonal[80:140].sum() + south[:80].sum(), rel=1e-14)
    assert (far[0] == 0).all()


def test_streams_are_given_once(tmp_path):
    codes = np.zeros((70, 80), np.uint8)
    store = store_of_codes(tmp_path / "s.zarr", codes)
    for given_streams, words in (
        ({}, "give one of threshold, streams and to_outlets"),
        ({"threshold": 5, "streams": "codes"}, "threshold and streams exclude each other"),
        ({"threshold": 5, "to_outlets": True}, "threshold and to_outlets exclude each other"),
    ):
        with pytest.raises(InputError, match=words):
            hand(store, **given_streams, directions="codes")
    with pytest.raises(StoreError, match="no layer 'sums'"):
        hand(store, 5, directions="codes", accumulation="sums")
    flow_accumulation(store, directions="codes")
    with pytest.raises(InputError, match="threshold nan: must be positive and finite"):
        hand(store, float("nan"), directions="codes")
    with pytest.raises(InputError, match=r"2 leaves no channel; the largest sum in .* is 1; give"):
        hand(store, 2, directions="codes")
    with pytest.raises(StoreError, match="elevation"):
        hand(store, streams="codes", directions="codes")


@pytest.mark.parametrize("cols", [(10, 11), (63, 64)], ids=["in a block", "of two blocks"])
def test_circles_without_a_stream_are_refused(tmp_path, cols):
    codes = np.zeros((70, 80), np.uint8)
    codes[10, cols[0]], codes[10, cols[1]] = 1, 16
    store = store_of_codes(tmp_path / "s.zarr", codes)
    add_layer(store, "z", np.zeros_like(codes), 64)
    with pytest.raises(StoreError, match="directions form a loop"):
        hand(store, streams="z", directions="codes", layer="z", into="new")


def test_hand_of_a_raster(dem, capsys):
    assert call("hand dem.tif --threshold 30 -o hand.tif") == 0
    assert call("convert-dataset dem.tif s.zarr") == 0
    assert call("hand s.zarr --threshold 30 --distance far") == 0
    opened = TileStore.open("s.zarr")
    assert opened.layers == [
        "elevation", "far", "flow_accumulation", "flow_direction", "hand", "mst"
    ]  # fmt: skip
    codes, sums = (whole(opened.layer(f"flow_{name}")) for name in ("direction", "accumulation"))
    heights, distances = right(dem, codes, sums >= 30, opened.grid)
    with rasterio.open("hand.tif") as file:
        assert same(file.read(1), heights)
    assert same(whole(opened.layer("far")), distances)
    capsys.readouterr()
    assert call("verify s.zarr") == 0
    count = np.count_nonzero(distances >= 0)
    assert f"layer hand verified, {count:,} cells above a stream" in capsys.readouterr().out
    assert call("hand s.zarr --overwrite") == 2
    assert "give one of --threshold, --streams and --to-outlets" in capsys.readouterr().err
    assert call("hand s.zarr --streams none --overwrite") == 2
    assert call("hand s.zarr --to-outlets --into relief --distance flow_length") == 0
    heights, distances = right(dem, codes, ends(codes), opened.grid)
    opened = TileStore.open("s.zarr")
    assert same(whole(opened.layer("relief")), heights)
    assert same(whole(opened.layer("flow_length")), distances)
    capsys.readouterr()
    assert call("verify s.zarr") == 0
    assert "layer flow_length verified, 15,000 cells above a stream" in capsys.readouterr().out
