"""Sources and targets from coordinates, vectors and rasters; backlinks traced; paths as lines."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyogrio
import pyogrio.raw
import pytest
import rasterio
from hypothesis import given
from hypothesis import strategies as st
from rasterio import features, warp
from rasterio.crs import CRS

import terrain_gpu
from terrain_gpu.errors import InputError, OutputError, StoreError
from terrain_gpu.grid import BlockGrid, GridSpec, cell_centres
from terrain_gpu.grid.distance import Distance
from terrain_gpu.io import lines as vector_lines
from terrain_gpu.io import places as sources
from terrain_gpu.io import vectors
from terrain_gpu.io.fields import MAX_ID
from terrain_gpu.io.places import Places, from_raster, from_rowcol, from_vector, from_xy, merge
from terrain_gpu.io.settling import Ground, refuse_unusable
from terrain_gpu.paths.cost_distance.output import write_paths
from terrain_gpu.paths.relax.trace import TracedPath, trace_path
from terrain_gpu.store import TileStore, create_layer

UTM = CRS.from_epsg(32633).to_wkt(version="WKT2_2019")
X0, Y0, CELL = 500_000.0, 5_000_000.0, 30.0
GRID = GridSpec(10, 12, (CELL, 0.0, X0, 0.0, -CELL, Y0), UTM, "EPSG:32633")
BARE = GridSpec(10, 12)
"""No CRS; cell (r, c) is x c .. c + 1, y -r - 1 .. -r."""


def grid_of(rows, cols):
    return replace(GRID, rows=rows, cols=cols)


def at(col, row):
    """Map coordinates of a place given in columns and rows."""
    return [X0 + CELL * col, Y0 - CELL * row]


def rows_of(found: Places):
    """(row, col, id, cost) of every cell, after checking the types."""
    assert [c.dtype for c in (found.rows, found.cols, found.ids, found.costs)] == [
        "int64",
        "int64",
        "uint32",
        "float64",
    ]
    columns = (found.rows, found.cols, found.ids, found.costs)
    assert len({len(c) for c in columns}) == 1
    return list(zip(*(c.tolist() for c in columns), strict=True))


def cells_of(found: Places):
    return {(row, col) for row, col, _, _ in rows_of(found)}


# -- coordinates ---------------------------------------------------------------------------


def test_points_are_cells_sorted_by_row_and_column():
    found = from_xy(GRID, [at(5.5, 7.2), at(1.9, 0.1), [*at(0.5, 7.9), 2.5]])
    assert rows_of(found) == [(0, 1, 2, 0.0), (7, 0, 3, 2.5), (7, 5, 1, 0.0)]
    assert len(found) == 3
    assert found.places.tolist() == [[0, 1], [7, 0], [7, 5]]


@pytest.mark.parametrize(
    ("col", "row", "cell"),
    [
        (0, 0, (0, 0)),
        (3, 4, (4, 3)),
        (3, 4.5, (4, 3)),
        (2.999, 4, (4, 2)),
        (12, 0, (0, 11)),
        (0, 10, (9, 0)),
        (12, 10, (9, 11)),
        (11.999, 9.999, (9, 11)),
    ],
)
def test_points_on_lines_between_cells_and_on_the_edges(col, row, cell):
    assert cells_of(from_xy(GRID, [at(col, row)])) == {cell}
    assert cells_of(from_xy(GRID, np.array([at(col, row)]))) == {cell}


def test_a_cell_side_that_no_binary_number_is():
    grid = GridSpec(10, 10, (0.1, 0.0, 0.0, 0.0, 0.1, 0.0))
    assert 0.3 / 0.1 < 3
    for k in range(10):
        assert cells_of(from_xy(grid, [(k / 10, k / 10)])) == {(k, k)}
    assert cells_of(from_xy(grid, [(1.0, 1.0), (1.0 + 1e-8, 0.0)])) == {(9, 9), (0, 9)}


def test_columns_to_the_west_and_rows_to_the_north():
    grid = GridSpec(4, 5, (-2.0, 0.0, 10.0, 0.0, 3.0, 6.0))
    assert cells_of(from_xy(grid, [(9.0, 7.0), (0.0, 18.0)])) == {(0, 0), (3, 4)}


def test_points_outside_are_named_with_the_bounds():
    points = [at(1, 1), at(-0.01, 5), *[at(5, 10.01)] * 6]
    with pytest.raises(InputError) as error:
        from_xy(GRID, points)
    assert str(error.value) == (
        "outside the raster, which covers x 500000.0 .. 500360.0, y 4999700.0 .. 5000000.0: "
        "point 2 (x 499999.7, y 4999850.0), point 3 (x 500150.0, y 4999699.7), "
        "point 4 (x 500150.0, y 4999699.7), point 5 (x 500150.0, y 4999699.7), "
        "point 6 (x 500150.0, y 4999699.7) and 2 more"
    )
    with pytest.raises(InputError, match=r"point 1 \(x 1e\+308"):
        from_xy(GridSpec(2, 2, (1e-3, 0.0, 0.0, 0.0, 1e-3, 0.0)), [(1e308, 0)])


@pytest.mark.parametrize(
    ("point", "words"),
    [
        ((1.0,), r"point 2: \(1.0,\) is neither x, y nor x, y, start cost"),
        ((1.0, 2.0, 3.0, 4.0), "point 2: .* is neither"),
        (("east", 2.0), r"point 2: \('east', 2.0\) is neither"),
        ((*at(1, 1), "dear"), "point 2: .*'dear'.* is neither"),
        ((None, 2.0), "point 2: .* is neither"),
        (7.0, "point 2: 7.0 is neither"),
        ((math.nan, 2.0), "point 2: x, y nan, 2.0 are not finite"),
        ((1.0, math.inf), "point 2: x, y 1.0, inf are not finite"),
        ((*at(1, 1), -0.5), "point 2: start cost -0.5 is negative or not finite"),
        ((*at(1, 1), math.nan), "point 2: start cost nan is negative or not finite"),
        ((*at(1, 1), math.inf), "point 2: start cost inf is negative or not finite"),
    ],
)
def test_what_is_no_point(point, words):
    with pytest.raises(InputError, match=words):
        from_xy(GRID, [at(1, 1), point])


def test_rows_and_columns():
    assert rows_of(from_rowcol(GRID, [(9, 11, 4), (0, 3)])) == [(0, 3, 2, 0.0), (9, 11, 1, 4.0)]
    assert rows_of(from_rowcol(GRID, np.array([[1, 2]]))) == [(1, 2, 1, 0.0)]
    huge = GridSpec(2**31 - 1, 2**31 - 1)
    assert cells_of(from_rowcol(huge, [(2**31 - 2, 2**31 - 2)])) == {(2**31 - 2, 2**31 - 2)}


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ((10, 0), r"rows 0 .. 9 and columns 0 .. 11: cell 2 \(row 10, column 0\)"),
        ((0, 12), r"cell 2 \(row 0, column 12\)"),
        ((-1, 0), r"cell 2 \(row -1, column 0\)"),
        ((1.5, 0), r"rows and columns must be whole numbers: cell 2 \(row 1.5, column 0\)"),
        ((1, 2, -3), "cell 2: start cost -3.0"),
        ((1,), r"cell 2: \(1,\) is neither row, column nor row, column, start cost"),
    ],
)
def test_what_is_no_cell(cell, words):
    with pytest.raises(InputError, match=words):
        from_rowcol(GRID, [(0, 0), cell])


def test_nothing_given():
    with pytest.raises(InputError, match="no point given"):
        from_xy(GRID, [])
    with pytest.raises(InputError, match="no cell given"):
        from_rowcol(GRID, iter(()))
    with pytest.raises(InputError, match="no points, vector file or raster given"):
        merge([])


def test_points_in_one_cell_are_all_kept_and_as_sources_the_cheapest_then_the_least_id(caplog):
    found = from_rowcol(GRID, [(1, 1, 5), (1, 1, 3), (1, 1, 3), (0, 0, -0.0), (1, 2, 9)])
    one = [(0, 0, 4, 0.0), (1, 1, 2, 3.0), (1, 2, 5, 9.0)]
    assert rows_of(found) == [*one[:2], (1, 1, 3, 3.0), (1, 1, 1, 5.0), one[2]]
    assert not np.signbit(found.costs).any()
    assert rows_of(found.one_per_cell()) == one
    assert not caplog.messages
    assert rows_of(found.one_per_cell("sources")) == one
    assert caplog.messages == [
        "2 of 5 sources ignored, because another one in the same cell has a lower start cost or id:"
        " 3 at row 1, column 1 (but 2), 1 at row 1, column 1 (but 2)"
    ]
    assert len(sources.NO_PLACES.one_per_cell("sources")) == 0


@pytest.mark.parametrize("kind", ["geojson", "gpkg"])
def test_features_in_one_cell_are_all_kept(tmp_path, kind):
    """Positions of one feature in a cell count once, and so do features that share an id there."""
    several = geometry("MultiPoint", [at(1.1, 1.1), at(1.9, 1.9)])
    shapes = [point(1.2, 1.2), point(1.7, 1.7), several]
    found = from_vector(GRID, save(kind, tmp_path, *shapes))
    assert rows_of(found) == [(1, 1, 1, 0.0), (1, 1, 2, 0.0), (1, 1, 3, 0.0)]
    assert rows_of(found.one_per_cell()) == [(1, 1, 1, 0.0)]
    (tmp_path / "ids").mkdir()
    path = save(kind, tmp_path / "ids", *shapes, id=[7, 5, 7], cost=[1.0, 2.0, 0.5])
    assert rows_of(from_vector(GRID, path)) == [(1, 1, 7, 0.5), (1, 1, 5, 2.0)]


def test_merge():
    one = from_rowcol(GRID, [(3, 3, 1), (2, 2, 7)])
    two = from_rowcol(GRID, [(2, 2, 6), (3, 3, 1), (0, 0)])
    assert rows_of(merge([one, two])) == [
        (0, 0, 3, 0.0),
        (2, 2, 1, 6.0),
        (2, 2, 2, 7.0),
        (3, 3, 1, 1.0),
        (3, 3, 2, 1.0),
    ]
    assert rows_of(merge([one, one])) == rows_of(one)
    assert rows_of(merge([one])) == rows_of(one)


# -- nodata --------------------------------------------------------------------------------


def layer_of(path, data, nodata, grid=GRID, block=64):
    grid = replace(grid, rows=data.shape[0], cols=data.shape[1])
    with create_layer(
        path, "elevation", grid, data.dtype, nodata=nodata, block_size=block
    ) as writer:
        for i, j in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(i, j)
            writer.write_block(i, j, data[r0:r1, c0:c1])
        writer.commit()
    return TileStore.open(path).layer("elevation")


def test_cells_on_nodata_are_refused(tmp_path, no_fsync):
    data = np.ones((10, 12), "int16")
    data[4, 5:] = -1
    layer = layer_of(tmp_path / "s", data, -1)
    refuse_unusable(from_rowcol(GRID, [(0, 0), (4, 4), (9, 11)]), Ground([layer]))
    with pytest.raises(InputError) as error:
        refuse_unusable(from_rowcol(GRID, [(0, 0), (4, 11), (4, 5)]), Ground([layer]), snapped=True)
    assert str(error.value) == (
        f"{tmp_path}/s/elevation: 2 of 3 given cells are nodata: row 4, column 5 (x 500165.0, "
        "y 4999865.0; nearest valid cell: row 3, column 5, 1 cell away), row 4, column 11 "
        "(x 500345.0, y 4999865.0; nearest valid cell: row 3, column 11, 1 cell away); move "
        "them to valid cells (--snap DISTANCE of the command), or leave them out "
        "(--on-nodata skip)"
    )


@pytest.mark.parametrize("block", [64, 128])
def test_nodata_is_found_in_any_block_without_reading_all(tmp_path, no_fsync, block, monkeypatch):
    rng = np.random.default_rng(1)
    data = rng.normal(size=(300, 333)).astype("float32")
    void = rng.random(data.shape) < 0.3
    data[void] = np.where(rng.random(void.sum()) < 0.5, np.nan, -9999)
    layer = layer_of(tmp_path / "s", data, -9999, block=block)
    windows = []
    monkeypatch.setattr(sources, "_AT_ONCE", 64 * block)
    real = layer.read_window
    monkeypatch.setattr(layer, "read_window", lambda *w: windows.append(w) or real(*w))
    places = np.argwhere(~void)[rng.permutation((~void).sum())[:400]]
    refuse_unusable(from_rowcol(layer.grid, places), Ground([layer]))
    assert all(r1 - r0 <= 64 and c1 - c0 <= block for r0, r1, c0, c1 in windows)
    for place in np.argwhere(void)[::997]:
        with pytest.raises(InputError, match=rf"1 of 401 .* row {place[0]}, column {place[1]} "):
            refuse_unusable(from_rowcol(layer.grid, [*places, place]), Ground([layer]))


# -- rasters -------------------------------------------------------------------------------


def write_tif(path, data, grid=GRID, nodata=None, **profile):
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        height=data.shape[0],
        width=data.shape[1],
        count=1,
        dtype=data.dtype,
        crs=grid.crs_wkt or None,
        transform=rasterio.Affine(*grid.transform),
        nodata=nodata,
        **profile,
    ) as out:
        out.write(data, 1)
    return path


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32", "int64", "uint64", "float32"])
def test_cells_of_a_raster(tmp_path, dtype):
    data = np.zeros((10, 12), dtype)
    data[2, 3], data[9, 11], data[9, 10] = 7, 1, 99
    path = write_tif(tmp_path / "s.tif", data, nodata=99)
    assert rows_of(from_raster(GRID, path)) == [(2, 3, 7, 0.0), (9, 11, 1, 0.0)]


@pytest.mark.parametrize("layout", [{}, {"tiled": True, "blockxsize": 16, "blockysize": 16}])
def test_a_raster_in_pieces(tmp_path, monkeypatch, layout):
    rng = np.random.default_rng(5)
    data = rng.integers(0, 3, (53, 61)).astype("uint16")
    path = write_tif(tmp_path / "s.tif", data, **layout)
    monkeypatch.setattr(sources, "PIECE", 20)
    found = from_raster(grid_of(53, 61), path)
    assert np.array_equal(found.places, np.argwhere(data))
    assert np.array_equal(found.ids, data[data > 0])


def test_the_largest_id(tmp_path):
    data = np.array([[MAX_ID]], "uint32")
    path = write_tif(tmp_path / "s.tif", data)
    assert rows_of(from_raster(grid_of(1, 1), path)) == [(0, 0, MAX_ID, 0.0)]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int16", -3),
        ("uint32", 2**32 - 1),
        ("uint64", 2**63),
        ("float64", 1.5),
        ("float64", 1e300),
        ("float32", -1),
    ],
)
def test_values_that_are_no_ids(tmp_path, dtype, value):
    data = np.zeros((10, 12), dtype)
    data[4, 5] = value
    path = write_tif(tmp_path / "s.tif", data)
    with pytest.raises(InputError, match=r"s.tif: has value \S+ at row 4, column 5; ids must be"):
        from_raster(GRID, path)


def test_rasters_that_do_not_fit(tmp_path):
    ones = np.ones((10, 12), "uint8")
    with pytest.raises(InputError, match=r"all.tif: every cell is 0 or nodata"):
        from_raster(GRID, write_tif(tmp_path / "all.tif", ones, nodata=1))
    with pytest.raises(InputError, match=r"a.tif: has 10 x 11 cells, not 10 x 12; warp it"):
        from_raster(GRID, write_tif(tmp_path / "a.tif", ones[:, 1:]))
    moved = replace(GRID, transform=(30.0, 0.0, X0 + 1, 0.0, -30.0, Y0))
    with pytest.raises(InputError, match=r"b.tif: covers x 500001.0 .. 500361.0, .*, not x 500000"):
        from_raster(GRID, write_tif(tmp_path / "b.tif", ones, moved))
    other = replace(GRID, crs_wkt=CRS.from_epsg(32632).to_wkt())
    with pytest.raises(InputError, match=r"c.tif: is in EPSG:32632, not EPSG:32633"):
        from_raster(GRID, write_tif(tmp_path / "c.tif", ones, other))
    with pytest.raises(InputError, match=r"no.tif: no such file"):
        from_raster(GRID, tmp_path / "no.tif")
    (tmp_path / "text.tif").write_text("no raster")
    with pytest.raises(InputError, match=r"text.tif: not a raster"):
        from_raster(GRID, tmp_path / "text.tif")


# -- vector files --------------------------------------------------------------------------


def geometry(kind, coordinates):
    return {"type": kind, "coordinates": coordinates}


def point(col, row):
    return geometry("Point", at(col, row))


def line(*places):
    return geometry("LineString", [at(*p) for p in places])


def polygon(*rings):
    return geometry("Polygon", [[at(*p) for p in [*ring, ring[0]]] for ring in rings])


def box(left, top, right, bottom):
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def square(row0, row1, col0, col1):
    return {(r, c) for r in range(row0, row1) for c in range(col0, col1)}


def feature(shape, **properties):
    return {"type": "Feature", "properties": properties, "geometry": shape}


def crs_member(name):
    return {"crs": {"type": "name", "properties": {"name": name}}}


IN_UTM = crs_member("urn:ogc:def:crs:EPSG::32633")


def collection(*features, **members):
    return {"type": "FeatureCollection", **(members or IN_UTM), "features": list(features)}


def save_json(path, data):
    path.write_text(json.dumps(data))
    return path


def wkb(shape):
    """A GeoJSON geometry as WKB; None stays None."""
    if shape is None:
        return None
    kinds = ["Point", "LineString", "Polygon", "MultiPoint", "MultiLineString", "MultiPolygon"]
    kinds.append("GeometryCollection")
    code = kinds.index(shape["type"]) + 1
    head = struct.pack("<BI", 1, code)
    inside = shape.get("coordinates")

    def positions(some):
        return struct.pack("<I", len(some)) + b"".join(struct.pack("<dd", *p) for p in some)

    if code == 1:
        return head + struct.pack("<dd", *inside)
    if code == 2:
        return head + positions(inside)
    if code == 3:
        return head + struct.pack("<I", len(inside)) + b"".join(map(positions, inside))
    parts = shape.get("geometries") or [geometry(kinds[code - 4], one) for one in inside or ()]
    return head + struct.pack("<I", len(parts)) + b"".join(map(wkb, parts))


def save_gpkg(path, *shapes, crs="EPSG:32633", layer="sources", append=False, options=(), **fields):
    pyogrio.raw.write(
        path,
        np.array([wkb(s) for s in shapes], object),
        [np.array(column) for column in fields.values()],
        list(fields),
        driver="GPKG",
        layer=layer,
        append=append,
        crs=crs,
        geometry_type="Unknown",
        **dict(options),
    )
    return path


def save(kind, folder, *shapes, **fields):
    """Features with fields, as a file of either kind, in UTM."""
    if kind == "gpkg":
        return save_gpkg(folder / "f.gpkg", *shapes, **fields)
    rows = [dict(zip(fields, values, strict=True)) for values in zip(*fields.values(), strict=True)]
    rows = rows or [{}] * len(shapes)
    made = [feature(s, **row) for s, row in zip(shapes, rows, strict=True)]
    return save_json(folder / "f.geojson", collection(*made))


KINDS = pytest.mark.parametrize("kind", ["geojson", "gpkg"])


@KINDS
def test_points_lines_and_polygons(tmp_path, kind):
    shapes = [
        point(3, 4),
        line((0.5, 0.5), (3.5, 0.5)),
        polygon(box(5.1, 5.1, 7.9, 6.9)),
        point(12, 10),
    ]
    found = rows_of(from_vector(GRID, save(kind, tmp_path, *shapes)))
    assert found == [
        *((0, c, 2, 0.0) for c in range(4)),
        (4, 3, 1, 0.0),
        *((r, c, 3, 0.0) for r in (5, 6) for c in (5, 6, 7)),
        (9, 11, 4, 0.0),
    ]


@KINDS
def test_multi_geometries_and_collections(tmp_path, kind):
    shapes = [
        geometry("MultiPoint", [at(0.5, 0.5), at(1.5, 0.5)]),
        geometry("MultiLineString", [line((0.5, 2.5), (1.5, 2.5))["coordinates"]] * 2),
        geometry(
            "MultiPolygon",
            [polygon(box(*b))["coordinates"] for b in ((0, 4, 2, 5), (4.6, 4.6, 4.7, 4.7))],
        ),
        {
            "type": "GeometryCollection",
            "geometries": [
                point(9.5, 9.5),
                line((9.5, 0.5), (9.5, 1.5)),
                {"type": "GeometryCollection", "geometries": [point(11.5, 9.5)]},
            ],
        },
    ]
    found = rows_of(from_vector(GRID, save(kind, tmp_path, *shapes)))
    assert {(r, c): k for r, c, k, _ in found} == {
        (0, 0): 1, (0, 1): 1, (2, 0): 2, (2, 1): 2, (4, 0): 3, (4, 1): 3, (4, 4): 3,
        (9, 9): 4, (9, 11): 4, (0, 9): 4, (1, 9): 4,
    }  # fmt: skip


@KINDS
def test_ids_and_costs(tmp_path, kind):
    shapes = [point(1, 1), point(2, 1), point(3, 1)]
    path = save(kind, tmp_path, *shapes, id=[7, MAX_ID, 7], cost=[0.0, 2.5, 1e300])
    assert rows_of(from_vector(GRID, path)) == [
        (1, 1, 7, 0.0),
        (1, 2, MAX_ID, 2.5),
        (1, 3, 7, 1e300),
    ]
    path = save(kind, tmp_path, *shapes, id=[1.0, 3.0, 2.0], cost=[1, 0, 4], name=["a", "b", "c"])
    found = rows_of(from_vector(GRID, path))
    assert [f[2:] for f in found] == [(1, 1.0), (3, 0.0), (2, 4.0)]
    assert [f[2:] for f in rows_of(from_vector(GRID, save(kind, tmp_path, *shapes)))] == [
        (1, 0.0),
        (2, 0.0),
        (3, 0.0),
    ]


def test_geoparquet_is_named(tmp_path):
    (tmp_path / "f.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"f\.parquet: GeoParquet cannot be read; convert it"):
        from_vector(GRID, tmp_path / "f.parquet")


def test_a_wrong_value_of_a_named_field(tmp_path):
    path = save("geojson", tmp_path, point(1, 1), v=[-1.0])
    with pytest.raises(InputError, match=r"feature 1 has the v -1.0, .*; correct it$"):
        from_vector(GRID, path, cost_field="v")


@KINDS
@pytest.mark.parametrize(
    ("field", "values", "words"),
    [
        ("id", [1, 0], "feature 2 has the id 0, which is not a whole number from 1 to 4294967294"),
        ("id", [1, 2**32 - 1], "feature 2 has the id 4294967295"),
        ("id", [1, -5], "feature 2 has the id -5"),
        ("id", [1, 1.5], "feature 2 has the id 1.5"),
        ("id", ["a", "b"], "feature 1 has the id 'a'.* rename the field.*--id-field id"),
        ("id", [True, True], "feature 1 has the id True"),
        ("cost", [0.0, -1.0], "feature 2 has the cost -1.0, which is negative or not a finite"),
        ("cost", ["1", "2"], "feature 1 has the cost '1'.* rename the field"),
        ("cost", [1.0, math.inf], "feature 2 has the cost inf"),
    ],
)
def test_wrong_ids_and_costs(tmp_path, kind, field, values, words):
    path = save(kind, tmp_path, point(1, 1), point(2, 2), **{field: values})
    with pytest.raises(InputError, match=rf"f.{kind}: {words}"):
        from_vector(GRID, path)


def test_a_cost_that_is_not_a_number(tmp_path):
    path = save("geojson", tmp_path, point(1, 1), point(2, 2), cost=[1.0, math.nan])
    with pytest.raises(InputError, match="feature 2 has the cost nan"):
        from_vector(GRID, path)
    path = save("gpkg", tmp_path, point(1, 1), point(2, 2), cost=[1.0, math.nan])
    with pytest.raises(InputError, match="feature 2 has no cost, but other features have one"):
        from_vector(GRID, path)


@pytest.mark.parametrize("field", ["id", "cost"])
def test_fields_are_filled_or_not_there(tmp_path, field):
    path = tmp_path / "f.json"
    save_json(path, collection(feature(point(1, 1), **{field: 3}), feature(point(2, 2))))
    with pytest.raises(
        InputError, match=f"feature 2 has no {field}, but other features have one; fill"
    ):
        from_vector(GRID, path)
    empty = {"type": "Feature", "properties": None, "geometry": point(2, 2)}
    save_json(path, collection(feature(point(1, 1), **{field: None}), empty))
    assert rows_of(from_vector(GRID, path)) == [(1, 1, 1, 0.0), (2, 2, 2, 0.0)]


def test_ids_that_are_the_key_of_a_geopackage(tmp_path):
    path = save_gpkg(tmp_path / "k.gpkg", point(1, 1), point(2, 2), options={"FID": "id"})
    with sqlite3.connect(path) as data:
        for trigger in data.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            data.execute(f'DROP TRIGGER "{trigger[0]}"')
        data.execute("UPDATE sources SET id = 9 WHERE id = 2")
    assert [f[2] for f in rows_of(from_vector(GRID, path))] == [1, 9]


@KINDS
def test_features_that_leave_the_raster_are_named(tmp_path, kind):
    shapes = [
        point(1, 1),
        point(13, 1),
        line((1, 1), (12.5, 1)),
        polygon(box(-1, -1, 13, 11)),
        polygon(box(0, 0, 12, 10)),
    ]
    with pytest.raises(InputError) as error:
        from_vector(GRID, save(kind, tmp_path, *shapes), outside="error")
    assert str(error.value) == (
        f"{tmp_path}/f.{kind}: 3 of 5 features are not inside the raster, which covers "
        "x 500000.0 .. 500360.0, y 4999700.0 .. 5000000.0: feature 2, feature 3, feature 4; "
        "clip the file to the raster first (ogr2ogr -clipdst)"
    )
    path = save(kind, tmp_path, *[point(-1, -1)] * 9)
    with pytest.raises(InputError, match=r"9 of 9 .*feature 5 and 4 more; correct its CRS"):
        from_vector(GRID, path)


@KINDS
def test_features_without_geometry_are_refused(tmp_path, kind):
    path = save(kind, tmp_path, point(1, 1), None)
    with pytest.raises(InputError, match=rf"f.{kind}: feature 2 has no geometry; add one or"):
        from_vector(GRID, path)
    for empty in (
        geometry("MultiPoint", []),
        geometry("MultiPolygon", []),
        {"type": "GeometryCollection", "geometries": []},
    ):
        with pytest.raises(InputError, match="feature 2 has no geometry"):
            from_vector(GRID, save(kind, tmp_path, point(1, 1), empty))


@KINDS
def test_features_without_geometry_cover_nothing(tmp_path, kind, caplog):
    """Where features stand for the cells that they cover."""
    path = save(kind, tmp_path, None, point(1, 1), geometry("MultiPoint", []), point(-9, 1))
    found = from_vector(GRID, path, fields=False, outside="skip")
    assert found.given.tolist() == [1]
    assert (
        f"f.{kind}: 2 of 4 features have no geometry and cover no cell: feature 1, feature 3"
        in (caplog.text)
    )
    with pytest.raises(InputError, match=r"1 of 4 features are not inside .*: feature 4; clip"):
        from_vector(GRID, path, fields=False, outside="snap", snap=Distance(1, "px"))
    with pytest.raises(InputError, match="feature 1 has no geometry"):
        from_vector(GRID, save(kind, tmp_path, None, None), fields=False)


def test_empty_geometries_of_each_kind(tmp_path):
    for kind in ("Point", "LineString", "Polygon"):
        path = save("geojson", tmp_path, geometry(kind, []))
        with pytest.raises(InputError, match="feature 1 has no geometry"):
            from_vector(GRID, path)
    path = save("gpkg", tmp_path, geometry("Point", [math.nan, math.nan]), geometry("Polygon", []))
    with pytest.raises(InputError, match="feature 1 has no geometry"):
        from_vector(GRID, path)


@KINDS
@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (line((1, 1)), "is a LineString with fewer than 2 positions"),
        (geometry("Polygon", [[at(1, 1), at(2, 2), at(1, 1)]]), "is a Polygon with fewer than 4"),
        (geometry("Polygon", [[at(1, 1), at(2, 2), at(1, 2), at(3, 3)]]), "has a ring that is not"),
        (geometry("LineString", [at(1, 1), [math.nan, 1.0]]), "has a position that is not finite"),
        (geometry("Point", [math.inf, 1.0]), "has a position that is not finite"),
    ],
)
def test_broken_geometries(tmp_path, kind, shape, words):
    path = save(kind, tmp_path, point(1, 1), shape)
    with pytest.raises(InputError, match=rf"f.{kind}: feature 2 {words}.*; repair it"):
        from_vector(GRID, path)


def test_a_third_coordinate_is_left_out(tmp_path):
    shape = geometry("LineString", [[*at(1.5, 1.5), 700.0], at(2.5, 1.5)])
    path = save("geojson", tmp_path, shape)
    assert cells_of(from_vector(GRID, path)) == {(1, 1), (1, 2)}
    path = tmp_path / "z.gpkg"
    raised = struct.pack("<BI3d", 1, 0x80000001, *at(4, 5), 700.0)
    pyogrio.raw.write(
        path, np.array([raised], object), [], [], driver="GPKG", geometry_type="Point Z", crs=UTM
    )
    assert cells_of(from_vector(GRID, path)) == {(5, 4)}


def test_single_features_and_bare_geometries(tmp_path):
    path = tmp_path / "f.geojson"
    save_json(path, {**feature(point(1, 2), id=4), **IN_UTM})
    assert rows_of(from_vector(GRID, path)) == [(2, 1, 4, 0.0)]
    save_json(path, {**geometry("MultiPoint", [at(1, 2), at(5, 5)]), **IN_UTM})
    assert rows_of(from_vector(GRID, path)) == [(2, 1, 1, 0.0), (5, 5, 1, 0.0)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not GeoJSON: Expecting value"),
        ("no json", "not GeoJSON: Expecting value"),
        ("\xff\xfe", "not GeoJSON"),
        ("[" * 100_000, "not GeoJSON"),
        ("[]", "not GeoJSON: no FeatureCollection, Feature or geometry"),
        ("{}", "not GeoJSON: no FeatureCollection"),
        ('{"type": "Topology"}', "not GeoJSON: no FeatureCollection"),
        ('{"type": "FeatureCollection"}', "not GeoJSON: no FeatureCollection"),
        ('{"type": "FeatureCollection", "features": []}', "has no features"),
        ('{"type": "FeatureCollection", "features": [1]}', "feature 1 is not valid GeoJSON"),
        ('{"type": "FeatureCollection", "features": [{}]}', "feature 1 is not valid GeoJSON"),
        ('{"type": "Feature", "geometry": {"type": "Circle", "coordinates": [1]}}', "feature 1 is"),
        ('{"type": "Feature", "geometry": {"type": "Point"}}', "feature 1 is not valid"),
        ('{"type": "Point", "coordinates": [1]}', "feature 1 is not valid"),
        ('{"type": "Point", "coordinates": ["1", "2"]}', "feature 1 is not valid"),
        ('{"type": "Point", "coordinates": [true, false]}', "feature 1 is not valid"),
        ('{"type": "Point", "coordinates": [null, 2]}', "feature 1 is not valid"),
        ('{"type": "Point", "coordinates": 7}', "feature 1 is not valid"),
        ('{"type": "Point", "coordinates": {"x": 7}}', "feature 1 is not valid"),
        ('{"type": "LineString", "coordinates": [1, 2]}', "feature 1 is not valid"),
        ('{"type": "LineString", "coordinates": [[1, 2], [3]]}', "feature 1 is not valid"),
        ('{"type": "Polygon", "coordinates": [[1, 2]]}', "feature 1 is not valid"),
        ('{"type": "MultiPoint", "coordinates": [[]]}', "feature 1 is not valid"),
        ('{"type": "Point", "coordinates": [1, 2], "crs": 5}', "cannot parse its .crs.: 5"),
        (
            '{"type": "Point", "coordinates": [1, 2], "crs": {"type": "link"}}',
            "cannot parse its .crs.:",
        ),
        (
            json.dumps(geometry("Point", [1, 2]) | crs_member("EPSG:0")),
            "cannot parse its .crs.:",
        ),
    ],
)
def test_what_is_not_geojson(tmp_path, text, words):
    path = tmp_path / "f.geojson"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=f"f.geojson: {words}"):
        from_vector(GRID, path)


@pytest.mark.parametrize("name", ["f.geojson", "f.gpkg", "f.shp"])
def test_files_that_are_not_there_or_empty(tmp_path, name):
    path = tmp_path / name
    with pytest.raises(InputError, match=f"{name}: no such file"):
        from_vector(GRID, path)
    path.mkdir()
    with pytest.raises(InputError, match=f"{name}: a folder, not a vector file"):
        from_vector(GRID, path)
    path.rmdir()
    path.touch()
    with pytest.raises(InputError, match=f"{name}: (the file is empty|not GeoJSON)"):
        from_vector(GRID, path)


def test_files_that_are_no_vectors(tmp_path):
    (tmp_path / "f.gpkg").write_text("not a GeoPackage")
    with pytest.raises(InputError, match=r"f.gpkg: not a vector file that can be read: [^\n]+$"):
        from_vector(GRID, tmp_path / "f.gpkg")
    whole = save_gpkg(tmp_path / "g.gpkg", point(1, 1)).read_bytes()
    (tmp_path / "g.gpkg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"g.gpkg: not a vector file that can be read: [^\n]+$"):
        from_vector(GRID, tmp_path / "g.gpkg")
    with pytest.raises(InputError, match=r"(has no layer|not a vector file)"):
        from_vector(GRID, write_tif(tmp_path / "r.tif", np.ones((10, 12), "uint8")))
    with pytest.raises(InputError, match=r"e.gpkg: has no features"):
        from_vector(GRID, save_gpkg(tmp_path / "e.gpkg"))


def test_curves_are_linearised_and_surfaces_refused(tmp_path):
    arc = struct.pack("<BII", 1, 8, 3)
    arc += b"".join(struct.pack("<dd", *at(*p)) for p in ((1.5, 5.5), (3.5, 3.5), (5.5, 5.5)))
    triangle = struct.pack("<BIII", 1, 17, 1, 4)
    triangle += b"".join(struct.pack("<dd", *at(*p)) for p in ((1, 1), (2, 2), (1, 2), (1, 1)))

    def written(data):
        with pytest.warns(RuntimeWarning) if data is triangle else nothing():
            pyogrio.raw.write(
                tmp_path / "c.gpkg", np.array([data], object), [], [], driver="GPKG",
                geometry_type="Unknown", crs=UTM,
            )  # fmt: skip
        return tmp_path / "c.gpkg"

    found = cells_of(from_vector(GRID, written(arc)))
    assert {(5, 1), (3, 3), (5, 5), (4, 2), (4, 4)} - found <= {(4, 2), (4, 4)}
    assert {(5, 1), (3, 3), (5, 5)} <= found
    with pytest.raises(InputError, match=r"c.gpkg: feature 1 has a geometry of WKB type 17"):
        from_vector(GRID, written(triangle))


@contextmanager
def nothing():
    yield


def test_layers(tmp_path):
    path = save_gpkg(tmp_path / "l.gpkg", point(1, 1), layer="a")
    pyogrio.raw.write(path, None, [np.array([1])], ["k"], driver="GPKG", layer="table", append=True)
    assert cells_of(from_vector(GRID, path)) == {(1, 1)}
    save_gpkg(path, point(2, 2), layer="b", append=True)
    assert cells_of(from_vector(GRID, path, "b")) == {(2, 2)}
    with pytest.raises(InputError, match=r"l.gpkg: has several layers; name one of a, b$"):
        from_vector(GRID, path)
    with pytest.raises(InputError, match=r"l.gpkg: has no layer 'c', only a, b$"):
        from_vector(GRID, path, "c")
    with pytest.raises(InputError, match=r"l.gpkg: has no layer 'table', only a, b$"):
        from_vector(GRID, path, "table")
    with pytest.raises(InputError, match=r"f.geojson: GeoJSON has no layers; leave out 'a'"):
        from_vector(GRID, save("geojson", tmp_path, point(1, 1)), "a")


def test_without_pyogrio_geojson_still_works(tmp_path):
    save("geojson", tmp_path, point(1, 1))
    save("gpkg", tmp_path, point(1, 1))
    code = f"""
import sys
sys.modules["pyogrio"] = None
from pathlib import Path
from terrain_gpu.grid import GridSpec
from terrain_gpu.io.lines import checked_target
from terrain_gpu.io.places import from_vector
grid = GridSpec({GRID.rows}, {GRID.cols}, {GRID.transform}, '''{UTM}''', "EPSG:32633")
folder = Path({str(tmp_path)!r})
assert len(from_vector(grid, folder / "f.geojson")) == 1
for what in (lambda: from_vector(grid, folder / "f.gpkg"),
             lambda: checked_target(folder / "new.gpkg", overwrite=False)):
    try:
        what()
    except ValueError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said = done.stdout.splitlines()
    assert len(said) == 2
    for text, name in zip(said, ("f.gpkg", "new.gpkg"), strict=True):
        assert f"{name}: this format needs pyogrio" in text
        assert "pip install 'terrain_gpu[vector]', or use GeoJSON" in text


# -- coordinate systems --------------------------------------------------------------------


def lonlat(col, row):
    return [v[0] for v in warp.transform(GRID.crs_wkt, "EPSG:4326", *[[v] for v in at(col, row)])]


@pytest.mark.parametrize(
    "members",
    [
        {"name": "plain RFC 7946"},
        crs_member("urn:ogc:def:crs:OGC:1.3:CRS84"),
        crs_member("urn:ogc:def:crs:EPSG::4326"),
        crs_member("EPSG:4326"),
    ],
)
def test_longitude_and_latitude_are_reprojected(tmp_path, members):
    shape = geometry("LineString", [lonlat(2.5, 3.5), lonlat(4.5, 3.5)])
    far = geometry("Point", lonlat(12, 10))
    path = save_json(tmp_path / "f.geojson", collection(feature(shape), feature(far), **members))
    found = from_vector(GRID, path)
    assert rows_of(found) == [*((3, c, 1, 0.0) for c in (2, 3, 4)), (9, 11, 2, 0.0)]


def test_a_geopackage_in_another_crs_is_reprojected(tmp_path):
    path = save_gpkg(tmp_path / "f.gpkg", geometry("Point", lonlat(2.5, 3.5)), crs="EPSG:4326")
    assert cells_of(from_vector(GRID, path)) == {(3, 2)}
    x, y = warp.transform(UTM, "EPSG:3035", *[[v] for v in at(7.5, 8.5)])
    path = save_gpkg(tmp_path / "g.gpkg", geometry("Point", [x[0], y[0]]), crs="EPSG:3035")
    assert cells_of(from_vector(GRID, path)) == {(8, 7)}


def test_a_feature_that_cannot_be_reprojected_is_named(tmp_path):
    shapes = [geometry("Point", lonlat(1, 1))] * 6
    shapes[4] = geometry("LineString", [lonlat(1, 1), [15.0, 95.0]])
    path = tmp_path / "f.geojson"
    named = {"type": "name", "properties": {"name": "EPSG:4326"}}
    save_json(path, collection(*map(feature, shapes), crs=named))
    with pytest.raises(
        InputError,
        match="feature 5 cannot be reprojected from EPSG:4326 to EPSG:32633 of the raster",
    ):
        from_vector(GRID, path)
    # Wrong, but finite: metres taken for degrees.
    save_json(path, collection(feature(point(1, 1)), crs=named))
    with pytest.raises(InputError, match="feature 1 cannot be reprojected"):
        from_vector(GRID, path)


@pytest.mark.parametrize("place", [[500_030.0, 4_999_970.0], [15.0, 90.5], [-540.5, 45.0]])
def test_metres_without_a_crs_are_no_longitude_and_latitude(tmp_path, place):
    """RFC 7946 prescribes WGS 84; coordinates that cannot be that are refused, for any raster."""
    for members in ({"bbox": None}, {"name": "plain"}):
        shapes = feature(geometry("Point", lonlat(1, 1))), feature(geometry("Point", place))
        path = save_json(tmp_path / "f.geojson", collection(*shapes, **members))
        for grid in (GRID, BARE):
            with pytest.raises(InputError, match=r"feature 2 is at .*not in longitude"):
                from_vector(grid, path)
    path = save_json(tmp_path / "g.geojson", collection(feature(point(1, 1)), crs=[]))
    with pytest.raises(InputError, match='cannot parse its "crs"'):
        from_vector(GRID, path)
    lonlats = replace(GRID, transform=(0.1, 0.0, 179.0, 0.0, -0.1, 1.0), crs_code="EPSG:4326",
                      crs_wkt=vectors.WGS84.to_wkt())  # fmt: skip
    path = save_json(tmp_path / "h.geojson", feature(geometry("Point", [180.05, 0.95])))
    assert cells_of(from_vector(lonlats, path)) == {(0, 10)}


def test_geojson_without_a_crs_is_told(tmp_path, caplog):
    for name in ("p.geojson", "p.gpkg"):
        write_paths(tmp_path / name, paths_of(STEPS), GRID)
        assert not caplog.messages
    write_paths(tmp_path / "q.gpkg", paths_of(STEPS), replace(GRID, crs_wkt="", crs_code=None))
    assert not caplog.messages
    write_paths(tmp_path / "q.json", paths_of(STEPS), replace(GRID, crs_wkt="", crs_code=None))
    assert caplog.messages == [
        f"{tmp_path}/q.json: the raster has no coordinate system, so its own coordinates are "
        'written, with "crs": null; readers of GeoJSON may interpret them as longitude and latitude'
    ]


def test_one_side_without_a_crs(tmp_path):
    bare = save_json(tmp_path / "bare.geojson", collection(feature(point(1, 1)), crs=None))
    with pytest.raises(
        InputError, match=r"bare.geojson: has no coordinate system, but the raster has one"
    ):
        from_vector(GRID, bare)
    plain = save_json(tmp_path / "plain.geojson", feature(geometry("Point", [1.5, -2.5])))
    with pytest.raises(
        InputError, match=r'plain.geojson: is in EPSG:4326, but the raster has no .*"crs": null'
    ):
        from_vector(BARE, plain)
    with pytest.warns(UserWarning, match="crs"):
        bare = save_gpkg(tmp_path / "bare.gpkg", geometry("Point", [1.5, -2.5]), crs=None)
    with pytest.raises(InputError, match=r"bare.gpkg: has no coordinate system, but"):
        from_vector(GRID, bare)


def test_both_without_a_crs(tmp_path):
    shape = geometry("Point", [1.5, -2.5])
    path = save_json(tmp_path / "f.geojson", collection(feature(shape), crs=None))
    assert cells_of(from_vector(BARE, path)) == {(2, 1)}
    path = save_gpkg(tmp_path / "f.gpkg", shape)
    for code in (-1, 0, 99999):
        with sqlite3.connect(path) as data:
            for table in ("gpkg_geometry_columns", "gpkg_contents"):
                data.execute(f"UPDATE {table} SET srs_id = ?", (code,))
        assert cells_of(from_vector(BARE, path)) == {(2, 1)}


def test_a_crs_of_the_raster_that_is_no_wkt(tmp_path):
    path = save("geojson", tmp_path, point(1, 1))
    with pytest.raises(InputError, match="system 'nonsense' cannot be read"):
        from_vector(replace(GRID, crs_wkt="nonsense"), path)


# -- lines and polygons against plain geometry ---------------------------------------------


def touched_by(path, tiny=1e-6):
    """Cells that a line crosses by more than a tiny length, and those of its vertices."""
    found = {(math.floor(y), math.floor(x)) for x, y in path}
    for (x0, y0), (x1, y1) in pairwise(path):
        cuts = {0.0, 1.0}
        for a, b in ((x0, x1), (y0, y1)):
            for k in range(math.ceil(min(a, b)), math.floor(max(a, b)) + 1):
                if a != b:
                    cuts.add((k - a) / (b - a))
        cuts = sorted(t for t in cuts if 0 <= t <= 1)
        for t0, t1 in pairwise(cuts):
            if (t1 - t0) * math.hypot(x1 - x0, y1 - y0) > tiny:
                t = (t0 + t1) / 2
                found.add((math.floor(y0 + t * (y1 - y0)), math.floor(x0 + t * (x1 - x0))))
    return found


def centres_in(ring, rows, cols):
    """Cells whose centre lies inside a ring: odd number of crossings to the right."""
    found = set()
    for row in range(rows):
        for col in range(cols):
            x, y = col + 0.5, row + 0.5
            odd = False
            for (x0, y0), (x1, y1) in zip(ring, ring[1:] + ring[:1], strict=True):
                if (y0 > y) != (y1 > y) and x < x0 + (y - y0) / (y1 - y0) * (x1 - x0):
                    odd = not odd
            if odd:
                found.add((row, col))
    return found


def places(rows, cols):
    return st.tuples(st.floats(0, cols, width=32), st.floats(0, rows, width=32))


def near_corner(path, distance):
    """Whether a line passes close to a cell corner, where rounding decides what it touches."""
    for (x0, y0), (x1, y1) in pairwise(path):
        length = math.hypot(x1 - x0, y1 - y0)
        if length < distance:
            return True
        for i in range(math.floor(min(x0, x1)), math.ceil(max(x0, x1)) + 1):
            for j in range(math.floor(min(y0, y1)), math.ceil(max(y0, y1)) + 1):
                if abs((x1 - x0) * (y0 - j) - (x0 - i) * (y1 - y0)) / length < distance:
                    return True
    return False


def gdal(shape, rows, cols, **options):
    mask = features.rasterize(
        [shape], (rows, cols), transform=rasterio.Affine(*GRID.transform), dtype="uint8", **options
    )
    return set(map(tuple, np.argwhere(mask).tolist()))


@given(path=st.lists(places(23, 17), min_size=2, max_size=4))
def test_lines_take_every_cell_that_they_touch(folders, path):
    with folders() as folder:
        found = cells_of(from_vector(grid_of(23, 17), save("geojson", folder, line(*path))))
    inner = [(min(x, 17 - 1e-9), min(y, 23 - 1e-9)) for x, y in path]
    ends = {(math.floor(y), math.floor(x)) for x, y in inner}
    assert ends <= found
    if not near_corner(inner, 1e-4):
        assert found == touched_by(inner)
    # GDAL takes a hundredth of a cell for nothing, and leaves out ends on lines between cells.
    if not near_corner(inner, 0.02):
        assert found == ends | gdal(line(*inner), 23, 17, all_touched=True)


@given(ring=st.lists(places(19, 21), min_size=3, max_size=6))
def test_polygons_take_the_cells_whose_centre_they_cover(folders, ring):
    # Off the centres, where covering is a matter of rounding.
    ring = [(min(x + 0.00137, 21), min(y + 0.00071, 19)) for x, y in ring]
    with folders() as folder:
        found = cells_of(from_vector(grid_of(19, 21), save("geojson", folder, polygon(ring))))
    inner = [(min(x, 21 - 1e-9), min(y, 19 - 1e-9)) for x, y in ring]
    wanted = centres_in(inner, 19, 21)
    assert wanted == gdal(polygon(inner), 19, 21)
    if wanted:
        assert found == wanted
    else:
        assert {(math.floor(y), math.floor(x)) for x, y in inner} <= found


@given(
    cut=st.lists(
        st.tuples(st.integers(0, 24), st.integers(2, 18)).map(lambda p: (p[0] / 2, p[1] / 2)),
        max_size=4,
    ).map(sorted)
)
def test_polygons_side_by_side_share_no_cell(folders, cut):
    cut = [(0, 5), *cut, (12, 5)]
    with folders() as folder:
        above, below = (
            cells_of(from_vector(GRID, save("geojson", folder, polygon([*cut, *corners]))))
            for corners in ([(12, 0), (0, 0)], [(12, 10), (0, 10)])
        )
    assert above | below == square(0, 10, 0, 12)
    assert not above & below


@pytest.mark.parametrize(
    ("ring", "cells"),
    [
        (box(3.6, 4.6, 3.7, 4.7), {(4, 3)}),
        (box(3.9, 4.9, 4.1, 5.1), square(4, 6, 3, 5)),
        (box(0.9, 2.1, 6.1, 2.2), square(2, 3, 0, 7)),
        (box(11.9, 9.9, 12, 10), {(9, 11)}),
        (box(3, 4, 3, 4), {(4, 3)}),
        (box(12, 10, 12, 10), {(9, 11)}),
        (box(3.1, 4.1, 3.1 + 1e-12, 4.1 + 1e-12), {(4, 3)}),
    ],
)
def test_polygons_between_centres_take_the_cells_they_touch(tmp_path, ring, cells):
    assert cells_of(from_vector(GRID, save("geojson", tmp_path, polygon(ring)))) == cells


def test_holes(tmp_path):
    shape = polygon(box(1, 1, 9, 9), box(3, 3, 6, 6))
    found = cells_of(from_vector(GRID, save("geojson", tmp_path, shape)))
    assert found == square(1, 9, 1, 9) - square(3, 6, 3, 6)


def test_lines_along_the_edges(tmp_path):
    shape = line((0, 0), (12, 0), (12, 10), (0, 10), (0, 0))
    found = cells_of(from_vector(GRID, save("geojson", tmp_path, shape)))
    assert found == square(0, 10, 0, 12) - square(1, 9, 1, 11)
    assert cells_of(from_vector(GRID, save("geojson", tmp_path, line((12, 3), (12, 3))))) == {
        (3, 11)
    }
    assert cells_of(from_vector(GRID, save("geojson", tmp_path, line((2, 3), (5, 3))))) == {
        (3, 2), (3, 3), (3, 4), (3, 5)
    }  # fmt: skip


def test_a_polygon_over_the_whole_raster(tmp_path):
    path = save("geojson", tmp_path, polygon(box(0, 0, 71, 53)))
    assert len(from_vector(grid_of(53, 71), path)) == 53 * 71


def test_a_small_polygon_in_a_raster_of_a_trillion_cells(tmp_path):
    grid = grid_of(2_000_000, 1_000_000)
    path = save(
        "geojson",
        tmp_path,
        polygon(box(999_990, 1_999_997, 1_000_000, 2_000_000)),
        line((0, 1_999_999.5), (5_000.5, 1_999_999.5)),
        point(1_000_000, 0),
    )
    found = cells_of(from_vector(grid, path))
    assert found == (
        square(1_999_997, 2_000_000, 999_990, 1_000_000)
        | square(1_999_999, 2_000_000, 0, 5_001)
        | {(0, 999_999)}
    )


def test_thousands_of_points(tmp_path):
    rng = np.random.default_rng(4)
    grid = grid_of(3000, 4000)
    where = np.stack((rng.integers(0, 3000, 5000), rng.integers(0, 4000, 5000)), axis=1)
    path = save("gpkg", tmp_path, *(point(c + 0.5, r + 0.5) for r, c in where))
    assert rows_of(from_vector(grid, path)) == rows_of(from_rowcol(grid, where))


# -- traces --------------------------------------------------------------------------------

CODES = {
    (0, 1): 1, (1, 1): 2, (1, 0): 4, (1, -1): 8, (0, -1): 16, (-1, -1): 32, (-1, 0): 64,
    (-1, 1): 128,
}  # fmt: skip


def backlinks(path, shape):
    """Codes that lead along `path`, from its last cell to its first; 255 elsewhere."""
    codes = np.full(shape, 255, np.uint8)
    codes[path[0]] = 0
    for (r0, c0), (r1, c1) in pairwise(path):
        codes[r1, c1] = CODES[r0 - r1, c0 - c1]
    return codes


def reader(codes, block=64, log=None):
    def read(i, j):
        if log is not None:
            log.append((i, j))
        return codes[i * block : (i + 1) * block, j * block : (j + 1) * block].copy()

    return read, BlockGrid(*codes.shape, block)


def traced(codes, row, col, block=64):
    return trace_path(*reader(codes, block), row, col)


@given(
    start=st.tuples(st.integers(0, 149), st.integers(0, 140)),
    steps=st.lists(st.sampled_from([*CODES]), max_size=400),
)
def test_paths_are_followed_through_blocks(start, steps):
    path = [start]
    for dr, dc in steps:
        cell = path[-1][0] + dr, path[-1][1] + dc
        if 0 <= cell[0] < 150 and 0 <= cell[1] < 141 and cell not in path:
            path.append(cell)
    codes = backlinks(path, (150, 141))
    for block in (64, 256):
        found = traced(codes, *path[-1], block)
        assert found.dtype == np.int64
        assert found.flags.c_contiguous
        assert found.tolist() == [list(cell) for cell in path]


def snake(rows, cols):
    """A path through every cell."""
    return [(r, c if r % 2 == 0 else cols - 1 - c) for r in range(rows) for c in range(cols)]


def test_a_path_longer_than_a_piece_reads_few_blocks():
    path = snake(300, 250)
    log = []
    found = trace_path(*reader(backlinks(path, (300, 250)), log=log), *path[-1])
    assert len(path) > 2**16
    assert found.tolist() == [list(cell) for cell in path]
    assert len(log) == 20  # each once: the four across are kept


def test_sources_and_unreached_cells():
    codes = np.full((70, 70), 255, np.uint8)
    codes[69, 69] = 0
    assert traced(codes, 69, 69).tolist() == [[69, 69]]
    assert traced(codes, 0, 0) is None


@pytest.mark.parametrize("cell", [(-1, 0), (0, -1), (70, 0), (0, 70)])
def test_a_target_outside_of_the_raster(cell):
    with pytest.raises(InputError, match=rf"row {cell[0]}, column {cell[1]} is outside the"):
        traced(np.zeros((70, 70), np.uint8), *cell)


@pytest.mark.parametrize("code", [3, 7, 129, 254, 255])
def test_a_value_that_is_no_code(code):
    codes = np.full((70, 70), 16, np.uint8)
    codes[5, 60] = code
    with pytest.raises(StoreError, match=f"the backlinks hold {code} at row 5, column 60; .*again"):
        traced(codes, 5, 69)


def test_damage_at_the_target_itself():
    codes = np.full((70, 70), 9, np.uint8)
    with pytest.raises(StoreError, match="hold 9 at row 5, column 6"):
        traced(codes, 5, 6)


@pytest.mark.parametrize("code", CODES.values())
def test_a_way_out_of_the_raster(code):
    with pytest.raises(
        StoreError, match=r"lead out of the raster to row -?[0-9]+, column -?[0-9]+"
    ):
        traced(np.full((70, 90), code, np.uint8), 30, 40)


@pytest.mark.parametrize("tail", [0, 1, 7, 300])
def test_cycles(tail):
    small = snake(1, tail + 1)
    codes = backlinks(small, (4, 310))
    codes[0, 0], codes[0, 1] = 1, 16
    with pytest.raises(StoreError, match=r"form a cycle at row 0, column [01]"):
        traced(codes, 0, tail)


def test_a_cycle_through_every_block():
    codes = np.zeros((200, 200), np.uint8)
    codes[0], codes[-1], codes[:, 0], codes[:, -1] = 16, 1, 4, 64
    codes[0, 0], codes[-1, 0], codes[-1, -1], codes[0, -1] = 4, 1, 64, 16
    with pytest.raises(StoreError, match="form a cycle"):
        traced(codes, 0, 100)


def test_blocks_that_are_no_backlinks():
    codes = np.zeros((70, 70), np.int16)
    with pytest.raises(
        StoreError, match=r"block \(0, 0\) are \(64, 64\) int16, not \(64, 64\) uin"
    ):
        traced(codes, 0, 0)
    with pytest.raises(StoreError, match=r"are \(64, 64\) uint8, not \(6, 64\) uint8"):
        trace_path(lambda i, j: np.zeros((64, 64), np.uint8), BlockGrid(70, 70, 64), 69, 0)


def test_path_points():
    found = cell_centres(GRID, np.array([[0, 0], [9, 11]]))
    assert found.dtype == np.float64
    assert found.tolist() == [[500_015.0, 4_999_985.0], [500_345.0, 4_999_715.0]]


# -- paths out -----------------------------------------------------------------------------


def paths_of(*cells, cost=12.5):
    return [
        TracedPath(k, 10 * k, cost, 30.0 * len(some), np.array(some, np.int64))
        for k, some in enumerate(cells, 1)
    ]


STEPS = [(0, 0), (1, 1), (2, 1)]


def read_gpkg(path):
    meta, _, shapes, columns = pyogrio.raw.read(path, layer="paths")
    lines = [
        np.frombuffer(s, "<f8", offset=9).reshape(struct.unpack_from("<I", s, 5)[0], 2)
        for s in shapes
    ]
    return meta, lines, dict(zip(meta["fields"], columns, strict=True))


@pytest.mark.parametrize("name", ["p.geojson", "p.json", "P.GeoJSON"])
def test_paths_as_geojson(tmp_path, name):
    write_paths(tmp_path / name, paths_of(STEPS, [(5, 5)]), GRID)
    data = json.loads((tmp_path / name).read_text())
    assert data["type"] == "FeatureCollection"
    assert "crs" not in data
    first, second = data["features"]
    assert first["type"] == "Feature"
    assert first["properties"] == {
        "source": 1, "target": 10, "cost": 12.5, "length": 90.0, "cells": 3
    }  # fmt: skip
    assert first["geometry"]["type"] == "LineString"
    wanted = [lonlat(c + 0.5, r + 0.5) for r, c in STEPS]
    assert np.allclose(first["geometry"]["coordinates"], wanted, rtol=0, atol=1e-9)
    assert second["properties"]["cells"] == 1
    assert len(second["geometry"]["coordinates"]) == 2
    assert len({tuple(p) for p in second["geometry"]["coordinates"]}) == 1
    assert os.listdir(tmp_path) == [name]


def test_paths_as_geopackage(tmp_path):
    path = tmp_path / "p.gpkg"
    write_paths(path, paths_of(STEPS, [(5, 5)]), GRID)
    meta, lines, fields = read_gpkg(path)
    assert CRS.from_user_input(meta["crs"]) == CRS.from_epsg(32633)
    assert meta["geometry_type"] == "LineString"
    assert np.array_equal(lines[0], cell_centres(GRID, np.array(STEPS)))
    assert lines[1].tolist() == [at(5.5, 5.5)] * 2
    assert {name: column.tolist() for name, column in fields.items()} == {
        "source": [1, 2],
        "target": [10, 20],
        "length": [90.0, 30.0],
        "cells": [3, 1],
        "cost": [12.5, 12.5],
    }
    assert os.listdir(tmp_path) == ["p.gpkg"]


@pytest.mark.parametrize("name", ["p.geojson", "p.gpkg"])
def test_paths_are_sources_again(tmp_path, name):
    write_paths(tmp_path / name, paths_of(STEPS, [(5, 5)]), GRID)
    assert cells_of(from_vector(GRID, tmp_path / name)) >= {*STEPS, (5, 5)}
    write_paths(tmp_path / name, paths_of([(3, 4)]), BARE, overwrite=True)
    assert cells_of(from_vector(BARE, tmp_path / name)) == {(3, 4)}


def test_paths_of_a_raster_without_crs_are_written_as_they_are(tmp_path):
    write_paths(tmp_path / "p.geojson", paths_of(STEPS), BARE)
    data = json.loads((tmp_path / "p.geojson").read_text())
    assert data["crs"] is None
    assert data["features"][0]["geometry"]["coordinates"] == [[0.5, -0.5], [1.5, -1.5], [1.5, -2.5]]
    write_paths(tmp_path / "p.gpkg", paths_of(STEPS), BARE)
    meta, lines, _ = read_gpkg(tmp_path / "p.gpkg")
    assert meta["crs"] is None
    assert lines[0].tolist() == [[0.5, -0.5], [1.5, -1.5], [1.5, -2.5]]


@pytest.mark.parametrize("name", ["p.geojson", "p.gpkg"])
def test_no_paths(tmp_path, name):
    write_paths(tmp_path / name, iter(()), GRID)
    assert pyogrio.read_info(tmp_path / name)["features"] == 0


@pytest.mark.parametrize(
    ("cost", "kind"),
    [(3, "int64"), (np.uint32(3), "int64"), (2**63, "float64"), (np.float32(0.5), "float64")],
)
def test_costs_keep_their_kind(tmp_path, cost, kind):
    write_paths(tmp_path / "p.geojson", paths_of(STEPS, cost=cost), GRID)
    text = (tmp_path / "p.geojson").read_text()
    assert f'"cost": {cost},' in text
    write_paths(tmp_path / "p.gpkg", paths_of(STEPS, cost=cost), GRID)
    found = read_gpkg(tmp_path / "p.gpkg")[2]["cost"]
    assert found.dtype == kind
    assert found[0] == cost


@pytest.mark.parametrize("down", [0, 1])
def test_a_path_over_the_antimeridian_is_cut(tmp_path, down):
    pacific = CRS.from_epsg(3832).to_wkt(version="WKT2_2019")
    grid = GridSpec(9, 9, (10_000.0, 0.0, 3_300_000.0, 0.0, -10_000.0, 0.0), pacific, "EPSG:3832")
    steps = [(k * down, k) for k in range(9)]
    write_paths(tmp_path / "p.geojson", paths_of(steps, [*steps, *steps[::-1]]), grid)
    once, twice = (
        f["geometry"] for f in json.loads((tmp_path / "p.geojson").read_text())["features"]
    )
    assert once["type"] == twice["type"] == "MultiLineString"
    west, east = (np.array(part) for part in once["coordinates"])
    assert (len(west), len(east)) == (5, 6)
    assert west[-1].tolist() == [180, west[-1, 1]]
    assert east[0].tolist() == [-180, west[-1, 1]]
    assert (np.diff(west[:, 0]) > 0).all()
    assert (np.diff(east[:, 0]) > 0).all()
    heights = [west[-2, 1], west[-1, 1], east[1, 1]]
    assert heights == sorted(heights, reverse=True)
    assert [len(part) for part in twice["coordinates"]] == [5, 12, 5]
    assert twice["coordinates"][2][0] == [180, west[-1, 1]]


def test_a_path_on_the_antimeridian():
    found = vector_lines.cut_line(np.array([[180.0, 1], [-180, 2], [-180, 3], [179, 4]]))
    assert [part.tolist() for part in found] == [
        [[180, 1], [180, 1]],
        [[-180, 1], [-180, 2], [-180, 3], [-180, 3]],
        [[180, 3], [179, 4]],
    ]


@pytest.mark.parametrize("name", ["p.geojson", "p.gpkg"])
def test_an_existing_file_is_replaced_only_when_asked(tmp_path, name):
    path = tmp_path / name
    path.write_text("old")
    with pytest.raises(InputError, match=f"{name}: exists; --overwrite replaces it"):
        write_paths(path, paths_of(STEPS), GRID)
    assert path.read_text() == "old"
    write_paths(path, paths_of(STEPS), GRID, overwrite=True)
    assert pyogrio.read_info(path)["features"] == 1
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("p.shp", "p.shp: the name must end in .geojson"),
        ("p", "p: the name must end in .geojson"),
        ("no/p.geojson", "no/p.geojson: its folder does not exist; make it first"),
        ("folder.gpkg", "folder.gpkg: is a folder"),
    ],
)
def test_wrong_names(tmp_path, name, words):
    (tmp_path / "folder.gpkg").mkdir()
    with pytest.raises(InputError, match=words):
        write_paths(tmp_path / name, paths_of(STEPS), GRID, overwrite=True)
    assert os.listdir(tmp_path) == ["folder.gpkg"]


def test_parquet_holds_what_a_geopackage_does(tmp_path):
    from pyarrow import parquet

    for name, paths in (("a", paths_of(STEPS)), ("b", [])):
        for kind in ("gpkg", "parquet"):
            write_paths(tmp_path / f"{name}.{kind}", paths, GRID)
        meta, _, shapes, columns = pyogrio.raw.read(tmp_path / f"{name}.gpkg")
        table = parquet.read_table(tmp_path / f"{name}.parquet")
        assert table["geometry"].to_pylist() == list(shapes)
        assert [*table.column_names] == [*meta["fields"], "geometry"]
        for field, column in zip(meta["fields"], columns, strict=True):
            assert table[field].to_pylist() == column.tolist()
        about = json.loads(table.schema.metadata[b"geo"])["columns"]["geometry"]
        assert about["geometry_types"] == [meta["geometry_type"]]
        assert CRS.from_dict(about["crs"]) == CRS.from_wkt(GRID.crs_wkt)


@pytest.mark.parametrize("name", ["p.geojson", "p.gpkg"])
def test_a_failure_leaves_the_old_file(tmp_path, name, monkeypatch):
    path = tmp_path / name
    path.write_text("old")

    def broken():
        yield from paths_of(STEPS)
        raise StoreError("s.zarr: damaged")

    with pytest.raises(StoreError, match=r"s.zarr: damaged"):
        write_paths(path, broken(), GRID, overwrite=True)

    def refuse(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(vectors.os, "replace", refuse)
    with pytest.raises(
        OutputError, match=f"{name}: cannot be written: Input/output error; nothing was replaced"
    ):
        write_paths(path, paths_of(STEPS), GRID, overwrite=True)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == [name]


def test_paths_beyond_longitude_and_latitude(tmp_path):
    far = replace(GRID, transform=(CELL, 0.0, 1e9, 0.0, -CELL, Y0))
    with pytest.raises(
        InputError, match=r"p.geojson: the position .* cannot be .* GeoPackage \(.gpkg\)"
    ):
        write_paths(tmp_path / "p.geojson", paths_of(STEPS), far)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("name", ["p.geojson", "p.gpkg"])
def test_a_full_disk(tmp_path, name):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)]
    if (
        not shutil.which("mount")
        or subprocess.run(mount, check=False, capture_output=True).returncode
    ):
        pytest.skip("may not mount a tmpfs")
    try:
        path = disk / name
        path.write_text("old")
        long = snake(300, 250)
        with pytest.raises(OutputError) as error:
            write_paths(path, paths_of(long), grid_of(300, 250), overwrite=True)
        assert re.fullmatch(
            r"\S+: no space left on the disk; nothing was replaced", str(error.value)
        )
        assert path.read_text() == "old"
        assert os.listdir(disk) == [name]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_an_array_without_a_value_is_named():
    """Not the nearest place, of which there is none."""
    cells = np.full((5, 6), np.nan, np.float32)
    with pytest.raises(
        InputError, match="data: no cell has a value; check the array and its nodata"
    ):
        terrain_gpu.shortest_paths(cells, [(1, 2)])
    cells[3, 3] = 1
    with pytest.raises(InputError, match="nearest valid cell: row 3, column 3"):
        terrain_gpu.shortest_paths(cells, [(1, 2)])
