"""Flow directions of filled DEMs with gradients in flats, against Barnes' algorithm."""

from __future__ import annotations

import numpy as np
import pytest
import rasterio
import reference
from contract import OperationContract, make_store, same, whole
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from strategies import shapes
from test_flow import call, right_codes, small, store_of_codes

from terrain_gpu import TileStore, fill, flow_accumulation, flow_direction, minimum_spanning_tree
from terrain_gpu.engine.run import run
from terrain_gpu.errors import InputError, StoreError
from terrain_gpu.grid import GridSpec
from terrain_gpu.grid.lengths import step_lengths
from terrain_gpu.hydrology.common.codes import TREE_DIRECTIONS
from terrain_gpu.hydrology.flow_direction import gradient as operation
from terrain_gpu.hydrology.flow_direction import proof
from terrain_gpu.hydrology.flow_direction.gradient import GradientDirection


def prepare(store, outlets="low_edge", connectivity=8):
    minimum_spanning_tree(store, weight="flow", backend="cpu", connectivity=connectivity)
    flow_direction(store, outlets, into=TREE_DIRECTIONS)
    return whole(fill(store, directions=TREE_DIRECTIONS).layers["filled"])


class TestGradientContract(OperationContract):
    command = "flow-direction s.zarr --flats gradient"
    rasters = small

    def prepare(self, store):
        prepare(store)

    def make(self, store):
        return GradientDirection(str(store))

    def expected(self, data, nodata, grid):
        along = right_codes(data, nodata, grid)
        levels = reference.filled(data, along, nodata)
        return [reference.down_gradients(levels, along, step_lengths(grid))]


@st.composite
def lakes(draw):
    """Few heights with islands in lakes and lakes on islands, walls through all blocks, voids."""
    rows, cols = draw(shapes(260, 6000))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    side = draw(st.sampled_from([1, 3, 17, 70]))
    coarse = rng.integers(0, 4, (rows // side + 1, cols // side + 1))
    z = np.kron(coarse, np.ones((side, side), int))[:rows, :cols]
    if draw(st.booleans()):  # one long flat, back and forth
        z[::4] = 9
        z[::8, :3] = z[4::8, -3:] = 2
    z[rng.random(z.shape) < draw(st.sampled_from([0, 0.001, 0.05]))] = 7
    z[rng.random(z.shape) < draw(st.sampled_from([0, 0.001, 0.3]))] = -1
    return z.astype(draw(st.sampled_from(["i2", "u4", "f4"])))


@settings(max_examples=examples(20))
@given(
    z=lakes(),
    block=st.sampled_from([64, 128, 512]),
    threads=st.integers(1, 3),
    outlets=st.sampled_from(["low_edge", "edge", "border", "one"]),
    connectivity=st.sampled_from([8, 4]),
)
def test_lakes_with_islands(folders, z, block, threads, outlets, connectivity):
    nodata = z.dtype.type(-1) if z.dtype.kind != "u" else np.iinfo(z.dtype).max
    good = np.argwhere(z != nodata)
    if outlets == "one" and not len(good):
        outlets = "edge"
    given_outlets = [tuple(good[len(good) // 2].tolist())] if outlets == "one" else outlets
    with folders() as folder:
        store = make_store(folder / "s.zarr", z, nodata.item() if nodata < 0 else nodata, block)
        levels = prepare(store, given_outlets, connectivity)
        found = flow_direction(store, given_outlets, flats="gradient", threads=threads, verify=True)
        codes = whole(found.layers["flow_direction"])
        along = whole(TileStore.open(store).layer(TREE_DIRECTIONS))
        grid = TileStore.open(store).grid
        assert same(codes, reference.down_gradients(levels, along, step_lengths(grid)))
        # Every cell drains, all to outlets that were asked for.
        assert np.array_equal(codes == 255, along == 255)
        assert (along[codes == 0] == 0).all()
        sums = whole(flow_accumulation(store, verify=True).layers["flow_accumulation"])
        assert sums[codes == 0].sum() == (codes != 255).sum() == found.report.valid_cells
        assert found.found == {"cells": (z != nodata).sum(), "outlets": (codes == 0).sum()}


def test_the_example_of_the_paper(tmp_path):
    """The canyon of Garbrecht and Martz, with the directions in flats that Barnes published."""
    z = np.array([list(row) for row in CANYON.split()]).astype(np.int16)
    store = make_store(tmp_path / "s.zarr", z, None, 64)
    prepare(store)
    codes = whole(flow_direction(store, flats="gradient").layers["flow_direction"])
    arrows = np.array([list(row) for row in CANYON_DIRECTIONS.split()])
    published = (1 << np.vectorize("→↘↓↙←↖↑↗".index)(arrows)).astype(np.uint8)
    flat = ndimage.minimum_filter(z, 3) == z
    flat[[0, -1]] = flat[:, [0, -1]] = False  # there, water leaves the raster
    assert flat.sum() == 425
    assert (codes == published)[flat].all()


CANYON = """
4444444444444444444444444
4111111111111444444444444
4111111111111111144444444
4111111111111111111444444
4111111111111111111114444
4111111111111111111111444
4111111111111111111111444
4444444111111111111111144
4444444444411111111111144
4444444444441111111111114
4444444444444411111411114
4444444444444411114441114
4444444444444411144444114
4444444444444111144441114
4444444444441111114441114
4444444444111111114411114
4444444111111111114111114
4444111111111111111111144
4444111111111111111111144
4411111111111111111111144
4411111111111111111111444
4411111114444444444444444
4411111114444444444444444
4111111114444444444444444
4000000004444444444444444
"""
CANYON_DIRECTIONS = """
↖↑↑↑↑↑↑↑↑↑↑↑↑↑↑↑↑↑↑↑↑↑↑↑↗
←↘↘↘↘↘↓↓↓↓↓↓↙←↓↓↓↙←↑↑↑↑↑→
←→↘↘↘↘↘↓↓↓↓↙↓↓↓↓↙←↓↙←↓↙→→
←→→→→→→↘↓↓↓↓↓↓↓↙↓↓↙←↓↙←→→
←→→→→→→→↘↓↓↓↓↓↓↓↓↙↓↓↙←↙←→
←→↗↗↗↗↗↗→↘↓↓↘↓↘↓↙↓↓↙↓↙←←→
←↗↗↗↗↗↗→↗→↘↘↓↘↓↓↓↓↓↓↙↙←↙→
←↑↑↑↑↑↑↗↗↗→↘↘↓↓↘↓↙↓↓↓↙↙←→
←←↑↑↑↑↗↑↑↑↑→↘↓↘↓↓↓↙↓↙←←←→
←←←↑↑↗↑↑↑↑↗↑→↘↘↓↓↙↓↙←↖←↙→
←←←←↗↑↑↑↑↗↑↗↑↑↘↓↙↓↙←↖←↖←→
←←←←↑↑↑↑↗↑↗↑↑→↘↓↙↙←↖↑↖←↖→
←←←←↓↓→↘↓→↘→↘→↘↓↙←↖←↗↑↓↙→
←←←←↘↓↓→↘↓→↘→↘↓↓↙←↙←→↓↙↙→
←←←↓→↘↓↓→↘↓→↘↓↓↙←↙←↘→↙←←→
←←↘↓↓→↘↓↓→↘↓↓↓↙↙↙←←→↙←↙←→
←←→↘↓↓→↘↓↓↓↘↓↙↙←←←←↙←↙←↖→
←←→→↘↓↓↓↘↓↓↓↙←←←←←↙↙↙←←←→
←↘↓→↘↘↓↙↓↓↓↙←←←←←←←←←←←←→
←→↘↓↓↘↓↙↙↓↙←↖↖↖↖↖←←←←←↖←→
←→↘↘↓↓↓↙↙↙←↖↖↖↖↖↖↖↖↖↖↖←↖→
←→↘↘↘↓↙↙↙←↑↑↑↑↑↑↑↑↑↑↑↑↖←→
←→↓↓↓↓↓↓↓←←↑↑↑↑↑↑↑↑↑↑↑↑→→
←↓↓↓↓↓↓↓↓↙←↓↓↓↓↓↓↓↓↓↓↓↓→→
↙↓↓↓↓↓↓↓↓↓↓↓↓↓↓↓↓↓↓↓↓↓↓↓↘
"""


def test_across_blocks_a_lake_drains_as_in_one(tmp_path):
    """A lake of all blocks with one way out: the bits of one block, which is the reference's."""
    rng = np.random.default_rng(6)
    z = np.where(rng.random((500, 600)) < 0.02, 3, 2).astype(np.int16)
    z[[0, -1]] = z[:, [0, -1]] = 4
    z[499, 77] = 1
    found = []
    for block in (64, 128, 1024):
        store = make_store(tmp_path / f"{block}.zarr", z, None, block)
        prepare(store)
        result = flow_direction(store, flats="gradient", verify=True)
        found.append(whole(result.layers["flow_direction"]))
        visits = result.report.result["block_visits"]
        assert visits >= -(-500 // block) * -(-600 // block)
    assert same(found[0], found[2])
    assert same(found[1], found[2])


def test_numbers_of_hops_beyond_32_bits(tmp_path, monkeypatch):
    z = np.random.default_rng(5).integers(0, 4, (150, 140)).astype(np.int16)
    store = make_store(tmp_path / "s.zarr", z, None, 64)
    prepare(store)
    found = flow_direction(store, flats="gradient", into="usual")
    for module in (operation, proof):
        monkeypatch.setattr(module, "hops_dtype", lambda grid: np.dtype(np.int64))
    wide = flow_direction(store, flats="gradient", into="wide", verify=True)
    assert same(whole(wide.layers["wide"]), whole(found.layers["usual"]))


def test_lengths_on_the_ellipsoid(tmp_path):
    """Far north, the east is steepest, because columns are narrow there."""
    from rasterio.crs import CRS

    z = np.add.outer(np.arange(100) * -2, np.arange(80) * -1).astype(np.float32)
    wkt = CRS.from_epsg(4326).to_wkt()
    for latitude, code in ((75, 1), (5, 2)):
        grid = GridSpec(100, 80, (0.001, 0, 7, 0, -0.001, latitude), wkt, "")
        path = tmp_path / f"{latitude}.zarr"
        store_of_codes(path, z, nodata=None, grid=grid, name="elevation")
        prepare(path)
        codes = whole(flow_direction(path, flats="gradient", verify=True).layers["flow_direction"])
        lengths = step_lengths(grid)
        along = whole(TileStore.open(path).layer(TREE_DIRECTIONS))
        assert same(codes, reference.down_gradients(z, along, lengths))
        assert codes[50, 40] == code


def test_what_is_refused(tmp_path):
    z = np.random.default_rng(1).integers(0, 9, (70, 80)).astype(np.int16)
    store = make_store(tmp_path / "s.zarr", z, None, 64)
    with pytest.raises(StoreError, match="no layer 'levels'; it has: elevation"):
        flow_direction(store, flats="gradient", filled="levels")
    with pytest.raises(StoreError, match="elevation: not made by fill"):
        flow_direction(store, flats="gradient", filled="elevation")
    with pytest.raises(InputError, match="flats"):
        flow_direction(store, flats="level")
    prepare(store)
    with pytest.raises(StoreError, match="filled: filled for the outlets 'low_edge', not for"):
        flow_direction(store, "border", flats="gradient")
    flow_direction(store, flats="gradient")
    with pytest.raises(
        StoreError, match="flow_direction: these directions were computed on a filled"
    ):
        fill(store, into="again")
    with pytest.raises(InputError, match="and the layers that they are computed from"):
        flow_direction(store, flats="gradient", into=TREE_DIRECTIONS, overwrite=True)
    flow_direction(store, [(5, 5)], into=TREE_DIRECTIONS, overwrite=True)
    with pytest.raises(StoreError, match="filled: not filled from the elevations that"):
        flow_direction(store, flats="gradient", into="other")


def test_a_flat_without_an_end_is_refused(tmp_path):
    z = np.add.outer(np.arange(70), np.arange(80)).astype(np.int16)
    store = make_store(tmp_path / "s.zarr", z, None, 64)
    minimum_spanning_tree(store, weight="flow")
    flow_direction(store, into=TREE_DIRECTIONS)
    z[63:66, 40:42] = 1
    store_of_codes(store, z, nodata=None, grid=TileStore.open(store).grid, name="filled")
    with pytest.raises(StoreError, match=r"row 6[345], column 4[01]: this flat does"):
        run(GradientDirection(str(store)))


def test_from_a_raster(dem, capsys):
    assert call("flow-direction dem.tif --flats gradient -o codes.tif --verify") == 0
    assert "cells drain to" in capsys.readouterr().out
    with rasterio.open("codes.tif") as file:
        codes = file.read(1)
    assert call("convert-dataset dem.tif s.zarr -q") == 0
    assert call("flow-direction s.zarr --flats gradient") == 0
    layers = TileStore.open("s.zarr").layers
    assert layers == ["elevation", "filled", "flow_direction", TREE_DIRECTIONS, "mst"]
    assert same(whole(TileStore.open("s.zarr").layer("flow_direction")), codes)
    for words in ("hand s.zarr --threshold 50", "streams s.zarr --threshold 50", "basins s.zarr"):
        assert call(words) == 0
    assert call("verify s.zarr") == 0
    out = capsys.readouterr().out
    assert "layer flow_direction verified, 15,000 cells drain to" in out
    assert call("flow-direction s.zarr --flats gradient --inner-voids --into other") == 2
    assert "filled for the outlets 'low_edge'" in capsys.readouterr().err
