"""Slope and aspect, and through them the contract of operations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import reference
from contract import OperationContract, make_store, same, whole

import terrain_gpu
from terrain_gpu import TileStore, slope
from terrain_gpu.errors import InputError
from terrain_gpu.grid import GridSpec
from terrain_gpu.grid.lengths import step_lengths
from terrain_gpu.raster.slope import Slope
from terrain_gpu.raster.slope.operation import Slopes


class TestSlope(OperationContract):
    representative = True
    command = "slope s.zarr --aspect aspect"

    def make(self, store):
        return Slopes(str(store), Slope(aspect="aspect"))

    def expected(self, data, nodata, grid):
        return reference.slope(data, nodata, step_lengths(grid))


@pytest.mark.parametrize("facing", range(0, 360, 15))
@pytest.mark.parametrize("steep", [0.01, 1, 50])
def test_planes(tmp_path, facing, steep):
    """A plane that descends towards `facing` by `steep` per unit."""
    rows, cols = np.indices((70, 80))
    north, east = math.cos(math.radians(facing)), math.sin(math.radians(facing))
    z = -steep * (10 * cols * east - 20 * rows * north)
    found = slope(make_store(tmp_path / "s.zarr", z, None, 64), aspect="aspect")
    slopes, aspects = (found.layers[name].read_window(1, 69, 1, 79) for name in ("slope", "aspect"))
    assert np.allclose(slopes, math.degrees(math.atan(steep)), rtol=1e-6)
    turned = (aspects - facing + 180) % 360 - 180
    assert np.abs(turned).max() < 1e-4


@pytest.mark.parametrize("x", [1, -1])
@pytest.mark.parametrize("y", [1, -1])
def test_aspects_are_those_of_the_map_whichever_way_rows_and_columns_count(tmp_path, x, y):
    """A DataArray whose latitudes ascend has its first row in the south."""
    z = np.random.default_rng(2).random((70, 80))
    expected = reference.slope(z, None, step_lengths(GridSpec(70, 80, (10, 0, 0, 0, -20, 0))))
    turned = np.ascontiguousarray(z[::y, ::x])
    store = make_store(tmp_path / "s.zarr", turned, None, 64, cell=(10.0 * x, 20.0 * y))
    found = slope(store, aspect="aspect", verify=True)
    slopes, aspects = (whole(found.layers[name])[::y, ::x] for name in ("slope", "aspect"))
    assert np.allclose(slopes, expected[0], rtol=1e-6)
    assert np.abs((aspects - expected[1] + 180) % 360 - 180).max() < 1e-3


def test_level_ground_has_a_slope_and_no_aspect(tmp_path):
    store = make_store(tmp_path / "s.zarr", np.full((70, 70), 5, np.uint8), None, 64)
    found = slope(store, aspect="aspect")
    assert (found.layers["slope"].read_window(1, 69, 1, 69) == 0).all()
    assert (found.layers["aspect"].read_window(0, 70, 0, 70) == -9999).all()
    assert found.report.valid_cells == 68 * 68


def test_without_aspect_there_is_one_layer_of_the_same_bits(tmp_path):
    z = np.random.default_rng(1).random((130, 150))
    store = make_store(tmp_path / "s.zarr", z, None, 64)
    one, both = slope(store), slope(store, into="other", aspect="aspect")
    assert list(one.layers) == ["slope"]
    assert same(one.layers["slope"].read_window(0, 130, 0, 150),
                both.layers["other"].read_window(0, 130, 0, 150))  # fmt: skip


def test_a_geographic_grid_is_measured_on_the_ellipsoid(tmp_path):
    from rasterio.crs import CRS

    z = np.add.outer(np.arange(70.0), np.zeros(70))  # falls to the north by a metre a row
    grid = GridSpec(70, 70, (1 / 3600, 0, 7, 0, -1 / 3600, 60), CRS.from_epsg(4326).to_wkt(), "")
    with terrain_gpu.create_layer(tmp_path / "s", "elevation", grid, "float64") as target:
        target.write_block(0, 0, z)
        target.commit()
    found = slope(tmp_path / "s").layers["slope"].read_window(1, 69, 1, 69)
    assert np.allclose(found, math.degrees(math.atan(1 / 30.95)), rtol=1e-3)


def test_names(tmp_path):
    store = make_store(tmp_path / "s.zarr", np.zeros((70, 70)), None, 64)
    with pytest.raises(InputError, match="must have different names"):
        slope(store, into="elevation", overwrite=True)
    with pytest.raises(InputError, match="must have different names"):
        slope(store, aspect="slope")
    make_store(tmp_path / "t.zarr", np.zeros((70, 70)), None, 64)
    slope(store, into="other")
    with pytest.raises(InputError, match="layer 'other' does not hold components"):
        terrain_gpu.label_components(store, "elevation > 0", into="other", overwrite=True)
    terrain_gpu.label_components(store, "elevation > 0")
    with pytest.raises(InputError, match="'components' does not hold slopes that this program"):
        slope(store, into="components", overwrite=True)
    assert TileStore.open(store).layers == ["components", "elevation", "other"]
