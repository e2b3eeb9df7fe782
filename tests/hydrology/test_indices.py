"""Wetness, stream power and the length-slope factor, against plain Python."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import rasterio
import reference
from contract import OperationContract, make_store, same, verify, whole
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import rasters, shapes
from test_flow import call, right_codes, small, store_of_codes

from terrain_gpu import (
    TileStore,
    flow_accumulation,
    flow_direction,
    minimum_spanning_tree,
    slope,
    terrain_indices,
)
from terrain_gpu.errors import InputError, StoreError
from terrain_gpu.grid import GridSpec
from terrain_gpu.grid.lengths import cell_areas, step_lengths
from terrain_gpu.hydrology.terrain_indices import TerrainIndices
from terrain_gpu.hydrology.terrain_indices.operation import Indices

ALL = {"twi": "twi", "spi": "spi", "ls": "ls"}


class TestIndicesContract(OperationContract):
    command = "terrain-indices s.zarr --twi twi --spi spi --ls ls"
    rasters = small

    def prepare(self, store):
        minimum_spanning_tree(store, weight="flow", backend="cpu")
        flow_direction(store)
        flow_accumulation(store, areas=True)
        slope(store)

    def make(self, store):
        return Indices(str(store), TerrainIndices(**ALL))

    def expected(self, data, nodata, grid):
        slopes, _ = reference.slope(data, nodata, step_lengths(grid))
        codes = right_codes(data, nodata, grid)
        areas = reference.flow_sums(codes, np.ones(len(data), int)).astype(float) * 200
        return reference.terrain_indices(slopes, areas, np.full(len(data), math.sqrt(200)), 0.1)


# -- of layers of any kind -----------------------------------------------------------------------


def store_of(path, slopes, sums, grid=None, block=64, other=64, nodata=-9999):
    store_of_codes(path, slopes, block, nodata, grid, "slope")
    return store_of_codes(path, sums, other, 0, grid, "flow_accumulation")


@settings(max_examples=examples(40))
@given(
    raster=rasters(st.sampled_from([np.dtype("<f4"), np.dtype("<f8")]), shapes(200, 6000)),
    counts=st.booleans(),
    block=st.sampled_from([64, 128]),
    other=st.sampled_from([64, 256]),
    least=st.sampled_from([1e-6, 0.1, 45]),
    seed=st.integers(0, 999),
)
def test_indices_of_any_slopes_and_sums(folders, raster, counts, block, other, least, seed):
    rng = np.random.default_rng(seed)
    slopes = rng.uniform(0, 90, raster.shape).astype(raster.dtype)
    slopes[rng.random(slopes.shape) < 0.1] = rng.choice([0, 90, 1e-30])
    slopes[~reference.vertices(raster.cells, raster.nodata)] = -9999
    sums = np.floor(10 ** rng.uniform(0, 9, raster.shape))
    sums[rng.random(slopes.shape) < 0.1] = 0
    sums = sums.astype((np.uint32, np.int64)[seed % 2] if counts else np.float64)
    with folders() as folder:
        grid = GridSpec(*raster.shape, (4.0, 0, 0, 0, -4.0, 0), "", "")
        store = store_of(folder / "s.zarr", slopes, sums, grid, block, other)
        found = terrain_indices(store, **ALL, min_slope=least, verify=True)
        widths = np.full(len(sums), 1 / (16 / 4) if counts else 4.0)
        right = reference.terrain_indices(slopes, sums, widths, least)
        for name, expected in zip(ALL, right, strict=True):
            assert same(whole(found.layers[name]), expected)


def test_by_hand(tmp_path):
    """A cell of 10 m on a slope of 45 degrees that 400 m2 drain through, and a flat one."""
    slopes, sums = np.array([[45.0, 0.0]], np.float32), np.array([[400.0, 400.0]])
    grid = GridSpec(1, 2, (10.0, 0, 0, 0, -10.0, 0), "", "")
    found = terrain_indices(store_of(tmp_path / "s", slopes, sums, grid), **ALL)
    twi, spi, ls = (whole(found.layers[name])[0] for name in ALL)
    assert twi == pytest.approx([math.log(40), math.log(40 / math.tan(math.radians(0.1)))])
    assert spi == pytest.approx([40, 0])
    assert ls == pytest.approx([(40 / 22.13) ** 0.4 * (math.sqrt(0.5) / 0.0896) ** 1.3, 0])


@pytest.mark.parametrize(
    ("epsg", "size", "metres"),
    [(32633, 10.0, 10.0), (2263, 10.0, 12000 / 3937), (4326, 0.001, None)],
)
def test_areas_are_by_the_width_in_metres(tmp_path, epsg, size, metres):
    from rasterio.crs import CRS

    transform = (size, 0, 7 if metres is None else 5e5, 0, -size, 47)
    grid = GridSpec(90, 70, transform, CRS.from_epsg(epsg).to_wkt(), "")
    slopes, areas = np.full((90, 70), 45.0), cell_areas(grid)[:, None] * np.ones(70)
    found = terrain_indices(store_of(tmp_path / "s", slopes, areas, grid), spi="spi", verify=True)
    widths = np.sqrt(areas) if metres is None else metres
    assert np.allclose(whole(found.layers["spi"]), widths, rtol=1e-6)
    assert metres is not None or whole(found.layers["spi"])[0, 0] == pytest.approx(91.9, abs=0.2)


def test_some_indices_have_the_same_bits(tmp_path):
    rng = np.random.default_rng(1)
    slopes, sums = rng.uniform(0, 90, (130, 150)), rng.integers(1, 99, (130, 150))
    store = store_of(tmp_path / "s.zarr", slopes, sums)
    both = terrain_indices(store, **ALL)
    one = terrain_indices(store, ls="length_slope")
    assert list(one.layers) == ["length_slope"]
    assert same(whole(one.layers["length_slope"]), whole(both.layers["ls"]))
    assert verify(store) == (0, {"twi", "spi", "ls", "length_slope"})


# -- what is refused -----------------------------------------------------------------------------


def test_wrong_layers_are_refused(tmp_path):
    codes = np.full((70, 80), 1, np.uint8)
    store = store_of_codes(tmp_path / "s.zarr", codes)
    store_of_codes(store, np.full((70, 80), 5.0), 64, None, name="slope")
    with pytest.raises(InputError, match="give at least one of twi, spi and ls"):
        terrain_indices(store)
    with pytest.raises(StoreError, match="no layer 'sums'"):
        terrain_indices(store, twi="twi", accumulation="sums")
    flow_accumulation(store, directions="codes")
    for least in (0, 90, float("nan")):
        with pytest.raises(InputError, match=r"min_slope .*: give degrees between 0 and 90"):
            terrain_indices(store, twi="twi", min_slope=least)
    with pytest.raises(StoreError, match="codes: holds uint8, but slopes are degrees as floats"):
        terrain_indices(store, twi="twi", slope="codes")
    flow_accumulation(store, directions="codes", weights="codes")
    for name in ("slope2", "codes", "upstream_sum"):
        with pytest.raises(StoreError, match=r"no layer 'slope2'|does not hold uint32 or int64 c"):
            terrain_indices(store, twi="twi", accumulation=name)
    flow_accumulation(store, directions="codes", exclude_self=True, into="above")
    with pytest.raises(InputError, match="above: excludes the cell itself; sum again"):
        terrain_indices(store, twi="twi", accumulation="above")
    percent = np.full((70, 80), 5.0)
    percent[66, 3] = 134.5
    store_of_codes(store, percent, 64, None, name="percent")
    with pytest.raises(InputError, match=r"percent: row 66, column 3: 134.5 is not a slope"):
        terrain_indices(store, twi="twi", slope="percent")
    with pytest.raises(InputError, match="must have different names"):
        terrain_indices(store, twi="same", spi="same")


def test_counts_need_cells_of_one_size(tmp_path):
    from rasterio.crs import CRS

    grid = GridSpec(9, 9, (0.1, 0, 7, 0, -0.1, 47), CRS.from_epsg(4326).to_wkt(), "")
    store = store_of(tmp_path / "s", np.ones((9, 9)), np.ones((9, 9), np.int64), grid)
    with pytest.raises(InputError, match="cells of this raster differ in area, so their number"):
        terrain_indices(store, twi="twi")


def test_stale_layers_are_not_proven(tmp_path):
    slopes, sums = np.full((70, 80), 5.0), np.ones((70, 80))
    store = store_of(tmp_path / "s.zarr", slopes, sums)
    terrain_indices(store, twi="twi")
    assert verify(store) == (0, {"twi"})
    other = make_store(tmp_path / "t.zarr", slopes * 2, None, 64)
    (store / "slope").rename(tmp_path / "old")
    (other / "elevation").rename(store / "slope")
    assert verify(store)[0] == StoreError.exit_code


# -- the command ---------------------------------------------------------------------------------


def test_from_a_raster(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    z = np.random.default_rng(8).integers(0, 500, (90, 100)).astype(np.int16)
    profile = {"driver": "GTiff", "height": 90, "width": 100, "count": 1, "dtype": "int16"}
    place = {"crs": "EPSG:32633", "transform": rasterio.Affine(10, 0, 5e5, 0, -10, 5.5e6)}
    with rasterio.open("dem.tif", "w", **profile, **place) as file:
        file.write(z, 1)
    assert call("terrain-indices dem.tif --twi twi -o twi.tif") == 0
    assert "8,624 of 9,000 cells valid" in capsys.readouterr().out
    assert call("convert-dataset dem.tif s.zarr") == 0
    assert call("terrain-indices s.zarr --twi twi --ls ls --verify") == 0
    assert {"slope", "flow_accumulation", "twi", "ls"} < set(TileStore.open(Path("s.zarr")).layers)
    with rasterio.open("twi.tif") as file:
        assert same(file.read(1), whole(TileStore.open(Path("s.zarr")).layer("twi")))
    assert call("terrain-indices s.zarr --slope other") == 2
    assert "give at least one of --twi, --spi and --ls" in capsys.readouterr().err
    assert call("plan 1000x1000 --for terrain-indices") == 0
    assert "for terrain-indices of" not in capsys.readouterr().err


def test_map_units_that_may_not_be_metres_are_told(tmp_path, caplog):
    """Such as degrees, in a raster that names no CRS."""
    store = make_store(tmp_path / "s.zarr", np.ones((70, 80), np.int16), None, 64)
    minimum_spanning_tree(store, weight="flow")
    flow_direction(store)
    flow_accumulation(store)
    slope(store)
    terrain_indices(store, twi="twi")
    assert "no CRS, so map units are assumed to be metres" in caplog.text
    assert "--crs" in caplog.text
