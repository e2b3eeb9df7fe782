"""Drainage basins along flow directions, block by block, against plain Python."""

from __future__ import annotations

import csv
import json
import struct

import numpy as np
import pytest
import reference
from contract import same, whole
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from rasterio import warp
from rasterio.crs import CRS
from test_flow import AlongDirections, acyclic_codes, call, right_codes, store_of_codes

from terrain_gpu import TileStore, basins
from terrain_gpu.errors import StoreError, VerificationError
from terrain_gpu.grid import GridSpec
from terrain_gpu.grid.lengths import cell_areas
from terrain_gpu.hydrology.basins import Basins
from terrain_gpu.hydrology.basins.operation import BasinLabels
from terrain_gpu.io.gdal import gdal_environment
from terrain_gpu.io.vectors import import_pyogrio


class TestBasinsContract(AlongDirections):
    command = "basins s.zarr --table t.csv"

    def make(self, store):
        return BasinLabels(str(store), Basins(table=str(store.parent / "t.csv")))

    def expected(self, data, nodata, grid):
        return [reference.basins(right_codes(data, nodata, grid))]


@settings(max_examples=examples(60))
@given(codes=acyclic_codes(), block=st.sampled_from([64, 128, 256]), threads=st.integers(1, 3))
def test_basins_of_given_directions(folders, codes, block, threads):
    with folders() as folder:
        store = store_of_codes(folder / "s.zarr", codes, block)
        found = basins(store, directions="codes", threads=threads, verify=True)
        right = reference.basins(codes)
        assert same(whole(found.layers["basins"]), right)
        assert found.found == {"basins": right.max()}
        assert found.report.valid_cells == (codes != 255).sum()


# -- tables --------------------------------------------------------------------------------------


def outlets_of(codes):
    """The outlets, row by row."""
    cells = reference.listed(codes != 255)
    return [cell for cell in cells if reference.downstream(codes, *cell) is None]


@settings(max_examples=examples(30))
@given(codes=acyclic_codes())
def test_the_table(folders, codes):
    rows, cols = codes.shape
    grid = GridSpec(rows, cols, (0.01, 0, 7, 0, -0.01, 60), CRS.from_epsg(4326).to_wkt(), "")
    labels, outlets = reference.basins(codes), outlets_of(codes)
    tables = set()
    with folders() as folder:
        for block in (64, 256):
            store = store_of_codes(folder / f"{block}.zarr", codes, block, grid=grid)
            found = basins(store, directions="codes", table=folder / f"{block}.csv", threads=2)
            assert found.report.result["table"] == str(folder / f"{block}.csv")
            tables.add((folder / f"{block}.csv").read_text())
    (text,) = tables
    names, *lines = csv.reader(text.splitlines())
    assert names == ["basin", "row", "col", "x", "y", "cells", "area", "edge_cells"]
    table = np.array(lines, float).reshape(-1, 8)
    assert [(int(row), int(col)) for row, col in table[:, 1:3]] == outlets
    assert np.array_equal(table[:, 0], np.arange(1, len(outlets) + 1))
    assert np.array_equal(table[:, 5], np.bincount(labels.ravel(), minlength=1)[1:])
    np.testing.assert_allclose(table[:, 3], 7.005 + 0.01 * table[:, 2], rtol=1e-12)
    np.testing.assert_allclose(table[:, 4], 59.995 - 0.01 * table[:, 1], rtol=1e-12)
    per_row = np.array([np.bincount(row, minlength=len(outlets) + 1) for row in labels])
    areas = (per_row * cell_areas(grid)[:, None]).sum(axis=0)[1:]
    np.testing.assert_allclose(table[:, 6], areas, rtol=1e-10)
    inwards = labels[reference.edge_cells(codes)]
    assert np.array_equal(table[:, 7], np.bincount(inwards, minlength=len(outlets) + 1)[1:])


def test_tables_of_other_kinds(dem, tmp_path, capsys):
    assert call("convert-dataset dem.tif s.zarr") == 0
    assert call("basins s.zarr --table t.geojson -o labels.tif") == 0
    assert "written: t.geojson, labels.tif" in capsys.readouterr().out
    codes = whole(TileStore.open("s.zarr").layer("flow_direction"))
    features = json.loads((tmp_path / "t.geojson").read_text())["features"]
    row, col = outlets_of(codes)[7]
    xy = warp.transform("EPSG:32633", "EPSG:4326", [5e5 + 30 * col + 15], [5e6 - 30 * row - 15])
    assert features[7]["geometry"]["type"] == "Point"
    assert features[7]["geometry"]["coordinates"] == pytest.approx(np.ravel(xy), abs=1e-8)
    own, edge = reference.basins(codes) == 8, reference.edge_cells(codes)
    cells, inwards = int(own.sum()), int((own & edge).sum())
    properties = {"basin": 8, "row": row, "col": col, "cells": cells}
    properties |= {"area": 900.0 * cells, "edge_cells": inwards}
    assert features[7]["properties"] == properties
    assert call("basins s.zarr --table t.geojson --overwrite -o t.geojson") == 2
    assert call("basins s.zarr --table t.txt --overwrite") == 2
    assert (
        "t.txt: the name of a table must end in .csv, .parquet, .geojson, .gpkg or .fgb"
        in capsys.readouterr().err
    )
    (tmp_path / "t.geojson").unlink()
    assert call("basins s.zarr --table t.geojson --resume") == 2
    assert "'basins' is complete but" in capsys.readouterr().err
    assert call("basins s.zarr --table t.gpkg --overwrite") == 0
    with gdal_environment():
        meta, _, points, fields = import_pyogrio(tmp_path).raw.read("t.gpkg")
    assert (meta["crs"], meta["geometry_type"]) == ("EPSG:32633", "Point")
    assert list(meta["fields"]) == ["basin", "row", "col", "cells", "area", "edge_cells"]
    assert [one[7] for one in fields] == list(properties.values())
    assert struct.unpack("<dd", points[7][5:]) == (5e5 + 30 * col + 15, 5e6 - 30 * row - 15)
    assert call("basins s.zarr --table t.gpkg --overwrite") == 0
    parquet = pytest.importorskip("pyarrow.parquet")
    assert call("basins s.zarr --table t.parquet --overwrite") == 0
    assert parquet.read_table("t.parquet").to_pydict()["cells"][7] == cells


# ------------------------------------------------------------------------------------------------


def test_every_cell_is_an_outlet(tmp_path):
    codes = np.zeros((150, 140), np.uint8)
    codes[70] = 255
    store = store_of_codes(tmp_path / "s.zarr", codes)
    found = basins(store, directions="codes", verify=True)
    right = np.zeros(codes.shape, np.uint32)
    right[codes == 0] = np.arange(1, 149 * 140 + 1)
    assert same(whole(found.layers["basins"]), right)


def test_circles_have_no_basin(tmp_path):
    codes = np.zeros((70, 80), np.uint8)
    codes[10, 63], codes[10, 64] = 1, 16
    store = store_of_codes(tmp_path / "s.zarr", codes)
    with pytest.raises(StoreError, match="directions form a loop"):
        basins(store, directions="codes")


def test_a_wrong_number_of_basins_is_noticed(tmp_path):
    from terrain_gpu.engine.proof import Limits
    from terrain_gpu.hydrology.basins.proof import verify_basins

    store = store_of_codes(tmp_path / "s.zarr", np.zeros((70, 80), np.uint8))
    labels = basins(store, directions="codes").layers["basins"]
    codes = TileStore.open(store).layer("codes")
    assert verify_basins(codes, labels, {"basins": 5600}, Limits())["basins"] == 5600
    with pytest.raises(VerificationError, match=r"wrong totals: 5,600 basins, but 5599 recorded"):
        verify_basins(codes, labels, {"basins": 5599}, Limits())


def test_basins_of_a_raster(dem, capsys):
    assert call("basins dem.tif -o basins.tif") == 0
    assert "113 basins of 15,000 cells in all" in capsys.readouterr().out
    assert call("convert-dataset dem.tif s.zarr") == 0
    assert call("basins s.zarr --verify") == 0
    opened = TileStore.open("s.zarr")
    codes = whole(opened.layer("flow_direction"))
    assert same(whole(opened.layer("basins")), reference.basins(codes))
    assert call("verify s.zarr") == 0
    assert "layer basins verified, 113 basins of 15,000 cells in all" in capsys.readouterr().out
