"""Watersheds of pour points and of links, block by block, against plain Python."""

from __future__ import annotations

import csv
import json
import logging
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import reference
from contract import TRANSFORM, same, whole
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from rasterio.crs import CRS
from test_flow import AlongDirections, acyclic_codes, call, right_codes, store_of_codes

from terrain_gpu import TileStore, flow_accumulation, streams, watershed
from terrain_gpu.errors import InputError, StoreError, VerificationError
from terrain_gpu.grid import GridSpec, cell_centres
from terrain_gpu.grid.distance import Distance
from terrain_gpu.grid.lengths import cell_areas, step_lengths
from terrain_gpu.hydrology.watershed import snap
from terrain_gpu.hydrology.watershed.operation import WatershedLabels
from terrain_gpu.hydrology.watershed.pour_points import PourPoints, few_upstream

GRID = GridSpec(150, 140, TRANSFORM, "", "")


def some_points(codes):
    """Pour points by cell, many of them nested; their ids are not in the order of the cells."""
    cells = [cell for cell in reference.listed(codes != 255) if (7 * cell[0] + cell[1]) % 23 == 5]
    return {cell: 3 * len(cells) - 2 * k for k, cell in enumerate(cells)}


def marked(ends, shape):
    found = np.zeros(shape, np.uint32)
    for cell, label in ends.items():
        found[cell] = label
    return found


class TestWatershedContract(AlongDirections):
    command = "watershed s.zarr --pour-point-rowcol 5,5 --pour-point-rowcol 66,700 --table t.csv"

    def prepare(self, store):
        super().prepare(store)
        codes = whole(TileStore.open(store).layer("flow_direction"))
        found = [(label, *cell) for cell, label in some_points(codes).items()]
        np.save(store.parent / "points.npy", np.array(sorted(found), np.int64).reshape(-1, 3))

    def make(self, store):
        found = np.load(store.parent / "points.npy")
        points = PourPoints(found[:, 0].astype(np.uint32), found[:, 1:], found[:, 1:])
        table = str(store.parent / "t.csv")
        return WatershedLabels(str(store), points.digest, table=table, points=points)

    def expected(self, data, nodata, grid):
        codes = right_codes(data, nodata, grid)
        ends = some_points(codes)
        return [reference.watersheds(codes, ends), marked(ends, codes.shape)]


@settings(max_examples=examples(60))
@given(
    codes=acyclic_codes(),
    block=st.sampled_from([64, 128, 256]),
    threads=st.integers(1, 3),
    data=st.data(),
)
def test_watersheds_of_given_directions(folders, codes, block, threads, data):
    draining = reference.listed(codes != 255)
    if not draining:
        return
    cells = data.draw(st.lists(st.sampled_from(draining), min_size=1, max_size=9))
    with folders() as folder:
        store = store_of_codes(folder / "s.zarr", codes, block)
        found = watershed(store, cells, directions="codes", threads=threads, verify=True)
        ends = {cell: 1 + cells.index(cell) for cell in cells}
        right = reference.watersheds(codes, ends)
        assert same(whole(found.layers["watershed"]), right)
        assert same(whole(found.layers["watershed_points"]), marked(ends, codes.shape))
        assert found.found == {"pour_points": len(cells)}
        assert found.report.valid_cells == found.report.result["labelled"] == (right != 0).sum()


@settings(max_examples=examples(40))
@given(
    codes=acyclic_codes(),
    block=st.sampled_from([64, 128, 256]),
    dtype=st.sampled_from(["<u1", "<i2", "<u4", "<i8"]),
    seed=st.integers(0, 99),
)
def test_watersheds_of_links(folders, codes, block, dtype, seed):
    rng = np.random.default_rng(seed)
    links = (rng.integers(1, 100, codes.shape) * (rng.random(codes.shape) < 0.05)).astype(dtype)
    links[rng.random(codes.shape) < 0.05] = 7  # no label
    grid = GridSpec(*codes.shape)
    with folders() as folder:
        store = store_of_codes(folder / "s.zarr", codes, block)
        store_of_codes(store, links, 64, nodata=7, grid=grid, name="links")
        table = folder / "t.csv"
        given = {"links": "links", "directions": "codes", "table": table}
        found = watershed(store, **given, threads=2, verify=True)
        there = reference.listed((links != 0) & (links != 7) & (codes != 255))
        right = reference.watersheds(codes, {cell: links[cell] for cell in there}, dtype)
        assert same(whole(found.layers["watershed"]), right)
        assert list(found.layers) == ["watershed"]
        rows = rows_of(table)
    edge = reference.edge_cells(codes)
    assert [row["label"] for row in rows] == np.unique(right[right != 0]).tolist()
    for row in rows:
        beyond = {}  # the next label after each cell that leads out of the link
        for cell in there:
            if links[cell] == row["label"]:
                to = reference.downstream(codes, *cell)
                if to is None or right[to] != row["label"]:
                    beyond[cell] = 0 if to is None else right[to]
        last = min(beyond)
        count = (right == row["label"]).sum()
        assert row == {
            "label": row["label"],
            "row": last[0],
            "col": last[1],
            "x": last[1] + 0.5,
            "y": -last[0] - 0.5,
            "cells": count,
            "area": count,
            "edge_cells": (edge & (right == row["label"])).sum(),
            "downstream": beyond[last],
        }


# -- tables --------------------------------------------------------------------------------------


def rows_of(path):
    with open(path, newline="") as file:
        return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]


@settings(max_examples=examples(30))
@given(codes=acyclic_codes(), data=st.data())
def test_the_table_of_pour_points(folders, codes, data):
    rows, cols = codes.shape
    grid = GridSpec(rows, cols, (0.01, 0, 7, 0, -0.01, 60), CRS.from_epsg(4326).to_wkt(), "")
    draining = reference.listed(codes != 255)
    if not draining:
        return
    cells = data.draw(st.lists(st.sampled_from(draining), min_size=1, max_size=9))
    labels = {cell: 1 + cells.index(cell) for cell in cells}
    tables = set()
    with folders() as folder:
        for block in (64, 256):
            store = store_of_codes(folder / f"{block}.zarr", codes, block, grid=grid)
            watershed(store, cells, directions="codes", table=folder / f"{block}.csv", threads=2)
            tables.add((folder / f"{block}.csv").read_text())
        found = rows_of(folder / "64.csv")
    assert len(tables) == 1
    areas = cell_areas(grid)
    own, edge = reference.watersheds(codes, labels), reference.edge_cells(codes)
    for k, (cell, row) in enumerate(zip(cells, found, strict=True), 1):
        upstream = [one for one in draining if cell in reference.way(codes, one)]
        beyond = reference.downstream(codes, *cell)
        right = {
            "id": k,
            "label": labels[cell],
            "given_x": 7.005 + 0.01 * cell[1],
            "given_y": 59.995 - 0.01 * cell[0],
            "row": cell[0],
            "col": cell[1],
            "x": 7.005 + 0.01 * cell[1],
            "y": 59.995 - 0.01 * cell[0],
            "cells": (own == labels[cell]).sum(),
            "area": ((own == labels[cell]).sum(axis=1) * areas).sum(),
            "edge_cells": (edge & (own == labels[cell])).sum(),
            "total_cells": len(upstream),
            "total_area": sum(areas[row] for row, _ in upstream),
            "total_edge_cells": sum(edge[one] for one in upstream),
            "downstream": 0 if beyond is None else own[beyond],
        }
        assert list(row) == list(right)
        assert row == pytest.approx(right, rel=1e-10)


def test_tables_and_labels_on_the_command_line(dem, tmp_path, capsys):
    assert call("watershed dem.tif --pour-point-rowcol 50,50 -o w.tif --table t.geojson") == 0
    out = capsys.readouterr().out
    assert "cells drain to 1 pour point" in out
    assert "written: t.geojson, w.tif" in out
    assert call("convert-dataset dem.tif s.zarr") == 0
    place = {"type": "Point", "coordinates": [500615.0, 4998485.0]}
    some = [
        {"type": "Feature", "properties": {"id": 70}, "geometry": place},
        {"type": "Feature", "properties": {"id": 40}, "geometry": place},
    ]
    crs = {"type": "name", "properties": {"name": "EPSG:32633"}}
    text = json.dumps({"type": "FeatureCollection", "features": some, "crs": crs})
    Path("p.geojson").write_text(text)
    words = "watershed s.zarr --pour-points p.geojson --pour-point 500315,4999985 --snap 200"
    assert call(f"{words} --table t.csv --verify --json r.json") == 0
    settings = json.loads(Path("r.json").read_text())
    assert {"before: flow_accumulation", "verify", "table"} < settings["seconds"].keys()
    table = rows_of("t.csv")
    assert [row["id"] for row in table] == [40, 70, 71]
    assert [row["label"] for row in table] == [40, 40, 71]
    assert {**table[0], "id": 70} == table[1]
    assert (table[0]["given_x"], table[0]["given_y"]) == (500615, 4998485)
    sums = whole(TileStore.open("s.zarr").layer("flow_accumulation"))
    for row in table:
        assert row["total_cells"] == sums[int(row["row"]), int(row["col"])]
    assert call("verify s.zarr") == 0
    assert "layers watershed, watershed_points verified, " in capsys.readouterr().out
    assert call(f"{words} --table t.csv --resume --overwrite --verify") == 0
    assert call("streams s.zarr --threshold 50 --order link --into links") == 0
    assert call("watershed s.zarr --links links --into parts --verify") == 0
    assert "layer parts, 15,000 cells drain to links, " not in capsys.readouterr().out
    opened = TileStore.open("s.zarr")
    codes, links = (whole(opened.layer(name)) for name in ("flow_direction", "links"))
    there = reference.listed((links != 0) & (codes != 255))
    right = reference.watersheds(codes, {cell: links[cell] for cell in there}, links.dtype)
    assert same(whole(opened.layer("parts")), right)
    assert call("verify s.zarr") == 0
    assert "layer parts verified, " in capsys.readouterr().out


# -- snapping ------------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(
    seed=st.integers(0, 999),
    rows=st.integers(1, 90),
    cols=st.integers(1, 90),
    radius=st.sampled_from([0, 10, 24, 70, 300, 10**6]),
    geographic=st.booleans(),
    square=st.sampled_from([16, 512]),
    expected=st.none() | st.lists(st.sampled_from([0.5, 3, 6.5, 99]), min_size=7, max_size=7),
)
def test_points_are_snapped_to_channels(
    folders, seed, rows, cols, radius, geographic, square, expected
):
    rng = np.random.default_rng(seed)
    sums = rng.integers(1, 9, (rows, cols))
    sums[rng.random(sums.shape) < 0.3] = -1
    grid = GridSpec(rows, cols, TRANSFORM, "", "")
    if geographic:
        place = (2e-4, 0, 7, 0, -1e-4, 60)
        grid = GridSpec(rows, cols, place, CRS.from_epsg(4326).to_wkt(), "")
    across, _, down, _ = step_lengths(grid)
    points = np.stack((rng.integers(0, rows, 7), rng.integers(0, cols, 7)), axis=1)
    with folders() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(snap, "_GROUP", square)
        patch.setattr(snap, "_PIECE", square)
        store = store_of_codes(folder / "s.zarr", sums, nodata=-1, grid=grid, name="sums")
        layer = TileStore.open(store).layer("sums")
        wanted = None if expected is None else np.array(expected, float)
        cells, none = snap.most_within(layer, points, Distance(radius, "map units"), wanted)
    each = zip(points.tolist(), cells.tolist(), none, expected or [None] * 7, strict=True)
    for point, cell, nothing, own in each:
        right = reference.snapped(sums, point, radius, across, down, own)
        assert (None if nothing else tuple(cell)) == right


def test_points_are_snapped_to_an_expected_area(dem, capsys):
    assert call("convert-dataset dem.tif s.zarr") == 0
    words = "watershed s.zarr --pour-point-rowcol 50,50 --table t.csv --overwrite --snap-area"
    assert call(f"{words} 90000m2 --snap 300") == 0  # before sums of areas are there
    (row,) = rows_of("t.csv")
    sums = whole(TileStore.open("s.zarr").layer("flow_accumulation"))
    assert row["total_area"] == sums[int(row["row"]), int(row["col"])]
    away = np.hypot(*(np.indices(sums.shape) - 50)) * 30
    assert abs(row["total_area"] - 90000) == abs(sums[away <= 300] - 90000).min()
    assert call(f"{words} 100 --snap 300") == 0
    assert rows_of("t.csv") == [row]
    assert call(f"{words} 0km2 --snap 300") == 2
    assert "--snap-area '0km2': must be positive and finite" in capsys.readouterr().err
    assert call(f"{words} 5km2") == 2
    assert "--snap-area needs --snap, the search radius" in capsys.readouterr().err


@pytest.mark.parametrize("unit", ["", "km2"])
def test_points_are_snapped_to_areas_of_their_own(dem, capsys, unit):
    assert call("convert-dataset dem.tif s.zarr") == 0
    grid = TileStore.open("s.zarr").grid
    scale = 0.0009 if unit else 1  # of a cell
    cells, wanted = [(50, 50), (20, 30), (50, 52)], [100, 3, 7]
    xy = cell_centres(grid, np.array(cells))
    points = [
        {
            "type": "Feature",
            "properties": {"id": 10 - k, "size": area * scale},
            "geometry": {"type": "Point", "coordinates": at},
        }
        for k, (at, area) in enumerate(zip(xy.tolist(), wanted, strict=True))
    ]

    def write():
        crs = {"type": "name", "properties": {"name": "EPSG:32633"}}
        file = {"type": "FeatureCollection", "crs": crs, "features": points}
        Path("p.geojson").write_text(json.dumps(file))

    write()
    words = "watershed s.zarr --pour-points p.geojson --table t.csv --overwrite --snap 300"
    assert call(f"{words} --snap-area size{':' * bool(unit)}{unit}") == 0
    sums = whole(TileStore.open("s.zarr").layer("flow_accumulation"))
    sums = sums / 900 if unit else sums
    for row in rows_of("t.csv"):
        (row0, col0), area = cells[10 - int(row["id"])], wanted[10 - int(row["id"])]
        away = np.hypot(*(np.indices(sums.shape) - np.array([row0, col0])[:, None, None])) * 30
        found = abs(sums[int(row["row"]), int(row["col"])] - area)
        assert found == pytest.approx(abs(sums[(away <= 300) & (sums >= 0)] - area).min())
    capsys.readouterr()
    for more, told in (
        ("--snap-area height", "--snap-area: p.geojson: its features have no field 'height'"),
        ("--snap-area size --pour-point-rowcol 5,5", "has none for 1 of 4 pour points, such as"),
    ):
        assert call(f"{words} {more}") == 2
        assert told in capsys.readouterr().err
    points[1]["properties"]["size"] = -2
    write()
    assert call(f"{words} --snap-area size") == 2
    assert (
        "p.geojson: feature 2 has the size -2, which is not a positive" in capsys.readouterr().err
    )
    points[1]["properties"] = {"id": 10, "size": 1}
    write()
    assert call(f"{words} --snap-area size") == 2
    assert "but another feature with its id 10 has" in capsys.readouterr().err
    assert call("watershed s.zarr --pour-point-rowcol 5,5 --snap 9 --snap-area a --overwrite") == 2
    assert "a field needs --pour-points" in capsys.readouterr().err


def test_points_that_are_snapped_to_one_cell(tmp_path, caplog):
    codes = np.full((70, 90), 1, np.uint8)
    store = store_of_codes(tmp_path / "s.zarr", codes, grid=GridSpec(70, 90, TRANSFORM, "", ""))
    flow_accumulation(store, directions="codes")
    given = [(5, 86), (20, 60), (5, 88)]
    with caplog.at_level(logging.WARNING, logger="terrain_gpu"):
        watershed(store, given, directions="codes", snap=40, table=tmp_path / "t.csv")
    assert (
        "1 of 3 pour points share the cell of one with a lower id and have its label: 3 (label 1)"
        in caplog.text
    )
    table = rows_of(tmp_path / "t.csv")
    assert [(row["row"], row["col"]) for row in table] == [(5, 89), (20, 64), (5, 89)]
    assert [row["label"] for row in table] == [1, 2, 1]
    assert [row["cells"] for row in table] == [90, 65, 90]


# -- what cannot be --------------------------------------------------------------------------------


def test_pour_points_that_cannot_be(tmp_path):
    codes = np.full(GRID.shape, 1, np.uint8)
    codes[:, :70] = 255
    store = store_of_codes(tmp_path / "s.zarr", codes, grid=GRID)
    before = sorted(os.listdir(store))
    for points, words in (
        ([(150, 3)], "pour_points: outside the raster, which has rows 0 .. 149"),
        ([], "there are no pour_points; give one or more"),
        ([(9, 99), (9, 60)], "1 of 2 pour points do not drain: 2 at row 9, column 60 .x 500605.0"),
        ([(9, 60)], r"that drains nearest to the first is row 9, column 70 \(x 500705.0, y 54998"),
        ("p.gpkg", "pour_points 'p.gpkg': read a file with io.places.from_vector"),
        (None, "give pour_points, or links"),
    ):
        with pytest.raises(InputError, match=words):
            watershed(store, points, directions="codes")
    flow_accumulation(store, directions="codes")
    words = (
        r"no cell that drains within 30 map units: 1 at row 9, column 60 .* row 9, column 70 \(x"
    )
    with pytest.raises(InputError, match=rf"{words} 50070.*\), 100 away: move it there, or snap"):
        watershed(store, [(9, 60)], directions="codes", snap=30)
    with pytest.raises(InputError, match="snap -1 is not a finite number of at least 0"):
        watershed(store, [(9, 90)], directions="codes", snap=-1)
    with pytest.raises(StoreError, match=r"no layer 'links'; .* streams --order link makes"):
        watershed(store, links="links", directions="codes")
    store_of_codes(store, np.zeros(GRID.shape, np.float32), grid=GRID, name="links")
    with pytest.raises(StoreError, match="holds float32, but links are whole numbers"):
        watershed(store, links="links", directions="codes")
    assert sorted(os.listdir(store)) == sorted([*before, "flow_accumulation", "links"])


def test_the_nearest_channel_is_named(tmp_path, capsys):
    rng = np.random.default_rng(5)
    codes = np.where(rng.random(GRID.shape) < 0.3, 255, 1).astype(np.uint8)
    codes[:, 20:60] = 255
    grid = GridSpec(*GRID.shape, TRANSFORM, "", "")
    store = store_of_codes(tmp_path / "s.zarr", codes, grid=grid)
    sums = flow_accumulation(store, directions="codes").layers["flow_accumulation"]
    lengths = step_lengths(grid)

    def nearest(marked, row, col):
        rows, cols = np.nonzero(marked)
        far = np.hypot((rows - row) * lengths[2, 0], (cols - col) * lengths[0, 0])
        return rows[far.argmin()], cols[far.argmin()]

    drains = codes != 255
    for threshold, marked in ((None, drains), (15, drains & (whole(sums) >= 15))):
        if threshold is not None:
            streams(store, threshold, directions="codes", into="rivers")
        name = "of a channel" if threshold else "that drains"
        for point, beside in (((75, 40), (75, 40)), ((-3, 300), (0, 139)), ((200, 5), (149, 5))):
            row, col = nearest(marked, *beside)
            words = f"the cell {name} nearest to the first is row {row}, column {col} "
            with pytest.raises(InputError, match=words):
                watershed(store, [point], directions="codes")
            ((x, y),) = cell_centres(grid, np.array([point])).tolist()
            shape = {"type": "Point", "coordinates": [x, y]}
            file = tmp_path / "point.geojson"
            feature = {"type": "Feature", "crs": None, "properties": {}, "geometry": shape}
            file.write_text(json.dumps(feature))
            for option in (
                f"--pour-point-rowcol {point[0]},{point[1]}",
                f"--pour-point {x},{y}",
                f"--pour-points {file}",
            ):
                assert call(f"watershed {store} --directions codes {option}") == 2
                told = capsys.readouterr().err
                assert words in told
                # --snap comes too late for what is outside.
                assert ("snap it (--snap)" in told) == (beside == point)
    flow_accumulation(store, directions="codes", areas=True, overwrite=True)  # streams are stale
    with pytest.raises(InputError, match="the cell that drains nearest"):
        watershed(store, [(75, 40)], directions="codes")


def test_pour_points_replace_no_watersheds_nor_stay_behind(tmp_path):
    store = store_of_codes(tmp_path / "s.zarr", np.full((70, 80), 1, np.uint8))
    store_of_codes(store, np.ones((70, 80), np.uint8), nodata=0, name="links")
    how = {"directions": "codes", "overwrite": True}
    watershed(store, [(5, 5)], into="a", **how)
    watershed(store, [(5, 5)], into="b_points", **how)
    before = sorted(os.listdir(store))
    for into, points, words in (
        ("a", {"links": "links"}, "'a_points' holds pour points, which would not be those of the"),
        ("a_points", {"links": "links"}, "'a_points' holds pour points, not watersheds; choose"),
        ("a_points", {"pour_points": [(5, 5)]}, "'a_points' holds pour points, not watersheds"),
        ("b", {"pour_points": [(5, 5)]}, "'b_points' holds watersheds, and pour points would"),
    ):
        with pytest.raises(InputError, match=words):
            watershed(store, into=into, **points, **how)
    assert sorted(os.listdir(store)) == before
    shutil.rmtree(store / "a_points")
    watershed(store, links="links", into="a", **how)
    watershed(store, [(5, 5)], into="b_points", **how)
    assert call(f"verify {store}") == 0


def test_nothing_is_computed_for_what_cannot_be(dem, capsys):
    assert call("convert-dataset dem.tif s.zarr") == 0
    before = sorted(os.listdir("s.zarr"))
    for words, message in (
        ("watershed s.zarr --links links", "terrain-gpu streams --order link makes one"),
        ("watershed s.zarr --pour-point-rowcol 5,5 --table no/t.csv", "its folder does not exist"),
        ("basins s.zarr --table no/t.gpkg", "no/t.gpkg: its folder does not exist"),
        ("watershed dem.tif --links links -o w.tif", "--links needs a store; give --store too"),
        ("watershed s.zarr --pour-points p.csv", "p.csv: a table, not a vector file or raster"),
    ):
        assert call(words) == 2
        assert message in capsys.readouterr().err
        assert sorted(os.listdir("s.zarr")) == before


def test_commands_that_cannot_be(dem, capsys):
    assert call("convert-dataset dem.tif s.zarr") == 0
    for words, message in (
        ("", "give --pour-point, --pour-point-rowcol or --pour-points, or --links"),
        ("--pour-point-rowcol 5,5 --links links", "--links replaces --pour-point-rowcol: l"),
        ("--links links --snap 5", "--pour-point-rowcol or --pour-points; leave it out for --l"),
        ("--pour-point 1,1", "--pour-point: outside the raster"),
        ("--pour-points p.gpkg", "p.gpkg"),
        (
            "--pour-point-rowcol 5,5 --table t.txt",
            "the name of a table must end in .csv, .parquet, .geojson, .gpkg or .fgb",
        ),
        ("--pour-point-rowcol 5,5 --table no/t.csv", "no/t.csv: its folder does not exist"),
        ("--pour-points t.csv --table t.csv", "--pour-points already names this file"),
        ("--pour-point-rowcol 5,5 --snap -3", "--snap -3 is not a finite number of at least 0"),
    ):
        assert call(f"watershed s.zarr {words}") == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("on_it", [False, True])
def test_circles_have_no_watershed_unless_a_point_breaks_them(tmp_path, on_it):
    codes = np.zeros((70, 80), np.uint8)
    codes[10, 63], codes[10, 64] = 1, 16
    store = store_of_codes(tmp_path / "s.zarr", codes)
    points = [(10, 63)] if on_it else [(20, 20)]
    if on_it:
        found = watershed(store, points, directions="codes", verify=True)
        assert found.report.valid_cells == 2
        points.append((10, 64))
    with pytest.raises(StoreError, match="directions form a loop"):
        watershed(store, points, directions="codes", table=tmp_path / "t.csv", overwrite=True)


def test_a_link_that_is_a_circle_has_no_table(tmp_path):
    codes, links = np.zeros((2, 70, 80), np.uint8)
    codes[10, 63], codes[10, 64] = 1, 16
    links[10, 63:65] = 3
    store = store_of_codes(tmp_path / "s.zarr", codes)
    store_of_codes(store, links, nodata=0, name="links")
    with pytest.raises(StoreError, match=r"loop of 2 cells: \(10, 63\), \(10, 64\);"):
        watershed(store, links="links", directions="codes", table=tmp_path / "t.csv")
    assert not (tmp_path / "t.csv").exists()
    assert "watershed" not in TileStore.open(store).layers


def test_other_points_than_were_given_are_noticed(tmp_path, capsys):
    from terrain_gpu.engine.proof import Limits
    from terrain_gpu.hydrology.watershed.proof import verify_watershed

    store = store_of_codes(tmp_path / "s.zarr", np.full((70, 80), 1, np.uint8))
    made = watershed(store, [(5, 5), (7, 70)], directions="codes")
    other = watershed(store, [(5, 5)], directions="codes", into="other")
    codes, points = TileStore.open(store).layer("codes"), other.layers["other_points"]
    digest = made.report.settings["pour_points"]
    with pytest.raises(VerificationError, match="holds other pour points than were given"):
        verify_watershed(codes, points, other.layers["other"], digest, Limits())
    right = [made.layers[name] for name in ("watershed_points", "watershed")]
    assert verify_watershed(codes, *right, digest, Limits()) == {"cells": 77, "points": 2}
    assert call(f"verify {store}") == 0
    assert "watershed, watershed_points verified, 77 cells in" in capsys.readouterr().out


def test_points_that_catch_hardly_anything_are_named(tmp_path, caplog):
    """Those beside the channel; what drains through nested points counts."""
    codes = np.full((30, 40), 4, np.uint8)
    codes[20] = 1
    store = store_of_codes(tmp_path / "s.zarr", codes)
    watershed(store, [(20, 39), (20, 38), (0, 3), (21, 9)], directions="codes", verify=True)
    assert (
        "2 of 4 pour points catch fewer than 10 cells: 3 at row 0, column 3 (1 cell, "
        "1 square map units), 4 at row 21, column 9 (1 cell, 1 square map units); if they "
        "should lie on a channel, snap them to it (--snap)"
    ) in caplog.text
    for k, row in ((1, 0), (9, 8), (10, 9)):
        assert few_upstream(TileStore.open(store).layer("codes"), np.array([[row, 0]])) == k
