"""Components over blocks: against scipy, which holds the whole raster; tables against numpy."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import rasterio
from contract import OperationContract
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import expected_labels
from samples import DEMS
from scipy import ndimage
from strategies import WGS84, rasters, shapes
from test_mst import make_store

from terrain_gpu import TileStore, create_layer, label_components
from terrain_gpu.cells import is_nodata
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.engine.machine import Machine
from terrain_gpu.errors import InputError, OutputError, PlanError, StoreError
from terrain_gpu.grid import BlockGrid, GridSpec
from terrain_gpu.grid.lengths import area_units, cell_areas, step_lengths
from terrain_gpu.io import tables
from terrain_gpu.io.convert import convert_dataset
from terrain_gpu.raster.label_components import LabelComponents
from terrain_gpu.raster.label_components import operation as problem
from terrain_gpu.raster.label_components import rows as table_rows
from terrain_gpu.raster.label_components.joins import joins_bytes
from terrain_gpu.raster.label_components.operation import ComponentLabels

BOX = ["row0", "row1", "col0", "col1"]
REAL = ["west", "south", "east", "north", "area"]
COLUMNS = ["label", "cells", "area", *BOX, *REAL[:4]]

pytestmark = pytest.mark.usefixtures("no_fsync")


class TestContract(OperationContract):
    representative = True
    command = "label-components s.zarr --where 'elevation > 10' --table t.csv"
    where = "elevation > 10"

    def make(self, store):
        table = str(store.parent / "t.csv")
        return ComponentLabels(str(store), LabelComponents(self.where, table=table))

    def expected(self, data, nodata, grid):
        mask = ~is_nodata(data, nodata) & (data > 10)
        return (expected_labels(mask).astype("<u4"),)


class TestContractOfVoids(TestContract):
    command = "label-components s.zarr --where 'nodata(elevation)' --connectivity 4"
    where = "nodata(elevation)"

    def make(self, store):
        return ComponentLabels(str(store), LabelComponents(self.where, connectivity=4))

    def expected(self, data, nodata, grid):
        return (expected_labels(is_nodata(data, nodata), 4).astype("<u4"),)


def read_table(path):
    """Columns of a CSV table, exactly."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    return {n: np.array([(float if n in REAL else int)(r[n]) for r in rows]) for n in COLUMNS}


def check_table(found, labels, grid):
    """Every column against numpy; areas within rounding of an exact sum."""
    count = labels.max()
    assert list(found) == COLUMNS
    assert np.array_equal(found["label"], np.arange(1, count + 1))
    assert np.array_equal(found["cells"], np.bincount(labels.ravel(), minlength=1)[1:])
    places = ndimage.find_objects(labels)
    boxes = np.array([(r.start, r.stop, c.start, c.stop) for r, c in places]).reshape(-1, 4)
    assert np.array_equal(np.stack([found[name] for name in BOX], axis=1), boxes)
    a, _, c, _, e, f = grid.transform
    edges = [np.sort(at, axis=1) for at in (c + a * boxes[:, 2:], f + e * boxes[:, :2])]
    bounds = np.stack([found[name] for name in REAL[:4]], axis=1)
    np.testing.assert_allclose(bounds[:, [0, 2, 1, 3]], np.hstack(edges), rtol=1e-12)
    areas, exact = cell_areas(grid).tolist(), []
    for label, (rows, cols) in enumerate(places, 1):
        here = np.count_nonzero(labels[rows, cols] == label, axis=1).tolist()
        exact.append(math.fsum(n * a for n, a in zip(here, areas[rows], strict=True)))
    np.testing.assert_allclose(found["area"], exact, rtol=1e-10)


def make_layer(store, name, data, grid=None, **more):
    with create_layer(store, name, grid or GridSpec(*data.shape), data.dtype, **more) as writer:
        for i, j in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(i, j)
            writer.write_block(i, j, data[r0:r1, c0:c1])
        writer.commit()


@settings(max_examples=examples(60))
@given(
    raster=rasters(shape=shapes(260, 20_000)),
    connectivity=st.sampled_from([8, 4]),
    block=st.sampled_from([64, 128]),
    share=st.floats(0, 1),
    kind=st.sampled_from(["above", "not above", "between", "void", "value"]),
)
def test_agrees_with_scipy(folders, raster, connectivity, block, share, kind):
    data, nodata = raster.cells, raster.nodata
    good = ~is_nodata(data, nodata)
    bound = np.sort(data[good])[int(share * (good.sum() - 1))].item() if good.any() else 0
    upper = bound + 20
    where, mask = {
        "above": (f"elevation > {bound}", good & (data > bound)),
        "not above": (f"not elevation > {bound}", good & (data <= bound)),
        "between": (f"{bound} <= elevation < {upper}", good & (data >= bound) & (data < upper)),
        "void": ("nodata(elevation)", ~good),
        "value": (f"not nodata(elevation) or elevation == {bound}", good),
    }[kind]
    expected = expected_labels(mask, connectivity)
    with folders() as folder:
        store = make_store(folder / "s.zarr", data, nodata, block)
        found = label_components(
            store, where, connectivity=connectivity, threads=2, table=folder / "t.csv"
        )
        assert np.array_equal(found.labels(), expected)
        assert found.layer.dtype == np.uint32
        assert found.layer.nodata == 0
        assert (found.count, found.cells) == (expected.max(), mask.sum())
        assert found.report.result["components"] == found.count
        check_table(read_table(folder / "t.csv"), expected, found.layer.grid)


def spiral(side):
    """One component that winds through all blocks, and its complement."""
    mask = np.zeros((side, side), bool)
    for k in range(0, side // 2, 2):
        mask[k, k : side - k] = mask[k : side - k, side - 1 - k] = True
        mask[side - 1 - k, k : side - k] = mask[k + 2 : side - k, k] = True
        mask[k + 2, k : k + 3] = True
    return mask


PATTERNS = {
    "checkerboard": np.indices((200, 190)).sum(axis=0) % 2 == 0,
    "columns": np.indices((150, 301))[1] % 2 == 0,
    "rows": np.indices((301, 150))[0] % 2 == 0,
    "dots": (np.indices((257, 131)) % 2 == 0).all(axis=0),
    "diagonals": np.indices((130, 200)).sum(axis=0) % 3 == 0,
    "spiral": spiral(210),
    "comb": (np.indices((200, 200))[1] % 2 == 0) | (np.indices((200, 200))[0] == 199),
    "corners": np.indices((256, 256)).sum(axis=0) == 255,
    "all": np.ones((65, 129), bool),
    "none": np.zeros((129, 65), bool),
    "noise": np.random.default_rng(3).random((193, 257)) < 0.6,
}


@pytest.mark.parametrize("connectivity", [8, 4])
@pytest.mark.parametrize("name", PATTERNS)
def test_patterns(tmp_path, name, connectivity):
    mask = PATTERNS[name]
    expected = expected_labels(mask, connectivity)
    tables = set()
    for block in (64, 128, 256):
        store = make_store(tmp_path / f"{block}.zarr", mask.astype(np.uint8), None, block)
        csv_file = tmp_path / f"{block}.csv"
        found = label_components(store, "elevation != 0", connectivity=connectivity, table=csv_file)
        assert np.array_equal(found.labels(), expected)
        tables.add(csv_file.read_bytes())
    assert len(tables) == 1
    check_table(read_table(csv_file), expected, found.layer.grid)


def test_several_layers_with_blocks_of_their_own(tmp_path):
    rng = np.random.default_rng(5)
    high = rng.integers(-5, 6, (300, 210)).astype(np.int16)
    cover = rng.integers(0, 4, high.shape).astype(np.float32)
    cover[rng.random(high.shape) < 0.1] = np.nan
    make_layer(tmp_path / "s.zarr", "elevation", high, nodata=-5, block_size=64)
    make_layer(tmp_path / "s.zarr", "land-cover", cover, nodata=-1, block_size=128)
    where = "elevation > 0 and not (land-cover == 2 or land-cover == 3) or nodata(land-cover)"
    found = label_components(tmp_path / "s.zarr", where, into="dry")
    mask = (high > 0) & (cover < 2) | np.isnan(cover)
    assert np.array_equal(found.labels(), expected_labels(mask))
    assert found.layer.name == "dry"
    assert found.layer.block_size == 128


# -- areas and tables ----------------------------------------------------------------------


def test_areas_on_the_ellipsoid_do_not_depend_on_blocks(tmp_path):
    mask = PATTERNS["noise"]
    grid = GridSpec(*mask.shape, (0.25, 0.0, -30.0, 0.0, -0.25, 31.0), WGS84)
    found = []
    for block in (64, 256):
        store = tmp_path / f"{block}.zarr"
        make_layer(store, "m", mask.astype(np.uint8), grid, block_size=block)
        label_components(store, "m == 1", table=tmp_path / f"{block}.csv", threads=2)
        found.append((tmp_path / f"{block}.csv").read_bytes())
    assert found[0] == found[1]
    check_table(read_table(tmp_path / "64.csv"), expected_labels(mask), grid)


def test_the_area_of_the_earth(tmp_path):
    grid = GridSpec(181, 360, (1.0, 0.0, -180.0, 0.0, -1.0, 90.5), WGS84)  # centres on the poles
    make_layer(tmp_path / "s.zarr", "m", np.ones(grid.shape, np.uint8), grid, block_size=64)
    label_components(tmp_path / "s.zarr", "m > 0", table=tmp_path / "t.csv")
    # The surface of the ellipsoid of WGS 84 is 510 065 621.724 square kilometres.
    found = read_table(tmp_path / "t.csv")["area"]
    np.testing.assert_allclose(found, [5.10065621724088e14], rtol=1e-12)


@pytest.mark.parametrize("cell", [1.0, 1e-3, 1e-7])
def test_cell_areas_agree_with_step_lengths(cell):
    grid = GridSpec(9, 5, (cell, 0.0, 7.0, 0.0, -cell, 47.0), WGS84)
    east, _, south, _ = step_lengths(grid)
    found = cell_areas(grid)[1:] / (east[1:] * (south[1:] + south[:-1]) / 2) - 1
    assert np.abs(found).max() < cell**2 * 1e-4 + 1e-14  # the parallel's arc is not linear
    flipped = GridSpec(9, 5, (-cell, 0.0, 7.0, 0.0, cell, 47.0 - 9 * cell), WGS84)
    np.testing.assert_allclose(cell_areas(flipped)[::-1], cell_areas(grid), rtol=1e-14)


def test_areas_of_the_map():
    grid = GridSpec(4, 3, (30.0, 0.0, 0.0, 0.0, -20.0, 0.0))
    assert cell_areas(grid).tolist() == [600.0] * 4
    units, unit = area_units(grid)
    assert (units.tolist(), unit) == ([1] * 4, 600.0)


def test_units_of_area_cannot_overflow():
    grid = GridSpec(3600, 7200, (0.05, 0.0, -180.0, 0.0, -0.05, 90.0), WGS84)
    units, unit = area_units(grid)
    assert 2**61 <= sum(units.tolist()) * grid.cols < 2**63
    np.testing.assert_allclose(units * unit, cell_areas(grid), rtol=0, atol=unit / 2)
    assert unit < 1e-3  # square metres, of 5e14 in all


def projected(tmp_path, epsg, left, top, cell=1000.0):
    """A store in a projected CRS with two components, and their boxes."""
    mask = np.zeros((8, 9), np.uint8)
    mask[1:3, 2:5] = mask[5:8, 0] = 1
    crs = rasterio.crs.CRS.from_epsg(epsg)
    grid = GridSpec(8, 9, (cell, 0.0, left, 0.0, -cell, top), crs.to_wkt())
    make_layer(tmp_path / "s.zarr", "m", mask, grid, block_size=64)
    return tmp_path / "s.zarr", grid, [(1, 3, 2, 5), (5, 8, 0, 1)]


def test_geojson(tmp_path):
    store, grid, boxes = projected(tmp_path, 32633, 500_000.0, 5_000_000.0)
    label_components(store, "m == 1", table=tmp_path / "t.geojson")
    data = json.loads((tmp_path / "t.geojson").read_text())
    assert data["type"] == "FeatureCollection"
    assert "crs" not in data
    for feature, box, label, cells in zip(data["features"], boxes, (1, 2), (6, 3), strict=True):
        assert feature["properties"] == {
            "label": label,
            "cells": cells,
            "area": cells * 1e6,
            **dict(zip(BOX, box, strict=True)),
        }
        (ring,) = feature["geometry"]["coordinates"]
        w, s, e, n = grid.crop(box).bounds
        xs, ys = [w, e, e, w, w], [s, s, n, n, s]
        lonlat = rasterio.warp.transform(grid.crs_wkt, "EPSG:4326", xs, ys)
        np.testing.assert_allclose(ring, np.transpose(lonlat), atol=1e-8)


def test_a_geopackage(tmp_path):
    pyogrio = pytest.importorskip("pyogrio")
    store, grid, boxes = projected(tmp_path, 32633, 500_000.0, 5_000_000.0)
    label_components(store, "m == 1", table=tmp_path / "t.gpkg")
    meta, _, rings, fields = pyogrio.raw.read(tmp_path / "t.gpkg")
    assert (meta["crs"], meta["geometry_type"]) == ("EPSG:32633", "Polygon")
    assert list(meta["fields"]) == ["label", "cells", "area", *BOX]
    for k, (box, cells) in enumerate(zip(boxes, (6, 3), strict=True)):
        assert [one[k] for one in fields] == [k + 1, cells, cells * 1e6, *box]
        w, s, e, n = grid.crop(box).bounds
        ring = np.frombuffer(rings[k][13:], "<f8").reshape(-1, 2).tolist()
        assert ring == [[w, s], [e, s], [e, n], [w, n], [w, s]]


def test_geojson_without_crs_and_across_the_antimeridian(tmp_path):
    store = make_store(tmp_path / "plain.zarr", np.ones((3, 4), np.uint8), None, 64)
    label_components(store, "elevation == 1", table=tmp_path / "plain.json")
    data = json.loads((tmp_path / "plain.json").read_text())
    assert data["crs"] is None
    ring = [[0.0, -3.0], [4.0, -3.0], [4.0, 0.0], [0.0, 0.0], [0.0, -3.0]]
    assert data["features"][0]["geometry"]["coordinates"] == [ring]
    # EPSG:3832 is Mercator about 150 degrees east: x = 3339 km is the antimeridian.
    store, _, _ = projected(tmp_path, 3832, 3_336_000.0, 0.0)
    label_components(store, "m == 1", table=tmp_path / "t.geojson")
    data = json.loads((tmp_path / "t.geojson").read_text())
    lon = [x for x, _ in data["features"][0]["geometry"]["coordinates"][0]]
    assert 179.9 < min(lon) < 180 < max(lon) < 180.1


def test_boxes_that_cannot_be_reprojected(tmp_path):
    store, _, _ = projected(tmp_path, 32633, 5e8, 5e8)
    with pytest.raises(InputError, match=r"cannot be reprojected.*\.gpkg"):
        label_components(store, "m == 1", table=tmp_path / "t.geojson")
    assert [p.name for p in tmp_path.iterdir()] == ["s.zarr"]


def test_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    mask = PATTERNS["noise"]
    store = make_store(tmp_path / "s.zarr", mask.astype(np.uint8), None, 64)
    label_components(store, "elevation == 1", table=tmp_path / "t.parquet")
    found = parquet.read_table(tmp_path / "t.parquet").to_pydict()
    check_table(
        {k: np.array(v) for k, v in found.items()}, expected_labels(mask), GridSpec(*mask.shape)
    )


def test_parquet_needs_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    store = make_store(tmp_path / "s.zarr", np.ones((3, 4), np.uint8), None, 64)
    with pytest.raises(InputError, match=r"Parquet needs pyarrow .*pip install"):
        label_components(store, "elevation == 1", table=tmp_path / "t.parquet")
    assert TileStore.open(store).layers == ["elevation"]


def test_tables_are_written_in_parts(tmp_path, monkeypatch):
    mask = PATTERNS["dots"]
    store = make_store(tmp_path / "s.zarr", mask.astype(np.uint8), None, 64)
    written = []
    for rows in (1 << 15, 100):
        monkeypatch.setattr(table_rows, "_ROWS", rows)
        for suffix in ("csv", "geojson"):
            label_components(
                store, "elevation == 1", table=tmp_path / f"t.{suffix}", overwrite=True
            )
            written.append((tmp_path / f"t.{suffix}").read_bytes())
    assert written[:2] == written[2:]
    assert len(json.loads(written[1])["features"]) == mask.sum()


# -- runs ----------------------------------------------------------------------------------


class Stopped(Exception):
    pass


def stop_after(blocks):
    """A progress callback that fails after this many blocks."""
    calls = iter(range(blocks))

    def progress(cells, total):
        if next(calls, None) is None:
            raise Stopped

    return progress


@pytest.mark.parametrize("blocks", [3, 19, 25, 37])
def test_resume(tmp_path, blocks):
    """Twenty blocks, two passes."""
    mask = PATTERNS["noise"]
    store = make_store(tmp_path / "s.zarr", mask.astype(np.uint8), None, 64)
    old = label_components(store, "elevation == 0").labels()
    how = {"table": tmp_path / "t.csv", "threads": 1}
    with pytest.raises(Stopped):
        label_components(
            store, "elevation == 1", progress=stop_after(blocks), overwrite=True, **how
        )
    assert np.array_equal(
        TileStore.open(store).layer("components").read_window(0, 193, 0, 257), old
    )
    assert not (tmp_path / "t.csv").exists()
    if blocks > 20:
        with pytest.raises(StoreError, match="where was 'elevation == 1' and is now"):
            label_components(store, "elevation != 0", resume=True, **how)
    seen = []
    found = label_components(
        store,
        "elevation == 1",
        resume=True,
        overwrite=True,
        progress=lambda *n: seen.append(n),
        **how,
    )
    assert sum(cells for cells, _ in seen) == 2 * mask.size == seen[0][1]
    assert (found.report.result["blocks_resumed"] > 0) == (blocks > 20)
    assert np.array_equal(found.labels(), expected_labels(mask))
    check_table(read_table(tmp_path / "t.csv"), expected_labels(mask), GridSpec(*mask.shape))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s.zarr", "t.csv"]


def test_resume_of_what_is_complete(tmp_path):
    store = make_store(tmp_path / "s.zarr", np.eye(70, dtype=np.uint8), None, 64)
    how = {"table": tmp_path / "t.csv", "resume": True, "overwrite": True}
    label_components(store, "elevation == 1", **how)
    before = (tmp_path / "t.csv").read_bytes()
    again = label_components(store, "elevation == 1", **how)
    assert (again.count, again.cells) == (1, 70)
    assert (tmp_path / "t.csv").read_bytes() == before
    (tmp_path / "t.csv").unlink()
    with pytest.raises(StoreError, match=r"complete but .* is missing; --overwrite"):
        label_components(store, "elevation == 1", **how)
    how["resume"] = False
    label_components(store, "elevation == 1", **how)
    assert (tmp_path / "t.csv").read_bytes() == before


def test_a_table_with_lost_rows_is_refused(tmp_path):
    rows = table_rows.Rows(tmp_path / "rows", 3)
    try:
        with pytest.raises(StoreError, match="rows of the table are missing"):
            next(rows.columns(GridSpec(2, 2), 1.0))
    finally:
        rows.close()


def test_an_unfinished_run_over_a_finished_one_goes_on(tmp_path):
    """The table is missing, but so are the labels that go with it."""
    data = np.random.default_rng(1).integers(0, 9, (150, 170)).astype(np.int16)
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    options = {"table": tmp_path / "t.csv", "threads": 1}
    label_components(store, "elevation > 3", **options)
    (tmp_path / "t.csv").unlink()
    with pytest.raises(StoreError, match=r"is complete but .*t.csv is missing; --overwrite"):
        label_components(store, "elevation > 3", resume=True, **options)

    def stop(cells, total):
        nonlocal seen
        seen += cells
        if seen > 0.8 * total:
            raise KeyboardInterrupt

    seen = 0
    with pytest.raises(KeyboardInterrupt):
        label_components(store, "elevation > 3", overwrite=True, progress=stop, **options)
    found = label_components(store, "elevation > 3", resume=True, **options)
    assert np.array_equal(found.labels(), expected_labels(data > 3))
    assert len(read_table(tmp_path / "t.csv")["label"]) == found.count


def test_only_labels_are_replaced(tmp_path):
    store = make_store(tmp_path / "s.zarr", np.eye(70, dtype=np.uint8), None, 64)
    make_layer(store, "other", np.ones((70, 70), np.uint8))
    with pytest.raises(InputError, match="'elevation' does not hold components that this"):
        label_components(store, "other == 1", into="elevation", overwrite=True)
    assert TileStore.open(store).layer("elevation").dtype == np.uint8
    for where in ("other == 1", "elevation == 1"):
        assert label_components(store, where, into="labels", overwrite=True).count == 1


def test_a_table_that_cannot_be_written(tmp_path, monkeypatch):
    store = make_store(tmp_path / "s.zarr", np.eye(70, dtype=np.uint8), None, 64)
    (tmp_path / "t.csv").write_text("old\n")

    def full(file, parts, grid):
        file.write_text("half")
        raise OSError(28, "No space left on device")

    how = {"table": tmp_path / "t.csv", "overwrite": True}
    with monkeypatch.context() as patch:
        patch.setattr(tables, "_write_csv", full)
        with pytest.raises(OutputError, match=r"t\.csv: no space left on the disk"):
            label_components(store, "elevation == 1", **how)
    assert (tmp_path / "t.csv").read_text() == "old\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s.zarr", "t.csv"]
    found = label_components(store, "elevation == 1", resume=True, **how)
    assert found.report.result["blocks_resumed"] == found.layer.blocks.count
    assert read_table(tmp_path / "t.csv")["cells"].tolist() == [70]


def test_labels_beyond_32_bits(tmp_path, monkeypatch):
    assert problem.label_dtype(1, 2**31 - 1, 4) == np.uint32
    assert problem.label_dtype(131_000, 131_000, 8) == np.uint32
    assert problem.label_dtype(93_000, 93_000, 4) == np.int64
    mask = PATTERNS["noise"]
    store = make_store(tmp_path / "s.zarr", mask.astype(np.uint8), None, 64)
    monkeypatch.setattr(problem, "label_dtype", lambda *shape: np.dtype("<i8"))
    found = label_components(store, "elevation == 1")
    assert found.layer.dtype == np.int64
    assert np.array_equal(found.labels(), expected_labels(mask))


def test_plan():
    def plan(side, limit, threads=None, **more):
        dtypes, machine = [np.dtype(np.float32)], Machine.of(limit, threads)
        return problem.plan_components(side, side, dtypes, 1024, machine=machine, **more)

    for connectivity in (4, 8):
        small = plan(20_000, 512 * 10**6, threads=8, connectivity=connectivity)
        assert small.memory <= 512 * 10**6
        assert small.workers >= 1
    large = plan(20_000, 2 * 10**9, threads=8)
    assert large.workers == 8
    assert (large.passes, large.bytes_read) == (2, 2 * large.bytes_written)
    with pytest.raises(PlanError, match=r"limit of 300 MB is too small.*at least \d+ MB") as caught:
        plan(20_000, 300 * 10**6)
    least = int(re.search(r"at least (\d+) MB", str(caught.value))[1])
    assert plan(20_000, least * 10**6).memory > (least - 1) * 10**6
    assert plan(100_000, 2 * 10**9, table=False).memory < plan(100_000, 3 * 10**9).memory
    assert joins_bytes(BlockGrid(432_000, 864_000, 8192), measured=True) < 10**10


# -- the command ---------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = np.zeros((150, 130), np.int16)
    data[10:20, 10:20] = data[60:70, 60:70] = 5
    make_store(tmp_path / "s.zarr", data, -1, 64)
    return data


def call(capfd, command):
    capfd.readouterr()
    code = options._guarded(
        lambda: group.main(["label-components", *shlex.split(command)], standalone_mode=False)
    )
    return (code, *capfd.readouterr())


def test_command(world, capfd):
    code, out, _ = call(
        capfd,
        's.zarr --where "elevation > 0" --connectivity 4 --table t.csv -o l.tif --json r.json '
        "--memory-limit 600MB --threads 2",
    )
    assert code == 0
    assert out.startswith("s.zarr: layer components, 2 components of 200 cells in all, ")
    assert out.endswith("\nwritten: t.csv, l.tif\n")
    assert read_table("t.csv")["cells"].tolist() == [100, 100]
    with rasterio.open("l.tif") as labels:
        assert labels.dtypes == ("uint32",)
        assert labels.nodata == 0
        assert np.array_equal(labels.read(1), expected_labels(world > 0, 4))
    report = json.loads(Path("r.json").read_text())
    assert report["command"] == "label-components"
    assert (report["cells"], report["valid_cells"]) == (150 * 130, 200)
    assert report["seconds"].keys() >= {"survey", "join", "label", "table", "commit", "total"}
    assert report["settings"]["where"] == "elevation > 0"
    assert report["settings"]["plan"]["memory"] <= 600 * 10**6
    expected = {"components": 2, "cells": 200, "layer": "components", "blocks_resumed": 0}
    assert expected.items() <= report["result"].items()
    assert (report["result"]["table"], report["result"]["output"]) == ("t.csv", "l.tif")
    info = TileStore.open("s.zarr").layer("components").info
    assert info["result"] == {"components": 2, "cells": 200}


def test_plan_command(world, capfd):
    code = options._guarded(
        lambda: group.main(
            shlex.split("plan s.zarr --for components --memory-limit 1GB --threads 3 --json -"),
            standalone_mode=False,
        )
    )
    report = json.loads(capfd.readouterr().out)
    assert code == 0
    run = label_components(
        "s.zarr", "elevation > 0", memory_limit=10**9, threads=3, table="t.csv"
    ).report.settings["plan"]
    # The store knows the size of its shards; the plan of a raster that need not exist does not.
    assert {**report["result"], "bytes_read": 0} == {**run, "bytes_read": 0}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("", "Missing option '--where'"),
        ("--where 'elevation >'", "found the end, at character 12"),
        (
            "--where 'height > 0'",
            "s.zarr: condition 'height > 0': there is no layer 'height', only elev",
        ),
        ("--where 'elevation > 0' --connectivity 6", "'6' is not one of '8', '4'"),
        ("--where 'elevation > 0' --into elevation", "must have different names"),
        ("--where 'elevation > 0' --into x", "layer name 'x'"),
        (
            "--where 'elevation > 0' --table t.xlsx",
            "the name of a table must end in .csv, .parquet, .geojson, .gpkg or .fgb",
        ),
        ("--where 'elevation > 0' --table no/t.csv", "its folder does not exist"),
        ("--where 'elevation > 0' --table old.csv", "exists; --overwrite replaces it"),
        ("--where 'elevation > 0' -o l.png", "the name of the output must end in .tif"),
        ("--where 'elevation > 0' -o ''", "--output: the name of the file is empty"),
        ("--where 'elevation > 0' --table ''", "--table '' is not the name of a file"),
        (
            "--where 'elevation > 0' --table t.csv --json ./t.csv",
            "--json ./t.csv: --table already names this file; name another",
        ),
        (
            "--where 'elevation > 0' -o l.tif --json l.tif",
            "--json l.tif: --output already names this file; name another",
        ),
        ("--where 'elevation > 0' --into old", "layer 'old' exists; --overwrite replaces it"),
        ("--where 'elevation > 0' --memory-limit 200MB", "too small for the components"),
    ],
)
def test_wrong_inputs(world, capfd, more, message):
    Path("old.csv").write_text("mine\n")
    label_components("s.zarr", "elevation == 0", into="old")

    def files():
        return {p: p.read_bytes() for p in sorted(Path().rglob("*")) if p.is_file()}

    before = files()
    code, out, error = call(capfd, f"s.zarr {more}")
    assert (code, out) == (2, "")
    assert message in error
    assert error.count("\n") == 1
    assert files() == before


def test_unknown_connectivity(world):
    with pytest.raises(InputError, match="connectivity 6 is not 8 or 4"):
        label_components("s.zarr", "elevation > 0", connectivity=6)


def test_an_array_is_no_store():
    with pytest.raises(InputError, match=r"give a store or its path, or a DataArray, such as"):
        label_components(np.ones((3, 3)), "elevation > 0")


# -- real rasters --------------------------------------------------------------------------


@pytest.mark.skipif(not DEMS.is_dir(), reason=f"no rasters in {DEMS}")
@pytest.mark.parametrize(
    ("name", "where", "connectivity", "count"),
    [
        ("newzealand_1km_float32_islands_nan.tif", "not nodata(elevation)", 8, 7),
        ("newzealand_1km_float32_islands_nan.tif", "not nodata(elevation)", 4, 10),
        ("srtm3_N46E008_int16.tif", "nodata(elevation)", 8, None),
        ("srtm3_N46E008_int16.tif", "nodata(elevation)", 4, None),
        ("srtm3_N46E008_int16.tif", "1000 <= elevation < 2000", 8, None),
    ],
)
def test_real_rasters(tmp_path, name, where, connectivity, count):
    """Islands of New Zealand, voids of a tile of the Alps."""
    convert_dataset([DEMS / name], tmp_path / "s.zarr", block_size=256)
    source = TileStore.open(tmp_path / "s.zarr").layer("elevation")
    data = source.read_window(*source.grid.window)
    void = is_nodata(data, source.nodata)
    mask = {
        "nodata(elevation)": void,
        "not nodata(elevation)": ~void,
        "1000 <= elevation < 2000": ~void & (data >= 1000) & (data < 2000),
    }[where]
    expected = expected_labels(mask, connectivity)
    found = label_components(
        tmp_path / "s.zarr", where, connectivity=connectivity, table=tmp_path / "t.csv"
    )
    assert found.count == expected.max() == (count or expected.max()) > 0
    assert np.array_equal(found.labels(), expected)
    check_table(read_table(tmp_path / "t.csv"), expected, source.grid)
    assert os.stat(tmp_path / "t.csv").st_size > 0
