"""The water of a rain at rest, block by block, against water that is moved pool by pool."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import rasterio
import reference
from contract import _RIGHT, make_store, whole
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import rasters, shapes
from test_flow import AlongDirections, call, right_codes

import terrain_gpu
from terrain_gpu import TileStore, fill_spill_merge, flow_direction
from terrain_gpu import minimum_spanning_tree as spanning_tree
from terrain_gpu.engine.proof import Limits
from terrain_gpu.errors import InputError, StoreError, VerificationError
from terrain_gpu.grid import GridSpec
from terrain_gpu.grid.lengths import step_lengths
from terrain_gpu.hydrology.fill_spill_merge import proof
from terrain_gpu.hydrology.fill_spill_merge.operation import RestingWater

AREA = 200
small = rasters(st.just(np.dtype("<i2")), shapes(140, 1200), special=False)


def close(found, right):
    return np.allclose(found, right, rtol=1e-6, atol=1e-9, equal_nan=True)


def add_rain(store, rain):
    """The layer "rain" of a store."""
    like = TileStore.open(store).layer("elevation")
    with terrain_gpu.create_layer(
        store, "rain", like.grid, rain.dtype, nodata=-1, block_size=like.block_size
    ) as target:
        for at in target.blocks.ids():
            r0, r1, c0, c1 = target.block_window(*at)
            target.write_block(*at, np.ascontiguousarray(rain[r0:r1, c0:c1]))
        target.commit()


class TestFillSpillMergeContract(AlongDirections):
    command = "fill-spill-merge s.zarr --rain 3 --table t.csv"
    rasters = small

    def make(self, store):
        return RestingWater(str(store), 3.0, table=str(store.parent / "t.csv"))

    def expected(self, data, nodata, grid):
        rain, lengths = np.full(data.shape, 3), step_lengths(grid)
        outlets = reference.listed(right_codes(data, nodata, grid) == 0)
        return [reference.rested(data, set(outlets), rain, nodata, lengths=lengths)[0]]

    def check(self, store):
        found = whole(TileStore.open(store).layer("water"))
        if type(self) not in _RIGHT:
            _RIGHT[type(self)] = self.expected(self.cells(), -1, TileStore.open(store).grid)
        assert close(found, _RIGHT[type(self)][0])
        assert not (store / ".incomplete").exists()

    test_as_by_plain_python = None  # floats err by their last bits: see below


def rows_of(table):
    with open(table, newline="") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


@settings(max_examples=examples(40))
@given(
    raster=small,
    connectivity=st.sampled_from([8, 4]),
    ends=st.sampled_from(["low_edge", "edge", "one"]),
    most=st.sampled_from([1, 3, 40]),
    threads=st.integers(1, 3),
)
def test_depths_and_what_leaves(folders, raster, connectivity, ends, most, threads):
    data, nodata = raster.cells // 8, raster.nodata
    data[raster.cells == nodata] = nodata if nodata is not None else 0
    good = reference.vertices(data, nodata)
    cells = reference.listed(good)
    one = cells[len(cells) // 3 :][:1]
    ends = (one or "edge") if ends == "one" else ends
    rain = np.random.default_rng(raster.seed).integers(0, most + 1, data.shape).astype(np.float32)
    rain[rain == most] = -1  # none
    made = []
    with folders() as folder:
        for block in (64, 256):
            store = make_store(folder / f"{block}.zarr", data, nodata, block)
            add_rain(store, rain)
            spanning_tree(store, weight="flow", connectivity=connectivity, backend="cpu")
            codes = whole(flow_direction(store, ends).layers["flow_direction"])
            table = folder / f"{block}.csv"
            found = fill_spill_merge(store, rain="rain", table=table, threads=threads, verify=True)
            made.append((whole(found.layers["water"]).tobytes(), found.found, table.read_text()))
            depths, rows = whole(found.layers["water"]), rows_of(table)
        lengths = step_lengths(TileStore.open(store).grid)
    assert made[0] == made[1]
    fell = np.where(good & (rain > 0), rain, 0)
    outlets = set(reference.listed(codes == 0))
    right, left = reference.rested(data, outlets, fell, nodata, connectivity, lengths)
    assert close(depths, right)
    found = made[0][1]
    assert found["outflow"] == pytest.approx(float(left) * AREA, abs=1e-6)
    assert found["rain"] == fell.sum() * AREA
    assert found["rain"] == pytest.approx(found["water"] + found["outflow"], rel=1e-15)
    assert found["wet_cells"] == (right > 0).sum()
    for row in rows:
        at = int(row["row"]), int(row["col"])
        assert row["height"] == data[at]
        assert row["level"] - row["height"] == pytest.approx(right[at], abs=1e-9)
        assert row["inflow"] >= row["water"] - 1e-6


def test_the_table_of_nested_depressions(tmp_path):
    """A valley in profile; one cell gets all the water, and the outlet is on the right."""
    profile = np.array([9, 1, 4, 2, 7, 0, 5, 3, 8, 1, 3, 2, 9, -5], np.int16)
    data = np.vstack([np.full_like(profile, 99), profile, np.full_like(profile, 99)])
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    rain = np.zeros(data.shape, np.float32)
    rain[1, 3] = 12
    add_rain(store, rain)
    spanning_tree(store, weight="flow")
    flow_direction(store, [(1, 13)])
    fill_spill_merge(store, rain="rain", table=tmp_path / "t.csv", verify=True)
    rows = {int(row["col"]): row for row in rows_of(tmp_path / "t.csv")}
    terrain_gpu.depressions(store, table=tmp_path / "d.csv")
    like = {int(row["col"]): row for row in rows_of(tmp_path / "d.csv")}
    for col, row in rows.items():
        assert {k: row[k] for k in row.keys() & like[col].keys()} == {
            k: like[col][k] for k in row.keys() & like[col].keys()
        }
    # The pit at 3 holds 2 and spills into 1, which holds 3; what is left rises above both.
    got = {col: (row["inflow"] / AREA, row["water"] / AREA) for col, row in rows.items()}
    assert got == {1: (12, 12), 3: (12, 2), 5: (12, 12), 7: (0, 0), 9: (0, 0), 11: (0, 0)}
    level = pytest.approx(4 + 7 / 3)
    assert {col: row["level"] for col, row in rows.items()} == {
        1: level, 3: level, 5: 0, 7: 3, 9: 1, 11: 2
    }  # fmt: skip


def test_a_rain_of_a_raster(dem, tmp_path, capsys):
    with rasterio.open("dem.tif") as file:
        profile = file.profile
    rain = np.random.default_rng(1).random(dem.shape).astype(np.float32)
    with rasterio.open("rain.tif", "w", **{**profile, "dtype": "float32"}) as file:
        file.write(rain, 1)
    assert call("fill-spill-merge dem.tif --rain rain.tif -o w.tif --json r.json") == 0
    assert "of the rain stands, up to" in capsys.readouterr().out
    report = json.loads((tmp_path / "r.json").read_text())["result"]
    assert report["rain"] == pytest.approx(float(rain.sum(dtype=float)) * 900)
    outlets = reference.listed(right_codes(dem, None, GridSpec(*dem.shape)) == 0)
    right, _ = reference.rested(dem, set(outlets), rain)
    with rasterio.open("w.tif") as file:
        assert np.allclose(file.read(1), right, rtol=1e-5, atol=1e-6)


def test_what_cannot_be(dem, capsys):
    assert call("convert-dataset dem.tif s.zarr --block-size 64") == 0
    assert call("fill-spill-merge s.zarr --rain=-1") == 2
    assert "--rain -1.0 is not a finite number of at least 0" in capsys.readouterr().err
    for word in ("runoff", "5mm", "1,5", "1.5.5"):
        assert call(f"fill-spill-merge s.zarr --rain {word}") == 2
        told = capsys.readouterr().err
        assert f"Error: --rain {word}: not a depth, such as 0.02, in units of the heights, " in told
        assert f"no layer '{word}'; it has: elevation; name a file with its extension" in told
    assert call("fill-spill-merge s.zarr --rain nan") == 2
    assert [*TileStore.open("s.zarr").layers] == ["elevation"]  # nothing was computed before
    assert call("fill-spill-merge s.zarr --rain runoff") == 2
    assert "no layer 'runoff'" in capsys.readouterr().err
    assert call("fill-spill-merge s.zarr --rain 1e308") == 2
    assert "exceeds the largest float64" in capsys.readouterr().err
    rain = np.ones(dem.shape, np.float32)
    rain[9, 7] = -3
    add_rain("s.zarr", rain)
    with pytest.raises(InputError, match=r"rain: row 9, column 7: the rain is -3.0; give depths"):
        fill_spill_merge("s.zarr", rain="rain")
    flow_direction("s.zarr", flats="gradient", into="gradient")
    spanning_tree("s.zarr", weight="max", overwrite=True)
    with pytest.raises(StoreError, match="with weight max, but fill-spill-merge needs weight flow"):
        fill_spill_merge("s.zarr", rain=1.0, directions="gradient")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda depth, wet: depth.__setitem__(wet, depth[wet] + 9), "would flow to a lower"),
        (lambda depth, wet: depth.__setitem__(wet, 0), "would flow to a lower"),
        (lambda depth, wet: depth.__setitem__(wet, -1), "is not a depth"),
        (lambda depth, wet: depth.__setitem__(wet, np.inf), "is not a depth"),
        (lambda depth, wet: depth.__imul__(0), "cells under water"),
    ],
)
def test_water_that_does_not_rest(dem, change, says):
    """The proof of a layer that another run wrote."""
    assert call("convert-dataset dem.tif s.zarr") == 0
    found = fill_spill_merge("s.zarr", rain=2.0)
    store = TileStore.open("s.zarr")
    heights, depth = store.layer("elevation"), whole(found.layers["water"])
    wet = tuple(np.argwhere(depth == np.nanmax(depth))[0])
    change(depth, wet)
    made = make_store(store.path.parent / "w.zarr", depth, np.nan, heights.block_size)
    depths, rain = TileStore.open(made).layer("elevation"), proof.Rain(heights.grid, 2.0)
    with pytest.raises(VerificationError, match=says):
        proof.verify_water(heights, depths, 8, rain, found.found, Limits())


@pytest.mark.parametrize("key", ["rain", "water", "outflow", "on_cells", "wet_cells"])
def test_wrong_totals(dem, monkeypatch, key):
    assert call("convert-dataset dem.tif s.zarr") == 0
    execute = RestingWater.execute

    def more(operation, run):
        found = execute(operation, run)
        return {**found, key: found[key] + 1}

    monkeypatch.setattr(RestingWater, "execute", more)
    with pytest.raises(VerificationError, match="wrong totals"):
        fill_spill_merge("s.zarr", rain=2.0, verify=True)
