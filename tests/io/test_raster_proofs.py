"""Proofs of conversions and exports: right results pass, and wrong ones do not.

The contract of operations changes single cells within a run; here files and layers are changed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import rasterio
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from rasterio.crs import CRS
from rasterio.windows import Window
from strategies import block_sizes, dtypes, rasters, shapes, transforms

from terrain_gpu import TileStore, create_layer, export_layer, minimum_spanning_tree
from terrain_gpu.engine.proof import Limits
from terrain_gpu.errors import PlanError, VerificationError
from terrain_gpu.grid import GridSpec
from terrain_gpu.io.gdal import gdal_environment
from terrain_gpu.io.verify.raster import verify_raster

LIMITS = Limits("1GB", 2)
UTM = CRS.from_epsg(32611)

pytestmark = pytest.mark.usefixtures("no_fsync")
many = settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


def make_layer(
    path, data, nodata, block, transform=(30.0, 0.0, 5e5, 0.0, -30.0, 4e6), **attributes
):
    grid = GridSpec(*data.shape, transform, UTM.to_wkt(version="WKT2_2019"))
    with create_layer(
        path, "elevation", grid, data.dtype, nodata=nodata, block_size=block, attributes=attributes
    ) as target:
        for at in target.blocks.ids():
            r0, r1, c0, c1 = target.block_window(*at)
            target.write_block(*at, np.ascontiguousarray(data[r0:r1, c0:c1]))
        return target.commit()


def refused(check, *args):
    with pytest.raises(VerificationError) as caught:
        check(*args)
    assert caught.value.exit_code == 1
    return caught.value


def flip(cells: np.ndarray, row: int, col: int, bit: int) -> None:
    """Flip a bit of a cell."""
    words = cells.view(f"u{cells.itemsize}")
    words[row, col] ^= words.dtype.type(1 << bit % (8 * cells.itemsize))


# -- exports -------------------------------------------------------------------------------------


def verified(path, layer, part, dtype):
    with gdal_environment():
        return verify_raster(path, layer, part, np.dtype(dtype), LIMITS)


@given(
    raster=rasters(shape=shapes(200, 20_000)),
    block=block_sizes(128),
    transform=transforms(),
    corners=st.lists(st.floats(0, 1), min_size=4, max_size=4),
    wider=st.booleans(),
    cog=st.booleans(),
    where=st.tuples(st.integers(0), st.integers(0), st.integers(0)),
)
@many
def test_exports(folders, raster, block, transform, corners, wider, cog, where):
    assume(tuple(transform) != (1.0, 0.0, 0.0, 0.0, 1.0, 0.0))
    dtype = "float64" if wider else None
    with folders() as folder:
        layer = make_layer(folder / "s", raster.cells, raster.nodata, block, transform)
        west, south, east, north = layer.grid.bounds
        x, y = sorted(corners[:2]), sorted(corners[2:])
        bounds = (
            west + (east - west) * x[0],
            south + (north - south) * y[0],
            west + (east - west) * max(x[1], x[0] + 0.1),
            south + (north - south) * max(y[1], y[0] + 0.1),
        )
        path = folder / "x.tif"
        how = {"bounds": bounds, "cog": cog, "dtype": dtype, "overwrite": True}
        found = export_layer(folder / "s", path, verify=True, threads=2, **how)
        part = layer.grid.window_of(bounds)
        rows, cols = part[1] - part[0], part[3] - part[2]
        assert found.result["verified_cells"] == rows * cols
        row, col, bit = where[0] % rows, where[1] % cols, where[2]
        with rasterio.open(path, "r+", IGNORE_COG_LAYOUT_BREAK="YES") as file:
            cells = file.read(1)
            before = cells.copy()
            flip(cells, row, col, bit)
            file.write(cells, 1)
        with rasterio.open(path) as file:
            now = file.read(1)
        kind = np.dtype(dtype or raster.dtype)
        # The same NaN or, where GDAL leaves out blocks of nodata 0, the same zero.
        nan = kind != raster.dtype and np.isnan([now[row, col], before[row, col]]).all()
        assume(not nan and not (raster.nodata == 0 and now[row, col] == before[row, col] == 0))
        error = refused(verified, path, layer, part, kind)
        assert error.check in ("cells", "nodata")
        assert (error.row, error.col) == (row, col)


HEADERS = {
    "nodata": ("nodata", -3),
    "no nodata": ("nodata", None),
    "transform": ("transform", rasterio.Affine(30.0, 0.0, 5e5, 0.0, -30.0, 4e6 + 30)),
    "crs": ("crs", CRS.from_epsg(32612)),
    "units": ("units", ["foot"]),
    "scale": ("scales", [0.5]),
    "offset": ("offsets", [7.0]),
}


@pytest.mark.parametrize("kind", ["int16", "float32", "int64"])
@pytest.mark.parametrize("header", HEADERS)
def test_a_wrong_header_is_refused(tmp_path, header, kind):
    if (header, kind) == ("no nodata", "int64"):
        kind = "int8"  # GDAL does not remove a nodata value of 64 bits
    data = (np.arange(70 * 90) % 100).reshape(70, 90).astype(kind)
    layer = make_layer(tmp_path / "s", data, -1, 64, units="m", scale_factor=0.25, add_offset=3.0)
    path, part = tmp_path / "x.tif", layer.grid.window
    export_layer(tmp_path / "s", path, verify=True)
    name, value = HEADERS[header]
    with rasterio.open(path, "r+") as file:
        setattr(file, name, value)
    assert refused(verified, path, layer, part, kind).check == header.split()[-1]


def test_another_shape_type_or_no_raster_is_refused(tmp_path):
    data = np.arange(70 * 90).reshape(70, 90).astype(np.int16)
    layer = make_layer(tmp_path / "s", data, -1, 64)
    path, part = tmp_path / "x.tif", layer.grid.window
    export_layer(tmp_path / "s", path)
    assert refused(verified, path, layer, (0, 69, 0, 90), "int16").check == "shape"
    assert refused(verified, path, layer, part, "float32").check == "type"
    path.write_bytes(path.read_bytes()[:9000])
    assert refused(verified, path, layer, part, "int16").check == "file"
    path.write_text("not a raster")
    assert refused(verified, path, layer, part, "int16").check == "file"


@pytest.mark.parametrize("nodata", [2**63 - 1, 2**53 + 1, -(2**63)])
def test_a_nodata_value_beyond_a_double(tmp_path, nodata):
    data = np.arange(70 * 90, dtype=np.int64).reshape(70, 90)
    data[3] = nodata
    layer = make_layer(tmp_path / "s", data, nodata, 64)
    path, part = tmp_path / "x.tif", layer.grid.window
    export_layer(tmp_path / "s", path, verify=True)
    other = make_layer(tmp_path / "t", data, nodata - 1 if nodata > 0 else nodata + 1, 64)
    assert refused(verified, path, other, part, "int64").check == "nodata"


@given(
    raster=rasters(dtypes("i"), shapes(150, 10_000), special=False),
    connectivity=st.sampled_from([4, 8]),
    where=st.tuples(st.integers(0), st.integers(0), st.integers(0, 7)),
)
@settings(many, max_examples=15)
def test_spanning_trees_are_exported_at_both_ends(folders, raster, connectivity, where):
    with folders() as folder:
        make_layer(folder / "s", raster.cells, raster.nodata, 64)
        minimum_spanning_tree(folder / "s", connectivity=connectivity)
        path, layer = folder / "x.tif", TileStore.open(folder / "s").layer("mst")
        export_layer(folder / "s", path, layer="mst", verify=True)
        row, col = where[0] % raster.shape[0], where[1] % raster.shape[1]
        with rasterio.open(path, "r+") as file:
            cell = file.read(1, window=Window(col, row, 1, 1))
            file.write(cell ^ np.uint8(1 << where[2]), 1, window=Window(col, row, 1, 1))
        error = refused(verified, path, layer, layer.grid.window, "uint8")
        assert (error.check, error.row, error.col) == ("cells", row, col)


def test_too_small_a_limit_is_refused_before_the_work(tmp_path):
    make_layer(tmp_path / "s", np.zeros((70, 90), np.int16), None, 64)
    with pytest.raises(PlanError, match="too small"):
        export_layer(tmp_path / "s", tmp_path / "x.tif", verify=True, memory_limit="165MB")
    assert not (tmp_path / "x.tif").exists()


def test_a_damaged_value_is_told_as_such(tmp_path):
    layer = make_layer(tmp_path / "s", np.full((70, 90), 2.5), math.nan, 64)
    path = tmp_path / "x.tif"
    export_layer(tmp_path / "s", path)
    with rasterio.open(path, "r+") as file:
        file.write(np.full((1, 1), 7.0), 1, window=Window(5, 66, 1, 1))
    error = refused(verified, path, layer, layer.grid.window, "float64")
    assert str(error).startswith(f"{path}: row 66, column 5: 7.0 where 2.5 is right;")
